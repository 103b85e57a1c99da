"""Tells which planners play games of two players."""

from __future__ import annotations

from typing import Any, Protocol

import numpy as np

from planvec.errors import UnsupportedEnvError
from planvec.rows import has_players


class _Planner(Protocol):
    """What is asked of a planner here."""

    @property
    def plays_games(self) -> bool: ...


def check_players(dtype: np.dtype[Any], planner: _Planner) -> None:
    """Check that a planner supports as many players as the states have."""
    # `dtype`: The dtype of the states.
    if has_players(dtype) and not planner.plays_games:
        raise UnsupportedEnvError(
            f"{type(planner).__name__}: expected an environment with one player, got a game of two; "
            "it would plan as if the other one played along. planvec.MCTS plans against the other"
        )
