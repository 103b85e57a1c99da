"""A codec of CarRacing: the car, the tiles of the road, and the world with both."""

from __future__ import annotations

from typing import Any

import numpy as np
from Box2D import b2World
from gymnasium.envs.box2d.car_dynamics import Particle
from gymnasium.utils import seeding

from planvec.codecs.box2d.episode import Box2DCodec, Episode


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

    def _reset(self, env: Any, key: tuple[Any, ...], **arguments: Any) -> None:
        super()._reset(env, key, options={"randomize": key[1]})

    def _store_episode(self, env: Any, key: tuple[Any, ...]) -> Episode:
        self._share_colors(env)
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
    def _share_colors(env: Any) -> None:
        """Make the colours of the tiles, and of the polygons drawn for them, rows of one array."""
        colors = np.array([tile.color for tile in env.road])
        shared = {id(tile.color): colors[tile.idx] for tile in env.road}
        env.road_poly = [(points, shared.get(id(color), color)) for points, color in env.road_poly]
        for tile in env.road:
            tile.color = colors[tile.idx]

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


def _set_skids(car: Any, skids: Any) -> None:
    count, saved, numbers, starts = skids or (0, (), (None,) * 4, (False,) * 4)
    marks = [Particle(color, list(points), grass, ttl) for color, points, grass, ttl in saved]
    car.particles.clear()
    car.particles.extend(marks[:count])
    for wheel, number, start in zip(car.wheels, numbers, starts, strict=True):
        wheel.skid_particle = None if number is None else marks[number]
        wheel.skid_start = wheel.position if start else None  # a view of the position, not a copy
