"""The figures that need axes, drawn by matplotlib as SVG that goes into the page.

Every figure is drawn twice, for a wide and for a narrow window, so that its letters keep their size; style sheets show
one of them. Colours are drawn as stand-ins and then replaced by the page's own variables, so that one drawing serves
light and dark.
"""

from __future__ import annotations

import dataclasses
import io
import re
from typing import Any, Callable, Sequence

import matplotlib
matplotlib.use("svg")
import matplotlib.pyplot as plt      # noqa: E402  (the backend must be chosen first)
import numpy as np                   # noqa: E402

from measure.run import CLIENT_BOUND, NEITHER, SERVER_BOUND     # noqa: E402

from .analysis import Row, ScalingPoint, Table      # noqa: E402

WIDE_INCHES, NARROW_INCHES = 9.6, 4.0       # 691 and 288 points; shown at about 920 and 360 pixels
LABEL_GAP_POINTS = 13                       # between two lines of labels at 9 points


@dataclasses.dataclass(frozen=True)
class Colour:
    """A stand-in that no figure uses otherwise, and the style sheet's variable that takes its place."""
    stand_in: str
    variable: str


INK = Colour("#010203", "--ink")
FAINT = Colour("#010204", "--faint")
RULE = Colour("#010205", "--rule")
USER = Colour("#010206", "--user")
SYSTEM = Colour("#010207", "--system")
CLIENT = Colour("#010208", "--client")
SERVER_SIDE = Colour("#010209", "--server")
NEUTRAL = Colour("#01020a", "--neither")
COLOURS = (INK, FAINT, RULE, USER, SYSTEM, CLIENT, SERVER_SIDE, NEUTRAL)
VERDICT_COLOURS = {SERVER_BOUND: SERVER_SIDE, CLIENT_BOUND: CLIENT, NEITHER: NEUTRAL}

STYLE = {
    "svg.fonttype": "none", "font.family": "sans-serif", "font.size": 9, "text.color": INK.stand_in,
    "axes.edgecolor": RULE.stand_in, "axes.labelcolor": FAINT.stand_in, "axes.titlesize": 9, "axes.titlecolor": INK.stand_in,
    "xtick.color": RULE.stand_in, "ytick.color": RULE.stand_in, "xtick.labelcolor": FAINT.stand_in,
    "ytick.labelcolor": FAINT.stand_in, "axes.spines.top": False, "axes.spines.right": False, "grid.color": RULE.stand_in,
    "grid.linewidth": 0.6, "figure.facecolor": "none", "axes.facecolor": "none", "savefig.facecolor": "none",
}
plt.rcParams.update({name: value for name, value in STYLE.items() if name in plt.rcParams})     # matplotlib 3.3 has no labelcolor


def both_widths(draw: Callable[[float], Any], label: str) -> str:
    """Draws a figure in both widths and returns one piece of HTML. `label` is what a screen reader says."""
    return (f'<div class="figure wide" role="img" aria-label="{label}">{_svg(draw(WIDE_INCHES), label + " wide")}</div>'
            f'<div class="figure narrow" role="img" aria-label="{label}">{_svg(draw(NARROW_INCHES), label + " narrow")}</div>')


def _svg(figure: Any, salt: str) -> str:
    """The figure as an <svg> element without size, in the page's colours."""
    matplotlib.rcParams["svg.hashsalt"] = salt      # names of clip paths: the same on every rendering, never shared
    buffer = io.StringIO()
    figure.savefig(buffer, format="svg", metadata={"Date": None, "Creator": None})
    plt.close(figure)
    text = buffer.getvalue()
    text = text[text.index("<svg"):]
    text = re.sub(r'(<svg[^>]*?) width="[^"]*"', r"\1", text, count=1)
    text = re.sub(r'(<svg[^>]*?) height="[^"]*"', r"\1", text, count=1)
    text = re.sub(r"<metadata>.*?</metadata>", "", text, flags=re.DOTALL)
    text = re.sub(r' id="[A-Za-z][A-Za-z0-9.]*_\d+"', "", text)     # names of groups, the same in every figure; nothing uses them
    for colour in COLOURS:
        text = text.replace(colour.stand_in, f"var({colour.variable})")
    return text.strip()


# ---- what ab saw against what the server paid -----------------------------------------------------------------------

def scatter(table: Table) -> str:
    """Requests/s against CPU per request; both axes start at nought, so that distances are true."""
    rows = [row for row in table.shown if row.rate is not None]
    client = table.command[0] if table.command else "the client"
    label = f"{table.name}: what {client} saw against what the server paid"
    return both_widths(lambda inches: _scatter(rows, client, inches), label) if len(rows) > 1 else ""


def _scatter(rows: Sequence[Row], client: str, inches: float) -> Any:
    narrow = inches == NARROW_INCHES
    figure, axes = plt.subplots(figsize=(inches, 4.6 if narrow else 4.2))
    figure.subplots_adjust(left=0.14 if narrow else 0.07, right=0.58 if narrow else 0.74, top=0.97, bottom=0.12)
    rates = np.array([row.rate.median for row in rows])
    costs = np.array([row.cost.median for row in rows])
    axes.set_xlim(0, rates.max() * 1.08)
    axes.set_ylim(0, max(costs.max() * 1.10, max(row.cost.maximum for row in rows) * 1.03))
    axes.grid(True, zorder=0)
    axes.set_xlabel(f"requests/s, as {client} saw it")
    axes.set_ylabel("server CPU, µs a request")
    axes.xaxis.set_major_locator(matplotlib.ticker.MaxNLocator(3 if narrow else 6))
    axes.xaxis.set_major_formatter(matplotlib.ticker.FuncFormatter(lambda value, _: f"{value / 1000:g}k" if value else "0"))
    for row in rows:
        colour = VERDICT_COLOURS[row.verdict].stand_in
        axes.plot(row.rate.median, row.cost.median, "o", markersize=7 if row.name == "ceiling" else 5.5, color=colour, zorder=3)
        axes.plot([row.rate.median] * 2, [row.cost.minimum, row.cost.maximum], color=colour, linewidth=1.2, zorder=2)
    _label_column(axes, rows, costs)
    return figure


def _label_column(axes: Any, rows: Sequence[Row], costs: np.ndarray) -> None:
    """Names in a column at the right, pushed apart so that none covers another, each with a line to its point."""
    height_points = axes.get_window_extent().height * 72 / axes.figure.dpi
    top = axes.get_ylim()[1]
    order = np.argsort(costs)
    wanted = costs[order] / top * height_points
    places = _spread_apart(wanted, LABEL_GAP_POINTS, height_points)
    right = axes.get_xlim()[1]
    for place, index in zip(places, order):
        row = rows[index]
        y = place / height_points * top
        axes.annotate(f"{row.title}  {row.cost.median:.1f}", (right, y), xytext=(8, 0), textcoords="offset points", va="center",
                      fontsize=9, fontweight="bold" if row.name == "ceiling" else "normal", annotation_clip=False)
        axes.plot([row.rate.median, right], [row.cost.median, y], color=RULE.stand_in, linewidth=0.7, zorder=1, clip_on=False)


def _spread_apart(wanted: np.ndarray, gap: float, height: float) -> list[float]:
    """Places as near as can be to the wanted ones, ascending, at least `gap` apart: up first, then down from the top."""
    places: list[float] = []
    for value in wanted:
        places.append(max(value, places[-1] + gap) if places else max(value, 0.0))
    limit = height
    for index in range(len(places) - 1, -1, -1):
        places[index] = min(places[index], limit)
        limit = places[index] - gap
    return places


# ---- timelines ------------------------------------------------------------------------------------------------------

def timelines(title: str, series: Sequence[tuple[str, list[list[float]]]]) -> str:
    """User, system and idle time of the server's CPUs while the client ran, one small figure a contestant: article B's
    sar and vmstat columns, drawn."""
    series = [(name, points) for name, points in series if len(points) >= 3]
    return both_widths(lambda inches: _timelines(series, inches), f"{title}: CPU over time") if series else ""


def _timelines(series: Sequence[tuple[str, list[list[float]]]], inches: float) -> Any:
    columns = 2 if inches == NARROW_INCHES else 4
    lines = -(-len(series) // columns)
    figure, grid = plt.subplots(lines, columns, figsize=(inches, 1.25 * lines + 0.25), squeeze=False, sharey=True)
    figure.subplots_adjust(left=0.11 if columns == 2 else 0.05, right=0.98, top=1 - 0.22 / (1.25 * lines + 0.25),
                           bottom=0.22 / (1.25 * lines + 0.25), hspace=0.75, wspace=0.12)
    for axes in grid.flat[len(series):]:
        axes.axis("off")
    for axes, (name, points) in zip(grid.flat, series):
        times = np.array([0.0] + [point[0] for point in points])
        user = np.array([points[0][1]] + [point[1] for point in points]) * 100
        system = np.array([points[0][2]] + [point[2] for point in points]) * 100
        axes.stackplot(times, user, system, colors=[USER.stand_in, SYSTEM.stand_in], linewidth=0, step="pre")
        axes.set_ylim(0, 100)
        axes.set_xlim(0, times[-1])
        axes.set_yticks([0, 50, 100])
        axes.xaxis.set_major_locator(matplotlib.ticker.MaxNLocator(3))
        axes.xaxis.set_major_formatter(matplotlib.ticker.FuncFormatter(lambda value, _: f"{value:g} s"))
        axes.set_title(name, loc="left", pad=3)
        axes.tick_params(labelsize=8, length=2)
    return figure


# ---- scaling --------------------------------------------------------------------------------------------------------

def scaling(points: Sequence[ScalingPoint]) -> str:
    """Requests/s against workers, with the line that no loss would give."""
    return both_widths(lambda inches: _scaling(points, inches), "requests per second against workers") if len(points) > 1 else ""


def _scaling(points: Sequence[ScalingPoint], inches: float) -> Any:
    narrow = inches == NARROW_INCHES
    figure, axes = plt.subplots(figsize=(inches, 3.0))
    figure.subplots_adjust(left=0.16 if narrow else 0.07, right=0.97, top=0.95, bottom=0.17)
    workers = np.array([point.workers for point in points])
    rates = np.array([point.requests_per_second for point in points])
    axes.plot(workers, rates[0] / workers[0] * workers, "--", color=FAINT.stand_in, linewidth=1)
    axes.plot(workers, rates, "-o", color=SERVER_SIDE.stand_in, linewidth=1.8)
    axes.set_xlabel("workers")
    axes.set_ylabel("requests/s")
    axes.set_xticks(workers)
    axes.set_ylim(0, None)
    axes.grid(True, axis="y")
    axes.yaxis.set_major_formatter(matplotlib.ticker.FuncFormatter(lambda value, _: f"{value / 1000:g}k" if value else "0"))
    return figure
