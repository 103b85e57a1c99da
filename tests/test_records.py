"""The scores of the table of Atari games are played again from their records."""

from __future__ import annotations

from pathlib import Path

import pytest

from planvec.cli import main

RECORDS = Path(__file__).parent.parent / "benchmarks" / "records"


@pytest.mark.parametrize("name", ["Alien-100", "Boxing-100", "Breakout-100"])
def test_a_record_of_the_table_is_played_again_to_the_bit(
    name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """`python benchmarks/atari.py --replay` does the same for all of them."""
    assert main(["replay", str(RECORDS / name)]) == 0
    assert "every bit is the same" in capsys.readouterr().out
