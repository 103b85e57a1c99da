"""Mistakes that type checkers must see: every line that says so, and no other. It is never run."""

from __future__ import annotations

from typing import Any, Literal

import gymnasium

import planvec
from planvec import BatchEnv, BatchStepper, ExternalProcess, PlanEnv, Transitions


def names(out: Transitions) -> None:
    print(out.rewrads)  # error
    print(planvec.does_not_exist)  # error


def arguments_of_make() -> None:
    planvec.make("CartPole-v1", num_worker=3)  # error
    planvec.make("CartPole-v1", num_workers="3")  # error
    planvec.make("CartPole-v1", max_episode_steps=3)  # error
    PlanEnv("CartPole-v1", max_episode_steps=3)  # error
    PlanEnv("CartPole-v1", blocking=False)  # error


def arguments_of_calls(env: BatchEnv) -> None:
    env.step_batch([0], on_error="ignore")  # error
    env.step_batch([0], seed=3)  # error
    env.rollout_batch(horizon=3, seed=3)  # error


def results_are_no_promises(
    env: BatchEnv, promising: BatchEnv[Literal[False]], process: ExternalProcess
) -> None:
    env.step_batch([0]).result()  # error
    print(promising.step_batch([0]).rewards)  # error
    print(env.rollout_batch(horizon=3, blocking=False).returns)  # error
    print(process.step_batch([0], blocking=False).rewards)  # error


def what_a_process_does_not_show(process: ExternalProcess) -> None:
    process.submit([0])  # error
    process.tick()  # error


def arguments_of_the_decorators_of_kernels(env_class: type[gymnasium.Env[Any, Any]]) -> None:
    planvec.kernel(env_class)  # error
    planvec.kernel(env_class, state="position", num_threads=2)  # error
    planvec.batch_kernel("CartPole-v1", state="position")  # error


def a_planner_must_say_whether_it_waits(stepper: BatchStepper) -> None:
    stepper.step_batch([0])  # error
    stepper.rollout_batch(horizon=3)  # error
