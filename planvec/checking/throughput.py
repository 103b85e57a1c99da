"""Measures how fast an environment is stepped: here, with workers, by a kernel, and by independent processes.

Letters: C contenders, R numbers of rows, B rows of a call.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from planvec.backends import ExternalProcess, num_cores
from planvec.codecs import CodecChoice
from planvec.envs import Makeable, find_source, make
from planvec.errors import UnsupportedEnvError
from planvec.rows import BatchStepper, action_masks, draw_legal, uniform_actions

_ALONE = "alone"  # the last word of the name of independent processes
_ROUNDS = 5  # turns of each contender, whose median counts: other programs disturb some of them


@dataclass(eq=False)
class Throughput:
    """Environment steps per second.

    Attributes:
        contenders: C names: "in this process", "kernel", "1 worker", "2 workers", ..., and "2 processes
            alone", ...: independent processes, each of which steps its share of the rows again and again.
            They show what the machine gives; no program can use them for one search.
        rows: R numbers of rows per call.
        steps_per_second: `[C, R]` float64, the median of several turns.
        spread: `[C, R, 2]` float64, the lowest and the highest of the turns.
    """

    contenders: list[str]
    rows: list[int]
    steps_per_second: NDArray[np.float64]
    spread: NDArray[np.float64]

    def fastest(self) -> list[str]:
        """Return the fastest contender but independent processes for each number of rows, R names."""
        return [self.contenders[index] for index in self._rates().argmax(axis=0)]

    def _rates(self) -> NDArray[np.float64]:
        """Return `steps_per_second`, 0 for independent processes."""
        alone = [name.endswith(_ALONE) for name in self.contenders]
        return np.where(np.array(alone)[:, None], 0.0, self.steps_per_second)

    def shares(self) -> dict[str, list[float]]:
        """Return what workers reach of as many independent processes: contender -> R shares."""
        rates = dict(zip(self.contenders, self.steps_per_second, strict=True))
        alone = {
            name: rates.get(f"{name.split()[0]} processes {_ALONE}") for name in rates if "worker" in name
        }
        return {name: (rates[name] / of).tolist() for name, of in alone.items() if of is not None}

    def to_dict(self) -> dict[str, Any]:
        """Return the measurements for JSON."""
        return {
            "rows": self.rows,
            "steps_per_second": {
                name: row.tolist() for name, row in zip(self.contenders, self.steps_per_second, strict=True)
            },
            "fastest": self.fastest(),
            "shares": self.shares(),
        }

    def __str__(self) -> str:
        width = max(map(len, self.contenders))
        lines = ["environment steps per second, by the number of rows in a call (* fastest)"]
        lines.append(" " * width + "".join(f"{f'{rows:,} rows':>14}" for rows in self.rows))
        for name, row in zip(self.contenders, self.steps_per_second, strict=True):
            best = row == self._rates().max(axis=0)
            pairs = zip(row, best, strict=True)
            cells = [f"{number:>13,.0f}{'*' if is_best else ' '}" for number, is_best in pairs]
            lines.append(f"{name:<{width}}" + "".join(cells))
        # what to pass to `make`
        arguments = {"in this process": "num_workers=0, compiled=False", "kernel": "num_workers=0"}
        fastest = self.fastest()
        for name in dict.fromkeys(fastest):
            rows = [f"{count:,}" for count, best in zip(self.rows, fastest, strict=True) if best == name]
            how = arguments.get(name, f"num_workers={name.split()[0]}")
            lines.append(f"for batches of {', '.join(rows)} rows: planvec.make(..., {how})")
        lines += self._reasons()
        return "\n".join(lines)

    def _reasons(self) -> list[str]:
        """Return lines that say why."""
        rates = dict(zip(self.contenders, self.steps_per_second, strict=True))
        seconds = 1.0 / float(rates["in this process"].max())
        lines = [f"a step with its state takes {_time(seconds)} in one process"]
        if "kernel" in rates:
            ratio = float((rates["kernel"] / rates["in this process"]).max())
            lines.append(f"the kernel is up to {ratio:,.0f} times as fast, on all cores")
        for name, shares in self.shares().items():
            cells = ", ".join(f"{share:.2f}" for share in shares)
            lines.append(f"{name}: {cells} of what as many independent processes do")
        return lines


def _time(seconds: float) -> str:
    """Return a time for people."""
    return f"{1e6 * seconds:,.1f} us" if seconds < 1e-3 else f"{1e3 * seconds:,.1f} ms"


def measure_throughput(
    env: Makeable,
    *,
    rows: Sequence[int] = (1, 16, 256, 4096),
    num_workers: Sequence[int] | None = None,
    seconds: float = 20.0,
    codec: CodecChoice = None,
    env_kwargs: Mapping[str, object] | None = None,
) -> Throughput:
    """Measure environment steps per second of `step_batch` with random actions.

    Args:
        env: An id, an `EnvSpec` or a factory.
        rows: Numbers of rows per call.
        num_workers: Numbers of workers; None takes powers of two up to the number of cores.
        seconds: Time of all measurements.
        codec: How states are saved; see `planvec.make`.
        env_kwargs: Arguments of `gymnasium.make`.

    Raises:
        ValueError: `seconds` is not above 0.
        UnsupportedEnvError: The environment cannot be saved.
    """
    if not seconds > 0:
        raise ValueError(f"seconds: expected more than 0, got {seconds}")
    source = find_source(env) if isinstance(env, str) else env
    powers = [2**power for power in range(num_cores().bit_length())]
    counts = [*powers, num_cores()] if num_workers is None else [*num_workers]
    options: dict[str, Any] = {"codec": codec, "env_kwargs": env_kwargs, "info_keys": ()}
    with contextlib.ExitStack() as stack:
        here = make(source, num_workers=0, compiled=False, **options)
        opened = {"in this process": stack.enter_context(here)}
        with contextlib.suppress(UnsupportedEnvError):
            opened["kernel"] = stack.enter_context(make(source, num_workers=0, compiled=True, **options))
        for count in dict.fromkeys(counts):
            name = f"{count} worker{'s' * (count > 1)}"
            opened[name] = stack.enter_context(make(source, num_workers=count, audit=0.0, **options))
        contenders: dict[str, Callable[[int, float], float]] = {
            name: partial(measure_rate, contender) for name, contender in opened.items()
        }
        several = [count for count in dict.fromkeys(counts) if count > 1]
        made = [ExternalProcess(partial(Alone, source, options)) for _ in range(max(several, default=0))]
        processes = [stack.enter_context(process) for process in made]
        for count in several:
            contenders[f"{count} processes {_ALONE}"] = partial(measure_alone, processes[:count])
        share = seconds / (_ROUNDS * len(contenders) * len(rows))
        rates = np.empty((len(contenders), len(rows), _ROUNDS))
        for column, num_rows in enumerate(rows):
            for turn in range(_ROUNDS):
                for index, rate in enumerate(contenders.values()):
                    rates[index, column, turn] = rate(num_rows, share)
    spread = np.stack([rates.min(axis=2), rates.max(axis=2)], axis=2)
    return Throughput(list(contenders), list(rows), np.median(rates, axis=2), spread)


class Alone:
    """Steps in a process of its own."""

    def __init__(self, source: Makeable, options: dict[str, Any]) -> None:
        self._env = make(source, num_workers=0, compiled=False, **options)

    def rate(self, num_rows: int, seconds: float) -> float:
        """Return its environment steps per second."""
        return measure_rate(self._env, num_rows, seconds)

    def close(self) -> None:
        """Close the environment."""
        self._env.close()


def measure_alone(processes: Sequence[ExternalProcess], num_rows: int, seconds: float) -> float:
    """Return the environment steps per second of independent processes, each with its share of the rows."""
    share = -(-num_rows // len(processes))
    promises = [process.call("rate", share, seconds) for process in processes]
    return float(sum(promise.result() for promise in promises))


def measure_rate(env: BatchStepper, num_rows: int, seconds: float) -> float:
    """Return the environment steps per second of calls that together take about `seconds`."""
    generator = np.random.default_rng(0)
    state = env.reset(seed=0).state
    states = np.empty(num_rows, env.state_dtype)
    for row in range(num_rows):
        states[row] = state
    actions = uniform_actions(env.action_space, generator, num_rows)
    masks = action_masks(env.action_space, states)
    if masks is not None:
        actions = draw_legal(env.action_space, masks, generator.random(actions.shape))
    num_steps, started = 0, time.perf_counter()
    while True:
        env.step_batch(actions, states, blocking=True)
        num_steps += num_rows
        elapsed = time.perf_counter() - started
        if elapsed >= seconds:
            return num_steps / elapsed
