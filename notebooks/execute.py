"""Execute the notebooks from their percent scripts.

python notebooks/execute.py            # write notebooks/*.ipynb, executed
python notebooks/execute.py --check    # execute only, and see that each .ipynb has its script's cells
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

import jupytext
import nbformat
from nbclient import NotebookClient

HERE = Path(__file__).parent


def executed(script: Path) -> nbformat.NotebookNode:
    """Return the notebook of a script, executed in this folder by this interpreter."""
    notebook = jupytext.read(script)
    notebook.metadata["kernelspec"] = {
        "display_name": "Python 3",
        "language": "python",
        "name": "python3",
    }
    for number, cell in enumerate(notebook.cells):
        cell["id"] = f"cell-{number}"  # the same in every run
    NotebookClient(notebook, timeout=300, resources={"metadata": {"path": str(HERE)}}).execute()
    for cell in notebook.cells:
        cell.metadata.pop("execution", None)  # clock times, which change with every run
    return notebook


def sources(notebook: nbformat.NotebookNode) -> list[str]:
    """Return the source of each cell."""
    return [cell.source.strip() for cell in notebook.cells]


def main() -> int:
    """Execute all notebooks; returns the exit status."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--check", action="store_true", help="write nothing; compare the cells")
    arguments = parser.parse_args()
    status = 0
    for script in sorted(HERE.glob("*.py")):
        if script.name == Path(__file__).name:
            continue
        target = script.with_suffix(".ipynb")
        notebook = executed(script)
        print(f"{script.name}: executed")
        if not arguments.check:
            nbformat.write(notebook, target)
        elif sources(nbformat.read(target, as_version=4)) != sources(notebook):
            print(f"{target.name} is not made from {script.name}: run python notebooks/execute.py")
            status = 1
    return status


if __name__ == "__main__":
    sys.exit(main())
