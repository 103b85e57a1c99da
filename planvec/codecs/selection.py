"""The choice how the unwrapped environment and its wrappers are saved."""

from __future__ import annotations

import contextlib
import importlib
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum, auto
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec, PathFinder
from types import ModuleType
from typing import Any, NamedTuple, Protocol, cast

import gymnasium

from planvec.codecs.base import CodecMaker, Env, WrapperCodecMaker, wrappers_of
from planvec.codecs.generic.attributes import ADVICE
from planvec.codecs.generic.copied import Copied, CopiedCodec, Named
from planvec.codecs.generic.replay import Replayed
from planvec.codecs.wrappers import built_in_codec

# -- The families of environments that planvec knows: one entry for each, in one table.
#
# To add a family, write an entry of `FAMILIES`. If its states need a codec of their own, add a module or a
# folder with a function `codec_for_env` (see `FamilyModule`) and name it in the entry. Then run
# `benchmarks/environments.py --write`, which checks the ids and measures the costs.


@dataclass(frozen=True, slots=True)
class Family:
    """Describes a family of environments."""

    name: str  # name of the family, for reports
    module: str  # the module that must be installed for it
    extra: str  # the extra of planvec that installs what the family needs
    env_package: str  # the package that defines the classes of the environments
    # The ids that are checked. "ALE/*-v5" stands for every registered one. Empty if there are none, or if
    # they need packages that exclude those of other families; see `docs/environments.md`.
    ids: tuple[str, ...]
    # What the ids begin with, if they are registered by importing a module. Empty for the environments of
    # Gymnasium, which are always registered.
    id_prefixes: tuple[str, ...] = ()
    registrant: str = ""  # the module that registers them; "" for `module`
    # The `FamilyModule` with its codecs, imported when such an environment is opened: the simulator may be
    # missing, or slow to import. "" if a pickle of the attributes is enough.
    codec_module: str = ""
    # A module on which environments of any class may be built. If it is imported, the codecs of the family
    # are asked for every environment that no other family knows. "" if there is none.
    simulator: str = ""
    note: str = ""  # what users should know about it, for reports


# -- Keeps what each process would print again out of workers. Other warnings, and errors, remain.


def quiet_libraries() -> None:
    """Let libraries print no banners and deprecation warnings in this process, a worker."""
    for name, quiet in _QUIET.items():
        if name in sys.modules:
            _try_to_quiet(sys.modules[name], quiet)
        else:
            sys.meta_path.insert(0, _QuietImport(name, quiet))


def _try_to_quiet(module: ModuleType, quiet: Callable[[Any], None]) -> None:
    """Call a function of `_QUIET`; a version of the library that it does not know is as loud as ever."""
    with contextlib.suppress(Exception):
        quiet(module)


def _quiet_ale(ale_py: Any) -> None:
    """Leave out the banner that ALE prints when the first game of a process is made."""
    ale_py.ALEInterface.setLoggerMode(ale_py.LoggerMode.Warning)


def _quiet_mujoco(mujoco: Any) -> None:
    """Leave out what MuJoCo prints about deprecated attributes of models, such as those of Gymnasium."""

    def warn(message: str) -> None:
        if "is deprecated" not in message:
            print(f"WARNING: {message}\n", file=sys.stderr, flush=True)  # as MuJoCo does

    if hasattr(mujoco, "get_mju_user_warning") and mujoco.get_mju_user_warning() is None:
        mujoco.set_mju_user_warning(warn)


_QUIET: dict[str, Callable[[Any], None]] = {"ale_py": _quiet_ale, "mujoco": _quiet_mujoco}


class _QuietImport(MetaPathFinder):
    """Calls a function with a module once it is imported: before the environment that imports it goes on."""

    def __init__(self, name: str, quiet: Callable[[Any], None]) -> None:
        self._name, self._quiet = name, quiet

    def find_spec(self, fullname: str, path: Any, target: Any = None) -> ModuleSpec | None:
        """Return the spec that Python finds, with a loader that calls the function."""
        if fullname != self._name:
            return None
        spec = PathFinder.find_spec(fullname, path, target)
        if spec is not None and spec.loader is not None:
            loader, execute = spec.loader, spec.loader.exec_module

            def exec_module(module: ModuleType) -> None:
                with contextlib.suppress(ValueError):  # not before: who asks for a spec need not import it
                    sys.meta_path.remove(self)
                del loader.exec_module
                execute(module)
                _try_to_quiet(module, self._quiet)

            loader.exec_module = exec_module  # type: ignore[method-assign]
        return spec


class WrapperSupport(Enum):
    """Tells who wrote the codecs of the wrappers around an environment."""

    # `BUILT_IN`: planvec has a codec for every wrapper. `REGISTERED`: Users have registered codecs for the
    # wrappers that planvec does not know. `MISSING`: A wrapper has no codec. It may change any attribute of
    # the environment.

    BUILT_IN = auto()
    REGISTERED = auto()
    MISSING = auto()


class FamilyCodec(NamedTuple):
    """Tells how the states of an environment are saved."""

    make: CodecMaker | None  # makes the codec; None if the actions must be replayed
    # whether the codec was written for exactly this class, so that it is not verified by replay when an
    # environment is opened
    is_verified: bool
    # makers of codecs that are tried in turn, if the verification shows that the states of the codec before
    # are not exact
    alternatives: tuple[CodecMaker, ...] = ()
    advice: str = ""  # how to fix a codec that fails the verification, for its error; `select` fills it in


class FamilyModule(Protocol):
    """The interface of a module that `Family.codec_module` names."""

    def codec_for_env(self, env: Any, wrappers: WrapperSupport) -> FamilyCodec | None:
        """Return how the states of an environment are saved."""
        # `env`: unwrapped; its class or a base belongs to the family, or the simulator is imported. Returns
        # None if the family has no codec for this class.


def families_of(env: object) -> Iterator[Family]:
    """Yield the families of an environment."""
    # Those of its class come first, then those of the base classes, then those whose simulator is imported.
    known = []
    for env_class in type(env).__mro__:
        for family in FAMILIES:
            is_member = f"{env_class.__module__}.".startswith(f"{family.env_package}.")
            if is_member and family not in known:
                known.append(family)
                yield family
    yield from (family for family in FAMILIES if family.simulator in sys.modules and family not in known)


def load_family(family: Family) -> FamilyModule | None:
    """Import the codecs of a family; None if it has none of its own."""
    return cast(FamilyModule, importlib.import_module(family.codec_module)) if family.codec_module else None


def _registered(*ids: str) -> tuple[str, ...]:
    """Return those ids that this version of Gymnasium has."""
    return tuple(env_id for env_id in ids if env_id in gymnasium.registry)


# the families, in the order of the reports
FAMILIES = (
    Family(
        name="classic control",
        module="gymnasium",
        extra="classic-control",
        env_package="gymnasium.envs.classic_control",
        ids=("Acrobot-v1", "CartPole-v1", "MountainCar-v0", "MountainCarContinuous-v0", "Pendulum-v1"),
        codec_module="planvec.codecs.gymnasium",
    ),
    Family(
        name="toy text",
        module="gymnasium",
        extra="toy-text",
        env_package="gymnasium.envs.toy_text",
        ids=_registered(
            *("Blackjack-v1", "CliffWalking-v1", "CliffWalkingSlippery-v1"),
            *("FrozenLake-v1", "FrozenLake8x8-v1", "Taxi-v4"),
        ),
        codec_module="planvec.codecs.gymnasium",
    ),
    Family(
        name="MuJoCo",
        module="mujoco",
        extra="mujoco",
        env_package="gymnasium.envs.mujoco",
        ids=(
            *("Ant-v5", "HalfCheetah-v5", "Hopper-v5", "Humanoid-v5", "HumanoidStandup-v5", "Pusher-v5"),
            *("InvertedDoublePendulum-v5", "InvertedPendulum-v5", "Reacher-v5", "Swimmer-v5", "Walker2d-v5"),
        ),
        codec_module="planvec.codecs.mujoco",
        simulator="mujoco",
    ),
    Family(
        name="Box2D",
        module="Box2D",
        extra="box2d",
        env_package="gymnasium.envs.box2d",
        ids=(
            *("LunarLander-v3", "LunarLanderContinuous-v3"),
            *("BipedalWalker-v3", "BipedalWalkerHardcore-v3", "CarRacing-v3"),
        ),
        codec_module="planvec.codecs.box2d",
        note="on Linux, x86-64; elsewhere, and for classes and wrappers of your own, "
        "by replay of the actions",
    ),
    Family(
        name="Atari",
        module="ale_py",
        extra="atari",
        env_package="ale_py",
        ids=("ALE/*-v5",),
        id_prefixes=("ALE/",),
        codec_module="planvec.codecs.atari",
        note="with sticky actions, which planvec draws itself, and without",
    ),
    Family(
        name="MiniGrid, BabyAI",
        module="minigrid",
        extra="minigrid",
        env_package="minigrid",
        ids=(
            *("MiniGrid-Empty-8x8-v0", "MiniGrid-DoorKey-8x8-v0", "MiniGrid-FourRooms-v0"),
            *("MiniGrid-MultiRoom-N4-S5-v0", "MiniGrid-Dynamic-Obstacles-8x8-v0"),
            *("MiniGrid-KeyCorridorS3R3-v0", "MiniGrid-ObstructedMaze-2Dl-v0"),
            *("BabyAI-GoToLocal-v0", "BabyAI-PutNextLocal-v0", "BabyAI-BossLevel-v0"),
        ),
        id_prefixes=("MiniGrid-", "BabyAI-"),
    ),
    Family(
        name="highway-env",
        module="highway_env",
        extra="highway",
        env_package="highway_env",
        ids=("highway-fast-v0", "merge-v0", "parking-v0"),
        id_prefixes=(
            *("exit-v", "highway-", "intersection-", "lane-keeping-", "merge-", "parking-"),
            *("racetrack-", "roundabout-", "two-way-", "u-turn-"),
        ),
    ),
    Family(
        name="OpenSpiel",
        module="pyspiel",
        extra="openspiel",
        env_package="planvec.openspiel",
        ids=(
            *("OpenSpiel/backgammon", "OpenSpiel/breakthrough", "OpenSpiel/connect_four", "OpenSpiel/go"),
            *("OpenSpiel/mancala", "OpenSpiel/othello", "OpenSpiel/pig", "OpenSpiel/tic_tac_toe"),
        ),
        id_prefixes=("OpenSpiel/",),
        registrant="planvec.openspiel",
        codec_module="planvec.codecs.openspiel",
        note="games with perfect information, for one player, or for two who take turns",
    ),
    Family(
        name="stable-retro",
        module="stable_retro",
        extra="retro",
        env_package="stable_retro",
        ids=(),
        codec_module="planvec.codecs.retro",
    ),
)


# -- The codecs that users have registered in this process ---------------------------------------------------


@dataclass(frozen=True, slots=True)
class RegisteredCodecs:
    """Holds the codecs that users have registered, to pass them on to other processes."""

    envs: Mapping[type, CodecMaker]  # environment class -> the maker of its codec
    wrappers: Mapping[type, WrapperCodecMaker]  # wrapper class -> the maker of its codec

    def install(self) -> None:
        """Register all of them in this process."""
        _envs.update(self.envs)
        _wrappers.update(self.wrappers)


_envs: dict[type, CodecMaker] = {}
_wrappers: dict[type, WrapperCodecMaker] = {}


def register_codec(env_class: type, codec: CodecMaker) -> None:
    """Save environments of a class with a codec.

    The class must match exactly, since a subclass may hold more. Worker processes that are started afterwards
    know the codec too. It is verified by replay when an environment is opened.

    Args:
        env_class: A subclass of `gymnasium.Env`.
        codec: A `Codec` subclass, or a function from the unwrapped environment to a `Codec`.

    Raises:
        TypeError: An argument is something else.
    """
    if not (isinstance(env_class, type) and issubclass(env_class, gymnasium.Env)):
        raise TypeError(f"env_class: expected a subclass of gymnasium.Env, got {env_class!r}")
    if not callable(codec):
        raise TypeError(f"codec: expected a Codec subclass, got {codec!r}")
    _envs[env_class] = codec


def register_wrapper_codec(wrapper_class: type, codec: WrapperCodecMaker) -> None:
    """Save wrappers of a class with a codec.

    The class must match exactly, since a subclass may remember more. Worker processes that are started
    afterwards know the codec too. It is verified by replay when an environment is opened.

    Args:
        wrapper_class: A subclass of `gymnasium.Wrapper`.
        codec: A `WrapperCodec` subclass, or a function from the wrapper to a `WrapperCodec`. It must save
            everything that the wrapper remembers, and everything that it changes in the environment below.

    Raises:
        TypeError: An argument is something else.
    """
    if not (isinstance(wrapper_class, type) and issubclass(wrapper_class, gymnasium.Wrapper)):
        raise TypeError(f"wrapper_class: expected a subclass of gymnasium.Wrapper, got {wrapper_class!r}")
    if not callable(codec):
        raise TypeError(f"codec: expected a WrapperCodec subclass, got {codec!r}")
    _wrappers[wrapper_class] = codec


def registered_codecs() -> RegisteredCodecs:
    """Return a copy of what users have registered so far."""
    return RegisteredCodecs(dict(_envs), dict(_wrappers))


# The versions of Gymnasium whose environments planvec's codecs were compared with. In others, the codecs are
# verified like those of users.
_FIRST_GYMNASIUM, _LAST_GYMNASIUM = (1, 1), (1, 4)
GYMNASIUM = tuple(map(int, gymnasium.__version__.split(".")[:2]))

# None (choose automatically), "copied", "replay" or `Replayed`, or a maker of a `Codec` for the unwrapped
# environment
CodecChoice = str | CodecMaker | Replayed | None

_COPY_ADVICE = (
    "The environment keeps something that could not be saved (a generator of its own, a global, memory of a "
    f"C library). {ADVICE}. If an info cannot be reproduced, leave it out with info_keys="
)
_REPLAY_ADVICE = (
    "The environment does not restart from its seed. If a new one does, in a new process, pass "
    "codec=planvec.Replayed(resets_in_forks=True); else register a codec for it"
)


_FORK_ADVICE = (
    "The same seed and actions give other results, even in a new process: it draws from what its seed does "
    "not determine, or depends on the time or on addresses of memory. Begin reset with "
    "super().reset(seed=seed), and draw only from self.np_random. If an info cannot be reproduced, leave it "
    "out with info_keys="
)


class Layer(NamedTuple):
    """Holds a wrapper and the maker of its codec."""

    wrapper: Any
    make: WrapperCodecMaker | None  # makes its codec; None if there is none for its class
    is_built_in: bool  # whether planvec ships the codec


def wrapper_layers(env: Env) -> list[Layer]:
    """Return the wrappers of an environment with their codecs, innermost first."""
    registered, layers = registered_codecs().wrappers, []
    for wrapper in wrappers_of(env):
        wrapper_class = type(wrapper)
        if wrapper_class in registered:
            layers.append(Layer(wrapper, registered[wrapper_class], is_built_in=False))
        else:
            make = built_in_codec(wrapper_class)
            layers.append(Layer(wrapper, make, is_built_in=make is not None))
    return layers


def select(base: object, codec: CodecChoice, layers: Sequence[Layer]) -> FamilyCodec:
    """Decide how the unwrapped environment is saved."""
    if codec == "replay" or isinstance(codec, Replayed):
        in_forks = isinstance(codec, Replayed) and codec.resets_in_forks
        return FamilyCodec(None, False, advice=_FORK_ADVICE if in_forks else _REPLAY_ADVICE)
    support = (
        WrapperSupport.BUILT_IN if all(layer.is_built_in for layer in layers) else WrapperSupport.REGISTERED
    )
    if any(layer.make is None for layer in layers):
        support = WrapperSupport.MISSING
    given = registered_codecs().envs.get(type(base)) if codec is None else codec
    if isinstance(given, Named):
        if support is not WrapperSupport.MISSING:
            return FamilyCodec(given, False, advice=given.advice)
        given = None  # an unknown wrapper is copied, together with the environment, which it may change
    own_makers: list[Callable[[Any], Any]] = [
        layer.make for layer in layers if layer.make is not None and not layer.is_built_in
    ]
    if given is None:
        modules = (load_family(family) for family in families_of(base))
        known = (None if module is None else module.codec_for_env(base, support) for module in modules)
        chosen = next((one for one in known if one is not None), FamilyCodec(CopiedCodec, is_verified=False))
        advice = _advice_on(own_makers, is_copied=not chosen.is_verified)
        return chosen._replace(
            is_verified=chosen.is_verified and _FIRST_GYMNASIUM <= GYMNASIUM <= _LAST_GYMNASIUM,
            advice=_REPLAY_ADVICE if chosen.make is None else advice,
        )
    if given == "copied" or given is Copied:  # type: ignore[comparison-overlap]
        return FamilyCodec(CopiedCodec, False, advice=_advice_on(own_makers, is_copied=True))
    assert callable(given)
    is_copied = isinstance(given, Copied)
    makers = own_makers if is_copied else [given, *own_makers]
    return FamilyCodec(given, False, advice=_advice_on(makers, is_copied))


def _advice_on(makers: Sequence[Callable[[Any], Any]], is_copied: bool) -> str:
    """Return how to fix codecs that fail the verification."""
    if not makers:
        return _COPY_ADVICE
    names = " or ".join(getattr(make, "__name__", type(make).__name__) for make in makers)
    advice = (
        f"{names} does not restore everything: is a field missing, or does its get() return an object that "
        "step() changes in place (copy it)?"
    )
    return f"{advice} Or: {_COPY_ADVICE}" if is_copied else advice
