"""What type checkers say of the public interface. It is read by them, and never run: see `test_typing.py`."""

from __future__ import annotations

from typing import Any, Literal, assert_type

import gymnasium
import numpy as np
from numpy.typing import NDArray

import planvec
from planvec import (
    BatchEnv,
    BatchStepper,
    ExternalProcess,
    PlanEnv,
    Promise,
    Rollouts,
    Start,
    Transitions,
)


def make_gives_an_environment_that_waits_or_does_not(flag: bool) -> None:
    assert_type(planvec.make("CartPole-v1"), BatchEnv[Literal[True]])
    assert_type(planvec.make("CartPole-v1", blocking=True), BatchEnv[Literal[True]])
    assert_type(planvec.make("CartPole-v1", blocking=False), BatchEnv[Literal[False]])
    assert_type(planvec.make("CartPole-v1", blocking=flag), BatchEnv[bool])


def a_batch_env_that_waits_returns_results(env: BatchEnv, flag: bool) -> None:
    assert_type(env, BatchEnv[Literal[True]])
    assert_type(env.step_batch([0]), Transitions)
    assert_type(env.step_batch([0], blocking=True), Transitions)
    assert_type(env.step_batch([0], blocking=False), Promise[Transitions])
    assert_type(env.step_batch([0], blocking=flag), Transitions | Promise[Transitions])
    assert_type(env.rollout_batch(horizon=3), Rollouts)
    assert_type(env.rollout_batch(horizon=3, blocking=True), Rollouts)
    assert_type(env.rollout_batch(horizon=3, blocking=False), Promise[Rollouts])
    assert_type(env.rollout_batch(horizon=3, blocking=flag), Rollouts | Promise[Rollouts])


def a_batch_env_in_promise_mode_returns_promises(env: BatchEnv[Literal[False]]) -> None:
    assert_type(env.step_batch([0]), Promise[Transitions])
    assert_type(env.step_batch([0], blocking=True), Transitions)
    assert_type(env.step_batch([0], blocking=False), Promise[Transitions])
    assert_type(env.rollout_batch(horizon=3), Promise[Rollouts])
    assert_type(env.rollout_batch(horizon=3, blocking=True), Rollouts)
    assert_type(env.clone(), BatchEnv[Literal[False]])
    with env as same:
        assert_type(same.step_batch([0]), Promise[Transitions])


def a_batch_env_is_made_of_processes_or_of_one_environment(flag: bool) -> None:
    process = ExternalProcess(lambda: PlanEnv("CartPole-v1"))
    assert_type(BatchEnv([process]), BatchEnv[Literal[True]])
    assert_type(BatchEnv([process], blocking=False), BatchEnv[Literal[False]])
    assert_type(BatchEnv(PlanEnv("CartPole-v1"), blocking=flag), BatchEnv[bool])
    assert_type(BatchEnv([process]).workers, tuple[ExternalProcess, ...])
    assert_type(BatchEnv([process]).stats, planvec.Stats)


def a_plan_env_waits_by_default(env: PlanEnv) -> None:
    assert_type(env.step_batch([0]), Transitions)
    assert_type(env.step_batch([0], blocking=False), Promise[Transitions])
    assert_type(env.rollout_batch(horizon=3), Rollouts)
    assert_type(env.rollout_batch(horizon=3, blocking=False), Promise[Rollouts])
    assert_type(env.reset(seed=0), Start)
    assert_type(env.observation_space, gymnasium.Space[Any])
    assert_type(env.state_dtype, np.dtype[Any])
    assert_type(env.get_attr("gravity"), NDArray[Any])
    assert_type(env.call("ale.getRAM"), NDArray[Any])
    assert_type(env.clone(), PlanEnv)
    with env as same:
        assert_type(same, PlanEnv)


def a_process_waits_by_default(process: ExternalProcess) -> None:
    assert_type(process.step_batch([0]), Transitions)
    assert_type(process.step_batch([0], blocking=True), Transitions)
    assert_type(process.step_batch([0], blocking=False), Promise[Transitions])
    assert_type(process.call("reset"), Promise[Any])
    assert_type(process.clone(), ExternalProcess)


def a_planner_says_whether_it_waits(stepper: BatchStepper) -> None:
    assert_type(stepper.step_batch([0], blocking=True), Transitions)
    assert_type(stepper.step_batch([0], blocking=False), Promise[Transitions])
    assert_type(stepper.rollout_batch(horizon=3, blocking=True), Rollouts)
    assert_type(stepper.rollout_batch(horizon=3, blocking=False), Promise[Rollouts])


def both_environments_are_batch_steppers(one: PlanEnv, other: BatchEnv[Any]) -> tuple[BatchStepper, ...]:
    return one, other


def a_promise_gives_what_was_asked_for(step: Promise[Transitions], ends: Promise[Rollouts]) -> None:
    assert_type(step.result(), Transitions)
    assert_type(step.result(timeout=1.0), Transitions)
    assert_type(step(), Transitions)
    assert_type(step.done(), bool)
    assert_type(ends.result(), Rollouts)


def the_fields_of_results_are_arrays(out: Transitions, ends: Rollouts) -> None:
    assert_type(out.rewards, NDArray[np.float64])
    assert_type(out.terminated, NDArray[np.bool_])
    assert_type(out.infos, dict[str, Any])
    assert_type(ends.returns, NDArray[np.float64])
    assert_type(ends.num_steps, NDArray[np.int64])


def planners_return_plans(planner: planvec.Planner, env: PlanEnv) -> None:
    assert_type(planner.plan(env, env.get_state(), seed=0), planvec.Plan)
    assert_type(planvec.MCTS(num_simulations=10).plan(env, env.get_state(), seed=0), planvec.Plan)
    assert_type(planvec.run_episode(env, planvec.CEM(), seed=0), planvec.Episode)


def a_decorator_of_a_kernel_returns_the_function_itself(env_class: type[gymnasium.Env[Any, Any]]) -> None:
    @planvec.kernel(env_class, state=("position", "velocity"), constants="gravity")
    def step(state: Any, action: int) -> tuple[Any, float, bool]:
        return state, 0.0, False

    assert_type(step(0, 1), tuple[Any, float, bool])

    @planvec.batch_kernel(env_class, state="position", constants=lambda env: (env.gravity,))
    def steps(state: Any, action: Any) -> tuple[Any, NDArray[Any], NDArray[Any]]:
        return state, action, action

    assert_type(steps(0, 1), tuple[Any, NDArray[Any], NDArray[Any]])


def other_public_names_are_typed() -> None:
    assert_type(planvec.check_env("CartPole-v1"), planvec.CheckReport)
    assert_type(planvec.__version__, str)
