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
from typing import Any

import gymnasium

from planvec.codecs.base import Env, Outcome, layers_of, wrappers_of
from planvec.codecs.budget import steps_within
from planvec.codecs.generic.shared import outside_object
from planvec.codecs.reported import LegalActions
from planvec.codecs.selection import CodecChoice, select, wrapper_layers
from planvec.codecs.stack import LayerCodecs, Proof, ResidentState, StackCodec
from planvec.codecs.verify import Comparison, codec_for
from planvec.errors import PlanvecError, UnsupportedEnvError

_MIN_STEPS, _MAX_STEPS, _MAX_SECONDS = 24, 256, 0.3
_SAVE_INTERVAL, _NUM_REPEATED, _NUM_POINTS = 4, 12, 8
_ADVICE = (
    "Draw only from self.np_random, or from generators that are attributes, in reset as in step; or save the "
    "episode with planvec.register_codec"
)


class ResidentCodecs:
    """Makes the codecs of the environments of one process, and proves each kind once."""

    def __init__(self, choice: CodecChoice = None) -> None:
        self._choice = choice
        self._verified: dict[Any, StackCodec | str] = {}  # kind -> a codec, or why states are not exact

    def make(self, env: Env, prove: Callable[[], Any] | Proof | str | None) -> LayerCodecs:
        """Return the codecs of an environment that was not reset yet."""
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
            return layers
        if prove is None or isinstance(prove, str):
            raise UnsupportedEnvError(
                prove or f"{env}: it cannot be verified, which takes another one beside it"
            )
        makers = (selection.make, *selection.alternatives)
        if isinstance(prove, Proof):
            layers = LayerCodecs(env, wrappers, selection._replace(make=makers[prove.maker]), self._choice)
            layers.save_generators_of(prove.drawn_spaces)
            return layers
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
        layers.follow(like)
        layers.proof = Proof(makers.index(like.layers.selection.make), tuple(like.layers.drawn_spaces))
        return layers


def _verified_codec(choice: CodecChoice, first: object, make_env: Callable[[], Any]) -> StackCodec | str:
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
        codec.layers.codec = codec
        _verify(env, codec.layers)
    except PlanvecError as error:
        return str(error)
    except Exception as error:
        return f"{env}: {type(error).__name__}: {error}"
    finally:
        env.close()
    return codec


def _verify(env: Env, layers: LayerCodecs) -> None:
    """Check that restored environments go on like the original one, through resets without a seed."""
    actions = LegalActions.seeded(env.action_space)
    walk: list[tuple[Any, Outcome]] = []
    points: list[tuple[ResidentState, int]] = []  # saved states, with the index of the next step
    observation, info = env.reset(seed=0)
    actions.note(observation, info)
    layers.after_reset()
    for index in steps_within(_MAX_SECONDS, _MIN_STEPS, _MAX_STEPS):
        if index % _SAVE_INTERVAL == 0:
            points.append((layers.save(copy.deepcopy(observation)), len(walk)))
        resets = index % (2 * _SAVE_INTERVAL) == _SAVE_INTERVAL + 1
        action = None if resets or (walk and (walk[-1][1][2] or walk[-1][1][3])) else actions.sample()
        outcome = copy.deepcopy(_advance(env, layers, action))
        walk.append((action, outcome))
        observation = outcome[0]
        actions.note(observation, outcome[4])
    comparison = Comparison(f"{env}: after restoring a saved state and a reset without a seed", _ADVICE)
    for state, first in reversed(points[:: max(1, len(points) // _NUM_POINTS)]):
        layers.restore(state)
        for number, (action, expected) in enumerate(walk[first : first + _NUM_REPEATED], 1):
            comparison.check_outcome(number, expected, _advance(env, layers, action))


def _advance(env: Env, layers: LayerCodecs, action: object) -> Outcome:
    """Step, or reset without a seed if there is no action."""
    if action is None:
        observation, info = env.reset()
        layers.after_reset()
        return observation, 0.0, False, False, info
    return env.step(action)
