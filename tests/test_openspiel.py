"""Games of OpenSpiel as environments: OpenSpiel's own steps, chance, rollouts, and games that are refused."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces, wrappers
from gymnasium.utils.env_checker import check_env

import planvec
import planvec.openspiel
from planvec.codecs import openspiel as openspiel_codec
from planvec.openspiel import Game
from planvec.rows import ActionStreams

GAMES = ["connect_four", "dots_and_boxes", "pig(winscore=20)", "backgammon", "2048", "othello"]


@pytest.mark.parametrize("name", GAMES)
def test_a_game_is_stepped_as_openspiel_steps_it(name: str) -> None:
    env, random = Game(name), np.random.default_rng(1)
    env.reset(seed=5)
    for _ in range(60):
        before = env.state
        action = int(random.choice(before.legal_actions()))
        observation, reward, terminated, truncated, info = env.step(action)
        history = before.history()
        drawn = env.state.history()[len(history) + 1 :]
        expected = before.clone()
        for one in (action, *drawn):
            expected.apply_action(one)
        player = max(expected.current_player(), 0)
        assert str(env.state) == str(expected)
        assert observation.ravel().tolist() == np.float32(expected.observation_tensor(player)).tolist()
        assert reward == pytest.approx(expected.returns()[0] - before.returns()[0])
        assert (terminated, truncated) == (expected.is_terminal(), False)
        assert np.flatnonzero(info["action_mask"]).tolist() == expected.legal_actions()
        assert info["returns"].tolist() == expected.returns()
        assert info["current_player"] == (-1 if terminated else expected.current_player())
        if terminated:
            break


@pytest.mark.filterwarnings("ignore:.*Box observation space")
@pytest.mark.parametrize("name", ["tic_tac_toe", "pig", "2048"])
def test_a_game_is_an_environment_of_gymnasium(name: str) -> None:
    check_env(gymnasium.make(f"OpenSpiel/{name}", disable_env_checker=True).unwrapped, skip_render_check=True)


@pytest.mark.parametrize("name", ["connect_four", "pig"])
def test_a_game_is_exact(name: str) -> None:
    report = planvec.check_env(f"OpenSpiel/{name}", num_steps=40)
    assert report.exact, str(report)


def test_an_illegal_action_stands_for_a_legal_one() -> None:
    env = Game("tic_tac_toe")
    env.reset(seed=0, options={"history": [0, 1]})
    env.step(1)  # 7 are legal: 2 to 8
    assert env.state.history() == [0, 1, 3]


def test_a_game_goes_on_from_a_history() -> None:
    env = Game("pig(winscore=20)")
    _, info = env.reset(seed=0, options={"history": [0, 3]})
    assert env.state.history()[:2] == [0, 3]
    assert info["current_player"] == 0
    for history, message in (([7], "expected a legal action"), ([1, 1, 9], "at index 2")):
        with pytest.raises(ValueError, match=message):
            env.reset(options={"history": history})
    with pytest.raises(ValueError, match="one that ends it"):
        Game("tic_tac_toe").reset(options={"history": [0, 3, 1, 4, 2]})


def test_a_game_that_is_over_has_to_be_reset() -> None:
    env = Game("tic_tac_toe")
    for _ in range(2):
        env.reset(seed=0, options={"history": [0, 3, 1, 4]})
        assert env.step(2)[1:4] == (1.0, True, False)
        with pytest.raises(gymnasium.error.ResetNeeded):
            env.step(5)


def test_the_text_of_a_game_is_shown() -> None:
    env = planvec.make("OpenSpiel/tic_tac_toe", num_workers=0, render_mode="ansi")
    with env:
        start = env.reset(seed=0, options={"history": [4]})
        assert env.render(np.array([start.state])) == ["...\n.x.\n..."]


# -- chance ----------------------------------------------------------------------------------------


def test_seeds_decide_about_chance() -> None:
    with planvec.make("OpenSpiel/pig", num_workers=0) as env:
        state = env.reset(seed=0).state
        seeds = np.arange(600)
        out = env.step_batch(np.zeros(600, int), np.repeat(state, 600), seeds=seeds)
        again = env.step_batch(np.zeros(600, int), np.repeat(state, 600), seeds=seeds)
        assert (out.new_states == again.new_states).all()
        faces = np.bincount(out.new_states["history"][:, 1], minlength=6)
        assert (faces > 60).all()
        assert env.is_stochastic
    with planvec.make("OpenSpiel/connect_four", num_workers=0) as env:
        assert not env.is_stochastic


# -- rollouts --------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["connect_four", "pig", "2048", "mancala"])
def test_rollouts_take_the_legal_actions_that_their_numbers_stand_for(name: str) -> None:
    horizon, discount = 25, 0.9
    with planvec.make(f"OpenSpiel/{name}", num_workers=0) as env:
        states = np.repeat(env.reset(seed=3).state, 5)
        seeds = np.arange(5) if env.is_stochastic else None
        out = env.rollout_batch(states, horizon, action_seed=9, seeds=seeds, discount=discount)
        numbers = ActionStreams(spaces.Discrete(1 << 32), 9, 0, 5, True)
        game = Game(name)
        for row in range(5):
            game.reset(seed=3)
            if seeds is not None:
                game.np_random = np.random.default_rng(0)
                game.np_random.bit_generator.state = seeded(int(seeds[row]))
            total, weight, count = 0.0, 1.0, 0
            for _, number in zip(range(horizon), numbers.row(row), strict=False):
                legal = game.state.legal_actions()
                _, reward, terminated, _, _ = game.step(legal[number * len(legal) >> 32])
                total, weight, count = total + weight * reward, weight * discount, count + 1
                if terminated:
                    break
            assert out.returns[row] == total
            assert out.num_steps[row] == count
            assert out.terminated[row] == game.state.is_terminal()
            history = out.final_states["history"][row][: out.final_states["num_moves"][row]]
            assert history.tolist() == game.state.history()


def seeded(seed: int) -> Any:
    """The state of the generator that Gymnasium makes of a seed."""
    return gymnasium.utils.seeding.np_random(seed)[0].bit_generator.state


def test_every_legal_action_is_equally_likely_in_a_rollout() -> None:
    with planvec.make("OpenSpiel/tic_tac_toe", num_workers=0) as env:
        state = env.reset(seed=0, options={"history": [0, 4, 8, 2]}).state
        out = env.rollout_batch(np.repeat(state, 5000), 1, action_seed=1)
        counts = np.bincount(out.final_states["history"][:, 4], minlength=9)
    assert (counts[[0, 2, 4, 8]] == 0).all()
    assert (np.abs(counts[[1, 3, 5, 6, 7]] - 1000) < 120).all()


def test_a_time_limit_ends_a_rollout() -> None:
    def make() -> Any:
        return wrappers.TimeLimit(Game("connect_four"), 5)

    with planvec.make(make, num_workers=0) as env:
        out = env.rollout_batch(np.repeat(env.reset(seed=0).state, 3), 30, action_seed=0)
    assert out.num_steps.tolist() == [5, 5, 5]
    assert out.truncated.all()
    assert not out.terminated.any()


def test_rollouts_under_other_wrappers_make_their_steps() -> None:
    def make() -> Any:
        return wrappers.TransformReward(Game("tic_tac_toe"), lambda reward: 10 * reward)

    with planvec.make(make, num_workers=0) as env:
        out = env.rollout_batch(np.repeat(env.reset(seed=0).state, 30), 9, action_seed=0)
    assert set(out.returns.tolist()) <= {-10.0, 0.0, 10.0}
    assert out.terminated.all()


# -- states ----------------------------------------------------------------------------------------


def test_states_are_restored_when_they_are_not_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    batches = []
    for kept in (4096, 1):
        monkeypatch.setattr(openspiel_codec, "_MAX_KEPT", kept)
        with planvec.make("OpenSpiel/backgammon", num_workers=0) as env:
            states = np.repeat(env.reset(seed=0).state, 8)
            for step in range(6):
                states = env.step_batch(np.arange(8) + step, states, seeds=np.arange(8)).new_states
            batches.append(states)
    assert (batches[0] == batches[1]).all()


def test_states_may_lie_apart_in_memory() -> None:
    with planvec.make("OpenSpiel/connect_four", num_workers=0) as env:
        states = env.step_batch(np.arange(6), np.repeat(env.reset(seed=0).state, 6)).new_states
        apart = env.step_batch([1, 1, 1], states[::2]).new_states
        assert (apart == env.step_batch([1] * 6, states).new_states[::2]).all()
        records = np.zeros(6, env.state_dtype)
        game = Game("connect_four")
        saver = openspiel_codec.GameCodec(game)
        game.reset(seed=0, options={"history": [1, 2]})
        saver.pack([saver.get(game)] * 3, records[::2])
    assert records["num_moves"].tolist() == [2, 0] * 3
    assert saver.unpack(records[::2]) == [saver.get(game)] * 3


def test_equal_positions_have_equal_digests() -> None:
    with planvec.make("OpenSpiel/connect_four", num_workers=0) as env:
        digests = [
            env.reset(seed=0, options={"history": moves}).state["position"].tobytes()
            for moves in ([0, 1, 2], [2, 1, 0], [0, 2, 1])
        ]
    assert digests[0] == digests[1] != digests[2]


def test_a_swap_that_the_game_does_not_count_fits() -> None:
    options = {"board_size": 3, "swap": True}
    game = Game("hex", **options).game
    with planvec.make("OpenSpiel/hex", num_workers=0, env_kwargs=options, info_keys=()) as env:
        longest = 0
        for seed in range(60):
            generator, state = np.random.default_rng(seed), game.new_initial_state()
            record = env.reset(seed=0).state
            while not state.is_terminal():
                action = int(generator.choice(state.legal_actions()))
                if len(state.history()) == 1:
                    action = 9  # the swap
                state.apply_action(action)
                record = env.step_batch([action], np.array([record])).new_states[0]
            assert record["history"][: record["num_moves"]].tolist() == state.history()
            longest = max(longest, len(state.history()))
    assert longest == game.max_history_length() + 1


# -- names, and games that are refused -------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("no_such_game", "no_such_game: "),
        ("goofspiel", "players move at once"),
        ("leduc_poker", "hidden information"),
        ("coin_game", "hidden information|other interests|at once"),
        ("chinese_checkers(players=3)", "got one for 3"),
        ("morpion_solitaire", "without"),
        ("nfg_game", "nfg_game: "),
        ("add_noise(epsilon=1.,seed=1,game=tic_tac_toe())", "noise that is drawn when an end is seen"),
        ("misere(game=add_noise(epsilon=1.,seed=1,game=tic_tac_toe()))", "noise that is drawn when an end"),
        (
            "restricted_nash_response(game=tic_tac_toe(),fixed_player=0,p=0.9)",
            "got one that declares none and begins with chance",
        ),
    ],
)
def test_a_game_that_cannot_be_played_is_refused(name: str, message: str) -> None:
    with pytest.raises(planvec.UnsupportedEnvError, match=message):
        Game(name)


@pytest.mark.parametrize(
    ("game", "message"),
    [("kuhn_poker", "hidden information"), ("goofspiel", "players move at once")],
)
def test_the_id_of_a_game_that_cannot_be_played_says_why(game: str, message: str) -> None:
    with pytest.raises(planvec.PlanvecError, match=message):
        planvec.make(f"OpenSpiel/{game}", num_workers=0)


def test_wrong_parameters_of_a_game_are_refused() -> None:
    with pytest.raises(planvec.UnsupportedEnvError, match="go: unsupported board size"):
        Game("go", board_size=-1)
    with pytest.raises(ValueError, match="render_mode: expected None or 'ansi', got 'human'"):
        Game("tic_tac_toe", render_mode="human")


def test_parameters_are_those_of_the_game() -> None:
    with planvec.make("OpenSpiel/go", env_kwargs={"board_size": 5}, num_workers=0) as env:
        assert env.action_space.n == 26
    assert Game("go(board_size=5)").action_space == Game("go", board_size=5).action_space


def test_a_missing_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    code = (
        "import sys; sys.modules['pyspiel'] = None; import planvec\n"
        "try: planvec.make('OpenSpiel/go', num_workers=0)\n"
        "except planvec.UnsupportedEnvError as error: print(error)\n"
        "try: import planvec.openspiel\n"
        "except ImportError as error: print(error)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    lines = done.stdout.splitlines()
    assert len(lines) == 2
    assert all('pip install "open_spiel' in line for line in lines)


def test_planvec_does_not_import_openspiel() -> None:
    code = "import sys, planvec; planvec.make; planvec.MCTS; print('pyspiel' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "False\n"
