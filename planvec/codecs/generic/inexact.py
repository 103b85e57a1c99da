"""Types whose objects cannot be copied, or do not behave like the original afterwards."""

from __future__ import annotations

import functools

from planvec.codecs.generic.simulators import is_simulator_type
from planvec.errors import UnsupportedEnvError

_REPLAY = 'Pass codec="replay", which is exact if the environment restarts from its seed'
# class -> why its objects cannot be saved, and what to do
_REASONS = {
    "pymunk.space.Space": f"a copy of it loses the cached contacts of the bodies. {_REPLAY}",
    "pybullet_utils.bullet_client.BulletClient": f"PyBullet does not restore its states exactly. {_REPLAY}",
    "nes_py.nes_env.NESEnv": f"the memory of its emulator cannot be copied. {_REPLAY}",
}


def check_copyable(kind: type) -> None:
    """Check that objects of a type can be copied exactly, as far as is known."""
    reason = _reason(kind)
    if reason:
        raise UnsupportedEnvError(f"{kind.__module__}.{kind.__qualname__}: {reason}")


@functools.cache
def _reason(kind: type) -> str:
    for base in kind.__mro__:
        reason = _REASONS.get(f"{base.__module__}.{base.__qualname__}")
        if reason:
            return reason
    if is_simulator_type(kind):
        return (
            "it belongs to a simulator and was made after the environment was opened, so planvec does not "
            f"know what it holds. Make it in __init__ and keep it. {_REPLAY}"
        )
    return ""
