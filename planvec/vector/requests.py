"""Makes the operations of the workers from the arguments of the user.

Letters: B rows of a call.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from gymnasium import Space
from numpy.typing import NDArray

from planvec.rows import take_rows
from planvec.vector.checks import check_actions
from planvec.vector.operations import Operation, Reset, SetAttribute, SetStates, Step

# makes the operation of one worker, given its rows (None: all of them) and the positions of these in the
# arguments of the user (a slice or an index array)
MakeOperation = Callable[[NDArray[np.intp] | None, Any], Operation]


def _picked(values: Sequence[Any], positions: Any) -> list[Any]:
    if isinstance(positions, slice):
        return list(values[positions])
    return [values[position] for position in positions]


def step_maker(space: Space[Any], actions: Any, num_rows: int) -> MakeOperation:
    """Return a maker of steps."""
    # `actions`: `[B, *action shape]`.
    checked = check_actions(space, actions, num_rows)

    def make(local: NDArray[np.intp] | None, positions: Any) -> Step:
        if isinstance(checked, np.ndarray):
            return Step(local, checked[positions])
        if isinstance(checked, list):
            return Step(local, _picked(checked, positions))
        return Step(local, take_rows(checked, positions))

    return make


def reset_maker(seeds: Sequence[int | None], options: Sequence[Mapping[str, Any] | None]) -> MakeOperation:
    """Return a maker of resets, given B seeds and B options."""
    return lambda local, at: Reset(local, _picked(seeds, at), _picked(options, at))


def set_attribute_maker(name: str, values: Sequence[Any], *, on_outermost: bool = False) -> MakeOperation:
    """Return a maker that sets an attribute to B values. See `SetAttribute`."""
    return lambda local, at: SetAttribute(local, name, _picked(values, at), on_outermost)


def set_states_maker(states: NDArray[Any]) -> MakeOperation:
    """Return a maker that puts rows into states `[B]`."""
    return lambda local, at: SetStates(local, states[at])
