"""The README, and the pages of the documentation, are tested as printed."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

README = Path(__file__).parent.parent / "README.md"
PAGES = [README, *(README.parent / "docs" / name for name in ("kernels.md", "vector.md"))]
BLOCKS = [
    block for page in PAGES for block in re.findall(r"```python\n(.*?)```", page.read_text(), re.DOTALL)
]
FILES = {match[1]: block for block in BLOCKS if (match := re.match(r"# (\w+\.py)\n", block))}
COMMANDS = re.findall(r"^\$ (planvec .*)$", README.read_text(), re.MULTILINE)


def run(arguments: list[str], folder: Path) -> str:
    """What a new Python prints to stderr, in a folder with the README's files; it has to succeed.

    But for planvec's log, which tells of workers that were killed on purpose.
    """
    for name, block in FILES.items():
        (folder / name).write_text(block)
    done = subprocess.run(
        [sys.executable, *arguments],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
        cwd=folder,
    )
    assert done.returncode == 0, done.stderr
    return "".join(line for line in done.stderr.splitlines() if not line.startswith("planvec-worker-"))


@pytest.mark.slow
@pytest.mark.parametrize("number", range(len(BLOCKS)))
def test_every_python_block_runs_as_printed(number: int, tmp_path: Path) -> None:
    script = tmp_path / "block.py"
    script.write_text(BLOCKS[number])
    assert run(["-W", "error", str(script)], tmp_path) == ""


def test_there_are_blocks_to_run() -> None:
    assert len(BLOCKS) >= 3


@pytest.mark.slow
@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_runs_as_printed(command: str, tmp_path: Path) -> None:
    verb, *arguments = command.split()[1:]
    if verb == "plan":
        run(["-m", "planvec", verb, *arguments, "--max-steps", "2", "--num-workers", "1"], tmp_path)
        assert list(tmp_path.glob("runs/*/trajectory.npz"))
    else:
        run(["-m", "planvec", verb, *arguments], tmp_path)
