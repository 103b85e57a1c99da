"""Makes the page of a report: a slider steps through the episode, and everything else follows it.

The page holds Bokeh's scripts, the frames as pictures, and the decisions as JSON. A script of our own copies
the decision of a step into the data of the plots.
"""

from __future__ import annotations

import base64
import html
import io
import json
import re
from collections.abc import Sequence
from importlib.resources import files
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from planvec.errors import InvalidBatchError
from planvec.extras import install_command
from planvec.planners import Episode
from planvec.report.decision import Decision

_MAX_FRAME = 480  # largest width and height of a frame, pixels
_BLUE, _ORANGE, _RED, _GREY = "#0072B2", "#E69F00", "#D55E00", "#8a8a8a"


def check_report_path(path: str | Path) -> Path:
    """Check that a report can be written to a path.

    Raises:
        InvalidBatchError: The path does not end with .html.
        ImportError: Bokeh is not installed.
    """
    path = Path(path)
    if path.suffix.lower() not in (".html", ".htm"):
        raise InvalidBatchError(f"report: expected a path that ends with .html, got {path}")
    try:
        import bokeh  # noqa: F401
    except ModuleNotFoundError as error:
        raise ImportError(f"report: it needs Bokeh: {install_command('report')}") from error
    return path


def write_report(
    path: str | Path,
    episode: Episode,
    decisions: Sequence[Decision],
    frames: Sequence[NDArray[np.uint8]] | None,
    title: str,
) -> None:
    """Write the report of an episode.

    Args:
        path: The file, which is overwritten.
        episode: The episode.
        decisions: One per step.
        frames: `[height, width, 3]` uint8 each, one per state; None if the environment renders none.
        title: The title of the page.

    Raises:
        InvalidBatchError: There is not one decision per step, or the path does not end with .html.
        ImportError: Bokeh is not installed.
    """
    path = check_report_path(path)
    if len(decisions) != episode.num_steps:
        raise InvalidBatchError(
            f"decisions: expected one per step ({episode.num_steps}), got {len(decisions)}"
        )
    from bokeh import models
    from bokeh.embed import components
    from bokeh.resources import Resources

    data = {
        "decisions": [json.loads(decision.to_json()) for decision in decisions],
        "rewards": episode.rewards.tolist(),
        "returns": np.cumsum(episode.rewards).tolist(),
        "frames": [_as_png(frame) for frame in frames or ()],
    }
    slider = models.Slider(start=0, end=max(1, episode.num_steps), value=0, step=1, title="step", name="step")
    slider.bar_color = _BLUE
    slider.js_on_change("value", models.CustomJS(code="window.planvecShow(cb_obj.value)"))
    slider.sizing_mode = "stretch_width"
    # The script of the page fills the plots by the names of their sources.
    plots = {"timeline": _timeline(episode), "actions": _actions(), "search": _search(decisions)}
    script, divs = components({"slider": slider, **plots})
    resources = Resources(mode="inline", log_level="warn", components=["bokeh", "bokeh-widgets"])
    simulations = sum(decision.num_simulations for decision in decisions)
    folder = files("planvec.report")
    template = (folder / "page.html").read_text()
    parts = {
        "title": html.escape(title),
        "subtitle": html.escape(
            f"return {episode.total_return:.4g} after {episode.num_steps} steps, {episode.outcome}, "
            f"seed {episode.seed}, {simulations:,} simulations"
        ),
        "resources": resources.render(),
        "style": (folder / "page.css").read_text(),
        "glue": (folder / "page.js").read_text(),
        "data": json.dumps(data, separators=(",", ":")).replace("</", "<\\/"),
        "script": script,
        **divs,
    }
    # In one pass: the parts may contain what looks like the name of another one.
    path.write_text(re.sub(r"\{\{ (\w+) \}\}", lambda match: parts[match[1]], template))


def _figure(**options: object) -> Any:
    """Return a figure in colours that are readable on white and on black."""
    from bokeh.plotting import figure

    made: Any = figure(toolbar_location=None, sizing_mode="stretch_width", **options)
    made.background_fill_alpha = made.border_fill_alpha = 0
    made.outline_line_color = None
    made.grid.grid_line_color = _GREY
    made.grid.grid_line_alpha = 0.25
    for axis in made.axis:
        axis.axis_label_text_color = axis.major_label_text_color = _GREY
        axis.axis_line_color = axis.major_tick_line_color = axis.minor_tick_line_color = _GREY
    made.title.text_color = _GREY
    return made


def _timeline(episode: Episode) -> Any:
    """Return the plot of the whole episode, with a line at the current step."""
    from bokeh import models

    steps = np.arange(episode.num_steps + 1)
    plot = _figure(height=250, x_axis_label="step", title="return so far, and the value of each decision")
    returned = plot.line(steps, np.append(0.0, np.cumsum(episode.rewards)), color=_BLUE, line_width=2)
    whose = " of player 0" if episode.has_players else ""
    valued = plot.line(steps[:-1], episode.values_of_player_0, color=_ORANGE, line_width=1.5)
    plot.add_layout(models.Span(location=0, dimension="height", line_color=_RED, line_width=2, name="now"))
    legend = models.Legend(
        items=[("return" + whose, [returned]), ("value" + whose, [valued])], orientation="horizontal"
    )
    legend.label_text_color, legend.background_fill_alpha, legend.border_line_color = _GREY, 0, None
    plot.add_layout(legend, "above")
    return plot


def _actions() -> Any:
    """Return the bars of the visits of each action."""
    from bokeh import models

    source = models.ColumnDataSource(
        {"x": [], "visits": [], "action": [], "value": [], "color": [], "width": []}, name="actions"
    )
    chosen = models.ColumnDataSource({"x": [], "y": []}, name="chosen")
    plot = _figure(
        height=230,
        title="visits of the actions; orange: the one that is taken",
        x_range=(-0.6, 1.6),
        x_axis_label="action",
    )
    plot.vbar(x="x", top="visits", width="width", color="color", source=source)
    plot.scatter("x", "y", marker="triangle", size=11, color=_ORANGE, source=chosen)
    plot.add_tools(
        models.HoverTool(tooltips=[("action", "@action"), ("visits", "@visits"), ("mean return", "@value")])
    )
    plot.y_range.start = 0
    plot.xaxis.name = "action_axis"
    plot.x_range.name = "action_range"
    return plot


def _search(decisions: Sequence[Decision]) -> Any:
    """Return the plot of the tree, the swarm or the sequences."""
    from bokeh import models

    kinds = {decision.kind for decision in decisions}
    kind = next(iter(kinds)) if len(kinds) == 1 else ""
    titles = {
        "tree": ("the most visited nodes; red: the best actions", "", "actions from now"),
        "swarm": ("the walkers, and the way to the best one", "environment steps", "return"),
        "sequences": (
            "grey: the best sequences; red: the most likely one",
            "environment steps",
            "first action",
        ),
        "": ("this planner keeps nothing to draw", "", ""),
    }
    title, x_label, y_label = titles[kind]
    # Bokeh computes ranges from what is there first; the script of the page replaces all of it.
    first_lines = {"xs": [[0, 1]], "ys": [[0, 1]], "color": [_GREY], "width": [1]}
    first_points = {"x": [0], "y": [0], "size": [1], "value": [0], "label": [""]}
    lines = models.ColumnDataSource(first_lines, name="lines")
    points = models.ColumnDataSource(first_points, name="points")
    # The room for the numbers of the bar stays that of the first ones.
    mapper = models.LinearColorMapper(palette="Viridis256", low=-1000, high=1000, name="values")
    plot = _figure(height=460, title=title, x_axis_label=x_label, y_axis_label=y_label)
    plot.multi_line("xs", "ys", color="color", line_width="width", source=lines)
    dots = plot.scatter(
        "x",
        "y",
        size="size",
        source=points,
        fill_color={"field": "value", "transform": mapper},
        line_color=_GREY,
        line_width=0.5,
    )
    plot.add_tools(models.HoverTool(renderers=[dots], tooltips=[("", "@label"), ("value", "@value")]))
    if kind in ("tree", "swarm"):
        bar = models.ColorBar(color_mapper=mapper, width=10, title="value" if kind == "tree" else "return")
        bar.major_label_text_color = bar.title_text_color = _GREY
        bar.background_fill_alpha = 0
        plot.add_layout(bar, "right")
    if kind == "tree":  # depth grows downwards
        plot.yaxis.ticker = models.BasicTicker(min_interval=1)
        plot.xaxis.visible = False
        plot.yaxis.formatter = models.CustomJSTickFormatter(code="return Math.abs(tick)")
    return plot


def _as_png(frame: NDArray[np.uint8]) -> str:
    """Return a frame as the address of a small PNG: 64 colours show games and simulators well."""
    from PIL import Image

    image = Image.fromarray(np.asarray(frame))
    image.thumbnail((_MAX_FRAME, _MAX_FRAME))
    buffer = io.BytesIO()
    image.quantize(64, dither=Image.Dither.NONE).save(buffer, "PNG", optimize=True)
    return "data:image/png;base64," + base64.b64encode(buffer.getvalue()).decode()
