"""The settings of Monte Carlo tree search."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from planvec.planners.base import Planner
from planvec.planners.options import option

__all__ = ["MCTSConfig"]

ObservationFunction = Callable[[Any], NDArray[Any]]
"""A function of the observations of a batch."""
EvaluationFunction = Callable[[Any], tuple[NDArray[Any], NDArray[Any]]]
"""A function of the observations of a batch that returns values and priors."""


@dataclass(frozen=True)
class MCTSConfig(Planner):
    """Declares and checks the fields of `MCTS`, which describes them."""

    num_simulations: int | None = option(
        None, "simulations per decision; None: as many as another budget allows, or 512"
    )
    batch_size: int = option(16, "simulations in flight")
    selection: Literal["uct", "puct"] = option("uct", "'uct', or 'puct' with priors")
    root_selection: Literal["same", "gumbel"] = option(
        "same",
        "'same' as --selection, or 'gumbel': sequential halving with Gumbel noise, for few simulations",
    )
    num_considered: int = option(16, "gumbel: actions that halving begins with")
    gumbel_scale: float = option(1.0, "gumbel: factor of the noise; 0: none")
    gumbel_transform: tuple[float, float] = option(
        (50.0, 0.1),
        "gumbel: (c_visit, c_scale): the weight of values grows with the largest number of visits",
    )
    exploration: float = option(0.5, "factor of the exploration term, in units of --value-scale")
    value_scale: Literal["tree", "node"] | float = option(
        "tree",
        "factor of the exploration term: 'tree': the range of all returns so far; 'node': the range of the "
        "values of a node's actions; or a number",
    )
    discount: float = option(1.0, "factor per environment step, from 0 to 1")
    max_depth: int = option(200, "largest number of actions from the root")
    dt: int = option(1, "environment steps for which an action is repeated")
    rollout_horizon: int | None = option(
        None,
        "random steps from a new node, inside the workers; 0: none; None: 50, 5 or 0, by what a look at the "
        "environment shows",
    )
    rollout_policy: ObservationFunction | None = None
    value_fn: ObservationFunction | None = None
    prior_fn: ObservationFunction | None = None
    evaluate_fn: EvaluationFunction | None = None
    root_noise: tuple[float, float] | None = option(
        None, "(alpha, fraction): mix that fraction of Dirichlet(alpha) noise into the priors at the root"
    )
    legal_actions: ObservationFunction | str | None = option(
        None, "key of the info that holds the mask of legal actions, such as action_mask"
    )
    widening: tuple[float, float] | None = option(
        None,
        "(factor, exponent): a node with n visits tries factor * n**exponent of its actions; None: all that "
        "can be listed, else (1, 0.5)",
    )
    max_actions: int = option(64, "actions drawn for a node whose actions cannot be listed")
    chance: Literal["sample", "open_loop", "foresee"] = option(
        "sample",
        "random environments: 'sample': a node for each outcome; 'open_loop': one node for all outcomes "
        "of an action; 'foresee': the generator in the state decides, which cheats",
    )
    outcome_widening: tuple[float, float] = option(
        (2.0, 0.75), "(factor, exponent): an action with n visits has factor * n**exponent outcomes sampled"
    )
    transpositions: bool | str | tuple[str, ...] | Callable[[NDArray[Any]], NDArray[Any]] | None = option(
        None,
        "equal states share a node; with names of fields (cell,...): states that are equal in these; with "
        "observation: states with equal observations; None: these where a look at the environment shows that "
        "they repeat",
    )
    value_bounds: tuple[float, float] | None = option(
        None, "(lowest, highest) possible return: what is then certain is not searched further"
    )
    backup: Literal["mean", "max"] | None = option(
        None,
        "value of a node: 'mean' of its simulations, or 'max' over its actions; None: 'max' where "
        "--transpositions is chosen by a look, else 'mean'",
    )
    reuse_tree: bool = option(True, "a decision goes on with the tree of the previous one")
    max_memory: int = option(4 * 1024**3, "bytes that the tree may take")

    def __post_init__(self) -> None:
        """Check the fields.

        Raises:
            ValueError: A field is out of range, or two exclude each other. The message names it.
        """
        super().__post_init__()
        self._check_integers(1, "num_simulations")
        self._check_integers(1, "batch_size", "max_depth", "dt", "max_actions", "max_memory", optional=False)
        self._check_integers(1, "num_considered", optional=False)
        self._check_integers(0, "rollout_horizon")
        self._check_numbers(0, np.inf, "exploration", "gumbel_scale")
        self._check_numbers(0, 1, "discount")
        for name, choices in (
            ("selection", ("uct", "puct")),
            ("root_selection", ("same", "gumbel")),
            ("chance", ("sample", "open_loop", "foresee")),
            ("backup", ("mean", "max", None)),
        ):
            if getattr(self, name) not in choices:
                raise ValueError(f"{name}: expected one of {choices}, got {getattr(self, name)!r}")
        if isinstance(self.value_scale, str):
            if self.value_scale not in ("tree", "node"):
                raise ValueError(
                    f"value_scale: expected 'tree', 'node' or a number, got {self.value_scale!r}"
                )
        else:
            self._check_numbers(0, np.inf, "value_scale")
        self._check_pairs()
        self._check_combinations()

    def _check_pairs(self) -> None:
        """Check the fields that are pairs of numbers."""
        bounds = self.value_bounds
        if bounds is not None and not (_is_pair(bounds) and bounds[0] < bounds[1]):
            raise ValueError(f"value_bounds: expected the lowest and the highest return, got {bounds!r}")
        pairs = {"widening": 1.0, "outcome_widening": 1.0, "root_noise": 1.0, "gumbel_transform": np.inf}
        for name, highest in pairs.items():
            pair = getattr(self, name)
            if pair is None and name in ("widening", "root_noise"):
                continue
            if not (_is_pair(pair) and pair[0] > 0 and 0 <= pair[1] <= highest):
                raise ValueError(
                    f"{name}: expected two numbers, the first above 0 and the second in [0, {highest:g}], "
                    f"got {pair!r}"
                )

    def _check_combinations(self) -> None:
        """Check the fields that need or exclude each other."""
        if self.evaluate_fn is not None and (self.value_fn is not None or self.prior_fn is not None):
            raise ValueError("evaluate_fn: expected it alone, since it replaces value_fn and prior_fn")
        if self.has_values and self.rollout_horizon:
            raise ValueError(
                "rollout_horizon: expected 0 or None together with value_fn or evaluate_fn, which replace "
                f"rollouts, got {self.rollout_horizon}"
            )
        if self.selection == "uct" and (self.has_priors or self.root_noise is not None):
            raise ValueError(
                "selection: expected 'puct' together with prior_fn, evaluate_fn or root_noise, got 'uct'"
            )
        if self.root_selection == "gumbel":
            if self.simulation_limit is None:
                raise ValueError(
                    "num_simulations: expected a number together with root_selection='gumbel', which divides "
                    "them among the actions, got None"
                )
            for name in ("root_noise", "widening"):
                if getattr(self, name) is not None:
                    raise ValueError(
                        f"{name}: expected None together with root_selection='gumbel', which has noise and a "
                        f"choice of actions of its own, got {getattr(self, name)!r}"
                    )
        if self.chance == "open_loop" and (self.legal_actions is not None or self.value_bounds is not None):
            raise ValueError(
                "chance: expected 'sample' together with legal_actions or value_bounds, since a node of an "
                "open loop stands for states in which other actions are legal, got 'open_loop'"
            )
        if self.chance == "open_loop" and (self.transpositions or self.backup == "max"):
            raise ValueError(
                "chance: expected 'sample' together with transpositions or backup='max', since the nodes of "
                "an open loop have no state, got 'open_loop'"
            )

    @property
    def has_own_keys(self) -> bool:
        """Whether other keys than the whole states say which states share a node."""
        return self.transpositions is not None and not isinstance(self.transpositions, bool)

    @property
    def is_adaptive(self) -> bool:
        """Whether a look at the environment may choose rollouts, shared nodes and the backup."""
        return (
            self.transpositions is None
            and self.rollout_horizon is None
            and self.backup is None
            and self.rollout_policy is None
            and self.legal_actions is None
            and self.value_bounds is None
            and self.widening is None
            and self.selection == "uct"
            and self.root_selection == "same"
            and self.chance == "sample"
            and not self.has_values
        )

    @property
    def has_values(self) -> bool:
        """Whether a function of the user gives the values of new nodes."""
        return self.value_fn is not None or self.evaluate_fn is not None

    @property
    def has_priors(self) -> bool:
        """Whether a function of the user gives the priors of actions."""
        return self.prior_fn is not None or self.evaluate_fn is not None

    @property
    def simulation_limit(self) -> int | None:
        """Return `num_simulations`, or the number that None stands for; None: no limit."""
        has_limit = self.num_simulations or self.max_env_steps or self.max_seconds
        return self.num_simulations if has_limit else 512

    @property
    def rollout_steps(self) -> int:
        """Return `rollout_horizon`, or the number that None stands for."""
        if self.rollout_horizon is not None:
            return self.rollout_horizon
        return 0 if self.has_values else 50

    @property
    def info_keys(self) -> tuple[str, ...]:
        """Keys of the infos that the planner reads: that of the legal actions."""
        return (self.legal_actions,) if isinstance(self.legal_actions, str) else ()


def _is_pair(value: Any) -> bool:
    """Return whether a value is a tuple of two numbers."""
    is_pair = isinstance(value, tuple) and len(value) == 2
    return is_pair and all(isinstance(number, (int, float)) for number in value)
