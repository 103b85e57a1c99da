"""Runs searches without a driver where their requests are performed in this process."""

from __future__ import annotations

import functools
import logging
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any
from weakref import WeakKeyDictionary

import numba
import numpy as np

from planvec.errors import PlanvecError
from planvec.kernels import (
    CompiledKernel,
    Pointer,
    Stop,
    bytes_of,
    compile_loop,
    copy_bytes,
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
    EVALUATE,
    GOES_ON,
    INVALID,
    LEAVES,
    MAX_ENV_STEPS,
    MAX_SECONDS,
    PAUSED,
    REFUSED,
    STEPS,
    STOP_REASONS,
    Shared,
    abandon,
    advance,
    call,
    compile_entrance,
    init,
    new_shared,
    no_halving,
    search_code,
    take_evaluations,
)
from planvec.planners.mcts.tree import SINGLE, Tree, TreeKind, empty_arrays
from planvec.planners.search import PlanCallback, PlanProgress, Search, check_numbers, ended_error
from planvec.rows import (
    UNLIMITED,
    BatchStepper,
    KernelUse,
    Outputs,
    Perform,
    RolloutBatch,
    StepBatch,
    StepsHere,
    raw,
)

# -- Runs the loop of a search, and performs its requests with a kernel, if there is one. It is compiled once
# for each kernel, and once without.
#
#     advance --request--> run_rows --answer--> advance --request--> ...
#
# Letters: K slots.


@jit(cache=True)
def run_search(
    kernel: object,
    constants: object,
    code: object,
    memory: Pointer[Shared],
    time_limit: int,
    repeats: Any,  # `[K]` int64, dt; None: 1, for which another loop is compiled
    action_range: object,
    # `[K * O]` uint8 in a tuple, the memory for observations of O bytes; None, as are the next four: no
    # function of the user evaluates new nodes
    observations: Any,
    batch: Any,  # uint8, written: the observations of new nodes that a function has to evaluate
    at: Any,  # the row of `batch` from which on they are written
    values: Any,  # of the last new nodes; see `take_evaluations`
    priors: Any,
    max_events: int,
) -> int:
    """Run a search until it is over, has new nodes to evaluate, or has processed some answers."""
    # After `REFUSED`, the answer to the request of the half that was queued last has to be written before the
    # next call. Without a kernel (None), this is so with every request.
    # Returns `DONE`, `PAUSED`, `REFUSED`, `ENDED`, `INVALID`, or `EVALUATE` plus a number of nodes.
    shared: Shared = value_at(memory)
    rules, counts = shared.rules, shared.counts[0]
    last_event = counts.num_events + max_events
    if batch is not None:
        width = len(observations[0]) // len(shared.slots)
        if counts.evaluated > 0:
            half = counts.evaluated - 1
            if take_evaluations(code, memory, values, priors, half) != 0:
                return INVALID
    while True:
        status = advance(code, memory, last_event)
        if batch is not None and status == EVALUATE:
            group = shared.halves[counts.evaluated - 1]
            for index in range(group.num_new):
                source = (group.first + shared.rows[group.first + index].new_row) * width
                copy_bytes(observations[0], source, batch, (at + index) * width, width)
            status += group.num_new
        if status >= 0:
            return status
        half = shared.queue[counts.num_queued - 1]
        first: Any = np.int64(shared.halves[half].first)
        last: Any = np.int64(first + shared.halves[half].num_rows)
        # Draw the seeds of the request, as `planvec.planners.mcts.search` draws them.
        if shared.halves[half].stage == LEAVES:
            shared.action_seeds[half] = next_uint64(shared.random) >> np.uint64(1)  # as `integers(2**63)`
        if len(shared.seeds) > 0:
            for row in range(first, last):
                shared.seeds[row] = next_uint64(shared.random)
        if kernel is None:  # numba leaves out what follows
            return REFUSED
        # Perform the request with the kernel.
        answers = shared.answers
        results = (answers.rewards, answers.terminated, answers.truncated, answers.num_steps)
        extras = answers.rewards[:0]  # not wanted
        if shared.halves[half].stage == LEAVES:
            status = run_rows(
                kernel,
                constants,
                first,
                last,
                shared.request_states,
                shared.request_actions[:0],
                None,
                rules.rollout_steps,
                rules.kind.discount,
                shared.seeds,
                time_limit,
                shared.action_seeds[half],
                -first,  # the first row of the request draws the actions of row 0
                action_range,
                answers.new_states,
                None,
                results,
                extras,
            )
        else:
            status = run_rows(
                kernel,
                constants,
                first,
                last,
                shared.request_states,
                shared.request_actions,
                repeats,
                None,
                1.0,
                shared.seeds,
                time_limit,
                None,
                None,
                None,
                answers.new_states,
                observations,
                results,
                extras,
            )
        if status != 0:
            return REFUSED
        for row in range(first, last):
            if not np.isfinite(answers.rewards[row]):
                return REFUSED  # `check_numbers` raises
        counts.num_rows += last - first
        counts.num_chunks += 1


# -- Runs one search without a driver. Letters: K slots, S bytes of a state, O bytes of an observation -------

# time after which a run pauses, to look at Ctrl-C and at the other roots; with `max_seconds`, at the clock
SECONDS_PER_RUN, _SECONDS_BETWEEN_LOOKS = 5e-3, 0.25e-3
# largest number of simulations of a call of compiled code, which Ctrl-C cannot interrupt
_MAX_SIMULATIONS = 4096

_log = logging.getLogger("planvec")

# The compiled loops without a kernel, once they are loaded: without and with functions that evaluate nodes.
# Their arguments have the same types in all searches.
_loops: dict[bool, Callable[..., int]] = {}


# Examples of `observations`, `batch`, `at`, `values` and `priors` of `run_search`
_NO_BYTES = np.empty(0, np.uint8)
_EVALUATION = ((_NO_BYTES,), _NO_BYTES, 0, np.empty(0), np.empty((0, 0)))


def load_loop(memory: Pointer[Shared], evaluates: bool) -> Callable[..., int]:
    """Compile the loop without a kernel, or load it from the cache."""
    if evaluates not in _loops:
        examples = (memory, 0, None, None, *(_EVALUATION if evaluates else (None,) * 5), 1)
        no_kernel = (numba.types.none, numba.types.none, search_code())
        entry = compile_loop(run_search, *no_kernel, *map(numba.typeof, examples))
        _loops[evaluates] = functools.partial(entry, None, None, None)
    return _loops[evaluates]


class SearchRun:
    """Runs a search to its end, in compiled code but for its requests; with a kernel (`use`), those too."""

    # `search`: one that has not begun; `started`: `perf_counter()` at the beginning of the call.
    # `may_be_cut`: whether the request under way is cut at the end of `max_seconds`.
    # Attributes: `values` and `priors`, those of the last new nodes; None without functions.

    def __init__(
        self,
        search: TreeSearch,
        perform: Perform,
        use: KernelUse | None,
        started: float,
        may_be_cut: bool,
    ) -> None:
        self.search = search
        self._perform, self._use = perform, use
        config, self._shared = search.config, search.shared
        self._counts = self._shared.counts[0]  # a view
        self._counts["num_env_steps"] = search.num_env_steps
        # The state of the generator, a PCG64, as words; see `planvec.kernels.random`.
        state = search.generator.bit_generator.state
        numbers = state["state"]["state"], state["state"]["inc"]
        words = [part for number in numbers for part in (number & 2**64 - 1, number >> 64)]
        self._shared.random[:] = [*words, state["uinteger"], state["has_uint32"]]
        self._evaluates = search.rules.evaluates
        self._repeats = np.full(config.batch_size, config.dt)
        self._full: list[tuple[StepBatch | RolloutBatch, Outputs] | None] = [None, None]
        self._arguments = (
            *(search.memory, 0 if use is None else use.kernel.time_limit),
            None if use is None or config.dt == 1 else self._repeats,
            None if use is None else use.kernel.action_range,
            (bytes_of(search.observations),) if self._evaluates else None,
        )
        self.values: Any = _EVALUATION[3] if self._evaluates else None
        self.priors: Any = _EVALUATION[4] if self._evaluates else None
        self._most = max(1, _MAX_SIMULATIONS // config.batch_size)  # events of a call
        self._num_events = self._most if self._evaluates else 16  # of the next call
        self._deadline = None if config.max_seconds is None else started + config.max_seconds
        self._cut_at = self._deadline if may_be_cut else None
        self._turn = SECONDS_PER_RUN if config.max_seconds is None else _SECONDS_BETWEEN_LOOKS
        self._is_cut = False
        self._seconds = 0.0  # since the last audit
        self._num_recorded = (0, 0)

    def load(self) -> None:
        """Compile the code, or load it from the cache."""
        if self._use is None:
            loop = load_loop(self.search.memory, self._evaluates)
            self._bind: Callable[[], Callable[..., int] | None] = lambda: loop
        else:
            variant = (self.search.config.dt > 1, self._evaluates)
            examples = (*self._arguments, *(_EVALUATION[1:] if self._evaluates else (None,) * 4), 1)
            self._bind = self._use.kernel.open_loop(run_search, search_code(), variant, *examples)

    def account(self, seconds: float) -> None:
        """Count the rows that were stepped in the last seconds, and audit one from time to time."""
        use, counts = self._use, self._counts
        if use is not None:
            num_rows, num_chunks = int(counts["num_rows"]), int(counts["num_chunks"])
            use.record(num_rows - self._num_recorded[0], num_chunks - self._num_recorded[1])
            self._num_recorded = num_rows, num_chunks
            self._seconds += seconds
            if self._seconds >= SECONDS_PER_RUN and counts["num_queued"]:
                use.audit(*self._request(int(self._shared.queue[0])), self._seconds)
                self._seconds = 0.0

    def bind(self) -> None:
        """Read the constants of the environment, and the clock."""
        loop = self._bind()
        if loop is None:
            raise PlanvecError(
                "env: expected an environment that does not change during a search, got one whose "
                "attributes or methods were changed; change it between two searches"
            )
        self._loop = functools.partial(loop, *self._arguments)
        if self._cut_at is not None:  # else a first batch is waited for
            self.check_time(time.perf_counter())

    def proceed(self, callback: PlanCallback | None, batch: Any = None, at: int | None = None) -> int:
        """Run for some milliseconds, or up to the next evaluation or call of the callback."""
        # `batch`, `at`: those of `run_search`.
        # Returns `DONE`, `PAUSED`, or `EVALUATE` plus a number of nodes; with functions also `REFUSED`: the
        # caller performs the last request.
        counts, started = self._counts, 0.0  # with functions, it runs up to the next one, and no longer
        if not self._evaluates:
            started = time.perf_counter()
        ends = started + self._turn
        while not self._is_cut:
            num_events = counts["num_events"] if callback is not None else 0
            most = self._num_events if callback is None else 1
            try:
                status = self._loop(batch, at, self.values, self.priors, most)
            except Exception:  # of the function of a user; the environment tells what is wrong
                if self._use is None:  # no code of others runs here
                    raise
                _log.debug("the environment performs a request of a search itself", exc_info=True)
                status = REFUSED
            if status >= EVALUATE or (status == REFUSED and self._evaluates and callback is None):
                return status
            if status == INVALID:
                self.search.refuse(self.values, self.priors)
            if status == ENDED:
                raise ended_error()
            now = time.perf_counter()
            if not self._evaluates:
                is_short = now - started < self._turn / 2
                longer, shorter = min(2 * self._num_events, self._most), max(1, self._num_events // 2)
                self._num_events = longer if is_short else shorter
            if status == REFUSED:
                self.perform()
            ends_now = callback is not None and counts["num_events"] > num_events and callback(*self.counts())
            if ends_now and counts["stop"] in (GOES_ON, MAX_ENV_STEPS):
                counts["stop"] = CALLBACK
            started = time.perf_counter()
            self.check_time(started)
            if status == DONE or started >= ends or callback is not None:
                return DONE if status == DONE else PAUSED
        return DONE

    def check_time(self, now: float) -> None:
        """Let no further simulations begin after `max_seconds`."""
        if self._deadline is not None and now >= self._deadline and self._counts["stop"] == GOES_ON:
            self._counts["stop"] = MAX_SECONDS

    def counts(self) -> tuple[int, int]:
        """Return the numbers of simulations and of environment steps."""
        return int(self._counts["num_simulations"]), int(self._counts["num_env_steps"])

    def finish(self) -> None:
        """Write the counts and the random generator of the search."""
        search = self.search
        search.num_simulations, search.num_env_steps = self.counts()
        search.stop_reason = STOP_REASONS[self._counts["stop"]]
        state: Any = search.generator.bit_generator.state
        words = self._shared.random
        state["state"]["state"] = int(words[0]) | int(words[1]) << 64
        search.generator.bit_generator.state = state

    def perform(self) -> None:
        """Perform the request that was queued last."""
        request, outputs = self.last_request()
        self.perform_request(request, outputs)
        self.check_answer(outputs)

    def check_answer(self, outputs: Outputs) -> None:
        """End the search if time was up before the last request was answered."""
        if self._cut_at is None or outputs.num_steps is None or outputs.num_steps.min() >= 0:
            return
        self._is_cut, counts = True, self._counts
        counts["num_env_steps"] += np.maximum(outputs.num_steps, 0).sum()
        counts["stop"] = MAX_SECONDS
        for half in self._shared.queue[: counts["num_queued"]].tolist():
            call(abandon, self.search.memory, half)

    def perform_request(self, request: StepBatch | RolloutBatch, outputs: Outputs) -> None:
        """Perform a request, and check its rewards."""
        self._perform(request, outputs)
        assert outputs.rewards is not None
        check_numbers(outputs.rewards, True, request.actions if isinstance(request, StepBatch) else None)

    def last_request(self) -> tuple[StepBatch | RolloutBatch, Outputs]:
        """Return the request that was queued last, and the memory of its answer."""
        half = int(self._shared.queue[self._counts["num_queued"] - 1])
        first, end, _, stage, num_rows, *_ = self._shared.halves.item(half)
        is_full = num_rows == end - first
        full = self._full[half] if is_full and stage == STEPS else None
        request, outputs = full or self._request(half)
        if is_full and isinstance(request, StepBatch):
            self._full[half] = request, outputs  # most requests: their arrays are always the same memory
        return request, outputs

    def _request(self, half: int) -> tuple[StepBatch | RolloutBatch, Outputs]:
        """Return the request of a half and the memory of its answer, which its next one overwrites."""
        search, config, shared = self.search, self.search.config, self._shared
        rows, answers, observations = search.rows_of(half), shared.answers, None
        states = search.states_of(rows)
        seeds = shared.seeds[rows] if len(shared.seeds) else None
        request: StepBatch | RolloutBatch
        if shared.halves["stage"][half] == LEAVES:
            action_seed, discount = int(shared.action_seeds[half]), float(config.discount)
            request = RolloutBatch(
                *(states, config.rollout_steps, None, action_seed),
                seeds=seeds,
                discount=discount,
                deadline=self._cut_at,
            )
        else:
            actions, dt = search.actions_of(rows), self._repeats[rows]
            request = StepBatch(states, actions, dt, seeds, same_dt=config.dt, deadline=self._cut_at)
            if self._evaluates:
                observations = search.observations[rows]
        return request, Outputs(
            new_states=answers.new_states.view(states.dtype)[rows],
            observations=observations,
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
        # It must need no function of the user but those that evaluate new nodes, from observations that are
        # one array; nor numbers that only NumPy draws. Its states have to be those of the environment: only
        # batches check that.
        config = search.config
        if not (
            search.is_plain
            and (len(search.observations) or not search.rules.evaluates)
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
    runs = [SearchRun(search, perform, use, started, len(suited) == 1) for search in suited]
    loading = time.perf_counter()
    for run in runs:
        run.load()
    seconds = time.perf_counter() - loading
    if seconds > _SECONDS_TO_ANNOUNCE:
        _log.info("the compiled tree search was compiled or loaded in %.1f s", seconds)

    def show() -> None:
        if progress is not None:
            progress(*map(sum, zip(*(one.counts() for one in runs), strict=True)))

    if suited and suited[0].rules.evaluates:
        _run_in_rounds(runs, callback, show)
        return True
    todo, lock = deque(runs), threading.Lock()

    def work(index: int, stop: Stop) -> None:
        while not stop.is_set():
            with lock:
                if not todo:
                    return
                run = todo.popleft()
            try:
                begun = time.perf_counter()
                run.bind()
                status = run.proceed(callback)
                run.account(time.perf_counter() - begun)
            except BaseException:
                stop.set()  # the others end, too
                raise
            show()
            if status == DONE:
                run.finish()
            else:
                with lock:  # the roots take turns, so that each has its share of the time
                    todo.append(run)

    run_together(work, 1 if use is None else min(use.kernel.num_threads, len(runs)))
    return True


def _run_in_rounds(runs: list[SearchRun], callback: PlanCallback | None, show: Callable[[], None]) -> None:
    """Run searches whose new nodes are evaluated by functions of the user: those of all roots in one call."""
    # Which nodes share a call does not depend on the speed of the machine, since functions may give a row
    # other bits in another batch.
    first = runs[0].search
    evaluated, max_seconds = first.evaluated, first.config.max_seconds
    num_rows = len(runs) * -(-first.config.batch_size // 2)
    shape, dtype = (num_rows, *first.observations.shape[1:]), first.observations.dtype
    batch, data, num_references = np.empty(0), _NO_BYTES, 0
    now = pause = time.perf_counter()
    while runs:
        if now >= pause:
            for run in runs:
                run.account(now - pause + SECONDS_PER_RUN)
                run.bind()
            show()
            pause = now + SECONDS_PER_RUN
        # The memory is used again, unless the function has kept a view of it.
        if sys.getrefcount(batch) != num_references:
            batch = np.empty(shape, dtype)
            data = bytes_of(batch)
            num_references = sys.getrefcount(batch)
        status = runs[0].proceed(callback, data, 0) if len(runs) == 1 else PAUSED
        if status > EVALUATE:  # one root: lists and slices would take a tenth of the time of a simulation
            waiting, at = runs, status - EVALUATE
            runs[0].values, runs[0].priors = evaluated(batch[:at], at)
        else:
            waiting, ends, at, todo = [], [], 0, runs
            while todo:
                stepping = []
                for run in todo:
                    while status == PAUSED:
                        status = run.proceed(callback, data, at)
                    if status == REFUSED:
                        stepping.append(run)
                    elif status == DONE:
                        run.account(0.0)
                        run.finish()
                    else:
                        at += status - EVALUATE
                        waiting.append(run)
                        ends.append(at)
                    status = PAUSED
                todo = stepping
                if todo:
                    _perform_together(todo)
            if waiting:
                values, priors = evaluated(batch[:at], at)
            for run, start, end in zip(waiting, [0, *ends], ends, strict=False):
                run.values, run.priors = values[start:end], priors[start:end]
        now = time.perf_counter()
        if max_seconds is not None:
            for run in waiting:
                run.check_time(now)
        runs = waiting


def _perform_together(runs: list[SearchRun]) -> None:
    """Perform the requests of searches that were queued last: steps as one batch, which takes less time."""
    asked = [run.last_request() for run in runs]
    requests = [request for request, _ in asked if isinstance(request, StepBatch)]
    if len(runs) == 1 or len(requests) < len(runs):
        for run in runs:
            run.perform()
        return
    first = asked[0][1]
    has_seeds = requests[0].seeds is not None
    merged = StepBatch(
        np.concatenate([raw(request.states) for request in requests]).view(requests[0].states.dtype),
        np.concatenate([request.actions for request in requests]),
        np.concatenate([request.dt for request in requests]),
        np.concatenate([request.seeds for request in requests]) if has_seeds else None,
        same_dt=requests[0].same_dt,
        deadline=requests[0].deadline,
    )

    def like(array: Any) -> Any:
        return np.empty((merged.num_rows, *array.shape[1:]), array.dtype)

    numbers = map(like, first.numbers)
    together = Outputs(like(first.new_states), like(first.observations), *numbers)
    runs[0].perform_request(merged, together)
    start = 0
    for request, (_, outputs) in zip(requests, asked, strict=True):
        end = start + request.num_rows
        outputs.put(slice(0, request.num_rows), together.part(slice(start, end)))
        start = end
    now = time.perf_counter()
    for run, (_, outputs) in zip(runs, asked, strict=True):
        run.check_answer(outputs)
        run.check_time(now)


def _kernel_use(env: StepsHere, searches: list[TreeSearch]) -> KernelUse | None:
    """Return the use of a kernel in a compiled loop; None if there is none, or loading it takes longer."""
    # With a deadline it is loaded at once, not in the middle of a later decision.
    has_deadline = any(search.config.max_seconds is not None for search in searches)
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
    use = env.kernel_use(UNLIMITED if has_deadline else int(seconds / _SECONDS_PER_SIMULATION))
    if use is None or not isinstance(use.kernel, CompiledKernel) or use.kernel.action_range is None:
        return None
    if use.kernel.has_masks and any(one.config.rollout_steps or one.config.dt > 1 for one in searches):
        return None  # it neither draws legal actions nor ends repeating where one has become illegal
    _seconds[use.kernel] = seconds + _seconds.get(use.kernel, 0.0)
    is_time = use.is_required or has_deadline or _seconds[use.kernel] >= _SECONDS_TO_LOAD
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
    load_loop(memory, config.has_values or config.has_priors)
    tree.subtree(0)
