"""Checks whether an environment is saved and restored exactly: `planvec.check_env`, `planvec check`.

    the reference (no planvec)     reset(seed), step, step, ...                the correct results
    a PlanEnv                      save, restore and step each state           stage "same instance"
    a second PlanEnv               all these states, shuffled                  stage "other instance"
    a worker process               all these states, shuffled                  stage "other process"
    the kernel, if there is one    all these states, shuffled                  stage "kernel"
    the last two                   several branches from some states           stage "branches"
    the reference                  reset(seed) and all steps of a branch       stage "replay"

An environment is also checked if `planvec.make` refuses it: the report then says what is wrong, and what
`planvec.make` says.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, Literal

import gymnasium
from gymnasium.envs.registration import EnvSpec

from planvec.backends import ray_connection, ray_opener
from planvec.checking.other_process import open_in_worker
from planvec.checking.report import CheckReport
from planvec.checking.stages import Check
from planvec.codecs import CodecChoice
from planvec.envs import PlanEnv, find_source, make_env
from planvec.errors import PlanvecError


def check_env(
    env: str | EnvSpec | Callable[[], gymnasium.Env[Any, Any]],
    *,
    num_steps: int = 500,
    seed: int = 0,
    num_restores: int = 20,
    num_children: int = 8,
    codec: CodecChoice = None,
    info_keys: Sequence[str] | None = None,
    replay_seconds: float = 5.0,
    env_kwargs: Mapping[str, Any] | None = None,
    backend: Literal["processes", "ray"] = "processes",
    ray_address: str | None = None,
) -> CheckReport:
    """Restore states of an environment in other instances and processes, and compare every bit.

    Args:
        env: A Gymnasium id, an `EnvSpec`, or a factory, as for `planvec.make`.
        num_steps: Number of random steps to take, save and restore.
        seed: Seed of the resets (`seed`, `seed + 1`, ...), the actions and the order of the states.
        num_restores: Number of states from which to step several branches.
        num_children: Number of branches from each of these states.
        codec: How states are saved, as for `planvec.make`.
        info_keys: The info keys to compare; None compares all.
        replay_seconds: Seconds after which no further branch is replayed from its reset. At least one is
            replayed.
        env_kwargs: The arguments of `gymnasium.make`, if `env` is an id or a spec.
        backend: Where the other process runs, as for `planvec.make`.
        ray_address: The address of a Ray cluster, as for `planvec.make`.

    Returns:
        A report, also for an environment that raises or cannot be saved.

    Raises:
        gymnasium.error.Error: The id is unknown.
        UnsupportedEnvError: A package of the environment is not installed.
        Exception: What the factory of the environment raised.
        ValueError: One of the numbers is below 1.
        WorkerStartError: No Ray cluster answers at `ray_address`.
    """
    for name, number in (
        ("num_steps", num_steps),
        ("num_restores", num_restores),
        ("num_children", num_children),
    ):
        if number < 1:
            raise ValueError(f"{name}: expected at least 1, got {number}")
    source = find_source(env) if isinstance(env, str) else env
    name = env if isinstance(env, str) else getattr(source, "id", getattr(source, "__name__", repr(source)))
    make_env(source, env_kwargs=env_kwargs).close()  # what cannot be made is not checked, and not inexact
    over_ray = ray_opener(backend, 1, None, ray_address, None)
    options: dict[str, Any] = {
        "codec": codec,
        "info_keys": info_keys,
        "trust": True,
        "audit": 0.0,  # it would end the check with the first difference that it meets by chance
        "env_kwargs": env_kwargs,
        "compiled": False,
    }
    open_worker = partial(open_in_worker, over_ray, ray_address)
    with ray_connection(
        backend, ray_address
    ):  # a cluster that does not answer is no fault of the environment
        try:
            with Check(source, options, seed, open_worker) as check:
                try:
                    report = check.run(str(name), num_steps, num_restores, num_children, replay_seconds)
                    return dataclasses.replace(report, error=_refusal(source, options))
                except Exception as error:
                    if isinstance(error, PlanvecError):
                        raise
                    text = f"the environment raised {type(error).__name__}: {error}"
                    return CheckReport(str(name), error=text)
        except PlanvecError as error:
            return CheckReport(str(name), error=str(error))


def _refusal(source: Any, options: dict[str, Any]) -> str:
    """Return why `planvec.make` refuses an environment, which it examines in other ways; or ""."""
    try:
        PlanEnv(source, **{**options, "trust": False}).close()
    except PlanvecError as error:
        return str(error)
    return ""
