"""Runs searches without a driver where their requests are performed in this process."""

from __future__ import annotations

import logging
import threading
import time
from collections import deque
from collections.abc import Sequence
from weakref import WeakKeyDictionary

import numpy as np

from planvec.kernels import CompiledKernel, Stop, run_together
from planvec.planners.driver import Budget, PlanCallback, PlanProgress
from planvec.planners.mcts.compiled.kernel_run import KernelRun
from planvec.planners.mcts.compiled.row_run import RowRun
from planvec.planners.mcts.compiled.run import SearchRun
from planvec.planners.mcts.search import TreeSearch
from planvec.planners.search import Search
from planvec.rows import BatchStepper, KernelUse, StepsHere

_log = logging.getLogger("planvec")

_SECONDS_PER_SIMULATION = 20e-6  # time of a simulation without the compiled loop, with a compiled environment
# time that searches have to take before the loop is loaded: about the time that loading takes
_SECONDS_TO_LOAD = 1.0
_SECONDS_TO_ANNOUNCE = 1.0

# kernel -> the time that its searches have taken, or would have taken without the compiled loop
_seconds: WeakKeyDictionary[CompiledKernel, float] = WeakKeyDictionary()


def run_here(
    env: BatchStepper,
    searches: Sequence[Search],
    budget: Budget,
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
    suited = [search for search in searches if isinstance(search, TreeSearch) and _is_suited(search, env)]
    if len(suited) < len(searches):
        return False
    perform = env.row_use()
    if perform is None:
        return False
    use = _kernel_use(env, suited, budget)
    runs: list[SearchRun]
    if use is not None:
        runs = [KernelRun(search, perform, use, budget, started) for search in suited]
    else:
        runs = [RowRun(search, perform, budget, started) for search in suited]
    _load(runs)
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


def _kernel_use(env: StepsHere, searches: list[TreeSearch], budget: Budget) -> KernelUse | None:
    """Return the use of a kernel in a compiled loop; None if there is none, or loading it takes longer."""
    seconds = sum(_estimate(search, budget) for search in searches)
    use = env.kernel_use(int(seconds / _SECONDS_PER_SIMULATION))
    if use is None or not isinstance(use.kernel, CompiledKernel) or use.kernel.action_range is None:
        return None
    if use.kernel.has_masks and any(one.config.rollout_steps or one.config.dt > 1 for one in searches):
        return None  # it neither draws legal actions nor ends repeating where one has become illegal
    _seconds[use.kernel] = seconds + _seconds.get(use.kernel, 0.0)
    is_time = use.is_required or _seconds[use.kernel] >= _SECONDS_TO_LOAD
    return use if is_time else None


def _is_suited(search: TreeSearch, env: BatchStepper) -> bool:
    """Return whether a search needs no function of the user, nor numbers that only NumPy draws."""
    # Its states have to be those of the environment: only batches check that.
    config = search.config
    repeats_rollouts = config.dt > 1 and config.rollout_steps > 0
    return (
        search.is_plain
        and search.root_state.dtype == env.state_dtype
        and config.rollout_policy is None
        and not repeats_rollouts
        and type(search.generator.bit_generator) is np.random.PCG64
    )


def _estimate(search: TreeSearch, budget: Budget) -> float:
    """Return the seconds that a search would take without the compiled loop."""
    limits = [search.config.simulation_limit, budget.max_env_steps]
    seconds = [limit * _SECONDS_PER_SIMULATION for limit in limits if limit is not None]
    return min([*seconds, np.inf if budget.max_seconds is None else budget.max_seconds], default=0.0)


def _load(runs: list[SearchRun]) -> None:
    """Compile the loop of some runs, or load it from the cache, and announce it if that took long."""
    started = time.perf_counter()
    for run in runs:
        run.load()
    seconds = time.perf_counter() - started
    if seconds > _SECONDS_TO_ANNOUNCE:
        _log.info("the compiled tree search was compiled or loaded in %.1f s", seconds)
