"""Planners and random rollouts take the actions that an environment reports as legal, and no others."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces
from marks import slow_after

import planvec
import planvec.checking
import planvec.vector
from planvec.planners import load_plan, save_plan

PLANNERS = {
    "mcts": planvec.MCTS(num_simulations=40),
    "mcts-no-rollouts": planvec.MCTS(num_simulations=40, rollout_horizon=0),
    "mcts-dt": planvec.MCTS(num_simulations=40, dt=2),
    "mcts-gumbel": planvec.MCTS(num_simulations=20, root_selection="gumbel"),
    "mcts-puct": planvec.MCTS(num_simulations=20, selection="puct", root_noise=(0.3, 0.25)),
    "mcts-graph": planvec.MCTS(num_simulations=40, transpositions="observation", backup="max"),
    "mcts-values": planvec.MCTS(num_simulations=20, value_fn=lambda seen: np.zeros(len(_first(seen)))),
    "swarm": planvec.Swarm(num_walkers=8, num_iterations=6),
    "swarm-wave": planvec.SwarmWave(num_walkers=8, num_iterations=20),
    "rollout-iw": planvec.RolloutIW(num_simulations=40),
    "iw": planvec.IW(num_simulations=40),
    "random-shooting": planvec.RandomShooting(num_trajectories=8, horizon=6),
    "cem": planvec.CEM(num_trajectories=8, horizon=6, num_elites=3, num_iterations=2),
    "cem-dt": planvec.CEM(num_trajectories=8, horizon=6, num_elites=3, num_iterations=2, dt=2),
}


def _first(seen: Any) -> Any:
    return seen["cells"] if isinstance(seen, dict) else seen


class Cells(gymnasium.Env[Any, Any]):
    """Marks cells, each once: another mark raises.

    Args:
        form: How the mask is reported: "int8", "bool", "list", "observation", "steps" (in the infos of steps
            alone), or "" (not at all).
        start: The number of the first action.
        chance: Whether a further cell is marked at random after each action.
    """

    def __init__(self, form: str = "int8", *, start: int = 0, chance: bool = False) -> None:
        self.action_space = spaces.Discrete(7, start=start)
        cells = spaces.Box(0, 1, (7,), np.int8)
        self.form, self.chance = form, chance
        self.observation_space: Any = cells
        if form == "observation":
            self.observation_space = spaces.Dict({"cells": cells, "action_mask": spaces.MultiBinary(7)})
        self.cells = np.zeros(7, np.int8)

    def _result(self, is_reset: bool = False) -> Any:
        mask, seen = 1 - self.cells, self.cells.copy()
        if self.form == "observation":
            return {"cells": seen, "action_mask": mask}, {}
        if not self.form or (is_reset and self.form == "steps"):
            return seen, {}
        forms: dict[str, Any] = {"bool": mask.astype(bool), "list": mask.tolist()}
        return seen, {"action_mask": forms.get(self.form, mask)}

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        super().reset(seed=seed)
        self.cells = np.zeros(7, np.int8)
        return self._result(is_reset=True)

    def step(self, action: Any) -> Any:
        cell = int(action) - int(self.action_space.start)
        if self.cells[cell]:
            raise ValueError("illegal move")
        self.cells[cell] = 1
        free = np.flatnonzero(self.cells == 0)
        if self.chance and len(free):
            self.cells[self.np_random.choice(free)] = 1
        seen, info = self._result()
        return seen, cell * float(self.cells.sum()), bool(self.cells.all()), False, info


class CellsCodec(planvec.Codec):
    """Saves the cells as a record, to which the mask that infos report is added."""

    dtype = np.dtype([("cells", "i1", 7)])

    def get(self, env: Any) -> Any:
        return (env.cells.copy(),)

    def set(self, env: Any, value: Any) -> None:
        env.cells = value[0].copy()


class MaskCodec(CellsCodec):
    """Gives the mask itself."""

    dtype = np.dtype([("cells", "i1", 7), ("action_mask", "?", 7)])

    def get(self, env: Any) -> Any:
        return env.cells.copy(), env.cells == 0

    def set(self, env: Any, value: Any) -> None:
        env.cells = np.array(value[0], np.int8)


class Parts(gymnasium.Env[Any, Any]):
    """Takes several numbers at once; each value of each number once.

    Args:
        space: MultiDiscrete or MultiBinary.
        as_tuple: Whether the mask is a tuple of arrays, instead of one after another.
    """

    def __init__(self, space: Any, as_tuple: bool = False) -> None:
        self.action_space, self.as_tuple = space, as_tuple
        is_binary = isinstance(space, spaces.MultiBinary)
        self.sizes = [2] * int(space.n) if is_binary else space.nvec.tolist()
        self.low = np.zeros(len(self.sizes), int) if is_binary else space.start
        self.observation_space = spaces.Box(0, 9, (len(self.sizes),), np.int64)

    def _info(self) -> Any:
        parts = tuple(
            np.array([v not in taken for v in range(size)])
            for size, taken in zip(self.sizes, self.taken, strict=True)
        )
        return {"action_mask": parts if self.as_tuple else np.concatenate(parts)}

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        super().reset(seed=seed)
        self.taken: list[list[int]] = [[] for _ in self.sizes]
        return np.zeros(len(self.sizes), np.int64), self._info()

    def step(self, action: Any) -> Any:
        values = (np.asarray(action) - self.low).tolist()
        for value, taken in zip(values, self.taken, strict=True):
            if value in taken:
                raise ValueError(f"illegal move {action}")
            taken.append(value)
        ended = len(self.taken[0]) == min(self.sizes)
        return np.array(values), float(sum(values)), ended, False, self._info()


def make(num_workers: int = 0, codec: Any = None, **options: Any) -> planvec.BatchEnv:
    return planvec.make(lambda: Cells(**options), num_workers=num_workers, codec=codec)


@pytest.mark.parametrize("codec", slow_after(1, [None, MaskCodec, "replay", CellsCodec]))
@pytest.mark.parametrize("name", PLANNERS)
def test_every_planner_obeys_masks_in_whole_episodes(name: str, codec: Any) -> None:
    env = make(codec=codec, form="" if codec is MaskCodec else "int8")
    episode = planvec.run_episode(env, PLANNERS[name], seed=0)
    assert episode.terminated
    assert sorted(episode.actions) == list(range(7))


@pytest.mark.parametrize(
    "options",
    slow_after(2, [{"form": "bool"}, {"form": "list"}, {"form": "observation"}, {"start": 1}]),
    ids=str,
)
@pytest.mark.parametrize("name", slow_after(1, ["mcts", "swarm", "rollout-iw", "cem"]))
def test_masks_have_many_forms(name: str, options: Any) -> None:
    episode = planvec.run_episode(make(**options), PLANNERS[name], seed=0)
    assert sorted(episode.actions) == [options.get("start", 0) + cell for cell in range(7)]


@pytest.mark.parametrize("codec", slow_after(1, [None, "replay", CellsCodec]))
@pytest.mark.parametrize("name", ["mcts", "swarm", "random-shooting", "iw"])
def test_masks_may_be_reported_by_steps_alone(name: str, codec: Any) -> None:
    assert planvec.run_episode(make(codec=codec, form="steps"), PLANNERS[name], seed=0).terminated


@pytest.mark.parametrize("name", slow_after(4, PLANNERS))
def test_every_planner_obeys_masks_that_depend_on_chance(name: str) -> None:
    for seed in range(2):
        assert planvec.run_episode(make(chance=True), PLANNERS[name], seed=seed).terminated


@pytest.mark.parametrize("as_tuple", [False, True])
@pytest.mark.parametrize(
    "space",
    slow_after(
        2,
        [
            spaces.MultiDiscrete([3, 4]),
            spaces.MultiDiscrete([2, 2]),
            spaces.MultiDiscrete([3, 5], start=[1, -2]),
            spaces.MultiDiscrete([5, 6, 7, 8]),  # too many to list
            spaces.MultiBinary(3),
        ],
    ),
    ids=str,
)
@pytest.mark.parametrize(
    "name", ["mcts", "mcts-no-rollouts", "swarm", "rollout-iw", "random-shooting", "cem"]
)
def test_each_number_of_an_action_has_a_mask(name: str, space: Any, as_tuple: bool) -> None:
    if name == "rollout-iw" and space == spaces.MultiDiscrete([5, 6, 7, 8]):
        return
    env = planvec.make(lambda: Parts(space, as_tuple), num_workers=0)
    episode = planvec.run_episode(env, PLANNERS[name], seed=0)
    assert episode.terminated
    assert all(len(set(column)) == len(column) for column in episode.actions.T.tolist())
    assert env.rollout_batch(np.repeat(env.reset(seed=0).state, 20), 9, action_seed=1).terminated.all()


@pytest.mark.parametrize("codec", [None, "replay", MaskCodec], ids=str)
def test_rollouts_draw_every_legal_action_equally_often(codec: Any) -> None:
    env = make(codec=codec)
    state = env.step_batch([2], dt=1).new_states
    rollouts = env.rollout_batch(np.repeat(state, 3000), 1, action_seed=5)
    counts = np.bincount(rollouts.returns.astype(int) // 2, minlength=7)
    assert counts[2] == 0
    np.testing.assert_allclose(counts[counts > 0], 500, atol=80)
    assert env.rollout_batch(np.repeat(state, 50), 20, action_seed=6).terminated.all()


@pytest.mark.parametrize("num_workers", [1, pytest.param(2, marks=pytest.mark.slow)])
def test_legal_actions_do_not_depend_on_the_number_of_workers(num_workers: int) -> None:
    here = make(chance=True)
    with make(num_workers, chance=True) as there:
        outs = [
            env.rollout_batch(np.repeat(env.reset(seed=3).state, 33), 6, action_seed=4, seeds=np.arange(33))
            for env in (here, there)
        ]
        assert outs[0].final_states.tolist() == outs[1].final_states.tolist()
        for planner in PLANNERS.values():
            plans = [planner.plan(env, env.reset(seed=1).state, seed=2) for env in (here, there)]
            assert plans[0].action == plans[1].action
            assert plans[0].best_actions.tolist() == plans[1].best_actions.tolist()
            np.testing.assert_array_equal(plans[0].visit_counts, plans[1].visit_counts)


@pytest.mark.parametrize(
    "name", slow_after(3, ["random-shooting", "cem", "cem-dt", "swarm", "swarm-wave", "mcts-no-rollouts"])
)
def test_best_actions_lead_to_the_best_return(name: str) -> None:
    env = make(codec=MaskCodec)
    plan = PLANNERS[name].plan(env, env.reset(seed=0).state, seed=3)
    states, total = np.array([env.get_state()]), 0.0
    for action, dt in zip(plan.best_actions, plan.best_num_steps.tolist(), strict=True):
        out = env.step_batch([action], states, dt)
        assert out.infos["num_steps"] == dt
        states, total = out.new_states, total + out.rewards[0]
    assert total == plan.best_return


@pytest.mark.parametrize("codec", [None, "replay", MaskCodec], ids=str)
def test_repeating_ends_where_an_action_has_become_illegal(codec: Any) -> None:
    env = make(codec=codec)
    assert env.step_batch([3, 4], dt=[5, 1]).infos["num_steps"].tolist() == [1, 1]
    with pytest.raises(planvec.EnvError, match="illegal move"):
        env.step_batch([3], env.step_batch([3]).new_states)


def test_states_keep_masks_without_infos_and_in_files(tmp_path: Path) -> None:
    env = planvec.make(Cells, num_workers=0, info_keys=())
    for name in ("mcts-no-rollouts", "swarm", "rollout-iw"):
        plan = PLANNERS[name].plan(env, env.step_batch([1]).new_states, seed=0)
        save_plan(tmp_path / name, plan, env)
        loaded = load_plan(tmp_path / name, env)
        assert [state.action_mask for state in loaded.search_data.saved_states] == [
            state.action_mask for state in plan.search_data.saved_states
        ]
    tree = load_plan(tmp_path / "mcts-no-rollouts", env).search_data
    assert planvec.MCTS(num_simulations=20, rollout_horizon=0).resume(env, tree, seed=1).visit_counts[1] == 0


@pytest.mark.parametrize("repeat", [0.0, 0.95])
@pytest.mark.parametrize("chance", [False, True])
def test_the_explorer_obeys_masks(repeat: float, chance: bool) -> None:
    explorer = planvec.Explorer(
        num_explorers=6, num_steps=8, repeat=repeat, planner=PLANNERS["random-shooting"]
    )
    archive = explorer.run(make(chance=chance), seed=0, max_rounds=3)
    assert archive.num_cells > 10


def test_wrappers_and_several_roots_obey_masks() -> None:
    def wrapped() -> gymnasium.Env[Any, Any]:
        return gymnasium.wrappers.FrameStackObservation(gymnasium.wrappers.TimeLimit(Cells(), 5), 2)

    env = planvec.make(wrapped, num_workers=0)
    states = env.step_batch([0, 1, 2]).new_states
    for planner in PLANNERS.values():
        for row, plan in enumerate(planner.plan_batch(env, states, seeds=[1, 2, 3])):
            assert plan.action != row


class Wrong(Cells):
    """Reports what is no mask, from a step on."""

    def __init__(self, mask: Any, at_reset: bool) -> None:
        super().__init__()
        self.mask, self.at_reset = mask, at_reset

    def _result(self, is_reset: bool = False) -> Any:
        seen, info = super()._result()
        return seen, {"action_mask": self.mask} if is_reset == self.at_reset else info


@pytest.mark.parametrize(
    "mask",
    [
        np.ones(6),
        np.full(7, 2),
        np.ones((2, 7)),
        ["a"] * 7,
        {"player": 1},
        [[1], [1, 1]],
        1,
        np.full(7, np.nan),
    ],
)
def test_what_is_no_mask_is_named(mask: Any) -> None:
    message = r"info\['action_mask'\]: expected 7 zeros and ones.*Discrete\(7\).*got"
    with pytest.raises(planvec.PlanvecError, match=message):
        planvec.make(lambda: Wrong(mask, at_reset=True), num_workers=0)
    env = planvec.make(lambda: Wrong(mask, at_reset=False), num_workers=0)
    with pytest.raises(planvec.EnvError, match=message):
        env.step_batch([0])


def test_a_mask_that_allows_nothing_is_named() -> None:
    env = planvec.make(lambda: Wrong(np.zeros(7), at_reset=False), num_workers=0)
    with pytest.raises(planvec.EnvError, match="at least one where the episode goes on, got zeros"):
        PLANNERS["swarm"].plan(env, seed=0)


def test_a_field_that_is_no_mask_is_named() -> None:
    class Floats(MaskCodec):
        dtype = np.dtype([("cells", "i1", 7), ("action_mask", "f8", 7)])

    with pytest.raises(planvec.UnsupportedEnvError, match="expected a field 'action_mask' of 7 bools"):
        PLANNERS["swarm"].plan(make(codec=Floats), seed=0)


def test_an_open_loop_is_refused() -> None:
    with pytest.raises(planvec.UnsupportedEnvError, match="chance: expected 'sample' where states tell"):
        planvec.MCTS(chance="open_loop").plan(make(chance=True), seed=0)


@pytest.mark.parametrize("num_workers", [0, 1])
@pytest.mark.parametrize("name", slow_after(1, ["mcts", "swarm", "cem", "rollout-iw"]))
def test_an_error_that_looks_like_an_illegal_action_tells_about_masks(name: str, num_workers: int) -> None:
    with (
        make(num_workers, form="") as env,
        pytest.raises(planvec.EnvError, match=r"ValueError: illegal move.*report info\['action_mask'\]"),
    ):
        PLANNERS[name].plan(env, seed=0)


def test_an_error_where_a_mask_is_missing_tells_that_all_actions_are_legal() -> None:
    class Forgets(Cells):
        def step(self, action: Any) -> Any:
            *outcome, _ = super().step(action)
            return *outcome, {}

    with pytest.raises(planvec.EnvError, match=r"illegal move.*reported none, which allows all actions"):
        PLANNERS["mcts"].plan(planvec.make(Forgets, num_workers=0), seed=0)


def test_an_error_of_another_kind_or_beside_a_mask_has_no_hint() -> None:
    with pytest.raises(planvec.EnvError, match="illegal move$"):
        make().step_batch([3, 3], make().step_batch([3, 3]).new_states)


def test_environments_that_raise_on_illegal_actions_are_verified_deep_into_their_episodes() -> None:
    class Late(Cells):
        """Has a clock that no copy restores, which only the last mark shows."""

        def step(self, action: Any) -> Any:
            seen, reward, ended, truncated, info = super().step(action)
            _clock[0] += 1
            return seen, reward + _clock[0] * ended, ended, truncated, info

    with pytest.raises(planvec.UnsupportedEnvError):
        planvec.make(Late, num_workers=0)


_clock = [0]


@pytest.mark.parametrize("num_workers", [0, 1])
def test_vector_environments_save_environments_that_raise_on_illegal_actions(num_workers: int) -> None:
    envs = planvec.vector.AsyncVectorEnv([Cells] * 2, num_workers=num_workers)
    try:
        envs.reset(seed=0)
        states = envs.get_states()
        expected = envs.step(np.array([1, 2]))
        envs.set_states(states)
        got = envs.step(np.array([1, 2]))
    finally:
        envs.close()
    assert (got[4]["action_mask"] == expected[4]["action_mask"]).all()
    assert expected[4]["action_mask"].tolist() == [[1, 0, 1, 1, 1, 1, 1], [1, 1, 0, 1, 1, 1, 1]]


class Pile(gymnasium.Env[Any, Any]):
    """Takes 1 to 3 stones from a pile, which has to have them, and never as many as before."""

    observation_space = spaces.Box(0, 100, (2,), np.int64)
    action_space = spaces.Discrete(3)

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        super().reset(seed=seed)
        self.left, self.num_wrong = 60, 0
        self.action_mask = np.array([True, True, True])
        return np.array([self.left, self.num_wrong]), {}

    def step(self, action: Any) -> Any:
        self.num_wrong += 1 - int(self.action_mask[action])
        self.left = self.left - 1 - int(action)
        self.action_mask = np.array(
            [action != 0, self.left > 1 and action != 1, self.left > 2 and action != 2]
        )
        return np.array([self.left, self.num_wrong]), float(action), self.left < 2, False, {}


def take(state: Any, action: Any) -> Any:
    """The step of `Pile`."""
    left, num_wrong, mask = state
    num_wrong = num_wrong + 1 - int(mask[action])
    left = left - 1 - action
    mask = (action != 0, left > 1 and action != 1, left > 2 and action != 2)
    return (left, num_wrong, mask), float(action), left < 2


planvec.kernel(Pile, state=("left", "num_wrong", "action_mask"), observe=lambda state: (state[0], state[1]))(
    take
)


@pytest.mark.slow
@pytest.mark.parametrize(
    "name", ["mcts", "mcts-no-rollouts", "mcts-dt", "swarm", "random-shooting", "rollout-iw"]
)
def test_compiled_environments_with_masks_give_the_same_plans(name: str) -> None:
    plans = []
    for compiled in (True, False):
        with planvec.make(Pile, num_workers=0, compiled=compiled) as env:
            state = env.reset(seed=0).state
            ends = env.rollout_batch(np.repeat(state, 20), 100, action_seed=1)
            assert (ends.final_states["num_wrong"] == 0).all()
            assert ends.terminated.all()
            plans.append(PLANNERS[name].plan(env, state, seed=1))
            saved = plans[-1].search_data.saved_states
            assert len(saved) == 0 or (saved["num_wrong"] == 0).all()
            assert env.step_batch([1], np.array([state]), dt=4).infos["num_steps"] == 1
    assert plans[0].visit_counts.tolist() == plans[1].visit_counts.tolist()
    assert plans[0].best_actions.tolist() == plans[1].best_actions.tolist()


def test_environments_that_raise_on_illegal_actions_are_exact_by_the_check() -> None:
    report = planvec.checking.check_env(Cells, num_steps=40, num_restores=4, num_children=2)
    assert report.exact, str(report)
