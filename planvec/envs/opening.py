"""`planvec.make`: from an id, a spec or a factory to a `BatchEnv`."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal, overload

import gymnasium
from gymnasium.envs.registration import EnvSpec

from planvec.backends import ExternalProcess
from planvec.codecs import CodecChoice, check_codec, registered_codecs
from planvec.envs.batch_env import BatchEnv
from planvec.envs.plan_env import PlanEnv
from planvec.envs.sources import find_spec
from planvec.rows import check_info_keys

__all__ = ["make"]

Makeable = str | EnvSpec | Callable[[], gymnasium.Env[Any, Any]]


class _Factory:
    """Makes the `PlanEnv` of a worker, and teaches the worker the codecs that the user registered."""

    def __init__(self, source: Makeable, options: dict[str, Any]) -> None:
        self._source = source
        self._options = options
        self._codecs = registered_codecs()

    def __call__(self) -> PlanEnv:
        self._codecs.install()
        return PlanEnv(self._source, **self._options)


@overload
def make(
    env: Makeable,
    *,
    num_workers: int | None = None,
    blocking: Literal[True] = True,
    start_method: str | None = None,
    timeout: float | None = None,
    max_restarts: int = 3,
    max_worker_rss: int | None = None,
    info_keys: Sequence[str] | None = None,
    codec: CodecChoice = None,
    render_mode: str | None = None,
    env_kwargs: Mapping[str, Any] | None = None,
) -> BatchEnv[Literal[True]]: ...


@overload
def make(
    env: Makeable,
    *,
    num_workers: int | None = None,
    blocking: Literal[False],
    start_method: str | None = None,
    timeout: float | None = None,
    max_restarts: int = 3,
    max_worker_rss: int | None = None,
    info_keys: Sequence[str] | None = None,
    codec: CodecChoice = None,
    render_mode: str | None = None,
    env_kwargs: Mapping[str, Any] | None = None,
) -> BatchEnv[Literal[False]]: ...


@overload
def make(
    env: Makeable,
    *,
    num_workers: int | None = None,
    blocking: bool,
    start_method: str | None = None,
    timeout: float | None = None,
    max_restarts: int = 3,
    max_worker_rss: int | None = None,
    info_keys: Sequence[str] | None = None,
    codec: CodecChoice = None,
    render_mode: str | None = None,
    env_kwargs: Mapping[str, Any] | None = None,
) -> BatchEnv[bool]: ...


def make(
    env: Makeable,
    *,
    num_workers: int | None = None,
    blocking: bool = True,
    start_method: str | None = None,
    timeout: float | None = None,
    max_restarts: int = 3,
    max_worker_rss: int | None = None,
    info_keys: Sequence[str] | None = None,
    codec: CodecChoice = None,
    render_mode: str | None = None,
    env_kwargs: Mapping[str, Any] | None = None,
) -> BatchEnv[Any]:
    """Open an environment for planning. Its base state is that of `reset(seed=0)` until it is reset.

    Args:
        env: A Gymnasium id, an `EnvSpec`, or a factory without arguments that returns a
            `gymnasium.Env`: a lambda, a closure or a function from a notebook will do.
        num_workers: Worker processes; 0 steps in this process; None takes one per available core.
        blocking: Whether batch calls wait by default, or return promises.
        start_method: "template" (default), "spawn", "forkserver" or "fork". No `__main__` guard is needed.
        timeout: Seconds that one chunk may take before its worker is killed; None: no limit.
        max_restarts: How often a row is tried again after a worker died over it.
        max_worker_rss: Bytes of memory above which a worker is replaced between two chunks.
        info_keys: The info keys to keep; None keeps all, `()` none.
        codec: How states are saved: None picks; "copied", "replay", a `planvec.Codec` subclass or
            `planvec.Copied([...])` insist. See `planvec.codec_for`.
        render_mode: For `gymnasium.make`, where `env` is an id or a spec: "rgb_array" for `render`.
        env_kwargs: Further arguments for `gymnasium.make` likewise.

    Raises:
        gymnasium.error.Error: Unknown id; with `num_workers=0` also whatever making it raises.
        UnsupportedEnvError: The environment cannot be saved faithfully; says what to do.
        WorkerStartError: A worker did not become ready; the remote traceback is its cause.
    """
    if isinstance(env, gymnasium.Env):
        raise TypeError(
            f"env: expected an id, an EnvSpec or a factory, got the environment {env}: every worker "
            "makes its own. Pass lambda: make_it(), or step it here with BatchEnv(PlanEnv(env))"
        )
    if num_workers is None:
        num_workers = len(os.sched_getaffinity(0))
    if isinstance(num_workers, bool) or not isinstance(num_workers, int) or num_workers < 0:
        raise ValueError(f"num_workers: expected an integer of at least 0, got {num_workers!r}")
    check_codec(codec)
    check_info_keys(info_keys)
    if isinstance(env, str):
        # Resolved here, so that a worker needs no registration made in the user's script.
        env = find_spec(env)
    options: dict[str, Any] = {
        "codec": codec,
        "info_keys": info_keys,
        "render_mode": render_mode,
        "env_kwargs": env_kwargs,
    }
    limits: dict[str, Any] = {
        "blocking": blocking,
        "timeout": timeout,
        "max_restarts": max_restarts,
        "max_worker_rss": max_worker_rss,
    }
    if num_workers == 0:
        return BatchEnv(PlanEnv(env, **options), **limits)
    factory = _Factory(env, options)
    workers: list[ExternalProcess] = []
    try:
        for index in range(num_workers):
            name = f"planvec-worker-{index}"
            workers.append(ExternalProcess(factory, start_method=start_method, name=name))
        return BatchEnv(workers, **limits)
    except BaseException:
        for worker in workers:
            worker.close()
        raise
