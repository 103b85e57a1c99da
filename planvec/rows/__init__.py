"""Defines what a batch is: states and actions as arrays, requests, results, infos, promises.

The modules here know neither environments nor processes.
"""

from __future__ import annotations

from planvec.rows.array_files import (
    damage_named,
    is_installed,
    read_arrays,
    remove_unfinished,
    replacing,
    write_arrays,
)

# Hands on the names that other folders use.
# ruff: noqa: F401
# mypy: implicit-reexport
from planvec.rows.checks import (
    as_states,
    check_actions,
    check_compiled,
    check_integer,
    check_number,
    check_rollout,
    check_seed,
    check_state,
    check_states,
    check_step,
    one_action,
)
from planvec.rows.infos import (
    Column,
    Columns,
    LivesUse,
    check_info_keys,
    clear_row,
    decode_columns,
    encode_columns,
    merge_columns,
    read_lives,
    row_values,
    stack_columns,
    stacked_lives,
    unpicklable_rows,
    vector_infos,
)
from planvec.rows.outputs import Answer, Errors, Outputs
from planvec.rows.promises import AllDone, Completed, Failed, Promise, as_completed, wait_for
from planvec.rows.random_actions import (
    ActionStreams,
    action_masks,
    actions_of,
    are_legal,
    draw_legal,
    has_action_masks,
    has_mask_field,
    is_uniform,
    mask_of_info,
    mask_sizes,
    uniform_actions,
)
from planvec.rows.requests import (
    UNLIMITED,
    CheckBatch,
    FlagBatch,
    ObserveBatch,
    ReadBatch,
    RenderBatch,
    Request,
    ResetRequest,
    RolloutBatch,
    RowRequest,
    SetBaseStateRequest,
    StepBatch,
    resolve,
)
from planvec.rows.results import OnError, RolloutOptions, Rollouts, Start, StepOptions, Transitions
from planvec.rows.space_arrays import (
    blank,
    copy_rows,
    copy_tree,
    empty_rows,
    finish_rows,
    is_fixed,
    leaves,
    list_rows,
    map_leaves,
    own_copy,
    put_row,
    raw,
    stack_rows,
    take_row,
    take_rows,
)
from planvec.rows.states import (
    ACTION_MASK_FIELD,
    GENERATOR_FIELD,
    PLAYER_FIELD,
    EnvDescription,
    SavedState,
    StateFormat,
    arrays_of_states,
    has_players,
    players_to_move,
    state_keys,
    states_of_arrays,
)
from planvec.rows.stepper import BatchKernel, BatchStepper, KernelUse, Perform, StepsHere
