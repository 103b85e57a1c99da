"""Defines `EnvPool`, planvec's own interface to many environments that are stepped on from where they stand.

Letters: N environments, B rows of a call.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from gymnasium.vector import AutoresetMode
from numpy.typing import NDArray

from planvec.backends import DelayedSignals
from planvec.errors import InvalidBatchError
from planvec.rows import finish_rows
from planvec.vector import checks
from planvec.vector.engine import Engine
from planvec.vector.env_row import InfoForm
from planvec.vector.operations import Chunk, RowsCall, RowsResult
from planvec.vector.resident_envs import EngineOptions
from planvec.vector.states_face import StatesFace

# -- Defines `PoolStep`, the results of steps of an `EnvPool`. Letters: B rows -------------------------------


class PoolStep(NamedTuple):
    """Holds the results of steps.

    Attributes:
        observations: `[B, ...]`, nested for Dict and Tuple spaces.
        rewards: `[B]` float64.
        terminated: `[B]` bool.
        truncated: `[B]` bool.
        infos: Per key an array `[B, ...]`, and its mask under `_key`, as in Gymnasium's vector environments.
        rows: `[B]`, the environments.
    """

    observations: Any
    rewards: np.ndarray
    terminated: NDArray[np.bool_]
    truncated: NDArray[np.bool_]
    infos: dict[str, Any]
    rows: NDArray[np.intp]


_Sent = tuple[Chunk, NDArray[np.bool_]]


class _InFlight(NamedTuple):
    """Holds what is stepped and not received yet. It is replaced as a whole, for the sake of interrupts."""

    sent: list[_Sent]  # chunks, and which of their rows, since errors are raised once
    is_busy: NDArray[np.bool_]  # `[N]`, these rows

    def changed(self, sent: list[_Sent], rows: Sequence[NDArray[np.intp]], is_busy: bool) -> _InFlight:
        """Return another one, in which rows are busy, or are not any more."""
        busy = self.is_busy.copy()
        for some in rows:
            busy[some] = is_busy
        return _InFlight(sent, busy)


def _num_kept(sent: Iterable[_Sent]) -> int:
    return sum(int(is_kept.sum()) for _, is_kept in sent)


class EnvPool(StatesFace):
    """Steps many environments over few worker processes, and survives the exit of a worker.

    Args:
        env_fns: One function without arguments per environment, which makes it. They may differ.
        num_workers: Number of worker processes; 0 steps in this process; None takes one per core but one.
            Each worker has consecutive environments.
        autoreset_mode: When an environment is reset after the end of an episode: "NextStep", "SameStep" or
            "Disabled", as in Gymnasium.
        start_method: How workers are started: "template" (default), "spawn" or "fork".
        timeout: Seconds that one step of the environments of a worker may take before it is killed; None: no
            limit.
        max_restarts: How often a step is retried after a worker exited on it.
        on_crash: What happens when a worker exits. "restore": its environments go on with the same bits.
            "reset": their episodes end with a truncation, and `infos["worker_exited"]`. "raise": the call
            raises. None takes "restore" if the states of all environments are exact, else "reset".
        max_worker_rss: Bytes of resident memory above which a worker is replaced between two steps; None: no
            limit.

    Attributes:
        num_envs: N.
        single_observation_space: The space of one observation.
        single_action_space: The space of one action.
        autoreset_mode: When environments are reset by themselves.
        render_mode: The render mode of the environments.
        metadata: The metadata of the environments.

    Raises:
        InvalidBatchError: An argument is wrong.
        WorkerStartError: An environment could not be made. No worker is left.
    """

    def __init__(
        self,
        env_fns: Sequence[Callable[[], Any]],
        *,
        num_workers: int | None = None,
        autoreset_mode: str | AutoresetMode = AutoresetMode.NEXT_STEP,
        start_method: str | None = None,
        timeout: float | None = None,
        max_restarts: int = 3,
        on_crash: str | None = None,
        max_worker_rss: int | None = None,
    ) -> None:
        factories = checks.check_env_fns(env_fns)
        options = EngineOptions(
            num_workers=checks.check_num_workers(num_workers, len(factories)),
            mode=AutoresetMode(autoreset_mode),
            start_method=start_method,
            timeout=timeout,
            max_restarts=max_restarts,
            on_crash=checks.check_on_crash(on_crash),
            max_worker_rss=max_worker_rss,
        )
        self._engine = Engine(factories, options)
        layout = self._engine.layouts[0]
        self.num_envs = len(factories)
        self.single_observation_space = layout.observation_spaces[0]
        self._space_of_one_observation = self.single_observation_space
        self.single_action_space = layout.action_spaces[0]
        self.autoreset_mode = options.mode
        self.render_mode, self.metadata = layout.render_mode, layout.metadata
        self._all_rows = np.arange(self.num_envs)
        self._in_flight = _InFlight([], np.zeros(self.num_envs, bool))
        self._steps_here = options.num_workers == 0

    # -- episodes -----------------------------------------------------------------------------------

    def reset(
        self,
        *,
        seed: int | Sequence[int | None] | None = None,
        options: Mapping[str, object] | Sequence[Mapping[str, object] | None] | None = None,
        rows: object = None,
    ) -> tuple[Any, dict[str, Any]]:
        """Begin episodes.

        Args:
            seed: An int gives `seed + i` to environment i; or one seed per row.
            options: The argument of the environments' `reset`; or one per row.
            rows: A mask `[N]` or indices `[B]`; None resets all.

        Returns:
            The observations `[B, ...]` and the infos of the rows.
        """
        indices = self._indices(rows)
        numbers = self._all_rows if indices is None else indices
        seeds = checks.check_seeds(seed, numbers.tolist())
        given = options if isinstance(options, Sequence) else [options] * len(numbers)
        if len(given) != len(numbers):
            raise InvalidBatchError(f"options: expected {len(numbers)}, one per row, got {len(given)}")
        self._check_free(indices)
        result = self._finish(self._engine.begin("reset", (seeds, list(given)), rows=indices))
        return result.observations, result.infos

    def step(self, actions: object, *, rows: object = None) -> PoolStep:
        """Step environments, and wait for the results.

        Args:
            actions: `[B, *action shape]`.
            rows: A mask `[N]` or indices `[B]`; None steps all.

        Raises:
            Exception: What an environment has raised, with the remote traceback as its cause.
            WorkerCrashedError: Workers exited on the step more than `max_restarts` times.
        """
        indices = self._indices(rows)
        numbers = self._all_rows if indices is None else indices
        self._check_free(indices)
        call = self._engine.begin_step(actions, indices)
        return PoolStep(*self._finish(call), numbers)

    def send(self, actions: object, *, rows: object = None) -> None:
        """Begin to step environments. `recv` returns the results.

        Args:
            actions: `[B, *action shape]`.
            rows: A mask `[N]` or indices `[B]`; None steps all. None of them may be in a step already.
        """
        indices = self._indices(rows)
        self._check_free(indices)
        # An interrupt must not lose what workers step; in this process, it may come in the middle of a step.
        with contextlib.nullcontext() if self._steps_here else DelayedSignals():
            chunks = self._engine.begin_step(actions, indices, in_parts=True).chunks
            sent = [*self._in_flight.sent, *((chunk, np.ones(len(chunk.rows), bool)) for chunk in chunks)]
            self._in_flight = self._in_flight.changed(sent, [chunk.rows for chunk in chunks], True)

    def recv(self, min_ready: int | None = None, *, timeout: float | None = None) -> PoolStep:
        """Wait for environments that `send` steps, and return the results of all that are ready.

        Args:
            min_ready: Smallest number of environments to return; None waits for all.
            timeout: Seconds to wait; None waits without a limit.

        Raises:
            InvalidBatchError: Fewer environments are being stepped.
            WorkerTimeoutError: They were not ready in time. A later call may return them.
            Exception: What an environment has raised. A later call returns the environments that did not.
        """
        sent = self._in_flight.sent
        num_sent = _num_kept(sent)
        wanted = num_sent if min_ready is None else min_ready
        if not 0 < wanted <= num_sent:
            raise InvalidBatchError(
                f"min_ready: expected 1 to {num_sent}, the number of environments that are being stepped, "
                f"got {min_ready}"
            )
        self._engine.wait(lambda: _num_kept(each for each in sent if each[0].is_done) >= wanted, timeout)
        ready = [(chunk, is_kept) for chunk, is_kept in sent if chunk.is_done]
        failed = [(chunk, is_kept) for chunk, is_kept in ready if chunk.errors()]
        if failed:
            try:
                RowsCall([chunk for chunk, _ in failed]).raise_errors()
            finally:  # they are raised once, and the other environments of the chunks stay ready
                with DelayedSignals():
                    rows_failed = []
                    for chunk, is_kept in failed:
                        was_kept = is_kept.copy()
                        is_kept[slice(None) if chunk.reply is None else list(chunk.reply.errors)] = False
                        rows_failed.append(chunk.rows[was_kept & ~is_kept])
                        if chunk.reply is not None:
                            chunk.reply.errors = {}
                    kept = [(chunk, is_kept) for chunk, is_kept in sent if is_kept.any()]
                    self._in_flight = self._in_flight.changed(kept, rows_failed, False)
        rows = np.concatenate([chunk.rows for chunk, _ in ready])
        all_kept = np.concatenate([is_kept for _, is_kept in ready])
        order = None if all_kept.all() else np.flatnonzero(all_kept)
        call = RowsCall([chunk for chunk, _ in ready], order=order)
        result = PoolStep(*self._finish(call), rows[all_kept])
        # Until here, an interrupt leaves the results to the next call.
        left = [each for each in sent if not any(each[0] is chunk for chunk, _ in ready)]
        rows_ready = [chunk.rows[is_kept] for chunk, is_kept in ready]
        self._in_flight = self._in_flight.changed(left, rows_ready, False)
        return result

    # -- environments -------------------------------------------------------------------------------

    def call(self, name: str, *args: object, rows: object = None, **kwargs: object) -> list[Any]:
        """Call a method of environments, and return the results, one per row.

        Args:
            name: The name of the method, looked up through the wrappers.
            args: Positional arguments.
            rows: A mask `[N]` or indices `[B]`; None calls all.
            kwargs: Keyword arguments.
        """
        return self._values("call", (name, args, kwargs), rows)

    def get_attr(self, name: str, *, rows: object = None) -> list[Any]:
        """Return an attribute of environments, one value per row. Arguments as in `call`."""
        return self._values("get_attribute", (name,), rows)

    def set_attr(self, name: str, values: Sequence[object], *, rows: object = None) -> None:
        """Set an attribute of environments.

        Args:
            name: The name of the attribute.
            values: One value per row.
            rows: A mask `[N]` or indices `[B]`; None sets all.
        """
        indices = self._indices(rows)
        num_rows = self.num_envs if indices is None else len(indices)
        if len(values) != num_rows:
            raise InvalidBatchError(f"values: expected {num_rows}, one per row, got {len(values)}")
        self._check_free(indices)
        self._engine.run("set_attribute", (list(values),), (name, False), rows=indices).raise_errors()

    def render(self, *, rows: object = None) -> list[Any]:
        """Return the frame of each environment. Arguments as in `call`."""
        return self.call("render", rows=rows)

    def close(self) -> None:
        """Close the environments and the workers. Closing again does nothing."""
        self._engine.close()

    def __enter__(self) -> EnvPool:
        return self

    def __exit__(self, *exc_info: object) -> None:
        self.close()

    # -- helpers ------------------------------------------------------------------------------------

    def _finish(self, call: RowsCall) -> RowsResult:
        """Wait for a call, and return its results, with observations in the form for users."""
        self._engine.finish(call)
        result = call.result(InfoForm.VECTOR)
        if not isinstance(result.observations, list):
            return result
        return result._replace(observations=finish_rows(self.single_observation_space, result.observations))

    def _indices(self, rows: object) -> NDArray[np.intp] | None:
        return None if rows is None else checks.check_rows(rows, self.num_envs)

    def _values(self, operation: str, arguments: tuple[object, ...], rows: object) -> list[Any]:
        """Perform an operation that returns one value per row."""
        indices = self._indices(rows)
        self._check_free(indices)
        return self._engine.run(operation, (), arguments, rows=indices).values()

    def _check_free(self, rows: NDArray[np.intp] | None) -> None:
        sent, is_busy = self._in_flight
        if not sent:
            return
        busy = np.flatnonzero(is_busy) if rows is None else rows[is_busy[rows]]
        if len(busy):
            raise InvalidBatchError(f"rows: {busy.tolist()} are being stepped; call recv() first")
