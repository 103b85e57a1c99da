"""Games of two players: exact values, the naive search, any number of workers, and refusals."""

from __future__ import annotations

import functools
import os
import signal
from pathlib import Path
from typing import Any, NamedTuple

import gymnasium
import numpy as np
import pyspiel
import pytest
from compare import same_plans
from naive_search import NaiveSearch

import planvec
from planvec import MCTS

TIC_TAC_TOE = "OpenSpiel/tic_tac_toe"
CONNECT_THREE = "connect_four(rows=4,columns=4,x_in_row=3)"
PIG = "pig(winscore=4,diceoutcomes=3)"

EXACT = MCTS(num_simulations=6000, rollout_horizon=0, backup="max", transpositions="position")
"""It expands every position of a small game, and its values are then those of perfect play."""


def mover_value(observations: Any) -> Any:
    """A value function that is no constant."""
    flat = observations.reshape(len(observations), -1)
    return flat @ np.sin(np.arange(flat.shape[1])) / 20


def open_game(name: str, **kwargs: Any) -> planvec.BatchEnv:
    """A game in this process, unless there are workers."""
    game, _, rest = name.partition("(")
    pairs = [pair.split("=") for pair in rest.rstrip(")").split(",") if pair]
    parameters: dict[str, Any] = {key: int(value) for key, value in pairs}
    return planvec.make(f"OpenSpiel/{game}", env_kwargs=parameters, **{"num_workers": 0, **kwargs})


def after(env: Any, history: list[int]) -> Any:
    """The state after a history."""
    return env.reset(seed=0, options={"history": history}).state


# -- perfect play, without planvec ---------------------------------------------------------------------


class Position(NamedTuple):
    """A position, and what can follow, each with its probability where chance decides."""

    player: int
    following: list[tuple[float, str]]


def text_of(state: Any) -> str:
    """The position, and who is to move."""
    return f"{state.current_player()} {state}"


@functools.cache
def perfect_values(name: str) -> dict[str, float]:
    """The return of player 0 in perfect play, for the text of each position: value iteration."""
    values, positions = dict[str, float](), dict[str, Position]()
    todo = [pyspiel.load_game(name).new_initial_state()]
    while todo:
        state = todo.pop()
        if text_of(state) in values:
            continue
        values[text_of(state)] = state.returns()[0] if state.is_terminal() else 0.0
        chances = dict(state.chance_outcomes()) if state.is_chance_node() else {}
        children = {action: state.child(action) for action in state.legal_actions()}
        todo += children.values()
        if children:
            following = [(chances.get(action, 1.0), text_of(child)) for action, child in children.items()]
            positions[text_of(state)] = Position(state.current_player(), following)
    change = 1.0
    while change > 1e-12:
        change = 0.0
        for text, (player, following) in positions.items():
            if player == pyspiel.PlayerId.CHANCE:
                value = sum(probability * values[child] for probability, child in following)
            else:
                value = (max, min)[player](values[child] for _, child in following)
            change, values[text] = max(change, abs(value - values[text])), value
    return values


def random_histories(name: str, count: int, num_moves: int) -> list[list[int]]:
    """Histories of so many random moves that leave a game unfinished."""
    random, histories = np.random.default_rng(0), list[list[int]]()
    while len(histories) < count:
        state = pyspiel.load_game(name).new_initial_state()
        for _ in range(num_moves):
            if not state.is_terminal():
                state.apply_action(int(random.choice(state.legal_actions())))
        if not state.is_terminal():
            histories.append(state.history())
    return histories


def state_after(name: str, history: list[int]) -> Any:
    state = pyspiel.load_game(name).new_initial_state()
    for action in history:
        state.apply_action(action)
    return state


# -- exact values --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "num_moves"),
    [
        ("tic_tac_toe", 2),
        (CONNECT_THREE, 6),
        ("breakthrough(rows=4,columns=3)", 6),
        ("dots_and_boxes(num_rows=1,num_cols=2)", 0),  # who closes a box moves again
    ],
)
def test_a_search_of_every_position_finds_perfect_play(name: str, num_moves: int) -> None:
    values = perfect_values(name)
    with open_game(name) as env:
        for history in random_histories(name, 5, num_moves):
            state = state_after(name, history)
            sign = 1 if state.current_player() == 0 else -1
            plan = EXACT.plan(env, after(env, history), seed=0)
            assert plan.value == sign * values[text_of(state)]
            assert plan.value == sign * values[text_of(state.child(int(plan.action)))]


def test_tic_tac_toe_is_a_draw() -> None:
    planner = MCTS(num_simulations=20_000, rollout_horizon=0, backup="max", transpositions="position")
    with open_game("tic_tac_toe") as env:
        plan = planner.plan(env, seed=0)
    assert plan.value == 0


def test_only_the_centre_draws_after_a_corner() -> None:
    with open_game("tic_tac_toe") as env:
        plan = EXACT.plan(env, after(env, [0]), seed=0)
        assert plan.action == 4
        assert plan.action_values[[1, 2, 3, 5, 6, 7, 8]].tolist() == [-1.0] * 7
        by_rollouts = MCTS(num_simulations=1000).plan(env, after(env, [0]), seed=0)
    assert by_rollouts.action == 4


def test_means_of_rollouts_find_perfect_play_too() -> None:
    values = perfect_values(CONNECT_THREE)
    with open_game(CONNECT_THREE) as env:
        for history in random_histories(CONNECT_THREE, 8, 5):
            state = state_after(CONNECT_THREE, history)
            plan = MCTS(num_simulations=2000).plan(env, after(env, history), seed=1)
            assert values[text_of(state.child(int(plan.action)))] == values[text_of(state)]


def test_dice_and_turns_that_do_not_alternate_are_valued_by_who_moves() -> None:
    values = perfect_values(PIG)
    game = pyspiel.load_game(PIG)
    state = game.new_initial_state()
    with open_game(PIG) as env:
        plan = MCTS(num_simulations=6000, batch_size=64, exploration=0.3).plan(env, seed=0)
    assert plan.value == pytest.approx(values[text_of(state)], abs=0.1)


