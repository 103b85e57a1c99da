"""Measure what the audit costs: the default fraction against `audit=0`, in one process.

    python benchmarks/audit.py
    python benchmarks/audit.py --openings 8 --seconds 30

Two batch environments of the same kind are open at the same time. They take turns, a slice of 50 ms each, and
which of the two is first changes every time. Audits are rare, so medians would not see them: the times of all
slices are added up, without those in which the machine was busy (`timing.ratio_of_totals`).
Each pair is opened several times. "noise" is the same comparison of two environments without an audit.
"""

from __future__ import annotations

import argparse
import statistics
from collections.abc import Callable
from contextlib import ExitStack
from typing import Any

import ale_py  # noqa: F401
from figures import Figures, add_plain
from timing import first_rows, ratio_of_totals

import planvec
from planvec.backends import DEFAULT_AUDIT

CASES = {
    "CartPole, 1 row, in process": ("CartPole-v1", 0, 1),
    "CartPole, 256 rows, in process": ("CartPole-v1", 0, 256),
    "CartPole, 1 row, 1 worker": ("CartPole-v1", 1, 1),
    "CartPole, 256 rows, 2 workers": ("CartPole-v1", 2, 256),
    "Ant, 64 rows, 2 workers": ("Ant-v5", 2, 64),
    "MsPacman, 64 rows, 2 workers": ("ALE/MsPacman-v5", 2, 64),
}
"""The environment, the number of workers, and the rows of a batch."""


def measure(name: str, audits: tuple[float, float], seconds: float) -> tuple[float, int]:
    """Return the ratio of the time of two batch environments, the first over the second.

    Args:
        name: A key of `CASES`.
        audits: Their `audit`.
        seconds: How long to measure.

    Returns:
        The ratio, and the number of rows of the first one that were audited.
    """
    env_id, num_workers, num_rows = CASES[name]
    with ExitStack() as stack:
        envs = [
            stack.enter_context(planvec.make(env_id, num_workers=num_workers, audit=audit))
            for audit in audits
        ]
        runs = [stepper(env, num_rows) for env in envs]
        for run in runs * 30:  # planvec measures the cost of rows in the first batches
            run()
        audited_before = envs[0].stats.audited_rows
        ratio = ratio_of_totals((runs[0], runs[1]), seconds)
        return ratio, envs[0].stats.audited_rows - audited_before


def stepper(env: planvec.BatchEnv, num_rows: int) -> Callable[[], Any]:
    """Return a function that steps a batch."""
    actions, states = first_rows(env, num_rows)
    return lambda: env.step_batch(actions, states)


def main() -> None:
    """Print one line per case."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--openings", type=int, default=4)
    parser.add_argument("--seconds", type=float, default=15.0, help="of each case and opening")
    parser.add_argument("--case", action="append", choices=CASES, help="repeatable; default: all")
    add_plain(parser)
    arguments = parser.parse_args()
    figures = Figures(arguments.plain)
    for name in arguments.case or CASES:
        shown = []
        for label, audits in (("audit", (DEFAULT_AUDIT, 0.0)), ("noise", (0.0, 0.0))):
            results = [measure(name, audits, arguments.seconds) for _ in range(arguments.openings)]
            ratios = [ratio for ratio, _ in results]
            rows = sum(audited for _, audited in results)
            shown.append(
                f"{label} {statistics.median(ratios):.3f} ({min(ratios):.3f} to {max(ratios):.3f})"
                + (f", {rows} rows audited" if rows else "")
            )
            figures.figure(f"{name}/{label}/ratio", statistics.median(ratios))
        figures.text(f"{name:<32} {'; '.join(shown)}")


if __name__ == "__main__":
    main()
