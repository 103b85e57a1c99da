"""Width-based search: what is novel, against plain dictionaries; and plans, against known optima."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from typing import Any

import gymnasium
import numpy as np
import pytest
from array_files import changed_arrays
from gymnasium import spaces
from gymnasium.wrappers import TimeLimit
from marks import slow_after
from minigrid.wrappers import FullyObsWrapper

import planvec
from planvec import IW, RolloutIW
from planvec.planners import load_plan, save_plan
from planvec.planners.novelty.branches import best_branches
from planvec.planners.novelty.features import (
    Screens,
    ScreenTable,
    Values,
    ValueTable,
    features_for,
    grid_features,
)

ROWS, COLUMNS = 14, 16


def memory() -> Any:
    return np.zeros((1024, 2), np.int32)


# -- features and novelty -------------------------------------------------------------------------------


def colors_of_tiles(screen: Any) -> set[tuple[Any, int, int]]:
    """Return (colour, row, column) of the tiles of a screen, by plain loops."""
    height, width = screen.shape[:2]
    found = set()
    for row in range(ROWS):
        for column in range(COLUMNS):
            tile = screen[
                row * height // ROWS : (row + 1) * height // ROWS,
                column * width // COLUMNS : (column + 1) * width // COLUMNS,
            ]
            for color in np.unique(tile.reshape(-1, *screen.shape[2:]), axis=0).tolist():
                found.add((tuple(color) if isinstance(color, list) else color, row, column))
    return found


def prost(screen: Any, before: Any) -> set[Any]:
    """Return the B-PROST features of a screen, by the words of the paper."""
    now = colors_of_tiles(screen)
    features: set[Any] = {("basic", *tile) for tile in now}
    for one, row, column in now:
        for other, other_row, other_column in now:
            if (one, row, column) == (other, other_row, other_column):
                continue
            pair = ((one, other), (other_row - row, other_column - column))
            opposite = ((other, one), (row - other_row, column - other_column))
            features.add(("space", min(pair, opposite)))
    if before is not None:
        for one, row, column in colors_of_tiles(before):
            for other, other_row, other_column in now:
                features.add(("time", one, other, other_row - row, other_column - column))
    return features


def screens(game: str, count: int, **options: Any) -> Any:
    with planvec.PlanEnv(
        f"ALE/{game}-v5", env_kwargs={"frameskip": 15, "repeat_action_probability": 0.0, **options}
    ) as env:
        env.action_space.seed(1)
        shown = [env.reset(seed=0).observation]
        shown += [env.step(env.action_space.sample())[0] for _ in range(count - 1)]
    return np.array(shown)


@pytest.mark.parametrize(
    ("game", "options"),
    [
        ("Breakout", {}),
        pytest.param("Freeway", {"obs_type": "grayscale"}, marks=pytest.mark.slow),
        pytest.param("Boxing", {}, marks=pytest.mark.slow),
    ],
)
def test_the_features_of_screens_are_those_of_the_paper(game: str, options: dict[str, Any]) -> None:
    shown = screens(game, 9, **options)
    features = Screens()
    table = features.new_table()
    assert isinstance(table, ScreenTable)
    table._found = np.empty(1_000_000, np.int64)  # all of them
    codes = features.encode(shown, memory())
    least: dict[Any, int] = {}
    parents, depths = [-1, 0, 1, 2, 0, 4, 5, 3, 7], [0, 1, 2, 3, 1, 2, 3, 4, 5]
    for index, (parent, depth) in enumerate(zip(parents, depths, strict=True)):
        wanted = 0
        for feature in prost(shown[index], shown[parent] if index else None):
            if least.get(feature, 99) > depth:
                least[feature] = depth
                wanted += 1
        found = table.mark(codes[index], codes[parent] if index else None, depth, index == 0)
        assert len(found) == len(set(found.tolist())) == wanted, index


def test_the_basic_features_of_screens_are_the_colours_of_tiles() -> None:
    shown = screens("Breakout", 6)
    codes = Screens().encode(shown, memory())
    expected = [colors_of_tiles(screen) for screen in shown]
    found = [set(Screens().basic(code).tolist()) for code in codes]
    for one, features in zip(expected, found, strict=True):
        assert len(features) == len(one)
        for other, others in zip(expected, found, strict=True):
            assert len(features & others) == len(one & other)
    assert len(set.union(*expected)) > len(expected[0])


def test_a_screen_whose_parent_is_in_another_table_is_marked_whole() -> None:
    shown = screens("Breakout", 3)
    features = Screens()
    codes = features.encode(shown, memory())
    first, second = features.new_table(), features.new_table()
    for table in (first, second):
        table._found = np.empty(1_000_000, np.int64)  # type: ignore[attr-defined]
    first.mark(codes[0], None, 0, True)
    first.mark(codes[1], codes[0], 1, False)
    found = second.mark(codes[2], codes[1], 2, True)
    assert len(found) == len(prost(shown[2], shown[1]))


def test_many_colours_share_numbers_and_images_of_any_size_are_screens() -> None:
    generator = np.random.default_rng(0)
    images = generator.integers(256, size=(3, 37, 50, 3), dtype=np.uint8)
    codes = Screens().encode(images, memory())
    again = Screens().encode(images, memory())
    assert (codes == again).all()
    tiles = codes[:, : 128 * ROWS].reshape(3, 128, ROWS)
    assert np.bitwise_or.reduce(tiles, axis=1).tolist() == [[2**16 - 1] * ROWS] * 3


def test_features_of_integers_are_columns_with_values() -> None:
    generator = np.random.default_rng(0)
    table, least = ValueTable(), dict[tuple[int, int], int]()
    for _ in range(400):
        values = generator.integers(-50, 50, size=40)
        values[0] = generator.integers(-(2**62), 2**62)
        depth = int(generator.integers(30))
        wanted = {pair for pair in enumerate(values.tolist()) if least.get(pair, 99) > depth}
        least |= dict.fromkeys(wanted, depth)
        found = table.mark(values, None, depth, True)
        assert len(found) == len(wanted)
        assert (table.first_novel(found, depth) == 0) == bool(wanted)


@pytest.mark.parametrize(
    ("space", "shape"),
    [
        (spaces.Box(0, 255, (128,), np.uint8), (128,)),
        (spaces.Box(-1, 1, (3,), np.float32), (3,)),
        (spaces.Box(-np.inf, np.inf, (3,), np.float64), (3,)),
        (spaces.Discrete(7, start=2), (1,)),
        (spaces.Dict(a=spaces.Box(0, 9, (2, 2), np.uint8), b=spaces.Discrete(4), t=spaces.Text(3)), (5,)),
        (spaces.Tuple((spaces.MultiBinary(3), spaces.MultiDiscrete([2, 3]))), (5,)),
    ],
    ids=str,
)
def test_every_space_with_numbers_has_features(space: Any, shape: tuple[int, ...]) -> None:
    space.seed(0)
    features = features_for(space, None)
    assert isinstance(features, Values)
    batch = gymnasium.vector.utils.concatenate(
        space, [space.sample() for _ in range(4)], gymnasium.vector.utils.create_empty_array(space, 4)
    )
    codes = features.encode(batch, memory())
    assert codes.shape == (4, *shape)
    assert codes.dtype == np.int64


def test_numbers_are_divided_into_intervals() -> None:
    features = features_for(spaces.Box(-1, 1, (1,), np.float64), None)
    codes = features.encode(np.array([[-1.0], [-0.94], [-0.93], [0.0], [0.999], [1.0]]), memory())
    assert codes[:, 0].tolist() == [0, 0, 1, 16, 31, 32]
    unbounded = features_for(spaces.Box(-np.inf, np.inf, (1,), np.float64), None)
    codes = unbounded.encode(np.array([[-np.inf], [-100.0], [0.0], [0.1], [100.0], [np.nan]]), memory())
    assert (np.diff(codes[1:5, 0]) > 0).all()


def test_what_has_no_features_is_named() -> None:
    with pytest.raises(
        planvec.UnsupportedEnvError, match="features: expected a function of the observations"
    ):
        features_for(spaces.Text(5), None)
    for bad, message in (
        (
            lambda observations: observations,
            r"features: expected a function that returns integers \[B, F\], got float32 of shape",
        ),
        (
            lambda observations: np.zeros(3, int),
            r"features: expected a function that returns integers \[B, F\], got int64 of shape \(3,",
        ),
        (lambda observations: np.zeros((2, 3), int), r"expected integers \[1, F\], got shape \(2, 3\)"),
        (
            lambda observations: np.zeros((1, 0), int),
            r"returns integers \[B, F\], got int64 of shape \(1, 0",
        ),
        (lambda observations: [[1], [2, 3]], r"returns integers \[B, F\], got \[\[1\], \[2, 3\]\]"),
        (
            lambda observations: np.zeros((len(observations), len(observations)), int),
            r"features: expected integers \[2, 1\], as before, got shape \(2, 2\)",
        ),
    ):
        with (
            planvec.PlanEnv("CartPole-v1") as env,
            pytest.raises(planvec.InvalidBatchError, match=message),
        ):
            RolloutIW(features=bad).plan(env, env.reset(seed=0).state, seed=0)
    for wrong in ("ram", Screens):
        with pytest.raises(ValueError, match="features: expected a function of observations, got"):
            IW(features=wrong)
    with (
        planvec.PlanEnv("Pendulum-v1") as env,
        pytest.raises(planvec.UnsupportedEnvError, match="expected actions that can be listed"),
    ):
        IW().plan(env, env.reset(seed=0).state)


@pytest.mark.parametrize("is_full", [False, True])
def test_the_features_of_a_grid_are_cells_beside_what_the_agent_does(is_full: bool) -> None:
    def make() -> Any:
        env = gymnasium.make("MiniGrid-DoorKey-6x6-v0")
        return FullyObsWrapper(env) if is_full else env

    env, features = make(), features_for(make().observation_space, None)
    observations = [env.reset(seed=3)[0]]
    env.action_space.seed(3)
    observations += [env.step(env.action_space.sample())[0] for _ in range(150)]
    stacked = {
        "image": np.array([one["image"] for one in observations]),
        "direction": np.array([one["direction"] for one in observations]),
    }
    codes = features.encode(stacked, memory())
    meaning: dict[tuple[int, int], Any] = {}
    for code, observation in zip(codes.tolist(), observations, strict=True):
        image = observation["image"].tolist()
        places = [(x, y) for x in range(len(image)) for y in range(len(image[0]))]
        agents = [(x, y) for x, y in places if image[x][y][0] == 10]
        x, y = agents[0] if agents else (len(image) // 2, len(image[0]) - 1)
        assert bool(agents) == is_full
        for column, (value, (i, j)) in enumerate(zip(code, places, strict=True)):
            content = ((x, y), image[x][y], int(observation["direction"]), image[i][j])
            assert meaning.setdefault((column, value), content) == content
    assert len({(column, str(content)) for (column, _), content in meaning.items()}) == len(meaning)


# -- plans ----------------------------------------------------------------------------------------------

LAKE = "FrozenLake8x8-v1"
DRY = {"is_slippery": False}


@pytest.mark.parametrize("planner", [IW(num_simulations=400), RolloutIW(num_simulations=400)])
def test_a_goal_that_is_one_new_feature_after_the_other_is_reached(planner: planvec.Planner) -> None:
    with planvec.make(LAKE, num_workers=0, env_kwargs=DRY) as env:
        for seed in range(3):
            episode = planvec.run_episode(env, planner, seed=seed)
            assert (episode.total_return, episode.num_steps) == (1.0, 14)  # the shortest way


@pytest.mark.slow
@pytest.mark.parametrize("planner", [RolloutIW(num_simulations=3000), IW(num_simulations=3000)])
def test_a_door_is_opened_with_its_key(planner: planvec.Planner) -> None:
    with planvec.make("MiniGrid-DoorKey-5x5-v0", num_workers=2) as env:
        episode = planvec.run_episode(env, planner, seed=1, max_steps=30)
    assert (episode.terminated, episode.num_steps) == (True, 7)  # the shortest way


@pytest.mark.slow
def test_a_corridor_with_a_key_is_solved() -> None:
    with planvec.make(
        lambda: FullyObsWrapper(gymnasium.make("MiniGrid-KeyCorridorS3R3-v0")), num_workers=2
    ) as env:
        episode = planvec.run_episode(env, IW(num_simulations=1500), seed=1, max_steps=60)
    assert episode.terminated
    assert episode.total_return > 0.9


def test_breadth_first_search_generates_each_cell_once_by_the_shortest_way() -> None:
    with planvec.PlanEnv(LAKE, env_kwargs=DRY) as env:
        plan = IW(num_simulations=4000, batch_size=1).plan(env, env.reset(seed=0).state, seed=0)
    tree = plan.search_data
    assert plan.stop_reason == "exhausted"
    cells = tree.saved_states["cell"]
    novel = np.flatnonzero((tree.children[: tree.num_nodes] >= 0).any(axis=1))  # those that were expanded
    assert len(set(cells[novel].tolist())) == len(novel)
    assert len(set(cells.tolist())) == 64  # 4 of each cell that goes on, and all holes
    depths = np.zeros(tree.num_nodes, int)
    for node in range(1, tree.num_nodes):
        depths[node] = depths[tree.parents[node]] + 1
    for node in novel:
        assert depths[node] == min(depths[cells == cells[node]])
    assert plan.best_actions.shape == (14,)
    assert plan.best_return == pytest.approx(0.995**13)


@pytest.mark.parametrize("planner", [IW, RolloutIW])
def test_no_branch_is_followed_beyond_the_horizon(planner: Any) -> None:
    with planvec.PlanEnv("CartPole-v1") as env:
        start = env.reset(seed=0).state
        far, near = (planner(num_simulations=3000, horizon=horizon) for horizon in (None, 7))
        assert len(far.plan(env, start, seed=0).depth_histogram) > 10
        plan = near.plan(env, start, seed=0)
        assert len(plan.depth_histogram) == 8  # the root, and 7 actions
        assert plan.stop_reason == "exhausted"


@pytest.mark.parametrize("planner", [IW, RolloutIW])
def test_branches_are_followed_beyond_the_horizon_until_something_happens(planner: Any) -> None:
    with planvec.PlanEnv("MiniGrid-Empty-6x6-v0") as env:  # whose only reward is at least 7 actions away
        start = env.reset(seed=0).state
        plan = planner(num_simulations=3000, horizon=3).plan(env, start, seed=0)
        assert plan.best_return > 0
        assert len(plan.best_actions) >= 7


class Thorns(gymnasium.Env[Any, Any]):
    """A field without borders, of 16 x 16 cells. Every 11th one has thorns, which cost 1, and some a life."""

    action_space = spaces.Discrete(4)
    observation_space = spaces.Discrete(256)

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> Any:
        super().reset(seed=seed)
        self.cell, self.lives = 1, 1000
        return self.cell, {"lives": self.lives}

    def step(self, action: Any) -> Any:
        self.cell = (self.cell + (1, -1, 16, -16)[int(action)]) % 256
        self.lives -= self.cell % 22 == 0
        return self.cell, -1.0 if self.cell % 11 == 0 else 0.0, False, False, {"lives": self.lives}


class Hit(gymnasium.Env[Any, Any]):
    """Action 0 goes to and fro; action 1 is a hit, which takes a life 8 steps later."""

    action_space = spaces.Discrete(2)
    observation_space = spaces.Discrete(3)

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> Any:
        super().reset(seed=seed)
        self.place, self.wait, self.lives = 0, 0, 9
        return self.place, {"lives": self.lives}

    def step(self, action: Any) -> Any:
        if self.wait:
            self.wait -= 1
            self.lives -= self.wait == 0
        elif action == 1:
            self.wait = 8
        else:
            self.place = 1 - self.place
        return 2 if self.wait else self.place, 0.0, False, False, {"lives": self.lives}


def lake() -> Any:
    return gymnasium.make(LAKE, **DRY)


@pytest.mark.parametrize(
    ("planner", "make"),
    [
        (IW(num_simulations=8), lake),
        (RolloutIW(num_simulations=6), lake),
        (IW(num_simulations=8), Thorns),
        (RolloutIW(num_simulations=60), Thorns),
    ],
)
def test_long_without_a_gain_plans_lead_to_what_was_not_seen_for_the_longest_time(
    planner: Any, make: Any
) -> None:
    last_seen: dict[int, int] = {}  # cell -> the decision whose root was there
    with planvec.PlanEnv(make) as env:
        state, plan, num_compared, num_thorns = env.reset(seed=0).state, None, 0, 0
        for decision in range(40):
            plan = planner.plan(env, state, seed=decision, previous=plan)
            tree = plan.search_data
            cells = env.observe(tree.states[: tree.num_nodes]).tolist()
            last_seen[cells[0]] = decision
            lost = [*(tree.ended | (tree.rewards < 0))[: tree.num_nodes]]
            for node in range(tree.num_nodes - 1, 0, -1):
                below = [child for child in tree.children[node] if child >= 0]
                lost[node] |= bool(below) and all(lost[child] for child in below)
            oldest, depths = {0: decision}, {0: 0}
            for node in range(1, tree.num_nodes):
                parent = int(tree.parents[node])
                num_thorns += tree.rewards[node] < 0
                if parent in oldest and not lost[node]:
                    oldest[node] = min(oldest[parent], last_seen.get(cells[node], -1))
                    depths[node] = depths[parent] + 1
            if plan.best_return > 0:
                break  # the goal is near
            if decision >= 20:
                far = min(10, max(depths.values()))
                reached = {(oldest[node], -depths[node]) for node in oldest if depths[node] >= far}
                last = int(tree.best[-1])
                assert (oldest[last], -depths[last]) == min(reached)
                assert [*tree.taken[tree.best[1:]]] == [*plan.best_actions]
                assert plan.best_return == 0.0
                num_compared += 1
            state = env.step_batch([plan.action], np.array([state])).new_states[0]
    assert num_compared > 5
    assert (num_thorns > 0) == (make is Thorns)


def test_small_gains_beside_large_losses_are_gains() -> None:
    """What a branch is taken to lose where it goes on does not count."""

    class Mine(gymnasium.Env[Any, Any]):
        """Action 0 earns 1, action 1 nothing, the others lose a life."""

        action_space = spaces.Discrete(4)
        observation_space = spaces.MultiDiscrete([1000, 4])

        def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> Any:
            super().reset(seed=seed)
            self.count, self.lives = 0, 1000
            return np.array([0, 0]), {"lives": self.lives}

        def step(self, action: Any) -> Any:
            self.count += 1
            self.lives -= int(action) > 1
            observation = np.array([self.count, int(action)])
            return observation, float(action == 0), False, False, {"lives": self.lives}

    def check(state: Any) -> None:
        plans.append(state.plan)
        gains = [plan.best_return > 0 for plan in plans][::-1]
        assert state.plan.search_data.num_idle == [*gains, True].index(True)

    planner, plans = RolloutIW(num_simulations=40, life_cost=500.0), list[planvec.Plan]()
    with planvec.make(Mine, num_workers=0, info_keys=("lives",)) as env:
        planvec.run_episode(env, planner, seed=0, max_steps=30, callback=check)
    assert sum(plan.value < 0 < plan.best_return for plan in plans) > 10


@pytest.mark.parametrize("seed", range(3))
def test_a_life_that_is_lost_long_after_the_hit_is_seen(seed: int) -> None:
    """Nothing moves meanwhile, so that rollouts end there: the branch would look like any other."""
    planner = RolloutIW(num_simulations=60, life_cost=10.0)
    with planvec.make(Hit, num_workers=0, info_keys=("lives",)) as env:
        episode = planvec.run_episode(env, planner, seed=seed, max_steps=20)
    assert not episode.actions.any()


def test_a_lost_life_makes_the_horizon_count_where_lives_cost_something() -> None:
    class Falling(Thorns):
        def step(self, action: Any) -> Any:
            self.cell = (self.cell + 1) % 256
            self.lives -= 1
            return self.cell, 0.0, False, False, {"lives": self.lives}

    with planvec.make(Falling, num_workers=0, info_keys=("lives",)) as env:
        start = env.reset(seed=0)
        for life_cost, is_bounded in ((1.0, True), (0.0, False)):
            planner = RolloutIW(num_simulations=200, horizon=3, life_cost=life_cost)
            plan = planner.plan(env, start.state, seed=0, info=start.info)
            assert (len(plan.depth_histogram) == 4) == is_bounded


@pytest.mark.parametrize(("subtables", "num_depths"), [(True, 4), (False, 2)])
def test_subtables_count_what_was_seen_with_a_return_of_another_size(
    subtables: bool, num_depths: int
) -> None:
    """The only feature is new for returns of 1 and of 2 and 3; without subtables, at the root alone."""
    planner = RolloutIW(
        num_simulations=200, discount=1.0, subtables=subtables, features=lambda cells: cells[:, None] * 0
    )

    class Rich(Thorns):
        def step(self, action: Any) -> Any:
            cell, _, *rest = super().step(action)
            return cell, 1.0, *rest

    with planvec.make(Rich, num_workers=0) as env:
        plan = planner.plan(env, env.reset(seed=0).state, seed=0)
    assert plan.stop_reason == "exhausted"
    assert len(plan.depth_histogram) == num_depths


@pytest.mark.parametrize(
    ("planner", "make"),
    [
        (IW(num_simulations=8), Thorns),
        (RolloutIW(num_simulations=6, life_cost=3.0), Thorns),
        (RolloutIW(num_simulations=20, life_cost=3.0), Hit),
    ],
)
def test_the_number_of_workers_and_kills_change_no_decision_of_a_long_search(planner: Any, make: Any) -> None:
    """Trees are kept, lives are lost, stills are followed, and plans go to what was not seen for long."""
    found = []
    for num_workers in (0, 1, 3):
        with planvec.make(make, num_workers=num_workers, info_keys=("lives",)) as env:
            plans: list[planvec.Plan] = []

            def note(
                state: Any, plans: Any = plans, env: Any = env, is_killed: bool = num_workers == 3
            ) -> None:
                plans.append(state.plan)
                if is_killed and len(plans) == 24:
                    os.kill(env.workers[0].pid, signal.SIGKILL)

            planvec.run_episode(env, planner, seed=0, max_steps=30, callback=note)
            found.append(plans)
            assert env.stats.restarts == (num_workers == 3)
    assert found[0][-1].search_data.num_idle > 20
    for plans in found[1:]:
        for one, other in zip(found[0], plans, strict=True):
            assert_same_plan(one, other)


@pytest.mark.parametrize("planner", [IW(num_simulations=60), RolloutIW(num_simulations=60, batch_size=6)])
@pytest.mark.parametrize(
    "env_id",
    slow_after(1, ["CartPole-v1", "MiniGrid-DoorKey-5x5-v0", "ALE/Freeway-v5"]),
)
def test_the_number_of_workers_changes_nothing(planner: planvec.Planner, env_id: str) -> None:
    plans = []
    for num_workers in (0, 1, 3):
        with planvec.make(env_id, num_workers=num_workers) as env:
            plans.append(planner.plan(env, env.reset(seed=0).state, seed=5))
    for plan in plans[1:]:
        assert_same_plan(plans[0], plan)


@pytest.mark.parametrize("planner", [IW(num_simulations=60), RolloutIW(num_simulations=100, batch_size=16)])
@pytest.mark.parametrize("env_id", ["CartPole-v1", "CliffWalking-v1"])
def test_the_other_roots_of_a_batch_change_nothing(planner: planvec.Planner, env_id: str) -> None:
    with planvec.make(env_id, num_workers=0) as env:
        for seed in range(6):
            states = np.array([env.reset(seed=seed + number).state for number in range(3)])
            plans = planner.plan_batch(env, states, seeds=[seed, 99, 7])
            assert_same_plan(plans[0], planner.plan(env, states[0], seed=seed))
            assert_same_plan(plans[2], planner.plan(env, states[2], seed=7))


def assert_same_plan(one: Any, other: Any) -> None:
    assert (one.action, one.value, one.num_env_steps) == (other.action, other.value, other.num_env_steps)
    for name in ("visit_counts", "action_values", "best_actions", "depth_histogram"):
        np.testing.assert_array_equal(getattr(one, name), getattr(other, name))
    mine, yours = one.search_data.to_arrays(), other.search_data.to_arrays()
    assert mine.keys() == yours.keys()
    for name, array in mine.items():
        assert array.tobytes() == yours[name].tobytes(), name


@pytest.mark.slow
def test_a_worker_that_is_killed_changes_nothing() -> None:
    planner = RolloutIW(num_simulations=80)
    with planvec.make("MiniGrid-DoorKey-5x5-v0", num_workers=2) as env:
        state = env.reset(seed=0).state
        expected = planner.plan(env, state, seed=1)
        killed = []

        def kill(num_simulations: int, num_env_steps: int) -> None:
            if num_simulations >= 20 and not killed:
                killed.append(os.kill(env.workers[0].pid, signal.SIGKILL))

        assert_same_plan(expected, planner.plan(env, state, seed=1, callback=kill))
        assert env.stats.restarts == 1


def test_a_tree_is_kept_and_written(tmp_path: Any) -> None:
    planner = RolloutIW(num_simulations=100)
    with planvec.make("MiniGrid-DoorKey-5x5-v0", num_workers=0) as env:
        start = env.reset(seed=0).state
        plan = planner.plan(env, start, seed=0)
        assert plan.search_data.num_nodes == 101
        after = env.step_batch([plan.action], np.array([start])).new_states
        again = planner.plan(env, after, seed=1, previous=plan)
        assert 101 < again.search_data.num_nodes <= 201
        save_plan(tmp_path / "plan.npz", plan, env)
        loaded = load_plan(tmp_path / "plan.npz", env)
        assert_same_plan(plan, loaded)
        assert_same_plan(again, planner.plan(env, after, seed=1, previous=loaded))
        # Another state than the one that the action leads to has no tree.
        fresh = planner.plan(env, start, seed=1, previous=plan)
        assert_same_plan(fresh, planner.plan(env, start, seed=1))


def test_what_roots_have_shown_is_read_again_however_far_apart_its_numbers_are(tmp_path: Any) -> None:
    def is_elsewhere(observations: Any) -> Any:
        # the hashes of 4 and 12 differ by more than 2**63
        return np.where(np.asarray(observations)[:, None] == 0, 4, 12)

    planner = RolloutIW(num_simulations=10, features=is_elsewhere)
    with planvec.PlanEnv("FrozenLake8x8-v1", env_kwargs={"is_slippery": False}) as env:
        state, plan = env.reset(seed=0).state, None
        while plan is None or plan.search_data.seen.shape[1] < 2:
            plan = planner.plan(env, state, seed=0, previous=plan)
            state = env.step_batch([plan.action], np.array([state])).new_states[0]
        save_plan(tmp_path / "plan.npz", plan, env)
        again = load_plan(tmp_path / "plan.npz", env).search_data
    np.testing.assert_array_equal(again.seen, plan.search_data.seen)
    assert again.num_idle == plan.search_data.num_idle > 0


def test_a_tree_of_other_settings_is_not_continued(tmp_path: Any) -> None:
    def one(observations: Any) -> Any:
        return (observations[:, :1] * 10).astype(int)

    def two(observations: Any) -> Any:
        return (observations[:, 2:3] * 10).astype(int)

    settings: list[dict[str, Any]] = [{"dt": 4}, {}, {"features": one}, {"features": two}]
    with planvec.make("CartPole-v1", num_workers=0) as env:
        start = np.array([env.reset(seed=0).state])
        for given in settings:
            plan = RolloutIW(num_simulations=60, **given).plan(env, start, seed=0)
            save_plan(tmp_path / "plan.npz", plan, env)
            loaded = load_plan(tmp_path / "plan.npz", env)
            after = env.step_batch([plan.action], start, dt=given.get("dt", 1)).new_states
            for other in settings:
                planner = RolloutIW(num_simulations=20, **other)
                fresh = planner.plan(env, after, seed=1)
                for previous in (plan, loaded):
                    again = planner.plan(env, after, seed=1, previous=previous)
                    num_kept = again.search_data.num_nodes - again.num_simulations - 1
                    assert (num_kept > 0) == (given is other)
                    if given is not other:
                        assert_same_plan(fresh, again)


def test_a_tree_takes_only_the_memory_of_its_nodes() -> None:
    with planvec.make("CartPole-v1", num_workers=0) as env:
        state = env.reset(seed=0).state
        plan = RolloutIW(num_simulations=10**12).plan(env, state, seed=0)
        assert plan.stop_reason == "exhausted"
        assert plan.search_data.num_nodes < len(plan.search_data.parents) < 10_000
        assert RolloutIW(max_env_steps=40).plan(env, state, seed=0).stop_reason == "max_env_steps"


def test_lives_that_cost_something_have_to_be_known() -> None:
    planner = RolloutIW(num_simulations=10, life_cost=5.0)
    with planvec.make("CartPole-v1", num_workers=0) as env:
        start = env.reset(seed=0)
        with pytest.raises(
            planvec.InvalidBatchError, match=r"together with life_cost=5, got no info\. Where a game has"
        ):
            planner.plan(env, start.state)
        with pytest.raises(planvec.InvalidBatchError, match=r"got an info with nothing.*life_cost=0"):
            planner.plan(env, start.state, info=start.info)
    with pytest.raises(ValueError, match="risk_aversion: expected a finite number of at least 0, got inf"):
        RolloutIW(risk_aversion=np.inf)


def test_lost_lives_and_negative_rewards_weigh_as_they_are_told() -> None:
    class Lives(gymnasium.Env[Any, Any]):
        """Action 0 earns 1 and costs a life; action 1 earns 0.5; action 2 costs 1, then earns 3."""

        action_space = spaces.Discrete(3)
        observation_space = spaces.MultiDiscrete([9, 9, 9])

        def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> Any:
            super().reset(seed=seed)
            self.lives, self.counts = 3, np.zeros(3, np.int64)
            return self.counts.copy(), {"lives": self.lives}

        def step(self, action: Any) -> Any:
            self.counts[action] += 1
            self.lives -= int(action) == 0
            reward = (1.0, 0.5, -1.0 if self.counts[2] == 1 else 3.0)[int(action)]
            return self.counts.copy(), reward, False, False, {"lives": self.lives}

    def first(**options: Any) -> int:
        planner = RolloutIW(num_simulations=39, discount=1.0, **options)
        with planvec.make(lambda: TimeLimit(Lives(), 3), num_workers=0, info_keys=planner.info_keys) as env:
            start = env.reset(seed=0)
            return int(planner.plan(env, start.state, seed=0, info=start.info).action)

    assert first(features=lambda counts: np.arange(len(counts))[:, None]) in (0, 1)  # one node is novel
    assert first(features=_every, risk_aversion=1.0) == 2  # -1 + 3 + 3
    assert first(features=_every, risk_aversion=10.0) == 0
    assert first(features=_every, risk_aversion=10.0, life_cost=5.0) == 1


@pytest.mark.parametrize("planner", [IW(num_simulations=200), RolloutIW(num_simulations=200)])
def test_the_shortest_way_is_found_where_every_step_costs_something(planner: planvec.Planner) -> None:
    with planvec.make("CliffWalking-v1", num_workers=0) as env:
        assert planvec.run_episode(env, planner, seed=0, max_steps=30).total_return == -13.0  # the optimum


def test_what_follows_a_branch_costs_as_much_as_the_steps_of_the_tree_do() -> None:
    """Actions lead on along a corridor, back to its start with a gain, or to a lost life."""

    class Corridor(gymnasium.Env[Any, Any]):
        action_space = spaces.Discrete(3)
        observation_space = spaces.MultiDiscrete([20])
        cost = 0.0

        def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> Any:
            super().reset(seed=seed)
            self.place, self.lives = 0, 50
            return np.array([0]), {"lives": self.lives}

        def step(self, action: Any) -> Any:
            self.place = min(9, self.place + 1) if action == 0 else 0
            self.lives -= int(action) == 2
            gain = 1.0 if action == 1 else 0.0
            return np.array([self.place]), gain - self.cost, False, False, {"lives": self.lives}

    class Costly(Corridor):
        cost = 0.5

    def plan(make: Callable[[], gymnasium.Env[Any, Any]], **options: Any) -> planvec.Plan:
        planner = RolloutIW(num_simulations=100, discount=0.5, subtables=False, **options)
        with planvec.make(make, num_workers=0, info_keys=planner.info_keys) as env:
            start = env.reset(seed=0)
            return planner.plan(env, start.state, seed=0, info=start.info)

    def deepest(cost: float, risk: float) -> float:
        """Return what follows a branch of one action, in a tree that is 10 deep."""
        value = 0.0
        for _ in range(9):
            value = cost - 100.0 * risk + 0.5 * (1 - risk) * value
        return value

    assert plan(Corridor).action_values[1] == 1.0  # what is not known costs nothing
    assert plan(Costly).action_values[1] == pytest.approx(0.5 + 0.5 * deepest(-0.5, 0.0))
    careful = plan(Corridor, life_cost=100.0)
    lost = np.bincount(careful.search_data.taken[1 : careful.search_data.num_nodes])
    assert careful.action_values[1] == pytest.approx(1.0 + 0.5 * deepest(0.0, 0.3 * lost[2] / lost.sum()))
    assert int(careful.action) == 0  # the way on whose end is known


class Telling(gymnasium.Env[Any, Any]):
    """Counts steps; its infos hold what a function returns for the number of steps. No life is ever lost."""

    action_space = spaces.Discrete(3)
    observation_space = spaces.Discrete(1000)

    def __init__(self, info: Callable[[int], dict[str, Any]]) -> None:
        self.info, self.count = info, 0

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> Any:
        super().reset(seed=seed)
        self.count = 0
        return self.count, self.info(0)

    def step(self, action: Any) -> Any:
        self.count += 1 + int(action)
        return self.count, 0.0, False, False, self.info(self.count)


@pytest.mark.parametrize(
    ("info", "message"),
    [
        (
            lambda count: {},
            "info: expected one with 'lives' together with life_cost=5, got an info with nothing",
        ),
        (
            lambda count: {"lives": 3} if count == 0 else {},
            "life_cost=5: expected infos with 'lives', got none",
        ),
        (lambda count: {"lives": 3} if count % 3 < 2 else {}, "life_cost=5: expected infos .* in row [0-9]"),
        (lambda count: {"lives": "three"}, "info: expected a number of 'lives' together with life_cost=5"),
        (lambda count: {"lives": 3 if count == 0 else "two"}, "life_cost=5: expected numbers of 'lives'"),
    ],
)
def test_a_cost_of_lives_needs_them_in_every_info(info: Any, message: str) -> None:
    """Otherwise a plan would depend on which rows share a batch: rows without the key hold 0."""
    with planvec.make(lambda: Telling(info), num_workers=0, info_keys=("lives",)) as env:
        start = env.reset(seed=0)
        for batch_size in (1, 6):
            planner = RolloutIW(num_simulations=30, batch_size=batch_size, life_cost=5.0)
            with pytest.raises(planvec.InvalidBatchError, match=message):
                planner.plan(env, start.state, seed=0, info=start.info)
        RolloutIW(num_simulations=30).plan(env, start.state, seed=0, info=start.info)  # does not look at them


def test_a_tree_without_lives_is_not_continued_where_they_cost_something() -> None:
    with planvec.make(
        lambda: Telling(lambda count: {"lives": 3}), num_workers=0, info_keys=("lives",)
    ) as env:
        start = env.reset(seed=0)
        first = RolloutIW(num_simulations=30).plan(env, start.state, seed=0, info=start.info)
        step = env.step_batch(first.action[None], start.state)
        planner = RolloutIW(num_simulations=30, life_cost=5.0)
        plan = planner.plan(env, step.new_states, seed=0, previous=first, info={"lives": 3})
        assert (plan.search_data.lives[: plan.search_data.num_nodes] == 3).all()


@pytest.mark.parametrize("subtables", [False, True])
def test_rewards_whose_sums_would_be_infinite_are_refused(subtables: bool) -> None:
    class Rich(Telling):
        def step(self, action: Any) -> Any:
            observation, _, *rest = super().step(action)
            return observation, 1e308, *rest

    planner = RolloutIW(num_simulations=30, subtables=subtables)
    with planvec.make(lambda: Rich(lambda count: {}), num_workers=0) as env:
        start = env.reset(seed=0)
        with pytest.raises(planvec.InvalidBatchError, match=r"rewards: .* got 1e\+308.*TransformReward"):
            planner.plan(env, start.state, seed=0)


def _every(counts: Any) -> Any:
    """Return a feature for every combination of counts, so that nothing is pruned."""
    return (counts * np.array([1, 10, 100])).sum(axis=1)[:, None]


def test_a_small_image_beside_other_parts_is_not_taken_for_a_grid() -> None:
    """Otherwise the other parts would be ignored: a search would end where the image is always the same."""
    image = spaces.Box(0, 255, (8, 8, 3), np.uint8)
    grid = spaces.Dict(image=image, direction=spaces.Discrete(4), mission=spaces.Text(9))
    assert features_for(grid, None)._function is grid_features  # type: ignore[attr-defined]
    others = [
        spaces.Dict(image=image, inventory=spaces.Discrete(1000)),
        spaces.Dict(image=image, direction=spaces.Box(-1, 1, (2,))),
        spaces.Dict(image=image, direction=spaces.Discrete(8)),
    ]
    for space in others:
        assert features_for(space, None)._function is not grid_features  # type: ignore[attr-defined]


def test_contents_of_a_grid_are_told_apart_for_all_bytes() -> None:
    first, second = np.zeros((2, 1, 3, 3, 3), np.uint8)
    first[0, 0, 0], second[0, 0, 0] = [16, 0, 0], [0, 1, 0]
    features = [grid_features({"image": image})[0, 0] for image in (first, second)]
    assert features[0] != features[1]


def test_a_space_without_any_number_is_refused_also_if_it_is_a_box() -> None:
    with pytest.raises(
        planvec.UnsupportedEnvError, match="features: expected a function of the observations"
    ):
        features_for(spaces.Box(-1, 1, (0,)), None)


def test_equal_features_continue_a_tree() -> None:
    assert Screens() == Screens()
    assert len({Screens(), Screens()}) == 1


@pytest.mark.parametrize(
    ("name", "place", "value"),
    [
        ("memory", (0, 1), 2**30),
        ("memory", (0, 1), 128),
        ("memory", (5, 1), -1),
        ("memory", (-1, 1), 129),
        ("rewards", 3, np.nan),
        ("taken", slice(1, 4), 0),  # three actions of the root
        ("parents", 1, 1),
    ],
)
def test_a_damaged_tree_file_is_refused(tmp_path: Any, name: str, place: Any, value: Any) -> None:
    """Compiled code would read and write elsewhere, or plans would be of no number."""
    path = tmp_path / "plan.npz"
    with planvec.make("Acrobot-v1", num_workers=0) as env:
        plan = IW(num_simulations=40).plan(env, env.reset(seed=0).state, seed=0)
        save_plan(path, plan, env)
        load_plan(path, env)
        with changed_arrays(path) as arrays:
            arrays[f"search_data.{name}"][place] = value
        with pytest.raises(planvec.InvalidBatchError, match="plan: expected a file that save_plan wrote"):
            load_plan(path, env)


def test_a_tree_of_codes_of_another_type_is_not_continued(tmp_path: Any) -> None:
    path, planner = tmp_path / "plan.npz", RolloutIW(num_simulations=40)
    with planvec.make("CartPole-v1", num_workers=0) as env:
        start = np.array([env.reset(seed=0).state])
        plan = planner.plan(env, start, seed=0)
        save_plan(path, plan, env)
        with changed_arrays(path) as arrays:
            arrays["search_data.codes"] = arrays["search_data.codes"].astype(np.int8)
        after = env.step_batch([plan.action], start).new_states
        again = planner.plan(env, after, seed=1, previous=load_plan(path, env))
        assert_same_plan(again, planner.plan(env, after, seed=1))


@pytest.mark.parametrize(
    ("change", "error"),
    [
        (lambda codes: codes[:, :, None], "plan: expected a file that save_plan wrote"),
        (lambda codes: codes.astype(str), "plan: expected a file that save_plan wrote"),
        (lambda codes: codes.astype(float), "plan: expected a file that save_plan wrote"),
        (lambda codes: codes[:3], "plan: expected a file that save_plan wrote"),
        (lambda codes: codes[:, :2], r"features: expected integers \[\d+, 2\], as before, got shape"),
    ],
)
def test_a_tree_file_with_other_codes_is_refused(tmp_path: Any, change: Any, error: str) -> None:
    planner = RolloutIW(num_simulations=40)
    path = tmp_path / "plan.npz"
    with planvec.make("CartPole-v1", num_workers=0) as env:
        start = np.array([env.reset(seed=0).state])
        plan = planner.plan(env, start, seed=0)
        save_plan(path, plan, env)
        with changed_arrays(path) as arrays:
            arrays["search_data.codes"] = change(arrays["search_data.codes"])
        after = env.step_batch([plan.action], start).new_states
        with pytest.raises(planvec.InvalidBatchError, match=error):
            planner.plan(env, after, seed=1, previous=load_plan(path, env))


def naive_branches(
    tree: dict[str, np.ndarray], discount: float, noise: np.ndarray, beyond: np.ndarray
) -> list[np.ndarray]:
    """Return the returns, values, actions, lengths and sizes of branches, in plain Python."""
    size, num_actions = tree["children"].shape
    values, lengths, best = beyond.copy(), np.zeros(size, np.int64), np.full(size, -1, np.int64)
    returns, counts = np.full((size, num_actions), -np.inf), np.ones(size, np.int64)
    for node in range(size - 1, -1, -1):
        if (returns[node] > -np.inf).any():
            equal = np.flatnonzero(returns[node] == returns[node].max())
            if len(equal) > 1 and returns[node].max() <= 0:
                reach = lengths[tree["children"][node, equal]]
                equal = equal[reach == reach.max()]
            best[node] = equal[noise[node, equal].argmax()]
            values[node] = returns[node, best[node]]
            lengths[node] = 1 + lengths[tree["children"][node, best[node]]]
        if node:
            parent, action = tree["parents"][node], tree["taken"][node]
            returns[parent, action] = tree["rewards"][node] + discount * values[node]
            counts[parent] += counts[node]
    return [returns, values, best, lengths, counts]


@pytest.mark.parametrize("seed", range(5))
def test_branches_are_compared_as_in_plain_python(seed: int) -> None:
    random = np.random.default_rng(seed)
    size, num_actions = 300, 4
    tree = {
        "parents": np.full(size, -1, np.int32),
        "taken": np.full(size, -1, np.int32),
        "children": np.full((size, num_actions), -1, np.int32),
        "rewards": random.choice([-1.0, 0.0, 0.0, 0.0, 0.5, 1.0], size),
    }
    for node in range(1, size):
        open_places = np.argwhere(tree["children"][:node] < 0)
        parent, action = open_places[random.integers(len(open_places))]
        tree["parents"][node], tree["taken"][node], tree["children"][parent, action] = parent, action, node
    noise = random.choice([0.1, 0.5, 0.9], (size, num_actions))  # with ties
    beyond = random.choice([-1.0, 0.0, 0.0], size)
    expected = naive_branches(tree, 0.9, noise, beyond)
    got = [np.empty_like(array) for array in expected]
    got[1][:] = beyond
    arguments = tree["parents"], tree["taken"], tree["children"], tree["rewards"]
    best_branches(*arguments, 0.9, noise, *got)
    for one, other in zip(expected, got, strict=True):
        np.testing.assert_array_equal(one, other)
