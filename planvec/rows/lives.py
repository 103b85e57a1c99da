"""Reads from infos how many lives of a game are left. Letters: B rows."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from planvec.errors import InvalidBatchError


class LivesUse(NamedTuple):
    """What needs to know the lives, for errors."""

    setting: str
    without: str  # how to do without lives
    # what to do besides opening the environment with lives in its infos
    first: str = "pass the info of the reset or the step, plan(..., info=start.info), and "


def read_lives(info: Mapping[str, Any] | None, use: LivesUse) -> float:
    """Return the lives that are left by the info of a reset or a step."""
    if info is not None and "lives" in info:
        lives = np.asarray(info["lives"])
        if lives.ndim or lives.dtype.kind not in "iuf":
            raise InvalidBatchError(
                f"info: expected a number of 'lives' together with {use.setting}, got {info['lives']!r}"
            )
        return float(lives)
    got = "no info" if info is None else f"an info with {', '.join(info) or 'nothing'}"
    raise InvalidBatchError(
        f"info: expected one with 'lives' together with {use.setting}, got {got}. Where a game has no lives, "
        f"take {use.without}; otherwise {use.first}open the environment by planvec.make(..., "
        "info_keys=('lives',))"
    )


def stacked_lives(infos: Mapping[str, Any], rows: NDArray[np.bool_], use: LivesUse) -> NDArray[np.float64]:
    """Return the lives that are left `[B]` by the infos of steps."""
    # `rows`: `[B]`, which rows have to say; those of others may be anything.
    lives = np.asarray(infos.get("lives", np.zeros(len(rows))))
    present = np.asarray(infos.get("_lives", np.full(len(rows), "lives" in infos)))
    missing = np.flatnonzero(rows & ~present)
    if len(missing):
        raise InvalidBatchError(
            f"{use.setting}: expected infos with 'lives', got none in row {missing[0]}. Open the environment "
            f"by planvec.make(..., info_keys=('lives',)); where not every step tells them, take {use.without}"
        )
    if lives.ndim != 1 or lives.dtype.kind not in "iuf":
        raise InvalidBatchError(
            f"{use.setting}: expected numbers of 'lives' in infos, got {lives[:1].tolist()}"
        )
    return lives.astype(np.float64)
