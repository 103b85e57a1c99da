"""Defines `planvec.make`, which opens a `BatchEnv` from an id, a spec or a factory."""

from __future__ import annotations

import contextlib
import logging
import os
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any, Literal

import gymnasium
from gymnasium.envs.registration import EnvSpec, load_env_creator

from planvec.backends import (
    DEFAULT_AUDIT,
    Backend,
    BackendName,
    ExternalProcess,
    InProcess,
    Stats,
    check_audit,
    check_limits,
    default_num_workers,
    num_cores,
    open_processes,
    over_processes,
    ray_opener,
)
from planvec.codecs import (
    ADVICE,
    CodecChoice,
    Env,
    RandomWalk,
    StateCodec,
    check_codec,
    codec_for,
    digest,
    registered_codecs,
)
from planvec.envs.env_calls import Blocking, EnvCalls, Mode
from planvec.envs.sources import EnvSource, find_source, is_game, make_env
from planvec.errors import InvalidBatchError, PlanvecError, UnsupportedEnvError
from planvec.kernels import has_kernel, has_own_kernel, is_harmless, may_have_kernel, registered_kernels
from planvec.rows import check_compiled, check_info_keys, wait_for
from planvec.stepping import EnvStepper

_log = logging.getLogger("planvec")


@contextlib.contextmanager
def _closed_on_error(*opened: Any) -> Iterator[None]:
    """Close what was opened if what follows raises."""
    try:
        yield
    except BaseException:
        for each in opened:
            each.close()
        raise


# -- Defines `PlanEnv`, which steps one environment in this process from any of its states -------------------


class PlanEnv(EnvCalls[Literal[True]]):
    """Steps one environment in this process. Its transitions are pure functions of (state, action, dt, seed).

    It is a `BatchStepper`, so planners can use it without workers. Each worker process hosts a `PlanEnv`, and
    `planvec.make` with `num_workers=0` uses one.

    Args:
        env: A Gymnasium id, an `EnvSpec`, a factory, or a `gymnasium.Env`, which this object closes.
        codec: How states are saved, as for `planvec.codec_for`.
        info_keys: The info keys to keep; None keeps all, `()` none.
        render_mode: The argument of `gymnasium.make`, if `env` is an id or a spec.
        env_kwargs: Other arguments of `gymnasium.make`, if `env` is an id or a spec.
        trust: Whether to use the codec without verifying it.
        audit: Part of the time of all steps in which rows are stepped a second time. If the results differ,
            the call raises `UnsupportedEnvError`.
        compiled: Whether to step with a kernel, which gives the same bits: None takes it when it saves time,
            True at once, and fails if there is none.
        num_threads: Number of threads that step a batch with a kernel; None takes one per available core.

    Attributes:
        codec: Saves and restores the environment.
        stepper: Performs requests whose arguments have been checked. Workers use it.

    Raises:
        UnsupportedEnvError: The environment cannot be saved exactly. The message says what to do.
        TypeError: `env` is none of these, or there are arguments for a factory.
    """

    def __init__(
        self,
        env: EnvSource,
        *,
        codec: CodecChoice = None,
        info_keys: Sequence[str] | None = None,
        render_mode: str | None = None,
        env_kwargs: Mapping[str, object] | None = None,
        trust: bool = False,
        audit: float = DEFAULT_AUDIT,
        compiled: bool | None = None,
        num_threads: int | None = None,
    ) -> None:
        check_info_keys(info_keys)
        check_compiled(compiled, num_threads)
        check_codec(codec)
        check_audit(audit)
        made = make_env(env, render_mode, env_kwargs)
        with _closed_on_error(made):
            another = None if made is env else partial(make_env, env, render_mode, env_kwargs)
            self.codec: StateCodec = codec_for(
                made, codec, info_keys=info_keys, trust=trust, make_another=another
            )
            threads = num_cores() if num_threads is None else num_threads
            self.stepper = EnvStepper(made, self.codec, info_keys, compiled, threads)
        super().__init__(InProcess(self.stepper, audit), blocking=True)
        self._source = env
        self._options: dict[str, Any] = {
            "codec": codec,
            "info_keys": info_keys,
            "render_mode": render_mode,
            "env_kwargs": env_kwargs,
            "trust": trust,
            "audit": audit,
            "compiled": compiled,
            "num_threads": num_threads,
        }

    @property
    def env(self) -> Env:
        """The environment. Its state is that of the row that it stepped last; kernels do not step it."""
        return self.stepper.env

    def clone(self) -> PlanEnv:
        """Open another `PlanEnv` of the same environment, with the same base state.

        Raises:
            TypeError: This `PlanEnv` was opened with a `gymnasium.Env`, which cannot be cloned.
        """
        if isinstance(self._source, gymnasium.Env):
            raise TypeError(
                "clone: expected a PlanEnv opened with an id, an EnvSpec or a factory, got one opened with "
                f"the environment {self._source}"
            )
        other = PlanEnv(self._source, **self._options)
        other.set_state(self.get_state())
        return other

    def __repr__(self) -> str:
        name = self.spec.id if self.spec is not None else self._about.state_format.origin
        return f"<PlanEnv of {name}{', closed' if self._closed else ''}>"


# -- Defines `BatchEnv`, which steps batches of states with several workers ----------------------------------

Workers = Sequence[ExternalProcess] | PlanEnv | Backend


class BatchEnv(EnvCalls[Mode]):
    """Steps batches of states. The results have the same bits with any number of workers.

    With workers, a crash of the environment cannot end this process. It has an environment of its own only
    for small batches of Gymnasium's classic control and toy text, which do not crash, and only if these were
    made by id, without `timeout`, `max_worker_rss` and `codec`.

    Args:
        workers: Processes that each host a `PlanEnv` of the same environment; or one `PlanEnv`, to step in
            this process; or a `Backend`. `close()` closes them.
        blocking: Whether batch calls wait for their result by default; otherwise they return a `Promise`.
        timeout: Seconds that one chunk of a batch may take before its worker is killed; None: no limit.
        max_restarts: How often a row is retried after a worker crashed on it. Then `WorkerCrashedError` names
            the row. Workers are replaced in any case.
        max_worker_rss: Bytes of resident memory above which a worker is replaced between two chunks, for
            environments that leak memory; None: no limit.
        audit: Part of the time of all steps in which some rows are stepped a second time, by another worker
            if there is one. If the results differ, the next call raises `UnsupportedEnvError`.

    Raises:
        InvalidBatchError: An argument is wrong.
        WorkerStartError: A worker did not become ready. No worker is left.
        UnsupportedEnvError: The environment cannot be saved exactly. The message says what to do.
    """

    def __init__(
        self: BatchEnv[Blocking],
        workers: Workers,
        *,
        blocking: Blocking = True,  # type: ignore[assignment] # of each of its types
        timeout: float | None = None,
        max_restarts: int = 3,
        max_worker_rss: int | None = None,
        audit: float = DEFAULT_AUDIT,
    ) -> None:
        if not isinstance(blocking, bool):
            raise InvalidBatchError(f"blocking: expected True or False, got {blocking!r}")
        check_limits(timeout, max_restarts, max_worker_rss)
        check_audit(audit)
        limits: dict[str, Any] = {
            "timeout": timeout,
            "max_restarts": max_restarts,
            "max_worker_rss": max_worker_rss,
            "audit": audit,
        }
        self._limits = {"blocking": blocking, **limits}
        self._processes: tuple[ExternalProcess, ...] = ()
        self._reopen: Callable[[], Workers] | None = None
        backend: Backend
        if isinstance(workers, PlanEnv):
            self._reopen = workers.clone
            backend = InProcess(workers.stepper, audit)
        elif isinstance(workers, Sequence):
            if not len(workers):
                raise InvalidBatchError(
                    "workers: expected at least one ExternalProcess, or a PlanEnv, got none"
                )
            processes = self._processes = tuple(workers)
            self._reopen = lambda: [process.clone() for process in processes]
            backend = over_processes(workers, **limits)
        else:
            if (timeout, max_restarts, max_worker_rss, audit) != (None, 3, None, DEFAULT_AUDIT):
                raise InvalidBatchError(
                    "timeout, max_restarts, max_worker_rss, audit: expected the defaults with a backend, "
                    "which has limits of its own; pass them to the backend"
                )
            backend = workers
        super().__init__(backend, blocking)
        if self._about.warning:
            try:
                warnings.warn(self._about.warning, UserWarning, stacklevel=2)
            except UserWarning:  # some packages make errors of all warnings, when they are imported
                _log.warning("%s", self._about.warning)

    @property
    def num_workers(self) -> int:
        """Number of workers; 0 if rows are stepped in this process."""
        return self._backend.num_workers

    @property
    def workers(self) -> tuple[ExternalProcess, ...]:
        """The worker processes; empty if there are none."""
        return self._processes

    @property
    def stats(self) -> Stats:
        """Counts since the environment was opened: rows, chunks, retries, and workers replaced, by reason."""
        return self._backend.stats

    def sync_states(self, state: object) -> None:
        """Make a state the base state here and in every worker. Later calls of any worker find it there.

        Batch calls do not need this, because they send the states from which rows start. Use it before you
        call single workers directly.

        Args:
            state: One state.

        Raises:
            InvalidBatchError: It is not one state of this environment.
        """
        self.set_state(state)
        wait_for(self._backend.sync_base_state())

    def clone(self) -> BatchEnv[Mode]:
        """Open another `BatchEnv` of the same environment, with as many workers and the same base state.

        Raises:
            TypeError: This `BatchEnv` was opened with a `gymnasium.Env` or a `Backend`, which cannot be
                cloned.
        """
        if self._reopen is None:
            raise TypeError(
                "clone: expected a BatchEnv opened with planvec.make, got one over the backend "
                f"{self._backend!r}; open a second backend and pass it to BatchEnv"
            )
        other: BatchEnv[Any] = BatchEnv(self._reopen(), **self._limits)
        other._reopen = other._reopen or self._reopen
        other.set_state(self.get_state())
        return other

    def __repr__(self) -> str:
        name = self.spec.id if self.spec is not None else self._about.state_format.origin
        workers = "closed" if self._closed else f"num_workers={self.num_workers}"
        return f"<BatchEnv of {name}, {workers}>"


# -- Tells from the class of an environment, before it is made, whether it has a kernel ----------------------

Makeable = str | EnvSpec | Callable[[], Env]


def _class_of(env: Makeable) -> Any:
    """Return the class of an environment that may have a kernel; None if it has none, or is a factory."""
    # Other classes are not imported here, where workers step.
    if isinstance(env, type):
        return env
    if not isinstance(env, EnvSpec) or env.entry_point is None or env.additional_wrappers:
        return None
    entry = env.entry_point
    if not isinstance(entry, str):
        return entry
    return load_env_creator(entry) if may_have_kernel(entry) else None


# -- Checks that an environment does not depend on hashes of texts, which differ from process to process.
#
# Workers have the same hash seed, so that they agree with each other. The process of the user has another
# one.

OUTCOMES = "the outcome of a step"
# digests along a random walk: of the outcomes of its steps, and of each attribute, by its name
Record = Mapping[str, Sequence[bytes]]

_HASH_SEED = "PYTHONHASHSEED"
# A set of two texts has the same order with every other seed: one such set escapes four seeds once in 8
_SEEDS = ("0", "1", "2", "3")


def check_hash_seeds(env: BatchEnv[Any], record: Callable[[], Record]) -> None:
    """Take the same random walk in processes with several hash seeds, where hashes may have an influence."""
    # Digests that differ between two processes with one seed say nothing: the clock, a map that is drawn
    # anew. An environment that cannot be made beside another one, or elsewhere, is not checked.
    if not env._about.uses_hashes or os.environ.get(_HASH_SEED, "random") != "random":
        return  # hashes are the same in all processes if the user has chosen their seed
    try:
        first, *others = _records(record, _SEEDS)
        different = [what for what in first if any(_differ(what, first, other) for other in others)]
        if not different:
            return
        (again,) = _records(record, _SEEDS[:1])
    except PlanvecError:
        return
    if _differ(OUTCOMES, first, again):
        return
    for what in different:
        if not _differ(what, first, again):
            name = env._about.state_format.origin if env.spec is None else env.spec.id
            raise UnsupportedEnvError(
                f"{name}: {what} depends on hashes or addresses, which differ from process to process: a set "
                "of texts has another order in each, and so have hash() and id() other values. Use "
                "sorted(...), a dict or a list instead of the set, and zlib.crc32 instead of hash(). Or set "
                f"the environment variable {_HASH_SEED}=0 before Python starts: hashes are then the same "
                "everywhere" + (f". {ADVICE}" if what != OUTCOMES else "")
            )


def _differ(what: str, first: Record, other: Record) -> bool:
    """Return whether two walks differ, as far as both went: the faster one is longer."""
    return any(one != two for one, two in zip(first[what], other.get(what, ()), strict=False))


def _records(record: Callable[[], Record], seeds: Sequence[str]) -> list[Record]:
    """Return the records from processes with these hash seeds, which run at the same time."""
    with contextlib.ExitStack() as stack:
        processes = [
            stack.enter_context(ExternalProcess(record, environ={_HASH_SEED: seed})) for seed in seeds
        ]
        return [process.call("copy").result() for process in processes]


class _Factory:
    """Makes the `PlanEnv` of a worker, after it installed the codecs and kernels of the user."""

    def __init__(self, source: Makeable, options: dict[str, Any]) -> None:
        self._source = source
        self._options = options
        self._codecs = registered_codecs()
        self._kernels = registered_kernels()
        entry = source.entry_point if isinstance(source, EnvSpec) and not source.additional_wrappers else None
        if isinstance(entry, str):
            module, _, name = entry.partition(":")
        else:
            module, name = getattr(entry, "__module__", None) or "", getattr(entry, "__name__", "")
        # Returns a stepper of the environment in the process of the user, if that may step it, too: it is in
        # pure Python, of Gymnasium, saved by planvec's codec, and shows no window. (A kernel would take long
        # to load.) Else None.
        is_harmless_env = (
            (options["codec"], options["render_mode"], options["compiled"]) == (None, None, False)
            and is_harmless(module, name)
            and _class_of(source) not in self._codecs.envs
        )
        self.open_here: Callable[[], EnvStepper] | None = self._stepper if is_harmless_env else None

    def __call__(self) -> PlanEnv:
        self._codecs.install()
        self._kernels.install()
        return PlanEnv(self._source, **self._options)

    def record(self) -> Record:
        """Return what is compared between processes with different hash seeds."""
        self._codecs.install()
        self._kernels.install()
        with PlanEnv(self._source, **{**self._options, "compiled": False}, trust=True) as env:
            walk = RandomWalk(env.codec, env.env, self._options["info_keys"])
        record = {OUTCOMES: [digest(outcome and outcome[:4]) for _, outcome in walk.steps]}
        for point in walk.points:
            for name, part in point.digests.items():
                record.setdefault(name, []).append(part)
        return record

    def _stepper(self) -> EnvStepper:
        return PlanEnv(self._source, **self._options).stepper


def make(
    env: Makeable,
    *,
    num_workers: int | None = None,
    backend: BackendName = "processes",
    blocking: Blocking = True,  # type: ignore[assignment] # of each of its types
    start_method: str | None = None,
    timeout: float | None = None,
    max_restarts: int = 3,
    max_worker_rss: int | None = None,
    audit: float = DEFAULT_AUDIT,
    info_keys: Sequence[str] | None = None,
    codec: CodecChoice = None,
    compiled: bool | None = None,
    render_mode: str | None = None,
    env_kwargs: Mapping[str, object] | None = None,
    ray_address: str | None = None,
    ray_actor_options: Mapping[str, object] | None = None,
) -> BatchEnv[Blocking]:
    """Open an environment for planning. Its base state is the state of `reset(seed=0)`, until you reset it.

    Args:
        env: A Gymnasium id, with or without its version, an `EnvSpec`, or a factory without arguments that
            returns a `gymnasium.Env` or a game of PettingZoo (see `planvec.pettingzoo`). The factory may be a
            lambda, a closure or a function from a notebook, or be named: "module:function" or
            "path/file.py:function".
        num_workers: Number of workers; 0 steps in this process; None takes one per available core but that of
            the caller (on two cores, two), one per core of a cluster, or 0 if there is a kernel (`compiled`).
            Small blocking batches of Gymnasium's classic control and toy text are stepped in this process if
            that is faster, and no `timeout`, `max_worker_rss` or `codec` is given.
        backend: "processes" runs workers on this machine, "ray" in actors of a Ray cluster.
        blocking: Whether batch calls wait for their result by default; otherwise they return promises.
        start_method: How workers are started: "template" (default), "spawn" or "fork". Scripts
            need no `__main__` guard.
        timeout: Seconds that one chunk of a batch may take before its worker is killed; None: no limit.
        max_restarts: How often a row is retried after a worker crashed on it.
        max_worker_rss: Bytes of resident memory above which a worker is replaced between two chunks; None: no
            limit.
        audit: Part of the time of all steps in which some rows are stepped a second time, by another worker
            if there is one. If the results differ, the next call raises `UnsupportedEnvError`.
        info_keys: The info keys to keep; None keeps all, `()` none.
        codec: How states are saved: None chooses; "copied", "replay", a subclass of `planvec.Codec` or
            `planvec.Copied([...])` is used in any case. `planvec.codec_for` says more.
        compiled: Whether to step with the compiled kernel of the environment, which gives the same bits. None
            takes it in this process as soon as it saves time, and starts no workers where there is a kernel
            and `num_workers` is not given. True takes it at once, in workers too, and fails if there is none.
        render_mode: The argument of `gymnasium.make`, if `env` is an id or a spec. `render` needs
            "rgb_array".
        env_kwargs: Other arguments of `gymnasium.make`, if `env` is an id or a spec.
        ray_address: `host:port` of a Ray cluster, or "auto" for the one that runs on this machine. None takes
            the cluster that this process is connected to, or that the variable `RAY_ADDRESS` names; if there
            is none, Ray is started on this machine until `close`.
        ray_actor_options: Options of `ray.remote` for each actor, such as `num_cpus` (default 1),
            `resources` and `runtime_env`.

    Raises:
        TypeError: `env` is an environment, which cannot be made once per worker.
        ValueError: `num_workers` is not an integer of at least 0.
        InvalidBatchError: Another argument is wrong.
        gymnasium.error.Error: The id is unknown. With `num_workers=0` also any error of `gymnasium.make`.
        UnsupportedEnvError: The environment cannot be saved exactly, or `codec` is none of these. The message
            says what to do.
        WorkerStartError: A worker did not become ready. Its cause holds the remote traceback.
    """
    if isinstance(env, gymnasium.Env) or is_game(env):
        raise TypeError(
            f"env: expected an id, an EnvSpec or a factory, got the environment {env}; every worker "
            "makes its own environment: pass a factory (lambda: make_it()), or open BatchEnv(PlanEnv(env)), "
            "which steps in this process"
        )
    is_number = isinstance(num_workers, int) and not isinstance(num_workers, bool)
    if num_workers is not None and (not is_number or num_workers < 0):
        raise ValueError(f"num_workers: expected an integer of at least 0, got {num_workers!r}")
    over_ray = ray_opener(backend, num_workers, start_method, ray_address, ray_actor_options)
    check_codec(codec)
    check_info_keys(info_keys)
    check_compiled(compiled, None)
    if isinstance(env, str):
        # Here, because ids that the user's script registers are unknown in workers.
        env = find_source(env)
    options: dict[str, Any] = {
        "codec": codec,
        "info_keys": info_keys,
        "render_mode": render_mode,
        "env_kwargs": env_kwargs,
        "compiled": compiled,
    }
    limits: dict[str, Any] = {
        "timeout": timeout,
        "max_restarts": max_restarts,
        "max_worker_rss": max_worker_rss,
        "audit": audit,
    }
    opened: BatchEnv[Any]
    # A codec of the user saves other states than those that kernels step.
    asks_for_workers = (num_workers, over_ray, start_method, timeout, max_worker_rss, codec) != (None,) * 6
    env_class = None if asks_for_workers or compiled is False else _class_of(env)
    with_kernel = has_own_kernel(env_class) or (
        has_kernel(env_class) and env_class not in registered_codecs().envs
    )
    if num_workers == 0 or with_kernel:
        opened = BatchEnv(PlanEnv(env, **options), blocking=blocking, **limits)
        factory = _Factory(env, options)
    else:
        # A kernel in a worker uses its one core, and only if the user asks for it.
        factory = _Factory(env, {**options, "compiled": compiled is True, "num_threads": 1})
        if over_ray is not None:
            open_backend = partial(
                over_ray, factory, address=ray_address, actor_options=ray_actor_options, **limits
            )
            over_actors = open_backend(num_workers=num_workers)
            with _closed_on_error(over_actors):
                opened = BatchEnv(over_actors, blocking=blocking)
            opened._reopen = partial(open_backend, num_workers=opened.num_workers)
            return opened
        number = default_num_workers() if num_workers is None else num_workers
        workers = open_processes([factory] * number, start_method=start_method)
        with _closed_on_error(*workers):
            opened = BatchEnv(workers, blocking=blocking, **limits)
    with _closed_on_error(opened):
        check_hash_seeds(opened, factory.record)
    return opened
