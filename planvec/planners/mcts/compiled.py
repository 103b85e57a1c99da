"""Runs searches without a driver where their requests are performed in this process."""

from __future__ import annotations

import functools
import logging
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple
from weakref import WeakKeyDictionary

import numba
import numpy as np
from numpy.typing import NDArray

from planvec.errors import PlanvecError
from planvec.kernels import (
    CompiledKernel,
    Pointer,
    Stop,
    compile_loop,
    jit,
    next_uint64,
    run_rows,
    run_together,
    value_at,
)
from planvec.planners.mcts.config import MCTSConfig
from planvec.planners.mcts.search import TreeSearch
from planvec.planners.mcts.setup import Rules
from planvec.planners.mcts.simulations import (
    CALLBACK,
    DONE,
    ENDED,
    ENTRANCES,
    GOES_ON,
    LEAVES,
    MAX_ENV_STEPS,
    MAX_SECONDS,
    REFUSED,
    STEPS,
    STOP_REASONS,
    Shared,
    Steps,
    advance,
    answer_of,
    compile_entrance,
    init,
    new_shared,
    new_steps,
    no_halving,
    search_code,
)
from planvec.planners.mcts.tree import SINGLE, Tree, TreeKind, empty_arrays
from planvec.planners.search import PlanCallback, PlanProgress, Search, check_numbers, ended_error
from planvec.rows import BatchStepper, KernelUse, Outputs, Perform, RolloutBatch, StepBatch, StepsHere

# -- Runs the loop of a search, and performs its requests with a kernel, if there is one. It is compiled once
# for each kernel, and once without.
#
#     advance --request--> run_rows --answer--> advance --request--> ...
#
# Letters: K slots.


class Draws(NamedTuple):
    """What the random numbers of requests are drawn from, and where they are written."""

    random: NDArray[np.uint64]  # the generator of the search; see `planvec.kernels.random`
    # `[K]` uint64, the seeds of the rows of requests; `[0]` where a step has one outcome
    seeds: NDArray[np.uint64]
    action_seeds: NDArray[np.uint64]  # `[2]` uint64, those of the rollouts of each half


@jit(cache=True)
def run_search(
    kernel: object,
    constants: object,
    code: object,
    memory: Pointer[Shared],
    answers: Steps,
    draws: Draws,
    time_limit: int,
    repeats: Any,  # `[K]` int64, dt; None: 1, for which another loop is compiled
    action_range: object,
    max_events: int,
) -> int:
    """Run a search until it is over, or until it has processed some answers."""
    # `answers`: `[K]`, written. After `REFUSED`, the answer to the request of the half that was queued last
    # has to be written before the next call. Without a kernel (None), this is so with every request.
    # Returns `DONE`, `PAUSED`, `REFUSED` or `ENDED`.
    shared: Shared = value_at(memory)
    rules, counts = shared.rules, shared.counts[0]
    size, action_size = rules.state_bytes, rules.action_bytes
    last_event = counts.num_events + max_events
    while True:
        status = advance(code, memory, answers, last_event)
        if status >= 0:
            return status
        half = shared.queue[counts.num_queued - 1]
        first, count = shared.halves[half].first, shared.halves[half].num_rows
        last = first + count
        # Draw the seeds of the request, as `planvec.planners.mcts.search` draws them.
        if shared.halves[half].stage == LEAVES:
            draws.action_seeds[half] = next_uint64(draws.random) >> np.uint64(1)  # as `integers(2**63)`
        if len(draws.seeds) > 0:
            for row in range(first, last):
                draws.seeds[row] = next_uint64(draws.random)
        if kernel is None:  # numba leaves out what follows
            return REFUSED
        # Perform the request with the kernel.
        states, seeds = shared.request_states[first * size : last * size], draws.seeds[first:last]
        answer = answer_of(shared, answers, half)
        results = (answer.rewards, answer.terminated, answer.truncated, answer.num_steps)
        zero: Any = np.int64(0)  # 0 would be another type, for which the loops would be compiled again
        extras = answer.rewards[:0]  # not wanted
        if shared.halves[half].stage == LEAVES:
            status = run_rows(
                kernel,
                constants,
                zero,
                count,
                states,
                shared.request_actions[:0],
                None,
                rules.rollout_steps,
                rules.kind.discount,
                seeds,
                time_limit,
                draws.action_seeds[half],
                zero,
                action_range,
                answer.new_states,
                None,
                results,
                extras,
            )
        else:
            status = run_rows(
                kernel,
                constants,
                zero,
                count,
                states,
                shared.request_actions[first * action_size : last * action_size],
                None if repeats is None else repeats[first:last],
                None,
                1.0,
                seeds,
                time_limit,
                None,
                None,
                None,
                answer.new_states,
                None,
                results,
                extras,
            )
        if status != 0:
            return REFUSED
        for reward in answer.rewards:
            if not np.isfinite(reward):
                return REFUSED  # `check_numbers` raises
        counts.num_rows += count
        counts.num_chunks += 1


# -- Runs one search without a driver. Letters: K slots, S bytes of a state ----------------------------------

# time after which a run pauses, to look at Ctrl-C and at the other roots
SECONDS_PER_RUN = 5e-3
# largest number of simulations of a call of compiled code, which Ctrl-C cannot interrupt
_MAX_SIMULATIONS = 4096

_log = logging.getLogger("planvec")

# The compiled loop without a kernel, once it is loaded. Its arguments have the same types in all searches.
_loops: list[Callable[..., int]] = []


def load_loop(memory: Pointer[Shared]) -> Callable[..., int]:
    """Compile the loop without a kernel, or load it from the cache."""
    if not _loops:
        answers, none = new_steps(1, 1), np.zeros(0, np.uint64)
        examples = (memory, answers, Draws(none, none, none), 0, None, None, 1)
        no_kernel = (numba.types.none, numba.types.none, search_code())
        entry = compile_loop(run_search, *no_kernel, *map(numba.typeof, examples))
        _loops.append(functools.partial(entry, None, None, None))
    return _loops[0]


class SearchRun:
    """Runs a search to its end, in compiled code but for its requests; with a kernel (`use`), those too."""

    # `search`: one that has not begun; `started`: `perf_counter()` at the beginning of the call.

    def __init__(self, search: TreeSearch, perform: Perform, use: KernelUse | None, started: float) -> None:
        self._search, self._started = search, started
        self._perform_request, self._use = perform, use
        config, self._shared = search.config, search.shared
        num_slots, num_seeds = config.batch_size, config.batch_size * (search.rules.kind.chance != SINGLE)
        self._counts = self._shared.counts[0]  # a view
        self._counts["num_env_steps"] = search.num_env_steps
        self._answers = new_steps(num_slots, search.rules.state_bytes)
        # The state of the generator, a PCG64, as words; see `planvec.kernels.random`.
        state = search.generator.bit_generator.state
        numbers = state["state"]["state"], state["state"]["inc"]
        words = [part for number in numbers for part in (number & 2**64 - 1, number >> 64)]
        words += [state["uinteger"], state["has_uint32"]]
        self._draws = Draws(
            np.array(words, np.uint64), np.zeros(num_seeds, np.uint64), np.zeros(2, np.uint64)
        )
        self._repeats = np.full(num_slots, config.dt)
        self._full: list[tuple[StepBatch | RolloutBatch, Outputs] | None] = [None, None]
        self._arguments = (
            *(search.memory, self._answers, self._draws, 0 if use is None else use.kernel.time_limit),
            None if use is None or config.dt == 1 else self._repeats,
            None if use is None else use.kernel.action_range,
        )
        self._num_events = 16  # of the next call
        self._seconds = 0.0  # since the last audit
        self._num_recorded = (0, 0)

    def load(self) -> None:
        """Compile the code, or load it from the cache."""
        if self._use is None:
            self._loop: Callable[..., int | None] = load_loop(self._search.memory)
        else:
            has_repeats = self._search.config.dt > 1
            kernel = self._use.kernel
            self._loop = kernel.open_loop(run_search, search_code(), has_repeats, *self._arguments, 1)

    def proceed(self, callback: PlanCallback | None) -> bool:
        """Run for some milliseconds, or up to the next call of the callback. Returns whether it is over."""
        counts, queue, use = self._counts, self._shared.queue, self._use
        max_seconds = self._search.config.max_seconds
        most = 1 if callback is not None else max(1, _MAX_SIMULATIONS // self._search.config.batch_size)
        started = time.perf_counter()
        ends = started + SECONDS_PER_RUN
        while True:
            num_events, was_stopped = counts["num_events"], counts["stop"] != GOES_ON
            try:
                status = self._loop(*self._arguments, min(self._num_events, most))
            except Exception:  # of the function of a user; the environment tells what is wrong
                if use is None:  # no code of others runs here
                    raise
                _log.debug("the environment performs a request of a search itself", exc_info=True)
                status = REFUSED
            if status is None:
                raise PlanvecError(
                    "env: expected an environment that does not change during a search, got one whose "
                    "attributes or methods were changed; change it between two searches"
                )
            now = time.perf_counter()
            if use is not None:  # count its rows and chunks, and audit a row from time to time
                num_rows, num_chunks = int(counts["num_rows"]), int(counts["num_chunks"])
                use.record(num_rows - self._num_recorded[0], num_chunks - self._num_recorded[1])
                self._num_recorded = num_rows, num_chunks
                self._seconds += now - started
                if self._seconds >= SECONDS_PER_RUN and counts["num_queued"]:
                    use.audit(*self._request(int(queue[0])), self._seconds)
                    self._seconds = 0.0
            if status == ENDED:
                raise ended_error()
            is_short = now - started < SECONDS_PER_RUN / 2
            self._num_events = min(2 * self._num_events, most) if is_short else max(1, self._num_events // 2)
            if status == REFUSED:
                self._perform(int(queue[counts["num_queued"] - 1]))
            stop = callback is not None and counts["num_events"] > num_events and callback(*self.counts())
            if stop and not was_stopped and counts["stop"] in (GOES_ON, MAX_ENV_STEPS):
                counts["stop"] = CALLBACK
            ended = time.perf_counter()
            if max_seconds is not None and counts["stop"] == GOES_ON and ended - self._started >= max_seconds:
                counts["stop"] = MAX_SECONDS
            started = ended
            if status == DONE or started >= ends or callback is not None:
                return status == DONE

    def counts(self) -> tuple[int, int]:
        """Return the numbers of simulations and of environment steps."""
        return int(self._counts["num_simulations"]), int(self._counts["num_env_steps"])

    def finish(self) -> None:
        """Write the counts and the random generator of the search."""
        search = self._search
        search.num_simulations, search.num_env_steps = self.counts()
        search.stop_reason = STOP_REASONS[self._counts["stop"]]
        state: Any = search.generator.bit_generator.state
        words = self._draws.random
        state["state"]["state"] = int(words[0]) | int(words[1]) << 64
        search.generator.bit_generator.state = state

    def _perform(self, half: int) -> None:
        """Perform the request of a half, and check its rewards."""
        first, end, _, stage, num_rows = self._shared.halves.item(half)
        is_full = num_rows == end - first
        full = self._full[half] if is_full and stage == STEPS else None
        request, outputs = full or self._request(half)
        if is_full and isinstance(request, StepBatch):
            self._full[half] = request, outputs  # most requests: their arrays are always the same memory
        self._perform_request(request, outputs)
        assert outputs.rewards is not None
        check_numbers(outputs.rewards, True, request.actions if isinstance(request, StepBatch) else None)

    def _request(self, half: int) -> tuple[StepBatch | RolloutBatch, Outputs]:
        """Return the request of a half and the memory of its answer, which its next one overwrites."""
        search, config, answers = self._search, self._search.config, self._answers
        rows = search.rows_of(half)
        states = search.states_of(rows)
        seeds = self._draws.seeds[rows] if len(self._draws.seeds) else None
        request: StepBatch | RolloutBatch
        if self._shared.halves["stage"][half] == LEAVES:
            action_seed, discount = int(self._draws.action_seeds[half]), float(config.discount)
            request = RolloutBatch(
                states, config.rollout_steps, None, action_seed, seeds=seeds, discount=discount
            )
        else:
            request = StepBatch(
                states, search.actions_of(rows), self._repeats[rows], seeds, same_dt=config.dt
            )
        return request, Outputs(
            new_states=answers.new_states.view(states.dtype)[rows],
            rewards=answers.rewards[rows],
            terminated=answers.terminated[rows].view(np.bool_),
            truncated=answers.truncated[rows].view(np.bool_),
            num_steps=answers.num_steps[rows],
        )


# -- Decides which searches run here, and runs them; the entrance of this module -----------------------------

_SECONDS_PER_SIMULATION = 20e-6  # time of a simulation without the compiled loop, with a compiled environment
# time that searches have to take before the loop is loaded: about the time that loading takes
_SECONDS_TO_LOAD = 1.0
_SECONDS_TO_ANNOUNCE = 1.0

# kernel -> the time that its searches have taken, or would have taken without the compiled loop
_seconds: WeakKeyDictionary[CompiledKernel, float] = WeakKeyDictionary()


def run_here(
    env: BatchStepper,
    searches: Sequence[Search],
    started: float,
    callback: PlanCallback | None,
) -> bool:
    """Run searches to their end without a driver, if that is possible."""
    # Returns whether the searches were run.
    # An object that forwards attributes to an environment may do more in its batches.
    if not isinstance(env, StepsHere) or getattr(env.row_use, "__self__", None) is not env:
        return False
    progress = callback if isinstance(callback, PlanProgress) else None
    if progress is not None:
        callback = None  # shown below, whenever a search pauses
    if callback is not None and len(searches) > 1:
        return False  # batches of several roots are called back together
    suited = []
    for search in searches:
        if not isinstance(search, TreeSearch):
            return False
        # It must need no function of the user, nor numbers that only NumPy draws. Its states have to be those
        # of the environment: only batches check that.
        config = search.config
        if not (
            search.is_plain
            and search.root_state.dtype == env.state_dtype
            and config.rollout_policy is None
            and not (config.dt > 1 and config.rollout_steps > 0)
            and type(search.generator.bit_generator) is np.random.PCG64
        ):
            return False
        suited.append(search)
    perform = env.row_use()
    if perform is None:
        return False
    use = _kernel_use(env, suited)
    runs = [SearchRun(search, perform, use, started) for search in suited]
    loading = time.perf_counter()
    for run in runs:
        run.load()
    seconds = time.perf_counter() - loading
    if seconds > _SECONDS_TO_ANNOUNCE:
        _log.info("the compiled tree search was compiled or loaded in %.1f s", seconds)
    todo, lock = deque(runs), threading.Lock()

    def work(index: int, stop: Stop) -> None:
        while not stop.is_set():
            with lock:
                if not todo:
                    return
                run = todo.popleft()
            try:
                is_over = run.proceed(callback)
            except BaseException:
                stop.set()  # the others end, too
                raise
            if progress is not None:
                progress(*map(sum, zip(*(one.counts() for one in runs), strict=True)))
            if is_over:
                run.finish()
            else:
                with lock:  # the roots take turns, so that each has its share of the time
                    todo.append(run)

    run_together(work, 1 if use is None else min(use.kernel.num_threads, len(runs)))
    return True


def _kernel_use(env: StepsHere, searches: list[TreeSearch]) -> KernelUse | None:
    """Return the use of a kernel in a compiled loop; None if there is none, or loading it takes longer."""
    seconds = 0.0  # that the searches would take without the compiled loop
    for search in searches:
        config = search.config
        limits = [
            limit * _SECONDS_PER_SIMULATION
            for limit in (config.num_planned, config.max_env_steps)
            if limit is not None
        ]
        limits += [] if config.max_seconds is None else [config.max_seconds]
        seconds += min(limits, default=0.0)
    use = env.kernel_use(int(seconds / _SECONDS_PER_SIMULATION))
    if use is None or not isinstance(use.kernel, CompiledKernel) or use.kernel.action_range is None:
        return None
    if use.kernel.has_masks and any(one.config.rollout_steps or one.config.dt > 1 for one in searches):
        return None  # it neither draws legal actions nor ends repeating where one has become illegal
    _seconds[use.kernel] = seconds + _seconds.get(use.kernel, 0.0)
    is_time = use.is_required or _seconds[use.kernel] >= _SECONDS_TO_LOAD
    return use if is_time else None


# -- Compile the kernels of tree search before they are needed -----------------------------------------------


def warm_up(config: MCTSConfig) -> None:
    """Compile what searches call: for the simulations of a tree of one node, as for those of any other."""
    kind = TreeKind(False, False, False, False, SINGLE, 1.0, 1)
    arrays, rules = empty_arrays(4, 2, 2, kind), Rules(kind, max_depth=2, state_bytes=8, action_bytes=8)
    init(arrays, rules)
    states, actions = np.zeros(4, [("number", np.int64)]), np.arange(2)
    tree = Tree(arrays, states, actions, kind)
    memory = Pointer(new_shared(config, rules, tree, states[:1], no_halving(), []))
    for function in ENTRANCES:
        compile_entrance(function, memory)
    load_loop(memory)
    tree.subtree(0)
