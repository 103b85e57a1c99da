"""Novelty of observations: which of their features were seen before in a decision.

features    observations to codes; `numbers` of any space
tables      what was seen, by code; compiled for `screens` and for `values`
"""

from __future__ import annotations

from planvec.planners.novelty.numbers import (
    FeatureFunction,
    check_features,
    images_of,
    integer_rows,
    is_screen,
    numbers_of_space,
)

__all__ = ["FeatureFunction", "check_features", "images_of", "integer_rows", "is_screen", "numbers_of_space"]
