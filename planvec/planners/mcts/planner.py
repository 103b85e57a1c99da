"""Monte Carlo tree search. Letters: A actions, B rows, H steps, N nodes."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from gymnasium import Space

from planvec.errors import InvalidBatchError, UnsupportedEnvError
from planvec.planners.mcts.config import MCTSConfig
from planvec.planners.mcts.setup import (
    advance_by_observation,
    choose,
    has_room,
    tree_kind,
    with_choice,
)
from planvec.planners.mcts.tree import AS_GIVEN, GRAPH, Tree
from planvec.planners.plan import Plan
from planvec.planners.root_actions import check_action_space, list_actions
from planvec.planners.search import PlanCallback, Search
from planvec.rows import ACTION_MASK_FIELD, BatchStepper, action_masks, has_players


@dataclass(frozen=True)
class MCTS(MCTSConfig):
    """Plans by Monte Carlo tree search with many simulations in flight.

    A simulation selects actions from the root on by UCT (Kocsis and Szepesvari 2006) or PUCT (Silver et al.
    2018), steps the environment once, evaluates the new node and backs the return up to the root.
    `batch_size` simulations are in flight at a time; those without a result count as visits without a value
    (WU-UCT, Liu et al. 2020). They form two halves: one selects and backs up while the workers step for the
    other. With `batch_size=1` it is the sequential search.

    Where a step has several outcomes, they are sampled by reseeding the step, never foreseen: an action has
    one child node for each outcome so far, and more outcomes are sampled as it is visited more often.

    A game of two players is searched if its states have a field "current_player": each player takes the
    actions that are best for him. All values are then those for the player to move: `Plan.value`, the values
    of actions, and those of `value_fn`. Rewards remain those of player 0.

    Where `transpositions`, `rollout_horizon` and `backup` are left open (None), UCT without functions of the
    user looks at the environment before it begins a tree: up to 6 random walks of up to 24 steps, a sixth of
    the budget at most, which count as steps of the decision.

    - If observations repeat (half of the transitions lead to one that was seen at another time), and the same
      action after the same observation gave the same result (but for 2 % of the cases), then states with
      equal observations share a node, there are no rollouts, each action is sampled once, and values are
      backed up as maxima. Not so with a `discount` of 1 where a step paid and the episode went on: values
      would grow with every turn in a cycle. Each action costs a millionth of the value: of equal returns
      the sooner one wins. Before it does so, the look goes on, up to three times as long and a third of the
      budget, with actions that lead each walk to where it has not been.
    - If the same action after the same observation paid something else then or ended the episode, or gave
      other results in more than 2 % of the first cases, though not by chance, and states repeat as well,
      the same holds, but equal states share a node. A line in the log says so.
    - If all rewards are equal and positive and half of the walks end the episode, then a return only counts
      the steps until random play fails, and rollouts take 5 steps.
    - In all other cases, and with a budget that is too small for two walks, the search is a tree with
      rollouts of 50 steps.

    The next decisions keep the choice, unless `reuse_tree` is off; after the last case, they look again where
    they begin a new tree.

    Memory: N nodes take `N * (80 + 24 A + state)` bytes, with a state as large as that of the root. PUCT adds
    8 A, legal actions A, drawn actions the size of A actions, and a transposition table (random environments,
    `transpositions`) about 400. Simulations in flight take `batch_size * 24 max_depth`. N is
    `num_simulations + 1`, besides the nodes reused from the last decision; without that limit it is
    `max_env_steps + 1`, or what fits into `max_memory`. The memory is known when the search begins, and taken
    as it is used.

    Raises:
        ValueError: An argument is out of range, or two exclude each other.
    """

    plays_games = True

    def check_space(self, action_space: Space[object]) -> None:
        """Check that actions can be listed, or drawn uniformly.

        Raises:
            UnsupportedEnvError: They cannot.
        """
        check_action_space(action_space)

    def prepare(self) -> None:
        """Compile the kernels, or load them from numba's cache."""
        from planvec.planners.mcts.compiled import warm_up  # here, since numba takes long to import

        warm_up(self)

    def begin(
        self,
        env: BatchStepper,
        state: np.ndarray,
        generator: np.random.Generator,
        *,
        previous: Plan | None = None,
        info: dict[str, Any] | None = None,
    ) -> Search:
        """Return a new search at a state; the arguments are those of `Planner.begin`.

        Raises:
            InvalidBatchError: The search would take more than `max_memory`.
            UnsupportedEnvError: Actions of this space cannot be drawn.
        """
        from planvec.planners.mcts.search import TreeSearch  # here, since numba takes long to import

        config = self._for_states(env, state)
        tree, number, num_env_steps = None, AS_GIVEN, 0
        known = None if previous is None or not config.reuse_tree else previous.search_data
        if previous is not None and isinstance(known, Tree):
            own = known.kind.choice if config.is_adaptive else AS_GIVEN
            has_own_actions = list_actions(env.action_space) is None
            if known.kind == tree_kind(with_choice(config, own), env, has_own_actions, own):
                number = own
                tree = known.advance(previous.action, state)
                if tree is None and number == GRAPH:
                    tree = advance_by_observation(env, known, previous.action, state)
        # What an earlier look has chosen stays, also where its tree does not hold this state.
        if tree is not None and not has_room(with_choice(config, number), env, state, tree):
            tree = None
        if tree is None and number == AS_GIVEN:
            number, num_env_steps = choose(config, env, state, generator)
        search = TreeSearch(with_choice(config, number), number, env, state, generator, tree, info)
        search.num_env_steps = num_env_steps
        return search

    def _for_states(self, env: BatchStepper, state: np.ndarray) -> MCTS:
        """Return the planner with the legal actions that states hold."""
        if has_players(state) and (self.dt > 1 or self.chance == "open_loop"):
            name, value = ("dt", 1) if self.dt > 1 else ("chance", "sample")
            raise UnsupportedEnvError(
                f"{name}: expected {value!r} for a game of two players, since the other one may be to move "
                f"after any step, got {getattr(self, name)!r}"
            )
        if action_masks(env.action_space, state) is None or self.legal_actions is not None:
            return self
        if self.chance == "open_loop" and not env.is_stochastic:
            return dataclasses.replace(self, legal_actions=ACTION_MASK_FIELD, chance="sample")
        if self.chance == "open_loop":
            raise UnsupportedEnvError(
                "chance: expected 'sample' where states tell which actions are legal, since a node of an "
                "open loop stands for states in which other actions are, got 'open_loop'"
            )
        return dataclasses.replace(self, legal_actions=ACTION_MASK_FIELD)

    def _run(
        self, env: BatchStepper, searches: Sequence[Search], started: float, callback: PlanCallback | None
    ) -> None:
        """Run searches to their end, without the driver where that is possible."""
        from planvec.planners.mcts.compiled import run_here  # here, since numba takes long to import
        from planvec.planners.mcts.search import TreeSearch, enter_roots

        enter_roots(env, [search for search in searches if isinstance(search, TreeSearch)])
        if not run_here(env, searches, started, callback):
            super()._run(env, searches, started, callback)

    def resume(
        self,
        env: BatchStepper,
        tree: Tree,
        *,
        seed: int | None = None,
        callback: PlanCallback | None = None,
    ) -> Plan:
        """Continue the search of a tree: that of a `Plan`, of `Tree.advance` or of `Tree.load`.

        Args:
            env: The stepper.
            tree: The tree, which is copied. Trees of an open loop have no states and are refused.
            seed: Fixes every random choice; None takes a fresh one.
            callback: `callback(num_simulations, num_env_steps)` after each batch; True stops.

        Raises:
            InvalidBatchError: The tree has no states, or was searched with other settings.
            TypeError: It is no tree of `MCTS`.
        """
        from planvec.planners.mcts.search import TreeSearch  # here, since numba takes long to import

        if not isinstance(tree, Tree):
            raise TypeError(
                f"tree: expected the search_data of a plan of MCTS, or Tree.load(...), got {tree!r}"
            )
        if tree.states is None:
            raise InvalidBatchError(
                "tree: expected one with states, got that of an open loop; call plan() instead"
            )
        started = time.perf_counter()
        generator = self._generator(seed)
        config = self._for_states(env, tree.states[:1])
        number = tree.kind.choice if config.is_adaptive else AS_GIVEN
        shaped, state = with_choice(config, number), tree.states[:1]
        # without a name, so that it is freed with the list
        searches: list[Search] = [
            TreeSearch(shaped, number, env, state, generator, tree, None, is_new_root=False)
        ]
        return self._plans(env, searches, started, callback)[0]
