"""`PlanEnv`: one environment in this process, stepped from any of its states."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal

import gymnasium

from planvec.backends import InProcess
from planvec.codecs import CodecChoice, StateCodec, check_codec, codec_for
from planvec.envs.env_calls import EnvCalls
from planvec.envs.sources import EnvSource, make_env
from planvec.rows import check_info_keys
from planvec.stepping import EnvStepper

__all__ = ["PlanEnv"]


class PlanEnv(EnvCalls[Literal[True]]):
    """One environment whose transitions are pure functions of (state, action, dt, seed).

    It is a `BatchStepper`: planners run on it without any worker. Worker processes host one, and
    `num_workers=0` is one.

    Args:
        env: A Gymnasium id, an `EnvSpec`, a factory, or a `gymnasium.Env` (which it then owns).
        codec: How states are saved; see `planvec.codec_for`.
        info_keys: The info keys to keep; None keeps all, `()` none.
        render_mode: For `gymnasium.make`, where `env` is an id or a spec.
        env_kwargs: Further arguments for `gymnasium.make` likewise.
        trust: Whether to use a codec without verifying it, as `planvec.check_env` does.

    Attributes:
        codec: Saves and restores the environment.
        stepper: Answers requests, for callers that have checked their arguments (workers).

    Raises:
        UnsupportedEnvError: The environment cannot be saved faithfully.
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
    ) -> None:
        check_info_keys(info_keys)
        check_codec(codec)
        made = make_env(env, render_mode, env_kwargs)
        try:
            self.codec: StateCodec = codec_for(made, codec, info_keys=info_keys, trust=trust)
            self.stepper = EnvStepper(made, self.codec, info_keys)
        except BaseException:
            made.close()
            raise
        super().__init__(InProcess(self.stepper), blocking=True)
        self._source = env
        self._options: dict[str, Any] = {
            "codec": codec,
            "info_keys": info_keys,
            "render_mode": render_mode,
            "env_kwargs": env_kwargs,
            "trust": trust,
        }

    @property
    def env(self) -> gymnasium.Env[Any, Any]:
        """The environment. Its own state is that of whatever row was stepped last."""
        return self.stepper.env

    def clone(self) -> PlanEnv:
        """Open another `PlanEnv` of the same environment, with the same base state.

        Raises:
            TypeError: This one was given an environment, and not what makes one.
        """
        if isinstance(self._source, gymnasium.Env):
            raise TypeError(
                "clone: expected a PlanEnv that was opened with an id, an EnvSpec or a factory, got one that "
                f"was opened with the environment {self._source}, of which there is only one"
            )
        other = PlanEnv(self._source, **self._options)
        other.set_state(self.get_state())
        return other

    def __repr__(self) -> str:
        name = self.spec.id if self.spec is not None else self._about.state_format.origin
        return f"<PlanEnv of {name}{', closed' if self._closed else ''}>"
