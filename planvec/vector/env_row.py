"""Defines `EnvRow`, one environment that is stepped on from where it stands.

The modes and their infos are those of Gymnasium (https://farama.org/Vector-Autoreset-Mode).
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from enum import Enum
from functools import partial
from typing import Any, NamedTuple

import numpy as np
from gymnasium.vector import AutoresetMode
from gymnasium.wrappers import OrderEnforcing, PassiveEnvChecker, TimeLimit
from numpy.typing import NDArray

from planvec.codecs import (
    Env,
    LayerCodecs,
    Outcome,
    Positions,
    Proof,
    ResidentCodecs,
    ResidentState,
    Rows,
    Step,
    drawn_elsewhere,
)
from planvec.errors import InvalidBatchError, UnsupportedEnvError
from planvec.rows import (
    StateFormat,
    check_states,
    decode_columns,
    encode_columns,
    map_leaves,
    merge_columns,
    own_copy,
    row_values,
    stack_columns,
    vector_infos,
)

# -- Leaves out the calls of outer wrappers that only check or count, which take a fifth of a CartPole step

_CHECKERS = (OrderEnforcing, PassiveEnvChecker)


def short_step(env: Env) -> Step:
    """Return a function with the outcomes of `env.step`, for an environment that was stepped twice."""
    # `OrderEnforcing` and `PassiveEnvChecker` have done their checks by then. The outermost `TimeLimit` is
    # counted here; its attributes stay what they would be.
    limit: Any = None
    inner: Any = env
    while type(inner) in (*_CHECKERS, TimeLimit) and "step" not in vars(inner):
        if type(inner) is TimeLimit:
            if limit is not None:
                break
            limit = inner
        inner = inner.env
    step: Step = inner.step
    if limit is None:
        return step

    def step_and_count(action: object) -> Outcome:
        outcome = step(action)
        limit._elapsed_steps = elapsed = limit._elapsed_steps + 1
        if elapsed >= limit._max_episode_steps:
            observation, reward, terminated, _, info = outcome
            return observation, reward, terminated, True, info
        return outcome

    return step_and_count


# the last observation of an episode, and the info of the reset that followed within the same step
Ending = tuple[Any, dict[str, Any]]


# -- One environment that is stepped on from where it stands -------------------------------------------------


class EnvRow:
    """Steps one environment, and resets it when an episode has ended, as its mode wants."""

    def __init__(self, env: Env, mode: AutoresetMode, passes_options: bool) -> None:
        self.env = env
        self.observation: Any = None  # the current observation; None before the first reset
        # `terminated`: whether the last step has terminated the episode, and no reset followed. `truncated`:
        # whether the last step has truncated the episode, and no reset followed
        self.terminated = self.truncated = False
        # `needs_reset`: whether the next step resets the environment instead. `is_lost`: whether the episode
        # was lost with its worker: the next step reports a truncation
        self.needs_reset = self.is_lost = False
        # the end of an episode in the last step; None if it did not end, or if the mode has no such
        self.ending: Ending | None = None
        self._resets_in_step = mode is AutoresetMode.SAME_STEP
        self._resets_in_next = mode is AutoresetMode.NEXT_STEP
        self._reward: Any = 0.0  # the last one
        self._step: Step = self._checked_step
        self._is_stepped = False
        self._reset: Callable[..., tuple[Any, dict[str, Any]]] = env.reset
        self._takes_options = _takes_options(env.reset, passes_options)

    def watch_resets(self, before: Callable[[int | None], None], after: Callable[[], None]) -> None:
        """Call a function before every reset, with its seed, and another one after it."""

        def reset(**arguments: Any) -> tuple[Any, dict[str, Any]]:
            before(arguments.get("seed"))
            result: tuple[Any, dict[str, Any]] = self.env.reset(**arguments)
            after()
            return result

        self._reset = reset

    def _checked_step(self, action: object) -> Outcome:
        outcome: Outcome = self.env.step(action)
        if self._is_stepped:
            self._step = short_step(self.env)  # the wrappers have done their checks
        self._is_stepped = True
        return outcome

    def reset(self, seed: int | None, options: dict[str, Any] | None) -> tuple[Any, dict[str, Any]]:
        """Begin an episode. Returns the observation and the info."""
        arguments: dict[str, Any] = {"seed": seed}
        if options is not None or self._takes_options:
            arguments["options"] = options
        observation, info = self._reset(**arguments)
        self.terminated = self.truncated = self.needs_reset = self.is_lost = False
        self.observation = observation
        return observation, info

    def step(self, action: object) -> Outcome:
        """Step the environment, or reset it in the step after an end, which ignores the action."""
        if self.is_lost:
            self.is_lost = False
            outcome: Outcome = (self.observation, self._no_reward(), False, True, {"worker_exited": True})
        elif self.needs_reset:
            self.observation, info = self._reset()
            self.needs_reset = self.terminated = self.truncated = False
            return self.observation, self._no_reward(), False, False, info
        else:
            outcome = self._step(action)
        observation, self._reward, terminated, truncated, info = outcome
        if terminated or truncated:
            if self._resets_in_step:
                observation, info = own_copy(observation), own_copy(info)  # the reset may write into them
                self.observation, reset_info = self._reset()
                self.ending = observation, reset_info
                self.terminated = self.truncated = False
                return self.observation, self._reward, terminated, truncated, info
            self.needs_reset = self._resets_in_next
        self.observation, self.terminated, self.truncated = observation, terminated, truncated
        return outcome

    def _no_reward(self) -> Any:
        """Return no reward, of the shape of others."""
        return np.zeros(np.shape(self._reward)) if np.ndim(self._reward) else 0.0

    def restore_flags(self, terminated: bool, truncated: bool) -> None:
        """Note the flags of the state that the environment was put into."""
        self.terminated, self.truncated, self.is_lost = terminated, truncated, False
        self.needs_reset = self._resets_in_next and (terminated or truncated)


def _takes_options(reset: Any, passes_options: bool) -> bool:
    """Return whether a method takes the argument `options`, and wants it or is to have it."""
    try:
        parameters = inspect.signature(reset).parameters
    except (TypeError, ValueError):  # in C
        return passes_options
    if "options" in parameters:
        return passes_options or parameters["options"].default is inspect.Parameter.empty
    return passes_options and any(p.kind is inspect.Parameter.VAR_KEYWORD for p in parameters.values())


# -- Saves and restores the environments of one worker, with what they need besides their states.
#
# A replacement of the worker needs the states of all rows, and what no state holds: the generators, which the
# next resets continue, and the flags of the autoreset.


class SavedRows(NamedTuple):
    """Holds what some rows need in a replacement of the worker, if their states have the same form."""

    rows: list[int]
    origin: str  # the environment and codec that the states belong to
    fingerprints: list[bytes]  # `StateCodec.fingerprint` of each row
    states: np.ndarray  # `[B]`
    # what states do not hold: a `ResidentState` without a value, and whether the next step resets
    beside: list[tuple[ResidentState, bool]]

    def taken(self, rows: NDArray[np.intp]) -> SavedRows:
        """Return the part for consecutive rows, which count from the first of them."""
        kept = [index for index, row in enumerate(self.rows) if rows[0] <= row <= rows[-1]]
        return SavedRows(
            [self.rows[index] - int(rows[0]) for index in kept],
            self.origin,
            [self.fingerprints[index] for index in kept],
            self.states[kept],
            [self.beside[index] for index in kept],
        )


class ResidentStates:
    """Saves and restores rows."""

    def __init__(
        self, rows: Sequence[EnvRow], proofs: Sequence[Callable[[], Any] | Proof | str | None]
    ) -> None:
        codecs = ResidentCodecs()
        self._rows = rows
        self.codecs: list[LayerCodecs] = [
            codecs.make(row.env, proof) for row, proof in zip(rows, proofs, strict=True)
        ]
        for row, resident in zip(rows, self.codecs, strict=True):
            if resident.watches_own_resets:
                base, codec = row.env.unwrapped, resident.base_codec
                row.watch_resets(partial(codec.before_own_reset, base), partial(codec.after_own_reset, base))
        beside, self._owners = [], dict[str, EnvRow]()
        for row, resident in zip(rows, self.codecs, strict=True):
            for path, generator in resident.generators_beside(row.env):
                beside.append((path, generator))
                self._owners.setdefault(path, row)
        # of generators that states do not hold; None: planvec's codecs save all from which steps draw
        has_graph = any(codec.graph is not None for codec in self.codecs)
        self.positions = Positions(beside) if has_graph else None
        self._forms: list[StateFormat] = []
        self._form_numbers: dict[int, int] = {}
        self._has_episode = [False] * len(rows)
        # Whether a row was reset for the first time since `save` was called. Without a seed, its generator
        # was seeded by chance, so that this cannot be repeated.
        self.needs_snapshot = False

    def refusal(self, drawn: Sequence[str], row: EnvRow) -> str:
        """Return why states are not saved after draws from generators, in a step of a row and others."""
        owner = next((row for path, row in self._owners.items() if drawn[0].endswith(f" {path}")), row)
        return str(drawn_elsewhere(owner.env, drawn))

    def begin(self, indices: Sequence[int]) -> None:
        """Note that rows were reset: from now on they have states."""
        for index in indices:
            if not self._has_episode[index]:
                self.codecs[index].bind(self._rows[index].observation)
                self._has_episode[index] = self.needs_snapshot = True

    # -- states -------------------------------------------------------------------------------------

    def get(self, indices: Sequence[int]) -> tuple[np.ndarray, StateFormat]:
        """Return the states of rows, `[B]`, and their format."""
        self.check_episodes(indices, "get_states")
        return self._dump(indices, self._save(indices))

    def check_episodes(self, indices: Sequence[int], name: str) -> None:
        """Check that rows have states, for the method with a name."""
        if not all(self._has_episode[index] for index in indices):
            raise InvalidBatchError(f"{name}: expected environments that were reset; call reset() first")

    def _save(self, indices: Sequence[int]) -> list[ResidentState]:
        return [self.codecs[index].save(self._rows[index].observation) for index in indices]

    def _dump(self, indices: Sequence[int], saved: Sequence[ResidentState]) -> tuple[np.ndarray, StateFormat]:
        codec = self.codecs[indices[0]].made()
        if len({self._form_of(index) for index in indices}) > 1:
            raise UnsupportedEnvError(
                "get_states: expected environments whose states have the same form, got several; ask for "
                "the rows of one form at a time"
            )
        rows = [self._rows[index] for index in indices]
        states = np.zeros(len(rows), codec.format.dtype)
        columns = Rows(
            [state.value for state in saved],
            [state.elapsed for state in saved],
            [bool(row.terminated) for row in rows],
            [bool(row.truncated) for row in rows],
        )
        codec.dump(columns, states)
        return states, codec.format

    def set(self, indices: Sequence[int], states: np.ndarray) -> list[Any]:
        """Put rows into states, and return their observations. Their generators stay what they are."""
        observations, loaded = [], []
        for index, state in zip(indices, states, strict=True):  # all are checked before one is set
            codec = self.codecs[index].made()
            loaded.append(codec.load(check_states(codec.format, state)))
        for index, (values, elapsed, terminated, truncated) in zip(indices, loaded, strict=True):
            codec = self.codecs[index].made()
            codec.set(values[0])
            codec.set_elapsed(elapsed[0])
            row = self._rows[index]
            row.observation = codec.observe()
            row.restore_flags(terminated[0], truncated[0])
            if not self._has_episode[index]:  # its generator was seeded by chance
                self._has_episode[index] = self.needs_snapshot = True
            observations.append(row.observation)
        return observations

    # -- all rows -----------------------------------------------------------------------------------

    def save(self) -> list[SavedRows]:
        """Return everything that all rows need in a replacement of the worker."""
        self.needs_snapshot = False
        indices = [index for index, has_episode in enumerate(self._has_episode) if has_episode]
        saved = dict(zip(indices, self._save(indices), strict=True))
        groups: dict[int, list[int]] = {}
        for index in indices:
            groups.setdefault(self._form_of(index), []).append(index)
        return [
            SavedRows(
                members,
                self.codecs[members[0]].made().format.origin,
                [self.codecs[index].made().fingerprint for index in members],
                self._dump(members, [saved[index] for index in members])[0],
                [(saved[index]._replace(value=None), self._rows[index].needs_reset) for index in members],
            )
            for members in groups.values()
        ]

    def _form_of(self, index: int) -> int:
        """Return the number of the format of the states of a row. Comparing formats takes long."""
        number = self._form_numbers.get(index)
        if number is None:
            state_format = self.codecs[index].made().format
            if state_format not in self._forms:
                self._forms.append(state_format)
            number = self._form_numbers[index] = self._forms.index(state_format)
        return number

    def restore(self, parts: Sequence[SavedRows]) -> tuple[list[int], list[Any]]:
        """Put rows into what `save` returned. Returns the rows and their observations."""
        rows, observations = [], []
        for part in parts:  # all are checked before one is set
            for index, fingerprint in zip(part.rows, part.fingerprints, strict=True):
                codec = self.codecs[index].made()
                if (codec.format.origin, codec.fingerprint) != (part.origin, fingerprint):
                    raise InvalidBatchError(
                        f"environment {index}: expected a state of {codec.format.origin} with the same "
                        f"constants, got one of {part.origin}; make the environments as they were made then"
                    )
        for part in parts:
            observations += self.set(part.rows, part.states)
            for index, (state, needs_reset) in zip(part.rows, part.beside, strict=True):
                self.codecs[index].set_generators(state)
                self._rows[index].needs_reset = needs_reset
            rows += part.rows
        return rows, observations


# -- Converts the infos of rows between the forms of the interfaces.
#
#     VECTOR   Gymnasium's: per key an array `[B, ...]` and its mask under `_key`. The worker stacks them.
#     ROWS     one dict per row that has an info, as stable-baselines3 and DI-engine want them
#
# Letters: B rows.

# the info of one row, and the end of its episode if the row was reset within the same step
RowInfo = tuple[dict[str, Any], Ending | None]


class InfoForm(Enum):
    """Names the form in which infos are returned."""

    VECTOR = "vector"
    ROWS = "rows"


def pack_infos(
    infos: Sequence[dict[str, Any]], endings: Mapping[int, Ending], form: InfoForm, as_bytes: bool
) -> Any:
    """Return the infos of rows in a compact form."""
    # Returns columns, bytes that encode them, or row -> `RowInfo`; None if all infos are empty.
    # `as_bytes`: Whether they go to another process. Then columns are encoded as bytes if possible.
    if not endings and not any(infos):
        return None
    if not as_bytes:  # the environment may change them later
        infos = [kept(info) for info in infos]
        endings = {row: (kept(observation), kept(info)) for row, (observation, info) in endings.items()}
    if form is InfoForm.ROWS:
        return {row: (info, endings.get(row)) for row, info in enumerate(infos) if info or row in endings}
    if endings:
        infos = list(infos)
        for row, (observation, reset_info) in endings.items():
            infos[row] = {"final_info": infos[row], "final_obs": observation, **reset_info}
    columns = stack_columns(infos)
    encoded = encode_columns(columns) if as_bytes else None
    return columns if encoded is None else encoded


def kept(value: object) -> Any:
    """Return a copy that nobody else changes; the value itself, or parts of it, where it cannot be copied."""
    try:
        return own_copy(value)
    except Exception:  # a lock, a generator: another process would not get it at all
        return {key: kept(item) for key, item in value.items()} if type(value) is dict else value


def join_infos(parts: Sequence[tuple[Any, int]], form: InfoForm, order: NDArray[np.intp] | None) -> Any:
    """Join what `pack_infos` returned for the parts of a batch, and their numbers of rows."""
    # Returns for VECTOR: the infos in Gymnasium's form; for ROWS: row -> `RowInfo`, without rows that have
    # none. `order`: rows of the joined parts to return, in this order; None: all.
    if form is InfoForm.ROWS:
        rows: dict[int, RowInfo] = {}
        start = 0
        for part, size in parts:
            rows |= {start + row: info for row, info in (part or {}).items()}
            start += size
        if order is None:
            return rows
        return {position: rows[row] for position, row in enumerate(order.tolist()) if row in rows}
    columns = merge_columns(
        [(decode_columns(part) if isinstance(part, bytes) else part or {}, size) for part, size in parts]
    )
    infos = vector_infos(columns)
    if "final_obs" in columns:  # an array of objects, also of observations of one shape
        values = row_values(columns["final_obs"], len(columns["final_obs"].present))
        infos["final_obs"] = np.empty(len(values), object)
        for row, value in enumerate(values):
            infos["final_obs"][row] = value
    return infos if order is None else map_leaves(lambda leaf: leaf[order], infos)
