"""Measures the house: lines, files, the longest chain of imports, modules with one importer, comments, `Any`.

    python benchmarks/house.py            # of this checkout
    python benchmarks/house.py OTHER      # of another one

Imports count wherever they stand, in functions too. A name that a package hands on counts as an import of the
module that defines it.
"""

from __future__ import annotations

import argparse
import ast
import functools
import io
import tokenize
from pathlib import Path

BUDGET = {
    "lines": 42_000,
    "files": 230,
    "longest chain": 20,
    "one importer": 1 / 8,
    "comments": 0.01,
}


class House:
    """The modules of the package `planvec` below a folder."""

    def __init__(self, root: Path) -> None:
        self._paths = {_name(path.relative_to(root)): path for path in sorted(root.glob("planvec/**/*.py"))}
        self._texts = {name: path.read_text() for name, path in self._paths.items()}
        self._trees = {name: ast.parse(text) for name, text in self._texts.items()}

    @property
    def num_lines(self) -> int:
        return sum(text.count("\n") for text in self._texts.values())

    @property
    def num_files(self) -> int:
        return len(self._paths)

    @property
    def num_comments(self) -> int:
        """Lines with a comment."""
        return sum(len(_comment_lines(text)) for text in self._texts.values())

    @property
    def num_any(self) -> int:
        return sum(
            isinstance(node, ast.Name) and node.id == "Any"
            for tree in self._trees.values()
            for node in ast.walk(tree)
        )

    def _is_package(self, name: str) -> bool:
        return self._paths[name].name == "__init__.py"

    def _resolve(self, module: str, name: str, seen: frozenset[tuple[str, str]] = frozenset()) -> str | None:
        """Return the module that defines a name that is imported from a module; None outside of planvec."""
        if f"{module}.{name}" in self._paths:
            return f"{module}.{name}"
        if module not in self._paths:
            return None
        if not self._is_package(module) or (module, name) in seen:
            return module
        for node in ast.walk(self._trees[module]):
            if isinstance(node, ast.ImportFrom) and any((a.asname or a.name) == name for a in node.names):
                return self._resolve(str(node.module), name, seen | {(module, name)}) or module
        return module

    @functools.cached_property
    def imports(self) -> dict[str, set[str]]:
        """Module -> the modules that it imports. What packages hand on is no import of theirs."""
        found: dict[str, set[str]] = {}
        for name, tree in self._trees.items():
            if self._is_package(name) and not any(
                isinstance(node, ast.FunctionDef | ast.ClassDef) for node in tree.body
            ):
                continue
            targets = found.setdefault(name, set())
            for node in ast.walk(tree):
                if isinstance(node, ast.ImportFrom) and node.module:
                    targets.update(
                        target
                        for a in node.names
                        if (target := self._resolve(node.module, a.name)) is not None
                    )
                elif isinstance(node, ast.Import):
                    targets.update(a.name for a in node.names if a.name in self._paths)
            targets.discard(name)
        return {name: targets & set(found) for name, targets in found.items()}

    @functools.cached_property
    def longest_chain(self) -> list[str]:
        """The longest chain of modules, each of which imports the next."""

        @functools.cache
        def chain(name: str) -> tuple[str, ...]:
            below = (chain(target) for target in sorted(self.imports[name]))
            return (name, *max(below, key=len, default=()))

        return list(max(map(chain, self.imports), key=len))

    @property
    def with_one_importer(self) -> list[str]:
        importers = dict.fromkeys(self.imports, 0)
        for targets in self.imports.values():
            for target in targets:
                importers[target] += 1
        return [name for name, number in importers.items() if number == 1]


def _name(path: Path) -> str:
    parts = path.with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def _comment_lines(text: str) -> set[int]:
    tokens = tokenize.generate_tokens(io.StringIO(text).readline)
    return {token.start[0] for token in tokens if token.type == tokenize.COMMENT}


def main() -> None:
    parser = argparse.ArgumentParser(description="Measure the size and the structure of planvec/.")
    parser.add_argument("root", nargs="?", type=Path, default=Path(__file__).parent.parent)
    house = House(parser.parse_args().root)
    alone = house.with_one_importer
    print(
        f"{house.num_lines} lines in {house.num_files} files (at most {BUDGET['lines']} in {BUDGET['files']})"
    )
    print(f"longest chain of imports: {len(house.longest_chain)} (at most {BUDGET['longest chain']})")
    print("    " + "\n    ".join(house.longest_chain))
    print(f"modules with a single importer: {len(alone)} of {len(house.imports)} (at most one in eight)")
    print("    " + ", ".join(alone))
    share = house.num_comments / house.num_lines
    print(f"lines with comments: {house.num_comments}, {share:.1%} (at least 1 %)")
    print(f"uses of Any: {house.num_any}")


if __name__ == "__main__":
    main()
