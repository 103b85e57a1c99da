"""Holds the options of vector environments, and makes the environments of a process with them."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from gymnasium.vector import AutoresetMode

from planvec.codecs import Proof, registered_codecs
from planvec.vector.infos import InfoForm
from planvec.vector.resident_envs import ResidentEnvs
from planvec.vector.server import RowsServer
from planvec.vector.worker_rows import OnCrash


@dataclass(frozen=True, slots=True)
class EngineOptions:
    """Holds the options of a vector environment."""

    num_workers: int  # number of worker processes; 0 steps in this process
    mode: AutoresetMode  # when environments are reset by themselves
    info_form: InfoForm = InfoForm.VECTOR
    keeps_rewards: bool = False  # whether rewards of other dtypes than float64 are returned as they are
    start_method: str | None = None  # how workers are started; None takes the default
    timeout: float | None = None  # seconds that one operation may take in a worker; None: no limit
    max_restarts: int = 3  # how often an operation is retried after a worker exited on it
    # what happens to the rows of a worker that exits; None: restored if states are exact
    on_crash: OnCrash | None = None
    max_worker_rss: int | None = None  # bytes of memory above which a worker is replaced; None: no limit
    # modules that workers need and that take long to import; see `ExternalProcess`
    preload: tuple[str, ...] = ()
    advises: bool = False  # whether to say so if no workers would be faster
    # what proofs have shown of each environment, if each has a process of its own, in which no other one is
    # made; None otherwise
    proofs: Sequence[Proof | str | None] | None = None
    max_concurrency: int | None = None  # largest number of workers that work at the same time; None: all

    def for_rows(self, start: int, stop: int) -> EngineOptions:
        """Return the options of the worker of consecutive environments."""
        return self if self.proofs is None else replace(self, proofs=self.proofs[start:stop])


class ServerFactory:
    """Makes the `RowsServer` of a worker."""

    def __init__(self, env_fns: Sequence[Callable[[], Any]], options: EngineOptions, first_row: int) -> None:
        self._env_fns = env_fns
        self._options = options
        self._codecs = registered_codecs()
        # As after a fork, where Python seeds `random` anew and leaves the generator of NumPy as it is. But a
        # script that seeds them has the same environments in every run.
        self._numpy_state = np.random.get_state()  # noqa: NPY002
        self._random_state, self._first_row = random.getstate(), first_row

    def __call__(self) -> RowsServer:
        self._codecs.install()
        random.setstate(self._random_state)
        if self._first_row:
            random.seed(f"{random.getrandbits(64)} {self._first_row}")
        np.random.set_state(self._numpy_state)  # noqa: NPY002
        resident = make_resident(self._env_fns, self._options, as_bytes=True)
        return RowsServer(resident, self._options.num_workers)


def make_resident(
    env_fns: Sequence[Callable[[], Any]], options: EngineOptions, *, as_bytes: bool
) -> ResidentEnvs:
    """Make environments. If one raises, close the others."""
    return ResidentEnvs(
        env_fns,
        options.mode,
        options.info_form,
        keeps_rewards=options.keeps_rewards,
        as_bytes=as_bytes,
        saves_states=options.on_crash in (None, OnCrash.RESTORE),
        proofs=options.proofs,
    )
