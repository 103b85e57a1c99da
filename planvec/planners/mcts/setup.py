"""The setup of a tree search: its kernel settings, its actions, and an empty or copied tree.

Letters: A actions, N nodes.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from planvec.errors import InvalidBatchError
from planvec.planners.mcts.arrays import (
    ALL,
    AS_GIVEN,
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
from planvec.planners.mcts.config import MCTSConfig
from planvec.planners.mcts.tree import Tree
from planvec.planners.root_actions import list_actions
from planvec.rows import ACTION_MASK_FIELD, PLAYER_FIELD, BatchStepper

_BYTES_OF_OBJECT = 160  # memory of a `SavedState`, besides its data


def make_rules(
    config: MCTSConfig,
    env: BatchStepper,
    dtype: np.dtype[Any],  # of the states
    listed: NDArray[Any] | None,  # `[A, *action shape]`, the result of `list_actions`
    seed: int,
) -> Rules:
    """Return the settings of the kernels."""
    chance = SINGLE
    if env.is_stochastic and config.chance != "foresee":
        chance = OPEN_LOOP if config.chance == "open_loop" else NODES
    widening = config.widening or ((1.0, 0.5) if listed is None else ALL)
    scale = config.value_scale
    low, high = config.value_bounds or (-np.inf, np.inf)
    scales = {"tree": SCALE_BY_TREE, "node": SCALE_BY_NODE}
    # Compiled code reads the masks of actions that are numbers alone.
    has_masks = config.legal_actions == ACTION_MASK_FIELD and listed is not None and listed.ndim == 1
    return Rules(
        exploration=float(config.exploration),
        value_scale=scales[scale] if isinstance(scale, str) else float(scale),
        use_priors=config.selection == "puct",
        use_legal=config.legal_actions is not None or config.value_bounds is not None,
        chance=chance,
        max_depth=config.max_depth,
        widening=(float(widening[0]), float(widening[1])),
        outcome_widening=(float(config.outcome_widening[0]), float(config.outcome_widening[1])),
        backs_up_values=bool(config.transpositions) or config.backup == "max",
        backs_up_max=config.backup == "max",
        proves=config.value_bounds is not None and chance == SINGLE,
        value_bounds=(float(low), float(high)),
        seed=seed,
        num_simulations=-1 if config.simulation_limit is None else config.simulation_limit,
        max_env_steps=-1 if config.max_env_steps is None else config.max_env_steps,
        rollout_steps=config.rollout_steps,
        asks_leaves=config.rollout_steps > 0 or (config.has_values and chance == OPEN_LOOP),
        discount=float(config.discount),
        state_bytes=0 if dtype.hasobject else dtype.itemsize,
        action_bytes=0 if listed is None else listed.nbytes // len(listed),
        player_at=_offset(dtype, PLAYER_FIELD),
        mask_at=_offset(dtype, ACTION_MASK_FIELD) if has_masks else -1,
    )


def _offset(dtype: np.dtype[Any], name: str) -> int:
    """Return the index of the first byte of a field of a state; -1 if it has no such field."""
    return dtype.fields[name][1] if dtype.fields is not None and name in dtype.fields else -1


def tree_kind(config: MCTSConfig, env: BatchStepper, choice: int) -> TreeKind:
    """Return the settings that a tree has to be searched with so that this search can continue it."""
    listed = list_actions(env.action_space)
    return _kind_of(config, make_rules(config, env, env.state_dtype, listed, 0), listed is not None, choice)


def _kind_of(config: MCTSConfig, rules: Rules, has_all_actions: bool, choice: int) -> TreeKind:
    return TreeKind(
        has_own_actions=not has_all_actions,
        has_priors=rules.use_priors,
        has_legal=rules.use_legal,
        shares_nodes=bool(config.transpositions),
        chance=rules.chance,
        discount=rules.discount,
        dt=config.dt,
        choice=choice,
    )


def create_tree(
    config: MCTSConfig,
    env: BatchStepper,
    state: NDArray[Any],
    rules: Rules,
    listed: NDArray[Any] | None,  # `[A, *action shape]`, the result of `list_actions`
    known: Tree | None,
    choice: int = AS_GIVEN,
) -> Tree:
    """Return a tree with capacity for every simulation of a search."""
    space = env.action_space
    num_actions = config.max_actions if listed is None else len(listed)
    if listed is None and config.has_priors:
        name = "prior_fn" if config.evaluate_fn is None else "evaluate_fn"
        raise InvalidBatchError(
            f"{name}: expected a space whose actions can be listed, got {space}, where it cannot know "
            "which actions were drawn; leave it out, or give a value_fn"
        )
    kind = _kind_of(config, rules, listed is not None, choice)
    if known is not None:
        _check_known(known, num_actions, kind)
        # Compiled steps do not look at listed actions any more. Drawn ones are checked in each batch.
        if listed is not None and not (
            known.actions.dtype == listed.dtype and np.array_equal(known.actions, listed)
        ):
            raise InvalidBatchError(
                f"tree: expected the {len(listed)} actions of {space}, got "
                f"{known.actions.tolist()!s:.100}; call plan() instead"
            )
    capacity = _capacity(config, env, state, kind, num_actions, known)
    if known is not None:
        return known.with_capacity(capacity, config.max_depth)
    arrays = empty_arrays(capacity, num_actions, config.max_depth, rules.use_priors, rules.use_legal)
    states = None if rules.chance == OPEN_LOOP else np.empty(capacity, state.dtype)
    if listed is None:
        drawn = np.empty((capacity, num_actions, *(space.shape or ())), space.dtype)
        return Tree(arrays, states, drawn, kind)
    return Tree(arrays, states, listed, kind)


def has_room(config: MCTSConfig, env: BatchStepper, state: NDArray[Any], known: Tree) -> bool:
    """Return whether a search that continues a tree fits into `max_memory`."""
    try:
        _capacity(config, env, state, known.kind, known.num_actions, known)
    except InvalidBatchError:
        return False
    return True


def _capacity(
    config: MCTSConfig,
    env: BatchStepper,
    state: NDArray[Any],
    kind: TreeKind,
    num_actions: int,
    known: Tree | None,
) -> int:
    """Return N: a node per simulation, those of a known tree, and one for each simulation in flight."""
    space = env.action_space
    action_bytes = int(np.prod(space.shape or ())) * np.dtype(space.dtype).itemsize
    state_bytes = 0 if kind.chance == OPEN_LOOP else _size_of(state)
    per_node = bytes_per_node(num_actions, state_bytes, action_bytes, kind)
    num_used = 1 + config.batch_size
    in_flight = config.batch_size * (24 * config.max_depth + 8)
    if known is not None:
        num_used += max(known.num_nodes, int(known.arrays.counters[NUM_OUTCOMES]))
    affordable = max(config.max_memory - in_flight, 0) // per_node - num_used
    limits = [config.simulation_limit, config.max_env_steps]
    wanted = min((limit for limit in limits if limit is not None), default=max(affordable, 1))
    if wanted > affordable:
        needed = (num_used + wanted) * per_node + in_flight
        raise InvalidBatchError(
            f"max_memory: expected at least {needed:,} bytes for {wanted:,} simulations "
            f"({per_node:,} bytes a node, {in_flight:,} for those in flight), got "
            f"{config.max_memory:,}; simulate less, or raise max_memory"
        )
    return num_used + wanted


def _size_of(state: NDArray[Any]) -> int:
    """Return the memory of one state, in bytes."""
    return _BYTES_OF_OBJECT + len(bytes(state[0])) if state.dtype.hasobject else state.dtype.itemsize


def _check_known(tree: Tree, num_actions: int, kind: TreeKind) -> None:
    """Check that a tree was searched with the same settings."""
    if tree.kind.choice != kind.choice:
        raise InvalidBatchError(
            "tree: expected one that was searched with the same settings, got one for which a look at the "
            "environment has chosen them; resume it without transpositions, rollout_horizon and backup, or "
            "call plan() instead"
        )
    wanted = {"actions a node": num_actions, **kind._asdict()}
    got = {"actions a node": tree.num_actions, **tree.kind._asdict()}
    for name, value in wanted.items():
        if got[name] != value:
            raise InvalidBatchError(
                f"tree: expected one that was searched with the same settings, with {name}: {value}, got "
                f"{got[name]}; call plan() instead"
            )
