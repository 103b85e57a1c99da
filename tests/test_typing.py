"""What type checkers and editors see of planvec: the files in `typing/`, under mypy --strict and pyright."""

from __future__ import annotations

import inspect
import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import jedi
import mypy.api
import pytest

import planvec

ROOT = Path(__file__).parent.parent
FOLDER = Path(__file__).parent / "typing"
FILES = [FOLDER / "public_names.py", FOLDER / "mistakes.py"]
Found = dict[str, dict[int, str]]
"""File -> line -> the error there."""


def errors_of_mypy(cache: Path) -> Found:
    report, complaints, _ = mypy.api.run(
        [
            "--strict",
            *("--config-file", str(ROOT / "pyproject.toml")),
            *("--cache-dir", str(cache)),
            "--show-absolute-path",
            *map(str, FILES),
        ]
    )
    assert not complaints
    errors: Found = {}
    for path, line, text in re.findall(r"^(.+?):(\d+): error: (.*)$", report, re.MULTILINE):
        errors.setdefault(path, {})[int(line)] = text
    return errors


def errors_of_pyright(cache: Path) -> Found:
    command = [sys.executable, "-m", "pyright", "--outputjson", "--pythonpath", sys.executable]
    done = subprocess.run(
        [*command, *map(str, FILES)], capture_output=True, text=True, check=False, cwd=ROOT, timeout=100
    )
    errors: Found = {}
    for one in json.loads(done.stdout)["generalDiagnostics"]:
        if one["severity"] == "error":
            errors.setdefault(one["file"], {})[one["range"]["start"]["line"] + 1] = one["message"]
    return errors


CHECKERS = [
    pytest.param(errors_of_mypy, id="mypy", marks=pytest.mark.slow),
    pytest.param(errors_of_pyright, id="pyright"),
]


@pytest.fixture(scope="module", params=CHECKERS)
def errors(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Found:
    found: Found = request.param(tmp_path_factory.mktemp("cache"))
    return found


@pytest.mark.slow
def test_public_names_reveal_their_types(errors: Found) -> None:
    assert errors.get(str(FILES[0]), {}) == {}


def test_every_mistake_is_an_error_and_nothing_else_is(errors: Found) -> None:
    lines = FILES[1].read_text().splitlines()
    expected = {number for number, line in enumerate(lines, 1) if line.endswith("# error")}
    assert len(expected) > 10
    assert set(errors[str(FILES[1])]) == expected


def test_no_error_is_in_planvec_itself(errors: Found) -> None:
    assert set(errors) <= {str(path) for path in FILES}


@pytest.mark.parametrize(
    ("opens", "wrong"),
    [
        (planvec.make, "num_worker"),
        (planvec.make, "max_episode_steps"),
        (planvec.PlanEnv, "sutton_barto_reward"),
        (planvec.check_env, "render_mode"),
    ],
)
def test_a_misspelt_argument_is_a_type_error_that_names_it_at_the_call(opens: Any, wrong: str) -> None:
    with pytest.raises(TypeError, match=f"unexpected keyword argument '{wrong}'") as caught:
        opens("CartPole-v1", **{wrong: 3})
    assert caught.tb.tb_next is None  # nothing was begun, here or in a worker


def editor(code: str) -> jedi.Script:
    """Return what jedi makes of some code, in this process."""
    project, here = jedi.Project(ROOT), jedi.InterpreterEnvironment()
    return jedi.Script(f"import planvec\n{code}", environment=here, project=project)


def completions(code: str) -> list[str]:
    return [completion.name for completion in editor(code).complete()]


def test_an_editor_completes_the_public_names() -> None:
    assert set(planvec.__all__) <= set(completions("planvec."))
    assert completions("planvec.ma") == ["make"]


def test_an_editor_shows_the_parameters_of_make_and_its_docstring() -> None:
    script = editor("planvec.make(")
    shown = {param.name for signature in script.get_signatures() for param in signature.params}
    assert shown == set(inspect.signature(planvec.make).parameters)
    summary = str(inspect.getdoc(planvec.make)).splitlines()[0]
    assert any(summary in name.docstring() for name in script.infer(2, 10))


@pytest.mark.slow
def test_an_editor_completes_what_an_environment_offers() -> None:
    members = completions('env = planvec.make("CartPole-v1")\nenv.')
    assert {"step_batch", "rollout_batch", "get_attr", "clone", "stats"} <= set(members)
