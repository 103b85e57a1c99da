"""The child's side: hosts one object and answers requests until the parent hangs up."""

from __future__ import annotations

import contextlib
import os
import pickle
import signal
import socket
import sys
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import cloudpickle
import numpy as np
from numpy.typing import NDArray

from planvec.arrays import Batch
from planvec.errors import EnvError
from planvec.infos import Columns, check_picklable, decode_columns, encode_columns
from planvec.plan_env import EnvDescription, PlanEnv
from planvec.rollouts import RolloutOutputs, RolloutPlan
from planvec.workers.failures import Failure
from planvec.workers.messages import Channel, Frame
from planvec.workers.slab import Slab, Slot

__all__ = ["DONE", "FAILED", "READY", "Call", "Loose", "RolloutOptions", "main"]

READY = b"ready"
"""The object was made; the payload is what its `describe()` says."""
DONE = b"done"
"""The request was carried out; the payload is what does not fit into the slab."""
FAILED = b"failed"
"""It raised; the payload is a `Failure`."""


@dataclass(slots=True)
class Call:
    """A method call on the hosted object. `kind`: "call", "get" or "set" (an attribute)."""

    name: str
    args: tuple[Any, ...] = ()
    kwargs: dict[str, Any] | None = None
    kind: str = "call"


@dataclass(slots=True)
class Loose:
    """Rows whose size is not fixed, which cannot lie in the slab; None where they do.

    Infos of numbers and arrays travel as bytes, all else is pickled.
    """

    states: Any = None
    actions: Any = None
    observations: Any = None
    columns: Columns | None = None

    def pack(self) -> bytes:
        """The payload of a frame; empty where everything lies in the slab.

        Raises:
            EnvError: An info cannot be pickled; names its key.
        """
        if self.states is None and self.actions is None and self.observations is None:
            if self.columns is None:
                return b""
            encoded = encode_columns(self.columns)
            if encoded is not None:
                return _COLUMNS + encoded
        try:
            return pickle.dumps(self, protocol=5)
        except Exception:
            if self.columns:
                check_picklable(self.columns)
            raise

    @classmethod
    def unpack(cls, payload: bytes) -> Loose:
        """What was packed."""
        if not payload:
            return _NOTHING
        if payload.startswith(_COLUMNS):
            return cls(columns=decode_columns(payload[len(_COLUMNS) :]))
        loose: Loose = pickle.loads(payload)
        return loose


_COLUMNS = b"columns:"
"""Begins a payload of encoded infos. A pickle begins with another byte."""
_NOTHING = Loose()


@dataclass(slots=True)
class RolloutOptions:
    """The arguments of `rollout_batch` that are not rows; see `RolloutPlan`."""

    horizon: int
    actions: Any
    seed: int
    first_row: int
    discount: float


def main(sock: socket.socket, memory: Any, factory: bytes) -> None:
    """Run a worker: the target of the process.

    Args:
        sock: The worker's end of the pair.
        memory: Holds the file descriptor of the slab (`.detach()`).
        factory: The cloudpickled factory of the hosted object.
    """
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the parent's business
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})
    channel = Channel(sock)
    hosted = None
    try:
        hosted = _open(channel, memory.detach(), factory)
        if hosted is not None:
            hosted.serve()
    except OSError:
        pass  # the parent is gone: nobody is left to tell
    finally:
        with contextlib.suppress(BaseException):
            if hosted is not None:
                hosted.close()
        for stream in (sys.stdout, sys.stderr):
            with contextlib.suppress(Exception):
                stream.flush()
        # Not sys.exit: threads that the environment left behind must not keep the process alive.
        os._exit(0)


def _open(channel: Channel, memory: int, factory: bytes) -> _Host | None:
    """Make the hosted object and report it, or what went wrong."""
    try:
        make = cloudpickle.loads(factory)
        _adopt_classes()
        hosted = make()
        describe = getattr(hosted, "describe", None)
        description = describe() if callable(describe) else None
        payload = cloudpickle.dumps(description)
        host = _Host(channel, hosted, description, memory)
    except BaseException as error:
        channel.send(Frame(0, FAILED, payload=pickle.dumps(Failure.of(error))))
        return None
    channel.send(Frame(0, READY, payload=payload))
    return host


def _adopt_classes() -> None:
    """Let classes of the user's script be found by name, as they are in the parent.

    cloudpickle has sent them by value; states and infos that hold instances of them are pickled by
    name, so that their bytes are the same in every process.
    """
    tracked = getattr(cloudpickle.cloudpickle, "_DYNAMIC_CLASS_TRACKER_BY_CLASS", {})
    main_module = sys.modules["__main__"]
    for cls in list(tracked):
        if cls.__module__ == "__main__" and "." not in cls.__qualname__:
            vars(main_module).setdefault(cls.__qualname__, cls)


class _Host:
    """Answers requests, one after another.

    Args:
        channel: To the parent.
        hosted: The object.
        description: Of the environment, where it is a `PlanEnv`.
        memory: The file descriptor of the slab.
    """

    def __init__(self, channel: Channel, hosted: Any, description: Any, memory: int) -> None:
        self._channel = channel
        self._hosted = hosted
        self._verbs: dict[bytes, Callable[[Frame], bytes]] = {b"call": self._call}
        self._slots: list[Slot] = []
        if isinstance(hosted, PlanEnv) and isinstance(description, EnvDescription):
            self._slots = Slab(description, memory).slots
            self._verbs |= {
                b"step": self._step,
                b"rollout": self._rollout,
                b"observe": self._observe,
            }

    def serve(self) -> None:
        """Answer until the parent hangs up."""
        channel = self._channel
        while True:
            channel.wait()
            frame = channel.receive()
            assert frame is not None  # this end of the channel waits
            try:
                payload = self._verbs[frame.verb](frame)
                verb = DONE
            except BaseException as error:
                payload, verb = pickle.dumps(Failure.of(error)), FAILED
            channel.send(Frame(frame.ticket, verb, frame.slot, frame.num_rows, payload))

    def close(self) -> None:
        """Close the hosted object, where it can be closed."""
        close = getattr(self._hosted, "close", None)
        if callable(close):
            close()

    def _call(self, frame: Frame) -> bytes:
        call: Call = cloudpickle.loads(frame.payload)
        _adopt_classes()
        if call.kind == "set":
            setattr(self._hosted, call.name, *call.args)
            return b""
        value = getattr(self._hosted, call.name)
        if call.kind == "call":
            value = value(*call.args, **(call.kwargs or {}))
        try:
            payload: bytes = cloudpickle.dumps(value)
        except Exception as error:
            raise EnvError(
                f"{call.name}: its value, a {type(value).__name__}, cannot be pickled ({error})"
            ) from error
        return payload

    def _step(self, frame: Frame) -> bytes:
        view = self._slots[frame.slot].first(frame.num_rows)
        loose = Loose.unpack(frame.payload)
        batch = Batch(
            loose.states if view.states is None else view.states,
            loose.actions if view.actions is None else view.actions,
            view.dt,
            view.seeds if view.has_seeds[0] else None,
        )
        assert view.outputs is not None
        out = view.outputs
        if not view.return_state[0] or view.new_states is None or view.observations is None:
            wanted = _states_of(view, frame.num_rows) if view.return_state[0] else None
            out = replace(out, new_states=wanted)
            if view.observations is None:
                out.observations = [None] * frame.num_rows
        columns = self._hosted.rows.step(batch, out)
        if out is view.outputs and not columns:
            return b""  # everything lies in the slab
        return Loose(
            states=out.new_states if view.new_states is None else None,
            observations=out.observations if view.observations is None else None,
            columns=columns or None,
        ).pack()

    def _rollout(self, frame: Frame) -> bytes:
        view = self._slots[frame.slot].first(frame.num_rows)
        options, loose = pickle.loads(frame.payload)
        plan = RolloutPlan(
            states=loose.states if view.states is None else view.states,
            horizon=options.horizon,
            actions=options.actions,
            seed=options.seed,
            first_row=options.first_row,
            seeds=view.seeds if view.has_seeds[0] else None,
            discount=options.discount,
        )
        out = RolloutOutputs(
            _states_of(view, frame.num_rows),
            view.rewards,
            view.num_steps,
            view.terminated,
            view.truncated,
        )
        self._hosted.rows.rollout(plan, out)
        return Loose(states=out.final_states if view.new_states is None else None).pack()

    def _observe(self, frame: Frame) -> bytes:
        view = self._slots[frame.slot].first(frame.num_rows)
        states = Loose.unpack(frame.payload).states if view.states is None else view.states
        listed: list[Any] | None = [None] * frame.num_rows if view.observations is None else None
        self._hosted.rows.observe(states, view.observations if listed is None else listed)
        return Loose(observations=listed).pack()


def _states_of(view: Slot, num_rows: int) -> NDArray[Any]:
    """Where new states are written: the slot, or an array of objects that travels in the message."""
    return np.empty(num_rows, object) if view.new_states is None else view.new_states
