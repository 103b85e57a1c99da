"""Defines `ResidentEnvs`, the environments of one worker, which are stepped on from where they stand.

A worker process hosts one (`server`), and a vector environment without workers has one in this process. One
environment that raises does not keep the others from being stepped: errors are part of the reply.

Letters: N environments, B rows of an operation.
"""

from __future__ import annotations

import pickle
import time
from collections.abc import Callable, Sequence
from itertools import islice
from typing import Any

import gymnasium
import numpy as np
from gymnasium.vector import AutoresetMode

from planvec.codecs import EnvFunctions, Proof, Sharing, Watch, find_shared, same_layers
from planvec.errors import UnsupportedEnvError
from planvec.rows import blank, list_rows, own_copy
from planvec.stepping import ROW, new_progress
from planvec.vector.arrays import RowArrays
from planvec.vector.env_row import EnvRow, row_class
from planvec.vector.infos import InfoForm, pack_infos
from planvec.vector.operations import (
    Apply,
    Call,
    GetStates,
    Load,
    Lose,
    Observe,
    Operation,
    Reply,
    Reset,
    Restore,
    Save,
    SetAttribute,
    SetStates,
    Step,
)
from planvec.vector.reply_rows import for_each, put_observations, run_rows
from planvec.vector.resident_states import ResidentStates
from planvec.vector.step_rows import put_outcomes, step_rows, take_endings


class ResidentEnvs:
    """Steps several environments."""

    def __init__(
        self,
        env_fns: Sequence[Callable[[], gymnasium.Env[Any, Any]]],
        mode: AutoresetMode,
        info_form: InfoForm,
        *,
        keeps_rewards: bool = False,
        as_bytes: bool = False,
        saves_states: bool = True,
        proofs: Sequence[Proof | str | None] | None = None,
    ) -> None:
        self.rows: list[EnvRow] = []  # the environments with their autoreset
        # saves and restores the rows; None if their states are not saved
        self.states: ResidentStates | None = None
        self.inexact, self.sharing = "", Sharing()
        failure: Exception | None = None
        # notices what the environments change that they share, if nothing of that was found
        self.watch: Watch | None = None
        make_row = row_class(mode)
        functions = EnvFunctions(env_fns) if proofs is None else None
        given = {} if functions is None else functions.digests()
        try:
            for env_fn in env_fns:
                try:
                    env = env_fn()
                except Exception as error:
                    if not self.rows or proofs is not None:
                        raise
                    failure = error  # only one may exist at a time, perhaps
                    break
                self.rows.append(make_row(env, info_form is InfoForm.VECTOR))
            if not saves_states:
                # why states are not saved; "" if they are
                self.inexact = 'on_crash: expected "restore" to save states, got another'
            elif proofs is not None:
                self._prepare_states(proofs)
            if failure is not None:
                text = f"{type(failure).__name__}: {failure}"
                # why each environment needs a process of its own
                self.sharing = Sharing(f"a second one beside the first raises {text}", is_seen=True)
                self.rows += self.rows[:1] * (len(env_fns) - len(self.rows))  # the layout has all rows
            elif functions is not None and given != functions.digests():
                self.sharing = Sharing("making one changes what the functions hand to it", is_seen=True)
            elif functions is not None:
                self.sharing = self._find_sharing(env_fns, functions.uses, saves_states)
        except BaseException:
            self.close()
            raise
        self.observation_space = self.rows[0].env.observation_space
        self._action_space = self.rows[0].env.action_space
        self._info_form, self._resets_in_step = info_form, mode is AutoresetMode.SAME_STEP
        self._keeps_rewards, self._as_bytes = keeps_rewards, as_bytes
        # The actions and results. A worker replaces them by shared memory.
        self.arrays = RowArrays.allocate(self.observation_space, None, len(self.rows))
        self.progress = new_progress()  # the row at work; see `planvec.stepping.progress`
        self._methods: dict[type[Operation], Callable[[Any, list[EnvRow], Reply], None]] = {
            Step: self._step,
            Reset: self._reset,
            Apply: self._apply,
            Call: self._call,
            SetAttribute: self._set_attribute,
            Observe: self._observe,
            GetStates: self._get_states,
            SetStates: self._set_states,
            Save: self._save,
            Load: self._load,
            Restore: self._restore,
            Lose: self._lose,
        }

    def _find_sharing(
        self, env_fns: Sequence[Callable[[], gymnasium.Env[Any, Any]]], used: str, saves_states: bool
    ) -> Sharing:
        """Prepare states, and return why each environment needs a process of its own."""
        envs = [row.env for row in self.rows]
        why = same_layers(envs)
        if why:
            return Sharing(why, is_seen=True)
        if not saves_states:  # the user wants no proof, which steps environments
            if not used:
                sharing, self.watch = find_shared(envs, env_fns, tries=False)
            return Sharing(used) if used else sharing
        self._prepare_states(env_fns)
        if self.states is None:  # what cannot be saved lies somewhere else, where others may find it
            return Sharing(self.inexact, is_seen=True)
        if used:
            return Sharing(used)
        unproven = [row for row, proof in enumerate(self.states.proofs) if proof is not None]
        sharing, self.watch = find_shared(
            [envs[row] for row in unproven], [env_fns[row] for row in unproven], self.states.caches
        )
        return sharing

    @property
    def proofs(self) -> list[Proof | str | None]:
        """What proofs have shown of each row, for a process of its own."""
        if self.states is None or self.sharing.is_seen:
            return [None] * len(self.rows)
        return self.states.proofs

    def _prepare_states(
        self, proofs: Sequence[Callable[[], gymnasium.Env[Any, Any]] | Proof | str | None]
    ) -> None:
        try:
            self.states, self.inexact = ResidentStates(self.rows, proofs), ""
        except UnsupportedEnvError as error:
            self.give_up_states(str(error))

    def give_up_states(self, inexact: str) -> None:
        """Save no states any more."""
        if "codec=" in inexact or "info_keys=" in inexact:
            inexact += " (codec= and info_keys= are arguments of planvec.make)"
        self.states, self.inexact = None, inexact

    def perform(self, operation: Operation) -> Reply:
        """Perform an operation. Its results are in the reply, and in the rows of `arrays`."""
        started = time.perf_counter()
        reply = Reply()
        selected = self.rows if operation.rows is None else [self.rows[row] for row in operation.rows]
        self._methods[type(operation)](operation, selected, reply)
        self.progress[ROW] = -1
        reply.seconds = time.perf_counter() - started
        return reply

    def close(self) -> None:
        """Close all environments. If some raise, raise the first error at the end."""
        errors = []
        for row in dict.fromkeys(self.rows):
            try:
                row.env.close()
            except Exception as error:
                errors.append(error)
        if errors:
            raise errors[0]

    # -- one method per operation -----------------------------------------------------------------

    def _step(self, operation: Step, selected: list[EnvRow], reply: Reply) -> None:
        actions = list_rows(self._action_space, operation.actions)
        outcomes = step_rows(selected, actions, self.progress, reply)
        put_outcomes(
            self.observation_space, outcomes, self.arrays, operation.selection, reply, self._keeps_rewards
        )
        endings = take_endings(selected) if self._resets_in_step else {}
        reply.infos = pack_infos(outcomes.infos, endings, self._info_form, self._as_bytes)

    def _reset(self, operation: Reset, selected: list[EnvRow], reply: Reply) -> None:
        observations: list[Any] = []
        infos: list[dict[str, Any]] = []

        def reset_from(start: int) -> None:
            arguments = zip(operation.seeds, operation.options, strict=True)
            for index, (seed, options) in enumerate(islice(arguments, start, None), start):
                self.progress[ROW] = index
                observation, info = selected[index].reset(seed, own_copy(options))
                infos.append(info)
                observations.append(observation)

        def fill(index: int) -> None:
            del infos[index:], observations[index:]
            infos.append({})
            observations.append(None)

        run_rows(reset_from, fill, len(selected), reply, lambda: self.progress[ROW])
        rows = operation.selection
        put_observations(self.observation_space, observations, self.arrays, rows, reply)
        reply.infos = pack_infos(infos, {}, self._info_form, self._as_bytes)
        if self.states is not None:
            positions = enumerate(self._indices(operation))
            try:
                self.states.begin([row for position, row in positions if position not in reply.errors])
            except UnsupportedEnvError as error:
                self.give_up_states(str(error))
                reply.inexact = self.inexact

    def _call(self, operation: Call, selected: list[EnvRow], reply: Reply) -> None:
        may_change = self.states is not None and not operation.only_reads and operation.name != "render"
        before = self._exact_states().settings(self._indices(operation)) if may_change else []

        def call(row: EnvRow) -> Any:
            value = _attribute(row.env, operation.name)
            if callable(value) and not operation.only_reads:
                value = value(*operation.arguments, **operation.keywords)
            return value

        reply.value = for_each(call, selected, reply)
        if may_change:
            reply.changes_settings = before != self._exact_states().settings(self._indices(operation))

    def _apply(self, operation: Apply, selected: list[EnvRow], reply: Reply) -> None:
        reply.value = for_each(lambda row: operation.function(row.env), selected, reply)

    def _set_attribute(self, operation: SetAttribute, selected: list[EnvRow], reply: Reply) -> None:
        def set_attribute(pair: tuple[EnvRow, Any]) -> None:
            row, value = pair
            if operation.on_outermost or not hasattr(row.env, "set_wrapper_attr"):
                setattr(row.env, operation.name, value)
            else:
                row.env.set_wrapper_attr(operation.name, value)

        for_each(set_attribute, list(zip(selected, operation.values, strict=True)), reply)

    def _observe(self, operation: Observe, selected: list[EnvRow], reply: Reply) -> None:
        indices = self._indices(operation)
        empty = blank(self.observation_space)  # of rows that were not reset yet, as Gymnasium shows them
        observations = [empty if row.observation is None else row.observation for row in selected]
        self._show(indices, observations, reply)

    def _get_states(self, operation: GetStates, selected: list[EnvRow], reply: Reply) -> None:
        reply.value = self._exact_states().get(self._indices(operation))

    def _set_states(self, operation: SetStates, selected: list[EnvRow], reply: Reply) -> None:
        indices = self._indices(operation)
        self._show(indices, self._exact_states().set(indices, operation.states), reply)

    def _save(self, operation: Save, selected: list[EnvRow], reply: Reply) -> None:
        states = self._exact_states()
        states.check_episodes(self._indices(operation), "save")
        reply.value = states.save()

    def _load(self, operation: Load, selected: list[EnvRow], reply: Reply) -> None:
        self._show(*self._exact_states().restore_from_file(operation.parts), reply)

    def _restore(self, operation: Restore, selected: list[EnvRow], reply: Reply) -> None:
        self._show(*self._exact_states().restore(pickle.loads(operation.snapshot)), reply)

    def _show(self, indices: Sequence[int], observations: list[Any], reply: Reply) -> None:
        """Write the observations of rows that were put into other states, which have just begun."""
        rows = np.array(indices, np.intp)
        put_observations(self.observation_space, observations, self.arrays, rows, reply)
        self.arrays.rewards[rows] = 0.0
        self.arrays.terminated[rows] = [bool(self.rows[index].terminated) for index in indices]
        self.arrays.truncated[rows] = [bool(self.rows[index].truncated) for index in indices]

    def _lose(self, operation: Lose, selected: list[EnvRow], reply: Reply) -> None:
        observations = list_rows(self.observation_space, operation.observations)
        for row, observation in zip(selected, observations, strict=True):
            row.observation, row.is_lost = observation, True

    # -- helpers ------------------------------------------------------------------------------------

    def _indices(self, operation: Operation) -> Sequence[int]:
        return range(len(self.rows)) if operation.rows is None else operation.rows.tolist()

    def _exact_states(self) -> ResidentStates:
        if self.states is None:
            raise UnsupportedEnvError(f"states: the environments cannot be saved. {self.inexact}")
        return self.states


def _attribute(env: Any, name: str) -> Any:
    """Return an attribute of an environment, looked up through its wrappers."""
    lookup = getattr(env, "get_wrapper_attr", None)
    return getattr(env, name) if lookup is None else lookup(name)
