"""A faster step of Atari environments, with the same results bit for bit.

`AtariEnv.step` calls the emulator once for every frame. The step here runs the frames in one call.
"""

from __future__ import annotations

from typing import Any

from ale_py.env import AtariEnv

from planvec.codecs.atari.emulator import Emulator
from planvec.codecs.base import Outcome, Step
from planvec.codecs.fast_steps import outcome_bits, replace_step

_NUM_STEPS = 8


def install_fast_step(env: Any) -> None:
    """Replace `env.step` by a faster one, if the environment is exactly ale-py's, with discrete actions."""
    is_plain = type(env) is AtariEnv and isinstance(env._frameskip, int) and not env.continuous
    replace_step(env, _make_step if is_plain else None, _gives_the_same)


def _make_step(env: Any) -> Step:
    emulator: Emulator = env.ale

    def step(action: Any) -> Outcome:
        reward = float(emulator.act_repeatedly(env._action_set[action], env._frameskip))
        is_over = emulator.game_over(with_truncation=False)
        return env._get_obs(), reward, is_over, emulator.game_truncated(), env._get_info()

    return step


def _gives_the_same(env: Any, step: Step) -> bool:
    """Return whether a step gives the results of the environment's own step, from one state."""
    emulator: Emulator = env.ale
    generator, seed = env._np_random, env._np_random_seed
    env.reset(seed=0)
    start, randomness = emulator.save(), env.np_random.bit_generator.state
    found = []
    for one in (env.step, step):
        emulator.restore(start)
        env.np_random.bit_generator.state = randomness
        found.append([outcome_bits(one(number % env.action_space.n)) for number in range(_NUM_STEPS)])
        found.append([env.np_random.bit_generator.state])
    env._np_random, env._np_random_seed = generator, seed
    env.load_game()  # the next reset is the first one since, as it would be without these steps
    return found[:2] == found[2:]
