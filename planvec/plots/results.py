"""Draws what was reached and measured: episodes, returns, explorations, throughput.

Letters: T steps, N cells.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, Protocol

import matplotlib.pyplot as plt
import numpy as np
from matplotlib.axes import Axes
from matplotlib.ticker import EngFormatter, FuncFormatter, LogLocator, MaxNLocator, StrMethodFormatter
from numpy.typing import NDArray

from planvec.errors import InvalidBatchError
from planvec.exploring import Archive
from planvec.planners import Episode
from planvec.plots.style import COLORS, faint, new_axes, text_color
from planvec.rows import Rollouts

_Names = Mapping[int, str] | Sequence[str] | None
_TO_GO = {True: "return that followed", False: "return until it was stopped"}
_MAX_LINES = 6  # numbers of an action, or of an observation, that are drawn as lines


def plot_episode(episode: Episode, *, action_names: _Names = None) -> np.ndarray:
    """Draw the return, the values and the actions of an episode over its steps.

    Args:
        episode: The episode.
        action_names: Names of the actions, by the action: a dict, or a sequence for actions from 0 on.

    Returns:
        Three axes: the return so far, and the rewards; the value of each decision beside the return that
        followed (in an episode that was stopped, a part of what the planner expected); the actions. In a game
        of two players, returns and values are those of player 0.

    Raises:
        InvalidBatchError: `episode` is something else, or an action has no name.
    """
    if not isinstance(episode, Episode):
        raise InvalidBatchError(f"episode: expected what planvec.run_episode returns, got {episode!r}")
    _, axes = plt.subplots(3, 1, figsize=(7.5, 6.5), sharex=True, layout="constrained")
    steps = np.arange(1, episode.num_steps + 1)
    for ax in axes:
        faint(ax)
    axes[0].set_title(
        f"return {episode.total_return:.4g} after {episode.num_steps} steps, {episode.outcome}, "
        f"seed {episode.seed}",
        fontsize=10,
    )
    first, rewards = axes[0], episode.rewards
    first.step(steps, np.cumsum(rewards), where="mid", color=COLORS[0])
    first.set_ylabel("return so far", color=COLORS[0])
    right = first.twinx()  # rewards may be much smaller than returns
    right.bar(steps, rewards, width=1.0, color=COLORS[1], alpha=0.5)
    right.set_ylabel("reward", color=COLORS[1])
    lowest, highest = min(0.0, rewards.min(initial=0.0)), max(0.0, rewards.max(initial=0.0))
    margin = 0.1 * (highest - lowest or 1.0)
    right.set_ylim(lowest - margin, highest + margin)
    right.spines["right"].set_visible(True)
    first.set_zorder(right.get_zorder() + 1)  # the line above the bars
    first.patch.set_visible(False)
    to_go = np.cumsum(rewards[::-1])[::-1]
    whose = " for player 0" if episode.has_players else ""
    axes[1].plot(steps, episode.values_of_player_0, color=COLORS[0], label=f"value of the decision{whose}")
    is_over = episode.terminated or episode.truncated
    axes[1].plot(steps, to_go, color=COLORS[1], linestyle="--", label=_TO_GO[is_over])
    axes[1].set_ylabel("return from here")
    _draw_actions(axes[2], steps, episode.actions, action_names)
    axes[2].set_xlabel("step")
    axes[2].xaxis.set_major_locator(MaxNLocator("auto", integer=True))
    for ax in axes:
        if ax.get_legend_handles_labels()[0]:
            ax.legend(frameon=False, fontsize=8, loc="best")
    drawn: np.ndarray = axes
    return drawn


def _draw_actions(ax: Axes, steps: NDArray[np.int64], actions: object, names: _Names) -> None:
    """Draw actions that are one array; others are counted."""
    if not isinstance(actions, np.ndarray) or actions.dtype.kind not in "biuf":
        ax.text(0.5, 0.5, "actions are no arrays of numbers", ha="center", transform=ax.transAxes)
        return
    columns = actions.reshape(len(steps), math.prod(actions.shape[1:]))  # there may be no steps
    ax.set_ylabel("action")
    if actions.dtype.kind == "f":
        for index in range(min(columns.shape[1], _MAX_LINES)):
            ax.plot(steps, columns[:, index], color=COLORS[index], linewidth=1.0, label=f"[{index}]")
        return
    for index in range(min(columns.shape[1], _MAX_LINES)):
        ax.scatter(steps, columns[:, index], s=10, color=COLORS[index])
    if columns.shape[1] == 1 and len(columns):
        ticks = np.unique(columns)
        if len(ticks) <= 20:
            ax.set_yticks(ticks, [_name(names, int(tick)) for tick in ticks])


def _name(names: _Names, action: int) -> str:
    """Return the name of an action."""
    if names is None:
        return str(action)
    known = names if isinstance(names, Mapping) else dict(enumerate(names))
    if action not in known:
        raise InvalidBatchError(f"action_names: expected a name of action {action}, got {names!r}")
    return str(known[action])


# -- Draws returns of rollouts, episodes or planners ---------------------------------------------------------

_BOX = 5  # numbers of returns from which on there is a box: quartiles of fewer would be invented
_FEW = 60  # numbers of returns that are drawn as points


def plot_returns(returns: object, *, ax: Axes | None = None) -> Axes:
    """Draw how returns are distributed.

    Args:
        returns: Numbers `[B]`, `Rollouts`, a list of `Episode`s; or a dict of them by name, such as one
            entry per planner.
        ax: Where to draw; None makes a figure.

    Returns:
        The axes: a histogram; for a dict, a box for each name that has five returns or more, and points where
        they are few.

    Raises:
        InvalidBatchError: There are no returns.
    """
    ax = new_axes(ax)
    faint(ax)
    if isinstance(returns, Mapping):
        groups = {str(name): _numbers(group)[0] for name, group in returns.items()}
        if not groups:
            raise InvalidBatchError("returns: expected at least one name, got an empty dict")
        large = [numbers if len(numbers) >= _BOX else numbers[:0] for numbers in groups.values()]
        boxes = ax.boxplot(large, widths=0.5, showfliers=False, patch_artist=True)
        for box, color in zip(boxes["boxes"], COLORS * len(groups), strict=False):
            box.set(facecolor=color, alpha=0.5, edgecolor=text_color())
        for part in ("whiskers", "caps"):
            for line in boxes[part]:
                line.set_color(text_color())
        for line in boxes["medians"]:
            line.set(color=text_color(), linewidth=1.6)
        jitter = np.random.default_rng(0)
        for index, numbers in enumerate(groups.values()):
            if len(numbers) <= _FEW:
                x = index + 1 + jitter.uniform(-0.12, 0.12, len(numbers))
                ax.scatter(x, numbers, s=12, color=text_color(), alpha=0.7, zorder=3)
        ax.set_xticks(range(1, len(groups) + 1), list(groups))
        ax.set_ylabel("return")
        return ax
    numbers, num_left_out = _numbers(returns)
    ax.hist(numbers, bins=min(40, max(5, len(numbers) // 8)), color=COLORS[0], alpha=0.75)
    mean = float(numbers.mean())
    ax.axvline(mean, color=COLORS[4], linewidth=1.8)
    note = f", {num_left_out} not finite" if num_left_out else ""
    ax.set_title(f"{len(numbers):,} returns, mean {mean:.4g}{note}", fontsize=10)
    ax.set_xlabel("return")
    ax.set_ylabel("number")
    return ax


def _numbers(returns: object) -> tuple[NDArray[np.float64], int]:
    """Return returns as numbers, and how many were left out, since they are not finite."""
    if isinstance(returns, Rollouts):
        returns = returns.returns
    elif isinstance(returns, Episode):
        returns = [returns.total_return]
    elif isinstance(returns, Sequence) and any(isinstance(one, Episode) for one in returns):
        returns = [episode.total_return for episode in returns]
    try:
        numbers = np.asarray(returns, np.float64).reshape(-1)
    except (TypeError, ValueError) as error:
        raise InvalidBatchError(f"returns: expected numbers or episodes, got {returns!r}") from error
    finite = numbers[np.isfinite(numbers)]
    if not len(finite):
        raise InvalidBatchError("returns: expected at least one finite number, got none")
    return finite, len(numbers) - len(finite)


# -- Draws how archives grow ---------------------------------------------------------------------------------


def plot_exploration(
    archives: Archive | Mapping[str, Archive], *, groups: Any = None, group_name: str = "groups"
) -> np.ndarray:
    """Draw the number of cells and the best score over the environment steps of explorations.

    Args:
        archives: An archive, or several by name, to compare them.
        groups: `groups(keys) -> [N]` integers, the group of each cell `[N, F]`, such as the room. Their
            number is drawn, too.
        group_name: What the groups are called.

    Returns:
        Two axes, three with groups: cells, groups, best score.

    Raises:
        InvalidBatchError: There is no archive, or `groups` returns something else.
    """
    named = {"": archives} if isinstance(archives, Archive) else archives
    if (
        not isinstance(named, Mapping)
        or not named
        or not all(isinstance(archive, Archive) for archive in named.values())
    ):
        raise InvalidBatchError(
            f'archives: expected an Archive, or {{"name": archive, ...}}, got {archives!r}'
        )
    num_panels = 2 if groups is None else 3
    _, axes = plt.subplots(num_panels, 1, figsize=(6.4, 2.0 * num_panels), sharex=True, layout="constrained")
    for number, (name, archive) in enumerate(named.items()):
        color = COLORS[number % len(COLORS)]
        history = archive.history
        firsts = np.sort(archive.first_visits)
        _draw_count(axes[0], firsts, archive.num_env_steps, color, name)
        if groups is not None:
            given = np.asarray(groups(archive.keys))
            if given.shape != (archive.num_cells,):
                raise InvalidBatchError(
                    f"groups: expected a function that returns [{archive.num_cells}], got shape {given.shape}"
                )
            of_groups = [archive.first_visits[given == group].min() for group in np.unique(given)]
            _draw_count(axes[1], np.sort(of_groups), archive.num_env_steps, color, name)
        scores = np.concatenate([[0.0], history[:, 2]])
        if scores[-1] < 0:  # rewards are costs, and no episode had ended yet where the score is 0
            scores[scores == 0] = np.nan
        axes[-1].step(np.concatenate([[0.0], history[:, 0]]), scores, where="post", color=color, label=name)
    labels = ["cells", "best score"] if groups is None else ["cells", group_name, "best score"]
    for ax, label in zip(axes, labels, strict=True):
        faint(ax)
        ax.set_ylabel(label)
        if ax.get_ylim()[0] > 0:
            ax.set_ylim(bottom=0.0)
        ax.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,.10g}"))
        if label != "best score":
            ax.yaxis.set_major_locator(MaxNLocator(nbins="auto", integer=True))
    axes[-1].set_xlabel("environment steps")
    axes[-1].xaxis.set_major_formatter(EngFormatter())
    if len(named) > 1:
        axes[0].legend(frameon=False, fontsize=9)
    drawn: np.ndarray = axes
    return drawn


def _draw_count(ax: Axes, firsts: NDArray[np.int64], num_env_steps: int, color: str, name: str) -> None:
    """Draw how many were there, from the steps at which each was first."""
    steps, counts = np.append(firsts, num_env_steps), np.append(np.arange(1, len(firsts) + 1), len(firsts))
    ax.step(steps, counts, where="post", color=color, label=name)


# -- Draws environment steps per second against rows per call -----------------------------------------------

# decades that an axis spans at least, and the first digits of its ticks
_TICKS = ((2.0, (1.0,)), (1.0, (1.0, 2.0, 5.0)), (-1.0, (1.0, 1.5, 2.0, 3.0, 5.0, 7.0)))
_MARKERS = "osD^vP*"


class Throughput(Protocol):
    """The part of `planvec.checking.Throughput` that is drawn: C contenders, R numbers of rows."""

    contenders: list[str]
    rows: list[int]
    steps_per_second: np.ndarray
    spread: np.ndarray


def plot_throughput(throughput: Throughput, *, ax: Axes | None = None) -> Axes:
    """Draw what `planvec.checking.measure_throughput` measured.

    Args:
        throughput: The measurements.
        ax: Where to draw; None makes a figure.

    Returns:
        The axes: a line per contender, and the range of its turns.
    """
    ax = new_axes(ax)
    faint(ax)
    for index, name in enumerate(throughput.contenders):
        color, marker = COLORS[index % len(COLORS)], _MARKERS[index % len(_MARKERS)]
        low, high = throughput.spread[index].T
        line = "--" if name.endswith("alone") else "-"  # independent processes: what the machine gives
        rates = throughput.steps_per_second[index]
        ax.plot(throughput.rows, rates, color=color, linestyle=line, marker=marker, label=name)
        ax.fill_between(throughput.rows, low, high, color=color, alpha=0.2, linewidth=0)
    ax.set_xscale("log")
    ax.set_yscale("log")
    ax.set_xticks(throughput.rows, [f"{rows:,}" for rows in throughput.rows])
    ax.minorticks_off()
    low, high = ax.get_ylim()
    dense = next(ticks for decades, ticks in _TICKS if high / low > 10**decades)
    ax.yaxis.set_major_locator(LogLocator(subs=dense))
    ax.yaxis.set_major_formatter(StrMethodFormatter("{x:,.0f}"))
    ax.set_xlabel("rows per call of step_batch")
    ax.set_ylabel("environment steps per second")
    ax.legend(frameon=False, fontsize=9)
    return ax
