"""The README is tested as printed."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

README = Path(__file__).parent.parent / "README.md"
BLOCKS = re.findall(r"```python\n(.*?)```", README.read_text(), re.DOTALL)
COMMANDS = re.findall(r"^\$ (planvec .*)$", README.read_text(), re.MULTILINE)


@pytest.mark.parametrize("number", range(len(BLOCKS)))
def test_every_python_block_runs_as_printed(number: int, tmp_path: Path) -> None:
    script = tmp_path / "block.py"
    script.write_text(BLOCKS[number])
    done = subprocess.run(
        [sys.executable, "-W", "error", str(script)],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
        cwd=tmp_path,
    )
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""


def test_there_are_blocks_to_run() -> None:
    assert len(BLOCKS) >= 3


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_runs_as_printed(command: str, tmp_path: Path) -> None:
    arguments = [*command.split()[1:], "--max-steps", "3", "--num-workers", "1"]
    done = subprocess.run(
        [sys.executable, "-m", "planvec", *arguments],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
        cwd=tmp_path,
    )
    assert done.returncode == 0, done.stderr
    assert list(tmp_path.glob("runs/*/trajectory.npz"))
