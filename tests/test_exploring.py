"""Explorer and archive, against breadth-first search, and against runs that were not interrupted."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import threading
import zipfile
from collections import deque
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest
from environments import Warehouse
from gymnasium import spaces
from own_environments import Line

import planvec
from planvec import Archive, Downscaled, Explorer
from planvec.errors import EnvError, InvalidBatchError, UnsupportedEnvError
from planvec.exploring import archive as archive_module

COLUMNS = ("keys", "scores", "num_steps", "num_visits", "num_choices", "first_visits", "ended")
LAKE: dict[str, Any] = {"map_name": "8x8", "is_slippery": False}
QUICK = Explorer(num_explorers=8, num_steps=20)


def assert_same_archives(one: Archive, other: Archive) -> None:
    """Compare all that an exploration determines."""
    for name in COLUMNS:
        assert getattr(one, name).tobytes() == getattr(other, name).tobytes(), name
    every = np.arange(one.num_cells)
    pairs = zip(one.states(every), other.states(every), strict=True)
    assert all(bytes(state) == bytes(same) for state, same in pairs)
    assert all(one.actions(cell).tobytes() == other.actions(cell).tobytes() for cell in every)
    assert one.history.tobytes() == other.history.tobytes()
    assert one.num_env_steps == other.num_env_steps
    assert one.generator.bit_generator.state == other.generator.bit_generator.state


def lives(archive: Archive) -> Any:
    return archive.store["lives"]


def lives_at(env: planvec.BatchEnv, archive: Archive) -> Any:
    """Return what the game itself says at the state of each cell."""
    return env.call("ale.lives", archive.states(np.arange(archive.num_cells))).tolist()


# -- cells ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("shape", [(210, 160, 3), (210, 160), (33, 47, 3)])
def test_downscaled_cells_are_the_mean_grey_of_parts_of_an_image(shape: tuple[int, ...]) -> None:
    pixels = np.random.default_rng(0).integers(256, size=(4, *shape), dtype=np.uint8)
    pixels[1], pixels[2] = 255, 0
    cells = Downscaled(width=11, height=8, levels=5)(pixels)
    assert cells.shape == (4, 88)
    assert cells.dtype == np.uint8
    wide = pixels.astype(np.int64)
    grey = wide @ np.array([299, 587, 114]) if len(shape) == 3 else wide * 1000
    for row in range(8):
        for column in range(11):
            part = grey[
                :,
                row * shape[0] // 8 : (row + 1) * shape[0] // 8,
                column * shape[1] // 11 : (column + 1) * shape[1] // 11,
            ].reshape(4, -1)
            expected = part.sum(axis=1) * 5 // (part.shape[1] * 256_000)
            assert cells[:, row * 11 + column].tolist() == expected.tolist()
    assert set(cells[1]) == {4}
    assert set(cells[2]) == {0}


@pytest.mark.parametrize(
    ("cells", "observations", "message"),
    [
        (Downscaled(), np.zeros((2, 4)), "expected images"),
        (Downscaled(width=40), np.zeros((2, 36, 36), np.uint8), "at least 8 x 40"),
    ],
)
def test_downscaled_refuses_what_is_no_image(cells: Any, observations: Any, message: str) -> None:
    with pytest.raises(InvalidBatchError, match=message):
        cells(observations)


# -- exploring ------------------------------------------------------------------------------------------


def distances_of_lake() -> dict[int, int]:
    """Return the shortest number of steps to each place of the lake, by breadth-first search."""
    with gymnasium.make("FrozenLake-v1", **LAKE) as env:
        table: Any = env.unwrapped
        distances, queue = {0: 0}, deque([0])
        while queue:
            place = queue.popleft()
            for action in range(4):
                ((_, other, _, ended),) = table.P[place][action]
                if other not in distances:
                    distances[other] = distances[place] + 1
                    if not ended:
                        queue.append(other)
    return distances


def test_every_place_is_reached_by_the_shortest_trajectory() -> None:
    with planvec.make("FrozenLake-v1", num_workers=0, env_kwargs=LAKE) as env:
        archive = Explorer(num_steps=20, repeat=0.0).run(env, seed=0, max_rounds=40)
        lengths = dict(zip(archive.keys[:, 0].tolist(), archive.num_steps.tolist(), strict=True))
        assert lengths == distances_of_lake()
        assert archive.scores[archive.keys[:, 0] == 63] == 1
        assert archive.best == int(np.flatnonzero(archive.keys[:, 0] == 63)[0])
        assert archive.keys[archive.ended, 0].tolist()
        assert (archive.num_choices[archive.ended] == 0).all()
        assert archive.num_visits.sum() == archive.num_env_steps + 1
        episode = archive.episode(env)
        assert (episode.num_steps, episode.total_return, episode.terminated) == (14, 1.0, True)
        assert archive.first_visits.max() <= archive.num_env_steps


def test_trajectories_replay_in_gymnasium() -> None:
    with planvec.make("MountainCar-v0", num_workers=0) as env:
        archive = Explorer(num_steps=50).run(env, seed=3, max_rounds=15)
        goal = int(np.flatnonzero(archive.ended)[0])
    with gymnasium.make("MountainCar-v0") as plain:
        plain.reset(seed=3)
        outs = [plain.step(action) for action in archive.actions(goal)]
    assert [out[2] for out in outs] == [False] * (len(outs) - 1) + [True]
    assert sum(float(out[1]) for out in outs) == archive.scores[goal]


def test_random_steps_are_replayed_with_their_seeds() -> None:
    with planvec.make("FrozenLake-v1", num_workers=0) as env:
        archive = QUICK.run(env, seed=0, max_rounds=20)
        for cell in range(archive.num_cells):
            episode = archive.episode(env, cell)
            assert episode.total_return == archive.scores[cell]
            assert episode.observations[-1] == archive.keys[cell, 0]


SLOW = pytest.mark.slow
SHOOTING = planvec.RandomShooting(num_trajectories=20, horizon=8)


@pytest.mark.parametrize(
    ("env_id", "options", "explorer"),
    [
        ("MountainCar-v0", {}, Explorer(num_steps=30)),
        ("FrozenLake-v1", {}, QUICK),
        pytest.param("Pendulum-v1", {}, QUICK, marks=SLOW),
        pytest.param(
            *("MiniGrid-DoorKey-5x5-v0", {}, Explorer(num_explorers=5, num_steps=20, repeat=0.0)), marks=SLOW
        ),
        pytest.param(
            *("ALE/Boxing-v5", {"frameskip": 4}, Explorer(num_explorers=6, num_steps=40)), marks=SLOW
        ),
        pytest.param(
            *("CartPole-v1", {}, Explorer(num_explorers=4, num_steps=20, planner=SHOOTING)), marks=SLOW
        ),
    ],
)
def test_an_archive_does_not_depend_on_the_number_of_workers(
    env_id: str, options: dict[str, Any], explorer: Explorer
) -> None:
    archives = []
    for num_workers in (0, 1, 3):
        with planvec.make(env_id, num_workers=num_workers, env_kwargs=options) as env:
            archives.append(explorer.run(env, seed=1, max_rounds=4))
    assert archives[0].num_cells > 10
    assert_same_archives(archives[0], archives[1])
    assert_same_archives(archives[0], archives[2])


@pytest.mark.slow
def test_a_worker_that_is_killed_changes_nothing() -> None:
    with planvec.make("MountainCar-v0", num_workers=2, compiled=False) as env:
        expected = QUICK.run(env, seed=0, max_rounds=10)

        def kill(archive: Archive) -> None:
            if len(archive.history) in (3, 6):
                os.kill(env.workers[0].pid, signal.SIGKILL)

        assert_same_archives(expected, QUICK.run(env, seed=0, max_rounds=10, callback=kill))
        assert env.stats.restarts == 2


@pytest.mark.slow
def test_a_lost_life_ends_a_trajectory() -> None:
    explorer = Explorer(num_explorers=4, num_steps=80, repeat=0.0, end_on_life_loss=True)
    options = {"frameskip": 15, "repeat_action_probability": 0.0}
    with planvec.make("ALE/Breakout-v5", num_workers=2, info_keys=("lives",), env_kwargs=options) as env:
        archive = explorer.run(env, seed=0, max_rounds=2)
        assert set(lives(archive)) == {5.0}
        assert set(lives_at(env, archive)) == {5}
        every = Explorer(num_explorers=4, num_steps=80, repeat=0.0).run(env, seed=0, max_rounds=2)
        assert set(lives_at(env, every)) > {5}


@pytest.mark.slow
def test_a_planner_chooses_the_first_actions_from_each_cell() -> None:
    planner = planvec.IW(num_simulations=400)
    with planvec.make("MiniGrid-DoorKey-5x5-v0", num_workers=0) as env:
        explorer = Explorer(num_explorers=2, num_steps=15, planner=planner, repeat=0.0)
        archive = explorer.run(env, seed=0, max_rounds=1)
        assert archive.scores.max() > 0
        random = Explorer(num_explorers=2, num_steps=15, repeat=0.0).run(env, seed=0, max_rounds=1)
        assert random.scores.max() == 0
        assert archive.num_env_steps > random.num_env_steps == 30


def test_weights_choose_the_cells() -> None:
    def only_the_start(archive: Archive) -> Any:
        return np.arange(archive.num_cells) == 0

    with planvec.make("MountainCar-v0", num_workers=0) as env:
        archive = Explorer(num_steps=10, weights=only_the_start).run(env, seed=0, max_rounds=5)
    assert archive.num_choices[0] == 5 * 64
    assert archive.num_choices[1:].sum() == 0
    assert archive.num_steps.max() <= 10


def test_a_step_that_raises_ends_a_trajectory_if_errors_are_masked() -> None:
    explorer = Explorer(num_explorers=4, num_steps=20, on_error="mask")
    with planvec.PlanEnv(Cliff) as env:
        archive = explorer.run(env, seed=0, max_rounds=5)
        assert set(archive.keys[:, 0].tolist()) == set(range(-8, 4))
        with pytest.raises(EnvError, match="fell"):
            QUICK.run(env, seed=0, max_rounds=5)


class Cliff(Line):
    """A line from -8 to 3, beyond which the step raises."""

    low = -8

    def step(self, action: Any) -> Any:
        out = super().step(action)
        if self.place > 3:
            raise RuntimeError("fell")
        return out


# -- limits and errors ------------------------------------------------------------------------------------


def test_budgets_end_an_exploration_after_a_round() -> None:
    with planvec.make("CartPole-v1", num_workers=0) as env:
        assert QUICK.run(env, seed=0, max_env_steps=500).num_env_steps == 640
        assert len(QUICK.run(env, seed=0, max_seconds=1e-9).history) == 0
        assert len(QUICK.run(env, seed=0, callback=lambda archive: True).history) == 1
        with pytest.raises(InvalidBatchError, match="max_env_steps: expected a limit"):
            QUICK.run(env, seed=0)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"num_explorers": 0}, "num_explorers: expected an integer of at least 1, got 0"),
        ({"num_steps": 1.5}, "num_steps: expected an integer of at least 1, got 1.5"),
        ({"repeat": 2}, "repeat: expected a number from 0 to 1, got 2"),
        ({"cells": 3}, "cells: expected a function or None, got 3"),
        ({"weights": Explorer}, "weights: expected a function or None"),
        ({"planner": "mcts"}, "planner: expected a planvec.Planner or None, got 'mcts'"),
        ({"on_error": "skip"}, 'on_error: expected "raise" or "mask", got \'skip\''),
    ],
)
def test_wrong_settings_are_named(arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message.replace("(", r"\(")):
        Explorer(**arguments)


def test_wrong_functions_are_named() -> None:
    with planvec.make("CartPole-v1", num_workers=0) as env:
        for cells in (
            lambda observations: observations,
            lambda observations: np.zeros(3, np.int64),
            lambda observations: np.zeros((len(observations), 0), np.int64),
            lambda observations: np.zeros((len(observations) + 1, 2), np.int64),
            lambda observations: [[1]] * (len(observations) - 1) + [[1, 2]],
        ):
            with pytest.raises(InvalidBatchError, match="cells: expected a function that returns integers"):
                Explorer(cells=cells).run(env, seed=0, max_rounds=1)
        with pytest.raises(
            InvalidBatchError, match=r"got float32 of shape \(1, 4\); end it with \.astype\(int\)"
        ):
            Explorer(cells=np.floor).run(env, seed=0, max_rounds=1)
        for weights in (lambda archive: np.ones(3), lambda archive: -np.ones(archive.num_cells)):
            with pytest.raises(
                InvalidBatchError, match="weights: expected a function that returns numbers of"
            ):
                Explorer(weights=weights).run(env, seed=0, max_rounds=1)
        with pytest.raises(InvalidBatchError, match="weights: expected a cell with a weight above 0"):
            Explorer(weights=lambda archive: np.zeros(archive.num_cells)).run(env, seed=0, max_rounds=1)


def test_an_environment_that_is_not_opened_is_named(tmp_path: Path) -> None:
    with pytest.raises(TypeError, match=r"got the id 'CartPole-v1'; open it with planvec\.make"):
        Explorer().run("CartPole-v1", max_rounds=1)  # type: ignore[arg-type]
    with planvec.make("CartPole-v1", num_workers=0) as env:
        Explorer(num_steps=2).run(env, seed=0, max_rounds=1, path=tmp_path / "archive")
    with pytest.raises(TypeError, match=r"env: expected an environment .* open it with planvec\.PlanEnv"):
        Archive.load(tmp_path / "archive", gymnasium.make("CartPole-v1"))


def test_actions_that_cannot_be_drawn_are_refused() -> None:
    class Unbounded(gymnasium.Wrapper[Any, Any, Any, Any]):
        def __init__(self, env: Any) -> None:
            super().__init__(env)
            self.action_space = spaces.Box(-np.inf, np.inf, (1,))

    unbounded = planvec.PlanEnv(lambda: Unbounded(gymnasium.make("Pendulum-v1")))
    with unbounded as env, pytest.raises(UnsupportedEnvError, match="action_space: expected Discrete"):
        QUICK.run(env, seed=0, max_rounds=1)


def test_a_cell_that_is_not_there_is_named() -> None:
    with planvec.make("CartPole-v1", num_workers=0) as env:
        archive = QUICK.run(env, seed=0, max_rounds=1)
        for wrong in (-1, archive.num_cells):
            with pytest.raises(IndexError, match=f"expected an integer from 0 to {archive.num_cells - 1}"):
                archive.actions(wrong)
            with pytest.raises(IndexError, match="cells: expected integers from 0"):
                archive.states([wrong])
        with pytest.raises(ValueError, match="read-only"):
            archive.scores[0] = 1.0


# -- files ------------------------------------------------------------------------------------------------


def test_an_interrupted_exploration_ends_with_the_same_bits(tmp_path: Path) -> None:
    explorer = Explorer(num_steps=20)
    with planvec.make("MountainCar-v0", num_workers=0) as env:
        expected = explorer.run(env, seed=5, max_rounds=30)
        for rounds in (1, 2, 9, 10, 25, 30):
            explorer.run(env, seed=5, max_rounds=rounds, path=tmp_path / "archive", save_seconds=0)
        loaded = explorer.run(env, max_rounds=30, path=tmp_path / "archive")
        assert_same_archives(expected, loaded)
        assert not loaded.was_replayed


_PARENT = """
import planvec
with planvec.make("FrozenLake-v1", num_workers=2, env_kwargs={{"map_name": "8x8"}}) as env:
    planvec.Explorer(num_explorers=8, num_steps=20).run(
        env,
        seed=2,
        max_rounds=60,
        path={path!r},
        save_seconds=0,
        callback=lambda archive: print(len(archive), flush=True),
    )
"""


@pytest.mark.slow
def test_a_process_that_is_killed_leaves_a_whole_archive(tmp_path: Path) -> None:
    path, options = tmp_path / "archive", {"map_name": "8x8"}
    with planvec.make("FrozenLake-v1", num_workers=0, env_kwargs=options) as env:
        expected = QUICK.run(env, seed=2, max_rounds=60)
        for num_lines in (3, 9, 15):
            with subprocess.Popen(
                [sys.executable, "-c", _PARENT.format(path=str(path))], stdout=subprocess.PIPE, text=True
            ) as parent:
                assert parent.stdout is not None
                for _ in range(num_lines):
                    parent.stdout.readline()
                parent.send_signal(signal.SIGKILL)
            assert 0 < len(Archive.load(path, env).history) < 60
        assert_same_archives(expected, QUICK.run(env, max_rounds=60, path=path))


def test_a_save_forgets_steps_that_lead_to_no_cell_and_replaces_the_file(tmp_path: Path) -> None:
    path, explorer = tmp_path / "archive", Explorer(num_explorers=8, num_steps=60)
    with planvec.make("MountainCar-v0", num_workers=0) as env:
        explorer.run(env, seed=0, max_rounds=2, path=path)
        (path / ".archive-0123abcd.npz").write_bytes(b"left by a process that was killed")
        archive = explorer.run(env, max_rounds=40, path=path, save_seconds=0)
        assert [file.name for file in path.iterdir()] == ["archive.npz"]
        never_saved = explorer.run(env, seed=0, max_rounds=40)
        assert len(archive.steps) < len(never_saved.steps)
        assert archive.steps.ancestors_of(archive.store["nodes"]).all()
        assert_same_archives(archive, never_saved)


def test_large_archives_are_saved_less_often(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    save, seconds, saved_at = Archive.save, [0.0], []

    def slow_save(archive: Archive, path: Path) -> None:
        saved_at.append(seconds[0])
        save(archive, path)
        seconds[0] += 2.0

    def one_second_later(archive: Archive) -> None:
        seconds[0] += 1.0

    monkeypatch.setattr(Archive, "save", slow_save)
    monkeypatch.setattr("planvec.exploring.explorer.time.perf_counter", lambda: seconds[0])
    with planvec.make("CartPole-v1", num_workers=0) as env:
        Explorer(num_explorers=2, num_steps=2).run(
            env, seed=0, max_rounds=60, path=tmp_path, save_seconds=5, callback=one_second_later
        )
    assert saved_at == [0.0, 5.0, 25.0, 45.0, 65.0, 70.0]


def test_files_hold_no_pickles(tmp_path: Path) -> None:
    with planvec.make("ALE/Freeway-v5", num_workers=0) as env:
        Explorer(num_explorers=4, num_steps=5).run(env, seed=0, max_rounds=1, path=tmp_path / "archive")
    for file in (tmp_path / "archive").glob("*.npz"):
        with np.load(file, allow_pickle=False) as arrays:
            assert len([arrays[name] for name in arrays]) > 1


def test_states_of_variable_size_are_kept(tmp_path: Path) -> None:
    with planvec.PlanEnv(Warehouse) as env:
        assert env.state_dtype.hasobject
        explorer = Explorer(num_explorers=4, num_steps=10)
        archive = explorer.run(env, seed=0, max_rounds=3, path=tmp_path / "archive")
        assert_same_archives(archive, Archive.load(tmp_path / "archive", env))
        again = explorer.run(env, max_rounds=6, path=tmp_path / "archive")
        assert_same_archives(explorer.run(env, seed=0, max_rounds=6), again)


def change_arrays(path: Path, change: Any) -> None:
    with np.load(path / "archive.npz") as arrays:
        changed = {name: arrays[name] for name in arrays}
    change(changed)
    np.savez(path / "archive.npz", **changed)


def change_manifest(path: Path, **changes: Any) -> None:
    def change(arrays: dict[str, Any]) -> None:
        arrays["manifest"] = np.array(json.dumps({**json.loads(str(arrays["manifest"])), **changes}))

    change_arrays(path, change)


@pytest.mark.parametrize("env_id", ["MountainCar-v0", "FrozenLake-v1"])
def test_states_that_do_not_fit_are_computed_again(tmp_path: Path, env_id: str) -> None:
    path = tmp_path / "archive"
    with planvec.make(env_id, num_workers=0) as env:
        archive = Explorer(num_steps=30).run(env, seed=0, max_rounds=8, path=path)
        change_manifest(path, fingerprint="of another version")
        loaded = Archive.load(path, env, cells=lambda observations: keys(env, observations))
        assert loaded.was_replayed
        assert_same_archives(archive, loaded)
        loaded.save(path)
        again = Archive.load(path, env)
        assert not again.was_replayed
        assert_same_archives(archive, again)


def keys(env: Any, observations: Any) -> Any:
    from planvec.exploring.archive import cells_for

    return cells_for(env.observation_space, None)(observations)


def test_states_that_were_changed_are_noticed(tmp_path: Path) -> None:
    path = tmp_path / "archive"
    with planvec.make("CartPole-v1", num_workers=0) as env:
        archive = QUICK.run(env, seed=0, max_rounds=2, path=path)
        change_arrays(path, lambda arrays: arrays.update({"states.0": arrays["states.0"][::-1]}))
        loaded = Archive.load(path, env)
        assert loaded.was_replayed
        assert_same_archives(archive, loaded)


@pytest.mark.slow
def test_another_environment_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "archive"
    with planvec.make("MountainCar-v0", num_workers=0) as env:
        Explorer(num_steps=50).run(env, seed=0, max_rounds=10, path=path)
    with planvec.make("MountainCar-v0", num_workers=0, env_kwargs={"goal_velocity": 0.06}) as other:
        for _ in range(2):
            with pytest.raises(InvalidBatchError, match="lead to other scores, ends or cells, for .* cells"):
                Archive.load(path, other)
            with pytest.raises(InvalidBatchError, match="lead to other scores, ends or cells"):
                Explorer(num_steps=50).run(other, max_rounds=11, path=path)
    with (
        planvec.make("MountainCar-v0", num_workers=0, env_kwargs={"max_episode_steps": 150}) as shorter,
        pytest.raises(InvalidBatchError, match="lead to other scores, ends or cells"),
    ):
        Archive.load(path, shorter)
    with (
        planvec.make("CartPole-v1", num_workers=0) as cart_pole,
        pytest.raises(InvalidBatchError, match=r"env: expected action_space Discrete\(3\), as when"),
    ):
        Archive.load(path, cart_pole)


@pytest.mark.slow
def test_another_environment_is_refused_where_no_reward_tells(tmp_path: Path) -> None:
    path, explorer = tmp_path / "archive", Explorer(num_explorers=4, num_steps=10, repeat=0.0)
    with planvec.make("MiniGrid-DoorKey-6x6-v0", num_workers=0) as env:
        archive = explorer.run(env, seed=0, max_rounds=2, path=path)
        assert archive.scores.max() == 0
    with (
        planvec.make("MiniGrid-Empty-6x6-v0", num_workers=0) as other,
        pytest.raises(InvalidBatchError, match="lead to other scores, ends or cells"),
    ):
        Archive.load(path, other)
    own = Explorer(num_explorers=4, num_steps=10, cells=whole_image)
    with planvec.make("MiniGrid-DoorKey-6x6-v0", num_workers=0) as env:
        own.run(env, seed=0, max_rounds=2, path=tmp_path / "own")
        change_manifest(tmp_path / "own", fingerprint="of another version")
        with pytest.raises(InvalidBatchError, match="cells: expected the function of the exploration"):
            Archive.load(tmp_path / "own", env)
        assert Archive.load(tmp_path / "own", env, cells=whole_image).was_replayed


def whole_image(observations: Any) -> Any:
    return observations["image"].reshape(len(observations["image"]), -1)


def test_other_settings_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "archive"
    with planvec.make("CartPole-v1", num_workers=0) as env:
        archive = QUICK.run(env, seed=0, max_rounds=2, path=path)
        with pytest.raises(InvalidBatchError, match="repeat: expected 0.95, with which the exploration"):
            Explorer(num_explorers=8, num_steps=20, repeat=0.5).run(env, max_rounds=3, path=path)
        with pytest.raises(InvalidBatchError, match="seed: expected 0, with which"):
            QUICK.run(env, seed=1, max_rounds=3, path=path)
        with pytest.raises(InvalidBatchError, match="which holds another archive"):
            QUICK.run(env, seed=0, max_rounds=3).save(path)
        QUICK.run(env, max_rounds=4, path=path)
        with pytest.raises(InvalidBatchError, match="holds a later form of this one, of 640 steps"):
            archive.save(path)


def test_archives_can_be_saved_in_several_places(tmp_path: Path) -> None:
    with planvec.make("CartPole-v1", num_workers=0) as env:
        archive = QUICK.run(env, seed=0, max_rounds=2)
        archive.save(tmp_path / "a")
        archive.save(tmp_path / "b")
        archive.save(tmp_path / "a")
        shutil.move(tmp_path / "b", tmp_path / "c")
        for name in "ac":
            assert_same_archives(archive, Archive.load(tmp_path / name, env))


def damage(path: Path, kind: str) -> None:
    file = path / "archive.npz"
    if kind == "truncated":
        file.write_bytes(file.read_bytes()[:-200])
    elif kind == "flipped":
        data = bytearray(file.read_bytes())
        data[len(data) // 2] ^= 255
        file.write_bytes(bytes(data))
    elif kind == "a header that does not end":
        with zipfile.ZipFile(file) as archive:
            members = {name: archive.read(name) for name in archive.namelist()}
        with zipfile.ZipFile(file, "w") as archive:
            for name, member in members.items():
                archive.writestr(name, member.replace(b"}", b" ", 1))
    elif kind == "missing":
        change_arrays(path, lambda arrays: arrays.pop("states.0"))
    elif kind == "no JSON":
        change_arrays(path, lambda arrays: arrays.update(manifest=np.array("{")))
    elif kind == "no archive":
        np.savez(file, manifest=np.array("[]"))
    elif kind == "a number too large":
        change_manifest(path, seed=2**64)
    elif kind == "a text for a number":
        change_manifest(path, dt="1")
    elif kind == "a later version":
        change_manifest(path, version=99)
    elif kind == "an earlier version":
        (path / "archive.json").write_text("{}")
    elif kind == "nothing":
        shutil.rmtree(path)


@pytest.mark.parametrize(
    ("kind", "message"),
    [
        ("truncated", "which is damaged"),
        ("flipped", "which is damaged"),
        ("a header that does not end", "which is damaged .*expected a NumPy archive"),
        ("missing", "which is damaged"),
        ("no JSON", "which is damaged"),
        ("no archive", "which is damaged or of another kind .*no archive"),
        ("a number too large", "which is damaged .*seed"),
        ("a text for a number", "which is damaged .*dt"),
        ("a later version", "version 2, got .* of version 99"),
        ("an earlier version", "version 2, got .* of version 1, which another planvec wrote"),
        ("nothing", "expected a directory that Archive.save wrote"),
    ],
)
def test_damaged_files_are_named(tmp_path: Path, kind: str, message: str) -> None:
    path = tmp_path / "archive"
    with planvec.make("CartPole-v1", num_workers=0) as env:
        QUICK.run(env, seed=0, max_rounds=2, path=path)
        damage(path, kind)
        with pytest.raises(InvalidBatchError, match=message):
            Archive.load(path, env)


def test_states_of_several_types_are_damage(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(archive_module, "BLOCK", 4)
    with planvec.make("CartPole-v1", num_workers=0) as env:
        QUICK.run(env, seed=0, max_rounds=2, path=tmp_path)
        for other in (np.zeros(4), np.array(["1"] * 4)):
            change_arrays(tmp_path, lambda arrays, other=other: arrays.update({"states.1": other}))
            with pytest.raises(InvalidBatchError, match="which is damaged .*states are of several types"):
                Archive.load(tmp_path, env)


def test_an_archive_that_has_not_changed_is_not_written_again(tmp_path: Path) -> None:
    with planvec.make("CartPole-v1", num_workers=0) as env:
        QUICK.run(env, seed=0, max_rounds=2, path=tmp_path)
        before = (tmp_path / "archive.npz").stat()
        QUICK.run(env, max_rounds=2, path=tmp_path)
        after = (tmp_path / "archive.npz").stat()
        assert (before.st_ino, before.st_mtime_ns) == (after.st_ino, after.st_mtime_ns)


def test_an_archive_can_be_saved_elsewhere_while_it_grows(tmp_path: Path) -> None:
    with planvec.make("MountainCar-v0", num_workers=0) as env:
        archive = Explorer(num_steps=30).run(
            *(env,),
            seed=0,
            max_rounds=12,
            path=tmp_path / "a",
            save_seconds=0,
            callback=lambda archive: archive.save(tmp_path / "b"),
        )
        for name in "ab":
            assert_same_archives(archive, Archive.load(tmp_path / name, env))


def test_a_save_that_fails_spoils_no_other_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:

    def fails(*arguments: Any) -> None:
        raise OSError("no space left")

    def save_elsewhere(archive: Archive) -> None:
        with monkeypatch.context() as patch:
            patch.setattr(archive_module, "write_arrays", fails)
            with pytest.raises(OSError, match="no space"):
                archive.save(tmp_path / "b")

    with planvec.make("MountainCar-v0", num_workers=0) as env:
        archive = Explorer(num_steps=30).run(
            env, seed=0, max_rounds=12, path=tmp_path / "a", save_seconds=0, callback=save_elsewhere
        )
        assert_same_archives(archive, Archive.load(tmp_path / "a", env))


_SECOND = """
import planvec
with planvec.make("CartPole-v1", num_workers=0) as env:
    try:
        planvec.Explorer().run(env, path={path!r}, max_rounds=1)
    except planvec.InvalidBatchError as error:
        print(error)
"""


def test_two_processes_do_not_explore_into_one_directory(tmp_path: Path) -> None:
    said = []

    def second(archive: Archive) -> None:
        command = [sys.executable, "-c", _SECOND.format(path=str(tmp_path))]
        said.append(subprocess.run(command, capture_output=True, text=True, check=True).stdout)

    with planvec.make("CartPole-v1", num_workers=0) as env:
        archive = QUICK.run(env, seed=0, max_rounds=1, path=tmp_path, callback=second)
        assert "path: expected a directory to which nobody else writes" in said[0]
        assert_same_archives(archive, Archive.load(tmp_path, env))


def test_files_of_others_stay(tmp_path: Path) -> None:
    names = ["archive-2023.npz", ".archive-of-mine.npz", ".hidden.npz", "mine.npz"]
    for name in names:
        (tmp_path / name).write_text("mine")
    with planvec.make("CartPole-v1", num_workers=0) as env:
        QUICK.run(env, seed=0, max_rounds=2, path=tmp_path, save_seconds=0)
    assert all((tmp_path / name).read_text() == "mine" for name in names)
    (tmp_path / "file").write_text("")
    with (
        planvec.make("CartPole-v1", num_workers=0) as env,
        pytest.raises(InvalidBatchError, match="path: expected a directory, got the file"),
    ):
        QUICK.run(env, seed=0, max_rounds=2, path=tmp_path / "file")


def test_other_cells_are_refused(tmp_path: Path) -> None:
    def made(scale: int) -> Any:
        return lambda observations: np.floor(observations * scale).astype(int)

    with planvec.make("CartPole-v1", num_workers=0) as env:
        Explorer(num_explorers=8, num_steps=20, cells=made(3)).run(env, seed=0, max_rounds=3, path=tmp_path)
        with pytest.raises(
            InvalidBatchError, match="cells: expected the function of the exploration, got one"
        ):
            Explorer(num_explorers=8, num_steps=20, cells=made(9)).run(env, max_rounds=4, path=tmp_path)


@pytest.mark.parametrize("change", ["width", "dtype"])
def test_cells_that_change_their_form_are_named(change: str) -> None:
    calls: list[int] = []

    def cells(observations: Any) -> Any:
        calls.append(1)
        keys = np.zeros((len(observations), 2), np.int64)
        if len(calls) < 4:
            return keys
        return keys[:, :1] if change == "width" else keys.astype(np.int32)

    with (
        planvec.make("CartPole-v1", num_workers=0) as env,
        pytest.raises(InvalidBatchError, match=r"cells: expected int64 \[4, 2\], as at the start, got"),
    ):
        Explorer(num_explorers=8, num_steps=20, cells=cells).run(env, seed=0, max_rounds=1)


@pytest.mark.parametrize(
    ("name", "change"),
    [
        ("nodes", lambda column: np.where(np.arange(len(column)) == 7, -5, column)),
        ("nodes", lambda column: column[::-1]),
        ("nodes", lambda column: column - 10**6),
        ("num_steps", lambda column: column + 1),
        ("scores", lambda column: column * np.nan),
        ("scores", lambda column: column[:-1]),
        ("keys", lambda column: column.astype(np.float64)),
        ("keys", lambda column: column[:, 0]),
        ("lives", lambda column: column.astype(str)),
        ("steps.actions", lambda column: column * 0.5),
        ("steps.parents", lambda column: column - 7),
        ("steps.parents", lambda column: np.minimum(column, 0)),
        ("steps.depths", lambda column: column + 1),
        ("num_visits", lambda column: -column),
        ("states.0", lambda column: column[:-1]),
        ("history", lambda column: column[:, 0]),
    ],
)
def test_changed_columns_are_noticed(tmp_path: Path, name: str, change: Any) -> None:
    with planvec.make("CartPole-v1", num_workers=0) as env:
        archive = QUICK.run(env, seed=0, max_rounds=3)
        archive.save(tmp_path)
        change_arrays(tmp_path, lambda arrays: arrays.update({name: change(arrays[name])}))
        with pytest.raises(InvalidBatchError, match="which is damaged"):
            Archive.load(tmp_path, env)


class Costly(Cliff):
    """A reward that is no number at place 3."""

    def step(self, action: Any) -> Any:
        out = super().step(action)
        return (out[0], float("nan") if out[0] == 3 else 0.0, *out[2:])


def test_rewards_that_are_no_numbers_are_named() -> None:
    with (
        planvec.PlanEnv(Costly) as env,
        pytest.raises(InvalidBatchError, match="rewards: expected finite numbers, got nan for action"),
    ):
        Explorer(num_explorers=4, num_steps=20, on_error="mask").run(env, seed=0, max_rounds=5)


def test_another_codec_is_refused(tmp_path: Path) -> None:
    with planvec.make("CartPole-v1", num_workers=0) as env:
        QUICK.run(env, seed=0, max_rounds=2, path=tmp_path)
    with (
        planvec.make("CartPole-v1", num_workers=0, codec="copied") as env,
        pytest.raises(InvalidBatchError, match="^env: expected is_stochastic False, as when"),
    ):
        QUICK.run(env, max_rounds=3, path=tmp_path)


def test_another_thread_cannot_write_to_the_same_directory(tmp_path: Path) -> None:
    with planvec.make("FrozenLake-v1", num_workers=0) as env:
        said: list[str] = []

        def explore_too(archive: Archive) -> None:
            def explore() -> None:
                with planvec.make("FrozenLake-v1", num_workers=0) as other:
                    try:
                        QUICK.run(other, seed=1, max_rounds=9, path=tmp_path)
                    except InvalidBatchError as error:
                        said.append(str(error))

            thread = threading.Thread(target=explore)
            thread.start()
            thread.join()

        QUICK.run(env, seed=1, max_rounds=3, path=tmp_path, callback=explore_too)
        assert len(said) == 3
        assert all("expected a directory to which nobody else writes" in one for one in said)
        assert Archive.load(tmp_path, env).num_env_steps == 3 * 8 * 20


def test_an_archive_is_loaded_while_it_is_saved(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with planvec.make("FrozenLake-v1", num_workers=0) as env:
        QUICK.run(env, seed=1, max_rounds=2, path=tmp_path, save_seconds=0)
        original = np.load

        def open_and_save(*arguments: Any, **options: Any) -> Any:
            opened = original(*arguments, **options)
            monkeypatch.setattr(np, "load", original)
            QUICK.run(env, max_rounds=3, path=tmp_path, save_seconds=0)
            return opened

        monkeypatch.setattr(np, "load", open_and_save)
        assert Archive.load(tmp_path, env).num_env_steps == 2 * 8 * 20
        assert Archive.load(tmp_path, env).num_env_steps == 3 * 8 * 20


def test_a_file_that_tells_another_compression_is_damaged(tmp_path: Path) -> None:
    with planvec.make("FrozenLake-v1", num_workers=0) as env:
        QUICK.run(env, seed=1, max_rounds=2, path=tmp_path)
        file = tmp_path / "archive.npz"
        data = bytearray(file.read_bytes())
        place = data.index(b"PK\x01\x02")
        data[place + 10] = zipfile.ZIP_BZIP2
        file.write_bytes(data)
        with pytest.raises(InvalidBatchError, match="damaged or of another kind.*Invalid data stream"):
            Archive.load(tmp_path, env)


def test_weights_of_different_lengths_are_named() -> None:
    explorer = Explorer(num_explorers=2, num_steps=4, weights=lambda archive: [[1.0], [1.0, 2.0]])  # type: ignore[arg-type, return-value]
    with (
        planvec.make("FrozenLake-v1", num_workers=0) as env,
        pytest.raises(InvalidBatchError, match=r"weights: expected .* got \[\[1.0\], \[1.0, 2.0\]\]"),
    ):
        explorer.run(env, seed=0, max_rounds=1)


def test_lost_lives_need_infos() -> None:
    message = "info: expected one with 'lives' together with end_on_life_loss=True, got an info with nothing"
    with planvec.make("CartPole-v1", num_workers=0) as env, pytest.raises(InvalidBatchError, match=message):
        Explorer(end_on_life_loss=True).run(env, seed=0, max_rounds=1)


@pytest.mark.slow
def test_planners_are_told_the_lives_at_the_cells() -> None:
    planner = planvec.RolloutIW(num_simulations=8, life_cost=500.0)
    explorer = Explorer(num_explorers=4, num_steps=4, planner=planner)
    with planvec.make("ALE/Breakout-v5", num_workers=0, info_keys=("lives",)) as env:
        archive = explorer.run(env, seed=0, max_rounds=2)
        assert archive.num_cells > 1
        assert (lives(archive) == 5).all()


@pytest.mark.parametrize(
    ("limits", "message"),
    [
        ({"max_seconds": float("nan")}, "max_seconds: expected a number of at least 0, got nan"),
        ({"max_env_steps": -5}, "max_env_steps: expected an integer of at least 0, got -5"),
        ({"max_rounds": 1.5}, "max_rounds: expected an integer of at least 0, got 1.5"),
        ({"max_rounds": 1, "save_seconds": "x"}, "save_seconds: expected a number of at least 0, got 'x'"),
        ({"callback": 5}, "callback: expected a function or None, got 5"),
    ],
)
def test_wrong_limits_are_named(limits: dict[str, Any], message: str) -> None:
    with planvec.make("CartPole-v1", num_workers=0) as env, pytest.raises(InvalidBatchError, match=message):
        QUICK.run(env, seed=0, **limits)


def test_a_planner_whose_steps_raise_is_not_followed_if_errors_are_masked() -> None:
    explorer = Explorer(num_explorers=4, num_steps=20, on_error="mask", planner=SHOOTING)
    with planvec.PlanEnv(Cliff) as env:
        assert explorer.run(env, seed=0, max_rounds=3).num_cells > 5


def test_a_planner_whose_steps_raise_leaves_the_plans_of_other_explorers() -> None:
    class Ahead(planvec.IW):
        """Counts its plans."""

        def plan_batch(self, env: Any, states: Any, **options: Any) -> Any:
            plans = super().plan_batch(env, states, **options)
            made.append(len(plans))
            return plans

    made: list[int] = []
    explorer = Explorer(num_explorers=4, num_steps=12, on_error="mask", planner=Ahead(num_simulations=9))
    with planvec.PlanEnv(Cliff) as env:
        archive = explorer.run(env, seed=0, max_rounds=9)
    assert 1 in made  # beside one that failed
    assert 2 in made
    assert archive.num_env_steps > 9 * 4 * 12
