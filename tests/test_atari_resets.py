"""Atari: a reset without a seed draws the memory of the console from a generator that no state contains."""

from __future__ import annotations

import functools
import os
import signal
from typing import Any

import ale_py
import gymnasium
import numpy as np
import pytest
from compare import assert_same
from marks import slow_after

from planvec.codecs.atari import GeneratorTexts, generator_text
from planvec.vector import EnvPool

gymnasium.register_envs(ale_py)
pytestmark = pytest.mark.usefixtures("quick_checks")

# The memory of the console shows in the first five games. The next three begin with frames of their own.
GAMES = (
    *("Assault", "Solaris", "Berzerk", "ChopperCommand", "DemonAttack"),
    *("Backgammon", "AirRaid", "FlagCapture"),
    *("MsPacman", "Qbert", "MiniatureGolf", "VideoCheckers", "TicTacToe3D"),
)


def make(game: str, frameskip: int = 4) -> Any:
    return gymnasium.make(f"ALE/{game}-v5", frameskip=frameskip, repeat_action_probability=0.0)


def pool_of(game: str, frameskip: int = 4, num_workers: int = 0) -> EnvPool:
    env_fn = functools.partial(make, game, frameskip)
    return EnvPool([env_fn], num_workers=num_workers, autoreset_mode="Disabled")


@pytest.mark.parametrize("frameskip", slow_after(1, [4, 1]))
@pytest.mark.parametrize("game", slow_after(1, GAMES))
def test_resets_without_a_seed_are_those_of_ale_py_and_their_states_are_exact(
    game: str, frameskip: int
) -> None:
    own = make(game, frameskip)
    with pool_of(game, frameskip) as pool, pool_of(game, frameskip) as other:
        rng = np.random.default_rng(0)
        other.reset(seed=1)
        assert_same(pool.reset(seed=3)[0][0], own.reset(seed=3)[0])
        for episode in range(6):
            for _ in range(int(rng.integers(1, 50))):
                action = int(rng.integers(own.action_space.n))
                expected = own.step(action)
                assert_same(pool.step([action]).observations[0], expected[0])
                if expected[2] or expected[3]:
                    break
            observation = own.reset(seed=7 if episode == 3 else None)[0]
            assert_same(pool.reset(seed=7 if episode == 3 else None)[0][0], observation)
            for _ in range(4):
                assert_same(other.set_states(pool.get_states())[0], observation)
                action = int(rng.integers(own.action_space.n))
                observation, reward, *_ = own.step(action)
                for out in (pool.step([action]), other.step([action])):
                    assert_same(out.observations[0], observation)
                    assert out.rewards[0] == reward
            pool, other = other, pool  # the next reset is one of the restored emulator
    own.close()


@pytest.mark.parametrize("game", slow_after(0, ["Assault", "MsPacman"]))
def test_a_worker_that_dies_takes_no_reset_along(game: str) -> None:
    own = make(game)
    with pool_of(game, num_workers=1) as pool:
        own.reset(seed=3)
        pool.reset(seed=3)
        rng = np.random.default_rng(0)
        for _ in range(4):
            for number in range(12):
                action = int(rng.integers(own.action_space.n))
                assert_same(pool.step([action]).observations[0], own.step(action)[0])
                if number in (3, 8):
                    assert pool._engine._processes is not None
                    os.kill(pool._engine._processes.workers[0].pid, signal.SIGKILL)
            assert_same(pool.reset()[0][0], own.reset()[0])
            states = pool.get_states()
            pool.step([0])
            assert_same(pool.set_states(states)[0], own.unwrapped._get_obs())
    own.close()


def test_the_text_of_the_generator_after_many_resets_is_computed_as_drawn() -> None:
    emulator = ale_py.ALEInterface()
    emulator.setFloat("repeat_action_probability", 0.0)
    emulator.loadROM(ale_py.roms.get_rom_path("assault"))
    emulator.reset_game()
    drawn = [generator_text(emulator)]
    for _ in range(7):
        emulator.reset_game()
        drawn.append(generator_text(emulator))
    asked: list[bytes] = []

    def after_reset(text: bytes) -> bytes:
        asked.append(text)
        return drawn[drawn.index(text) + 1]

    texts = GeneratorTexts(after_reset)
    texts.begin(drawn[0])
    assert [texts.after(number) for number in (8, 2, 5, 1)] == [drawn[number - 1] for number in (8, 2, 5, 1)]
    assert asked == drawn[:1], "only the first reset has to be tried"
