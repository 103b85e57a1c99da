"""Act for one episode, with a new plan at every step (receding horizon)."""

from __future__ import annotations

import secrets
from typing import Any

import numpy as np

from planvec.planners.arguments import check_planner, check_stepper, one_state
from planvec.planners.base import Planner
from planvec.planners.driver import PlanCallback
from planvec.planners.episode import Episode, EpisodeCallback, EpisodeRecorder, EpisodeStep
from planvec.planners.plan import Plan
from planvec.rows import BatchStepper, check_integer, check_seed, one_action


def run_episode(
    env: BatchStepper,
    planner: Planner,
    *,
    seed: int | None = None,
    max_steps: int | None = None,
    callback: EpisodeCallback | None = None,
    plan_callback: PlanCallback | None = None,
    recorder: EpisodeRecorder | None = None,
) -> Episode:
    """Play one episode: plan, take one step, and plan again at the new state.

    Real steps draw from the generator in the state, as the environment itself would; only the steps of the
    planner are reseeded.

    Args:
        env: The stepper, which is reset.
        planner: Chooses each action.
        seed: Fixes the start (`env.reset(seed=seed)`), what is random, and every decision; None draws one.
        max_steps: Largest number of steps; None goes on until the episode ends, which may never happen
            without a time limit.
        callback: `callback(step)` with an `EpisodeStep` after each step; True ends the episode.
        plan_callback: `plan_callback(num_simulations, num_env_steps)` after each batch of a decision; True
            ends the decision.
        recorder: Records the steps, to read them after an interrupt; None uses a new one.

    Raises:
        TypeError: `env` or `planner` is something else.
        ValueError: `max_steps` is below 1, or the seed is out of range.
        InvalidBatchError, UnsupportedEnvError, EnvError: Errors of the planner or the environment.
    """
    check_stepper(env)
    check_planner(planner)
    seed = secrets.randbits(32) if seed is None else check_seed(seed)
    recorder = recorder or EpisodeRecorder(env.action_space, env.observation_space)
    start = env.reset(seed=seed)
    recorder.begin(seed, start)
    return _play(env, planner, recorder, start.state, start.info, None, max_steps, callback, plan_callback)


def resume_episode(
    env: BatchStepper,
    planner: Planner,
    recorder: EpisodeRecorder,
    *,
    info: dict[str, Any],
    previous: Plan | None,
    max_steps: int | None = None,
    callback: EpisodeCallback | None = None,
    plan_callback: PlanCallback | None = None,
) -> Episode:
    """Go on with an episode that was interrupted. It ends as if it had not been.

    Args:
        env: The stepper.
        planner: The planner of the episode, with the same settings.
        recorder: Holds the start and the steps so far.
        info: The info at the last state.
        previous: The last decision, with its `search_data`; None before the first one.
        max_steps: Largest number of steps, those before the interrupt included.
        callback: As in `run_episode`.
        plan_callback: As in `run_episode`.

    Raises:
        TypeError: `env` or `planner` is something else.
        InvalidBatchError, UnsupportedEnvError, EnvError: Errors of the planner or the environment.
    """
    check_stepper(env)
    check_planner(planner)
    state = recorder.last_state
    return _play(env, planner, recorder, state, info, previous, max_steps, callback, plan_callback)


def _play(
    env: BatchStepper,
    planner: Planner,
    recorder: EpisodeRecorder,
    state: Any,
    info: dict[str, Any],
    plan: Plan | None,
    max_steps: int | None,
    callback: EpisodeCallback | None,
    plan_callback: PlanCallback | None,
) -> Episode:
    """Play from a state to the end of the episode. The arguments are those of `resume_episode`."""
    if max_steps is not None:
        check_integer("max_steps", max_steps, 1)
    states = one_state(env, state)
    decisions = np.random.SeedSequence(recorder.seed, n_children_spawned=recorder.num_steps)
    options: dict[str, Any] = {} if plan_callback is None else {"callback": plan_callback}
    while not recorder.has_ended and (max_steps is None or recorder.num_steps < max_steps):
        plan_seed = int(decisions.spawn(1)[0].generate_state(1, np.uint64)[0])
        plan = planner.plan(env, states[0], seed=plan_seed, previous=plan, info=info, **options)
        before = states
        out = env.step_batch(one_action(env.action_space, plan.action), states, blocking=True)
        states = out.new_states
        info = out.row(env.observation_space, 0)[-1]
        recorder.add(plan.action, plan.value, plan.num_env_steps, out)
        if callback is not None:
            step = EpisodeStep(
                recorder.num_steps, recorder.total_return, recorder.num_env_steps, plan, before, out
            )
            if callback(step):
                break
    return recorder.episode()
