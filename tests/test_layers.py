"""Imports point down the levels, have no cycles, and use the entrances of the folders at the top.

The folders inside one of these are parts of the same concept, and import each other's modules directly: an
entrance would make a worker import modules that only its parent needs.
"""

from __future__ import annotations

import ast
import functools
from graphlib import TopologicalSorter
from pathlib import Path

import pytest

import planvec

ROOT = Path(planvec.__file__).parent

LEVELS = {
    "errors": 0,
    "extras": 0,
    "lazy": 0,
    "rows": 1,
    "codecs": 2,
    "kernels": 3,
    "stepping": 4,
    "backends": 5,
    "envs": 6,
    "planners": 7,
    "vector": 7,
    "checking": 8,
    "exploring": 8,
    "runs": 8,
    "plots": 9,
    "report": 10,
    "video": 8,
    "mctx": 2,
    "openspiel": 2,
    "pettingzoo": 2,
    "cli": 11,
    "__main__": 12,
}
"""Folder or module at the top -> its level. `planvec/__init__.py` hands on names and has none."""

PLANNERS_SEE = {"errors", "lazy", "rows", "kernels", "planners"}
"""A planner knows a `BatchStepper`, and never a backend."""

MAX_FLOORS = 10


def module_name(path: Path) -> str:
    """`rows.checks` for `planvec/rows/checks.py`, and `rows` for its `__init__`."""
    parts = path.relative_to(ROOT).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


@functools.cache
def modules() -> dict[str, Path]:
    return {module_name(path): path for path in sorted(ROOT.rglob("*.py"))}


def imports_of(path: Path, known: dict[str, Path]) -> set[str]:
    """The modules that a file imports: lazily or not, at run time or for type checkers alone."""
    found = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: a relative import"
            names = [f"{node.module}.{alias.name}" for alias in node.names]
        else:
            continue
        for name in names:
            if name.split(".")[0] == "planvec":
                found.add(_module_of(name.removeprefix("planvec").lstrip("."), known))
    return found


def _module_of(name: str, known: dict[str, Path]) -> str:
    """The module that holds a dotted name."""
    while name not in known:
        name = name.rpartition(".")[0]
    return name


@functools.cache
def imports() -> dict[str, set[str]]:
    return {name: imports_of(path, modules()) - {name} for name, path in modules().items()}


def top(name: str) -> str:
    return name.split(".")[0]


def cycles(graph: dict[str, set[str]]) -> list[str]:
    """Return a cycle of imports, or nothing."""
    try:
        list(TopologicalSorter(graph).static_order())
    except ValueError as error:
        return list(error.args[1])
    return []


def floors(graph: dict[str, set[str]]) -> dict[str, int]:
    """For each node the length of the longest way down from it."""
    heights: dict[str, int] = {}
    for name in TopologicalSorter(graph).static_order():
        heights[name] = 1 + max((heights[target] for target in graph.get(name, ())), default=0)
    return heights


def test_every_module_has_a_level() -> None:
    assert {top(name) for name in modules()} - {""} == set(LEVELS)


def test_imports_point_downwards_only() -> None:
    for name, targets in imports().items():
        if name:
            for target in targets - {""}:
                allowed = top(target) == top(name) or LEVELS[top(target)] < LEVELS[top(name)]
                assert allowed, f"{name} imports {target}"


def test_imports_have_no_cycle() -> None:
    graph = {name: targets - {""} for name, targets in imports().items() if name}
    # A package imports its modules to hand their names on; a module of it that imports the package itself
    # would be a cycle.
    assert not cycles(graph), " -> ".join(cycles(graph))


def packages() -> list[str]:
    return sorted({name.rpartition(".")[0] for name in modules() if "." in name})


@pytest.mark.parametrize("package", packages())
def test_the_folders_of_a_package_have_no_cycle(package: str) -> None:
    depth = package.count(".") + 2
    graph: dict[str, set[str]] = {}
    for name, targets in imports().items():
        if name.startswith(f"{package}."):
            unit = ".".join(name.split(".")[:depth])
            inside = {target for target in targets if target.startswith(f"{package}.")}
            graph.setdefault(unit, set()).update(
                {".".join(target.split(".")[:depth]) for target in inside} - {unit}
            )
    assert not cycles(graph), " -> ".join(cycles(graph))


def test_another_folder_is_entered_by_its_entrance() -> None:
    for name, targets in imports().items():
        if name:
            for target in targets - {""}:
                is_inside = top(target) == top(name)
                assert is_inside or "." not in target, f"{name} imports {target}, not planvec.{top(target)}"


def test_there_are_few_floors_from_the_command_line_to_the_errors() -> None:
    graph: dict[str, set[str]] = {}
    for name, targets in imports().items():
        if name:
            graph.setdefault(top(name), set()).update(top(target) for target in targets if target)
            graph[top(name)].discard(top(name))
    assert max(floors(graph).values()) <= MAX_FLOORS


def test_planners_see_no_backend() -> None:
    for name, targets in imports().items():
        if top(name) == "planners":
            assert {top(target) for target in targets} <= PLANNERS_SEE, name


@pytest.mark.parametrize(
    "second", ["import planvec.b", "from planvec import b", "if x:\n    import planvec.b"]
)
def test_a_cycle_inside_a_folder_is_found(second: str, tmp_path: Path) -> None:
    known = {"": tmp_path / "__init__.py", "a": tmp_path / "a.py", "b": tmp_path / "b.py"}
    known["a"].write_text(second)
    known["b"].write_text("def f():\n    from planvec.a import x")
    graph = {name: imports_of(known[name], known) - {""} for name in ("a", "b")}
    assert cycles(graph)
