"""Box2D: worlds are saved by their memory, and come back to the bit."""

from __future__ import annotations

import os
import pickle
from collections.abc import Iterator
from typing import Any, NamedTuple

import gymnasium
import numpy as np
import pytest
from compare import assert_same, same_states
from gymnasium import wrappers
from gymnasium.envs.box2d.lunar_lander import LunarLander, heuristic

import planvec
from planvec import PlanEnv
from planvec.backends.processes import system
from planvec.codecs.box2d import world as box2d_world
from planvec.codecs.box2d import world as heap
from planvec.codecs.box2d.world import WorldMemory
from planvec.codecs.generic.replay import ReplayCodec
from planvec.codecs.stack import StackCodec
from planvec.errors import UnsupportedEnvError

VARIANTS: dict[str, tuple[str, dict[str, Any], int]] = {
    "lander": ("LunarLander-v3", {}, 120),
    "continuous lander in the wind": ("LunarLander-v3", {"continuous": True, "enable_wind": True}, 120),
    "lander with flames": ("LunarLander-v3", {"render_mode": "rgb_array"}, 120),
    "walker": ("BipedalWalker-v3", {}, 120),
    "hardcore walker": ("BipedalWalker-v3", {"hardcore": True, "render_mode": "rgb_array"}, 120),
    "car": ("CarRacing-v3", {"render_mode": "rgb_array"}, 24),
}


PICTURED = [name for name, (_, kwargs, _) in VARIANTS.items() if kwargs.get("render_mode")]


class Walk(NamedTuple):
    """Two instances of an environment, and an episode stepped by Gymnasium alone and by the first of them.

    `states[i]` was reached with `observations[i]`; `outcomes[i]` is what `actions[i]` led to from there.
    """

    one: PlanEnv
    other: PlanEnv
    states: Any
    actions: Any
    outcomes: list[Any]
    observations: list[Any]
    alone: gymnasium.Env[Any, Any]


@pytest.fixture(scope="module", params=VARIANTS, ids=lambda name: name.replace(" ", "_"))
def walk(request: pytest.FixtureRequest) -> Iterator[Walk]:
    env_id, kwargs, num_steps = VARIANTS[request.param]
    alone = gymnasium.make(env_id, **kwargs)
    one, other = PlanEnv(env_id, env_kwargs=kwargs), PlanEnv(env_id, env_kwargs=kwargs)
    actions, outcomes, observations = [], [], [alone.reset(seed=6)[0]]
    space = alone.action_space
    space.seed(1)
    states = [one.reset(seed=6).state]
    for index in range(num_steps):
        action = space.sample() if index % 20 < 14 else _steady(space)
        outcomes.append(alone.step(action)[:4])
        observations.append(outcomes[-1][0])
        actions.append(action)
        one.step(action)
        states.append(one.get_state())
        if outcomes[-1][2]:
            break
    rows = np.empty(len(states), object)
    rows[:] = states
    yield Walk(one, other, rows, np.array(actions), outcomes, observations, alone)
    one.close()
    other.close()
    alone.close()


def _steady(space: Any) -> Any:
    return 2 if isinstance(space, gymnasium.spaces.Discrete) else np.full(space.shape, 0.6, space.dtype)


def assert_goes_on(env: Any, walk: Walk, order: Any) -> None:
    """Step these rows of the walk and compare all that comes out."""
    out = env.step_batch(walk.actions[order], walk.states[order])
    for row, index in enumerate(order):
        expected = walk.outcomes[index]
        assert_same(out.observations[row], expected[0], f"observation {index}")
        assert_same(float(out.rewards[row]), float(expected[1]), f"reward {index}")
        assert bool(out.terminated[row]) == bool(expected[2])
    assert same_states(out.new_states, walk.states[np.asarray(order) + 1])


def shuffled(walk: Walk, seed: int) -> Any:
    return np.random.default_rng(seed).permutation(len(walk.actions))


# -- exactness -----------------------------------------------------------------------------------------


def test_the_layout_is_known_here() -> None:
    assert box2d_world.unknown_layout() is None


def test_states_come_back_in_any_order(walk: Walk) -> None:
    assert_goes_on(walk.one, walk, shuffled(walk, 0))


def test_states_come_back_where_another_episode_is_under_way(walk: Walk) -> None:
    walk.other.reset(seed=11)
    walk.other.step(walk.actions[0])
    assert_goes_on(walk.other, walk, shuffled(walk, 1))


def test_a_state_is_observed_as_it_was_reached(walk: Walk) -> None:
    order = shuffled(walk, 2)[:30]
    assert_same(walk.other.observe(walk.states[order]), np.array([walk.observations[i] for i in order]))


def test_long_ways_lead_to_the_end_of_the_walk(walk: Walk) -> None:
    for first in (0, len(walk.actions) // 2):
        walk.other.set_state(walk.states[first])
        for index in range(first, len(walk.actions)):
            outcome = walk.other.step(walk.actions[index])
            assert_same(outcome[:3], walk.outcomes[index][:3], f"{first} to {index}")
        assert walk.other.get_state() == walk.states[-1]


def test_siblings_do_not_disturb_each_other(walk: Walk) -> None:
    middle = len(walk.actions) // 2
    space = walk.one.action_space
    space.seed(5)
    actions = np.array([space.sample() for _ in range(7)] + [walk.actions[middle]])
    parents = np.repeat(walk.states[middle : middle + 1], 8)
    together = walk.one.step_batch(actions, parents)
    for row in reversed(range(8)):
        walk.other.reset(seed=row)
        single = walk.other.step_batch(actions[row : row + 1], parents[:1])
        assert_same(single.observations[0], together.observations[row])
        assert same_states(single.new_states, together.new_states[row : row + 1])
    assert together.new_states[7] == walk.states[middle + 1]


@pytest.mark.parametrize("walk", PICTURED, indirect=True)
def test_the_picture_of_a_state_is_the_environments_own(walk: Walk) -> None:
    walk.other.reset(seed=3)
    walk.other.render(walk.states[5:8])
    (picture,) = walk.other.render(walk.states[-1:])
    assert_same(picture, walk.alone.render())


@pytest.mark.slow
def test_states_come_back_in_another_process() -> None:
    for env_id, kwargs, _ in (VARIANTS["lander"], VARIANTS["hardcore walker"]):
        with (
            PlanEnv(env_id, env_kwargs=kwargs) as here,
            planvec.make(env_id, num_workers=2, env_kwargs=kwargs) as there,
        ):
            states = np.repeat(np.array([here.reset(seed=4).state], object), 12)
            space = here.action_space
            space.seed(0)
            for _ in range(60):
                actions = np.array([space.sample() for _ in states])
                mine, theirs = here.step_batch(actions, states), there.step_batch(actions, states)
                assert_same(theirs[1:4], mine[1:4])
                assert same_states(theirs.new_states, mine.new_states)
                states = mine.new_states


# -- what happens to worlds ----------------------------------------------------------------------------


def test_a_landing_comes_back_from_its_last_hundred_steps() -> None:
    alone = gymnasium.make("LunarLander-v3")
    with PlanEnv("LunarLander-v3") as env:
        observation, _ = alone.reset(seed=3)
        states, actions, outcomes, ended = [env.reset(seed=3).state], [], [], False
        while not ended:
            action = heuristic(alone.unwrapped, observation)
            outcome = alone.step(action)
            observation, ended = outcome[0], outcome[2] or outcome[3]
            env.step(action)
            states.append(env.get_state())
            actions.append(action)
            outcomes.append(outcome)
        assert outcomes[-1][1] == 100, "it was to land"
        assert observation[6] == observation[7] == 1
        for first in np.random.default_rng(0).permutation(range(len(actions) - 100, len(actions), 9)):
            env.set_state(states[first])
            for index in range(first, len(actions)):
                assert_same(env.step(actions[index])[:3], outcomes[index][:3])


def test_a_world_that_has_grown_comes_back_in_one_that_has_not() -> None:
    kwargs = {"render_mode": "rgb_array"}
    with (
        PlanEnv("LunarLander-v3", env_kwargs=kwargs) as one,
        PlanEnv("LunarLander-v3", env_kwargs=kwargs) as other,
    ):
        start = one.reset(seed=2).state
        alone = gymnasium.make("LunarLander-v3", **kwargs)
        alone.reset(seed=2)
        states, outcomes = [start], []
        for _ in range(130):  # 130 flames: several new chunks, the tree twice as large, and twice again
            outcomes.append(alone.step(2))
            one.step(2)
            states.append(one.get_state())
        for index in (129, 3, 100, 0, 64, 128):
            other.set_state(states[index])
            for later in range(index, min(index + 20, 130)):
                assert_same(other.step(2)[:3], outcomes[later][:3])
                assert other.get_state() == states[later + 1]
        from_start = other.step_batch(np.array([2]), start, dt=100)
        assert_same(from_start.observations[0], outcomes[99][0])


@pytest.mark.slow
def test_resets_do_not_use_up_memory() -> None:
    with PlanEnv("LunarLander-v3") as env:
        sizes = []
        for round_ in range(3):
            for seed in range(60):
                env.reset(seed=100 * round_ + seed)
                for _ in range(3):
                    env.step(2)
            sizes.append(system.bytes_used(os.getpid()))
        assert sizes[2] - sizes[1] < 2**21


@pytest.mark.slow
def test_restoring_does_not_use_up_memory() -> None:
    with PlanEnv("LunarLander-v3", render_mode="rgb_array") as env:
        start = env.reset(seed=0).state
        states = np.repeat(np.array([start], object), 4)
        sizes = []
        for _ in range(3):
            for _ in range(5):
                env.step_batch(np.full(4, 2), states, dt=100, return_state=False)
            sizes.append(system.bytes_used(os.getpid()))
        assert sizes[2] - sizes[1] < 2**21


def test_states_survive_a_reset_behind_our_back() -> None:
    with PlanEnv("BipedalWalker-v3") as env:
        start = env.reset(seed=1).state
        before = env.step_batch(np.zeros((1, 4), np.float32), start)
        env.env.reset(seed=2)
        after = env.step_batch(np.zeros((1, 4), np.float32), start)
        assert_same(after[1:4], before[1:4])
        assert same_states(after.new_states, before.new_states)


def test_more_episodes_than_are_kept_can_be_mixed() -> None:
    with PlanEnv("LunarLander-v3") as env:
        states = np.empty(40, object)
        states[:] = [env.reset(seed=seed).state for seed in range(40)]
        first = env.step_batch(np.full(40, 2), states)
        again = env.step_batch(np.full(40, 2), states[::-1].copy())
        assert_same(again.observations[::-1], first.observations)
        assert same_states(again.new_states[::-1], first.new_states)


def test_colours_of_a_car_are_part_of_its_episode() -> None:
    kwargs = {"domain_randomize": True, "continuous": False}
    with (
        PlanEnv("CarRacing-v3", env_kwargs=kwargs) as one,
        PlanEnv("CarRacing-v3", env_kwargs=kwargs) as other,
    ):
        for options in (None, {"randomize": False}):
            start = one.reset(seed=3, options=options)
            other.reset(seed=1)
            assert_same(other.observe(start.state)[0], start.observation)


def test_a_tree_costs_one_environment_step_per_transition(monkeypatch: pytest.MonkeyPatch) -> None:
    counts, step = [0], LunarLander.step

    def counted(self: Any, action: Any) -> Any:
        counts[0] += 1
        return step(self, action)

    monkeypatch.setattr(LunarLander, "step", counted)
    rng, num_transitions = np.random.default_rng(0), 0
    with PlanEnv("LunarLander-v3") as one, PlanEnv("LunarLander-v3") as other:
        leaves = np.repeat(np.array([one.reset(seed=0).state], object), 64)
        counts[0] = 0
        for _ in range(50):  # each level holds children of random leaves of the level before
            parents = leaves[rng.integers(64, size=64)]
            actions = rng.integers(4, size=64)
            halves = [env.step_batch(actions[rows], parents[rows]) for env, rows in _halves(one, other)]
            leaves = np.concatenate([out.new_states for out in halves])
            num_transitions += sum(int(out.infos["num_steps"].sum()) for out in halves)
    assert num_transitions > 2000
    assert counts[0] <= 1.05 * num_transitions


def _halves(one: PlanEnv, other: PlanEnv) -> list[tuple[PlanEnv, slice]]:
    return [(one, slice(0, 32)), (other, slice(32, 64))]


# -- what is refused -----------------------------------------------------------------------------------


class OwnLander(LunarLander):
    """It may remember more."""


def test_subclasses_are_replayed() -> None:
    with PlanEnv(OwnLander) as env:
        assert isinstance(env.codec, ReplayCodec)
        with PlanEnv(LunarLander) as known:
            assert isinstance(known.codec, StackCodec)
            start, expected = env.reset(seed=1), known.reset(seed=1)
            out = env.step_batch([0, 1, 2, 3] * 2, start.state, dt=9)
            assert_same(
                out.observations, known.step_batch([0, 1, 2, 3] * 2, expected.state, dt=9).observations
            )


class Damped(gymnasium.Wrapper):
    """Changes the world after its reset, by chance."""

    def reset(self, **kwargs: Any) -> Any:
        result = super().reset(**kwargs)
        base: Any = self.unwrapped
        base.lander.linearDamping = float(base.np_random.uniform(0, 3))
        return result


def test_what_a_wrapper_of_ones_own_does_to_the_world_comes_back() -> None:
    report = planvec.check_env(
        lambda: Damped(gymnasium.make("LunarLander-v3")), num_steps=40, num_restores=4, replay_seconds=0.3
    )
    assert report.exact, report
    assert "replay" in report.codec


@pytest.mark.slow
def test_statistics_of_single_precision_rewards_stay_so() -> None:
    report = planvec.check_env(
        lambda: wrappers.RecordEpisodeStatistics(gymnasium.make("BipedalWalker-v3")),
        num_steps=250,
        num_restores=4,
        replay_seconds=0.3,
    )
    assert report.exact, report


@pytest.mark.parametrize(
    "name", ["GRAVITY", "BODY_LIST", "CONTACT_LIST", "NEXT_BODY", "PROXY_NODE", "WORLD_BYTES"]
)
def test_another_layout_is_noticed(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(heap, name, getattr(heap, name) + 16)
    assert box2d_world.unknown_layout.__wrapped__() is not None


def test_a_state_of_another_world_is_refused() -> None:
    with PlanEnv("LunarLander-v3") as env:
        env.reset(seed=0)
        memory = WorldMemory(env.env.unwrapped.world)
        saved = memory.get()
        wrong = saved._replace(
            positions=np.array([900 << 20], np.uint32).tobytes(), words=b"\0" * 8, pointers=b"\0"
        )
        with pytest.raises(UnsupportedEnvError, match="a state of another world"):
            memory.set(wrong)
        assert memory.get() == saved


def test_states_are_plain_data() -> None:
    with PlanEnv("LunarLander-v3") as env:
        state = env.reset(seed=0).state
        assert pickle.loads(pickle.dumps(state)) == state
        assert len(bytes(state)) < 4000
