"""What tests need with older versions of Gymnasium: the newest ids, and a mark for what these lack."""

from __future__ import annotations

import dataclasses

import gymnasium
import pytest

for newest, older in (("Taxi-v4", "Taxi-v3"), ("CliffWalking-v1", "CliffWalking-v0")):
    if newest not in gymnasium.registry:
        gymnasium.registry[newest] = dataclasses.replace(gymnasium.registry[older], id=newest)


def since(version: str, what: str) -> pytest.MarkDecorator:
    """Mark a test of something that Gymnasium has since a version."""
    here = gymnasium.__version__
    is_older = [*map(int, here.split(".")[:2])] < [*map(int, version.split("."))]
    return pytest.mark.skipif(is_older, reason=f"Gymnasium {here} lacks {what}, which is new in {version}")
