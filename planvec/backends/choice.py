"""Chooses where workers run: another kind of backend begins here."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, closing, nullcontext
from typing import Literal

from planvec.backends.base import Backend
from planvec.errors import InvalidBatchError, UnsupportedEnvError
from planvec.extras import install_command

BackendName = Literal["processes", "ray"]


def ray_opener(
    backend: object,
    num_workers: int | None,
    start_method: str | None,
    ray_address: str | None,
    ray_actor_options: Mapping[str, object] | None,
) -> Callable[..., Backend] | None:
    """Return the function that opens Ray's backend; None if workers are processes."""
    if backend == "processes":
        options = {"ray_address": ray_address, "ray_actor_options": ray_actor_options}
        given = [name for name, value in options.items() if value is not None]
        if given:
            raise InvalidBatchError(f'{given[0]}: expected None without backend="ray"')
        return None
    if backend != "ray":
        raise InvalidBatchError(f'backend: expected "processes" or "ray", got {backend!r}')
    if num_workers == 0:
        raise InvalidBatchError('num_workers: expected at least 1, or None, with backend="ray", got 0')
    if start_method is not None:
        raise InvalidBatchError(
            'start_method: expected None with backend="ray", which starts actors by itself'
        )
    if not isinstance(ray_address, str | None):
        raise InvalidBatchError(f'ray_address: expected "host:port", "auto" or None, got {ray_address!r}')
    if not isinstance(ray_actor_options, Mapping | None):
        raise InvalidBatchError(
            f"ray_actor_options: expected a dict of options of ray.remote, or None, got {ray_actor_options!r}"
        )
    try:
        from planvec.backends.ray.worker import over_ray
    except ModuleNotFoundError as error:
        raise UnsupportedEnvError(f'backend="ray" needs Ray: {install_command("ray")}') from error
    return over_ray


def ray_connection(backend: str, ray_address: str | None) -> AbstractContextManager[object]:
    """Return a connection to Ray to keep while several backends are opened; nothing for processes."""
    if backend != "ray":
        return nullcontext()
    from planvec.backends.ray.cluster import Cluster

    return closing(Cluster(ray_address, 1))
