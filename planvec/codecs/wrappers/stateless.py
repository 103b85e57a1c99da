"""Codecs of wrappers that remember nothing."""

from __future__ import annotations

from typing import Any

import numpy as np

from planvec.codecs.base import WrapperCodec
from planvec.codecs.generic.attributes import ADVICE
from planvec.codecs.generic.generators import hidden_generator
from planvec.errors import UnsupportedEnvError


class StatelessCodec(WrapperCodec):
    """Handles wrappers that remember nothing and leave observations as they are."""

    dtype = np.dtype([])
    draws = False

    def get(self, wrapper: Any) -> Any:
        return ()

    def set(self, wrapper: Any, value: Any) -> None:
        pass

    def observe(self, wrapper: Any, observation: Any) -> Any:
        return observation


class TransparentCodec(StatelessCodec):
    """Handles wrappers that only check what they pass on; stepping leaves out the outermost ones."""


class RenderNoiseCodec(StatelessCodec):
    """Handles wrappers that draw from `np_random` when they render."""

    draws = True


class TransformObservationCodec(StatelessCodec):
    """Handles wrappers whose observation is a function of the inner one."""

    def observe(self, wrapper: Any, observation: Any) -> Any:
        return wrapper.observation(observation)


class FunctionCodec(StatelessCodec):
    """Handles wrappers that apply a function of the user's, which may draw from `np_random`."""

    draws = True

    def __init__(self, wrapper: Any) -> None:
        if hidden_generator(wrapper.func):
            raise UnsupportedEnvError(
                f"{type(wrapper).__name__}.func: a random generator is hidden inside this function, where "
                f"it cannot be saved. Draw from env.unwrapped.np_random instead. {ADVICE}"
            )


class ObservationFunctionCodec(FunctionCodec, TransformObservationCodec):
    """Handles functions of the observation. Observing a state calls the function again."""
