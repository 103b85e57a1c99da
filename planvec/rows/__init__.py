"""Defines what a batch is: states and actions as arrays, requests, results, infos, promises.

The modules here know neither environments nor processes.
"""

from __future__ import annotations

from planvec.rows.actions import check_actions, one_action
from planvec.rows.arguments import check_compiled, check_integer, check_number, check_seed
from planvec.rows.attributes import resolve
from planvec.rows.checks import check_rollout, check_step
from planvec.rows.description import EnvDescription
from planvec.rows.files import DAMAGED, read_arrays, replacing, write_arrays
from planvec.rows.info_bytes import decode_columns, encode_columns
from planvec.rows.infos import (
    Column,
    Columns,
    check_info_keys,
    clear_row,
    merge_columns,
    row_values,
    stack_columns,
    unpicklable_rows,
    vector_infos,
)
from planvec.rows.installed import is_installed
from planvec.rows.keys import state_keys
from planvec.rows.legal_actions import (
    action_masks,
    are_legal,
    draw_legal,
    has_action_masks,
    has_mask_field,
    mask_of_info,
    mask_sizes,
)
from planvec.rows.lives import LivesUse, read_lives, stacked_lives
from planvec.rows.outputs import Answer, Errors, Outputs
from planvec.rows.promises import AllDone, Completed, Failed, Promise, as_completed, wait_for
from planvec.rows.random_actions import ActionStreams, actions_of, is_uniform, uniform_actions
from planvec.rows.requests import (
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
)
from planvec.rows.results import OnError, Rollouts, Start, Transitions
from planvec.rows.saved_state import ACTION_MASK_FIELD, GENERATOR_FIELD, PLAYER_FIELD, SavedState, has_players
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
from planvec.rows.state_files import arrays_of_states, states_of_arrays
from planvec.rows.states import StateFormat, as_states, check_state, check_states
from planvec.rows.stepper import BatchStepper, KernelUse, Perform, StepsHere

__all__ = [
    "ACTION_MASK_FIELD",
    "DAMAGED",
    "GENERATOR_FIELD",
    "PLAYER_FIELD",
    "ActionStreams",
    "AllDone",
    "Answer",
    "BatchStepper",
    "CheckBatch",
    "Column",
    "Columns",
    "Completed",
    "EnvDescription",
    "Errors",
    "Failed",
    "FlagBatch",
    "KernelUse",
    "LivesUse",
    "ObserveBatch",
    "OnError",
    "Outputs",
    "Perform",
    "Promise",
    "ReadBatch",
    "RenderBatch",
    "Request",
    "ResetRequest",
    "RolloutBatch",
    "Rollouts",
    "RowRequest",
    "SavedState",
    "SetBaseStateRequest",
    "Start",
    "StateFormat",
    "StepBatch",
    "StepsHere",
    "Transitions",
    "action_masks",
    "actions_of",
    "are_legal",
    "arrays_of_states",
    "as_completed",
    "as_states",
    "blank",
    "check_actions",
    "check_compiled",
    "check_info_keys",
    "check_integer",
    "check_number",
    "check_rollout",
    "check_seed",
    "check_state",
    "check_states",
    "check_step",
    "clear_row",
    "copy_rows",
    "copy_tree",
    "decode_columns",
    "draw_legal",
    "empty_rows",
    "encode_columns",
    "finish_rows",
    "has_action_masks",
    "has_mask_field",
    "has_players",
    "is_fixed",
    "is_installed",
    "is_uniform",
    "leaves",
    "list_rows",
    "map_leaves",
    "mask_of_info",
    "mask_sizes",
    "merge_columns",
    "one_action",
    "own_copy",
    "put_row",
    "raw",
    "read_arrays",
    "read_lives",
    "replacing",
    "resolve",
    "row_values",
    "stack_columns",
    "stack_rows",
    "stacked_lives",
    "state_keys",
    "states_of_arrays",
    "take_row",
    "take_rows",
    "uniform_actions",
    "unpicklable_rows",
    "vector_infos",
    "wait_for",
    "write_arrays",
]
