"""Defines `PlanEnv`, which steps one environment in this process from any of its states."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal

import gymnasium

from planvec.backends import DEFAULT_AUDIT, InProcess, check_limits, num_cores
from planvec.codecs import CodecChoice, StateCodec, check_codec, codec_for
from planvec.envs.env_calls import EnvCalls
from planvec.envs.sources import EnvSource, make_env
from planvec.rows import check_compiled, check_info_keys
from planvec.stepping import EnvStepper


class PlanEnv(EnvCalls[Literal[True]]):
    """Steps one environment in this process. Its transitions are pure functions of (state, action, dt, seed).

    It is a `BatchStepper`, so planners can use it without workers. Each worker process hosts a `PlanEnv`, and
    `planvec.make` with `num_workers=0` uses one.

    Args:
        env: A Gymnasium id, an `EnvSpec`, a factory, or a `gymnasium.Env`, which this object closes.
        codec: How states are saved, as for `planvec.codec_for`.
        info_keys: The info keys to keep; None keeps all, `()` none.
        render_mode: The argument of `gymnasium.make`, if `env` is an id or a spec.
        env_kwargs: Other arguments of `gymnasium.make`, if `env` is an id or a spec.
        trust: Whether to use the codec without verifying it.
        audit: Part of the time of all steps in which rows are stepped a second time. If the results differ,
            the call raises `UnsupportedEnvError`.
        compiled: Whether to step with a kernel, which gives the same bits: None takes it when it saves time,
            True at once, and fails if there is none.
        num_threads: Number of threads that step a batch with a kernel; None takes one per available core.

    Attributes:
        codec: Saves and restores the environment.
        stepper: Performs requests whose arguments have been checked. Workers use it.

    Raises:
        UnsupportedEnvError: The environment cannot be saved exactly. The message says what to do.
        TypeError: `env` is none of these, or there are arguments for a factory.
    """

    def __init__(
        self,
        env: EnvSource,
        *,
        codec: CodecChoice = None,
        info_keys: Sequence[str] | None = None,
        render_mode: str | None = None,
        env_kwargs: Mapping[str, Any] | None = None,
        trust: bool = False,
        audit: float = DEFAULT_AUDIT,
        compiled: bool | None = None,
        num_threads: int | None = None,
    ) -> None:
        check_info_keys(info_keys)
        check_compiled(compiled, num_threads)
        check_codec(codec)
        check_limits(None, 0, None, audit)
        made = make_env(env, render_mode, env_kwargs)
        try:
            self.codec: StateCodec = codec_for(made, codec, info_keys=info_keys, trust=trust)
            threads = num_cores() if num_threads is None else num_threads
            self.stepper = EnvStepper(made, self.codec, info_keys, compiled, threads)
        except BaseException:
            made.close()
            raise
        super().__init__(InProcess(self.stepper, audit), blocking=True)
        self._source = env
        self._options: dict[str, Any] = {
            "codec": codec,
            "info_keys": info_keys,
            "render_mode": render_mode,
            "env_kwargs": env_kwargs,
            "trust": trust,
            "audit": audit,
            "compiled": compiled,
            "num_threads": num_threads,
        }

    @property
    def env(self) -> gymnasium.Env[Any, Any]:
        """The environment. Its state is that of the row that it stepped last; kernels do not step it."""
        return self.stepper.env

    def clone(self) -> PlanEnv:
        """Open another `PlanEnv` of the same environment, with the same base state.

        Raises:
            TypeError: This `PlanEnv` was opened with a `gymnasium.Env`, which cannot be cloned.
        """
        if isinstance(self._source, gymnasium.Env):
            raise TypeError(
                "clone: expected a PlanEnv opened with an id, an EnvSpec or a factory, got one opened with "
                f"the environment {self._source}"
            )
        other = PlanEnv(self._source, **self._options)
        other.set_state(self.get_state())
        return other

    def __repr__(self) -> str:
        name = self.spec.id if self.spec is not None else self._about.state_format.origin
        return f"<PlanEnv of {name}{', closed' if self._closed else ''}>"
