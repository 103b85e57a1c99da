"""Environments with a Box2D world: which episode they stand in, and how to come to another.

A state says from which reset its episode came, and what has changed since. Everything that a reset makes
(terrain, bodies, the proxies that Python holds of them) stays as it is until the next; it is kept for the
last few episodes, one world each, and made again by the same reset where it is missing.
"""

from __future__ import annotations

from abc import abstractmethod
from collections import OrderedDict
from typing import Any, NamedTuple

from planvec.codecs.base import Codec
from planvec.codecs.box2d.world import SavedWorld, WorldMemory
from planvec.errors import UnsupportedEnvError

__all__ = ["Box2DCodec", "Episode"]

_MAX_EPISODES = 32


class Episode(NamedTuple):
    """What a reset has made.

    Attributes:
        key: What the reset was asked for.
        attributes: Of the environment, that no step replaces.
        memory: Of the world.
    """

    key: tuple[Any, ...]
    attributes: dict[str, Any]
    memory: WorldMemory


class Box2DCodec(Codec):
    """An environment with a world.

    Attributes:
        made_by_reset: Names of the attributes that a reset makes and no step replaces; the first of them
            is a new object after every reset.
    """

    made_by_reset: tuple[str, ...]
    how = "the world's memory, what differs from its reset"

    def __init__(self, env: Any) -> None:
        self._episodes: OrderedDict[tuple[Any, ...], Episode] = OrderedDict()
        self._here: Episode | None = None

    def get(self, env: Any) -> Any:
        here = self._episode(env)
        return here.key, here.memory.digest, tuple(here.memory.get()), self._get_rest(env)

    def set(self, env: Any, value: Any) -> None:
        key, digest, saved, rest = value
        here = self._here
        if here is None or here.key != key or not self._stands_in(env, here):
            here = self._enter(env, key)
        if here.memory.digest != digest:
            raise UnsupportedEnvError(
                f"{env}: a reset with the same seed has made another world than the one in this state"
            )
        here.memory.set(SavedWorld(*saved))
        self._set_rest(env, rest)

    @abstractmethod
    def _get_rest(self, env: Any) -> Any:
        """What Python keeps beside the world, as plain data."""

    @abstractmethod
    def _set_rest(self, env: Any, rest: Any) -> None:
        """Put it back."""

    def _key(self, env: Any) -> tuple[Any, ...]:
        """What to ask a reset for, in order to come to this episode."""
        return (env.np_random_seed,)

    def _reset(self, env: Any, key: tuple[Any, ...]) -> None:
        env.reset(seed=key[0])

    def _forget(self, episode: Episode) -> None:
        """Release what Python would not."""

    def _stands_in(self, env: Any, episode: Episode) -> bool:
        name = self.made_by_reset[0]
        return getattr(env, name) is episode.attributes[name]

    def _episode(self, env: Any) -> Episode:
        """The one that the environment stands in."""
        here = self._here
        if here is None or not self._stands_in(env, here):
            if here is not None:  # the environment was reset behind our back, and may have used its world
                self._episodes.pop(here.key, None)
            here = self._keep(env, self._key(env))
        return here

    def _keep(self, env: Any, key: tuple[Any, ...]) -> Episode:
        attributes = {name: getattr(env, name) for name in self.made_by_reset}
        before = self._episodes.pop(key, None)
        if before is None and len(self._episodes) >= _MAX_EPISODES:
            _, before = self._episodes.popitem(last=False)
        if before is not None:
            self._forget(before)
        here = Episode(key, attributes, WorldMemory(env.world))
        self._episodes[key] = self._here = here
        return here

    def _enter(self, env: Any, key: tuple[Any, ...]) -> Episode:
        """Put the environment into an episode, at any step of it."""
        here = self._here
        if here is not None and not self._stands_in(env, here):
            self._episodes.pop(here.key, None)
        episode = self._episodes.get(key)
        if episode is None:
            self.begin(env)
            self._reset(env, key)
            return self._keep(env, key)
        self._episodes.move_to_end(key)
        for name, value in episode.attributes.items():
            setattr(env, name, value)
        self._here = episode
        return episode
