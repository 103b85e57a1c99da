"""The settings of a run: all that determines its trajectory. They are a file of the run."""

from __future__ import annotations

import json
import tomllib
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import Any

from planvec.errors import InvalidBatchError
from planvec.rows import replacing

# names of settings, their types, and how messages call these
_TYPES: tuple[tuple[str, Any, str], ...] = (
    ("env_id", str, "a text"),
    ("make", dict, "a table of arguments"),
    ("wrappers", list, "a list of texts"),
    ("codec", str | None, "a text"),
    ("planner", str, "a text"),
    ("planner_options", dict, "a table of options"),
    ("seed", int, "an integer"),
    ("episodes", int, "an integer"),
    ("max_steps", int | None, "an integer"),
)


@dataclass(frozen=True, kw_only=True)
class RunConfig:
    """The settings of a run."""

    env_id: str  # A name as in `planvec.make`
    make: dict[str, Any] = field(default_factory=dict)  # arguments of `gymnasium.make`
    # wrappers of `gymnasium.wrappers`, such as "TimeLimit=50", or "module:Wrapper", innermost first
    wrappers: list[str] = field(default_factory=list)
    codec: str | None = None  # how states are saved; None for the best way
    planner: str  # name of the planner
    # options of the planner that are not the defaults
    planner_options: dict[str, Any] = field(default_factory=dict)
    seed: int  # seed of the first episode; the next ones have the following seeds
    episodes: int = 1  # number of episodes
    max_steps: int | None = None  # largest number of steps of an episode; None: no limit

    def __post_init__(self) -> None:
        """Check the types, which a file may have wrong."""
        for name, kind, expected in _TYPES:
            value = getattr(self, name)
            if not isinstance(value, kind) or isinstance(value, bool):
                raise InvalidBatchError(f"{name}: expected {expected}, got {value!r}")
        for name, lowest in (("seed", 0), ("episodes", 1), ("max_steps", 1)):
            value = getattr(self, name)
            if value is not None and value < lowest:
                raise InvalidBatchError(f"{name}: expected at least {lowest}, got {value}")

    def episode_seed(self, episode: int) -> int:
        """Return the seed of an episode, which is counted from 0."""
        return (self.seed + episode) % 2**64

    def write(self, path: Path) -> None:
        """Write the settings as JSON."""
        with replacing(path) as temporary:
            temporary.write_text(json.dumps(asdict(self), indent=2) + "\n")

    @classmethod
    def read(cls, path: Path) -> RunConfig:
        """Read the settings of a run."""
        parts: dict[str, Any] = {
            name: with_tuples(value) if isinstance(value, dict) else value
            for name, value in read_settings(path).items()
        }
        try:
            return cls(**parts)
        except TypeError as error:
            raise InvalidBatchError(f"{path}: expected the settings of a run, got others: {error}") from error
        except InvalidBatchError as error:
            raise InvalidBatchError(f"{path}: {error}") from error


def read_settings(path: Path) -> dict[str, Any]:
    """Read settings from a file of TOML or JSON."""
    text = path.read_text()
    try:
        settings = json.loads(text) if path.suffix == ".json" else tomllib.loads(text)
    except (ValueError, UnicodeDecodeError) as error:
        kind = "JSON" if path.suffix == ".json" else "TOML"
        raise InvalidBatchError(f"{path}: expected {kind}, got an error: {error}") from error
    known = [one.name for one in fields(RunConfig)]
    unknown = (
        sorted(set(settings) - set(known)) if isinstance(settings, Mapping) else [type(settings).__name__]
    )
    if unknown:
        raise InvalidBatchError(f"{path}: expected some of {', '.join(known)}, got {', '.join(unknown)}")
    return dict(settings)


def with_tuples(options: dict[str, Any]) -> dict[str, Any]:
    """Return options with tuples for lists: JSON and TOML have no tuples."""
    return {name: tuple(value) if isinstance(value, list) else value for name, value in options.items()}
