"""Takes the steps of a random walk again from restored states, and compares them with the first time."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any, NamedTuple

import gymnasium
import numpy as np

from planvec.codecs.base import Rows, StateCodec
from planvec.codecs.compare import describe_difference
from planvec.codecs.generic.structure import SHARED_MEMORY
from planvec.codecs.walks import RandomWalk, SavedPoint, select_infos
from planvec.errors import UnsupportedEnvError

NUM_REPEATED = 6  # steps that are taken again from each saved point
OUTCOME = ("observation", "reward", "terminated", "truncated", "info")  # what a step returns


class InexactStateError(UnsupportedEnvError):
    """The verification has shown that a codec does not restore states exactly."""


class Comparison(NamedTuple):
    """Names a comparison in error messages."""

    situation: str  # what was compared
    advice: str  # how to fix a difference; it ends the message
    # Whether the order of a set may be the cause. Then leaving it out would make states wrong.
    has_sets: bool = False

    def check(self, name: str, num_steps: int, expected: Any, actual: Any) -> None:
        """Compare two values of one field."""
        text = describe_difference(name, expected, actual)
        if text is not None:
            raise InexactStateError(f"{self.situation}, {_when(num_steps)}: {text}. {self.advice}")

    def check_digests(self, num_steps: int, expected: dict[str, bytes], actual: dict[str, bytes]) -> None:
        """Compare what the environment holds with what it held on the walk."""
        for name in {**expected, **actual}:
            if expected.get(name) != actual.get(name):
                _, is_attribute, attribute = name.rpartition(".")
                cure = ""
                if name == SHARED_MEMORY:
                    cure = (
                        "An attribute is a view of another one (self.row = self.grid[0]): take it where it "
                        "is used instead. Otherwise: "
                    )
                elif is_attribute and not self.has_sets:
                    cure = (
                        "If it has no influence on results (a clock, a cache), leave it out: "
                        f'codec=planvec.Copied(["{attribute}"]). Otherwise: '
                    )
                raise InexactStateError(
                    f"{self.situation}, {_when(num_steps)}: {name} is not what it was on the walk. "
                    f"{cure}{self.advice}"
                )


def _when(num_steps: int) -> str:
    return "immediately" if not num_steps else f"{num_steps} step{'s' * (num_steps > 1)} later"


def save_and_load(codec: StateCodec, env: gymnasium.Env[Any, Any], points: Sequence[SavedPoint]) -> list[Any]:
    """Convert the values of saved points to states and back."""
    states = np.zeros(len(points), codec.format.dtype)
    flags = [False] * len(points)
    try:
        codec.dump(Rows([point.value for point in points], [0] * len(points), flags, flags), states)
    except (ValueError, TypeError, KeyError) as error:
        raise UnsupportedEnvError(
            f"{env}: expected saved values that fit the codec's dtype {codec.format.dtype}, got another: "
            f"{error}. Change the dtype, or what get() returns"
        ) from error
    return codec.load(states).values


class Repeats:
    """Takes steps of a walk again, and compares them."""

    def __init__(self, codec: StateCodec, walk: RandomWalk, info_keys: Sequence[str] | None) -> None:
        self._codec = codec
        self._walk = walk
        self._info_keys = info_keys
        self._digests = {point.next_step: point.digests for point in walk.points}

    def actions(self, point: SavedPoint, num_steps: int) -> list[Any]:
        """Return the actions that were taken after a saved point until the episode ended."""
        steps = self._walk.steps[point.next_step : point.next_step + num_steps]
        return [action for action, _ in itertools.takewhile(lambda step: step[1] is not None, steps)]

    def compare(self, point: SavedPoint, observation: Any, comparison: Comparison, num_steps: int) -> None:
        """Take the steps after a saved point again, until the episode ends."""
        comparison.check("observation", 0, point.observation, observation)
        comparison.check_digests(0, point.digests, self._codec.digests())
        first = point.next_step
        for number, (action, expected) in enumerate(self._walk.steps[first : first + num_steps], 1):
            if expected is None:  # the walk was reset here
                return
            outcome = select_infos(self._codec.step(action), self._info_keys)
            for name, on_walk, now in zip(OUTCOME, expected, outcome, strict=True):
                comparison.check(name, number, on_walk, now)
            digests = self._digests.get(first + number)
            if digests is not None and not (expected[2] or expected[3]):
                comparison.check_digests(number, digests, self._codec.digests())
