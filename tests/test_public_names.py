"""What `import planvec` offers, and what it costs."""

from __future__ import annotations

import importlib
import inspect
import pkgutil
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

import planvec


def loaded_after(code: str) -> set[str]:
    """The modules that a new interpreter has loaded after some code."""
    script = f"{code}\nimport sys\nprint('LOADED', *sys.modules)"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    return set(done.stdout.rpartition("LOADED")[2].split())


@pytest.mark.parametrize("name", planvec.__all__)
def test_every_public_name_has_a_docstring(name: str) -> None:
    value = getattr(planvec, name)
    assert inspect.getdoc(value), name
    if inspect.isclass(value):
        for attribute, member in vars(value).items():
            if not attribute.startswith("_") and (callable(member) or isinstance(member, property)):
                assert inspect.getdoc(getattr(value, attribute)), f"{name}.{attribute}"


NOT_IMPORTED = (
    "planvec.__main__",
    *(() if find_spec("stable_baselines3") else ("planvec.vector.sb3",)),
    *(() if find_spec("mctx") else ("planvec.mctx",)),
    *(() if find_spec("ding") else ("planvec.vector.ding",)),
)
"""Modules that run a program, or need an extra that is not installed."""


def test_every_module_that_lists_its_names_has_them() -> None:
    for info in pkgutil.walk_packages(planvec.__path__, "planvec."):
        if info.name not in NOT_IMPORTED:
            module = importlib.import_module(info.name)
            for name in getattr(module, "__all__", ()):
                try:
                    assert hasattr(module, name), f"{info.name}.{name}"
                except ImportError as error:
                    assert "pip install stable-baselines3" in str(error)  # noqa: PT017


def test_an_unknown_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="module 'planvec' has no attribute 'nope'"):
        planvec.nope  # noqa: B018
    assert set(planvec.__all__) <= set(dir(planvec))


@pytest.mark.slow
def test_no_module_hides_a_public_name() -> None:
    code = f"""
import importlib, pkgutil, types
import planvec
for info in pkgutil.walk_packages(planvec.__path__, "planvec."):
    if info.name not in {NOT_IMPORTED}:
        importlib.import_module(info.name)
for name in planvec.__all__:
    assert not isinstance(getattr(planvec, name), types.ModuleType), name
"""
    loaded_after(code)


def test_importing_planvec_imports_neither_gymnasium_nor_numba() -> None:
    assert not {"gymnasium", "numpy", "numba"} & loaded_after("import planvec")


CLASSES = {"mcts.planner": "MCTS", "swarm.planner": "Swarm", "width": "RolloutIW"}


@pytest.mark.parametrize("name", CLASSES)
@pytest.mark.parametrize("code", ["from planvec.planners import {}", "import planvec; planvec.{}()"])
def test_a_planner_is_made_without_numba(code: str, name: str) -> None:
    loaded = loaded_after(code.format(CLASSES[name]))
    assert f"planvec.planners.{name}" in loaded
    assert "numba" not in loaded


def test_stepping_imports_no_numba_and_no_plotting() -> None:
    code = """
import planvec
with planvec.make("CartPole-v1", num_workers=1) as env:
    env.step_batch([0, 1])
    loaded = env.workers[0].call("step_batch", [0]).result()
"""
    assert not {"numba", "matplotlib", "pygame", "tqdm"} & loaded_after(code)


def test_a_worker_imports_no_numba() -> None:
    class Modules:
        def names(self) -> set[str]:
            return set(sys.modules)

    with planvec.ExternalProcess(Modules, start_method="spawn") as worker:
        loaded = worker.call("names").result()
    assert "planvec.stepping.env_stepper" in loaded
    assert not {"numba", "matplotlib", "pygame", "tqdm", "planvec.planners"} & loaded


def test_importing_changes_no_global_state() -> None:
    code = """
import multiprocessing, os, warnings
import cloudpickle, gymnasium, tqdm  # which have filters of their own
before = (dict(os.environ), list(warnings.filters), multiprocessing.get_start_method(allow_none=True))
import planvec
for name in planvec.__all__:
    getattr(planvec, name)
after = (dict(os.environ), list(warnings.filters), multiprocessing.get_start_method(allow_none=True))
assert before == after, (before[1], after[1])
"""
    loaded_after(code)


@pytest.mark.parametrize(
    "name", ["errors", "planners", "plots", "rows", "vector", "vector.env_pool", "video"]
)
def test_a_module_is_there_after_import_planvec(name: str) -> None:
    assert f"planvec.{name}" in loaded_after(f"import planvec\nplanvec.{name}.__name__")


BROKEN = """
import sys
import gymnasium.vector
del gymnasium.vector.AutoresetMode
try:
    {code}
except ImportError as error:
    print(error)
    assert isinstance(error.__cause__, AttributeError) or "AutoresetMode" in str(error)
"""


@pytest.mark.parametrize(
    "code",
    [
        "from planvec.vector import EnvPool",
        "import planvec; planvec.vector.EnvPool",
        "import planvec.vector as vector; hasattr(vector, 'AsyncVectorEnv')",
    ],
)
def test_an_error_of_a_lazy_import_is_the_one_that_happened(code: str) -> None:
    done = subprocess.run(
        [sys.executable, "-c", BROKEN.format(code=code)], capture_output=True, text=True, check=True
    )
    assert "AutoresetMode" in done.stdout
    assert "cannot import name 'EnvPool'" not in done.stdout


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ("import gymnasium; gymnasium.nope", "AttributeError: module 'gymnasium' has no attribute 'nope'"),
        ("from gymnasium import nope", "cannot import name 'nope' from 'gymnasium'"),
        ("import nope", "No module named 'nope'"),
        ("raise AttributeError('lost')", "AttributeError: lost"),
        ("1 / 0", "division by zero"),
    ],
)
@pytest.mark.parametrize(
    "how", ["from lazy import name", "import lazy; lazy.name", "import lazy; lazy.there"]
)
def test_a_lazy_name_shows_why_its_module_cannot_be_imported(
    how: str, body: str, message: str, tmp_path: Path
) -> None:
    (tmp_path / "lazy").mkdir()
    (tmp_path / "lazy" / "__init__.py").write_text(
        "from planvec.lazy import lazy_names\n"
        "__getattr__, __dir__ = lazy_names(__name__, {'name': 'lazy.there'})\n"
    )
    (tmp_path / "lazy" / "there.py").write_text(f"{body}\nname = 1\n")
    done = subprocess.run(
        [sys.executable, "-c", how], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert message in done.stderr.splitlines()[-1]
    assert "there.py" in done.stderr


def test_a_broken_package_is_not_called_missing(tmp_path: Path) -> None:
    (tmp_path / "matplotlib.py").write_text("raise ImportError('libGL.so.1: cannot open shared object file')")
    done = subprocess.run(
        [sys.executable, "-c", "import planvec; planvec.plots"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.stderr.splitlines()[-1] == "ImportError: libGL.so.1: cannot open shared object file"
