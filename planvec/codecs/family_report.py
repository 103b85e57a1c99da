"""Reports on the families of environments: how they are saved, and the measured costs.

`families.json` holds the measurements. `benchmarks/environments.py --write` checks every id and writes it.
"""

from __future__ import annotations

import importlib.util
import json
from pathlib import Path
from typing import Any

from planvec.codecs.selection import FAMILIES
from planvec.extras import install_command

_HEADER = ["family", "ids", "saved by", "exact", "bytes", "get", "set", "step, us"]
_FAMILIES = [family for family in FAMILIES if family.ids]


def measured() -> dict[str, Any]:
    """Return the measurements, by the name of the family."""
    measurements: dict[str, Any] = json.loads(Path(__file__).with_name("families.json").read_text())
    return measurements


def saved_arrays(env: object) -> tuple[str, ...]:
    """Return the names of the arrays of `MjData` that follow `mjSTATE_INTEGRATION` in a state, in order."""
    from planvec.codecs import mujoco  # only where MuJoCo is installed

    return mujoco.saved_arrays(env)


def text_table() -> str:
    """Return the table for a terminal, which also tells what is installed."""
    rows = []
    for row, family in zip(_rows(), _FAMILIES, strict=True):
        is_installed = importlib.util.find_spec(family.module) is not None
        rows.append([*row, "yes" if is_installed else install_command(family.extra)])
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
    """Return the table for the documentation."""
    header = [*_HEADER[:-4], "bytes a state", "get, us", "set, us", "step, us"]
    rows = [header, ["---"] * len(header), *_rows()]
    return "\n".join("| " + " | ".join(row) + " |" for row in rows)


def _rows() -> list[list[str]]:
    measurements = measured()
    rows = []
    for family in _FAMILIES:
        result = measurements[family.name]
        numbers = [result["microseconds"][name] for name in ("get", "set", "step")]
        exact = f"{result['num_exact']} of {result['num_checked']}; not {', '.join(result['exceptions'])}"
        rows.append(
            [
                family.name,
                str(result["num_ids"]),
                result["how"],
                "yes" if result["num_exact"] == result["num_checked"] else exact,
                f"{result['bytes']:,.0f}",
                *(f"{number:.1f}" if number < 10 else f"{number:,.0f}" for number in numbers),
            ]
        )
    return rows
