"""Pictures and films of real results, and the page of a report in a browser."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import gymnasium
import imageio.v3 as imageio
import matplotlib as mpl
import numpy as np
import pytest
from interrupted import interrupt_at
from marks import slow_after
from PIL import Image

mpl.use("agg")

import matplotlib.pyplot as plt
from matplotlib.figure import Figure

import planvec
from planvec import plots, video
from planvec.checking import measure_throughput
from planvec.cli import main
from planvec.report import ReportRecorder, write_report
from planvec.report.page import _timeline

pytestmark = pytest.mark.filterwarnings("ignore:.*XDG_RUNTIME_DIR")

TREE = planvec.MCTS(num_simulations=120, rollout_horizon=10)
SWARM = planvec.Swarm(num_walkers=16, num_iterations=10)


@pytest.fixture(autouse=True)
def closed_figures() -> Any:
    yield
    plt.close("all")


def saved(drawn: Any, path: Path) -> Any:
    """Save a picture, and return its pixels: text that does not fit, or is missing, raises or warns."""
    figure = np.atleast_1d(np.asarray(drawn, object)).flat[0].figure
    figure.savefig(path, dpi=60)
    return imageio.imread(path)


@pytest.mark.parametrize("style", ["default", "dark_background"])
def test_a_tree_is_drawn_with_its_most_visited_nodes(style: str, tmp_path: Path) -> None:
    with planvec.PlanEnv("FrozenLake-v1") as env, plt.style.context(style):
        plan = TREE.plan(env, env.reset(seed=0).state, seed=0)
        for max_nodes in (1, 30, 10_000):
            ax = plots.plot_tree(plan, max_nodes=max_nodes)
            picture = plots.tree_picture(plan.search_data, max_nodes)
            assert len(picture.nodes) <= max_nodes
            assert len(ax.collections[-1].get_offsets()) == len(picture.nodes)
            assert saved(ax, tmp_path / "tree.png").std() > 1
        assert len(picture.nodes) == plan.search_data.num_nodes
        assert (picture.parents[1:] < np.arange(1, len(picture.nodes))).all()
        assert picture.visits[0] == picture.visits.max()
        assert picture.is_best.sum() == len(plan.best_actions) + 1


@pytest.mark.parametrize(
    ("env_id", "planner"),
    [
        ("CartPole-v1", TREE),
        ("Pendulum-v1", SWARM),
        ("Pendulum-v1", planvec.ICEM(num_trajectories=32, num_elites=4, horizon=6)),
        ("CartPole-v1", planvec.CEM(num_trajectories=24, horizon=6)),
    ],
)
def test_the_visits_of_every_planner_are_drawn(env_id: str, planner: planvec.Planner, tmp_path: Path) -> None:
    with planvec.PlanEnv(env_id) as env:
        plan = planner.plan(env, env.reset(seed=0).state, seed=0)
    ax = plots.plot_visits(plan)
    assert sorted(bar.get_height() for bar in ax.patches) == sorted(plan.visit_counts)
    saved(ax, tmp_path / "visits.png")


@pytest.mark.parametrize("planner", [planvec.RolloutIW(num_simulations=60), planvec.IW(num_simulations=60)])
def test_the_tree_and_the_visits_of_a_width_based_search_are_drawn(
    planner: planvec.Planner, tmp_path: Path
) -> None:
    with planvec.PlanEnv("FrozenLake-v1", env_kwargs={"is_slippery": False}) as env:
        plan = planner.plan(env, env.reset(seed=0).state, seed=0)
    tree = plan.search_data
    picture = plots.tree_picture(tree, 1000)
    assert len(picture.nodes) == tree.num_nodes == plan.visit_counts.sum() + 1 == picture.visits[0]
    assert tree.num_nodes > 30
    assert picture.visits[picture.depths == 1].tolist() == plan.visit_counts.tolist()
    np.testing.assert_array_equal(picture.values[picture.depths == 1], plan.action_values)
    assert picture.is_best.sum() == len(plan.best_actions) + 1
    assert picture.values[0] == plan.value
    saved(plots.plot_tree(plan, max_nodes=40), tmp_path / "tree.png")
    saved(plots.plot_visits(plan), tmp_path / "visits.png")


def test_visits_are_drawn_on_a_map(tmp_path: Path) -> None:
    planner = planvec.MCTS(num_simulations=3000, rollout_horizon=0, transpositions="cell")
    with planvec.PlanEnv("FrozenLake-v1") as env:
        plan = planner.plan(env, env.reset(seed=0).state, seed=0)
    ax = plots.plot_map(plan, (4, 4))
    tree, arrived = plan.search_data, np.zeros(16)
    cell = tree.saved_states["cell"].astype(int)
    for node, action in np.ndindex(tree.num_nodes, 4):
        outcomes = tree.outcomes(node, action)
        counts = tree.arrays.outcome_counts[outcomes]
        for outcome, count in zip(outcomes, counts, strict=True):
            part = tree.arrays.edge_visits[node, action] * count / counts.sum()
            arrived[cell[tree.arrays.outcome_nodes[outcome]]] += part
    drawn = np.array([float(text.get_text() or 0) for text in ax.texts])
    holes_and_goal = [5, 7, 11, 12, 15]
    assert arrived[15] > 10
    np.testing.assert_array_equal(drawn[holes_and_goal], np.rint(arrived[holes_and_goal]))
    others = np.setdiff1d(cell, holes_and_goal)
    by_cell = np.zeros(16)
    by_cell[cell] = np.maximum(tree.arrays.visits[: tree.num_nodes], 1)
    np.testing.assert_array_equal(drawn[others], by_cell[others])
    saved(ax, tmp_path / "map.png")
    with pytest.raises(planvec.InvalidBatchError, match=r"shape: expected at least 16 cells, got \(2, 2\)"):
        plots.plot_map(plan, (2, 2))
    with pytest.raises(planvec.InvalidBatchError, match="states have a field 'nothing'"):
        plots.plot_map(plan, (4, 4), field="nothing")


def test_the_visits_of_a_width_based_search_are_drawn_on_a_map(tmp_path: Path) -> None:
    with planvec.PlanEnv("FrozenLake-v1", env_kwargs={"is_slippery": False}) as env:
        plan = planvec.RolloutIW(num_simulations=40).plan(env, env.reset(seed=0).state, seed=0)
        swarm = planvec.Swarm(num_walkers=4).plan(env, env.reset(seed=0).state, seed=0)
    ax = plots.plot_map(plan, (4, 4))
    drawn = {cell: float(text.get_text()) for cell, text in enumerate(ax.texts) if text.get_text()}
    assert set(drawn) == set(plan.search_data.saved_states["cell"].tolist())
    assert drawn[0] >= plan.search_data.num_nodes
    saved(ax, tmp_path / "map.png")
    with pytest.raises(planvec.InvalidBatchError, match="expected one of planvec.MCTS, RolloutIW or IW"):
        plots.plot_map(swarm, (4, 4))


def test_a_swarm_is_drawn_by_its_moves_and_in_phase_space(tmp_path: Path) -> None:
    with planvec.PlanEnv("Pendulum-v1") as env:
        plan = SWARM.plan(env, env.reset(seed=0).state, seed=0)
        picture = plots.swarm_picture(plan.search_data)
        np.testing.assert_allclose(picture.returns[picture.ends], plan.search_data.returns)
        np.testing.assert_array_equal(picture.steps[picture.ends], plan.search_data.num_steps)
        saved(plots.plot_swarm(plan), tmp_path / "moves.png")
        ax = plots.plot_swarm(plan, env, axes=(0, 2), names=("cosine", "speed"))
        assert (ax.get_xlabel(), ax.get_ylabel()) == ("cosine", "speed")
        saved(ax, tmp_path / "phase.png")


@pytest.mark.parametrize(
    "planner",
    [
        planvec.RandomShooting(num_trajectories=8, horizon=6),
        planvec.CEM(num_trajectories=8, num_elites=3, horizon=6, dt=2),
        planvec.ICEM(num_trajectories=8, num_elites=3, num_iterations=2, horizon=6),
        planvec.MPPI(num_trajectories=8, num_iterations=1, horizon=6),
    ],
    ids=lambda planner: type(planner).__name__,
)
def test_the_sequence_of_a_shooting_planner_is_drawn(planner: planvec.Planner, tmp_path: Path) -> None:
    with planvec.PlanEnv("Pendulum-v1") as env:
        plan = planner.plan(env, env.reset(seed=3).state, seed=0)
    ax = plots.plot_sequence(plan)
    drawn = {line.get_label(): line.get_ydata() for line in ax.get_lines()}
    best = np.repeat(plan.best_actions[:, 0], plan.best_num_steps)
    np.testing.assert_array_equal(drawn["best sequence"], np.append(best, best[-1]))  # to the end of a step
    if not isinstance(planner, planvec.RandomShooting):
        index = plan.search_data.action_index(len(best))
        mean = plan.search_data.mean[index, 0]
        np.testing.assert_array_equal(drawn["mean, one standard deviation"], np.append(mean, mean[-1]))
        (band,) = [one for one in ax.collections if hasattr(one, "get_paths")]
        height = np.concatenate([path.vertices[:, 1] for path in band.get_paths()])
        assert height.min() >= -2  # the bounds of the actions
        assert height.max() <= 2
    saved(ax, tmp_path / "sequence.png")
    with pytest.raises(planvec.InvalidBatchError, match="component: expected from 0 to 0, got 3"):
        plots.plot_sequence(plan, component=3)


def test_the_probabilities_of_discrete_actions_are_drawn(tmp_path: Path) -> None:
    with planvec.PlanEnv("CartPole-v1") as env:
        plan = planvec.CEM(num_trajectories=8, num_elites=3, horizon=6).plan(
            env, env.reset(seed=0).state, seed=0
        )
    ax = plots.plot_sequence(plan)
    (mesh,) = ax.collections
    assert np.asarray(mesh.get_array()).shape == (2, 6)
    np.testing.assert_allclose(np.asarray(mesh.get_array()).sum(axis=0), 1)
    saved(ax, tmp_path / "probabilities.png")


def test_a_picture_of_another_planner_is_refused_with_the_right_one() -> None:
    with planvec.PlanEnv("CartPole-v1") as env:
        state = env.reset(seed=0).state
        tree, swarm = TREE.plan(env, state, seed=0), SWARM.plan(env, state, seed=0)
    with pytest.raises(planvec.InvalidBatchError, match="plot_swarm draws swarms"):
        plots.plot_tree(swarm)
    with pytest.raises(planvec.InvalidBatchError, match="plot_tree draws trees"):
        plots.plot_swarm(tree)
    with pytest.raises(planvec.InvalidBatchError, match="plot_sequence draws plans of RandomShooting"):
        plots.plot_sequence(tree)


def test_returns_are_drawn_in_every_form(tmp_path: Path) -> None:
    with planvec.PlanEnv("CartPole-v1") as env:
        state = env.reset(seed=0).state
        rollouts = env.rollout_batch(np.repeat(state, 40), 30, action_seed=0)
        episodes = [planvec.run_episode(env, SWARM, seed=seed, max_steps=5) for seed in range(2)]
    for returns in (rollouts, rollouts.returns, episodes, {"a": rollouts, "b": episodes, "c": [1.0, 2.0]}):
        saved(plots.plot_returns(returns), tmp_path / "returns.png")
    for empty in ([], {}, [np.nan]):
        with pytest.raises(planvec.InvalidBatchError, match="at least one"):
            plots.plot_returns(empty)


@pytest.mark.parametrize("env_id", ["CartPole-v1", "Pendulum-v1"])
def test_an_episode_is_drawn(env_id: str, tmp_path: Path) -> None:
    with planvec.PlanEnv(env_id) as env:
        episode = planvec.run_episode(env, SWARM, seed=0, max_steps=12)
    axes = plots.plot_episode(episode)
    value = next(line for line in axes[1].lines if line.get_label() == "value of the decision")
    np.testing.assert_array_equal(value.get_ydata(), episode.values)
    saved(axes, tmp_path / "episode.png")


def test_an_episode_without_steps_is_drawn() -> None:
    with planvec.PlanEnv("CartPole-v1") as env:
        archive = planvec.Explorer(num_explorers=1, num_steps=1).run(env, seed=1, max_rounds=1)
        assert len(plots.plot_episode(archive.episode(env, 0))) == 3


def test_explorations_are_drawn_beside_each_other(tmp_path: Path) -> None:
    explorer = planvec.Explorer(num_explorers=8, num_steps=20)
    with planvec.PlanEnv("MountainCar-v0") as env:
        archives = {str(seed): explorer.run(env, seed=seed, max_rounds=5) for seed in (1, 2)}
    axes = plots.plot_exploration(archives, groups=lambda keys: keys[:, 0] // 4, group_name="regions")
    assert [ax.get_ylabel() for ax in axes] == ["cells", "regions", "best score"]
    for line, archive in zip(axes[0].lines, archives.values(), strict=True):
        assert line.get_ydata()[-1] == archive.num_cells
        assert line.get_xdata()[-1] == archive.num_env_steps == 800
    assert axes[1].lines[0].get_ydata()[-1] == len(np.unique(archives["1"].keys[:, 0] // 4))
    saved(axes, tmp_path / "exploration.png")
    assert len(plots.plot_exploration(archives["1"])) == 2
    with pytest.raises(
        planvec.InvalidBatchError, match='archives: expected an Archive, or {"name": archive, '
    ):
        plots.plot_exploration([])  # type: ignore[arg-type]
    with pytest.raises(planvec.InvalidBatchError, match="groups: expected a function that returns"):
        plots.plot_exploration(archives, groups=lambda keys: keys)


def test_a_throughput_is_measured_and_drawn(tmp_path: Path) -> None:
    measured = measure_throughput("CartPole-v1", rows=[1, 64], num_workers=[1], seconds=0.5)
    assert measured.contenders == ["in this process", "kernel", "1 worker"]
    assert (measured.steps_per_second > 0).all()
    assert "planvec.make(..., num_workers=0)" in str(measured)
    saved(plots.plot_throughput(measured), tmp_path / "throughput.png")


def test_a_fan_shows_the_frame_of_each_state(tmp_path: Path) -> None:
    with planvec.PlanEnv("CartPole-v1", render_mode="rgb_array") as env:
        states = np.repeat(env.reset(seed=0).state, 5)
        ends = env.step_batch(np.arange(5) % 2, states, dt=6)
        axes = plots.plot_fan(env, ends.new_states, titles=ends.rewards)
        assert axes.shape == (2, 3)
        np.testing.assert_array_equal(axes[0, 1].images[0].get_array(), env.render(ends.new_states[1:2])[0])
        saved(axes, tmp_path / "fan.png")
        with pytest.raises(planvec.InvalidBatchError, match="titles: expected one per state"):
            plots.plot_fan(env, states, titles=[1])


def shown(path: Path, fps: int = 20) -> Any:
    """Return the frames of a film as they are shown: a GIF holds equal ones once."""
    frames = imageio.imread(path, index=None)
    if path.suffix == ".mp4":
        return frames
    with Image.open(path) as gif:
        durations = []
        for index in range(gif.n_frames):
            gif.seek(index)
            durations.append(gif.info["duration"])
    return np.repeat(frames, np.array(durations) * fps // 1000, axis=0)


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")  # imageio's reader of MP4
@pytest.mark.parametrize("suffix", [".gif", ".mp4"])
def test_a_film_has_the_frame_of_each_state(suffix: str, tmp_path: Path) -> None:
    with planvec.PlanEnv("CartPole-v1", render_mode="rgb_array") as env:
        episode = planvec.run_episode(env, SWARM, seed=0, max_steps=6)
        frames = video.episode_frames(env, episode)
    with planvec.PlanEnv("CartPole-v1", render_mode="rgb_array") as other:
        for frame, state in zip(frames, episode.states, strict=True):
            np.testing.assert_array_equal(frame, other.render(np.array([state]))[0])
    video.write_video(tmp_path / f"film{suffix}", frames, fps=20)
    film = shown(tmp_path / f"film{suffix}")
    assert len(film) == 7
    difference = np.abs(film[..., :3].astype(int) - np.array(frames)[:, : film.shape[1], : film.shape[2]])
    assert difference.mean() < 4


def test_the_film_of_a_plan_shows_the_future_that_it_expects() -> None:
    with planvec.PlanEnv("Pendulum-v1", render_mode="rgb_array") as env:
        state = env.reset(seed=0).state
        plan = SWARM.plan(env, state, seed=0)
        assert len(video.plan_frames(env, state, plan)) == plan.best_num_steps.sum() + 1


def at_the_lake() -> tuple[planvec.PlanEnv, Any]:
    env = planvec.PlanEnv("FrozenLake-v1", env_kwargs={"is_slippery": False})
    return env, env.reset(seed=0).state


WRONG = {
    "names of actions": (
        lambda plan, env: plots.plot_visits(plan, names=["left"]),
        r"names: .* \(2\), got 1",
    ),
    "no nodes": (
        lambda plan, env: plots.plot_tree(plan, max_nodes=0),
        "max_nodes: expected at least 1, got 0",
    ),
    "columns": (
        lambda plan, env: plots.plot_fan(env, np.repeat(env.get_state(), 2), num_columns=-1),
        "num_columns: expected at least 1, got -1",
    ),
    "text": (lambda plan, env: plots.plot_returns("abc"), "returns: expected numbers or episodes, got 'abc'"),
    "no episode": (
        lambda plan, env: plots.plot_episode(plan),
        r"episode: expected what planvec\.run_episode returns, got ",
    ),
    "no shape of a map": (
        lambda plan, env: plots.plot_map(planvec.MCTS(num_simulations=4).plan(*at_the_lake()), 16),
        r"shape: expected rows and columns of the map, such as \(4, 4\), got 16",
    ),
    "no frames": (
        lambda plan, env: video.write_video("film.gif", plan),
        r"frames: expected images, such as planvec\.video\.episode_frames\(env, episode\), got ",
    ),
    "frames of numbers": (
        lambda plan, env: video.write_video("film.gif", [np.zeros((4, 4, 3))]),
        r"frames: expected \[height, width, 3\] of uint8, .* got float64 of shape \(4, 4, 3\) at 0",
    ),
    "frames of two sizes": (
        lambda plan, env: video.write_video("film.gif", [np.zeros((4, n, 3), np.uint8) for n in (4, 5)]),
        r"frames: expected all of shape \(4, 4, 3\), got \(4, 5, 3\) at 1",
    ),
    "frames that are too small": (
        lambda plan, env: video.write_video("film.mp4", [np.zeros((1, 1, 3), np.uint8)]),
        "at least 2 x 2, got uint8",
    ),
    "no time": (
        lambda plan, env: video.write_video("film.gif", [np.zeros((4, 4, 3), np.uint8)], fps=0),
        "fps: expected a number above 0, got 0",
    ),
}


@pytest.mark.parametrize("name", WRONG)
def test_wrong_arguments_of_pictures_are_named(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    call, message = WRONG[name]
    with planvec.PlanEnv("CartPole-v1", render_mode="rgb_array") as env:
        plan = TREE.plan(env, env.reset(seed=0).state, seed=0)
        with pytest.raises(planvec.InvalidBatchError, match=message):
            call(plan, env)
    assert not list(tmp_path.iterdir())


def test_wrong_arguments_of_phase_space_are_named() -> None:
    with planvec.PlanEnv("Pendulum-v1") as env:
        plan = SWARM.plan(env, env.reset(seed=0).state, seed=0)
        with pytest.raises(planvec.InvalidBatchError, match=r"axes: expected two from 0 to 2, got \(0, 9\)"):
            plots.plot_swarm(plan, env, axes=(0, 9))
        with pytest.raises(planvec.InvalidBatchError, match="names: expected two, got 1"):
            plots.plot_swarm(plan, env, names=("angle",))


def test_actions_that_do_not_start_at_0_have_names() -> None:
    class Shifted(gymnasium.ActionWrapper):
        def __init__(self) -> None:
            super().__init__(gymnasium.make("CartPole-v1"))
            self.action_space = gymnasium.spaces.Discrete(2, start=5)

        def action(self, action: Any) -> Any:
            return action - 5

    with planvec.PlanEnv(Shifted) as env:
        episode = planvec.run_episode(env, planvec.Swarm(num_walkers=8), seed=0, max_steps=12)
    axes = plots.plot_episode(episode, action_names={5: "left", 6: "right"})
    assert {text.get_text() for text in axes[2].get_yticklabels()} == {"left", "right"}
    with pytest.raises(planvec.InvalidBatchError, match="action_names: expected a name of action 5"):
        plots.plot_episode(episode, action_names=("left", "right"))


def test_colour_bars_are_drawn_in_the_figure_of_the_axes() -> None:
    with planvec.PlanEnv("Pendulum-v1") as env:
        state = env.reset(seed=0).state
        plt.close("all")
        plots.plot_tree(TREE.plan(env, state, seed=0), ax=Figure().add_subplot())
        plots.plot_swarm(SWARM.plan(env, state, seed=0), env, ax=Figure().add_subplot())
    assert not plt.get_fignums()


def test_films_need_a_known_format(tmp_path: Path) -> None:
    with pytest.raises(planvec.InvalidBatchError, match=r"ends with \.gif or \.mp4, got .*film.avi"):
        video.write_video(tmp_path / "film.avi", [np.zeros((4, 4, 3), np.uint8)])
    with pytest.raises(planvec.InvalidBatchError, match="frames: expected at least one"):
        video.write_video(tmp_path / "film.gif", [])


@pytest.mark.slow
def test_the_command_makes_all_pictures_also_of_a_run_that_is_resumed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    common = ["--num-workers", "0", "--no-progress", "--plot", "--video", "film.gif", "--report", "page.html"]
    arguments = ["--num-walkers", "8", "--num-iterations", "5", "--max-steps", "6", "--seed", "3"]
    with monkeypatch.context() as patched:
        interrupt_at(patched, 4)
        assert main(["plan", "CartPole", *arguments, *common, "--out", "run"]) == 130
    assert main(["plan", "--resume", "run", *common]) == 0
    assert len(shown(tmp_path / "film.gif", 50)) == 7
    assert imageio.imread(tmp_path / "run" / "episode.png").std() > 1
    text = (tmp_path / "page.html").read_text()
    data = re.search(r'<script type="application/json" id="data">(.*?)</script>', text, re.DOTALL)
    assert data is not None
    assert len(json.loads(data[1])["decisions"]) == 6


def test_a_complete_run_gets_its_pictures_later(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    common = ["--num-workers", "0", "--no-progress"]
    arguments = ["--num-walkers", "8", "--num-iterations", "5", "--max-steps", "6", "--episodes", "2"]
    assert main(["plan", "CartPole", *arguments, *common, "--out", "run"]) == 0
    (tmp_path / "run" / "checkpoint.npz").write_bytes(b"left by a process that was killed")
    assert main(["plan", "--resume", "run", *common, "--plot", "--video", "film.gif"]) == 0
    assert not (tmp_path / "run" / "checkpoint.npz").exists()
    for name in ("film.gif", "film-2.gif"):
        assert len(shown(tmp_path / name, 50)) == 7
    assert (tmp_path / "run" / "episode-2.png").exists()
    capsys.readouterr()
    assert main(["plan", "--resume", "run", *common, "--report", "page.html"]) == 2
    assert "--report: the run is complete, and its decisions are not kept" in capsys.readouterr().err


def test_a_report_cannot_begin_in_the_middle_of_an_episode(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    common = ["--num-workers", "0", "--no-progress"]
    arguments = ["--num-walkers", "8", "--num-iterations", "5", "--max-steps", "6"]
    with monkeypatch.context() as patched:
        calls = interrupt_at(patched, 4)
        assert main(["plan", "CartPole", *arguments, *common, "--out", "run"]) == 130
        capsys.readouterr()
        assert main(["plan", "--resume", "run", *common, "--report", "page.html"]) == 2
    assert "whose first 3 decisions were not kept" in capsys.readouterr().err
    assert len(calls) == 4  # nothing was planned
    assert main(["plan", "--resume", "run", *common]) == 0


def browse(path: Path, *options: str) -> tuple[str, str]:
    """Return the page as the browser has it, and what it wrote to the console."""
    chromium = shutil.which("chromium") or shutil.which("chromium-browser")
    assert chromium is not None, "install Debian's chromium"
    command = [chromium, "--headless=new", "--no-sandbox", "--disable-gpu", "--virtual-time-budget=8000"]
    command += ["--enable-logging=stderr", "--window-size=1200,1100", *options]
    done = subprocess.run(command, capture_output=True, text=True, timeout=110, check=True)
    lines = done.stderr.splitlines()
    console = "\n".join(line for line in lines if "CONSOLE" in line and "log level" not in line)
    return done.stdout, console


@pytest.mark.parametrize(
    ("env_id", "planner"),
    slow_after(
        4,
        [
            ("CartPole-v1", TREE),
            ("Pendulum-v1", TREE),
            ("Pendulum-v1", SWARM),
            ("CartPole-v1", planvec.SwarmWave(num_walkers=16)),
            ("Pendulum-v1", planvec.RandomShooting(num_trajectories=40, horizon=6)),
            ("CartPole-v1", planvec.CEM(num_trajectories=24, horizon=6)),
            ("Pendulum-v1", planvec.CEM(num_trajectories=24, horizon=6)),
            ("Pendulum-v1", planvec.ICEM(num_trajectories=24, horizon=6)),
            ("Pendulum-v1", planvec.MPPI(num_trajectories=16, horizon=6)),
            ("Hopper-v5", planvec.ICEM(num_trajectories=40, horizon=6)),
        ],
        unpack=True,
    ),
    ids=lambda value: value if isinstance(value, str) else type(value).__name__,
)
def test_a_report_shows_the_action_and_the_value_of_each_step(
    env_id: str, planner: planvec.Planner, tmp_path: Path
) -> None:
    recorder, plans, path = ReportRecorder(), [], tmp_path / "report.html"

    def record(step: Any) -> None:
        recorder.step(step)
        plans.append(step.plan)

    with planvec.PlanEnv(env_id) as env:
        episode = planvec.run_episode(env, planner, seed=0, max_steps=4, callback=record)
    write_report(path, episode, recorder.decisions, None, "<b>title</b> & {{ data }}")
    text = path.read_text()
    assert "<h1>&lt;b&gt;title&lt;/b&gt; &amp; {{ data }}</h1>" in text
    data = re.search(r'<script type="application/json" id="data">(.*?)</script>', text, re.DOTALL)
    assert data is not None
    for plan, decision in zip(plans, json.loads(data[1])["decisions"], strict=True):
        chosen = decision["chosen"]
        assert decision["actions"][chosen] == decision["action"]
        assert len(decision["actions"]) == len(decision["places"]) == len(decision["visits"]) <= 25
        same = (np.asarray(plan.root_actions) == plan.action).reshape(len(plan.root_actions), -1).all(axis=1)
        assert decision["visits"][chosen] == (plan.visit_counts[same][0] if same.any() else 0)
        if env_id == "Pendulum-v1":
            assert decision["places"][chosen] == pytest.approx(float(plan.action[0]), rel=1e-4)
        assert decision["value"] == pytest.approx(plan.value, rel=1e-5)
        assert any(decision["is_best"]) == bool(decision["lines"])
    returned, valued = (line.data_source.data for line in _timeline(episode).renderers)
    assert list(returned["x"]) == [0, 1, 2, 3, 4]
    assert list(returned["y"]) == [0, *np.cumsum(episode.rewards)]
    assert list(valued["x"]) == [0, 1, 2, 3]
    assert list(valued["y"]) == [plan.value for plan in plans]


@pytest.mark.browser
@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("kind", ["tree", "swarm", "sequences"])
def test_a_report_works_in_a_browser_without_a_network(kind: str, scheme: str, tmp_path: Path) -> None:
    planner = {
        "tree": TREE,
        "swarm": SWARM,
        "sequences": planvec.ICEM(num_trajectories=32, num_elites=4, horizon=8),
    }[kind]
    recorder, path = ReportRecorder(), tmp_path / "report.html"
    env_id = "CartPole-v1" if kind == "tree" else "Pendulum-v1"
    with planvec.PlanEnv(env_id, render_mode="rgb_array") as env:
        episode = planvec.run_episode(env, planner, seed=0, max_steps=20, callback=recorder.step)
        write_report(path, episode, recorder.decisions, video.episode_frames(env, episode), env_id)
    assert path.stat().st_size < 5 * 2**20
    options = ["--blink-settings=preferredColorScheme=0"] if scheme == "dark" else []
    options += ["--host-resolver-rules=MAP * ~NOTFOUND"]
    page, console = browse(path, *options, "--dump-dom", f"file://{path}#step=7")
    assert console == ""
    assert 'data-step="7"' in page
    table = re.findall(r"<td>([^<]*)</td>", page)
    shown_as = dict(zip(table[::2], table[1::2], strict=True))
    assert float(shown_as["value"]) == pytest.approx(episode.values[7], rel=1e-4)
    assert float(shown_as["reward of this step"]) == pytest.approx(episode.rewards[7], rel=1e-4)
    assert float(shown_as["return so far"]) == pytest.approx(episode.rewards[:7].sum(), rel=1e-4)
    browse(path, *options, f"--screenshot={tmp_path / 'page.png'}", f"file://{path}#step=7")
    pixels = imageio.imread(tmp_path / "page.png")[..., :3]
    assert (pixels[2, 2].mean() < 60) == (scheme == "dark")
    orange = (np.abs(pixels.astype(int) - (0xE6, 0x9F, 0x00)) < 24).all(axis=-1)
    assert orange.sum() > 200  # the bar of the action, or the line of values: the plots are there
