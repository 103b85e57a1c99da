"""Reports on the families of environments: how they are saved, and the measured costs.

`families.json` holds the measurements. `benchmarks/environments.py --write` checks every id and writes it.
"""

from __future__ import annotations

import importlib.util
import json
from pathlib import Path
from typing import Any

from planvec.codecs.selection import FAMILIES, Family
from planvec.extras import install_command

_HEADER = ["family", "ids", "saved by", "exact", "bytes", "get", "set", "step, us"]


def measured() -> dict[str, Any]:
    """Return the measurements, by the name of the family."""
    measurements: dict[str, Any] = json.loads(Path(__file__).with_name("families.json").read_text())
    return measurements


def saved_arrays(env: Any) -> tuple[str, ...]:
    """Return the names of the arrays of `MjData` that follow `mjSTATE_INTEGRATION` in a state, in order."""
    from planvec.codecs import mujoco  # only where MuJoCo is installed

    return mujoco.saved_arrays(env)


def text_table() -> str:
    """Return the table for a terminal, which also tells what is installed."""
    rows = [
        [*row, _installed(family)] for row, family in zip(_rows(), filter(_has_ids, FAMILIES), strict=True)
    ]
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
    for family in filter(_has_ids, FAMILIES):
        result = measurements[family.name]
        times = (_short(result["microseconds"][name]) for name in ("get", "set", "step"))
        rows.append(
            [
                family.name,
                str(result["num_ids"]),
                result["how"],
                "yes" if result["num_exact"] == result["num_checked"] else _exceptions(result),
                f"{result['bytes']:,.0f}",
                *times,
            ]
        )
    return rows


def _has_ids(family: Family) -> bool:
    return bool(family.ids)


def _short(number: float) -> str:
    return f"{number:.1f}" if number < 10 else f"{number:,.0f}"


def _exceptions(result: dict[str, Any]) -> str:
    return f"{result['num_exact']} of {result['num_checked']}; not {', '.join(result['exceptions'])}"


def _installed(family: Family) -> str:
    if importlib.util.find_spec(family.module) is not None:
        return "yes"
    return install_command(family.extra)
