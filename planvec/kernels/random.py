"""NumPy's generators as compiled code: PCG64, SeedSequence and Philox, each with NumPy's bits.

A generator at work is an array `[6]` uint64, see `INCREMENT` and the names beside it. It is loaded from the
field `generator` of a state (`planvec.codecs.generator.GENERATOR`) before a step, and stored after it.

Sources: O'Neill 2014, "PCG: A family of simple fast space-efficient statistically good algorithms for random
number generation" (PCG64 is PCG-XSL-RR-128/64); Salmon et al. 2011, "Parallel random numbers: as easy as 1,
2, 3" (Philox4x64-10); Lemire 2019, "Fast random integer generation in an interval"; NumPy's documentation of
`SeedSequence`, after O'Neill 2015, "Developing a seed_seq alternative"; Marsaglia and Tsang 2000, "The
Ziggurat Method for Generating Random Variables", with the tables of NumPy, which numba has as well.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numba import njit
from numba.np.random._constants import fi_double, ki_double, wi_double, ziggurat_nor_inv_r, ziggurat_nor_r
from numpy.typing import NDArray

from planvec.kernels.memory import load, multiply_high, store

# an unsigned integer of 32 or 64 bits; the types of compiled code are finer than those of type checkers
Word = Any

# indices of a generator: the state and the increment (lower 64 bits first), and the 32 bits left over
STATE, INCREMENT, SPARE, HAS_SPARE = 0, 2, 4, 5
NUM_WORDS = 6

_MULTIPLIER_LOW, _MULTIPLIER_HIGH = np.uint64(0x4385DF649FCCF645), np.uint64(0x2360ED051FC65DA4)
_DOUBLE_UNIT = 1.0 / 9007199254740992.0
_LOW_32 = np.uint64(0xFFFFFFFF)


@njit(cache=True)
def load_generator(generator: NDArray[np.uint64], data: NDArray[np.uint8], offset: int) -> None:
    """Read a generator from the bytes of its record."""
    # `generator`: `[6]`, written.
    # `data`: `[num_bytes]`.
    for word in range(4):
        generator[word] = load(data, offset + 8 * word, np.uint64)
    generator[SPARE] = load(data, offset + 32, np.uint32)
    generator[HAS_SPARE] = load(data, offset + 36, np.uint8)


@njit(cache=True)
def store_generator(generator: NDArray[np.uint64], data: NDArray[np.uint8], offset: int) -> None:
    """Write a generator as its record. The arguments are those of `load_generator`."""
    for word in range(4):
        store(data, offset + 8 * word, np.uint64, generator[word])
    store(data, offset + 32, np.uint32, generator[SPARE])
    store(data, offset + 36, np.uint8, generator[HAS_SPARE])


@njit(cache=True)
def _advance(generator: NDArray[np.uint64]) -> None:
    """Multiply the state by the constant of PCG and add the increment, modulo 2**128."""
    low, high = generator[STATE], generator[STATE + 1]
    product_high = multiply_high(low, _MULTIPLIER_LOW) + high * _MULTIPLIER_LOW + low * _MULTIPLIER_HIGH
    product_low = low * _MULTIPLIER_LOW
    new_low = product_low + generator[INCREMENT]
    carry = np.uint64(new_low < product_low)
    generator[STATE] = new_low
    generator[STATE + 1] = product_high + generator[INCREMENT + 1] + carry


@njit(cache=True)
def next_uint64(generator: NDArray[np.uint64]) -> Word:
    """Draw 64 bits."""
    _advance(generator)
    low, high = generator[STATE], generator[STATE + 1]
    mixed, turn = high ^ low, high >> np.uint64(58)
    return (mixed >> turn) | (mixed << ((np.uint64(64) - turn) & np.uint64(63)))


@njit(cache=True)
def _next_uint32(generator: NDArray[np.uint64]) -> Word:
    """Draw 32 bits, those left over from the last draw if there are any."""
    if generator[HAS_SPARE]:
        generator[HAS_SPARE] = np.uint64(0)
        return generator[SPARE]
    drawn = next_uint64(generator)
    generator[HAS_SPARE] = np.uint64(1)
    generator[SPARE] = drawn >> np.uint64(32)
    return drawn & _LOW_32


@njit(cache=True)
def random(generator: NDArray[np.uint64]) -> float:
    """Draw a number in [0, 1), as `numpy.random.Generator.random()`."""
    return float(np.int64(next_uint64(generator) >> np.uint64(11))) * _DOUBLE_UNIT


@njit(cache=True)
def uniform(generator: NDArray[np.uint64], low: float, high: float) -> float:
    """Draw a number in [low, high), as `numpy.random.Generator.uniform(low, high)`."""
    return low + (high - low) * random(generator)


@njit(cache=True)
def random_index(generator: NDArray[np.uint64], size: int) -> int:
    """Draw an integer in [0, size), as `numpy.random.Generator.integers(size)` and `choice` do."""
    # `size`: from 1 to 2**32 - 1.
    zero: int = np.int64(0)  # type: ignore[assignment] # an unsigned number beside it would make both floats
    if size == 1:
        return zero
    wide = np.uint64(size)
    product = _next_uint32(generator) * wide
    leftover = product & _LOW_32
    if leftover < wide:
        threshold = (np.uint64(0x100000000) - wide) % wide
        while leftover < threshold:
            product = _next_uint32(generator) * wide
            leftover = product & _LOW_32
    return zero + np.int64(product >> np.uint64(32))  # type: ignore[return-value]


@njit(cache=True)
def standard_normal(generator: NDArray[np.uint64]) -> float:
    """Draw a normally distributed number, as `numpy.random.Generator.standard_normal()`."""
    while True:
        bits = next_uint64(generator)
        layer = int(bits & np.uint64(0xFF))
        is_negative = (bits >> np.uint64(8)) & np.uint64(1)
        distance = (bits >> np.uint64(9)) & np.uint64(0x000FFFFFFFFFFFFF)
        drawn = float(np.int64(distance)) * wi_double[layer]
        if is_negative:
            drawn = -drawn
        if distance < ki_double[layer]:
            return float(drawn)
        if layer > 0:
            if (fi_double[layer - 1] - fi_double[layer]) * random(generator) + fi_double[layer] < math.exp(
                -0.5 * drawn * drawn
            ):
                return float(drawn)
            continue
        while True:
            tail = -ziggurat_nor_inv_r * math.log1p(-random(generator))
            height = -math.log1p(-random(generator))
            if height + height > tail * tail:
                far = ziggurat_nor_r + tail
                return float(-far if (distance >> np.uint64(8)) & np.uint64(1) else far)


@njit(cache=True)
def integer(generator: NDArray[np.uint64], low: int, high: int) -> int:
    """Draw an integer in [low, high), as `numpy.random.Generator.integers(low, high)`."""
    if not 0 < high - low < 0x100000000:
        raise ValueError("random.integers: expected a range of 1 to 2**32 - 1 integers")
    return low + random_index(generator, high - low)


# -- SeedSequence -----------------------------------------------------------------------------------------


@njit(cache=True)
def _u32(number: Word) -> Word:
    return np.uint32(number & 0xFFFFFFFF)


@njit(cache=True)
def _hash(value: Word, constant: Word, multiplier: Word) -> tuple[Word, Word]:
    """Return a hash of 32 bits, and the constant of the next hash."""
    value = _u32(value ^ constant)
    constant = _u32(np.uint64(constant) * np.uint64(multiplier))
    value = _u32(np.uint64(value) * np.uint64(constant))
    return _u32(value ^ (value >> np.uint32(16))), constant


@njit(cache=True)
def seed_generator(generator: NDArray[np.uint64], seed: Word, pool: NDArray[np.uint32]) -> None:
    """Seed a generator as `numpy.random.PCG64(SeedSequence(seed))`, which `Env.reset(seed=seed)` does."""
    # `pool`: `[4]`, overwritten.
    constant = np.uint32(0x43B0D7E5)
    for index in range(4):
        word: Word = np.uint32(0)
        if index < 2:
            word = _u32(seed >> np.uint64(32 * index))
        pool[index], constant = _hash(word, constant, np.uint32(0x931E8875))
    for source in range(4):
        for target in range(4):
            if source != target:
                hashed, constant = _hash(pool[source], constant, np.uint32(0x931E8875))
                product = np.uint64(pool[target]) * np.uint64(0xCA01F9DD)
                mixed = _u32(product - np.uint64(hashed) * np.uint64(0x4973F715))
                pool[target] = _u32(mixed ^ (mixed >> np.uint32(16)))
    constant = np.uint32(0x8B51F9DD)
    for word in range(4):  # the words of the seed (upper half first), and of the sequence
        low, constant = _hash(pool[2 * word % 4], constant, np.uint32(0x58F38DED))
        high, constant = _hash(pool[(2 * word + 1) % 4], constant, np.uint32(0x58F38DED))
        generator[word] = np.uint64(low) | (np.uint64(high) << np.uint64(32))
    seed_high, seed_low, sequence_high, sequence_low = generator[0], generator[1], generator[2], generator[3]
    generator[INCREMENT] = (sequence_low << np.uint64(1)) | np.uint64(1)
    generator[INCREMENT + 1] = (sequence_high << np.uint64(1)) | (sequence_low >> np.uint64(63))
    generator[STATE] = generator[STATE + 1] = np.uint64(0)
    _advance(generator)
    low_sum = generator[STATE] + seed_low
    generator[STATE + 1] += seed_high + np.uint64(low_sum < seed_low)
    generator[STATE] = low_sum
    _advance(generator)
    generator[SPARE] = generator[HAS_SPARE] = np.uint64(0)


# -- Philox -----------------------------------------------------------------------------------------------


@njit(cache=True)
def philox_block(key: Word, stream: Word, counter: Word, out: NDArray[np.float64]) -> None:
    """Draw four numbers in [0, 1) from a place of `numpy.random.Philox(key=[key, stream])`."""
    # `counter`: number of the block of four, from 0; `out`: `[4]`, written.
    first, second, third, fourth = counter + np.uint64(1), np.uint64(0), np.uint64(0), np.uint64(0)
    for _ in range(10):
        high_first = multiply_high(np.uint64(0xD2E7470EE14C6C93), first)
        low_first = np.uint64(0xD2E7470EE14C6C93) * first
        high_third = multiply_high(np.uint64(0xCA5A826395121157), third)
        low_third = np.uint64(0xCA5A826395121157) * third
        first, second, third, fourth = (
            high_third ^ second ^ key,
            low_third,
            high_first ^ fourth ^ stream,
            low_first,
        )
        key += np.uint64(0x9E3779B97F4A7C15)
        stream += np.uint64(0xBB67AE8584CAA73B)
    out[0] = float(np.int64(first >> np.uint64(11))) * _DOUBLE_UNIT
    out[1] = float(np.int64(second >> np.uint64(11))) * _DOUBLE_UNIT
    out[2] = float(np.int64(third >> np.uint64(11))) * _DOUBLE_UNIT
    out[3] = float(np.int64(fourth >> np.uint64(11))) * _DOUBLE_UNIT


# -- The random numbers of random actions in compiled loops, those of `planvec.rows.random_actions`.
#
# Letters: A numbers of an action.

BLOCK = 64  # number of random actions of a row that come from one section of Philox; see `ActionStreams`


@njit(nogil=True, error_model="numpy", forceinline=True)
def draw_uniforms(
    size: int, uniforms: object, block: Any, seed: object, stream_row: int, step: int, held: int
) -> int:
    """Draw the random numbers of an action."""
    # `block`: `[4]` float64, read and written. `held`: number of the four in `block`, within the row and the
    # section; -1: none. `stream_row`: index in the whole batch.
    # `uniforms`: `[A]` float64, written.
    # Returns the new value of `held`.
    within = step % BLOCK * size
    if within == 0:
        held = -1  # another section
    for index in range(size):
        four, place = (within + index) // 4, (within + index) % 4
        if four != held:
            counter = np.uint64(stream_row) * np.uint64(BLOCK * size // 4) + np.uint64(four)
            philox_block(seed, np.uint64(step // BLOCK), counter, block)
            held = four
        # `store`, because indexing would test whether each index is negative.
        store(uniforms, index * 8, np.float64, load(block, place * 8, np.float64))
    return held
