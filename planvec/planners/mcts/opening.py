"""Before a tree search begins: its rules, its actions, and a tree with room for it.

Letters: A actions, N nodes.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from gymnasium import spaces
from numpy.typing import NDArray

from planvec.errors import InvalidBatchError
from planvec.planners.mcts.arrays import (
    NODES,
    NUM_OUTCOMES,
    OPEN_LOOP,
    SCALE_BY_NODE,
    SCALE_BY_TREE,
    SINGLE,
    Rules,
    TreeKind,
    bytes_per_node,
    empty_arrays,
)
from planvec.planners.mcts.tree import Tree
from planvec.planners.root_actions import check_action_space
from planvec.rows import BatchStepper

if TYPE_CHECKING:
    from planvec.planners.mcts.mcts import MCTS

__all__ = ["list_actions", "make_rules", "open_tree", "search_kind"]

_MAX_LISTED = 256
"""A MultiDiscrete or MultiBinary space with more elements is sampled."""
_BYTES_OF_OBJECT = 160
"""Of a `SavedState`, besides its data."""
_EVERYTHING = (np.inf, 0.0)


def list_actions(space: Any) -> NDArray[Any] | None:
    """All actions `[A, *action shape]` of a small discrete space; None where they have to be drawn.

    Raises:
        UnsupportedEnvError: They cannot be drawn either.
    """
    check_action_space(space)
    if isinstance(space, spaces.Discrete):
        whole: NDArray[Any] = np.arange(int(space.n), dtype=space.dtype) + space.dtype.type(space.start)
        return whole
    if isinstance(space, spaces.Box):
        return None
    is_binary = isinstance(space, spaces.MultiBinary)
    sizes: Any = np.full(space.shape, 2) if is_binary else space.nvec
    if np.prod(sizes.astype(float)) > _MAX_LISTED:
        return None
    each = np.indices(sizes.reshape(-1)).reshape(sizes.size, -1).T.reshape(-1, *sizes.shape)
    listed: NDArray[Any] = (each + (0 if is_binary else space.start)).astype(space.dtype)
    return listed


def make_rules(config: MCTS, env: BatchStepper, has_all_actions: bool, seed: int) -> Rules:
    """What the kernels go by.

    Args:
        config: What was asked for.
        env: The stepper.
        has_all_actions: Whether a node has every action, or some that are drawn.
        seed: For the kernels' own draws, in [0, 2**62).
    """
    chance = SINGLE
    if env.is_stochastic and config.chance != "foresee":
        chance = OPEN_LOOP if config.chance == "open_loop" else NODES
    widening = config.widening or (_EVERYTHING if has_all_actions else (1.0, 0.5))
    scale = config.value_scale
    scales = {"tree": SCALE_BY_TREE, "node": SCALE_BY_NODE}
    return Rules(
        exploration=float(config.exploration),
        value_scale=scales[scale] if isinstance(scale, str) else float(scale),
        use_priors=config.selection == "puct",
        use_legal=config.legal_actions is not None,
        chance=chance,
        max_depth=config.max_depth,
        widening=(float(widening[0]), float(widening[1])),
        sampling=(float(config.outcome_widening[0]), float(config.outcome_widening[1])),
        backs_up_values=bool(config.transpositions) or config.backup == "max",
        backs_up_max=config.backup == "max",
        rolls_out=config.rollout_steps > 0,
        seed=seed,
    )


def search_kind(config: MCTS, env: BatchStepper) -> TreeKind:
    """How a search will use its tree."""
    has_all_actions = list_actions(env.action_space) is not None
    return _kind_of(config, make_rules(config, env, has_all_actions, 0), has_all_actions)


def _kind_of(config: MCTS, rules: Rules, has_all_actions: bool) -> TreeKind:
    return TreeKind(
        has_own_actions=not has_all_actions,
        has_priors=rules.use_priors,
        has_legal=rules.use_legal,
        shares_nodes=bool(config.transpositions),
        chance=rules.chance,
        discount=float(config.discount),
        dt=config.dt,
    )


def open_tree(
    config: MCTS,
    env: BatchStepper,
    state: NDArray[Any],
    rules: Rules,
    listed: NDArray[Any] | None,
    known: Tree | None,
) -> Tree:
    """A tree with room for every simulation of a search.

    Args:
        config: What was asked for.
        env: The stepper.
        state: `[1]`, the root's.
        rules: What the kernels go by.
        listed: `[A, *action shape]`, what `list_actions` gave.
        known: What is known of the state already, which is copied.

    Raises:
        InvalidBatchError: It would take more than `max_memory`; or `known` was searched otherwise.
    """
    space = env.action_space
    num_actions = config.max_actions if listed is None else len(listed)
    if listed is None and config.prior_fn is not None:
        raise InvalidBatchError(
            f"prior_fn: expected a space whose actions can be listed, got {space}: it would not know which "
            "actions were drawn; leave it out"
        )
    kind = _kind_of(config, rules, listed is not None)
    if known is not None:
        _check_known(known, num_actions, kind)
    capacity = _capacity(config, env, state, kind, num_actions, known)
    if known is not None:
        return known.grown(capacity, config.max_depth)
    arrays = empty_arrays(capacity, num_actions, config.max_depth, rules.use_priors, rules.use_legal)
    states = None if rules.chance == OPEN_LOOP else np.empty(capacity, state.dtype)
    if listed is None:
        drawn = np.empty((capacity, num_actions, *(space.shape or ())), space.dtype)
        return Tree(arrays, states, drawn, kind)
    return Tree(arrays, states, listed, kind)


def _capacity(
    config: MCTS,
    env: BatchStepper,
    state: NDArray[Any],
    kind: TreeKind,
    num_actions: int,
    known: Tree | None,
) -> int:
    """N: a node per simulation, besides those that are known and one for each simulation in flight."""
    space = env.action_space
    action_bytes = int(np.prod(space.shape or ())) * np.dtype(space.dtype).itemsize
    state_bytes = 0 if kind.chance == OPEN_LOOP else _size_of(state)
    per_node = bytes_per_node(num_actions, state_bytes, action_bytes, kind)
    taken = 1 + config.batch_size
    in_flight = config.batch_size * (24 * config.max_depth + 8)
    if known is not None:
        taken += max(known.num_nodes, int(known.arrays.counters[NUM_OUTCOMES]))
    affordable = max(config.max_memory - in_flight, 0) // per_node - taken
    limits = [config.simulation_limit, config.max_env_steps]
    wanted = min((limit for limit in limits if limit is not None), default=max(affordable, 1))
    if wanted > affordable:
        raise InvalidBatchError(
            f"max_memory: expected at least {(taken + wanted) * per_node + in_flight:,} bytes for {wanted:,} "
            f"simulations ({per_node:,} bytes a node, {in_flight:,} for what is in flight), got "
            f"{config.max_memory:,}; simulate less, or raise max_memory"
        )
    return taken + wanted


def _size_of(state: NDArray[Any]) -> int:
    """Bytes of one state."""
    return _BYTES_OF_OBJECT + len(bytes(state[0])) if state.dtype.hasobject else state.dtype.itemsize


def _check_known(tree: Tree, num_actions: int, kind: TreeKind) -> None:
    wanted = {"actions a node": num_actions, **kind._asdict()}
    held = {"actions a node": tree.num_actions, **tree.kind._asdict()}
    for name, value in wanted.items():
        if held[name] != value:
            raise InvalidBatchError(
                f"tree: expected one that was searched in the same way, with {name}: {value}, got "
                f"{held[name]}; plan anew"
            )
