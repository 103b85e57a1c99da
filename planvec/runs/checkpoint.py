"""The checkpoint of a run: what it takes to go on after it was killed at any moment.

It holds the actions so far, not the states: the steps of an episode take a small part of the time of its
plans, and stepping them again shows whether the environment is still the same. The last plan is saved with
its tree, swarm or distribution, with which the next decision goes on.

Letters: T steps.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from planvec.errors import InvalidBatchError, UnsupportedEnvError
from planvec.planners import (
    EpisodeRecorder,
    Plan,
    actions_of_arrays,
    arrays_of_actions,
    arrays_of_plan,
    check_plan_states,
    plan_of_arrays,
    replay_steps,
)
from planvec.rows import DAMAGED, arrays_of_states, read_arrays, replacing, states_of_arrays

_PLAN = "plan."
_KEPT = "kept."


@dataclass(frozen=True, eq=False)
class Checkpoint:
    """A run after T steps of an episode."""

    episode: int  # index of the episode, from 0
    actions: Any  # `[T, ...]`, stacked by the action space
    # `[T, 3]` float64: the value of each decision, the environment steps that it simulated, and its seconds
    numbers: NDArray[np.float64]
    state: NDArray[Any]  # `[1]`, the state after the last step
    plan: Plan | None  # the last decision; None if T is 0
    kept: Mapping[str, NDArray[Any]]  # what the observers of the run need to go on

    def write(self, path: Path, env: Any) -> None:
        """Replace the file of the checkpoint."""
        arrays: dict[str, NDArray[Any]] = {
            "episode": np.array(self.episode),
            "numbers": self.numbers,
            **arrays_of_states("state", self.state),
            **arrays_of_actions(self.actions, env.action_space),
        }
        if self.plan is not None:
            plan = arrays_of_plan(self.plan, env.action_space)
            arrays |= {f"{_PLAN}{name}": array for name, array in plan.items()}
        arrays |= {f"{_KEPT}{name}": array for name, array in self.kept.items()}
        with replacing(path) as temporary:
            np.savez(temporary, **arrays)  # type: ignore[arg-type]

    @classmethod
    def read(cls, path: Path, env: Any) -> Checkpoint:
        """Read a checkpoint."""
        try:
            arrays = read_arrays(path)
            checkpoint = cls(
                int(arrays["episode"]),
                actions_of_arrays(arrays, env.action_space),
                arrays["numbers"],
                states_of_arrays("state", arrays),
                plan_of_arrays(_part(arrays, _PLAN), env.action_space) if f"{_PLAN}value" in arrays else None,
                _part(arrays, _KEPT),
            )
        except DAMAGED as error:
            raise InvalidBatchError(
                f"{path}: expected the checkpoint of a run, got a file that is damaged "
                f"({type(error).__name__}: {error})"
            ) from error
        if checkpoint.plan is not None:
            check_plan_states(checkpoint.plan, env)
        return checkpoint

    def replay(self, env: Any, recorder: EpisodeRecorder, seed: int) -> dict[str, Any]:
        """Step the episode again up to the checkpoint, and record it."""
        # Returns the info at the last state.
        numbers = [(value, int(num_env_steps)) for value, num_env_steps, _ in self.numbers.tolist()]
        state, info = replay_steps(env, recorder, seed, self.actions, numbers)
        if bytes(state) != bytes(self.state[0]):
            raise UnsupportedEnvError(
                f"the run cannot be resumed: step {len(self.numbers)} leads to another state than before, so "
                "that the environment, or a package that it uses, is not the same any more"
            )
        recorder.earlier_seconds = float(self.numbers[:, 2].sum())
        return info


def _part(arrays: Mapping[str, NDArray[Any]], prefix: str) -> dict[str, NDArray[Any]]:
    """Return the arrays whose names begin with a prefix, without it."""
    return {name.removeprefix(prefix): array for name, array in arrays.items() if name.startswith(prefix)}
