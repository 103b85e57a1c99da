"""The settings of Monte Carlo tree search."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from planvec.planners.base import Planner, option

ObservationFunction = Callable[[Any], np.ndarray]  # A function of the observations of a batch
# A function of the observations of a batch that returns values and priors
EvaluationFunction = Callable[[Any], tuple[np.ndarray, np.ndarray]]


@dataclass(frozen=True)
class MCTSConfig(Planner):
    """Declares and checks the fields of `MCTS`, which describes them."""

    num_simulations: int | None = option(
        None, "Simulations per decision. None: as many as another budget allows, or 512."
    )
    batch_size: int = option(16, "Simulations in flight.")
    selection: Literal["uct", "puct"] = option("uct", '"uct", or "puct" with priors.')
    root_selection: Literal["same", "gumbel"] = option(
        "same",
        '"same" as `selection`, or "gumbel" (Danihelka et al. 2022): sequential halving. The '
        "`num_considered` actions with the highest sum of Gumbel noise and log prior (uniform without "
        "priors) are visited equally often, then the better half of them, and so on down to two. An action "
        "is judged by that sum plus `(c_visit + largest number of visits) * c_scale * value`, with values "
        "rescaled to [0, 1]; the decision is the best of the most visited ones. Needs a limit of "
        "simulations.",
    )
    num_considered: int = option(16, "Actions that halving begins with.")
    gumbel_scale: float = option(1.0, "Factor of the noise. With 0, only priors and values count.")
    gumbel_transform: tuple[float, float] = option(
        (50.0, 0.1), "`(c_visit, c_scale)`: values weigh more with more visits."
    )
    exploration: float = option(0.5, "Factor of the exploration term, in units of `value_scale`.")
    value_scale: Literal["tree", "node"] | float = option(
        "tree",
        'Factor of the exploration term: "tree": the range of all returns so far, "node": the range of the '
        "values of a node's actions (of the tree where they are equal), or a number.",
    )
    discount: float = option(
        1.0,
        "Factor per environment step, in [0, 1]. Rewards within the `dt` steps of one action are not "
        "discounted against each other.",
    )
    max_depth: int = option(
        200, "Largest number of actions from the root. A simulation that reaches it makes a rollout."
    )
    dt: int = option(
        1, "Environment steps for which an action of the tree, or of a random rollout, is repeated."
    )
    rollout_horizon: int | None = option(
        None,
        "Random steps from a new node (H), inside the workers; 0: none. None: 0 with a `value_fn` or "
        "`evaluate_fn`, else 50, or what a look at the environment shows to suit it (above).",
    )
    rollout_policy: ObservationFunction | None = option(
        None,
        "`rollout_policy(observations) -> [B, *action shape]` instead of random actions; it is called in "
        "this process, before each of the H steps.",
        is_function=True,
    )
    value_fn: ObservationFunction | None = option(
        None,
        "`value_fn(observations) -> [B]`, the return from there on, instead of rollouts. It is called with "
        "the observations of a whole batch.",
        is_function=True,
    )
    prior_fn: ObservationFunction | None = option(
        None,
        '`prior_fn(observations) -> [B, A]`, at least 0, for "puct"; scaled to a sum of 1 over the legal '
        "actions. A counts the actions of a Discrete space, or all of a MultiDiscrete or MultiBinary one of "
        "up to 256 in the order of `Plan.root_actions`. None: uniform.",
        is_function=True,
    )
    evaluate_fn: EvaluationFunction | None = option(
        None,
        "`evaluate_fn(observations) -> (values [B], priors [B, A])`, both in one call, instead of "
        "`value_fn` and `prior_fn`: for a network with two heads.",
        is_function=True,
    )
    root_noise: tuple[float, float] | None = option(
        None, "`(alpha, fraction)`: mix that fraction of Dirichlet(alpha) noise into the priors at the root."
    )
    legal_actions: ObservationFunction | str | None = option(
        None,
        'Key of the info that holds the mask of legal actions `[A] bool`, such as "action_mask". The root\'s '
        "mask is then read from the `info` given to `plan`; without it all actions are legal there. Or "
        "`legal_actions(observations) -> [B, A] bool`. None: those that the states tell (docs/planning.md), "
        "else all.",
    )
    widening: tuple[float, float] | None = option(
        None,
        "`(factor, exponent)`: a node with n visits tries `factor * n**exponent` of its actions. None: all "
        "where they can be listed; `(1.0, 0.5)` where they are drawn.",
    )
    max_actions: int = option(64, "Actions drawn for a node where the actions cannot be listed.")
    chance: Literal["sample", "open_loop", "foresee"] = option(
        "sample",
        '"sample": a node for each outcome of an action; "open_loop": one node for all of them; "foresee": '
        "the generator in the state decides, which cheats. An open-loop search steps every action of a "
        "simulation again; one that foresees knows what the environment will draw.",
    )
    outcome_widening: tuple[float, float] = option(
        (2.0, 0.75),
        "`(factor, exponent)`: an action with n visits has `factor * n**exponent` outcomes sampled. Further "
        "visits choose among these, with the frequencies of the samples. (1, 1) samples in every visit, "
        "which costs a step for each action of a simulation; an exponent of 0.5 suits environments in which "
        "all outcomes differ.",
    )
    transpositions: bool | str | tuple[str, ...] | Callable[[np.ndarray], np.ndarray] | None = option(
        None,
        "Whether equal states share a node; with the name of a field of the states, or several: states that "
        'are equal in these, such as "cell" of Taxi, without the step counter; with "observation": states '
        "with equal observations. Or `transpositions(states) -> [B]`, keys that are equal for states that "
        "share a node. Values are then backed up along the graph. None: chosen by a look at the environment "
        "(above), else False.",
    )
    value_bounds: tuple[float, float] | None = option(
        None,
        "`(lowest, highest)` return that is possible from any state on, such as (-1, 1) in a game that ends "
        "with it. It is that of player 0 in a game of two. With bounds a search proves values (MCTS-Solver, "
        "Winands et al. 2008): that of a state is certain if one of its actions is sure of the highest "
        "return, or if all are certain. Simulations end there, and take no action that is sure of the lowest "
        "return. "
        "None: nothing is proven; nor is it where steps have several outcomes.",
    )
    backup: Literal["mean", "max"] | None = option(
        None,
        '"mean" of the simulations, or "max" over the actions of a node. None: "max" where a look has '
        'chosen to share nodes, else "mean".',
    )
    reuse_tree: bool = option(
        True,
        "Whether a decision goes on with the tree of the previous one. Its nodes come on top of the new "
        "simulations, so that trees of long episodes grow to many times `num_simulations` where the search "
        "is sure of its way, and simulations go deeper and take longer.",
    )
    max_memory: int = option(
        4 * 1024**3,
        "Bytes that the tree may take. A new tree is begun where the previous one leaves no room.",
    )

    def __post_init__(self) -> None:
        """Check the fields."""
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
        # Fields that need or exclude each other
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
            if self.num_planned is None:
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
    def is_adaptive(self) -> bool:
        """Whether a look at the environment may choose rollouts, shared nodes and the backup."""
        options = (
            *(self.transpositions, self.rollout_horizon, self.backup, self.rollout_policy),
            *(self.legal_actions, self.value_bounds, self.widening),
        )
        choices = (self.selection, self.root_selection, self.chance)
        is_plain = choices == ("uct", "same", "sample") and not self.has_values
        return is_plain and all(one is None for one in options)

    @property
    def has_values(self) -> bool:
        """Whether a function of the user gives the values of new nodes."""
        return self.value_fn is not None or self.evaluate_fn is not None

    @property
    def has_priors(self) -> bool:
        """Whether a function of the user gives the priors of actions."""
        return self.prior_fn is not None or self.evaluate_fn is not None

    @property
    def num_planned(self) -> int | None:
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
