"""Plays the episodes of a run. Whatever interrupts it, the files of the run are complete up to some step."""

from __future__ import annotations

import json
import time
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from planvec.codecs import describe_difference, digest
from planvec.errors import InvalidBatchError, UnsupportedEnvError
from planvec.planners import (
    Episode,
    EpisodeRecorder,
    EpisodeStep,
    Plan,
    Planner,
    PlanProgress,
    actions_of_arrays,
    arrays_of_actions,
    arrays_of_plan,
    check_plan_states,
    plan_of_arrays,
    replay_steps,
    resume_episode,
    run_episode,
    save_trajectory,
    trajectory_arrays,
)
from planvec.rows import (
    BatchStepper,
    arrays_of_states,
    damage_named,
    read_arrays,
    remove_unfinished,
    replacing,
    states_of_arrays,
)

# -- The checkpoint of a run: what it takes to go on after it was killed at any moment.
#
# It holds the actions so far, not the states. The last plan is saved with its tree, swarm or distribution,
# with which the next decision goes on.
#
# Letters: T steps.

_PLAN = "plan."
_KEPT = "kept."


@dataclass(frozen=True, eq=False)
class Checkpoint:
    """A run after T steps of an episode."""

    episode: int  # index of the episode, from 0
    actions: Any  # `[T, ...]`, stacked by the action space
    # `[T, 3]` float64: the value of each decision, the environment steps that it simulated, and its seconds
    numbers: NDArray[np.float64]
    state: np.ndarray  # `[1]`, the state after the last step
    plan: Plan | None  # the last decision; None if T is 0
    kept: Mapping[str, np.ndarray]  # what the observers of the run need to go on

    def write(self, path: Path, env: BatchStepper) -> None:
        """Replace the file of the checkpoint."""
        arrays: dict[str, np.ndarray] = {
            "episode": np.array(self.episode),
            "numbers": self.numbers,
            **arrays_of_states("state", self.state),
            **arrays_of_actions(self.actions, env.action_space),
        }
        if self.plan is not None:
            plan = arrays_of_plan(self.plan, env.action_space)
            arrays |= {f"{_PLAN}{name}": array for name, array in plan.items()}
        arrays |= {f"{_KEPT}{name}": array for name, array in self.kept.items()}
        with replacing(path) as temporary:
            np.savez(temporary, **arrays)  # type: ignore[arg-type]

    @classmethod
    def read(cls, path: Path, env: BatchStepper) -> Checkpoint:
        """Read a checkpoint."""
        with damage_named(f"{path}: expected the checkpoint of a run, got a file that is damaged"):
            arrays = read_arrays(path)
            checkpoint = cls(
                int(arrays["episode"]),
                actions_of_arrays(arrays, env.action_space),
                arrays["numbers"],
                states_of_arrays("state", arrays),
                plan_of_arrays(_part(arrays, _PLAN), env.action_space) if f"{_PLAN}value" in arrays else None,
                _part(arrays, _KEPT),
            )
        if checkpoint.plan is not None:
            check_plan_states(checkpoint.plan, env)
        return checkpoint


def _part(arrays: Mapping[str, np.ndarray], prefix: str) -> dict[str, np.ndarray]:
    """Return the arrays whose names begin with a prefix, without it."""
    return {name.removeprefix(prefix): array for name, array in arrays.items() if name.startswith(prefix)}


# -- The settings of a run: all that determines its trajectory. They are a file of the run -------------------

# names of settings, their types, how messages call these, and the lowest number
_TYPES: tuple[tuple[str, Any, str, int | None], ...] = (
    ("env_id", str, "a text", None),
    ("make", dict, "a table of arguments", None),
    ("wrappers", list, "a list of texts", None),
    ("codec", str | None, "a text", None),
    ("planner", str, "a text", None),
    ("planner_options", dict, "a table of options", None),
    ("seed", int, "an integer", 0),
    ("episodes", int, "an integer", 1),
    ("max_steps", int | None, "an integer", 1),
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
        for name, kind, expected, lowest in _TYPES:
            value = getattr(self, name)
            are_texts = not isinstance(value, list) or all(isinstance(one, str) for one in value)
            if not isinstance(value, kind) or isinstance(value, bool) or not are_texts:
                raise InvalidBatchError(f"{name}: expected {expected}, got {value!r}")
            if lowest is not None and value is not None and value < lowest:
                raise InvalidBatchError(f"{name}: expected at least {lowest}, got {value}")

    def write(self, path: Path) -> None:
        """Write the settings as JSON."""
        with replacing(path) as temporary:
            temporary.write_text(json.dumps(asdict(self), indent=2) + "\n")

    @classmethod
    def read(cls, path: Path) -> RunConfig:
        """Read the settings of a run."""
        settings = read_settings(path)
        try:
            return cls(**settings)
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
    for value in settings.values():
        if isinstance(value, dict):  # tuples, which JSON and TOML do not have
            value.update({name: tuple(one) for name, one in value.items() if isinstance(one, list)})
    return dict(settings)


# -- The files of a run, and how they are written: a file is replaced when the new one is complete.
#
# run.json            the settings
# steps.csv           one line per step, written as the run goes on
# trajectory.npz      the first episode: seed, states, actions, rewards, observations, values
# trajectory-2.npz    the second one, and so on
# summary.json        what the episodes scored, and what they cost
# events.out.*        scalars for TensorBoard, with `--tensorboard`
# checkpoint.npz      what `--resume` needs; it is removed when the run is complete


class RunFiles:
    """Names the files of a run."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.config = directory / "run.json"
        self.steps = directory / "steps.csv"
        self.summary = directory / "summary.json"
        self.checkpoint = directory / "checkpoint.npz"

    def trajectory(self, episode: int) -> Path:
        """Return the file of an episode, which is counted from 0."""
        return self.directory / (f"trajectory-{episode + 1}.npz" if episode else "trajectory.npz")

    def trajectories(self) -> list[Path]:
        """Return the files of the episodes that are there, in their order."""
        return sorted(self.directory.glob("trajectory*.npz"), key=lambda path: (len(path.name), path))

    def written(self) -> list[Path]:
        """Return the files that are there, the summary first."""
        events = sorted(self.directory.glob("events.out.tfevents.*"))  # one for each begin or resumption
        files = [self.summary, *self.trajectories(), self.steps, self.config, *events, self.checkpoint]
        return [path for path in files if path.exists()]

    def check_writable(self) -> None:
        """Make the directory, and write a file there, before anything is played."""
        self.directory.mkdir(parents=True, exist_ok=True)
        tried, trajectories = self.directory / ".planvec", self.directory / "trajectory*.npz"
        for path in (self.config, self.steps, self.summary, self.checkpoint, trajectories, tried):
            remove_unfinished(path)
        with replacing(tried) as path:
            path.touch()
        tried.unlink()

    def clear(self) -> None:
        """Remove the files of an earlier run, which would be mixed up with those of a new one."""
        if not self.config.exists():
            return
        for path in self.written():
            path.unlink(missing_ok=True)


# -- The base class of what follows a run: a progress bar, a log, a report -----------------------------------


class RunObserver:
    """Follows a run. Every method does nothing unless it is overridden."""

    def prepare(self) -> None:
        """Called before the planner compiles what it has to compile."""

    def begin_episode(self, episode: int, seed: int, num_steps: int, total_return: float) -> None:
        """Called before an episode of an index and a seed, or before it goes on after some steps."""

    def search(self, num_simulations: int, num_env_steps: int) -> None:
        """Called after each batch of a decision."""

    def step(self, step: EpisodeStep) -> None:
        """Called after each step."""

    def end_episode(self, episode: Episode) -> None:
        """Called after an episode, also if the run is interrupted."""

    def kept(self) -> dict[str, np.ndarray]:
        """Return arrays from which `restore` brings the observer back to this step."""
        return {}

    def restore(self, kept: Mapping[str, np.ndarray]) -> None:
        """Go on from a step at which `kept` returned this; empty if the observer was not there then."""

    def close(self) -> None:
        """Called at the end of the run, also after an error."""


# largest share of the time in which checkpoints are written; those of large trees would take most of it
_SHARE = 0.05


def play_run(
    env: BatchStepper,
    planner: Planner,
    config: RunConfig,
    files: RunFiles,
    observers: Sequence[RunObserver],
    *,
    resume: bool = False,
) -> Iterator[tuple[int, Episode]]:
    """Play the episodes of a run, and yield each of them, with its index, when it is over and written."""
    # If the run is interrupted (`KeyboardInterrupt`), the steps so far are written as an episode, and it is
    # yielded before the exception is raised again.
    checkpoint = Checkpoint.read(files.checkpoint, env) if resume and files.checkpoint.exists() else None
    if resume and checkpoint is None:  # killed before the first checkpoint: begin again
        for observer in observers:
            observer.restore({})
    first = 0 if checkpoint is None else checkpoint.episode
    for episode in range(first, config.episodes):
        player = _Player(env, planner, config, files, observers, episode)
        interrupt: KeyboardInterrupt | None = None
        try:
            played = player.play(checkpoint)
        except KeyboardInterrupt as error:
            if not player.recorder.num_steps:
                raise
            interrupt, played = error, player.recorder.episode()
        with replacing(files.trajectory(episode)) as temporary:
            save_trajectory(temporary, played, env.action_space, env.observation_space)
        for observer in observers:
            observer.end_episode(played)
        yield episode, played
        if interrupt is not None:
            raise interrupt
        checkpoint = None
    files.checkpoint.unlink(missing_ok=True)


@dataclass
class _Player:
    """Plays one episode, and writes checkpoints."""

    _env: BatchStepper
    _planner: Planner
    _config: RunConfig
    _files: RunFiles
    _observers: Sequence[RunObserver]
    _episode: int

    def __post_init__(self) -> None:
        self.recorder = EpisodeRecorder(self._env.action_space, self._env.observation_space)
        self._numbers: list[tuple[float, float, float]] = []
        self._last: EpisodeStep | None = None  # the last step, if it is in no checkpoint
        self._cost = 0.0  # seconds of the latest checkpoint
        self._written = -np.inf

    def play(self, checkpoint: Checkpoint | None) -> Episode:
        """Play the episode, from a checkpoint on if there is one."""
        seed = (self._config.seed + self._episode) % 2**64
        options: dict[str, Any] = {
            "max_steps": self._config.max_steps,
            "callback": self._after_step,
            "plan_callback": PlanProgress(self._search),
        }
        try:
            if checkpoint is not None:
                # The steps of an episode take a small part of the time of its plans, and stepping them again
                # shows whether the environment is still the same.
                self._numbers = [tuple(row) for row in checkpoint.numbers.tolist()]
                numbers = [(value, int(num_env_steps)) for value, num_env_steps, _ in self._numbers]
                state, info = replay_steps(self._env, self.recorder, seed, checkpoint.actions, numbers)
                if bytes(state) != bytes(checkpoint.state[0]):
                    raise UnsupportedEnvError(
                        f"the run cannot be resumed: step {len(numbers)} leads to another state than before, "
                        "so that the environment, or a package that it uses, is not the same any more"
                    )
                self.recorder.earlier_seconds = float(checkpoint.numbers[:, 2].sum())
            num_steps, total_return = self.recorder.num_steps, self.recorder.total_return
            for observer in self._observers:
                if checkpoint is not None:
                    observer.restore(checkpoint.kept)
                observer.begin_episode(self._episode, seed, num_steps, total_return)
            if checkpoint is None:
                return run_episode(self._env, self._planner, seed=seed, recorder=self.recorder, **options)
            return resume_episode(
                self._env, self._planner, self.recorder, info=info, previous=checkpoint.plan, **options
            )
        except KeyboardInterrupt:
            self._write()  # nothing is planned again
            raise

    def _search(self, num_simulations: int, num_env_steps: int) -> None:
        for observer in self._observers:
            observer.search(num_simulations, num_env_steps)

    def _after_step(self, step: EpisodeStep) -> None:
        self._last = step
        self._numbers.append((step.plan.value, step.plan.num_env_steps, step.plan.elapsed))
        for observer in self._observers:
            observer.step(step)
        if time.perf_counter() - self._written >= self._cost / _SHARE:
            self._write()

    def _write(self) -> None:
        """Write a checkpoint of the last step."""
        if self._last is None:
            return
        started = time.perf_counter()
        kept: dict[str, np.ndarray] = {}
        for observer in self._observers:
            kept |= observer.kept()
        Checkpoint(
            self._episode,
            self.recorder.actions(),
            np.array(self._numbers, np.float64).reshape(-1, 3),
            self._last.transition.new_states,
            self._last.plan,
            kept,
        ).write(self._files.checkpoint, self._env)
        self._last, self._written = None, time.perf_counter()
        self._cost = self._written - started


# -- Plays a trajectory again, and compares every bit with what was written. Letters: T steps ----------------


class Replay(NamedTuple):
    """A trajectory that was played again."""

    episode: Episode  # the episode as it was played now
    # what differs from the file, such as "expected rewards[3] 1.0, got 0.5"; at most one line for each array
    differences: list[str]


def read_trajectory(path: Path) -> dict[str, np.ndarray]:
    """Read the arrays of a trajectory."""
    expected = "expected a trajectory that planvec wrote, got another file or a damaged one"
    with damage_named(f"{path}: {expected}"):
        arrays = read_arrays(path)
        if not {"seed", "rewards", "terminated", "truncated"} <= set(arrays):
            raise ValueError(f"it holds {', '.join(arrays) or 'nothing'}")
    return arrays


_DIGEST = "sha256."  # prefix of the names of digests


def record_of(arrays: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Return a trajectory for a record: with the digests of its observations instead of them."""
    # Values are left out, since replays do not plan, and states, since another version of planvec may save
    # them in another way.
    kept = {}
    for name, array in arrays.items():
        if name.startswith("observations"):
            kept[_DIGEST + name] = np.array(digest(array).hex())
        elif not name.startswith(("states", "values")):
            kept[name] = array
    return kept


def write_record(directory: Path, config: RunConfig, trajectories: Sequence[dict[str, np.ndarray]]) -> None:
    """Write the settings of a run, and what `record_of` has kept of its trajectories, in a new directory."""
    record = RunFiles(directory)
    record.check_writable()
    for episode, kept in enumerate(trajectories):
        with replacing(record.trajectory(episode)) as temporary:
            np.savez_compressed(temporary, **kept)  # type: ignore[arg-type]
    config.write(record.config)  # last: without it, the directory is no record


def replay(env: BatchStepper, arrays: Mapping[str, np.ndarray]) -> Replay:
    """Play a trajectory again: reset with its seed, and take its actions."""
    try:
        actions = actions_of_arrays(arrays, env.action_space)
    except KeyError as error:
        raise InvalidBatchError(
            f"trajectory: expected actions of {env.action_space}, got no {error}"
        ) from error
    recorder = EpisodeRecorder(env.action_space, env.observation_space)
    values = arrays.get("values", np.zeros(len(arrays["rewards"])))  # a record has none
    numbers = [(float(value), 0) for value in values]
    replay_steps(env, recorder, int(arrays["seed"]), actions, numbers)
    episode = recorder.episode()
    played = trajectory_arrays(episode, env.action_space, env.observation_space)
    differences = []
    for name, expected in arrays.items():
        full_name = name.removeprefix(_DIGEST)
        got = played.get(full_name)
        if got is not None and name != full_name:
            got = np.array(digest(got).hex())
        if got is None:
            differences.append(f"{name}: expected by the file, and not there now")
        elif (expected.dtype, expected.shape, expected.tobytes()) != (got.dtype, got.shape, got.tobytes()):
            kinds = [f"{array.dtype!s:.200}" for array in (expected, got)]
            others = f"expected {name} of {kinds[0]} with the same bits, got others of {kinds[1]}"
            differences.append(describe_difference(name, expected, got) or others)
    return Replay(episode, differences)
