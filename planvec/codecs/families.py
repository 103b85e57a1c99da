"""The families of environments that planvec knows: one entry for each, in one table.

To add a family, write an entry of `FAMILIES`. If its states need a codec of their own, add a folder whose
`__init__` hands on a function `codec_for_env` (see `FamilyModule`) and name the folder in the entry. Then run
`benchmarks/environments.py --write`, which checks the ids and measures the costs.
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from enum import Enum, auto
from typing import Any, NamedTuple, Protocol, cast

from planvec.codecs.base import CodecMaker


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


class FamilyModule(Protocol):
    """The interface of a module that `Family.codec_module` names."""

    def codec_for_env(self, env: Any, wrappers: WrapperSupport) -> FamilyCodec | None:
        """Return how the states of an environment are saved."""


def families_of(env: Any) -> Iterator[Family]:
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


_MUJOCO = (
    *("Ant", "HalfCheetah", "Hopper", "Humanoid", "HumanoidStandup", "InvertedDoublePendulum"),
    *("InvertedPendulum", "Pusher", "Reacher", "Swimmer", "Walker2d"),
)
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
        ids=(
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
        ids=tuple(f"{name}-v5" for name in _MUJOCO),
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
