"""Checks the arguments of vector environments, with the errors of Gymnasium where it has some.

Letters: N environments, B rows of a call.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from gymnasium import Space, spaces
from numpy.typing import NDArray

from planvec.backends import default_num_workers
from planvec.errors import InvalidBatchError
from planvec.rows import is_fixed
from planvec.vector.operations import OnCrash


def check_env_fns(env_fns: Any) -> list[Callable[[], Any]]:
    """Return factories as a list."""
    factories = list(env_fns)
    wrong = [factory for factory in factories if not callable(factory)]
    if wrong or not factories:
        raise InvalidBatchError(
            "env_fns: expected functions that make environments, such as [lambda: gymnasium.make(...)] * 8, "
            f"got {wrong[0]!r}"
            if wrong
            else "env_fns: expected at least one function, got none"
        )
    return factories


def check_num_workers(num_workers: object, num_envs: int) -> int:
    """Return the number of workers: the default for None, and at most one per environment."""
    if num_workers is None:
        num_workers = default_num_workers()
    if isinstance(num_workers, bool) or not isinstance(num_workers, int) or num_workers < 0:
        raise InvalidBatchError(f"num_workers: expected an integer of at least 0, got {num_workers!r}")
    return min(num_workers, num_envs)


def check_max_concurrency(max_concurrency: object) -> int | None:
    """Check Gymnasium's argument `max_concurrency`."""
    if max_concurrency is None:
        return None
    if not isinstance(max_concurrency, (int, np.integer)):
        raise ValueError(f"`max_concurrency` must be an integer or None, got {type(max_concurrency)}.")
    if max_concurrency < 1:
        raise ValueError(f"`max_concurrency` must be a positive or None, got {max_concurrency}.")
    return int(max_concurrency)


def check_on_crash(on_crash: object) -> OnCrash | None:
    """Return what happens after a crash, given its name."""
    if on_crash is None:
        return None
    try:
        return OnCrash(on_crash)
    except ValueError:
        names = [member.value for member in OnCrash]
        raise InvalidBatchError(f"on_crash: expected one of {names}, or None, got {on_crash!r}") from None


def check_reset_mask(mask: object, num_envs: int) -> NDArray[np.bool_]:
    """Check Gymnasium's option `reset_mask`."""
    if not isinstance(mask, np.ndarray):
        raise TypeError(f"`options['reset_mask']` must be a numpy array, got {type(mask)}")
    if mask.shape != (num_envs,):
        raise ValueError(f"`options['reset_mask']` must have shape `({num_envs},)`, got {mask.shape}")
    if mask.dtype != np.bool_:
        raise TypeError(f"`options['reset_mask']` must have `dtype=np.bool_`, got {mask.dtype}")
    if not mask.any():
        raise ValueError(
            "`options['reset_mask']` must contain a boolean array with at least one True value, got "
            f"reset_mask={mask}"
        )
    return mask


def check_rows(rows: object, num_envs: int, name: str = "rows") -> NDArray[np.intp]:
    """Return rows, given as a mask or as indices."""
    # `rows`: `[N]` bool, or `[B]` integers without repetition.
    array = np.asarray(rows)
    if array.dtype == bool:
        if array.shape != (num_envs,):
            raise InvalidBatchError(f"{name}: expected a mask of shape ({num_envs},), got {array.shape}")
        return np.flatnonzero(array)
    if array.ndim != 1 or (array.size and array.dtype.kind not in "iu"):
        raise InvalidBatchError(f"{name}: expected a mask [N] or indices [B], got {rows!r}")
    indices = array.astype(np.intp)
    if indices.size and not (indices.min() >= 0 and indices.max() < num_envs):
        raise InvalidBatchError(f"{name}: expected indices from 0 to {num_envs - 1}, got {rows!r}")
    if len(np.unique(indices)) < len(indices):
        raise InvalidBatchError(f"{name}: expected each index once, got {rows!r}")
    return indices


def check_seeds(seed: Any, rows: Sequence[int]) -> list[int | None]:
    """Return one seed per environment: an int gives `seed + i` to environment i."""
    if seed is None:
        return [None] * len(rows)
    if isinstance(seed, (int, np.integer)):
        return [int(seed) + row for row in rows]
    seeds = list(seed)
    if len(seeds) != len(rows):
        raise ValueError(
            f"If seeds are passed as a list the length must match num_envs={len(rows)} but got "
            f"length={len(seeds)}."
        )
    return seeds


def check_actions(space: Space[object], actions: object, num_rows: int) -> Any:
    """Return actions as a tree of arrays `[B, ...]`, or as a list, without a check of values and dtypes."""
    if type(actions) is np.ndarray and actions.ndim and len(actions) == num_rows:
        return actions
    checked = _checked(space, actions, num_rows)
    return checked if isinstance(checked, (np.ndarray, list)) or is_fixed(space) else _as_list(checked)


def _checked(space: Space[object], actions: Any, num_rows: int) -> Any:
    if isinstance(space, spaces.Dict) and isinstance(actions, dict):
        return {key: _checked(child, actions[key], num_rows) for key, child in space.spaces.items()}
    if isinstance(space, spaces.Tuple) and isinstance(actions, tuple):
        pairs = zip(space.spaces, actions, strict=True)
        return tuple(_checked(child, part, num_rows) for child, part in pairs)
    if not hasattr(actions, "__len__") or (isinstance(actions, np.ndarray) and not actions.ndim):
        raise TypeError(f"actions: expected one action per environment, got {type(actions).__name__}")
    if len(actions) != num_rows:
        raise ValueError(f"actions: expected {num_rows}, one per environment, got {len(actions)}")
    if not is_fixed(space) or isinstance(space, (spaces.Dict, spaces.Tuple)):
        return list(actions)
    array = np.asarray(actions)  # if they can be one
    return list(actions) if array.dtype.hasobject else array


def _as_list(tree: Any) -> list[Any]:
    """Return the rows of a tree whose leaves have one element per row: arrays, or lists of any elements."""
    if isinstance(tree, dict):
        columns = zip(*map(_as_list, tree.values()), strict=True)
        return [dict(zip(tree, row, strict=True)) for row in columns]
    return list(zip(*map(_as_list, tree), strict=True)) if isinstance(tree, tuple) else list(tree)
