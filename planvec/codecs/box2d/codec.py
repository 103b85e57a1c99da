"""Codecs of Gymnasium's Box2D environments: the memory of the world, and the Python attributes beside it."""

from __future__ import annotations

from typing import Any

from Box2D import b2World
from gymnasium.envs.box2d.bipedal_walker import BipedalWalker
from gymnasium.envs.box2d.car_racing import CarRacing
from gymnasium.envs.box2d.lunar_lander import LunarLander

from planvec.codecs.base import CodecMaker
from planvec.codecs.box2d.car import CarRacingCodec
from planvec.codecs.box2d.episode import Box2DCodec
from planvec.codecs.box2d.layout_check import unknown_layout
from planvec.codecs.families import FamilyCodec, WrapperSupport


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


def codec_for_env(env: Any, wrappers: WrapperSupport) -> FamilyCodec:
    """Return how the states of an environment are saved; see `FamilyModule`."""
    # The actions are replayed in three cases, since these environments neither copy nor pickle: planvec has
    # no codec for exactly this class; an unknown wrapper may change the world after its reset, which planvec
    # makes again without the wrapper; the memory layout of the installed Box2D is unknown.
    make = _CODECS.get(type(env))
    if make is None or wrappers is WrapperSupport.MISSING or unknown_layout() is not None:
        return FamilyCodec(None, is_verified=False)
    return FamilyCodec(make, is_verified=True)
