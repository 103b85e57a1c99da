"""One iteration of a swarm in plain Python, a walker at a time: the twin of the compiled one."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any

__all__ = ["NaiveWalker", "iterate"]


@dataclass
class NaiveWalker:
    """A walker; `moves` are (action, number of steps, reward), the first one first."""

    total: float
    num_steps: int
    moves: tuple[Any, ...]
    state: bytes
    terminated: bool = False
    truncated: bool = False
    source: int = 0


def values_of(walkers: list[NaiveWalker]) -> list[float]:
    running = [walker for walker in walkers if not walker.terminated]
    num_steps = sum(walker.num_steps for walker in running)
    mean = total([walker.total for walker in running]) / num_steps if num_steps else 0.0
    oldest = max(walker.num_steps for walker in walkers)
    return [
        walker.total if walker.terminated else walker.total + mean * (oldest - walker.num_steps)
        for walker in walkers
    ]


def dead_of(walkers: list[NaiveWalker], values: list[float]) -> list[bool]:
    pairs = list(zip(walkers, values, strict=True))
    judges = [value for walker, value in pairs if not walker.terminated]
    some_run = bool(judges)
    judges = judges or values
    mean = min(max(total(judges) / len(judges), min(judges)), max(judges))
    return [walker.terminated and (value <= mean if some_run else value < mean) for walker, value in pairs]


def total(numbers: list[float]) -> float:
    """Return the sum, from the first to the last: Python's `sum` compensates rounding since 3.12."""
    result = 0.0
    for number in numbers:
        result += number
    return result


def relative(values: list[float], living: list[int], exponent: float) -> dict[int, float]:
    mean = total([values[walker] for walker in living]) / len(living)
    squares = total([(values[walker] - mean) * (values[walker] - mean) for walker in living])
    if not squares > 1e-12**2 * total([values[walker] * values[walker] for walker in living]):
        return dict.fromkeys(living, 1.0)
    deviation = math.sqrt(squares / len(living))
    scaled = {walker: (values[walker] - mean) / deviation for walker in living}
    return {walker: (1 + math.log1p(z) if z > 0 else math.exp(z)) ** exponent for walker, z in scaled.items()}


def distance(features: Any, row: int, other: int, living: list[int]) -> float:
    parts = []
    for table in features[:2]:
        square = 0.0
        for column in table.T.tolist():
            mean = total([column[walker] for walker in living]) / len(living)
            centred = [column[walker] - mean for walker in living]
            variance = total([each * each for each in centred]) / len(living)
            difference = (column[row] - column[other]) / (math.sqrt(variance) if variance > 0 else 1.0)
            square += difference * difference
        parts.append(square)
    result = parts[0] + parts[1]
    for own, others in zip(features.labels[row], features.labels[other], strict=True):
        result += own != others
    return math.sqrt(result)


def iterate(
    walkers: list[NaiveWalker],
    outcomes: Any,
    features: Any,
    actions: Any,
    states: list[bytes],
    uniforms: Any,
    new_features: Any,
    rules: Any,
    is_guided: bool,
) -> tuple[list[NaiveWalker], bool]:
    """Return the walkers after an iteration, and whether walker 0 was dead."""
    everyone = range(len(walkers))
    for index, walker in enumerate(walkers):
        reward, num_steps = float(outcomes.rewards[index]), int(outcomes.num_steps[index])
        walker.total += reward
        walker.num_steps += num_steps
        walker.moves += ((actions[index].tobytes(), num_steps, reward),) if num_steps else ()
        walker.state = states[index]
        walker.terminated = bool(outcomes.terminated[index])
        walker.truncated = bool(outcomes.truncated[index])
    values = values_of(walkers)
    dead = dead_of(walkers, values)
    living = [walker for walker in everyone if not dead[walker]]
    pick = [[living[int(uniform * len(living))] for uniform in row] for row in uniforms[:2].tolist()]
    apart = [distance(features, walker, pick[0][walker], living) for walker in everyone]
    diversity = relative(apart, living, rules.distance_scale)
    worth = relative(values, living, rules.reward_scale)
    virtual = {walker: diversity[walker] * worth[walker] for walker in living}
    if len(new_features):
        novelty = relative(new_features.tolist(), living, rules.novelty_scale)
        virtual = {walker: virtual[walker] * novelty[walker] for walker in living}
    keep = set(sorted(living, key=lambda walker: -values[walker])[: rules.num_elites])
    if is_guided and not dead[0]:
        keep.add(0)
    after = []
    for walker in everyone:
        companion, own = pick[1][walker], max(virtual.get(walker, 0.0), 2.2250738585072014e-308)
        stays = virtual[companion] - own <= uniforms[2, walker] * own
        source = walker if walker in keep or (stays and not dead[walker]) else companion
        after.append(replace(walkers[source], source=source))
    return after, dead[0]
