"""Saves and restores environments that are stepped and reset by themselves, not by a `StateCodec`.

An episode may begin with a reset without a seed, which continues `np_random`. So what is saved beside the
state is the generator. Kinds of environments that planvec does not know are verified once, on an environment
of their own that is closed afterwards:

    reset(seed)  steps  save  steps  reset()  steps  save  ...      stepped by themselves
    restore a saved point, take the same steps and resets again     must have the same outcomes
"""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any, NamedTuple

import gymnasium

from planvec.codecs.base import Outcome, layers_of, wrappers_of
from planvec.codecs.budget import Budget
from planvec.codecs.generator import get_generator, set_generator
from planvec.codecs.generic.shared import outside_object
from planvec.codecs.reported_masks import LegalActions
from planvec.codecs.selection import CodecChoice, select, wrapper_layers
from planvec.codecs.stack import LayerCodecs, StackCodec
from planvec.codecs.verify import Comparison, codec_for
from planvec.errors import PlanvecError, UnsupportedEnvError

_MIN_STEPS, _MAX_STEPS, _MAX_SECONDS = 24, 256, 0.3
_SAVE_INTERVAL, _NUM_REPEATED, _NUM_POINTS = 4, 12, 8
_ADVICE = (
    "Draw only from self.np_random, or from generators that are attributes, in reset as in step; or save the "
    "episode with planvec.register_codec"
)


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


class ResidentCodec:
    """Saves and restores one environment."""

    proof: Proof | None = None  # what the proof of its kind has shown; None if it needs none

    def __init__(self, env: gymnasium.Env[Any, Any], layers: LayerCodecs, like: StackCodec | None) -> None:
        self._env: Any = env
        self._base: Any = env.unwrapped
        self.layers = layers
        self._like = like
        self.codec: StackCodec | None = None  # the codec; None before the first reset
        if like is not None and like.layers.drawn_spaces:
            layers.save_generators_of(like.layers.drawn_spaces)
        self._spaces = [] if layers.graph is None else layers.graph.spaces.all()

    @property
    def packages(self) -> set[str]:
        """The packages that define the environment. See `unpickling.from_file`."""
        return self.layers.packages

    @property
    def settings(self) -> bytes:
        """A digest of what no state contains."""
        return self.layers.constants

    def bind(self, observation: Any) -> StackCodec:
        """Return the codec; after the first reset it is made."""
        if self.codec is None:
            like, graph = self._like, self.layers.graph
            if graph is not None and like is not None and like.layers.graph is not None:
                try:
                    graph.settle_as(like.layers.graph)
                except KeyError as error:
                    raise UnsupportedEnvError(
                        f"{self._env}: it lacks {error} of others of its kind"
                    ) from None
            codec = StackCodec(self._env, self.layers, observation, like)
            if graph is not None:
                codec.include(graph)
                if like is not None and codec.fingerprint != like.fingerprint:
                    raise UnsupportedEnvError(f"{self._env}: it differs from the others")
            self.codec = codec
        return self.codec

    def save(self, observation: Any) -> ResidentState:
        """Return the situation of the environment."""
        codec = self.bind(observation)
        base = self._base
        generator = None if base._np_random is None else get_generator(base)
        spaces = tuple(
            None if space._np_random is None else dict(space._np_random.bit_generator.state)
            for space in self._spaces
        )
        value = codec.get(observation)
        return ResidentState(value, generator, base._np_random_seed, codec.get_elapsed(), spaces)

    def restore(self, state: ResidentState) -> Any:
        """Put the environment into a situation, and return the observation there."""
        codec = self.made()
        codec.set(state.value)
        codec.set_elapsed(state.elapsed)
        self.set_generators(state)
        return codec.observe()

    def set_generators(self, state: ResidentState) -> None:
        """Set the generators, which the next resets continue, but nothing else."""
        if state.generator is None:
            self._base._np_random = None
        else:
            set_generator(self._base, state.generator)
        self._base._np_random_seed = state.seed
        for space, generator in zip(self._spaces, state.spaces, strict=True):
            if generator is not None:
                space.np_random.bit_generator.state = generator

    def made(self) -> StackCodec:
        """Return the codec. Reset the environment if it was not reset yet."""
        # The generator of the environment stays what it is, or is seeded by chance.
        if self.codec is None:
            base = self._base
            generator, seed = base.np_random, base.np_random_seed  # this makes it, if there is none
            observation, _ = self._env.reset(seed=0)
            codec = self.bind(observation)
            base._np_random, base._np_random_seed = generator, seed
            return codec
        return self.codec


class ResidentCodecs:
    """Makes the codecs of the environments of one process, and proves each kind once."""

    def __init__(self, choice: CodecChoice = None) -> None:
        self._choice = choice
        self._verified: dict[Any, StackCodec | str] = {}  # kind -> a codec, or why states are not exact

    def make(
        self, env: gymnasium.Env[Any, Any], prove: Callable[[], Any] | Proof | str | None
    ) -> ResidentCodec:
        """Return the codec of an environment that was not reset yet."""
        if not isinstance(env, gymnasium.Env) or not isinstance(env.unwrapped, gymnasium.Env):
            raise UnsupportedEnvError(f"{env}: expected a gymnasium.Env, got {type(env).__name__}")
        wrappers = wrapper_layers(env)
        selection = select(env.unwrapped, self._choice, wrappers)
        if selection.make is None:
            raise UnsupportedEnvError(
                f"{env}: its states are replayed from a seed, which is impossible after a reset without one"
            )
        layers = LayerCodecs(env, wrappers, selection, self._choice)
        if layers.is_verified:
            return ResidentCodec(env, layers, None)
        if prove is None or isinstance(prove, str):
            raise UnsupportedEnvError(
                prove or f"{env}: it cannot be verified, which takes another one beside it"
            )
        makers = (selection.make, *selection.alternatives)
        if isinstance(prove, Proof):
            layers = LayerCodecs(env, wrappers, selection._replace(make=makers[prove.maker]), self._choice)
            if prove.drawn_spaces:
                layers.save_generators_of(prove.drawn_spaces)
            return ResidentCodec(env, layers, None)
        key = (
            *(type(layer) for layer in (env.unwrapped, *wrappers_of(env))),
            layers.constants,
            b"" if layers.graph is None else layers.graph.initial,
        )
        like = self._verified.get(key)
        if like is None:
            like = self._verified[key] = _verified_codec(self._choice, env, prove)
        if isinstance(like, str):
            raise UnsupportedEnvError(like)
        if like.layers.selection.make is not selection.make:
            layers = LayerCodecs(env, wrappers, like.layers.selection, self._choice)
        codec = ResidentCodec(env, layers, like)
        codec.proof = Proof(makers.index(like.layers.selection.make), tuple(like.layers.drawn_spaces))
        return codec


def _verified_codec(choice: CodecChoice, first: Any, make_env: Callable[[], Any]) -> StackCodec | str:
    """Verify a kind of environments with another one. Returns its codec, or why states are not exact."""
    why = outside_object(first)
    if why:
        return why
    try:
        env = make_env()
    except Exception as error:  # of which only one may exist, for example
        return f"another one beside the first raises {type(error).__name__}: {error}"
    if {*map(id, layers_of(first))} & {*map(id, layers_of(env))}:
        return f"{env}: its function returns the same environment every time"
    try:
        codec = codec_for(env, choice)
        if not isinstance(codec, StackCodec):
            return f"{env}: its states are replayed from a seed"
        resident = ResidentCodec(env, codec.layers, None)
        resident.codec = codec
        _verify(env, resident)
    except PlanvecError as error:
        return str(error)
    except Exception as error:
        return f"{env}: {type(error).__name__}: {error}"
    finally:
        env.close()
    return codec


class _Point(NamedTuple):
    state: ResidentState
    next_step: int


def _verify(env: gymnasium.Env[Any, Any], resident: ResidentCodec) -> None:
    """Check that restored environments go on like the original one, through resets without a seed."""
    actions = LegalActions.seeded(env.action_space)
    walk: list[tuple[Any, Outcome]] = []
    points: list[_Point] = []
    observation, info = env.reset(seed=0)
    actions.note(observation, info)
    resident.layers.after_reset()
    budget = Budget(_MAX_SECONDS)
    for index in range(_MAX_STEPS):
        if index >= _MIN_STEPS and budget.is_spent:
            break
        if index % _SAVE_INTERVAL == 0:
            points.append(_Point(resident.save(copy.deepcopy(observation)), len(walk)))
        resets = index % (2 * _SAVE_INTERVAL) == _SAVE_INTERVAL + 1
        action = None if resets or (walk and (walk[-1][1][2] or walk[-1][1][3])) else actions.sample()
        outcome = copy.deepcopy(_advance(env, resident, action))
        walk.append((action, outcome))
        observation = outcome[0]
        actions.note(observation, outcome[4])
    comparison = Comparison(f"{env}: after restoring a saved state and a reset without a seed", _ADVICE)
    for point in reversed(points[:: max(1, len(points) // _NUM_POINTS)]):
        resident.restore(point.state)
        repeated = walk[point.next_step : point.next_step + _NUM_REPEATED]
        for number, (action, expected) in enumerate(repeated, 1):
            comparison.check_outcome(number, expected, _advance(env, resident, action))


def _advance(env: gymnasium.Env[Any, Any], resident: ResidentCodec, action: Any) -> Outcome:
    """Step, or reset without a seed if there is no action."""
    if action is None:
        observation, info = env.reset()
        resident.layers.after_reset()
        return observation, 0.0, False, False, info
    return env.step(action)
