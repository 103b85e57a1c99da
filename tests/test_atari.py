"""Atari: what ale-py leaves out of a saved state, and everything that can be asked of an environment."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import ale_py
import gymnasium
import numpy as np
import pytest
from compare import assert_same, same_states
from gymnasium import wrappers
from numpy.typing import NDArray

import planvec
from planvec import PlanEnv
from planvec.codecs.atari import AtariCodec
from planvec.codecs.generic.replay import ReplayCodec

gymnasium.register_envs(ale_py)
pytestmark = pytest.mark.usefixtures("quick_checks")

GAMES = (
    *("AirRaid", "Amidar", "Breakout", "MiniatureGolf", "MontezumaRevenge", "MsPacman", "Pitfall2"),
    *("Pong", "Qbert", "Tetris", "TicTacToe3D", "VideoCheckers", "YarsRevenge"),
)
PLAIN: dict[str, Any] = {"repeat_action_probability": 0.0}
VARIANTS: dict[str, tuple[str, dict[str, Any]]] = {
    "ram": ("MsPacman", {"obs_type": "ram"}),
    "grayscale, frame by frame": ("YarsRevenge", {**PLAIN, "obs_type": "grayscale", "frameskip": 1}),
    "colour, frame by frame": ("Amidar", {**PLAIN, "frameskip": 1}),
    "frameskip by chance": ("Breakout", {"frameskip": (2, 5)}),
    "mode and difficulty": ("Breakout", {**PLAIN, "mode": 4, "difficulty": 1, "obs_type": "ram"}),
    "continuous actions": ("Breakout", {"continuous": True, "obs_type": "ram"}),
    "a limit of frames": ("Pong", {**PLAIN, "max_num_frames_per_episode": 200, "obs_type": "ram"}),
    "all actions": ("Freeway", {**PLAIN, "full_action_space": True, "obs_type": "ram"}),
}


def check(env: Any, **kwargs: Any) -> planvec.CheckReport:
    few = {"num_steps": 40, "num_restores": 3, "num_children": 4, "replay_seconds": 0.1}
    return planvec.check_env(env, **{**few, **kwargs})


QUICK_GAMES = ("Breakout",)


@pytest.mark.parametrize(
    "game", [pytest.param(game, marks=[pytest.mark.slow] * (game not in QUICK_GAMES)) for game in GAMES]
)
def test_a_game_is_exact(game: str) -> None:
    report = check(f"ALE/{game}-v5")
    assert report.exact, report
    assert "sticky actions" in report.note


QUICK_VARIANTS = ("ram",)


@pytest.mark.parametrize(
    "name",
    [pytest.param(name, marks=[pytest.mark.slow] * (name not in QUICK_VARIANTS)) for name in VARIANTS],
)
def test_every_way_to_make_a_game_is_exact(name: str) -> None:
    game, kwargs = VARIANTS[name]
    report = check(f"ALE/{game}-v5", num_steps=24, env_kwargs=kwargs)
    assert report.exact, report


@pytest.mark.slow
@pytest.mark.parametrize("skip", [4, 2])
def test_the_usual_preprocessing_is_exact(skip: int) -> None:
    def make() -> Any:
        env = gymnasium.make("ALE/Breakout-v5", frameskip=1, **PLAIN)
        env = wrappers.AtariPreprocessing(env, frame_skip=skip, terminal_on_life_loss=True)
        return wrappers.FrameStackObservation(env, 4)

    report = check(make, num_steps=24)
    assert report.exact, report


def test_sound_is_replayed() -> None:
    with PlanEnv("ALE/Pong-v5", env_kwargs={"sound_obs": True}, trust=True) as env:
        assert isinstance(env.codec, ReplayCodec)


class Lives(gymnasium.Wrapper):
    """Keeps the emulator, as many wrappers do, and loses reward with every life."""

    def __init__(self, env: Any) -> None:
        super().__init__(env)
        self.ale: Any = env.unwrapped.ale
        self.lives = 0

    def reset(self, **kwargs: Any) -> Any:
        result = super().reset(**kwargs)
        self.lives = self.ale.lives()
        return result

    def step(self, action: Any) -> Any:
        observation, reward, *rest = super().step(action)
        lost, self.lives = self.lives - self.ale.lives(), self.ale.lives()
        return observation, float(reward) - lost + self.ale.getRAM()[70], *rest


@pytest.mark.slow
@pytest.mark.parametrize("frameskip", [4, 15])
@pytest.mark.parametrize("game", ["Breakout", "Pong"])
def test_a_wrapper_may_hold_the_emulator(game: str, frameskip: int) -> None:
    options = {"obs_type": "ram", "frameskip": frameskip, "repeat_action_probability": 0.0}
    report = check(lambda: Lives(gymnasium.make(f"ALE/{game}-v5", **options)))
    assert report.exact, report  # which says that `make` accepts it, too


# -- stickiness -------------------------------------------------------------------------------------


def sticky_twin(env: Any, action: int, held: Any, probability: float) -> tuple[Any, float]:
    """One step of four frames, each of which repeats the last action by chance: a naive twin."""
    reward = 0.0
    for _ in range(4):
        if env.np_random.random() >= probability:
            held = env._action_set[action]
        reward += env.ale.act(held)
    return held, reward


def test_actions_stick_frame_by_frame_as_in_the_emulator() -> None:
    with PlanEnv("ALE/MsPacman-v5", env_kwargs={"obs_type": "ram"}) as env:
        twin: Any = gymnasium.make("ALE/MsPacman-v5", obs_type="ram", **PLAIN).unwrapped
        env.reset(seed=3)
        twin.reset(seed=3)
        held = ale_py.Action.NOOP
        for action in np.random.default_rng(0).integers(9, size=150).tolist():
            observation, reward, *_ = env.step(action)
            held, expected = sticky_twin(twin, action, held, 0.25)
            assert_same(observation, twin.ale.getRAM())
            assert reward == expected
        twin.close()


def test_seeds_resample_stickiness_and_without_them_it_is_in_the_state() -> None:
    with PlanEnv("ALE/Breakout-v5", env_kwargs={"obs_type": "ram"}) as env:
        env.reset(seed=0)
        for action in (1, 2, 3) * 4:
            env.step(action)
        states, actions = np.repeat(env.get_state(), 32), np.full(32, 2)
        foreseen = env.step_batch(actions, states)
        assert len(np.unique(foreseen.observations, axis=0)) == 1
        sampled = env.step_batch(actions, states, seeds=np.arange(32))
        assert len(np.unique(sampled.observations, axis=0)) > 2
        again = env.step_batch(actions, states, seeds=np.arange(32))
        assert_same(again.observations, sampled.observations)


def test_an_environment_opened_again_is_as_sticky_as_before() -> None:
    game = gymnasium.make("ALE/Breakout-v5", obs_type="ram")
    for _ in range(2):
        env = PlanEnv(game)
        assert "generator" in (env.state_dtype.names or ())
        assert "sticky" in env.codec.note
    game.close()


# -- pictures ---------------------------------------------------------------------------------------


def test_a_picture_is_that_of_the_state_whatever_the_emulator_drew_last() -> None:
    alone = gymnasium.make("ALE/Breakout-v5", render_mode="rgb_array", **PLAIN)
    with PlanEnv("ALE/Breakout-v5", render_mode="rgb_array", env_kwargs={"obs_type": "ram", **PLAIN}) as env:
        alone.reset(seed=0)
        states, pictures = [env.reset(seed=0).state], [alone.render()]
        for action in (1, 2, 2, 0, 3, 3, 3, 1, 2, 0):
            env.step(action)
            alone.step(action)
            states.append(env.get_state())
            pictures.append(alone.render())
        order = [7, 0, 3, 10, 1]
        for row, picture in zip(order, env.render(np.array(states)[order]), strict=True):
            assert_same(picture, pictures[row])
    alone.close()


# -- what the emulator does not save -------------------------------------------------------------------


def walk(env: PlanEnv, num_steps: int, seed: int = 0) -> Iterator[tuple[Any, int, Any]]:
    """States, actions and outcomes of a random walk."""
    rng = np.random.default_rng(seed)
    state, action = env.reset(seed=seed).state, 0
    for number in range(num_steps):
        if rng.random() < 0.3:
            action = int(rng.integers(env.action_space.n))  # type: ignore[attr-defined]
        out = env.step_batch([action], state)
        yield state, action, out
        ended = out.terminated[0] or out.truncated[0]
        state = env.reset(seed=number).state if ended else out.new_states[0]


@pytest.mark.slow
def test_a_state_within_a_frame_comes_back_thousands_of_times() -> None:
    with PlanEnv("ALE/Qbert-v5", env_kwargs={"obs_type": "ram", "frameskip": 1, **PLAIN}) as env:
        steps = [(state, action, out) for state, action, out in walk(env, 1500)]
        broken = [step for step in steps if step[0]["within_frame"]]
        assert broken
        for state, action, expected in broken[:3]:
            out = env.step_batch(np.full(1000, action), np.repeat(state, 1000))
            assert (out.observations == expected.observations).all()
            assert same_states(out.new_states, np.repeat(expected.new_states, 1000))


def test_the_last_picture_of_a_game_that_ends_in_the_first_frames_of_a_step() -> None:
    kwargs = {"frameskip": 15, **PLAIN}
    actions = np.random.default_rng(3).integers(6, size=105).tolist()
    alone = gymnasium.make("ALE/Qbert-v5", **kwargs)
    alone.reset(seed=3)
    expected = [alone.step(action) for action in actions]
    alone.close()
    with PlanEnv("ALE/Qbert-v5", env_kwargs=kwargs) as env:
        start = state = env.reset(seed=3).state
        for action in actions[:-1]:
            state = env.step_batch([action], state).new_states[0]
        for drawn_before in range(3):
            env.step_batch([drawn_before], start)
            last = env.step_batch(actions[-1:], state)
            assert bool(last.terminated[0]) == expected[-1][2]
            assert (last.observations[0] == expected[-1][0]).all()
            env.step_batch([drawn_before], start)
            assert (env.observe(last.new_states)[0] == expected[-1][0]).all()


@pytest.mark.slow
def test_objects_are_where_they_were_whatever_was_drawn_before() -> None:
    with PlanEnv("ALE/YarsRevenge-v5") as env:
        states, actions, outs = zip(*walk(env, 700), strict=True)
        order = np.random.default_rng(1).permutation(700)
        for rows in (order, order[::-1]):
            again = env.step_batch(np.array(actions)[rows], np.array(states)[rows], return_state=True)
            expected = np.array([outs[row].new_states[0] for row in rows])
            assert same_states(again.new_states, expected)


@pytest.mark.slow
def test_miniature_golf_counts_strokes_after_a_restore() -> None:
    kwargs = {"obs_type": "ram", "frameskip": 1, **PLAIN}
    alone = gymnasium.make("ALE/MiniatureGolf-v5", **kwargs)
    alone.reset(seed=0)
    rng, actions, rewards, action = np.random.default_rng(0), [], [], 0
    for _ in range(5790):
        if rng.random() < 0.05:
            action = int(rng.integers(18))
        actions.append(action)
        rewards.append(alone.step(action)[1])
    alone.close()
    (hole,) = np.flatnonzero(rewards)
    assert rewards[hole] == -28
    with (
        PlanEnv("ALE/MiniatureGolf-v5", env_kwargs=kwargs) as env,
        PlanEnv("ALE/MiniatureGolf-v5", env_kwargs=kwargs) as other,
    ):
        start = env.reset(seed=0).state
        before = env.rollout_batch(start, actions=np.array([actions[: hole - 1]])).final_states
        other.reset(seed=0)
        after = other.step_batch([actions[hole - 1]], before).new_states
        assert env.step_batch([actions[hole]], after).rewards[0] == -28


# -- the states themselves ----------------------------------------------------------------------------


def test_states_are_compact_records() -> None:
    with PlanEnv("ALE/MsPacman-v5") as env:
        assert isinstance(env.codec._codec, AtariCodec)  # type: ignore[attr-defined]
        assert env.state_dtype.itemsize < 2200
        assert {"emulator", "checkpoint", "frames", "generator"} <= set(env.state_dtype.names or ())


def test_a_long_rollout_leaves_a_state_of_the_same_size_and_worth() -> None:
    with PlanEnv("ALE/Pong-v5", env_kwargs=PLAIN) as env, PlanEnv("ALE/Pong-v5", env_kwargs=PLAIN) as other:
        start = env.reset(seed=0).state
        actions: NDArray[Any] = np.random.default_rng(0).integers(6, size=(1, 60))
        final = env.rollout_batch(start, actions=actions).final_states
        state = start
        for action in actions[0]:
            out = other.step_batch([action], state)
            state = out.new_states[0]
        assert_same(env.observe(final), out.observations)
        one, two = env.step_batch([2], final), other.step_batch([2], state)
        assert_same(one.observations, two.observations)


def test_a_state_of_another_game_is_refused() -> None:
    with (
        PlanEnv("ALE/MsPacman-v5", env_kwargs=PLAIN) as pacman,
        PlanEnv("ALE/Hero-v5", env_kwargs=PLAIN) as hero,
    ):
        state = pacman.reset(seed=0).state
        if pacman.state_dtype == hero.state_dtype:
            with pytest.raises(planvec.EnvError, match="expected states of hero, got one of another game"):
                hero.step_batch([0], state)
        else:
            with pytest.raises(planvec.InvalidBatchError):
                hero.step_batch([0], state)
