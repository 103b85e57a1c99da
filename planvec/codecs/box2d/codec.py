"""Codecs of Gymnasium's Box2D environments: the memory of the world, and the Python attributes beside it."""

from __future__ import annotations

from abc import abstractmethod
from collections import OrderedDict
from types import SimpleNamespace
from typing import Any, NamedTuple

import numpy as np
from Box2D import b2World
from gymnasium.envs.box2d import car_dynamics
from gymnasium.envs.box2d.bipedal_walker import BipedalWalker
from gymnasium.envs.box2d.car_racing import CarRacing
from gymnasium.envs.box2d.lunar_lander import LunarLander
from gymnasium.utils import seeding

from planvec.codecs.base import Codec, CodecMaker
from planvec.codecs.box2d.world import SavedWorld, WorldMemory, unknown_layout
from planvec.codecs.generator import generator_from_bytes, generator_to_bytes, get_generator, set_generator
from planvec.codecs.selection import FamilyCodec, WrapperSupport
from planvec.errors import UnsupportedEnvError

# -- The common part of the Box2D codecs: which episode an environment is in, and how to switch to
# another.
#
# A state names the reset of its episode, and holds what has changed since. Everything that a reset makes
# (terrain, bodies, the Python proxies of the bodies) stays the same until the next reset. It is kept for the
# last few episodes, each with its own world. A missing episode is made again by the same reset.

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

    def __init__(self, env: object) -> None:
        self._episodes: OrderedDict[tuple[Any, ...], Episode] = OrderedDict()
        self._current: Episode | None = None
        self._generator = b""

    def get(self, env: object) -> Any:
        episode = self._current_episode(env)
        memory = episode.memory
        return episode.key, memory.digest, tuple(memory.get()), self._get_attributes(env)

    def set(self, env: object, value: Any) -> None:
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

    def after_own_reset(self, env: object) -> None:
        self._current_episode(env)

    def _key(self, env: Any) -> tuple[Any, ...]:
        """Return the arguments of the reset that began the current episode."""
        # They end with the generator that a reset without a seed has continued; b"" for a reset with a seed.
        return env.np_random_seed, self._generator

    def _reset(self, env: Any, key: tuple[Any, ...], **arguments: object) -> None:
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

    def _is_in(self, env: object, episode: Episode) -> bool:
        name = self.made_by_reset[0]
        return getattr(env, name) is episode.attributes[name]

    def _current_episode(self, env: object) -> Episode:
        """Return the episode that the environment is in."""
        episode = self._current
        if episode is None or not self._is_in(env, episode):
            if episode is not None:  # somebody else has reset the environment, which may have used its world
                self._episodes.pop(episode.key, None)
            episode = self._store_episode(env, self._key(env))
        return episode

    def _store_episode(self, env: Any, key: tuple[object, ...]) -> Episode:
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

    def _switch_to(self, env: object, key: tuple[object, ...]) -> Episode:
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


# -- A codec of CarRacing: the car, the tiles of the road, and the world with both ---------------------------


class CarRacingCodec(Box2DCodec):
    """Saves the wheels, and the tiles that the car has touched: they give their reward only once."""

    constants = ("continuous", "domain_randomize", "lap_complete_percent")
    made_by_reset = (
        *("car", "world", "road", "road_poly", "track", "start_alpha"),
        *("road_color", "bg_color", "grass_color"),
    )
    draws = False

    def __init__(self, env: Any) -> None:
        super().__init__(env)
        self._first_color: Any = None
        self._shown_reward = 0.0
        render = env._render

        def render_and_save_reward(mode: str) -> Any:
            # A step adds its cost after it has drawn. The reward in the picture is not an attribute.
            if mode == "state_pixels":
                self._shown_reward = env.reward
            return render(mode)

        env._render = render_and_save_reward

    def before_reset(self, env: Any) -> None:
        self._current = None
        env.world = b2World((0, 0), contactListener=env.contactListener_keepref)
        env.road = None
        if env.domain_randomize:
            env.np_random, _ = seeding.np_random(0)
            env._init_colors()  # a reset with {"randomize": False} keeps the colours
            self._first_color = env.road_color

    def _key(self, env: Any) -> tuple[Any, ...]:
        seed, generator = super()._key(env)
        return seed, env.domain_randomize and env.road_color is not self._first_color, generator

    def _reset(self, env: object, key: tuple[object, ...], **arguments: object) -> None:
        super()._reset(env, key, options={"randomize": key[1]})

    def _store_episode(self, env: Any, key: tuple[object, ...]) -> Episode:
        # The colours of the tiles, and of the polygons drawn for them, become rows of one array.
        colors = np.array([tile.color for tile in env.road])
        shared = {id(tile.color): colors[tile.idx] for tile in env.road}
        env.road_poly = [(points, shared.get(id(color), color)) for points, color in env.road_poly]
        for tile in env.road:
            tile.color = colors[tile.idx]
        return super()._store_episode(env, key)

    def _release(self, episode: Episode) -> None:
        car = episode.attributes["car"]
        for body in (*episode.attributes["road"], *car.wheels):
            body.ClearUserData()  # the body itself: it and the world would keep each other in memory

    def observe(self, env: Any) -> Any:
        reward, env.reward = env.reward, self._shown_reward
        try:
            return env._render("state_pixels")
        finally:
            env.reward = reward

    def _get_attributes(self, env: Any) -> Any:
        car = env.car
        numbers = [env.reward, env.prev_reward, env.t, self._shown_reward, car.fuel_spent]
        for wheel in car.wheels:
            numbers += (wheel.gas, wheel.brake, wheel.steer, wheel.phase, wheel.omega)
        visited = np.packbits([tile.road_visited for tile in env.road])
        touched = np.packbits((self._colors(env) == env.road_color).all(axis=1))
        return (
            np.array(numbers, np.float64).tobytes(),
            env.tile_visited_count,
            env.new_lap,
            visited.tobytes(),
            touched.tobytes(),
            tuple(tuple(sorted(tile.idx for tile in wheel.tiles)) for wheel in car.wheels),
            _get_skids(car) if env.render_mode is not None else None,
        )

    def _set_attributes(self, env: Any, saved: Any) -> None:
        car = env.car
        packed, env.tile_visited_count, env.new_lap, visited, touched, tiles, skids = saved
        numbers = np.frombuffer(packed, np.float64).tolist()
        env.reward, env.prev_reward, env.t, self._shown_reward, car.fuel_spent = numbers[:5]
        for index, wheel in enumerate(car.wheels):
            wheel.gas, wheel.brake, wheel.steer, wheel.phase, wheel.omega = numbers[5 + 5 * index :][:5]
            wheel.tiles = {env.road[number] for number in tiles[index]}
        num_tiles = len(env.road)
        for tile, flag in zip(env.road, _bits(visited, num_tiles).tolist(), strict=True):
            tile.road_visited = flag
        shades = 0.01 * (np.arange(num_tiles) % 3) * 255
        self._colors(env)[:] = np.where(
            _bits(touched, num_tiles)[:, None], env.road_color, env.road_color + shades[:, None]
        )
        _set_skids(car, skids)

    @staticmethod
    def _colors(env: Any) -> Any:
        return env.road[0].color.base


def _bits(packed: bytes, count: int) -> Any:
    return np.unpackbits(np.frombuffer(packed, np.uint8), count=count).view(bool)


def _get_skids(car: Any) -> tuple[Any, ...]:
    """Return the skid marks on the road, for `render`. Each wheel may be drawing one of them."""
    marks = list(car.particles)
    numbers = []
    for wheel in car.wheels:
        mark = wheel.skid_particle
        if mark is not None and not any(mark is other for other in marks):
            marks.append(mark)
        numbers.append(next((i for i, other in enumerate(marks) if other is mark), None))
    return (
        len(car.particles),
        tuple((mark.color, tuple(mark.poly), mark.grass, mark.ttl) for mark in marks),
        tuple(numbers),
        tuple(wheel.skid_start is not None for wheel in car.wheels),
    )


# Before Gymnasium 1.4, a wheel defines the class of its marks anew for each.
_Mark = getattr(car_dynamics, "Particle", SimpleNamespace)


def _set_skids(car: Any, skids: Any) -> None:
    count, saved, numbers, starts = skids or (0, (), (None,) * 4, (False,) * 4)
    marks = [
        _Mark(color=color, poly=list(points), grass=grass, ttl=ttl) for color, points, grass, ttl in saved
    ]
    car.particles.clear()
    car.particles.extend(marks[:count])
    for wheel, number, start in zip(car.wheels, numbers, starts, strict=True):
        wheel.skid_particle = None if number is None else marks[number]
        wheel.skid_start = wheel.position if start else None  # a view of the position, not a copy


class LunarLanderCodec(Box2DCodec):
    """Saves the contacts of the legs, the wind, and with a render mode the flames, which are bodies."""

    constants = ("continuous", "gravity", "enable_wind", "wind_power", "turbulence_power")
    made_by_reset = (
        *("lander", "world", "moon", "legs", "drawlist", "sky_polys"),
        *("helipad_x1", "helipad_x2", "helipad_y"),
    )
    draws = True

    def before_reset(self, env: Any) -> None:
        self._current = None
        env.moon = None  # otherwise the reset would remove the bodies from a world that is kept
        env.particles = []

    def _get_attributes(self, env: Any) -> Any:
        first, second = env.legs
        return (
            env.game_over,
            float(env.prev_shaping),
            first.ground_contact,
            second.ground_contact,
            (int(env.wind_idx), int(env.torque_idx)) if env.enable_wind else (),
            tuple(float(particle.ttl) for particle in env.particles),
        )

    def _set_attributes(self, env: Any, saved: Any) -> None:
        first, second = env.legs
        env.game_over, env.prev_shaping, first.ground_contact, second.ground_contact, wind, lifetimes = saved
        if wind:
            env.wind_idx, env.torque_idx = wind
        env.particles = []
        if lifetimes:
            body = env.world._b2World__GetBodyList_internal()
            for lifetime in reversed(lifetimes):  # the world lists the newest first
                body.ttl = lifetime
                env.particles.append(body)
                body = body.next
            env.particles.reverse()


class BipedalWalkerCodec(Box2DCodec):
    """Saves the contacts of the feet, and with a render mode the rays of the lidar."""

    constants = ("hardcore",)
    made_by_reset = (
        *("hull", "world", "terrain", "terrain_x", "terrain_y", "terrain_poly", "cloud_poly"),
        *("legs", "joints", "drawlist", "lidar"),
    )
    draws = False

    def before_reset(self, env: Any) -> None:
        self._current = None
        env.world = b2World()
        env.terrain = []

    def _get_attributes(self, env: Any) -> Any:
        rays: tuple[Any, ...] = ()
        if env.render_mode is not None:
            rays = tuple((ray.fraction, *map(float, ray.p2)) for ray in env.lidar)
        _, first, _, second = env.legs
        return (
            env.game_over,
            float(env.prev_shaping),
            float(env.scroll),
            env.lidar_render,
            first.ground_contact,
            second.ground_contact,
            rays,
        )

    def _set_attributes(self, env: Any, saved: Any) -> None:
        _, first, _, second = env.legs
        env.game_over, env.prev_shaping, env.scroll, env.lidar_render = saved[:4]
        first.ground_contact, second.ground_contact, rays = saved[4:]
        for ray, (fraction, x, y) in zip(env.lidar, rays, strict=False):
            ray.fraction, ray.p1, ray.p2 = fraction, env.hull.position, (x, y)


# environment class -> the maker of its codec
_CODECS: dict[type, CodecMaker] = {
    BipedalWalker: BipedalWalkerCodec,
    CarRacing: CarRacingCodec,
    LunarLander: LunarLanderCodec,
}


def codec_for_env(env: object, wrappers: WrapperSupport) -> FamilyCodec:
    """Return how the states of an environment are saved; see `FamilyModule`."""
    # The actions are replayed in three cases, since these environments neither copy nor pickle: planvec has
    # no codec for exactly this class; an unknown wrapper may change the world after its reset, which planvec
    # makes again without the wrapper; the memory layout of the installed Box2D is unknown.
    make = _CODECS.get(type(env))
    if make is None or wrappers is WrapperSupport.MISSING or unknown_layout() is not None:
        return FamilyCodec(None, is_verified=False)
    return FamilyCodec(make, is_verified=True)
