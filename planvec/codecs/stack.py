"""A codec for a whole environment, built from the codecs of its layers.

    TimeLimit(OrderEnforcing(PassiveEnvChecker(Env)))      the wrappers are left out: Env itself is stepped,
                                                           and the stepping loop counts the steps
    FrameStack(TimeLimit(... (Env)))                       every layer is saved, and all are stepped

One state is a record. It holds the fields of the environment, `generator` if stepping draws from it, one
field per wrapper that remembers something, `observation` if it cannot be computed from the rest, and the
counters. If the size of a layer varies, the state is a `SavedState` with the pickled values.

Letters: B rows.
"""

from __future__ import annotations

import pickle
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, NamedTuple

import gymnasium
import numpy as np
from gymnasium import spaces
from numpy.typing import NDArray

from planvec.codecs import generator
from planvec.codecs.base import (
    Codec,
    Env,
    Rows,
    StateCodec,
    WrapperCodec,
    check_value,
    is_of_user,
    with_own_action,
)
from planvec.codecs.compare import digest, origin_of, same
from planvec.codecs.generic.copied import CopiedWrapperCodec, GraphCodec, ObjectGraph
from planvec.codecs.generic.survey import Beside
from planvec.codecs.positions import Source
from planvec.codecs.reported import Reported, has_two_players, mask_of_field, split_report
from planvec.codecs.selection import CodecChoice, FamilyCodec, Layer
from planvec.codecs.unpickling import packages_of, unpickle
from planvec.codecs.wrappers import TimeLimitCodec, TransparentCodec, applies_function
from planvec.errors import UnsupportedEnvError
from planvec.rows import GENERATOR_FIELD, PLAYER_FIELD, SavedState, StateFormat, is_fixed

_LARGEST = 2**31 - 1  # number of elapsed steps

# -- Makes the codecs of the layers of one environment, before its first reset -------------------------------


class ResidentState(NamedTuple):
    """Holds the situation of one environment."""

    value: Any  # what `StateCodec.get` returned
    generator: dict[str, Any] | None  # the state of `np_random`; None if it was not made yet
    seed: Any  # `np_random_seed`
    elapsed: int  # steps that the outer `TimeLimit` has counted
    # the states of the generators of spaces, from which a reset may draw; None where there is none
    spaces: tuple[dict[str, Any] | None, ...]


class Proof(NamedTuple):
    """Holds what the proof of one environment has shown, for another process."""

    maker: int  # index of the maker of the codec that is exact
    drawn_spaces: tuple[str, ...]  # the spaces from which the environment draws


class LayerCodecs:
    """Holds the codecs of the unwrapped environment and of its wrappers."""

    codec: StackCodec | None = None  # what `bind` has made of them; None before the first reset
    proof: Proof | None = None  # what the proof of a resident kind has shown; None if it needs none
    _like: StackCodec | None = None

    # `env` was not reset yet.

    def __init__(
        self,
        env: Env,
        layers: Sequence[Layer],
        selection: FamilyCodec,
        choice: CodecChoice,
    ) -> None:
        assert selection.make is not None
        self.selection = selection  # how the unwrapped environment is saved
        self._env: Any = env
        self._base: Any = env.unwrapped
        self.base_codec = selection.make(self._base)  # the codec of the unwrapped environment
        if not isinstance(self.base_codec, Codec):
            raise UnsupportedEnvError(
                "codec: expected a maker of a planvec.Codec, got one of a "
                f"{type(self.base_codec).__name__}: {choice!r}. Pass a planvec.Codec subclass, or a function "
                "that returns a planvec.Codec"
            )
        # the wrappers and their codecs, innermost first
        self.wrappers = [(layer.wrapper, make_wrapper_codec(layer)) for layer in layers]
        # One graph saves all layers that are copied, so that objects that layers share stay shared.
        graphs: list[ObjectGraph] = [codec.graph for codec in self.codecs if isinstance(codec, GraphCodec)]
        for graph in graphs[1:]:
            graphs[0].absorb(graph)
        self.graph = graphs[0] if graphs else None  # saves the layers that are copied; None if none is
        self.beside: Beside | None = None  # what these may change besides their attributes
        # whether planvec ships all codecs for exactly these classes
        self.is_verified = selection.is_verified and not any(
            not layer.is_built_in or applies_function(layer.wrapper) for layer in layers
        )
        self.reports_masks = False  # whether the environment reports legal actions, which states then hold
        # the spaces from which the environment draws, as far as they were saved
        self.drawn_spaces: Sequence[str] = ()

    @property
    def codecs(self) -> Sequence[Codec | WrapperCodec]:
        """The codecs of the unwrapped environment and of the wrappers, innermost first."""
        return [self.base_codec, *(codec for _, codec in self.wrappers)]

    @property
    def caches(self) -> Sequence[str]:
        """Variables beside the environment that may change; see `Copied`."""
        return self.base_codec.caches if isinstance(self.base_codec, GraphCodec) else ()

    @property
    def constants(self) -> bytes:
        """A digest of what never changes, and may differ between environments."""
        # vars(base) would be shorter, but once the `__dict__` of an object was requested, CPython reads its
        # attributes more slowly, which made CartPole's steps 15 % slower.
        codec, base = self.base_codec, self._base
        missing = [name for name in codec.constants if not hasattr(base, name)]
        if missing:
            raise UnsupportedEnvError(
                f"{type(codec).__name__}.constants: expected names of attributes, got {missing}, which "
                f"{type(base).__name__} does not have"
            )
        return digest(codec.identity(base))

    @property
    def packages(self) -> set[str]:
        """The packages that define the environment. See `unpickling.from_file`."""
        layers = [self._base, *(wrapper for wrapper, _ in self.wrappers)]
        return packages_of([*map(type, layers), *(() if self.graph is None else self.graph.classes)])

    def before_reset(self) -> None:
        """Clear what the layers keep from one episode to the next."""
        self.base_codec.before_reset(self._base)
        for wrapper, codec in self.wrappers:
            codec.before_reset(wrapper)

    @property
    def watches_own_resets(self) -> bool:
        """Whether `Codec.before_own_reset` and `after_own_reset` must be called."""
        return type(self.base_codec).before_own_reset is not Codec.before_own_reset

    def after_reset(self) -> None:
        """Replace what does not follow from the seed."""
        for wrapper, codec in self.wrappers:
            codec.after_reset(wrapper)

    def save_generators_of(self, spaces: Sequence[str]) -> None:
        """Save the generators of spaces from which the environment draws. See `ObjectGraph`."""
        self.drawn_spaces = spaces
        if self.graph is not None:
            self.graph.save_generators_of(spaces)

    def generators_beside(self, env: Env) -> list[tuple[str, Source]]:
        """Return what `Positions` takes: the generators beside the environment that are not saved."""
        if self.beside is None and self.graph is not None:
            self.beside = self.graph.beside(env, self.caches)
        found = {} if self.beside is None else self.beside.generators()
        return [(path, value) for path, value in found.items() if path not in self.drawn_spaces]

    # -- Saves an environment that is stepped and reset by itself, see `resident`

    def follow(self, like: StackCodec) -> None:
        """Save in the same form as the verified codec of another environment of the same kind."""
        self._like = like
        self.save_generators_of(like.layers.drawn_spaces)

    def bind(self, observation: object) -> StackCodec:
        """Return the codec; after the first reset it is made."""
        if self.codec is None:
            like, graph = self._like, self.graph
            if graph is not None and like is not None and like.layers.graph is not None:
                try:
                    graph.settle_as(like.layers.graph)
                except KeyError as error:
                    raise UnsupportedEnvError(
                        f"{self._env}: it lacks {error} of others of its kind"
                    ) from None
            codec = StackCodec(self._env, self, observation, like)
            if graph is not None:
                codec.include(graph)
                if like is not None and codec.fingerprint != like.fingerprint:
                    raise UnsupportedEnvError(f"{self._env}: it differs from the others")
            self.codec = codec
        return self.codec

    def save(self, observation: object) -> ResidentState:
        """Return the situation of the environment."""
        codec = self.bind(observation)
        base = self._base
        random = None if base._np_random is None else generator.get_generator(base)
        spaces = tuple(
            None if space._np_random is None else dict(space._np_random.bit_generator.state)
            for space in self._spaces()
        )
        value = codec.get(observation)
        return ResidentState(value, random, base._np_random_seed, codec.get_elapsed(), spaces)

    def restore(self, state: ResidentState) -> Any:
        """Put the environment into a situation, and return the observation there."""
        codec = self.made()
        codec.set(state.value)
        codec.set_elapsed(state.elapsed)
        self.set_generators(state)
        return codec.observe()

    def set_generators(self, state: ResidentState) -> None:
        """Set the generators, which the next resets continue, but nothing else."""
        base = self._base
        if state.generator is None:
            base._np_random = None
        else:
            generator.set_generator(base, state.generator)
        base._np_random_seed = state.seed
        for space, saved in zip(self._spaces(), state.spaces, strict=True):
            if saved is not None:
                space.np_random.bit_generator.state = saved

    def _spaces(self) -> list[gymnasium.Space[Any]]:
        return [] if self.graph is None else self.graph.spaces()

    def made(self) -> StackCodec:
        """Return the codec. Reset the environment if it was not reset yet."""
        # The generator of the environment stays what it is, or is seeded by chance.
        if self.codec is None:
            base = self._base
            random, seed = base.np_random, base.np_random_seed  # this makes it, if there is none
            observation, _ = self._env.reset(seed=0)
            codec = self.bind(observation)
            base._np_random, base._np_random_seed = random, seed
            return codec
        return self.codec


def make_wrapper_codec(layer: Layer) -> WrapperCodec:
    """Make the codec of a wrapper."""
    codec = (layer.make or CopiedWrapperCodec)(layer.wrapper)
    if not isinstance(codec, WrapperCodec):
        raise UnsupportedEnvError(
            f"{type(layer.wrapper).__name__}: expected a maker of a planvec.WrapperCodec, got one of "
            f"a {type(codec).__name__}: {layer.make!r}"
        )
    return codec


# -- The codec of a whole environment ------------------------------------------------------------------------


class _Part(NamedTuple):
    """Saves one part of a state: the environment, its generator, a wrapper, the mask, the observation."""

    dtype: np.dtype | None  # a structured dtype with the fields of the part; None if its size varies
    # writes values `[B]` into the fields of records `[B]`
    pack: Callable[[Sequence[Any], NDArray[np.void]], None]
    unpack: Callable[[NDArray[np.void]], list[Any]]  # reads values `[B]` from the fields of records `[B]`
    set: Callable[[Any], None]  # puts the part into the state of a value
    get: Callable[[], Any]  # returns the value of the present state


def _nested(name: str, part: _Part) -> _Part:
    """Return a part with all its fields under one name."""
    dtype, pack, unpack = part[:3]
    return part._replace(
        dtype=None if dtype is None else np.dtype([(name, dtype)]),
        pack=lambda values, records: pack(values, records[name]),
        unpack=lambda records: unpack(records[name]),
    )


class StackCodec(StateCodec):
    """Saves and restores an environment layer by layer."""

    # `env`: after a reset, which returned `observation`. `like`: the codec of another environment of the same
    # kind, whose states have the same form.

    def __init__(
        self,
        env: Env,
        layers: LayerCodecs,
        observation: object,
        like: StackCodec | None = None,
    ) -> None:
        self.layers = layers
        codec = layers.base_codec
        self._env, self._base, self._codec = env, env.unwrapped, codec
        codec.after_first_reset(self._base)
        check_value(codec, self._base)
        self.how, self.note = codec.how or type(codec).__name__, codec.note
        # The outer wrappers that only check or count are left out, and with them one `TimeLimit`.
        self._outer_limit: Any = None
        self._wrappers = [*layers.wrappers]
        while self._wrappers:
            wrapper, outermost = self._wrappers[-1]
            if isinstance(outermost, TimeLimitCodec) and self._outer_limit is None:
                self._outer_limit = wrapper
            elif not isinstance(outermost, TransparentCodec):
                break
            self._wrappers.pop()
        # index of the wrapper whose observation follows from its own memory; -1: all start from the base's
        self._first_observed = max(
            (i for i, (_, one) in enumerate(self._wrappers) if not one.needs_inner_observation), default=-1
        )
        self.time_limit = None if self._outer_limit is None else self._outer_limit._max_episode_steps
        stepped = self._wrappers[-1][0] if self._wrappers else self._base
        step = stepped.step if layers.is_verified else with_own_action(stepped.step, env.action_space)
        self.current_mask = None if layers.is_verified else mask_of_field(codec, env)
        # What infos report and the codec does not save.
        keeps_mask = layers.reports_masks and self.current_mask is None
        self._has_player = has_two_players(env) and PLAYER_FIELD not in codec._names()
        self._reported: Reported | None = None
        if keeps_mask or self._has_player:
            self._reported = Reported(env.action_space, keeps_mask, self._has_player)
            step = self._reported.noted(step)
            self.current_mask = self._reported.current if keeps_mask else self.current_mask
        self.steps_base = stepped is self._base and self._reported is None
        super().__init__(step, codec.step_without_info if self.steps_base else None)
        self._draws = any(one.draws for one in layers.codecs)
        stochastic = [one.draws if one.stochastic is None else one.stochastic for one in layers.codecs]
        self.stochastic = any(stochastic)
        self._saved_observation: Any = None
        if like is not None:
            self.saves_observation: bool = like.saves_observation  # whether states contain the observation
        else:
            computed = self._compute_observation()  # None: it cannot be computed from the rest
            self.saves_observation = not same(computed, observation)
            is_own = is_of_user(codec) and not self._wrappers
            if self.saves_observation and computed is not None and is_own:
                self.warning = (
                    f"{env}: the observation that {type(codec).__name__}.observe computes is not that of the "
                    "environment. States hold the observation, too; leave observe out, or mend it"
                )
        self._parts = self._make_parts(env.observation_space)
        if self.steps_base and not self.saves_observation:
            self.roll_out = codec.roll_out
        self._bind()
        self.format = StateFormat(self._dtype(), origin_of(env))
        self._is_fixed = not self.format.dtype.hasobject
        self.fingerprint = layers.constants
        self.is_built_in = layers.is_verified

    @property
    def packages(self) -> set[str]:
        """The packages that define the environment."""
        return self.layers.packages

    def _make_parts(self, space: gymnasium.Space[object]) -> list[_Part | Reported]:
        """Return the parts: the environment, its generator, wrappers that remember, mask, observation."""
        codec, base = self._codec, self._base
        parts: list[_Part | Reported] = [
            _Part(codec.dtype, codec.pack, codec.unpack, partial(codec.set, base), partial(codec.get, base))
        ]
        if self._draws:
            pack, unpack = generator.pack_generators, generator.unpack_generators
            setter, getter = partial(generator.set_generator, base), partial(generator.get_generator, base)
            parts.append(_nested(GENERATOR_FIELD, _Part(generator.GENERATOR, pack, unpack, setter, getter)))
        counts: dict[str, int] = {}
        for wrapper, one in self._wrappers:
            # a name like `frame_stack_observation`, numbered if a class occurs again
            class_name = type(wrapper).__name__
            name = "".join(f"_{c.lower()}" if c.isupper() else c for c in class_name).lstrip("_")
            counts[name] = counts.get(name, 0) + 1
            name = name if counts[name] == 1 else f"{name}_{counts[name]}"
            if one.dtype is None or one.dtype.names:
                setter, getter = partial(one.set, wrapper), partial(one.get, wrapper)
                parts.append(_nested(name, _Part(one.dtype, one.pack, one.unpack, setter, getter)))
        if self._reported is not None:
            parts.append(self._reported)
        if self.saves_observation:
            is_leaf = is_fixed(space) and not isinstance(space, (spaces.Dict, spaces.Tuple))
            dtype = np.dtype([("observation", space.dtype, space.shape)]) if is_leaf else None

            def pack_observations(values: Sequence[object], records: NDArray[np.void]) -> None:
                records["observation"] = np.array(values)

            def unpack_observations(records: NDArray[np.void]) -> list[Any]:
                column = records["observation"]  # views of it: callers copy what they keep
                return list(column.tolist() if isinstance(space, spaces.Discrete) else column)

            functions = partial(setattr, self, "_saved_observation"), lambda: self._saved_observation
            parts.append(_Part(dtype, pack_observations, unpack_observations, *functions))
        return parts

    def _bind(self) -> None:
        """Define `set` and `get`. A value with a single part is not wrapped in a tuple."""
        self._single = len(self._parts) == 1
        setters = [part.set for part in self._parts]
        # Whoever calls `get` has the observation.
        getters = [part.get for part in self._parts[: -1 if self.saves_observation else None]]
        set_first, get_first = setters[0], getters[0]

        def set_all(value: Any) -> None:
            for setter, part in zip(setters, value, strict=True):
                setter(part)

        def set_one_and_observation(value: Any) -> None:
            part, self._saved_observation = value
            set_first(part)

        def get_all(observation: object) -> Any:
            return tuple([getter() for getter in getters])

        def get_all_and_observation(observation: object) -> Any:
            return (*[getter() for getter in getters], observation)

        # Most environments have one part, or one and the observation. For these a loop would double the cost.
        if self._single:
            self.set, self.get = set_first, lambda observation: get_first()
        elif len(getters) == 1:
            self.set, self.get = set_one_and_observation, lambda observation: (get_first(), observation)
        else:
            self.set, self.get = set_all, get_all_and_observation if self.saves_observation else get_all

    def include(self, graph: ObjectGraph) -> None:
        """Include what pickles refer to in the fingerprint, and what has a number in the origin of states."""
        # Elsewhere a number may mean something else, so that states would be restored wrongly.
        self.fingerprint += digest(graph.referred())
        numbered = digest(graph.numbered()).hex()[:8]
        self.format = self.format._replace(origin=f"{self.format.origin} {numbered}")

    def _dtype(self) -> np.dtype:
        fields: list[Any] = []
        for dtype in [part.dtype for part in self._parts]:
            if dtype is None:
                return np.dtype(object)
            fields += [(name, dtype[name]) for name in dtype.names or ()]
        if self.time_limit is not None:
            fields.append(("elapsed_steps", "<i4"))
        fields += [("terminated", "?"), ("truncated", "?")]
        names = [name for name, _ in fields]
        if len(set(names)) < len(names):
            raise UnsupportedEnvError(
                f"{type(self._codec).__name__}.dtype: the field names {names[-3:]}, 'generator' and "
                f"'observation' are planvec's own; expected others, got {names}"
            )
        return np.dtype(fields)

    def _compute_observation(self) -> Any:
        """Compute the observation of the current state from the layers; None if that is impossible."""
        first = self._first_observed
        observation = self._codec.observe(self._base) if first < 0 else ()
        for wrapper, wrapper_codec in self._wrappers[max(first, 0) :]:
            if observation is None:
                return None
            observation = wrapper_codec.observe(wrapper, observation)
        return observation

    def digests(self) -> dict[str, bytes]:
        digests = self._codec.digests(self._base)
        for wrapper, wrapper_codec in self._wrappers:
            digests |= wrapper_codec.digests(wrapper)
        if self._draws:
            digests["np_random"] = repr(generator.get_generator(self._base)).encode()
        return digests

    def observe(self) -> Any:
        return self._saved_observation if self.saves_observation else self._compute_observation()

    def set_elapsed(self, elapsed: int) -> None:
        if self._outer_limit is not None:
            self._outer_limit._elapsed_steps = elapsed

    def get_elapsed(self) -> int:
        return 0 if self._outer_limit is None else self._outer_limit._elapsed_steps or 0

    def reset(self, seed: int, options: dict[str, Any] | None) -> tuple[Any, dict[str, Any]]:
        self.layers.before_reset()
        result = self._env.reset(seed=seed, options=options)
        self.layers.after_reset()
        if self._reported is not None:
            self._reported.note(*result)
        return result

    def reseed(self, seed: int) -> None:
        if self._draws:
            generator.reseed_generator(self._base, seed)
        self._codec.reseed(self._base, seed)
        for number, (wrapper, wrapper_codec) in enumerate(self._wrappers):
            wrapper_codec.reseed(wrapper, seed ^ (number + 1) << 40)

    # A state of variable size is a pickle, followed by the state of the generator if there is one. A search
    # that samples chance compares the states without that end.

    def load(self, states: np.ndarray) -> Rows:
        if self._is_fixed:
            if self._single:
                values = self._codec.unpack(states)
            else:
                columns = [part.unpack(states) for part in self._parts]
                values = list(zip(*columns, strict=True))
            elapsed = states["elapsed_steps"].tolist() if self.time_limit else [0] * len(states)
            return Rows(values, elapsed, states["terminated"].tolist(), states["truncated"].tolist())
        saved = [unpickle(bytes(state)) for state in states]
        if not saved:
            return Rows([], [], [], [])
        values, *flags = [list(column) for column in zip(*saved, strict=True)]
        if self._draws:
            size = generator.GENERATOR.itemsize
            tails = b"".join([bytes(state)[-size:] for state in states])
            generators = generator.unpack_generators(np.frombuffer(tails, generator.GENERATOR))
            pairs = zip(values, generators, strict=True)
            values = [(value[0], generator_state, *value[1:]) for value, generator_state in pairs]
        return Rows(values, *flags)

    def dump(self, rows: Rows, out: np.ndarray) -> None:
        if not len(out):
            return
        if self._is_fixed:
            if self._single:
                self._codec.pack(rows.values, out)
            else:
                for part, column in zip(self._parts, zip(*rows.values, strict=True), strict=True):
                    part.pack(column, out)
            if self.time_limit:
                # The user may have set it to the largest number, and NumPy 1.26 wraps around there.
                is_beyond = max(rows.elapsed, default=0) > _LARGEST
                out["elapsed_steps"] = np.minimum(rows.elapsed, _LARGEST) if is_beyond else rows.elapsed
            out["terminated"] = rows.terminated
            out["truncated"] = rows.truncated
            return
        values, tails, size = rows.values, [b""] * len(out), 0
        number = -1 - self.saves_observation  # what is reported is the last part but for an observation
        reports = [b"" if self._reported is None else value[number] for value in values]
        if self._draws:
            records = np.zeros(len(out), generator.GENERATOR)
            generator.pack_generators([value[1] for value in values], records)
            values = [(value[0], *value[2:]) for value in values]
            size = records.itemsize
            tails = [record.tobytes() for record in records]
        # without a time limit, states that differ only in their number of steps are equal
        elapsed = rows.elapsed if self.time_limit else [0] * len(out)
        columns = zip(values, elapsed, rows.terminated, rows.truncated, strict=True)
        for row, (saved, tail, report) in enumerate(zip(columns, tails, reports, strict=True)):
            data, known = pickle.dumps(saved, protocol=5) + tail, split_report(report, self._has_player)
            out[row] = SavedState(data, self.format.origin, size, *known)
