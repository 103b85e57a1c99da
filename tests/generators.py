"""Generators of a module from which environments of other modules draw."""

from __future__ import annotations

import weakref
from typing import Any

import numpy as np

GENERATOR = np.random.default_rng(0)
HELD: dict[str, Any] = {"inside": [np.random.default_rng(0)]}


def draw() -> float:
    return float(GENERATOR.normal())


def draw_from_held() -> float:
    return float(HELD["inside"][0].normal())


class Gone:
    """Is referred to after it is gone."""


PROXY = weakref.proxy(Gone())
