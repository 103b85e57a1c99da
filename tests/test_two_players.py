"""Games of two players: exact values, the naive search, any number of workers, and refusals."""

from __future__ import annotations

import functools
import os
import signal
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyspiel
import pytest
from compare import same_plans
from naive_search import NaiveSearch
from own_environments import Stones, StonesCodec

import planvec
from planvec import MCTS, plots

CONNECT_THREE = "connect_four(rows=4,columns=4,x_in_row=3)"
PIG = "pig(winscore=4,diceoutcomes=3)"

EXACT = MCTS(num_simulations=3000, rollout_horizon=0, backup="max", transpositions="position")
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
        ("tic_tac_toe", 3),
        (CONNECT_THREE, 7),
        ("breakthrough(rows=4,columns=3)", 6),
        ("dots_and_boxes(num_rows=1,num_cols=2)", 0),  # who closes a box moves again
    ],
)
def test_a_search_of_every_position_finds_perfect_play(name: str, num_moves: int) -> None:
    values = perfect_values(name)
    with open_game(name) as env:
        for history in random_histories(name, 3, num_moves):
            state = state_after(name, history)
            sign = 1 if state.current_player() == 0 else -1
            plan = EXACT.plan(env, after(env, history), seed=0)
            assert plan.value == sign * values[text_of(state)]
            assert plan.value == sign * values[text_of(state.child(int(plan.action)))]


def test_tic_tac_toe_is_a_draw() -> None:
    planner = MCTS(num_simulations=12_000, rollout_horizon=0, backup="max", transpositions="position")
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
        plan = MCTS(num_simulations=3000, batch_size=64, exploration=0.3).plan(env, seed=0)
    assert plan.value == pytest.approx(values[text_of(state)], abs=0.1)


# -- proven values -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "options", [{}, {"batch_size": 1}, {"transpositions": "position"}, {"backup": "max"}]
)
@pytest.mark.parametrize("name", ["tic_tac_toe", CONNECT_THREE, "dots_and_boxes(num_rows=1,num_cols=2)"])
def test_every_proven_value_is_that_of_perfect_play(name: str, options: dict[str, Any]) -> None:
    values = perfect_values(name)
    planner = MCTS(num_simulations=1500, value_bounds=(-1, 1), **options)
    with open_game(name) as env:
        tree = planner.plan(env, after(env, [1, 0]), seed=0).search_data
    nodes = np.flatnonzero(tree.arrays.proven[: tree.num_nodes])
    assert len(nodes) > 10
    for node in nodes.tolist():
        state = tree.states[node]
        game = state_after(name, state["history"][: state["num_moves"]].tolist())
        sign = 1 if game.current_player() == 0 else -1
        assert tree.arrays.raw_values[node] == sign * values[text_of(game)]


def test_a_search_ends_when_the_value_of_its_root_is_proven() -> None:
    planner = MCTS(num_simulations=100_000, value_bounds=(-1, 1))
    with open_game("tic_tac_toe") as env:
        for history, value in (([0, 1], 1), ([0, 8, 2], -1), ([0, 4, 8, 1], 0)):
            plan = planner.plan(env, after(env, history), seed=0)
            assert plan.value == value
            assert plan.stop_reason == "exhausted"
            assert plan.num_simulations < 5000
            again = planner.resume(env, plan.search_data, seed=1)
            assert (again.action, again.value, again.num_simulations) == (plan.action, value, 0)


def test_values_are_proven_for_one_player_too() -> None:
    planner = MCTS(num_simulations=100_000, value_bounds=(0, 1), transpositions="cell", rollout_horizon=0)
    with planvec.make("FrozenLake-v1", env_kwargs={"is_slippery": False}, num_workers=0) as env:
        plan = planner.plan(env, env.reset(seed=0).state, seed=0)
    assert plan.value == plan.best_return == 1
    assert plan.stop_reason == "exhausted"


@pytest.mark.parametrize("num_stones", [7, 8, 10])
@pytest.mark.parametrize("loss", [-1.0, 0.0, 0.5])
def test_bounds_are_those_of_player_0(num_stones: int, loss: float) -> None:
    planner = MCTS(num_simulations=20_000, value_bounds=(loss, 1.0))
    game = functools.partial(Stones, num_stones, loss)
    with planvec.make(game, codec=StonesCodec, num_workers=0) as env:
        plan = planner.plan(env, env.reset(seed=0).state, seed=0)
    assert plan.stop_reason == "exhausted"
    assert plan.value == (1.0 if num_stones % 4 else loss)
    if num_stones % 4:
        assert plan.action == num_stones % 4 - 1


@pytest.mark.parametrize("bounds", [(0.5, 1), (-1, 0.5), (0, 1)])
def test_returns_outside_the_bounds_are_an_error(bounds: tuple[float, float]) -> None:
    planner = MCTS(num_simulations=500, value_bounds=bounds)
    with (
        open_game("tic_tac_toe") as env,
        pytest.raises(planvec.InvalidBatchError, match="value_bounds: expected .* found a return outside"),
    ):
        planner.plan(env, after(env, [0]), seed=0)


@pytest.mark.parametrize("history", [[0, 3, 1, 4], [0, 4, 1]])
def test_halving_takes_no_action_that_is_proven_to_lose(history: list[int]) -> None:
    with open_game("tic_tac_toe") as env:
        state = after(env, history)
        for number in range(40):
            planner = MCTS(
                num_simulations=8 + 8 * (number % 8),
                root_selection="gumbel",
                value_bounds=(-1, 1),
                batch_size=1 + number % 3,
            )
            plan = planner.plan(env, state, seed=number)
            worth = dict(zip(plan.root_actions.tolist(), plan.action_values.tolist(), strict=True))
            legal = plan.search_data.arrays.legal[0]
            assert legal[plan.action] or not legal[plan.visit_counts > 0].any()
            if plan.stop_reason == "exhausted":
                assert plan.value == worth[int(plan.action)] == np.nanmax(plan.action_values)


@pytest.mark.parametrize("bounds", [(1, -1), 5, (1,), (None, 1), ("a", "b"), (-1, 1, 2)])
def test_what_are_no_bounds_is_refused(bounds: Any) -> None:
    with pytest.raises(ValueError, match="value_bounds: expected the lowest and the highest return"):
        MCTS(value_bounds=bounds)


# -- the same search in other ways ---------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "history", "options"),
    [
        ("tic_tac_toe", [4], {"rollout_horizon": 9}),
        (CONNECT_THREE, [0], {"rollout_horizon": 5, "discount": 0.9, "value_scale": "node"}),
        (CONNECT_THREE, [], {"value_fn": mover_value, "selection": "puct"}),
        ("dots_and_boxes(num_rows=1,num_cols=2)", [], {"value_fn": mover_value}),
        (PIG, [0], {"rollout_horizon": 20}),
    ],
)
def test_the_search_equals_one_that_maximises_for_one_and_minimises_for_the_other(
    name: str, history: list[int], options: dict[str, Any]
) -> None:
    config = MCTS(num_simulations=200, batch_size=1, **options)
    with open_game(name) as env:
        state = after(env, history)
        naive = NaiveSearch(config, env, state, seed=3)
        for _ in range(200):
            naive.simulate()
        tree = config.plan(env, state, seed=3).search_data
    assert tree.num_nodes == len(naive.nodes)
    for node in naive.nodes:
        assert tree.arrays.edge_visits[node.number].tolist() == node.visits
        assert (tree.arrays.edge_values[node.number] == np.array(node.means) * node.sign).all()
        assert node.ended or tree.arrays.players[node.number] == (node.sign < 0)
    assert (tree.arrays.bounds == [naive.lowest, naive.highest]).all()


PLANNERS = {
    "rollouts": MCTS(num_simulations=150),
    "positions": MCTS(num_simulations=150, transpositions="position"),
    "proofs": MCTS(num_simulations=150, value_bounds=(-1, 1)),
    "priors": MCTS(num_simulations=150, selection="puct", value_fn=mover_value),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", ["connect_four", "pig"])
def test_a_plan_does_not_depend_on_the_number_of_workers_or_their_deaths(name: str) -> None:
    plans: dict[str, list[planvec.Plan]] = {planner: [] for planner in PLANNERS}
    for num_workers in (0, 1, 3):
        with open_game(name, num_workers=num_workers, max_restarts=20) as env:
            state = env.reset(seed=4).state
            for planner_name, planner in PLANNERS.items():
                plans[planner_name].append(planner.plan(env, state, seed=2))
                if num_workers == 3:
                    doomed = iter([worker.pid for worker in env.workers])

                    def kill(num_simulations: int, num_steps: int, doomed: Any = doomed) -> None:
                        for pid in islice(doomed, 1):
                            os.kill(pid, signal.SIGKILL)

                    plans[planner_name].append(planner.plan(env, state, seed=2, callback=kill))
    for found in plans.values():
        assert len(found) == 4
        assert all(same_plans(found[0], plan) for plan in found[1:])


def test_a_field_and_a_function_of_it_find_the_same_positions() -> None:
    with open_game("connect_four") as env:
        state = env.reset(seed=0).state
        by_name, by_function = (
            MCTS(num_simulations=500, transpositions=keys).plan(env, state, seed=0)
            for keys in ("position", lambda states: states["position"])
        )
    assert same_plans(by_name, by_function)
    assert by_name.search_data.num_nodes == by_function.search_data.num_nodes < 480


def test_several_roots_give_the_plans_that_each_gives_alone() -> None:
    planner = MCTS(num_simulations=200)
    with open_game(CONNECT_THREE) as env:
        states = np.array([after(env, history) for history in ([], [1], [1, 2])])
        together = planner.plan_batch(env, states, seeds=[5, 6, 7])
        for state, seed, plan in zip(states, (5, 6, 7), together, strict=True):
            assert same_plans(plan, planner.plan(env, state, seed=seed))


def test_simulations_in_flight_find_the_same_replies() -> None:
    with open_game("tic_tac_toe") as env:
        state = after(env, [0])
        for batch_size in (1, 16, 64):
            planner = MCTS(num_simulations=2000, batch_size=batch_size)
            assert planner.plan(env, state, seed=0).action == 4


def test_a_tree_goes_on_after_the_move_of_the_other_player(tmp_path: Path) -> None:
    planner = MCTS(num_simulations=400)
    with open_game(CONNECT_THREE) as env:
        state = env.reset(seed=0).state
        tree = planner.plan(env, state, seed=0).search_data
        for action in tree.principal_variation(False).actions[:2].tolist():
            out = env.step_batch([action], np.array([state]))
            state = out.new_states[0]
            tree = tree.advance(action, state)
            assert tree.arrays.players[0] == state["current_player"]
        known = int(tree.arrays.visits[0])
        tree.save(tmp_path / "tree.npz")
        plan = planner.resume(env, tree, seed=1)
        assert plan.visit_counts.sum() == known + 400
        assert same_plans(plan, planner.resume(env, planvec.Tree.load(tmp_path / "tree.npz", env), seed=1))


def test_pictures_of_an_episode_show_the_values_of_player_0() -> None:
    planner = MCTS(num_simulations=20_000, value_bounds=(-1, 1))
    with planvec.make(Stones, codec=StonesCodec, num_workers=0) as env:
        episode = planvec.run_episode(env, planner, seed=0)
    assert episode.total_return == 1
    assert set(episode.values.tolist()) == {-1.0, 1.0}
    assert set(episode.values_of_player_0.tolist()) == {1.0}
    axes = plots.plot_episode(episode)
    line = axes[1].get_lines()[0]
    assert (line.get_ydata() == 1.0).all()
    assert line.get_label() == "value of the decision for player 0"


def test_an_episode_is_a_game_of_the_planner_with_itself() -> None:
    planner = MCTS(num_simulations=400)
    with open_game("tic_tac_toe") as env:
        episode = planvec.run_episode(env, planner, seed=1)
        assert episode.terminated
        assert episode.total_return == 0
        assert episode.states["current_player"].tolist()[:4] == [0, 1, 0, 1]


def test_the_search_never_loses_against_a_random_player() -> None:
    planner, random = MCTS(num_simulations=300), np.random.default_rng(0)
    with open_game("tic_tac_toe") as env:
        for game in range(10):
            ours = game % 2
            state, returns, terminated = env.reset(seed=0).state, 0.0, False
            while not terminated:
                if state["current_player"] == ours:
                    action = planner.plan(env, state, seed=game).action
                else:
                    action = random.choice(np.flatnonzero(state["action_mask"]))
                out = env.step_batch([action], np.array([state]))
                state, terminated = out.new_states[0], bool(out.terminated[0])
                returns += out.rewards[0]
            assert returns * (1, -1)[ours] >= 0


def test_illegal_actions_are_never_taken() -> None:
    with open_game("tic_tac_toe") as env:
        for planner in PLANNERS.values():
            tree = planner.plan(env, after(env, [4, 0]), seed=0).search_data
            states = tree.states[: tree.num_nodes]
            assert (tree.arrays.edge_visits[: tree.num_nodes][~states["action_mask"]] == 0).all()


def test_a_value_function_speaks_for_the_player_to_move() -> None:
    with open_game("tic_tac_toe") as env:
        planner = MCTS(num_simulations=5, value_fn=lambda seen: np.full(len(seen), 0.5))
        for history in ([], [4]):
            plan = planner.plan(env, after(env, history), seed=0)
            assert np.nanmax(plan.action_values) == -0.5  # of the other player's 0.5 after any move


@pytest.mark.parametrize("num_workers", [0, 2])
def test_an_environment_of_ones_own_is_a_game_if_its_states_tell_who_moves(num_workers: int) -> None:
    planner = MCTS(num_simulations=400, value_bounds=(-1, 1))
    with planvec.make(Stones, codec=StonesCodec, num_workers=num_workers) as env:
        state, loser = env.reset(seed=0).state, 1
        plans = []
        while state["left"]:
            plan = planner.plan(env, state, seed=0)
            plans.append(plan)
            assert plan.value == (-1 if state["left"] % 4 == 0 else 1)
            if state["left"] % 4:
                assert plan.action + 1 == state["left"] % 4
            loser = 1 - int(state["current_player"])
            state = env.step_batch([plan.action], np.array([state])).new_states[0]
    assert loser == 1


# -- refusals ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "planner", [planvec.Swarm(), planvec.CEM(), planvec.RandomShooting(), planvec.IW(), planvec.RolloutIW()]
)
def test_a_planner_for_one_player_refuses_a_game_of_two(planner: planvec.Planner) -> None:
    with open_game("tic_tac_toe") as env, pytest.raises(planvec.UnsupportedEnvError, match="game of two"):
        planner.plan(env, seed=0)


@pytest.mark.parametrize(
    ("options", "message"),
    [({"dt": 2}, "dt: expected 1"), ({"chance": "open_loop"}, "chance: expected 'sample'")],
)
def test_settings_that_blur_who_moves_are_refused(options: dict[str, Any], message: str) -> None:
    with open_game("pig") as env, pytest.raises(planvec.UnsupportedEnvError, match=message):
        MCTS(num_simulations=10, **options).plan(env, seed=0)


def test_an_exploration_of_a_game_of_two_is_refused() -> None:
    with (
        open_game("tic_tac_toe", num_workers=0) as env,
        pytest.raises(planvec.UnsupportedEnvError, match="Explorer: expected an environment with one player"),
    ):
        planvec.Explorer().run(env, seed=0, max_rounds=1)
