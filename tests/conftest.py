"""What all tests share."""

from __future__ import annotations

import gc
import importlib.util
import os
import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import older_gymnasium  # noqa: F401 - before planvec looks what is registered
import pytest
from interrupted import Interrupted
from ray_here import disconnect_ray

from planvec.backends.processes import system
from planvec.codecs import selection
from planvec.codecs import verify as codec_verify
from planvec.kernels.own import declared

# `.ci/run` runs them in environments of their own, since PyTorch and JAX are large.
collect_ignore = [
    test
    for package, test in (
        ("stable_baselines3", "test_sb3.py"),
        ("ding", "test_ding.py"),
        ("ding", "test_ding_faults.py"),
        ("torch", "test_ppo.py"),
        ("torch", "test_torch.py"),
        ("mctx", "test_mctx.py"),
    )
    if not importlib.util.find_spec(package)
]
if not importlib.util.find_spec("Box2D"):  # which has no wheel for Python 3.14
    collect_ignore.append("test_box2d.py")


def _workers() -> dict[int, str]:
    """Processes other than helpers (multiprocessing's own, and templates), which end with this process.

    Workers of a template, and of the fork server of stable-baselines3's own class, have its command line, but
    another parent.
    """
    helpers = ("resource_tracker", "forkserver", "processes.template")
    direct = system.children(os.getpid())
    commands = {pid: system.command(pid) for pid in system.descendants(os.getpid())}
    return {
        pid: command
        for pid, command in commands.items()
        if command and not (pid in direct and any(helper in command for helper in helpers))
    }


def pytest_configure() -> None:
    # A shell ignores Ctrl-C in what it runs in the background. The tests send it to themselves.
    signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_collection_finish() -> None:
    # Forks of this process would copy the memory of thousands of tests with their first collection.
    gc.collect()
    gc.freeze()


@pytest.fixture(scope="session", autouse=True)
def _nothing_is_left_after_the_suite() -> Iterator[None]:
    shared = Path("/dev/shm")
    before = set(shared.iterdir()) if shared.is_dir() else set()
    yield
    disconnect_ray()
    assert not _workers(), "worker processes are left"
    after = set(shared.iterdir()) if shared.is_dir() else set()
    assert after <= before, "shared memory is left"


@pytest.fixture(scope="module", autouse=True)
def _only_its_own_codecs_are_registered(request: pytest.FixtureRequest) -> Iterator[None]:
    """Workers would import all modules of tests that register a codec or a kernel, which takes 0.4 s."""
    used = {id(value) for value in vars(request.module).values()}
    registries: list[dict[type, Any]] = [selection._envs, selection._wrappers, declared._kernels]
    everything = [dict(registry) for registry in registries]
    for registry in registries:
        for cls in [cls for cls in registry if id(cls) not in used]:
            del registry[cls]
    yield
    for registry, before in zip(registries, everything, strict=True):
        registry.clear()
        registry.update(before)


@pytest.fixture
def quick_checks(monkeypatch: pytest.MonkeyPatch) -> None:
    """For tests of what `check_env` finds, not of how long a step takes."""
    monkeypatch.setattr(codec_verify, "_NUM_TIMED", 1)


@pytest.fixture
def alarm() -> Iterator[Callable[[], None]]:
    """Have the handler of SIGUSR1 raise `Interrupted`; give the function that sends the signal."""

    def interrupt(*_: Any) -> None:
        raise Interrupted

    previous = signal.signal(signal.SIGUSR1, interrupt)
    yield lambda: signal.raise_signal(signal.SIGUSR1)
    signal.signal(signal.SIGUSR1, previous)
