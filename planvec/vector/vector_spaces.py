"""Batches the spaces of environments, with Gymnasium's rules and errors."""

from __future__ import annotations

from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any, NamedTuple

import gymnasium
from gymnasium.spaces.utils import is_space_dtype_shape_equiv
from gymnasium.vector.utils import batch_differing_spaces, batch_space, create_shared_memory

from planvec.vector.layout import RowsLayout

# in place of multiprocessing: Gymnasium checks a space, and allocates nothing
_NO_MEMORY: Any = SimpleNamespace(Array=lambda code, size: None)


class VectorSpaces(NamedTuple):
    """Holds the spaces of a vector environment."""

    observation: gymnasium.Space[Any]  # the batched space of observations
    single_observation: gymnasium.Space[Any]
    action: gymnasium.Space[Any]  # the batched space of actions
    single_action: gymnasium.Space[Any]


def vector_spaces(mode: Any, layouts: Sequence[RowsLayout], shared_memory: bool) -> VectorSpaces:
    """Return the spaces of environments."""
    batched, single = _batched(mode, [space for layout in layouts for space in layout.observation_spaces])
    actions = [space for layout in layouts for space in layout.action_spaces]
    if any(space != actions[0] for space in actions):
        raise RuntimeError(
            f"Some environments have an action space different from `{actions[0]}`. "
            "In order to batch actions, the action spaces from all environments must be equal."
        )
    if shared_memory:
        try:
            create_shared_memory(single, n=1, ctx=_NO_MEMORY)
        except gymnasium.error.CustomSpaceError as error:
            raise ValueError(
                "Using `AsyncVector(..., shared_memory=True)` caused an error, you can disable this "
                "feature with `shared_memory=False` however this is slower."
            ) from error
    return VectorSpaces(batched, single, batch_space(actions[0], len(actions)), actions[0])


def _batched(
    mode: Any, spaces: Sequence[gymnasium.Space[Any]]
) -> tuple[gymnasium.Space[Any], gymnasium.Space[Any]]:
    """Return the batched space and the space of one observation."""
    batched: gymnasium.Space[Any]
    single: gymnasium.Space[Any]
    if isinstance(mode, tuple) and len(mode) == 2:
        batched, single = mode
        if not (isinstance(batched, gymnasium.Space) and isinstance(single, gymnasium.Space)):
            raise TypeError(
                "Expected both elements of observation_mode to be Spaces, got "
                f"{type(batched)} and {type(single)}"
            )
    elif mode == "same":
        single = spaces[0]
        if any(space != single for space in spaces):
            raise RuntimeError(
                "AsyncVectorEnv(..., observation_mode='same') however some of the sub-environments "
                "observation spaces are not equivalent. If this is intentional, use "
                "`observation_mode='different'` instead."
            )
        return batch_space(single, len(spaces)), single
    elif mode == "different":
        single, batched = spaces[0], batch_differing_spaces(spaces)
    else:
        raise ValueError(
            "Invalid `observation_mode`, expected: 'same' or 'different' or tuple of single and batch "
            f"observation space, actual got {mode}"
        )
    if not all(is_space_dtype_shape_equiv(single, space) for space in spaces):
        raise RuntimeError(
            "AsyncVectorEnv(..., observation_mode='different' or custom space) however the sub-environment's "
            "observation spaces do not share a common shape and dtype."
        )
    return batched, single
