"""Registers under their newest ids what older versions of Gymnasium have under others."""

from __future__ import annotations

import dataclasses

import gymnasium

for newest, older in (("Taxi-v4", "Taxi-v3"), ("CliffWalking-v1", "CliffWalking-v0")):
    if newest not in gymnasium.registry:
        gymnasium.registry[newest] = dataclasses.replace(gymnasium.registry[older], id=newest)
