"""Every backend, to run the same tests over all of them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import pytest
from ray_here import connect_ray
from toy_workers import ObjectWorker, ThreadWorker, over

import planvec
from planvec import BatchEnv, PlanEnv

__all__ = ["BACKENDS", "COMPILED", "DEFAULT", "HERE", "PROCESSES", "RAY", "TOYS", "Backend", "quick_or_slow"]


class Backend(NamedTuple):
    """A way to run batches.

    Attributes:
        name: For the names of tests.
        open: Opens a factory of environments, with a codec and a number of workers.
        has_stats: Whether it counts what it does.
        can_be_cloned: Whether it knows how its environments are made.
        mark: The mark of its tests, where it is not among the quick backends.
    """

    name: str
    open: Callable[..., PlanEnv | BatchEnv]
    has_stats: bool = True
    can_be_cloned: bool = True
    mark: pytest.MarkDecorator = pytest.mark.slow


def _plan_env(make: Any, num_workers: int = 2, codec: Any = None) -> PlanEnv:
    return PlanEnv(make, codec=codec)


def _in_process(make: Any, num_workers: int = 2, codec: Any = None) -> BatchEnv:
    return planvec.make(make, num_workers=0, codec=codec)


def _compiled(make: Any, num_workers: int = 2, codec: Any = None) -> PlanEnv:
    env = PlanEnv(make, codec=codec)
    env.stepper.kernel.load()  # nothing happens where there is no kernel
    return env


def _over_processes(method: str) -> Callable[..., BatchEnv]:
    def open_env(make: Any, num_workers: int = 2, codec: Any = None) -> BatchEnv:
        return planvec.make(make, num_workers=num_workers, start_method=method, codec=codec)

    return open_env


def _over_ray(make: Any, num_workers: int = 2, codec: Any = None) -> BatchEnv:
    connect_ray()
    return planvec.make(make, num_workers=num_workers, backend="ray", codec=codec)


def _over_toys(kind: type[ThreadWorker]) -> Callable[..., BatchEnv]:
    def open_env(make: Any, num_workers: int = 2, codec: Any = None) -> BatchEnv:
        return over(kind, lambda: PlanEnv(make, codec=codec), num_workers)

    return open_env


HERE = [Backend("PlanEnv", _plan_env, has_stats=False), Backend("InProcess", _in_process)]
COMPILED = Backend("compiled", _compiled, has_stats=False)
PROCESSES = [Backend(name, _over_processes(name)) for name in ("template", "fork", "spawn")]
TOYS = [
    Backend("threads", _over_toys(ThreadWorker), can_be_cloned=False),
    Backend("objects", _over_toys(ObjectWorker), can_be_cloned=False),
]
RAY = Backend("ray", _over_ray, mark=pytest.mark.ray_product)
BACKENDS = [*HERE, COMPILED, *PROCESSES, *TOYS, RAY]
DEFAULT = [*HERE, COMPILED, PROCESSES[0], *TOYS]
"""One of each kind, to run over in the quick suite."""


def quick_or_slow(backends: list[Backend], quick: list[Backend]) -> list[Any]:
    """Return the backends as parameters, marked where they are not among the quick ones."""
    return [
        pytest.param(backend, id=backend.name, marks=() if backend in quick else backend.mark)
        for backend in backends
    ]
