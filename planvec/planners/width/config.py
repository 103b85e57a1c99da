"""The settings of width-based planners."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import gymnasium
import numpy as np
from numpy.typing import NDArray

from planvec.errors import UnsupportedEnvError
from planvec.planners.base import SearchPlanner, option
from planvec.planners.novelty.numbers import FeatureFunction, check_features
from planvec.planners.plan import Plan
from planvec.planners.root_actions import equal_actions, list_actions
from planvec.rows import state_keys

_DEFAULT_SIMULATIONS = 200


@dataclass(frozen=True, kw_only=True)
class WidthConfig(SearchPlanner):
    """Holds the settings of `RolloutIW` and `IW`, which describe them."""

    num_simulations: int | None = option(
        None,
        "Steps from nodes of the tree per decision, one for each new node. None: as many as another budget "
        "allows, or 200.",
    )
    batch_size: int = option(
        4,
        "Steps in flight. With more of them, rollouts look into more directions at once, and less far where "
        "the budget is small.",
    )
    features: FeatureFunction | Any = option(
        None,
        "`features(observations) -> [B, F]` integers: a feature says that a column has a value. Or "
        "`planvec.Screens()`, B-PROST of images. None: `Screens` for images, and numbers as they are, or as "
        "one of 32 intervals where they are not integers.",
        is_function=True,
    )
    discount: float = option(0.995, "Factor per action, in [0, 1].")
    dt: int = option(1, "Environment steps for which an action is repeated.")
    subtables: bool = option(
        True,
        "Whether features are counted apart for paths whose return has another order of magnitude (a power "
        "of two).",
    )
    risk_aversion: float = option(1.0, "Factor of negative rewards.")
    life_cost: float = option(
        0.0, 'Cost of a lost life. The infos, and the `info` that is given to `plan`, need "lives".'
    )
    reuse_tree: bool = option(
        True, "Whether a decision goes on with the tree of the previous one. Its nodes cost no steps."
    )

    def __post_init__(self) -> None:
        """Check the fields."""
        super().__post_init__()
        self._check_integers(1, "num_simulations")
        self._check_integers(1, "batch_size", "dt", optional=False)
        self._check_numbers(0, 1, "discount")
        self._check_numbers(0, np.finfo(np.float64).max, "risk_aversion", "life_cost")
        check_features(self.features)

    @property
    def simulation_limit(self) -> int:
        """Largest number of new nodes of a decision."""
        if self.num_simulations is not None:
            return self.num_simulations
        if self.max_env_steps is not None:
            return self.max_env_steps
        return _DEFAULT_SIMULATIONS if self.max_seconds is None else 1_000_000

    @property
    def num_planned(self) -> int | None:
        """Simulations of a decision, for progress bars; None if another budget ends it."""
        return self.num_simulations if self.max_seconds is None else None

    @property
    def info_keys(self) -> tuple[str, ...]:
        """Keys of the infos that the planner reads."""
        return ("lives",) if self.life_cost else ()

    def check_space(self, action_space: gymnasium.Space[Any]) -> None:
        """Check that actions can be listed.

        Raises:
            UnsupportedEnvError: They cannot.
        """
        if list_actions(action_space) is None:
            raise UnsupportedEnvError(
                f"action_space: expected actions that can be listed, got {action_space}; plan those with "
                "Swarm or CEM"
            )

    def kept_tree(self, state: NDArray[Any], previous: Plan | None) -> Any:
        """Return the tree that is left of the last decision, at a state; None for a new one."""
        from planvec.planners.width.tree import Origin, WidthTree

        if not self.reuse_tree or previous is None or not isinstance(previous.search_data, WidthTree):
            return None
        tree = previous.search_data
        taken = equal_actions(tree.actions, previous.action)
        child = int(tree.children[0, int(taken.argmax())]) if taken.any() else -1
        if child < 0 or tree.ended[child] or not tree.origin.matches(Origin.of(self.dt, self.features)):
            return None
        if self.life_cost and np.isnan(tree.lives[: tree.num_nodes]).any():
            return None  # made without a cost of lost lives
        # The generator in the state may differ: it was reseeded.
        if state_keys(tree.states[child : child + 1])[0] != state_keys(state)[0]:
            return None
        return tree.subtree(child)
