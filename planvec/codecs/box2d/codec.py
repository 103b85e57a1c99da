"""Gymnasium's Box2D environments: the memory of the world, and what Python keeps beside it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from Box2D import b2World
from gymnasium.envs.box2d.bipedal_walker import BipedalWalker
from gymnasium.envs.box2d.car_racing import CarRacing
from gymnasium.envs.box2d.lunar_lander import LunarLander

from planvec.codecs.base import Codec
from planvec.codecs.box2d.car import CarRacingCodec
from planvec.codecs.box2d.episode import Box2DCodec
from planvec.codecs.box2d.layout_check import unknown_layout

__all__ = ["CODECS", "BipedalWalkerCodec", "CarRacingCodec", "LunarLanderCodec", "codec_maker"]


class LunarLanderCodec(Box2DCodec):
    """The contacts of the legs, the wind, and the flames (bodies that exist where they can be rendered)."""

    constants = ("continuous", "gravity", "enable_wind", "wind_power", "turbulence_power")
    made_by_reset = (
        *("lander", "world", "moon", "legs", "drawlist", "sky_polys"),
        *("helipad_x1", "helipad_x2", "helipad_y"),
    )
    draws = True

    def begin(self, env: Any) -> None:
        self._here = None
        env.moon = None  # or the reset would take the bodies out of a world that is kept
        env.particles = []

    def _get_rest(self, env: Any) -> Any:
        first, second = env.legs
        return (
            env.game_over,
            float(env.prev_shaping),
            first.ground_contact,
            second.ground_contact,
            (int(env.wind_idx), int(env.torque_idx)) if env.enable_wind else (),
            tuple(float(particle.ttl) for particle in env.particles),
        )

    def _set_rest(self, env: Any, rest: Any) -> None:
        first, second = env.legs
        env.game_over, env.prev_shaping, first.ground_contact, second.ground_contact, wind, lifetimes = rest
        if wind:
            env.wind_idx, env.torque_idx = wind
        env.particles = []
        if lifetimes:
            body = env.world._b2World__GetBodyList_internal()
            for lifetime in reversed(lifetimes):  # the world lists the youngest first
                body.ttl = lifetime
                env.particles.append(body)
                body = body.next
            env.particles.reverse()


class BipedalWalkerCodec(Box2DCodec):
    """The contacts of the feet; the rays of the lidar where they can be rendered."""

    constants = ("hardcore",)
    made_by_reset = (
        *("hull", "world", "terrain", "terrain_x", "terrain_y", "terrain_poly", "cloud_poly"),
        *("legs", "joints", "drawlist", "lidar"),
    )
    draws = False

    def begin(self, env: Any) -> None:
        self._here = None
        env.world = b2World()
        env.terrain = []

    def _get_rest(self, env: Any) -> Any:
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

    def _set_rest(self, env: Any, rest: Any) -> None:
        _, first, _, second = env.legs
        env.game_over, env.prev_shaping, env.scroll, env.lidar_render = rest[:4]
        first.ground_contact, second.ground_contact, rays = rest[4:]
        for ray, (fraction, x, y) in zip(env.lidar, rays, strict=False):
            ray.fraction, ray.p1, ray.p2 = fraction, env.hull.position, (x, y)


CODECS: dict[type, Callable[[Any], Codec]] = {
    BipedalWalker: BipedalWalkerCodec,
    CarRacing: CarRacingCodec,
    LunarLander: LunarLanderCodec,
}
"""Environment class -> codec."""


def codec_maker(base: Any, knows_wrappers: bool) -> tuple[Callable[[Any], Codec] | str, bool] | None:
    """What makes the codec of an environment, and whether it needs no proof.

    Args:
        base: The unwrapped environment.
        knows_wrappers: Whether all its wrappers are known; another may change any attribute of it.

    Returns:
        "replay" where planvec has none for exactly this class, where a wrapper may have changed the world
        after its reset (which is made again by the environment alone), or where the Box2D that is
        installed lies in memory in a way that planvec does not know: these neither copy nor pickle.
    """
    maker = CODECS.get(type(base))
    if maker is None or not knows_wrappers or unknown_layout() is not None:
        return "replay", False
    return maker, True
