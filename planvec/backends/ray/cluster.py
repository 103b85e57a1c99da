"""Connects to a Ray cluster, or starts Ray on this machine.

A process is connected to one cluster at a time. Backends that are open at the same time share the connection;
the last one that is closed stops Ray, if planvec has started it.
"""

from __future__ import annotations

import logging
import os
import socket
import threading
from typing import Any

import ray

from planvec.errors import InvalidBatchError, WorkerStartError

_log = logging.getLogger("planvec")
_CONNECT_SECONDS = 10.0  # longest time for a cluster to accept a connection, and to answer
_FRAME_SIZE = 9
_SETTINGS = b"\4"
# Begins HTTP/2, on which Ray's protocol is built. The answer begins with a frame of the type "settings".
_GREETING = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + bytes(3) + _SETTINGS + bytes(5)
_ADVICE = "Start a cluster with `ray start --head`, and pass the address that it prints"

_lock = threading.Lock()
_users: set[Cluster] = set()  # the open clusters, once planvec has started Ray in this process
# the connection of this process -> the address that planvec connected it to, as the user wrote it
_addresses: dict[tuple[str, str], str] = {}


class Cluster:
    """Is a connection to Ray."""

    # `address`: host:port, "auto" (this machine's cluster), "local" (start Ray here); None: this process's
    # connection, else RAY_ADDRESS, else start Ray.

    def __init__(self, address: str | None, num_cpus: float) -> None:
        with _lock:
            if address is None and not ray.is_initialized():
                address = os.environ.get("RAY_ADDRESS", "local")
            if ray.is_initialized():
                _check_connected(address)
                _users.intersection_update({user for user in _users if user.is_connected})
                if _users:
                    _users.add(self)
            elif address == "local":
                _start(num_cpus)
                _users.add(self)
            else:
                assert address is not None
                _connect(address)
            self._pid, self._connection = os.getpid(), _connection()
            if address is not None:
                _addresses.setdefault(self._connection, address)

    @property
    def is_connected(self) -> bool:
        """Whether this process still has the connection: not after `ray.shutdown()`, and not in a fork."""
        return os.getpid() == self._pid and ray.is_initialized() and _connection() == self._connection

    def close(self) -> None:
        """Stop Ray, if planvec has started it and no other backend uses it. Closing again does nothing."""
        with _lock:
            if self in _users:
                _users.remove(self)
                if not _users and self.is_connected:
                    ray.shutdown()


def _connection() -> tuple[str, str]:
    """Return what tells the present connection from every other one: the cluster and the job."""
    context = ray.get_runtime_context()
    return context.gcs_address, context.get_job_id()


def _check_connected(address: str | None) -> None:
    """Check that this process is not connected to another cluster than the one that is wanted."""
    present, _ = connection = _connection()
    if address not in (None, "auto", present, _addresses.get(connection)):
        raise InvalidBatchError(
            f"ray_address: expected {present!r} or None, since this process is connected to that cluster, "
            f"got {address!r}; ray.shutdown() ends that connection, and all environments that use it"
        )


def _start(num_cpus: float) -> None:
    num_cpus = max(os.cpu_count() or 1, int(-(-num_cpus // 1)))
    # Without an address, Ray would take a cluster that runs on this machine, and refuse `num_cpus`.
    ray.init(address="local", num_cpus=num_cpus, include_dashboard=False, logging_level=logging.WARNING)
    _log.warning(
        "Ray was started on this machine with %d CPUs; the last close() stops it. To use a cluster, pass "
        'ray_address="host:port", or "auto" for the one of this machine',
        num_cpus,
    )


def _connect(address: str) -> None:
    if address != "auto":
        _check_answers(address)
    try:
        ray.init(address=address, logging_level=logging.WARNING)
    except (ConnectionError, RuntimeError, ValueError) as error:
        raise WorkerStartError(
            f"ray_address: expected the address of a Ray cluster, got {address!r}, to which Ray cannot "
            f"connect ({_reason(error)}). {_ADVICE}"
        ) from error


def _check_answers(address: str) -> None:
    """Check quickly whether a cluster answers at an address: Ray itself tries for minutes."""
    host, _, port = address.rpartition(":")
    if not host or not port.isdigit() or "://" in address:
        raise InvalidBatchError(
            f'ray_address: expected "host:port" of a cluster, "auto" or None, got {address!r}; the program '
            "must run on a machine of the cluster (Ray Client, ray://, is not supported)"
        )
    answer = b""
    try:
        with socket.create_connection((host, int(port)), _CONNECT_SECONDS) as sock:
            if os.environ.get("RAY_USE_TLS") == "1":
                return  # its server waits for a greeting in TLS
            sock.settimeout(_CONNECT_SECONDS)
            sock.sendall(_GREETING)
            answer = sock.recv(_FRAME_SIZE, socket.MSG_WAITALL)
        problem = "" if answer[3:4] == _SETTINGS else "another program answers there"
    except TimeoutError:
        problem = f"nothing answers there within {_CONNECT_SECONDS:g} s"
    except OSError as error:
        problem = f"nothing answers there ({error})"
    if problem:
        raise WorkerStartError(
            f"ray_address: expected the address of a Ray cluster, got {address!r}; {problem}. {_ADVICE}"
        )


def _reason(error: BaseException) -> str:
    """Return the line of Ray's text that says most: the text may hold a whole traceback."""
    lines = [line for line in str(error.__cause__ or error).splitlines() if line.strip()]
    return ([line for line in lines if "Error: " in line] or lines or [type(error).__name__])[-1]


def cluster_nodes() -> list[dict[str, Any]]:
    """Return Ray's description of each node: "NodeID", "Alive", "Resources" and more."""
    nodes: Any = ray.nodes  # without types
    described: list[dict[str, Any]] = nodes()
    return described
