"""The families of environments that planvec was checked with, and what was measured.

`families.json` is written by `benchmarks/environments.py --write`, which checks every id.
"""

from __future__ import annotations

import importlib.util
import json
from dataclasses import dataclass
from importlib import resources
from typing import Any

__all__ = ["FAMILIES", "Family", "markdown_table", "measured", "text_table"]


@dataclass(frozen=True, slots=True)
class Family:
    """A family of environments.

    Attributes:
        name: Of the family.
        module: What has to be installed for it.
        extra: The extra of planvec that installs it.
        ids: Those that are checked; "ALE/*-v5" stands for every registered one.
        note: What to know about it.
    """

    name: str
    module: str
    extra: str
    ids: tuple[str, ...]
    note: str = ""


_MUJOCO = (
    *("Ant", "HalfCheetah", "Hopper", "Humanoid", "HumanoidStandup", "InvertedDoublePendulum"),
    *("InvertedPendulum", "Pusher", "Reacher", "Swimmer", "Walker2d"),
)
FAMILIES = (
    Family(
        "classic control",
        "gymnasium",
        "",
        ("Acrobot-v1", "CartPole-v1", "MountainCar-v0", "MountainCarContinuous-v0", "Pendulum-v1"),
    ),
    Family(
        "toy text",
        "gymnasium",
        "",
        (
            *("Blackjack-v1", "CliffWalking-v1", "CliffWalkingSlippery-v1"),
            *("FrozenLake-v1", "FrozenLake8x8-v1", "Taxi-v4"),
        ),
    ),
    Family("MuJoCo", "mujoco", "mujoco", tuple(f"{name}-v5" for name in _MUJOCO)),
    Family(
        "Box2D",
        "Box2D",
        "box2d",
        (
            *("LunarLander-v3", "LunarLanderContinuous-v3"),
            *("BipedalWalker-v3", "BipedalWalkerHardcore-v3", "CarRacing-v3"),
        ),
        "on Linux, x86-64; elsewhere, and for classes and wrappers of your own, by replay of the actions",
    ),
    Family(
        "Atari",
        "ale_py",
        "atari",
        ("ALE/*-v5",),
        "with sticky actions, which planvec draws itself, and without",
    ),
    Family(
        "MiniGrid, BabyAI",
        "minigrid",
        "minigrid",
        (
            *("MiniGrid-Empty-8x8-v0", "MiniGrid-DoorKey-8x8-v0", "MiniGrid-FourRooms-v0"),
            *("MiniGrid-MultiRoom-N4-S5-v0", "MiniGrid-Dynamic-Obstacles-8x8-v0"),
            *("MiniGrid-KeyCorridorS3R3-v0", "MiniGrid-ObstructedMaze-2Dl-v0"),
            *("BabyAI-GoToLocal-v0", "BabyAI-PutNextLocal-v0", "BabyAI-BossLevel-v0"),
        ),
    ),
    Family("highway-env", "highway_env", "highway", ("highway-fast-v0", "merge-v0", "parking-v0")),
)


def measured() -> dict[str, Any]:
    """What was measured, by the name of the family."""
    text = resources.files("planvec.codecs").joinpath("families.json").read_text()
    found: dict[str, Any] = json.loads(text)
    return found


def _rows() -> list[list[str]]:
    results = measured()
    rows = []
    for family in FAMILIES:
        found = results[family.name]
        times = (_short(found["microseconds"][name]) for name in ("get", "set", "step"))
        rows.append(
            [
                family.name,
                str(found["num_ids"]),
                found["how"],
                "yes" if found["num_exact"] == found["num_checked"] else _exceptions(found),
                f"{found['bytes']:,.0f}",
                *times,
            ]
        )
    return rows


def _short(number: float) -> str:
    return f"{number:.1f}" if number < 10 else f"{number:,.0f}"


def _exceptions(found: dict[str, Any]) -> str:
    return f"{found['num_exact']} of {found['num_checked']}; not {', '.join(found['exceptions'])}"


_HEADER = ["family", "ids", "saved by", "exact", "bytes", "get", "set", "step, us"]


def text_table() -> str:
    """The table for a terminal, and what is not installed."""
    rows = [[*row, _installed(family)] for row, family in zip(_rows(), FAMILIES, strict=True)]
    header = [*_HEADER, "installed"]
    widths = [max(map(len, column)) for column in zip(header, *rows, strict=True)]
    lines = [
        "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
        for row in [header, *rows]
    ]
    notes = [f"{family.name}: {family.note}" for family in FAMILIES if family.note]
    return "\n".join(
        [
            *lines,
            "",
            *notes,
            "Medians over the ids, one process, on the machine of benchmarks/environments.py.",
            "Any other environment: planvec check ENV_ID",
        ]
    )


def markdown_table() -> str:
    """The same for the README."""
    header = [*_HEADER[:-4], "bytes a state", "get, us", "set, us", "step, us"]
    rows = [header, ["---"] * len(header), *_rows()]
    return "\n".join("| " + " | ".join(row) + " |" for row in rows)


def _installed(family: Family) -> str:
    if importlib.util.find_spec(family.module) is not None:
        return "yes"
    return f'pip install "planvec[{family.extra}]"'
