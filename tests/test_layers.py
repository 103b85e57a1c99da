"""Imports point down the layers, and within a level only where the design names it."""

from __future__ import annotations

import ast
from pathlib import Path

import planvec

ROOT = Path(planvec.__file__).parent

LEVELS = {
    # 0: words that everybody uses
    "errors": 0,
    "promise": 0,
    "saved_state": 0,
    "space_arrays": 0,
    "transitions": 0,
    # 1: arrays
    "arrays": 1,
    "infos": 1,
    "random_actions": 1,
    "rollouts": 1,
    # 2: states
    "env_source": 2,
    "codecs": 2,
    # 3: the stepping loop
    "outputs": 3,
    "found": 3,
    "stepping": 3,
    "plan_env": 3,
    # 4: processes
    "workers": 4,
    # 5: batches
    "in_process": 5,
    "batch_env": 5,
    # 6: the front door, and what sees nothing but a BatchStepper
    "making": 6,
    "planners": 6,
    # 7: what users look at
    "check_report": 7,
    "check_alone": 7,
    "check": 7,
    "families": 7,
    # 8: the command line
    "commands": 8,
    "cli": 8,
    "__main__": 9,
}
"""Top-level module -> level. `planvec/__init__.py` hands on names lazily and is no part of it."""

PEERS = {
    ("promise", "errors"),
    ("space_arrays", "errors"),
    ("transitions", "space_arrays"),
    ("rollouts", "arrays"),
    ("rollouts", "random_actions"),
    ("found", "outputs"),
    ("stepping", "found"),
    ("stepping", "outputs"),
    ("plan_env", "stepping"),
    ("batch_env", "in_process"),
    ("check", "check_alone"),
    ("check", "check_report"),
    ("cli", "commands"),
}
"""Imports within a level."""

PLANNERS_SEE = {"arrays", "errors", "planners", "random_actions", "space_arrays", "transitions"}
"""A planner knows a `BatchStepper`, and never a worker."""


def modules() -> list[tuple[str, Path]]:
    return [(path.relative_to(ROOT).parts[0].removesuffix(".py"), path) for path in ROOT.rglob("*.py")]


def imports(path: Path) -> set[str]:
    """The top-level parts of planvec that a file imports, lazily or not."""
    found = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: a relative import"
            names = [f"{node.module}.{alias.name}" for alias in node.names]
        else:
            continue
        found |= {name.split(".")[1] for name in names if name.startswith("planvec.")}
    return found


def test_every_module_has_a_level() -> None:
    assert {name for name, _ in modules()} - {"__init__"} == set(LEVELS)


def test_imports_point_downwards_only() -> None:
    for name, path in modules():
        if name == "__init__":
            continue
        for target in imports(path) - {name, "__version__"}:
            allowed = LEVELS[target] < LEVELS[name] or (name, target) in PEERS
            assert allowed, f"{path.relative_to(ROOT)} imports {target}"


def test_planners_see_no_worker() -> None:
    for name, path in modules():
        if name == "planners":
            assert imports(path) <= PLANNERS_SEE, path


def test_every_named_exception_to_the_levels_is_used() -> None:
    used = {(name, target) for name, path in modules() for target in imports(path)}
    assert used >= PEERS
