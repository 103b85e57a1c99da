"""The README, and the pages of the documentation, are tested as printed."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

README = Path(__file__).parent.parent / "README.md"
DOCS = README.parent / "docs"
# tests/test_ray.py covers what the page about clusters shows.
PAGES = [README, *(page for page in sorted(DOCS.glob("*.md")) if page.name != "clusters.md")]
BLOCKS = [
    block for page in PAGES for block in re.findall(r"```python\n(.*?)```", page.read_text(), re.DOTALL)
]
FILES = {match[1]: block for block in BLOCKS if (match := re.match(r"# (\w+\.py)\n", block))}
TEXT = "\n".join(page.read_text() for page in PAGES)
COMMANDS = sorted(set(re.findall(r"^\$ (planvec .*)$", TEXT.replace("\\\n", ""), re.MULTILINE)))
NOISE = (
    "planvec-worker-",  # planvec's log, which tells of workers that were killed on purpose
    "error: XDG_RUNTIME_DIR",  # SDL, where there is no screen
    "WARNING: compiler attribute",  # MuJoCo, about a model of Gymnasium
)


def run(arguments: list[str], folder: Path) -> str:
    """What a new Python prints to stderr, in a folder with the files of the pages; it has to succeed."""
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
    return "".join(line for line in done.stderr.splitlines() if line and not line.startswith(NOISE))


@pytest.mark.slow
@pytest.mark.parametrize("number", range(len(BLOCKS)))
def test_every_python_block_runs_as_printed(number: int, tmp_path: Path) -> None:
    script = tmp_path / "block.py"
    script.write_text(BLOCKS[number])
    assert run(["-W", "error", str(script)], tmp_path) == ""


def test_there_are_blocks_to_run() -> None:
    assert len(BLOCKS) >= 20
    assert len(COMMANDS) >= 8


def test_the_readme_is_short() -> None:
    assert len(README.read_text().splitlines()) <= 130


def test_every_link_of_the_readme_leads_somewhere() -> None:
    for target in re.findall(r"\]\(([^)#]+)", README.read_text()):
        assert target.startswith("http") or (README.parent / target).exists(), target


@pytest.mark.slow
@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_runs_as_printed(command: str, tmp_path: Path) -> None:
    verb, *arguments = command.split()[1:]
    if verb == "plan":
        run(["-m", "planvec", verb, *arguments, "--max-steps", "2", "--num-workers", "1"], tmp_path)
        assert list(tmp_path.glob("runs/*/trajectory.npz"))
    else:
        run(["-m", "planvec", verb, *arguments], tmp_path)
