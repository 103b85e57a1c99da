"""Episodes: played with a new plan at every step, and replayed by Gymnasium itself."""

from __future__ import annotations

import dataclasses
from typing import Any

import gymnasium
import numpy as np
import pytest
from environments import Plane, Warehouse
from marks import slow_after

import planvec
from planvec.planners import EpisodeRecorder, EpisodeStep, Plan, save_trajectory, trajectory_arrays

QUICK = planvec.Swarm(num_walkers=16, num_iterations=12, dt=(1, 3))


class Sampled:
    """A planner that takes a random action, for spaces that the swarm does not support."""

    def plan(self, env: Any, state: Any = None, *, seed: int, **_: Any) -> Plan:
        env.action_space.seed(seed % 2**32)
        return Plan(action=env.action_space.sample(), value=0.0, num_simulations=1, num_env_steps=7)


def play(env_id: str, planner: planvec.Planner = QUICK, **kwargs: Any) -> planvec.Episode:
    with planvec.PlanEnv(env_id) as env:
        return planvec.run_episode(env, planner, **kwargs)


def equal(one: planvec.Episode, other: planvec.Episode) -> bool:
    return all(
        np.array_equal(getattr(one, field.name), getattr(other, field.name))
        for field in dataclasses.fields(planvec.Episode)
        if field.name != "elapsed"
    )


@pytest.mark.parametrize("env_id", ["CartPole-v1", "Pendulum-v1", "FrozenLake-v1", "Acrobot-v1"])
def test_gymnasium_replays_an_episode_exactly(env_id: str) -> None:
    played = play(env_id, seed=7, max_steps=15)
    env = gymnasium.make(env_id)
    observation, _ = env.reset(seed=played.seed)
    assert np.array_equal(played.observations[0], observation)
    for step, action in enumerate(played.actions):
        observation, reward, terminated, truncated, _ = env.step(action)
        assert np.array_equal(played.observations[step + 1], observation)
        assert played.rewards[step] == reward
    assert (played.terminated, played.truncated) == (terminated, truncated)
    env.close()


def test_one_seed_fixes_an_episode() -> None:
    one, other, another = (play("FrozenLake-v1", seed=seed) for seed in (2, 2, 3))
    assert equal(one, other)
    assert not equal(one, another)


def test_a_seed_is_drawn_and_told() -> None:
    one = play("CartPole-v1", max_steps=2)
    assert equal(one, play("CartPole-v1", max_steps=2, seed=one.seed))


def test_an_episode_does_not_depend_on_the_number_of_workers() -> None:
    episodes = []
    for num_workers in (0, 2):
        with planvec.make("FrozenLake-v1", num_workers=num_workers) as env:
            episodes.append(planvec.run_episode(env, QUICK, seed=4))
    assert equal(*episodes)


def test_the_pole_stays_up() -> None:
    played = play("CartPole-v1", seed=0, max_steps=100)
    assert (played.num_steps, played.total_return) == (100, 100.0)
    assert (played.terminated, played.truncated) == (False, False)


def test_an_episode_ends_with_its_time_limit() -> None:
    with planvec.PlanEnv("Pendulum-v1", env_kwargs={"max_episode_steps": 6}) as env:
        played = planvec.run_episode(env, QUICK, seed=0)
    assert (played.num_steps, played.terminated, played.truncated) == (6, False, True)
    assert played.actions.shape == (6, 1)
    assert played.observations.shape == (7, 3)
    assert played.total_return == pytest.approx(played.rewards.sum())


@pytest.mark.parametrize("seed", range(3))
def test_a_dry_lake_is_crossed(seed: int) -> None:
    with planvec.PlanEnv("FrozenLake-v1", env_kwargs={"is_slippery": False}) as env:
        assert planvec.run_episode(env, planvec.Swarm(), seed=seed).total_return == 1


@pytest.mark.slow
def test_the_pendulum_is_swung_up() -> None:
    assert play("Pendulum-v1", seed=0).total_return > -400


@pytest.mark.slow
def test_an_episode_follows_one_wave_to_its_end() -> None:
    wave = planvec.SwarmWave()
    played = play("CartPole-v1", wave, seed=0)
    with planvec.PlanEnv("CartPole-v1") as env:
        seed = int(np.random.SeedSequence(0).spawn(1)[0].generate_state(1, np.uint64)[0])
        planned = wave.plan(env, env.reset(seed=0).state, seed=seed)
    assert np.array_equal(played.actions, np.repeat(planned.best_actions, planned.best_num_steps))
    assert played.total_return == planned.best_return
    assert played.num_env_steps == planned.num_env_steps + played.num_steps - 1


def test_the_callback_sees_every_step_and_ends_the_episode() -> None:
    seen: list[EpisodeStep] = []

    def stop_at_four(step: EpisodeStep) -> bool:
        seen.append(step)
        return len(seen) == 4

    played = play("CartPole-v1", seed=0, callback=stop_at_four)
    last = seen[-1]
    assert (last.num_steps, last.total_return, last.num_env_steps) == (4, 4.0, played.num_env_steps)
    assert last.plan.action == played.actions[3]
    assert last.state.tobytes() == played.states[3:4].tobytes()
    assert last.transition.new_states.tobytes() == played.states[4:].tobytes()
    assert played.num_steps == 4


def test_the_plan_callback_sees_the_batches_of_every_decision() -> None:
    seen: list[tuple[int, int]] = []
    played = play("CartPole-v1", seed=0, max_steps=2, plan_callback=lambda *counts: seen.append(counts))
    assert len(seen) == 2 * QUICK.num_iterations
    assert seen[-1][0] == QUICK.num_walkers * QUICK.num_iterations
    assert equal(played, play("CartPole-v1", seed=0, max_steps=2))


@pytest.mark.parametrize("env_id", slow_after(1, ["CartPole-v1", "FrozenLake-v1", "MiniGrid-Empty-5x5-v0"]))
def test_the_states_replay_an_episode_in_one_batch(env_id: str) -> None:
    with planvec.make(env_id, num_workers=1) as env:
        played = planvec.run_episode(env, QUICK, seed=3, max_steps=9)
        out = env.step_batch(played.actions, played.states[:-1])
    assert all(one == other for one, other in zip(out.new_states, played.states[1:], strict=True))
    assert np.array_equal(out.rewards, played.rewards)


@pytest.mark.parametrize(
    ("env", "planner", "message"),
    [
        (
            "CartPole-v1",
            QUICK,
            r"env: .* got the id 'CartPole-v1'; open it with planvec.make\('CartPole-v1'\)",
        ),
        (gymnasium.make("CartPole-v1"), QUICK, r"env: .* open it with planvec.PlanEnv\(env\)"),
        (None, planvec.Swarm, r"planner: expected an instance, got the class Swarm; call it: Swarm\(\)"),
        (None, "swarm", r"planner: expected an instance of a planvec.Planner, got 'swarm'"),
    ],
)
def test_something_else_than_a_stepper_or_a_planner_is_named(env: Any, planner: Any, message: str) -> None:
    with planvec.PlanEnv("CartPole-v1") as opened, pytest.raises(TypeError, match=message):
        planvec.run_episode(opened if env is None else env, planner)
    if env is not None:
        with pytest.raises(TypeError, match=message):
            planner.plan(env)
        with pytest.raises(TypeError, match=message):
            planner.plan_batch(env, np.zeros(1))


def test_an_interrupted_episode_can_be_read_from_its_recorder() -> None:
    def interrupt(step: EpisodeStep) -> None:
        if step.num_steps == 3:
            raise KeyboardInterrupt

    with planvec.PlanEnv("CartPole-v1") as env:
        recorder = EpisodeRecorder(env.action_space, env.observation_space)
        with pytest.raises(KeyboardInterrupt):
            planvec.run_episode(env, QUICK, seed=0, callback=interrupt, recorder=recorder)
    assert equal(recorder.episode(), play("CartPole-v1", seed=0, max_steps=3))


def test_nested_spaces_are_saved_by_path_and_load_without_pickle(tmp_path: Any) -> None:
    with planvec.PlanEnv(Plane) as env:
        played = planvec.run_episode(env, Sampled(), seed=0, max_steps=5)
        save_trajectory(tmp_path / "t.npz", played, env.action_space, env.observation_space)
    with np.load(tmp_path / "t.npz", allow_pickle=False) as saved:
        assert set(saved) == {
            *("actions.0", "actions.1.jump", "rewards", "terminated", "truncated", "seed", "values"),
            *("states", "states.sizes", "states.generator_sizes", "states.origin"),
            *("observations.xy", "observations.inner.bits", "observations.inner.count"),
        }
        assert saved["observations.inner.count"].tolist() == [0, 1, 2, 3, 4, 5]


def test_text_observations_are_saved_as_text() -> None:
    with planvec.PlanEnv(Warehouse) as env:
        played = planvec.run_episode(env, QUICK, seed=0, max_steps=4)
        arrays = trajectory_arrays(played, env.action_space, env.observation_space)
    assert arrays["observations.note"].dtype.kind == "U"
    assert arrays["observations.load.0"].shape == (5,)
    assert arrays["actions"].shape == (4, 3)


@pytest.mark.parametrize("wrong", [{"max_steps": 0}, {"seed": -1}])
def test_a_number_out_of_range_is_refused_by_name(wrong: dict[str, int]) -> None:
    with pytest.raises(ValueError, match=next(iter(wrong))):
        play("CartPole-v1", **wrong)
