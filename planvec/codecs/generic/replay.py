"""A codec for environments that can neither be copied nor pickled.

A state is the seed of the reset and every action since. It is restored by the cheapest of three ways:

    in place      the environment is at an ancestor of the state: it takes the missing steps
    by a branch   a runner is at an ancestor: a fork of it takes the missing steps, and all that follow
    from a reset  all steps are taken

The environment of this process must restart exactly from its seed. For one that does not (it counts episodes,
or its simulator keeps something) there is `Replayed(resets_in_forks=True)`: then it is never reset in a
worker; each episode begins in a fork of it, as in a new process, and all steps are taken by runners. See
`runners`. Letters: B rows.
"""

from __future__ import annotations

import hashlib
import logging
import os
import pickle
import time
from collections import OrderedDict
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple, TypeVar

import numpy as np

from planvec.codecs.base import (
    Env,
    Outcome,
    Rows,
    StateCodec,
    WrapperCodec,
    select_infos,
    with_own_action,
)
from planvec.codecs.compare import origin_of
from planvec.codecs.generator import is_unused, reseed_generator
from planvec.codecs.generic.runners import Answer, Runner, Runners, is_worker
from planvec.codecs.generic.survey import drawn_elsewhere
from planvec.codecs.positions import Position, Positions
from planvec.codecs.reported import Reported, has_two_players, joined_report, split_report
from planvec.errors import UnsupportedEnvError
from planvec.rows import ACTION_MASK_FIELD, PLAYER_FIELD, SavedState, StateFormat, mask_of_info, own_copy

_log = logging.getLogger("planvec")

_EXIT_CODE = 70  # of a worker that has lost a runner that it needs
_MAX_KEPT_STEPS = 16  # of a runner that is kept where its row has ended


@dataclass(frozen=True, slots=True)
class Replayed:
    """Saves the seed and the actions of an episode as a state, and restores it by replay.

    `codec=planvec.Replayed()` is `codec="replay"`. On Linux, each worker process keeps some states as
    *snapshots*: forked processes that hold the environment there. A step from a snapshot costs one fork (some
    milliseconds), however deep the state is. Without a snapshot, the actions are replayed, from the nearest
    snapshot before. Results are the same.

    There are no snapshots in the process of the user (`num_workers=0`) nor on a Ray cluster, and none of an
    environment that could not go on in a fork: with threads, a GPU, a connection to another process, shared
    memory, or a file that it writes. A line of the log tells.

    Args:
        num_snapshots: The largest number of snapshots that each worker keeps, >= 0. Those that were used the
            longest ago are dropped. 0: only replay.
        megabytes: The largest amount of memory (in 10**6 bytes) that they may use in each worker, > 0, beside
            what they share with it. It is estimated from some of them; one is kept in any case.
        resets_in_forks: Whether each episode begins in a fork of the environment as it was made, as in a new
            process. For environments that do not restart exactly from their seed in the same process
            (PyBullet keeps contacts, others count their episodes). Only worker processes on Linux can do it.

    Raises:
        TypeError, ValueError: An argument is out of its range.
    """

    num_snapshots: int = 64
    megabytes: float = 1024.0
    resets_in_forks: bool = False

    def __post_init__(self) -> None:
        if isinstance(self.num_snapshots, bool) or not isinstance(self.num_snapshots, int):
            raise TypeError(f"num_snapshots: expected an integer, got {self.num_snapshots!r}")
        if isinstance(self.megabytes, bool) or not isinstance(self.megabytes, (int, float)):
            raise TypeError(f"megabytes: expected a number, got {self.megabytes!r}")
        if self.num_snapshots < 0:
            raise ValueError(f"num_snapshots: expected at least 0, got {self.num_snapshots}")
        if not self.megabytes > 0:
            raise ValueError(f"megabytes: expected more than 0, got {self.megabytes!r}")
        if self.resets_in_forks and not self.num_snapshots:
            raise ValueError("num_snapshots: expected at least 1 with resets_in_forks, got 0")


class _Reset(NamedTuple):
    """Begins an episode."""

    seed: int
    options: bytes  # pickled


class _Reseed(NamedTuple):
    """Records that the generator was reseeded between two steps."""

    seed: int


class _History(NamedTuple):
    """Records how a state was reached."""

    seed: int  # the seed of the reset
    options: bytes  # the options of the reset, pickled
    # actions and `_Reseed`s in order, each pickled: equal histories are equal bytes
    events: tuple[bytes, ...]
    # what is reported about the end, which follows from the rest: see `Reported`
    report: bytes = b""
    last_reseed: int = -1  # index of the last `_Reseed` among the events; -1: there is none
    # The indices of each `_Reseed` from which nothing was drawn, and a digest of the observation if there are
    # any. A tree search that samples chance compares states without these events. Else all outcomes of a step
    # that has one would be different states, and the search would never get deeper. They stay in the state,
    # since a generator can have an influence without a draw (a step that looks ahead in a copy).
    unused: tuple[int, ...] = ()
    seen: bytes = b""

    def after(self, event: bytes, is_reseed: bool = False, **changes: Any) -> _History:
        """Return the history with one event more."""
        number, unused = len(self.events), self.unused
        last = number if is_reseed else self.last_reseed
        # A step may draw from the last one, whatever the steps before it have done.
        if unused and unused[-1] == last:
            unused = unused[:-1]
        return self._replace(
            events=(*self.events, event), last_reseed=last, unused=unused, seen=b"", **changes
        )


class _Costs:
    """Holds running averages of seconds."""

    def __init__(self) -> None:
        self.reset, self.step, self.fork = 0.0, 0.0, 0.004

    def note(self, name: str, seconds: float) -> None:
        """Take a measurement into account."""
        before = getattr(self, name)
        setattr(self, name, 0.8 * before + 0.2 * seconds if before else seconds)


class _Snapshots:
    """Holds runners by the histories of their states; the one used last is the last."""

    _EACH = 16  # of so many new runners, the memory of one is read, which takes as long as a fork

    def __init__(self, runners: Runners, limits: Replayed) -> None:
        self._runners, self._limits = runners, limits
        self._kept: OrderedDict[tuple[int, int], tuple[Runner, _History]] = OrderedDict()
        self._num_added = self._bytes = 0

    def keep(self, runner: Runner, history: _History) -> None:
        """Keep a runner at the state of a history, and drop others if there are too many."""
        key = len(history.events), _hashes(history)[-1]
        if key in self._kept:
            self._runners.close(self._kept.pop(key)[0])
        self._kept[key] = runner, history
        if self._num_added % self._EACH == 0:
            self._bytes = max(self._bytes, runner.private_bytes)
        self._num_added += 1
        most = self._limits.num_snapshots
        if self._bytes:
            most = max(1, min(most, int(self._limits.megabytes * 1e6 / self._bytes)))
        while len(self._kept) > most:
            self._runners.close(self._kept.popitem(last=False)[1][0])

    def nearest(self, target: _History) -> tuple[Runner, int] | None:
        """Return the runner at the nearest ancestor of a state, and how many events are missing there."""
        if not self._kept:
            return None
        hashes = _hashes(target)
        found = [key for key in self._kept if key[0] < len(hashes) and hashes[key[0]] == key[1]]
        for key in sorted(found, reverse=True):
            runner, history = self._kept[key]
            if runner not in self._runners.open:  # it was killed
                del self._kept[key]
            elif _is_ancestor(history, target):
                self._kept.move_to_end(key)
                return runner, len(target.events) - key[0]
        return None

    def clear(self) -> None:
        """Drop all."""
        while self._kept:
            self._runners.close(self._kept.popitem()[1][0])


def _hashes(history: _History) -> list[int]:
    """Return a hash of the history after each number of its events."""
    value = hash(history[:2])
    hashes = [value]
    for event in history.events:
        value = hash((value, event))
        hashes.append(value)
    return hashes


T = TypeVar("T")


class ReplayCodec(StateCodec):
    """Saves the seed and the actions, and replays them to restore a state."""

    # `env`: not reset yet.

    def __init__(
        self,
        env: Env,
        wrappers: Sequence[tuple[object, WrapperCodec]],
        limits: Replayed,
        watch: Positions | None = None,
        info_keys: Sequence[str] | None = None,
    ) -> None:
        super().__init__(with_own_action(self._step, env.action_space))
        self.how = "replay of the actions"
        self._env = env
        self._wrappers = wrappers
        # Where the environment of this process is, and where the codec is: there, or where a runner is. None
        # if unknown: before a reset, or after a failed step.
        self._local: _History | None = None
        self._current: _History | None = None
        self._observation: Any = None  # that of the environment of this process
        self._reseeded: int | None = None  # the last seed, if no state was saved since
        self._has_player = has_two_players(env)
        self._reported = Reported(env.action_space, False, True) if self._has_player else None
        self.watch = watch
        # `watch.allowed` are generators outside the environment that a reset seeds: what draws from them in
        # between spoils the environment of this process. `_left`: their positions after the last event
        self._left: Position | None = None
        self.num_replayed_steps = 0  # steps that were taken in this process to restore states
        self.format = StateFormat(np.dtype(object), f"{origin_of(env)} by replay")
        self.set = self._set
        self.get = self._get
        self._costs = _Costs()
        self._runners = Runners(self._play, lambda function: function(self))
        self._snapshots: _Snapshots | None = None
        self._runner: Runner | None = None  # the one that has reached the current state
        self._num_taken = 0  # its steps since it was forked
        self._has_ended = False  # whether the last of them has ended the episode
        self._info_keys = info_keys
        # Whether states are restored by runners: True and False while that is verified; None: if it is faster
        self.branches: bool | None = None
        self._root: Runner | None = None  # the environment before its first reset, with `resets_in_forks`
        if limits.num_snapshots and is_worker():
            self._snapshots = _Snapshots(self._runners, limits)
        if limits.resets_in_forks:
            self._begin_in_forks()

    # -- Events in the environment of this process: the worker, or a runner

    def _reset_here(self, event: _Reset) -> tuple[Any, dict[str, Any]]:
        self._local = self._current = None
        started = time.perf_counter()
        for wrapper, codec in self._wrappers:
            codec.before_reset(wrapper)
        observation, info = self._env.reset(seed=event.seed, options=pickle.loads(event.options))
        for wrapper, codec in self._wrappers:
            codec.after_reset(wrapper)
        self._observation = own_copy(observation)
        self._arrive(_History(event.seed, event.options, (), self._noted_start(observation, info)))
        self._costs.note("reset", time.perf_counter() - started)
        return observation, info

    def _step_here(self, history: _History, event: bytes, action: object) -> Outcome:
        self._local = self._current = None  # stays None if the step fails
        started = time.perf_counter()
        outcome = self._env.step(action)
        self._costs.note("step", time.perf_counter() - started)
        self._observation = own_copy(outcome[0])
        self._arrive(history.after(event, report=self._noted(outcome)))
        return outcome

    def _reseed_here(self, history: _History, event: bytes, seed: int) -> None:
        self._local = self._current = None
        reseed_generator(self._env.unwrapped, seed)
        self._arrive(history.after(event, is_reseed=True))

    def _perform_here(self, event: bytes) -> Any:
        """Perform an event, and return what the environment returns."""
        value, history = pickle.loads(event), self._local
        if isinstance(value, _Reset):
            return self._reset_here(value)
        assert history is not None
        if isinstance(value, _Reseed):
            return self._reseed_here(history, event, value.seed)
        return self._step_here(history, event, value)

    def _arrive(self, history: _History) -> None:
        """Note where the environment of this process is now."""
        self._local = self._current = history
        if self.watch is not None and self.watch.allowed:
            self._left = self.watch.now()

    def _forget_if_disturbed(self) -> None:
        """Forget where the environment is if others have drawn from generators that it has seeded."""
        if self.watch is not None and self.watch.allowed and self.watch.now() != self._left:
            self._local = None

    def _replay(self, target: _History) -> None:
        """Put the environment of this process into the state of a history."""
        self._forget_if_disturbed()
        if self._local is None or not _is_ancestor(self._local, target):
            self._reset_here(_Reset(target.seed, target.options))
        assert self._local is not None
        for event in target.events[len(self._local.events) :]:
            self.num_replayed_steps += self._perform_here(event) is not None
        self._local = self._current = target

    def _play(self, events: Sequence[bytes]) -> tuple[Any, list[str]]:
        """Perform events in this process, a runner."""
        # Returns what the environment has returned for the last event, and the generators outside it that
        # have moved.
        before = None if self.watch is None else self.watch.now()
        result = None
        for event in events:
            result = self._perform_here(event)
        if isinstance(result, tuple) and len(result) == 5 and self._info_keys is not None:
            # Others need not be sent, and perhaps cannot be. The worker notes the mask and the player.
            result = select_infos(result, (*self._info_keys, ACTION_MASK_FIELD, PLAYER_FIELD))
        # What is imported meanwhile has been nowhere before.
        is_same = self.watch is not None and before is not None and self.watch.has_same(before)
        return result, [] if self.watch is None or before is None or is_same else self.watch.moved(before)

    def _checked(self, answer: Answer | None) -> Answer | None:
        """Return the answer of a runner to `_play`, or an error if it has drawn from others' generators."""
        if answer is None or answer.error is not None:
            return answer
        result, moved = answer.value
        drawn = [] if self.watch is None else [name for name in moved if name not in self.watch.allowed]
        error = drawn_elsewhere(self._env, drawn, "") if drawn and self.forbids_draws else None
        return Answer(result, error)

    # -- What infos report

    def keep_masks(self) -> None:
        """Keep the legal actions that infos report in states."""
        if self.current_mask is None:
            self._reported = Reported(self._env.action_space, True, self._has_player)
            self.current_mask = self._reported.current

    def _noted_start(self, observation: object, info: dict[str, Any]) -> bytes:
        """Remember what a reset has reported, and return its bytes."""
        if mask_of_info(self._env.action_space, info, observation) is not None:
            self.keep_masks()
        return self._noted((observation, 0.0, False, False, info))

    def _noted(self, outcome: Outcome) -> bytes:
        """Remember what a step has reported, and return its bytes."""
        if self._reported is None:
            return b""
        observation, _, terminated, truncated, info = outcome
        self._reported.note(observation, info, bool(terminated), bool(truncated))
        return self._reported.get()

    # -- Snapshots

    def _begin_in_forks(self) -> None:
        """Begin each episode in a fork of the environment before its first reset."""
        if self._snapshots is None:
            raise UnsupportedEnvError(
                f"{self._env}: resets_in_forks=True: expected a worker process on Linux; pass num_workers=1"
            )
        self._root = self._runners.fork()
        if self._root is None:
            raise self._no_fork()
        self.branches = True
        self._runners.waits = True  # whoever has called the worker sets the limit
        self.how = "replay of the actions, in forks of a new process"
        self.format = self.format._replace(origin=f"{self.format.origin} in forks")

    def _no_fork(self) -> UnsupportedEnvError:
        problem = self._runners.problem or "there is no memory for a fork of its process"
        return UnsupportedEnvError(f"{self._env}: its resets cannot begin in forks: {problem}")

    def look_at_start(self, function: Callable[[Env], T]) -> T:
        """Return what a function returns for the environment before its first reset, in a fork of that."""
        branched = None if self._root is None else self._runners.branch(self._root, ())
        answer: Answer | None = None
        if branched is not None:
            answer = self._runners.look(branched[0], partial(_look_at_env, function))
            self._runners.close(branched[0])
        result: T = self._value_of(answer)
        return result

    def call_in_fork(self, function: Callable[[], T]) -> T:
        """Return what a function returns in a fork of this process."""
        runner = self._runners.fork()
        if runner is None:
            raise self._no_fork()
        answer = self._runners.look(runner, partial(_call, function))
        self._runners.close(runner)
        result: T = self._value_of(answer)
        return result

    def _value_of(self, answer: Answer | None) -> Any:
        if answer is None or answer.error is not None:
            self._raise(answer)
        assert answer is not None
        return answer.value

    @property
    def has_snapshots(self) -> bool:
        """Whether states may be restored by runners."""
        return self._snapshots is not None

    def clear_snapshots(self) -> None:
        """Drop all snapshots."""
        self._release()
        if self._snapshots is not None:
            self._snapshots.clear()

    def give_up_snapshots(self, problem: str = "") -> None:
        """Drop all snapshots, and take no more, because of a problem with them."""
        problem = problem or self._runners.problem
        _log.warning("%s: its states are restored by replay alone, without snapshots: %s", self._env, problem)
        self.clear_snapshots()
        self._snapshots = None

    def _set(self, target: _History) -> None:
        self._release()
        self._reseeded = None
        self._forget_if_disturbed()
        local, costs = self._local, self._costs
        num_missing, seconds = len(target.events), costs.reset
        if local is not None and _is_ancestor(local, target):
            num_missing, seconds = num_missing - len(local.events), 0.0
        seconds += num_missing * costs.step
        is_faster = self.branches if self.branches is not None else seconds > costs.fork
        if self._snapshots is None or not is_faster:
            self._replay(target)
        elif not self._branch(self._snapshots, target, seconds):
            self._replay(target)
            # One that takes half as long as the replay pays when its state is visited again.
            if self._snapshots is not None and (self.branches or seconds > 2 * costs.fork):
                self._keep_here(self._snapshots, target)
        if self._reported is not None:
            self._reported.set(target.report)

    def _keep_here(self, snapshots: _Snapshots, target: _History) -> None:
        """Make a snapshot at the state where the environment of this process is."""
        runner = self._runners.fork()
        if runner is not None:
            snapshots.keep(runner, target)
            if self.branches:
                self._branch(snapshots, target, 0.0)
        elif self._runners.problem:
            self.give_up_snapshots()

    def _branch(self, snapshots: _Snapshots, target: _History, seconds: float) -> bool:
        """Restore a state by a runner, if that takes less time. Returns whether it has been done."""
        costs, start = self._costs, pickle.dumps(_Reset(target.seed, target.options))
        while True:
            nearest = snapshots.nearest(target)
            if nearest is not None:
                runner, num_missing = nearest
                events = target.events[len(target.events) - num_missing :]
            elif self._root is not None:
                runner, num_missing, events = self._root, len(target.events), (start, *target.events)
            else:
                return False
            if costs.fork + num_missing * costs.step >= seconds and not self.branches:
                return False
            started = time.perf_counter()
            branched = self._branch_from(runner, events)
            if branched is not None and branched[1].error is None and events:
                costs_of_events = time.perf_counter() - started - costs.fork
                if self._root is not None:
                    costs.note("step", max(costs_of_events, 0.0) / len(events))
                if costs_of_events > costs.fork:  # so that it need not be done again
                    snapshots.keep(branched[0], target)
                    started, events = time.perf_counter(), ()
                    branched = self._branch_from(branched[0], events)
            if branched is not None and branched[1].error is None:
                if not events:
                    costs.note("fork", time.perf_counter() - started)
                self._runner, self._num_taken, self._current = branched[0], 0, target
                self._has_ended = False
                return True
            if runner is not self._root and runner not in self._runners.open:
                continue  # it was killed
            if self._root is not None:
                self._raise(None if branched is None else branched[1])
            if self._runners.problem:
                self.give_up_snapshots()
            return False  # the step fails there, or there is no memory

    def _branch_from(self, runner: Runner, events: Sequence[bytes]) -> tuple[Runner, Answer] | None:
        branched = self._runners.branch(runner, events)
        if branched is None:
            return None
        answer = self._checked(branched[1])
        assert answer is not None
        if answer.error is not None:
            self._runners.close(branched[0])
        return branched[0], answer

    def _raise(self, answer: Answer | None) -> None:
        """Raise what an environment has raised in a runner; end this process if that was ended."""
        if answer is not None and answer.error is not None:
            self._current = None
            raise answer.error
        # By the environment, or by what has killed the runner. The worker is replaced, and tries again.
        os._exit(_EXIT_CODE)

    def _release(self) -> None:
        """Let go of the runner that has reached the current state: it is kept there, or ends."""
        runner, self._runner = self._runner, None
        if runner is None:
            return
        # One that has not stepped is a copy of another one. After a rollout, hardly anybody comes back.
        is_kept = 0 < self._num_taken <= _MAX_KEPT_STEPS and runner in self._runners.open
        if is_kept and not self._has_ended and self._snapshots is not None and self._current is not None:
            self._snapshots.keep(runner, self._current)
        else:
            self._runners.close(runner)

    def _ask(self, ask: Callable[[Runner], Answer | None]) -> tuple[Any] | None:
        """Ask the runner. None if there is none (any more), and the environment of this process is there."""
        history = self._current
        answer: Answer | None = None
        for _ in range(1 if self._root is None else 2):  # it may have been killed before it was asked
            if self._runner is None:
                return None
            answer = ask(self._runner)
            if answer is not None and answer.error is None and not self._runners.problem:
                return (answer.value,)
            self._runners.close(self._runner)
            self._runner = None
            assert history is not None
            if self._root is None or answer is not None:
                break
            self._set(history)
        if self._root is not None:
            if self._runners.problem:
                raise self._no_fork()
            self._raise(answer)
        if self._runners.problem:
            self.give_up_snapshots()
        assert history is not None
        self._replay(history)  # what the runner has met is met here
        return None

    # -- What callers use: the environment of this process, or a runner

    def reset(self, seed: int, options: dict[str, Any] | None) -> tuple[Any, dict[str, Any]]:
        self._release()
        self._current = self._reseeded = None
        event = _Reset(seed, pickle.dumps(options))
        if self._root is None:
            return self._reset_here(event)
        branched = self._branch_from(self._root, [pickle.dumps(event)])
        if branched is None or branched[1].error is not None:
            self._raise(None if branched is None else branched[1])
        assert branched is not None
        self._runner, self._num_taken, self._has_ended = branched[0], 1, False
        observation, info = branched[1].value
        self._current = _History(seed, event.options, (), self._noted_start(observation, info))
        return observation, info

    def _step(self, action: object) -> Outcome:
        event = pickle.dumps(action)
        asked = self._ask(lambda runner: self._checked(self._runners.play(runner, [event])))
        history = self._current
        assert history is not None
        if asked is None:
            return self._step_here(history, event, action)
        self._num_taken += 1
        outcome: Outcome = asked[0]
        self._has_ended = bool(outcome[2]) or bool(outcome[3])
        self._current = None  # stays None if what it reports is wrong
        self._current = history.after(event, report=self._noted(outcome))
        return outcome

    def reseed(self, seed: int) -> None:
        event = pickle.dumps(_Reseed(seed))
        asked = self._ask(lambda runner: self._checked(self._runners.play(runner, [event])))
        history = self._current
        assert history is not None
        self._reseeded = seed
        if asked is None:
            self._reseed_here(history, event, seed)
        else:
            self._current = history.after(event, is_reseed=True)

    def observe(self) -> Any:
        asked = self._ask(lambda runner: self._runners.look(runner, _observation_of))
        return self._observation if asked is None else asked[0]

    def look(self, value: _History, elapsed: int, function: Callable[[Env], T]) -> T:
        self._set(value)
        asked = self._ask(lambda runner: self._runners.look(runner, partial(_look_at_env, function)))
        if asked is None:
            return function(self._env)
        result: T = asked[0]
        return result

    def _get(self, observation: object) -> _History:
        seed, self._reseeded = self._reseeded, None
        if seed is not None:
            look = partial(_is_unused, seed)
            asked = self._ask(lambda runner: self._runners.look(runner, look))
            history = self._current
            assert history is not None
            if look(self) if asked is None else asked[0]:
                self._current = history._replace(unused=(*history.unused, history.last_reseed))
        assert self._current is not None
        if self._current.unused:
            seen = hashlib.blake2b(pickle.dumps(observation), digest_size=16).digest()
            self._current = self._current._replace(seen=seen)
        return self._current

    # The end of the bytes, which a search leaves out, holds the seeds from which nothing was drawn.

    def load(self, states: np.ndarray) -> Rows:
        values, flags = [], []
        for state in states:
            data, size = bytes(state), state.generator_size
            (seed, options, kept, seen), *ends = pickle.loads(data)
            last_reseed, unused = pickle.loads(data[-size:]) if size else (-1, {})
            rest, indices = iter(kept), range(len(kept) + len(unused))
            events = tuple([unused[index] if index in unused else next(rest) for index in indices])
            report = joined_report(state)
            values.append(_History(seed, options, events, report, last_reseed, tuple(unused), seen))
            flags.append(ends)
        return Rows(values, [0] * len(values), [one for one, _ in flags], [two for _, two in flags])

    def dump(self, rows: Rows, out: np.ndarray) -> None:
        for row, (history, _, terminated, truncated) in enumerate(zip(*rows, strict=True)):
            unused = {index: history.events[index] for index in history.unused}
            kept = history.events
            if unused:
                kept = tuple([event for index, event in enumerate(kept) if index not in unused])
            tail = b"" if history.last_reseed < 0 else pickle.dumps((history.last_reseed, unused), protocol=5)
            value = (history.seed, history.options, kept, history.seen), terminated, truncated
            data, known = pickle.dumps(value, protocol=5), split_report(history.report, self._has_player)
            out[row] = SavedState(data + tail, self.format.origin, len(tail), *known)


def _is_ancestor(history: _History, target: _History) -> bool:
    """Return whether the events of one history begin those of another, after the same reset."""
    return (
        history[:2] == target[:2]
        and len(history.events) <= len(target.events)
        and target.events[: len(history.events)] == history.events
    )


def _is_unused(seed: int, codec: ReplayCodec) -> bool:
    return is_unused(codec._env.unwrapped, seed)


def _observation_of(codec: ReplayCodec) -> Any:
    return codec._observation


def _call(function: Callable[[], T], codec: ReplayCodec) -> T:
    return function()


def _look_at_env(function: Callable[[Env], T], codec: ReplayCodec) -> T:
    return function(codec._env)
