"""Connect four against OpenSpiel's own tree search, at equal simulations and equal random rollouts.

    python benchmarks/two_players.py                      # 200 games at 300 simulations a move, then speeds
    python benchmarks/two_players.py --simulations 1000
    python benchmarks/two_players.py --only games --cpp   # against the C++ version
    python benchmarks/two_players.py --only speed states
    python benchmarks/two_players.py --ideas              # games without each of planvec's ideas in turn

    games      points of planvec against `MCTSBot` in Python (with its solver, and the exploration constant of
               its examples). Each side has both colours in turn, and one rollout for each simulation. planvec
               keeps the part of its tree that the two moves lead to; OpenSpiel begins a new one.
    speed      time of a simulation from the same positions. All take turns, round by round.
    states     time to restore a state, in several ways.

Seeds begin at 20,000; none of them was used to choose the settings.
"""

from __future__ import annotations

import argparse
import dataclasses
import math
import statistics
import time
from collections.abc import Callable
from contextlib import ExitStack
from typing import Any

import numpy as np
import pyspiel
from figures import Figures, add_plain
from open_spiel.python.algorithms import mcts

import planvec

GAME = "connect_four"
FIRST_SEED = 20_000
EXPLORATION = 2.0
"""OpenSpiel's constant in its examples."""

POSITIONS: list[list[int]] = [[], [3, 3], [3, 2, 3, 4, 1], [0, 6, 3, 3, 2, 3, 3, 2]]
"""Histories from which simulations are timed."""

Search = Callable[[list[int], int], None]
"""`search(history, seed)` makes a decision after a history."""


def planner(num_simulations: int, **options: Any) -> planvec.MCTS:
    """Return the planner of all games."""
    return planvec.MCTS(
        **{
            "num_simulations": num_simulations,
            "batch_size": 1,
            "exploration": 0.35,
            "value_bounds": (-1, 1),
            **options,
        }
    )


def open_env(num_workers: int) -> planvec.BatchEnv:
    """Open the game. Planners read the legal actions in its states, not in infos."""
    return planvec.make(f"OpenSpiel/{GAME}", num_workers=num_workers, info_keys=())


def python_bot(game: Any, num_simulations: int, seed: int) -> Any:
    """Return OpenSpiel's search in Python."""
    random = np.random.RandomState(seed)
    evaluator = mcts.RandomRolloutEvaluator(1, random)
    return mcts.MCTSBot(game, EXPLORATION, num_simulations, evaluator, solve=True, random_state=random)


def cpp_bot(game: Any, num_simulations: int, seed: int) -> Any:
    """Return OpenSpiel's search in C++."""
    evaluator = pyspiel.RandomRolloutEvaluator(1, seed)
    return pyspiel.MCTSBot(game, evaluator, EXPLORATION, num_simulations, 1000, True, seed, False)


# -- games -----------------------------------------------------------------------------------------


def play(env: planvec.BatchEnv, search: planvec.MCTS, bot: Any, ours: int, seed: int) -> float:
    """Play a game. Returns the points of planvec: 1, 0.5 or 0."""
    game = pyspiel.load_game(GAME)
    record, state = game.new_initial_state(), env.reset(seed=seed).state
    tree = None
    while not record.is_terminal():
        number = seed * 100 + len(record.history())
        if record.current_player() == ours:
            plan = (
                search.plan(env, state, seed=number)
                if tree is None
                else search.resume(env, tree, seed=number)
            )
            action, tree = int(plan.action), plan.search_data
        else:
            action = int(bot.step(record))
        record.apply_action(action)
        state = env.step_batch([action], np.array([state])).new_states[0]
        if tree is not None:
            tree = tree.advance(action, state) if search.reuse_tree else None
    return (record.returns()[ours] + 1) / 2


def show_games(
    figures: Figures, name: str, search: planvec.MCTS, make_bot: Any, num_games: int, first_seed: int
) -> None:
    """Play games, with both colours in turn, and show the points and their interval of 95 %."""
    game = pyspiel.load_game(GAME)
    points = []
    with open_env(0) as env:
        for seed in range(first_seed, first_seed + num_games):
            bot = make_bot(game, search.num_simulations, seed)
            points.append(play(env, search, bot, (seed - first_seed) % 2, seed))
    share, error = statistics.mean(points), 1.96 * statistics.pstdev(points) / math.sqrt(num_games)
    colours = [statistics.mean(points[colour::2]) for colour in (0, 1)]
    figures.text(
        f"{name}: {share:.1%} of {num_games} points, +- {error:.1%} (95 %); "
        f"as first player {colours[0]:.1%}, as second {colours[1]:.1%}"
    )
    figures.figure(f"games/{name}/points_share", share)


def show_ideas(figures: Figures, num_simulations: int, num_games: int, first_seed: int) -> None:
    """Show what each idea is worth: games without it, against OpenSpiel in C++."""
    whole = planner(num_simulations)
    for name, options in (
        ("whole", {}),
        ("a new tree for each move", {"reuse_tree": False}),
        ("nothing is proven", {"value_bounds": None}),
        ("one simulation at a time", {"batch_size": 1}),
        ("16 simulations in flight", {"batch_size": 16}),
        ("equal positions share nodes", {"transpositions": "position"}),
    ):
        show_games(figures, name, dataclasses.replace(whole, **options), cpp_bot, num_games, first_seed)


# -- speed -----------------------------------------------------------------------------------------


def show_speed(figures: Figures, num_simulations: int, rounds: int) -> None:
    """Time simulations of all searches in turn."""
    game = pyspiel.load_game(GAME)
    with ExitStack() as stack:
        searches: dict[str, Search] = {}
        for name, num_workers, batch_size in (
            ("planvec, one at a time", 0, 1),
            ("planvec, 4 in flight", 0, 4),
            ("planvec, 16 in flight", 0, 16),
            ("planvec, 64 in flight", 0, 64),
            ("planvec, 64 in flight, 2 workers", 2, 64),
        ):
            env = stack.enter_context(open_env(num_workers))
            searches[name] = _planvec_search(env, planner(num_simulations, batch_size=batch_size))
        searches["OpenSpiel in Python"] = _openspiel_search(game, python_bot, num_simulations)
        searches["OpenSpiel in C++"] = _openspiel_search(game, cpp_bot, num_simulations)
        times: dict[str, list[float]] = {name: [] for name in searches}
        for number in range(rounds + 1):
            for history in POSITIONS:
                for name, search in searches.items():
                    started = time.perf_counter()
                    search(history, FIRST_SEED + number)
                    if number:  # the first round compiles
                        times[name].append((time.perf_counter() - started) / num_simulations)
    for name, seconds in times.items():
        figures.text(f"{name}: {1 / statistics.median(seconds):,.0f} simulations/s")
        figures.figure(f"speed/{name}/per_s", 1 / statistics.median(seconds))


def _planvec_search(env: planvec.BatchEnv, search: planvec.MCTS) -> Search:
    states = {tuple(history): env.reset(seed=0, options={"history": history}).state for history in POSITIONS}

    def run(history: list[int], seed: int) -> None:
        search.plan(env, states[tuple(history)], seed=seed)

    return run


def _openspiel_search(game: Any, make_bot: Any, num_simulations: int) -> Search:
    def run(history: list[int], seed: int) -> None:
        make_bot(game, num_simulations, seed).step(_state_after(game, history))

    return run


def _state_after(game: Any, history: list[int]) -> Any:
    state = game.new_initial_state()
    for action in history:
        state.apply_action(action)
    return state


# -- states ----------------------------------------------------------------------------------------


def show_states(figures: Figures, rounds: int) -> None:
    """Time some ways to restore a state after 8 and after 30 moves."""
    game = pyspiel.load_game(GAME)
    random = np.random.default_rng(0)
    for num_moves in (8, 30):
        state = game.new_initial_state()
        while len(state.history()) < num_moves:
            state.apply_action(int(random.choice(state.legal_actions())))
            if state.is_terminal():
                state = game.new_initial_state()
        history, text = state.history(), state.serialize()
        key = np.array(history, np.uint8).tobytes()
        kept = {key: state}
        ways: dict[str, Callable[[], Any]] = {
            "deserialize": lambda text=text: game.deserialize_state(text),
            "replay": lambda history=history: _state_after(game, history),
            "clone": state.clone,
            "kept, by its history": lambda kept=kept, key=key: kept[key],
        }
        for name, way in ways.items():
            seconds = statistics.median(_time(way) for _ in range(rounds))
            figures.text(f"restore after {num_moves} moves, {name}: {seconds * 1e6:.2f} us")
            figures.figure(f"states/{num_moves}/{name}/us", seconds * 1e6)


def _time(call: Callable[[], Any], count: int = 2000) -> float:
    started = time.perf_counter()
    for _ in range(count):
        call()
    return (time.perf_counter() - started) / count


def main() -> None:
    """Run the benchmark."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--simulations", type=int, default=300, help="simulations per move")
    parser.add_argument("--games", type=int, default=200)
    parser.add_argument("--seed", type=int, default=FIRST_SEED, help="seed of the first game")
    parser.add_argument("--cpp", action="store_true", help="games against the C++ version")
    parser.add_argument("--rounds", type=int, default=10, help="rounds of the speeds")
    parser.add_argument(
        "--ideas", action="store_true", help="games without each idea, against the C++ version"
    )
    parser.add_argument(
        "--only", nargs="*", choices=["games", "speed", "states"], default=["games", "speed", "states"]
    )
    add_plain(parser)
    options = parser.parse_args()
    figures = Figures(options.plain)
    if options.ideas:
        show_ideas(figures, options.simulations, options.games, options.seed)
        return
    if "games" in options.only:
        language, make_bot = ("C++", cpp_bot) if options.cpp else ("Python", python_bot)
        name = f"against OpenSpiel in {language}, {options.simulations} simulations"
        show_games(figures, name, planner(options.simulations), make_bot, options.games, options.seed)
    if "speed" in options.only:
        show_speed(figures, 1000, options.rounds)
    if "states" in options.only:
        show_states(figures, options.rounds)


if __name__ == "__main__":
    main()
