"""Monte Carlo tree search: what can be set. Letters: A actions, B rows, H steps, N nodes."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from numpy.typing import NDArray

from planvec.errors import InvalidBatchError
from planvec.planners.base import Planner, generator_of
from planvec.planners.driver import PlanCallback, Search
from planvec.planners.plan import Plan
from planvec.rows import BatchStepper

if TYPE_CHECKING:
    from planvec.planners.mcts.tree import Tree

__all__ = ["MCTS"]

ObservationFunction = Callable[[Any], NDArray[Any]]


@dataclass(frozen=True)
class MCTS(Planner):
    """Plans by Monte Carlo tree search with many simulations in flight.

    A simulation goes down the tree by UCT (Kocsis and Szepesvari 2006) or PUCT (Silver et al. 2018), steps
    the environment once, evaluates where that led and takes the return up to the root. `batch_size` of them
    are under way at a time; those that are not back yet count as visits without a value (WU-UCT, Liu et al.
    2020). They go in two halves: one selects and learns while the workers step for the other. With
    `batch_size=1` it is the sequential search.

    Where a step has several outcomes, chance is sampled by reseeding it, never foreseen: an action leads to
    one node for each outcome that was seen, and more are sampled as it is visited more often.

    Memory: N nodes take `N * (70 + 24 A + state)` bytes, with a state as long as that of the root; PUCT adds
    8 A, legal actions A, drawn actions A of those, finding states again (chance, transpositions) about 400.
    What is in flight takes `batch_size * 24 max_depth`. N is `num_simulations` and 1,
    besides the part that is taken over from the last decision; without that limit it is `max_env_steps` and
    1, or what `max_memory` has room for. The memory is known when the search begins, and taken as it is used.

    Args:
        num_simulations: Simulations per decision. None: as many as another budget allows, or 512.
        batch_size: Simulations in flight.
        selection: "uct", or "puct" with priors.
        exploration: Factor of the exploration term. It is in units of `value_scale`.
        value_scale: What the exploration term is multiplied by: "tree" the spread of all returns so far,
            "node" the spread of the values of a node's actions (and of the tree where they are equal), or
            a number.
        discount: Factor per environment step, in [0, 1]. The rewards of the `dt` steps of one action of the
            tree count alike.
        max_depth: Actions down the tree at most. A simulation that comes so far makes a rollout of its own.
        dt: Environment steps that an action of the tree, or of a random rollout, is held for.
        rollout_horizon: H, random steps from a new node, inside the workers; 0: none. None: 0 with a
            `value_fn`, else 50.
        rollout_policy: `rollout_policy(observations) -> [B, *action shape]` instead of random actions; it
            is called in this process, before each of the H steps.
        value_fn: `value_fn(observations) -> [B]`, the return from there on, instead of rollouts. Called with
            the observations of a whole batch.
        prior_fn: `prior_fn(observations) -> [B, A]`, at least 0, for "puct"; scaled to a sum of 1 over the
            legal actions. A counts the actions of a Discrete space, or all of a MultiDiscrete or MultiBinary
            one of up to 256 in the order of `Plan.root_actions`. None: uniform.
        root_noise: `(alpha, fraction)`: mix that fraction of Dirichlet(alpha) noise into the priors at the
            root.
        legal_actions: `legal_actions(observations) -> [B, A] bool`, or the key of the info that holds it,
            such as "action_mask"; the root's is then read from the `info` given to `plan`, without which
            all are legal there. None: all.
        widening: `(factor, exponent)`: a node with n visits tries `factor * n**exponent` of its actions.
            None: all where they can be listed; `(1.0, 0.5)` where they are drawn.
        max_actions: Actions drawn for a node where the space is no Discrete one.
        chance: "sample"; "open_loop": one node for all outcomes of an action, stepped anew by every
            simulation; "foresee": the generator in the state decides, as it will in the environment. Cheats.
        outcome_widening: `(factor, exponent)`: an action with n visits has `factor * n**exponent` outcomes
            sampled, and then goes to one of those, each as likely as it came up. (1, 1) samples in every
            visit, at the cost of a step for each action on the way; an exponent of 0.5 suits outcomes of
            which no two are alike.
        transpositions: Whether equal states share a node, or `transpositions(states) -> [B]` that says what
            they are equal by. Values are then backed up along the graph.
        backup: "mean" of the simulations, or "max" over the actions of a node.
        reuse_tree: Whether a decision goes on with the tree of the previous one.
        max_memory: Bytes that the tree may take.

    Raises:
        ValueError: An argument out of range, or two that exclude each other.
    """

    num_simulations: int | None = None
    batch_size: int = 16
    selection: Literal["uct", "puct"] = "uct"
    exploration: float = 0.5
    value_scale: Literal["tree", "node"] | float = "tree"
    discount: float = 1.0
    max_depth: int = 200
    dt: int = 1
    rollout_horizon: int | None = None
    rollout_policy: ObservationFunction | None = None
    value_fn: ObservationFunction | None = None
    prior_fn: ObservationFunction | None = None
    root_noise: tuple[float, float] | None = None
    legal_actions: ObservationFunction | str | None = None
    widening: tuple[float, float] | None = None
    max_actions: int = 64
    chance: Literal["sample", "open_loop", "foresee"] = "sample"
    outcome_widening: tuple[float, float] = (2.0, 0.75)
    transpositions: bool | Callable[[NDArray[Any]], NDArray[Any]] = False
    backup: Literal["mean", "max"] = "mean"
    reuse_tree: bool = True
    max_memory: int = 4 * 1024**3

    def __post_init__(self) -> None:
        super().__post_init__()
        self._at_least(1, "num_simulations")
        self._at_least(1, "batch_size", "max_depth", "dt", "max_actions", "max_memory", optional=False)
        self._at_least(0, "rollout_horizon")
        self._in_range(0, np.inf, "exploration")
        self._in_range(0, 1, "discount")
        for name, choices in (
            ("selection", ("uct", "puct")),
            ("chance", ("sample", "open_loop", "foresee")),
            ("backup", ("mean", "max")),
        ):
            if getattr(self, name) not in choices:
                raise ValueError(f"{name}: expected one of {choices}, got {getattr(self, name)!r}")
        if isinstance(self.value_scale, str):
            if self.value_scale not in ("tree", "node"):
                raise ValueError(
                    f"value_scale: expected 'tree', 'node' or a number, got {self.value_scale!r}"
                )
        else:
            self._in_range(0, np.inf, "value_scale")
        self._check_pairs()
        self._check_together()

    def _check_pairs(self) -> None:
        """The pairs of numbers."""
        for name, highest in (("widening", 1.0), ("outcome_widening", 1.0), ("root_noise", 1.0)):
            pair = getattr(self, name)
            if pair is None and name != "outcome_widening":
                continue
            is_pair = isinstance(pair, tuple) and len(pair) == 2
            is_pair = is_pair and all(isinstance(number, (int, float)) for number in pair)
            if not (is_pair and pair[0] > 0 and 0 <= pair[1] <= highest):
                raise ValueError(
                    f"{name}: expected two numbers, the first above 0 and the second in [0, 1], got {pair!r}"
                )

    def _check_together(self) -> None:
        """Arguments that need or exclude each other."""
        if self.value_fn is not None and self.rollout_horizon:
            raise ValueError(
                "rollout_horizon: expected 0 or None together with a value_fn, which replaces rollouts"
            )
        if self.selection == "uct" and (self.prior_fn is not None or self.root_noise is not None):
            raise ValueError("selection: expected 'puct' together with prior_fn or root_noise, got 'uct'")
        if self.chance == "open_loop" and self.legal_actions is not None:
            raise ValueError(
                "chance: expected 'sample' together with legal_actions, since a node of an open loop stands "
                "for states in which other actions are legal, got 'open_loop'"
            )
        if self.chance == "open_loop" and (self.transpositions or self.backup == "max"):
            raise ValueError(
                "chance: expected 'sample' together with transpositions or backup='max', since the nodes of "
                "an open loop have no state, got 'open_loop'"
            )

    @property
    def simulation_limit(self) -> int | None:
        """`num_simulations`, or what None stands for."""
        has_limit = self.num_simulations or self.max_env_steps or self.max_seconds
        return self.num_simulations if has_limit else 512

    @property
    def rollout_steps(self) -> int:
        """Steps from a new node: `rollout_horizon`, or what None stands for."""
        if self.rollout_horizon is not None:
            return self.rollout_horizon
        return 50 if self.value_fn is None else 0

    def prepare(self) -> None:
        """Compile the kernels, or load them from numba's cache."""
        from planvec.planners.mcts.warm_up import warm_up

        warm_up()

    def begin(
        self,
        env: BatchStepper,
        state: NDArray[Any],
        generator: np.random.Generator,
        *,
        previous: Plan | None = None,
        info: dict[str, Any] | None = None,
    ) -> Search:
        """See `Planner.begin`.

        Raises:
            InvalidBatchError: The search would take more than `max_memory`.
            UnsupportedEnvError: Actions of this space cannot be drawn.
        """
        from planvec.planners.mcts.opening import search_kind
        from planvec.planners.mcts.search import TreeSearch
        from planvec.planners.mcts.tree import Tree  # here, since numba takes long to import

        tree = None
        if self.reuse_tree and previous is not None and isinstance(previous.search, Tree):
            fits = previous.search.kind == search_kind(self, env)
            tree = previous.search.advance(previous.action, state) if fits else None
        return TreeSearch(self, env, state, generator, tree, info)

    def resume(
        self,
        env: BatchStepper,
        tree: Tree,
        *,
        seed: int | None = None,
        callback: PlanCallback | None = None,
    ) -> Plan:
        """Go on with a tree: that of a `Plan`, of `Tree.advance` or of `Tree.load`.

        Args:
            env: The stepper.
            tree: Left as it is; the plan has another. Not one of an open loop, which has no states.
            seed: As in `plan`.
            callback: As in `plan`.

        Raises:
            InvalidBatchError: A tree without states, or one for other actions.
        """
        from planvec.planners.mcts.search import TreeSearch

        if tree.states is None:
            raise InvalidBatchError("tree: expected one with states, got that of an open loop; plan anew")
        started = time.perf_counter()
        search = TreeSearch(self, env, tree.states[:1], generator_of(seed), tree, None, is_new_root=False)
        return self._run(env, [search], started, callback)[0]
