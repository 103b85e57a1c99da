"""The child's side: hosts one object and answers requests until the parent hangs up."""

from __future__ import annotations

import pickle
import sys
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import cloudpickle
import numpy as np

from planvec.backends.processes.wire.channel import Channel, Frame
from planvec.backends.processes.wire.failures import Failure
from planvec.backends.processes.wire.slab import Slab, Slot
from planvec.envs.plan_env import EnvDescription, PlanEnv
from planvec.errors import EnvError
from planvec.rows.checks import Batch
from planvec.rows.infos import Columns, decode_columns, encode_columns, forget_row, unpicklable_rows
from planvec.rows.outputs import Errors, Outputs
from planvec.rows.rollouts import RolloutPlan
from planvec.stepping.row_loop import ROW, TICKET, new_progress

__all__ = ["DONE", "FAILED", "READY", "Call", "Loose", "RolloutOptions", "open_host"]

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
    """What is not of fixed size and cannot lie in the slab: rows (None where they do), infos, errors by row.

    Infos of numbers and arrays travel as bytes, all else is pickled.
    """

    states: Any = None
    actions: Any = None
    observations: Any = None
    columns: Columns | None = None
    errors: dict[int, Failure] | None = None

    def pack(self) -> bytes:
        """The payload of a frame; empty where everything lies in the slab.

        Raises:
            EnvError: An info cannot be pickled; names its key.
        """
        if self.states is None and self.actions is None and self.observations is None and not self.errors:
            if self.columns is None:
                return b""
            encoded = encode_columns(self.columns)
            if encoded is not None:
                return _COLUMNS + encoded
        try:
            return pickle.dumps(self, protocol=5)
        except Exception:
            for error in unpicklable_rows(self.columns or {}).values():
                raise error from None
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


def open_host(channel: Channel, memory: int, factory: bytes) -> _Host | None:
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
        self._progress = new_progress()
        if isinstance(hosted, PlanEnv) and isinstance(description, EnvDescription):
            slab = Slab(description, memory)
            self._slots, self._progress = slab.slots, slab.progress
            self._rows = hosted.rows
            self._rows.progress = slab.progress
            self._verbs |= {
                b"step": self._step,
                b"rollout": self._rollout,
                b"write_off": self._write_off,
                b"observe": self._observe,
            }

    def serve(self) -> None:
        """Answer until the parent hangs up."""
        channel = self._channel
        while True:
            channel.wait()
            frame = channel.receive()
            assert frame is not None  # this end of the channel waits
            self._progress[ROW], self._progress[TICKET] = -1, frame.ticket
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
        out = _outputs(view, frame.num_rows)
        errors: Errors | None = {} if view.mask_errors[0] else None
        columns = self._rows.step(batch, out, errors)
        if out is view.outputs and not columns and not errors:
            return b""  # everything lies in the slab
        try:
            return _answer(view, out, columns, errors)
        except EnvError:
            if errors is None:
                raise
            unsent = unpicklable_rows(columns)
            for row in unsent:
                forget_row(columns, row)
            self._rows.write_off(batch.states, out, list(unsent))
            return _answer(view, out, columns, {**errors, **unsent})

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
        out = replace(_outputs(view, frame.num_rows), observations=None)
        errors: Errors | None = {} if view.mask_errors[0] else None
        self._rows.rollout(plan, out, errors)
        return _answer(view, out, {}, errors)

    def _write_off(self, frame: Frame) -> bytes:
        view = self._slots[frame.slot].first(frame.num_rows)
        states = Loose.unpack(frame.payload).states if view.states is None else view.states
        out = _outputs(view, frame.num_rows)
        self._rows.write_off(states, out, list(range(frame.num_rows)))
        return _answer(view, out, {}, None)

    def _observe(self, frame: Frame) -> bytes:
        view = self._slots[frame.slot].first(frame.num_rows)
        states = Loose.unpack(frame.payload).states if view.states is None else view.states
        fixed = view.outputs.observations
        listed: list[Any] | None = [None] * frame.num_rows if fixed is None else None
        self._rows.observe(states, fixed if listed is None else listed)
        return Loose(observations=listed).pack()


def _outputs(view: Slot, num_rows: int) -> Outputs:
    """Where rows are written: the slot, or for what has no fixed size lists that travel in the message."""
    fixed = view.outputs
    if view.return_state[0] and fixed.new_states is not None and fixed.observations is not None:
        return fixed
    states = np.empty(num_rows, object) if fixed.new_states is None else fixed.new_states
    return replace(
        fixed,
        new_states=states if view.return_state[0] else None,
        observations=[None] * num_rows if fixed.observations is None else fixed.observations,
    )


def _answer(view: Slot, out: Outputs, columns: Columns, errors: Errors | None) -> bytes:
    """The payload that says what does not lie in the slot."""
    return Loose(
        states=out.new_states if view.outputs.new_states is None else None,
        observations=out.observations if view.outputs.observations is None else None,
        columns=columns or None,
        errors={row: Failure.of(error) for row, error in errors.items()} if errors else None,
    ).pack()
