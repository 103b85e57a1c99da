"""Records that hold the state of NumPy's PCG64, the generator behind Gymnasium's `np_random`.

Letters: B rows.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from gymnasium.utils import seeding
from numpy.typing import NDArray

from planvec.codecs.base import Env
from planvec.errors import UnsupportedEnvError

GeneratorState = dict[str, Any]  # in NumPy's form

# two 128-bit integers, little-endian, and the 32 bits left over from the last draw
GENERATOR = np.dtype([("state", "V16"), ("increment", "V16"), ("spare", "<u4"), ("has_spare", "?")])


def get_generator(env: Env) -> GeneratorState:
    """Return the state of `env.np_random` in NumPy's form."""
    try:
        state: GeneratorState = dict(_generator_of(env).state)
        if state["bit_generator"] == "PCG64":
            return state
    except AttributeError:  # RandomState
        state = {"bit_generator": type(env.np_random).__name__}
    raise UnsupportedEnvError(
        f"{env}.np_random: expected Gymnasium's PCG64, got {state['bit_generator']}. Seed it with "
        'super().reset(seed=seed), or pass codec="replay"'
    )


def set_generator(env: Env, state: GeneratorState) -> None:
    """Put `env.np_random` into a state that `get_generator` returned."""
    _generator_of(env).state = state


def _generator_of(env: Any) -> Any:
    """Return the bit generator of an environment."""
    # Its class may define `np_random` as something else: a `RandomState` that is saved with the attributes.
    # If its `reset` does not seed `np_random`, it has no seed, and Gymnasium would take one from the time of
    # day.
    if env._np_random is None:
        env._np_random, _ = seeding.np_random(0)
    return env._np_random.bit_generator


def reseed_generator(env: Env, seed: int) -> None:
    """Seed `env.np_random` exactly as `gymnasium.Env.reset(seed=seed)` does."""
    generator, _ = seeding.np_random(seed)
    _generator_of(env).state = generator.bit_generator.state


def is_unused(env: Env, seed: int) -> bool:
    """Return whether `env.np_random` is where `reseed_generator` has put it."""
    generator, _ = seeding.np_random(seed)
    return bool(_generator_of(env).state == generator.bit_generator.state)


def generator_to_bytes(state: GeneratorState) -> bytes:
    """Return a state that `get_generator` returned as bytes."""
    record = np.zeros(1, GENERATOR)
    pack_generators([state], record)
    return record.tobytes()


def generator_from_bytes(data: bytes) -> GeneratorState:
    """Return the state of which `generator_to_bytes` returned the bytes."""
    return unpack_generators(np.frombuffer(data, GENERATOR))[0]


def pack_generators(states: Sequence[GeneratorState], records: NDArray[np.void]) -> None:
    """Write generator states into records `[B]` of dtype `GENERATOR`."""
    numbers = [state["state"] for state in states]
    for field, key in (("state", "state"), ("increment", "inc")):
        joined = b"".join([number[key].to_bytes(16, "little") for number in numbers])
        records[field] = np.frombuffer(joined, "V16")
    records["spare"] = [state["uinteger"] for state in states]
    records["has_spare"] = [state["has_uint32"] for state in states]


def unpack_generators(records: NDArray[np.void]) -> list[GeneratorState]:
    """Read generator states from records `[B]`, in NumPy's form."""
    rows = zip(
        records["state"].tolist(),
        records["increment"].tolist(),
        records["spare"].tolist(),
        records["has_spare"].tolist(),
        strict=True,
    )
    return [
        {
            "bit_generator": "PCG64",
            "state": {
                "state": int.from_bytes(state, "little"),
                "inc": int.from_bytes(increment, "little"),
            },
            "has_uint32": int(has_spare),
            "uinteger": spare,
        }
        for state, increment, spare, has_spare in rows
    ]
