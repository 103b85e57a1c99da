"""Every script of `examples/` runs as it is."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).parent.parent / "examples"
SCRIPTS = sorted(EXAMPLES.glob("*.py"))
# It needs PyTorch; `test_torch.py` runs it.
ELSEWHERE = ("alphazero",)


@pytest.mark.slow
@pytest.mark.parametrize(
    "script", [script for script in SCRIPTS if script.stem not in ELSEWHERE], ids=lambda script: script.stem
)
def test_an_example_runs(script: Path, tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, str(script)],
        capture_output=True,
        text=True,
        timeout=110,
        check=False,
        cwd=tmp_path,
        env={**os.environ, "PYTHONWARNINGS": "error::DeprecationWarning:__main__"},
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip()


def test_every_example_is_in_the_table() -> None:
    table = (EXAMPLES / "README.md").read_text()
    assert len(SCRIPTS) >= 8
    for script in SCRIPTS:
        assert f"`{script.name}`" in table
