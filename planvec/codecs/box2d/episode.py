"""The common part of the Box2D codecs: which episode an environment is in, and how to switch to another.

A state names the reset of its episode, and holds what has changed since. Everything that a reset makes
(terrain, bodies, the Python proxies of the bodies) stays the same until the next reset. It is kept for the
last few episodes, each with its own world. A missing episode is made again by the same reset.
"""

from __future__ import annotations

from abc import abstractmethod
from collections import OrderedDict
from typing import Any, NamedTuple

from planvec.codecs.base import Codec
from planvec.codecs.box2d.world import SavedWorld, WorldMemory
from planvec.codecs.generator import (
    generator_from_bytes,
    generator_to_bytes,
    get_generator,
    set_generator,
)
from planvec.errors import UnsupportedEnvError

_MAX_EPISODES = 32


class Episode(NamedTuple):
    """Holds what a reset has made."""

    key: tuple[Any, ...]  # the arguments of the reset
    attributes: dict[str, Any]  # the attributes of the environment that no step replaces
    memory: WorldMemory


class Box2DCodec(Codec):
    """Saves an environment with a Box2D world."""

    # Names of the attributes that a reset makes and no step replaces. The first of them is a new object after
    # every reset.
    made_by_reset: tuple[str, ...]
    how = "the world's memory, as changes since the reset"

    def __init__(self, env: Any) -> None:
        self._episodes: OrderedDict[tuple[Any, ...], Episode] = OrderedDict()
        self._current: Episode | None = None
        self._generator = b""

    def get(self, env: Any) -> Any:
        episode = self._current_episode(env)
        memory = episode.memory
        return episode.key, memory.digest, tuple(memory.get()), self._get_attributes(env)

    def set(self, env: Any, value: Any) -> None:
        key, digest, saved_world, saved_attributes = value
        episode = self._current
        if episode is None or episode.key != key or not self._is_in(env, episode):
            episode = self._switch_to(env, key)
        if episode.memory.digest != digest:
            raise UnsupportedEnvError(
                f"{env}: expected the world of this state after a reset with its seed, got another one. "
                'If a wrapper changes the world after its reset, pass codec="replay"'
            )
        episode.memory.set(SavedWorld(*saved_world))
        self._set_attributes(env, saved_attributes)

    @abstractmethod
    def _get_attributes(self, env: Any) -> Any:
        """Return the Python attributes that steps change, as plain data."""

    @abstractmethod
    def _set_attributes(self, env: Any, saved: Any) -> None:
        """Restore the Python attributes that steps change."""

    def before_own_reset(self, env: Any, seed: int | None) -> None:
        np_random = env._np_random
        self.before_reset(env)
        env._np_random = np_random
        is_continued = seed is None and np_random is not None
        self._generator = generator_to_bytes(get_generator(env)) if is_continued else b""

    def after_own_reset(self, env: Any) -> None:
        self._current_episode(env)

    def _key(self, env: Any) -> tuple[Any, ...]:
        """Return the arguments of the reset that began the current episode."""
        # They end with the generator that a reset without a seed has continued; b"" for a reset with a seed.
        return env.np_random_seed, self._generator

    def _reset(self, env: Any, key: tuple[Any, ...], **arguments: Any) -> None:
        """Reset the environment with the arguments in a key."""
        seed, generator = key[0], key[-1]
        if not generator:
            env.reset(seed=seed, **arguments)
            return
        set_generator(env, generator_from_bytes(generator))
        env.reset(**arguments)
        env._np_random_seed = seed

    def _release(self, episode: Episode) -> None:
        """Free what an episode holds and Python would not free."""

    def _is_in(self, env: Any, episode: Episode) -> bool:
        name = self.made_by_reset[0]
        return getattr(env, name) is episode.attributes[name]

    def _current_episode(self, env: Any) -> Episode:
        """Return the episode that the environment is in."""
        episode = self._current
        if episode is None or not self._is_in(env, episode):
            if episode is not None:  # somebody else has reset the environment, which may have used its world
                self._episodes.pop(episode.key, None)
            episode = self._store_episode(env, self._key(env))
        return episode

    def _store_episode(self, env: Any, key: tuple[Any, ...]) -> Episode:
        """Store the episode that a reset has just begun."""
        attributes = {name: getattr(env, name) for name in self.made_by_reset}
        replaced = self._episodes.pop(key, None)
        if replaced is None and len(self._episodes) >= _MAX_EPISODES:
            _, replaced = self._episodes.popitem(last=False)
        if replaced is not None:
            self._release(replaced)
        episode = Episode(key, attributes, WorldMemory(env.world))
        self._episodes[key] = self._current = episode
        return episode

    def _switch_to(self, env: Any, key: tuple[Any, ...]) -> Episode:
        """Put the environment into an episode, at any step of it."""
        previous = self._current
        if previous is not None and not self._is_in(env, previous):
            self._episodes.pop(previous.key, None)
        episode = self._episodes.get(key)
        if episode is None:
            self.before_reset(env)
            self._reset(env, key)
            return self._store_episode(env, key)
        self._episodes.move_to_end(key)
        for name, value in episode.attributes.items():
            setattr(env, name, value)
        self._current = episode
        return episode
