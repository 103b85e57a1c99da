"""Runs template processes that kill themselves at a stage of a start."""

from __future__ import annotations

import importlib
import os
import signal
from pathlib import Path
from typing import Any

STAGES = ("interpreter", "imports", "request", "fork", "report")
"""Before the imports, after them, with a request received, with a worker forked, with its start reported."""

COMMAND = (
    "import sys; sys.path[:] = {{path!r}}; from sabotage import start; "
    "start({stage!r}, {lives!r}, {{module!r}}, {{arguments!r}})"
)
"""For `interpreter._COMMAND`."""


def start(stage: str, lives: str, module: str, arguments: tuple[Any, ...]) -> None:
    """Run an interpreter that planvec starts; a template kills itself as often as a file has bytes."""
    if module.endswith(".template") and take_life(Path(lives)):
        sabotage(stage)
    importlib.import_module(module).run(*arguments)


def take_life(lives: Path) -> bool:
    """Remove one byte of a file; return whether there was one."""
    size = lives.stat().st_size
    os.truncate(lives, max(0, size - 1))
    return size > 0


def sabotage(stage: str) -> None:
    """Let this process kill itself when it comes to a stage."""
    if stage == "interpreter":
        die()
    template: Any = importlib.import_module("planvec.backends.processes.template")
    if stage == "imports":
        template._Template = lambda *_: die()
    elif stage == "request":
        template._Template._fork = lambda *_: die()
    else:
        send = template.send_number

        def send_and_die(*args: Any) -> None:
            if stage == "report":
                send(*args)
            die()

        template.send_number = send_and_die


def die() -> None:
    os.kill(os.getpid(), signal.SIGKILL)
