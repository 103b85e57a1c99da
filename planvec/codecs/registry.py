"""The choice of a codec for an environment: `codec_for`."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any

import gymnasium
import numpy as np
from numpy.typing import NDArray

from planvec.codecs.base import Env, StateCodec, layers_of, raised_in
from planvec.codecs.generic.copied import ObjectGraph
from planvec.codecs.generic.replay import ReplayCodec
from planvec.codecs.generic.shared_code import CodeReader
from planvec.codecs.generic.survey import own_classes
from planvec.codecs.reported_masks import LegalActions, is_mask_reported
from planvec.codecs.selection import CodecChoice, FamilyCodec, Layer, select, wrapper_layers
from planvec.codecs.stack import LayerCodecs, StackCodec, make_wrapper_codec
from planvec.codecs.verify import InexactStateError, check_reset, reference_walk, verify_codec
from planvec.errors import PlanvecError, UnsupportedEnvError

# -- Measures how long a codec takes to save, restore, step and observe --------------------------------------

_NUM_TIMED = 40


def time_codec(codec: StateCodec, states: NDArray[Any], actions: Sequence[Any]) -> dict[str, float]:
    """Time the methods of a codec at some of the states."""
    # `states`: `[B]`.
    # Returns medians in microseconds of "get", "set", "step" and "observe".
    rows = np.unique(np.linspace(0, len(states) - 1, _NUM_TIMED).astype(int))
    clock, seconds = time.perf_counter, []
    for row, value in zip(rows, codec.load(states[rows]).values, strict=True):
        ticks = [clock()]
        codec.set(value)
        ticks.append(clock())
        observation = codec.step(actions[row])[0]
        ticks.append(clock())
        codec.get(observation)
        ticks.append(clock())
        codec.set(value)
        ticks.append(clock())
        codec.observe()
        ticks.append(clock())
        seconds.append(np.diff(ticks))
    set_, step, get, _, observe = (1e6 * np.median(seconds, axis=0)).tolist()
    return {"get": get, "set": set_, "step": step, "observe": observe}


# -- Warns about copied states that are large, or slow to save and restore -----------------------------------

_MAX_BYTES = 1 << 20
_MAX_STEPS, _MIN_MICROSECONDS = 10, 1000
_REPEATS = 5


def warning_on_costs(codec: StateCodec, env: Env, graph: ObjectGraph) -> str:
    """Return a warning if states are larger than 1 MB, or cost more than 10 steps and 1 ms; else ""."""
    observation, _ = codec.reset(0, None)
    states = codec.states_of([codec.get(observation)] * _REPEATS)
    size, actions = states[0].nbytes, LegalActions.seeded(env.action_space)
    try:
        times = time_codec(codec, states, [actions.sample() for _ in range(_REPEATS)])
    except Exception:  # an action is not legal: steps cannot be timed
        times = {"get": 0.0, "set": 0.0, "step": 0.0}
    cost, step = times["get"] + times["set"], times["step"]
    if size > _MAX_BYTES:
        problem = f"a state takes {size / 1e6:,.1f} MB"
    elif cost > max(_MAX_STEPS * step, _MIN_MICROSECONDS):
        problem = f"saving and restoring a state takes {cost / 1e3:,.1f} ms, and a step {step / 1e3:,.2f} ms"
    else:
        return ""
    owner, name = graph.most_expensive_attribute()
    return (
        f"{env}: {problem}. The most expensive attribute is {owner}.{name}: if it never changes, pass "
        f'codec=planvec.Copied(["{name}"]). Otherwise write a codec for it (planvec.register_codec)'
    )


# packages with sets that were found not to depend on hashes (`tests/test_hash_seeds.py`), but a module
_CHECKED, _UNCHECKED = {"highway_env", "minigrid"}, "minigrid.envs.wfc"


# -- The choice of a codec -----------------------------------------------------------------------------------


def check_codec(codec: CodecChoice) -> None:
    """Check a choice of a codec before any environment is made."""
    if codec is not None and codec not in ("copied", "replay") and not callable(codec):
        raise UnsupportedEnvError(
            'codec: expected None, "copied", "replay", a planvec.Codec subclass or planvec.Copied([...]), '
            f"got {codec!r}"
        )


def codec_for(
    env: gymnasium.Env[Any, Any],
    codec: CodecChoice = None,
    *,
    info_keys: Sequence[str] | None = None,
    trust: bool = False,
) -> StateCodec:
    """Return a codec that saves and restores an environment. The environment is reset.

    Args:
        env: The environment, wrappers included.
        codec: None takes a codec that was registered for the class, else planvec's own, else "copied".
            "copied" saves the attributes of the environment. "replay" saves the seed and the actions, and
            replays them to restore a state. A `Codec` subclass, or `planvec.Copied([...])`, is used as
            given. Codecs that planvec does not ship for exactly these classes are verified by replay first.
        info_keys: The info keys that must be restored exactly; None: all.
        trust: Whether to skip the verification.

    Raises:
        UnsupportedEnvError: The environment cannot be saved faithfully; the message says what to do.
    """
    check_codec(codec)
    if not isinstance(env.unwrapped, gymnasium.Env):
        raise UnsupportedEnvError(
            f"{env}.unwrapped: expected a gymnasium.Env, got {type(env.unwrapped).__name__}. Let the wrapper "
            "derive from gymnasium.Env instead of gymnasium.Wrapper if there is no such environment inside"
        )
    try:
        return _codec_for(env, codec, info_keys, trust)
    except InexactStateError as error:
        raise UnsupportedEnvError(str(error)) from None
    except PlanvecError:
        raise
    except Exception as error:
        method = raised_in(error)
        if method:
            raise UnsupportedEnvError(
                f"{env}: {method} raised {type(error).__name__}: {error} while planvec checked this codec"
            ) from error
        raise UnsupportedEnvError(
            f"{env}: it raised {type(error).__name__}: {error} while planvec checked how to save it. It must "
            "allow reset(seed=0) and steps with actions that its action_space samples, several times"
        ) from error


def _codec_for(env: Env, codec: CodecChoice, info_keys: Sequence[str] | None, trust: bool) -> StateCodec:
    layers = wrapper_layers(env)
    selection = select(env.unwrapped, codec, layers)
    if selection.make is None:
        pairs = [(layer.wrapper, make_wrapper_codec(layer)) for layer in layers if layer.make is not None]
        replay = ReplayCodec(env, pairs)
        if not trust:
            reference = reference_walk(env, info_keys, None)
            if reference.reports_masks:
                replay.keep_masks()
            replay.walk = verify_codec(replay, env, reference, selection.advice, info_keys)
            replay.uses_hashes = _uses_hashes(own_classes(layers_of(env)))
        return replay
    makers = (selection.make, *selection.alternatives)
    for make in makers[:-1]:
        try:
            return _stack_codec(env, layers, selection._replace(make=make), codec, info_keys, trust)
        except InexactStateError:
            continue
    return _stack_codec(env, layers, selection._replace(make=makers[-1]), codec, info_keys, trust)


def _stack_codec(
    env: Env,
    layers: Sequence[Layer],
    selection: FamilyCodec,
    codec: CodecChoice,
    info_keys: Sequence[str] | None,
    trust: bool,
) -> StackCodec:
    """Make the codec of a selection, and verify it."""
    codecs = LayerCodecs(env, layers, selection, codec)
    graph = codecs.graph
    reference = None
    if not (codecs.is_verified or trust):
        beside = None if graph is None else graph.beside(env, codecs.caches)
        shared_memory = b"" if graph is None else graph.shared_memory()
        reference = reference_walk(env, info_keys, beside)
        if graph is not None:
            graph.check_addresses()
            codecs.before_reset()
            graph.check_shared_memory(shared_memory)
            codecs.save_generators_of(reference.drawn_spaces)
    observation, info = check_reset(env.reset(seed=0))
    if graph is not None:
        graph.find_numbered()
    if not codecs.is_verified:
        was_reported = reference is not None and reference.reports_masks
        codecs.reports_masks = was_reported or is_mask_reported(env.action_space, observation, info)
    stack = StackCodec(env, codecs, observation)
    if reference is not None:
        stack.walk = verify_codec(stack, env, reference, selection.advice, info_keys, graph)
        classes = own_classes(layers_of(env)) if graph is None else graph.classes
        stack.uses_hashes = _uses_hashes(classes, graph is not None and graph.has_sets)
    if graph is not None:
        graph.settle()
        stack.include(graph)
        if reference is not None:
            stack.warning = stack.warning or warning_on_costs(stack, env, graph)
    return stack


def _uses_hashes(classes: Sequence[type], has_sets: bool = False) -> bool:
    """Return whether environments of classes may depend on hashes, which differ between processes."""
    packages = {cls.__module__.partition(".")[0] for cls in classes}
    if packages <= _CHECKED and not any(cls.__module__.startswith(_UNCHECKED) for cls in classes):
        return False
    return has_sets or CodeReader(classes, packages).uses_hashes
