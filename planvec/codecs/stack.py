"""A whole environment out of the codecs of its layers.

    TimeLimit(OrderEnforcing(PassiveEnvChecker(Env)))      counted and left out: steps go to Env itself
    FrameStack(TimeLimit(... (Env)))                       every layer is saved, steps go through all

One state is a record: the fields of the environment, `generator` where steps draw from it, one field per
wrapper that remembers something, `observation` where it cannot be computed from the rest, and the
counters. Where a layer's size varies, the state is a `SavedState` with the pickled values.
"""

from __future__ import annotations

import pickle
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces, wrappers
from numpy.typing import NDArray

from planvec.codecs import generator
from planvec.codecs.base import Codec, Outcome, Rows, StateCodec, WrapperCodec
from planvec.codecs.verify import origin_of, same
from planvec.codecs.wrappers.codecs import TRANSPARENT
from planvec.errors import UnsupportedEnvError
from planvec.rows import GENERATOR_FIELD, SavedState, StateFormat, is_fixed

__all__ = ["StackCodec", "layers_of"]

Env = gymnasium.Env[Any, Any]


def layers_of(env: Env) -> list[Any]:
    """The wrappers around an environment, innermost first."""
    layers = []
    while isinstance(env, gymnasium.Wrapper):
        layers.append(env)
        env = env.env
    return layers[::-1]


class _GeneratorPart:
    """`env.np_random` as a part of the state, in the form of a codec."""

    dtype = np.dtype([(GENERATOR_FIELD, generator.GENERATOR)])

    def pack(self, values: Sequence[Any], records: NDArray[Any]) -> None:
        generator.pack_generators(values, records[GENERATOR_FIELD])

    def unpack(self, records: NDArray[Any]) -> list[Any]:
        return generator.unpack_generators(records[GENERATOR_FIELD])


class _NestedPart:
    """A wrapper's fields under one name."""

    def __init__(self, name: str, codec: WrapperCodec) -> None:
        self.name = name
        self.codec = codec
        self.dtype = None if codec.dtype is None else np.dtype([(name, codec.dtype)])

    def pack(self, values: Sequence[Any], records: NDArray[Any]) -> None:
        self.codec.pack(values, records[self.name])

    def unpack(self, records: NDArray[Any]) -> list[Any]:
        return self.codec.unpack(records[self.name])


class _ObservationPart:
    """The observation that a state was reached with."""

    def __init__(self, space: gymnasium.Space[Any]) -> None:
        self._discrete = isinstance(space, spaces.Discrete)
        fixed = is_fixed(space) and not isinstance(space, (spaces.Dict, spaces.Tuple))
        self.dtype = np.dtype([("observation", space.dtype, space.shape)]) if fixed else None

    def pack(self, values: Sequence[Any], records: NDArray[Any]) -> None:
        records["observation"] = np.array(values)

    def unpack(self, records: NDArray[Any]) -> list[Any]:
        column = records["observation"]
        return list(column.tolist() if self._discrete else column)  # views: who shows one copies it


class StackCodec(StateCodec):
    """Saves and restores an environment layer by layer.

    Args:
        env: The outermost wrapper, reset.
        codec: Of the unwrapped environment.
        wrapper_codecs: One per wrapper, innermost first.
        observation: What the reset returned.
    """

    def __init__(
        self, env: Env, codec: Codec, wrapper_codecs: Sequence[WrapperCodec], observation: Any
    ) -> None:
        self._env = env
        self._base = env.unwrapped
        self._codec = codec
        self.how = codec.how if type(codec).__module__.startswith("planvec.") else type(codec).__name__
        self.note = codec.note
        self.time_limit, stepped = _peel(env)
        self.step: Callable[[Any], Outcome] = stepped.step
        inner = layers_of(stepped)
        self._wrappers = list(zip(inner, wrapper_codecs[: len(inner)], strict=True))
        layers = (codec, *wrapper_codecs)
        self._draws = any(layer.draws for layer in layers)
        self.stochastic = any(
            layer.draws if layer.stochastic is None else layer.stochastic for layer in layers
        )
        self._carried: Any = None

        self._parts: list[Any] = [codec]
        setters: list[Callable[[Any], None]] = [partial(codec.set, self._base)]
        getters: list[Callable[[], Any]] = [partial(codec.get, self._base)]
        if self._draws:
            self._parts.append(_GeneratorPart())
            setters.append(partial(generator.set_generator, self._base))
            getters.append(partial(generator.get_generator, self._base))
        for name, wrapper, wrapper_codec in _named(self._wrappers):
            if wrapper_codec.dtype is None or wrapper_codec.dtype.names:
                self._parts.append(_NestedPart(name, wrapper_codec))
                setters.append(partial(wrapper_codec.set, wrapper))
                getters.append(partial(wrapper_codec.get, wrapper))
        found = self._observe_layers()
        self._carries = found is None or not same(found, observation)
        if self._carries:
            self._parts.append(_ObservationPart(env.observation_space))
            setters.append(self._set_carried)
        self._generator_at = 1 if self._draws else None
        self._bind(setters, getters)
        self.format = StateFormat(self._dtype(), origin_of(env))
        self._is_fixed = not self.format.dtype.hasobject

    def _bind(self, setters: list[Callable[[Any], None]], getters: list[Callable[[], Any]]) -> None:
        """Make `set` and `get`: for one part without a tuple around its value."""
        self._single = len(self._parts) == 1
        set_first, get_first = setters[0], getters[0]

        def set_all(value: Any) -> None:
            for setter, part in zip(setters, value, strict=True):
                setter(part)

        def set_and_carry(value: Any) -> None:
            part, self._carried = value
            set_first(part)

        def get_all(observation: Any) -> Any:
            return tuple([getter() for getter in getters])

        def get_all_and_observation(observation: Any) -> Any:
            return (*[getter() for getter in getters], observation)

        # Most environments have one part, or one and the observation: loops would cost them as much again.
        if self._single:
            self.set, self.get = set_first, lambda observation: get_first()
        elif len(getters) == 1:
            self.set, self.get = set_and_carry, lambda observation: (get_first(), observation)
        else:
            self.set, self.get = set_all, get_all_and_observation if self._carries else get_all

    def _dtype(self) -> np.dtype[Any]:
        if any(part.dtype is None for part in self._parts):
            return np.dtype(object)
        fields: list[Any] = []
        for part in self._parts:
            fields += [(name, part.dtype[name]) for name in part.dtype.names]
        if self.time_limit is not None:
            fields.append(("elapsed_steps", "<i4"))
        fields += [("terminated", "?"), ("truncated", "?")]
        names = [name for name, _ in fields]
        if len(set(names)) < len(names):
            raise UnsupportedEnvError(
                f"{type(self._codec).__name__}.dtype: the field names {names[-3:]}, 'generator' and "
                f"'observation' are planvec's own; got {names}"
            )
        return np.dtype(fields)

    def _set_carried(self, observation: Any) -> None:
        self._carried = observation

    def _observe_layers(self) -> Any:
        layers = self._wrappers
        remembers = [number for number, (_, codec) in enumerate(layers) if codec.remembers_observation]
        first = remembers[-1] if remembers else 0
        observation = () if remembers else self._codec.observe(self._base)
        for wrapper, wrapper_codec in layers[first:]:
            if observation is None:
                return None
            observation = wrapper_codec.observe(wrapper, observation)
        return observation

    def observe(self) -> Any:
        return self._carried if self._carries else self._observe_layers()

    def reset(self, seed: int, options: dict[str, Any] | None) -> tuple[Any, dict[str, Any]]:
        self._codec.begin(self._base)
        for wrapper, wrapper_codec in self._wrappers:
            wrapper_codec.begin(wrapper)
        result = self._env.reset(seed=seed, options=options)
        for wrapper, wrapper_codec in self._wrappers:
            wrapper_codec.settle(wrapper)
        return result

    def reseed(self, seed: int) -> None:
        if self._draws:
            generator.reseed_generator(self._base, seed)
        self._codec.reseed(self._base, seed)
        for number, (wrapper, wrapper_codec) in enumerate(self._wrappers):
            wrapper_codec.reseed(wrapper, seed ^ (number + 1) << 40)

    def load(self, states: NDArray[Any]) -> Rows:
        if not self._is_fixed:
            return self._load_saved(states)
        if self._single:
            values = self._codec.unpack(states)
        else:
            columns = [part.unpack(states) for part in self._parts]
            values = list(zip(*columns, strict=True))
        elapsed = states["elapsed_steps"].tolist() if self.time_limit else [0] * len(states)
        return Rows(values, elapsed, states["terminated"].tolist(), states["truncated"].tolist())

    def dump(self, rows: Rows, out: NDArray[Any]) -> None:
        if not len(out):
            return
        if not self._is_fixed:
            self._dump_saved(rows, out)
            return
        if self._single:
            self._codec.pack(rows.values, out)
        else:
            for part, column in zip(self._parts, zip(*rows.values, strict=True), strict=True):
                part.pack(column, out)
        if self.time_limit:
            out["elapsed_steps"] = rows.elapsed
        out["terminated"] = rows.terminated
        out["truncated"] = rows.truncated

    # States of variable size are a pickle, and behind it the generator where there is one: a search tells
    # places apart by what stands before it.

    def _load_saved(self, states: NDArray[Any]) -> Rows:
        saved = [pickle.loads(bytes(state)) for state in states]
        columns = [list(column) for column in zip(*saved, strict=True)]
        if not columns:
            return Rows([], [], [], [])
        if self._generator_at is not None:
            size = generator.GENERATOR.itemsize
            tails = b"".join([bytes(state)[-size:] for state in states])
            found = generator.unpack_generators(np.frombuffer(tails, generator.GENERATOR))
            at = self._generator_at
            columns[0] = [
                (*value[:at], state, *value[at:]) for value, state in zip(columns[0], found, strict=True)
            ]
        return Rows(*columns)

    def _dump_saved(self, rows: Rows, out: NDArray[Any]) -> None:
        at, values, tails, size = self._generator_at, rows.values, [b""] * len(out), 0
        if at is not None:
            records = np.zeros(len(out), generator.GENERATOR)
            generator.pack_generators([value[at] for value in values], records)
            values = [(*value[:at], *value[at + 1 :]) for value in values]
            size = records.itemsize
            tails = [record.tobytes() for record in records]
        columns = zip(values, rows.elapsed, rows.terminated, rows.truncated, strict=True)
        for row, (saved, tail) in enumerate(zip(columns, tails, strict=True)):
            out[row] = SavedState(pickle.dumps(saved, protocol=5) + tail, self.format.origin, size)


def _peel(env: Env) -> tuple[int | None, Env]:
    """Leave out the outer wrappers that only check or count.

    Returns:
        The limit of the one `TimeLimit` that was left out, and the environment to step.
    """
    limit = None
    while type(env) in TRANSPARENT or (type(env) is wrappers.TimeLimit and limit is None):
        assert isinstance(env, gymnasium.Wrapper)
        if type(env) is wrappers.TimeLimit:
            limit = env._max_episode_steps
        env = env.env
    return limit, env


def _named(
    pairs: list[tuple[Any, WrapperCodec]],
) -> list[tuple[str, Any, WrapperCodec]]:
    """Field names like `frame_stack_observation`, numbered where a wrapper occurs again."""
    named, counts = [], dict[str, int]()
    for wrapper, codec in pairs:
        class_name = type(wrapper).__name__
        name = "".join(f"_{c.lower()}" if c.isupper() else c for c in class_name).lstrip("_")
        counts[name] = counts.get(name, 0) + 1
        named.append((name if counts[name] == 1 else f"{name}_{counts[name]}", wrapper, codec))
    return named
