"""What the terminal shows: a progress bar with the time left, and the tables at the end."""

from __future__ import annotations

from typing import Any, Optional

from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, Progress, TextColumn
from rich.table import Table as RichTable

from . import analysis
from .peers import Peer

VERDICT_STYLES = {"server-bound": "green", "client-bound": "yellow", "neither": "cyan"}


class ProgressWatcher:
    """Shows what runs now and how long it will still take. A line a workload where the output is no terminal."""

    def __init__(self, console: Console):
        self._console = console
        self._line = ""
        self._progress = Progress(TextColumn("{task.description}"), BarColumn(), TextColumn("{task.percentage:>3.0f} %"),
                                  TextColumn("{task.fields[left]}"), console=console, transient=True)
        self._task = self._progress.add_task("starting", total=1.0, left="")

    def __enter__(self) -> "ProgressWatcher":
        if self._console.is_terminal:
            self._progress.start()
        return self

    def __exit__(self, *_: Any) -> None:
        if self._console.is_terminal:
            self._progress.stop()

    def step(self, text: str, done_seconds: float, total_seconds: float) -> None:
        left = max(0.0, total_seconds - done_seconds)
        self._progress.update(self._task, description=escape(text), completed=done_seconds, total=max(total_seconds, 1e-9),
                              left=f"{_duration(left)} left")
        head = text.partition(":")[0]
        if not self._console.is_terminal and head != self._line:
            self._line = head
            self._console.print(f"{head}, about {_duration(left)} left", highlight=False)

    def finished(self, record: dict[str, Any]) -> None:
        if record["voids"]:
            self._console.print(f"[yellow]void[/]: {escape(record['contestant'])} in {record['workload']}: "
                                f"{escape(record['voids'][0])}", highlight=False)


def _duration(seconds: float) -> str:
    whole = int(seconds + 0.5)
    return f"{whole // 60}:{whole % 60:02d} min" if whole >= 60 else f"{whole} s"


def show_list(console: Console, peers: list[Peer]) -> None:
    """--list: every contestant, its version or what it lacks."""
    table = RichTable("contestant", "what", "version, or what is missing", box=None, pad_edge=False)
    for peer in peers:
        state = f"[red]missing[/]: {escape(peer.missing)}" if peer.missing else escape(peer.version() or "here")
        table.add_row(peer.name, escape(peer.title), state)
    console.print(table)


def show_results(console: Console, results: dict[str, Any]) -> None:
    """Everything the session found, as tables and sentences."""
    for warning in results["warnings"]:
        console.print(f"[bold yellow]warning[/]: {escape(warning)}", highlight=False)
    for table in analysis.tables(results):
        show_table(console, table)
    points = analysis.scaling(results)
    if points:
        console.print("\n[bold]scaling[/] of ./server, wrk, connections kept: " + ", ".join(
            f"{point.workers} worker{'s' * (point.workers > 1)} {point.requests_per_second:,.0f}/s at {point.cost:.2f} µs "
            f"({point.verdict}{', client shares its CPUs' if any('share' in text for text in point.warnings) else ''})"
            for point in points), highlight=False)
    missing = [one for one in results["contestants"] if one["missing"]]
    if missing:
        console.print("\n[bold]not here[/]", highlight=False)
        for one in missing:
            console.print(f"  {escape(one['name'])}: {escape(one['missing'])}", highlight=False)


def show_table(console: Console, table: analysis.Table) -> None:
    """One workload."""
    console.print(f"\n[bold]{table.name}[/]  {escape(table.what)}", highlight=False)
    grid = RichTable(box=None, pad_edge=False, header_style="dim")
    grid.add_column("#", justify="right")
    grid.add_column("contestant", overflow="ellipsis")
    for title in ("server µs", "min … max", f"÷ {table.reference.lower() or 'first'}", "95 %", "requests/s", "bound",
                  "per full core" if table.held_to is not None else "p99 ms"):
        grid.add_column(title, justify="left" if title == "bound" else "right", no_wrap=True)
    for row in table.rows:
        if row.cost is None:
            grid.add_row("", escape(row.title), "[yellow]void[/]", "", "", "", "", "", "")
            continue
        grid.add_row("" if row.control or row.stick else f"{row.rank}{'=' if row.tied else ''}", escape(row.title),
                     f"[bold]{row.cost.median:.2f}[/]", f"{row.cost.minimum:.2f} … {row.cost.maximum:.2f}",
                     *_ratio(row.to_reference), f"{row.rate.median:,.0f}" if row.rate else "",
                     f"[{VERDICT_STYLES[row.verdict]}]{row.verdict}[/]",
                     _last_column(table, row))
    console.print(grid)
    for finding in table.findings:
        console.print("  " + escape(finding), highlight=False, style="dim")
    for row in table.rows:
        for sentence in row.voids:
            console.print(f"  [yellow]void[/] {escape(row.title)}: {escape(sentence)}", highlight=False)
    if table.article:
        show_article(console, table.article)


def _last_column(table: analysis.Table, row: analysis.Row) -> str:
    """Requests/s a full core would serve where the servers were held to less, else the 99th percentile."""
    if table.held_to is not None:
        return f"{row.per_core:,.0f}" if row.per_core else ""
    return f"{row.latency['99']:.2f}" if "99" in row.latency else ""


def _ratio(ratio: Optional[analysis.Ratio]) -> tuple[str, str]:
    if ratio is None:
        return "", ""
    interval = f"{ratio.interval[0]:.2f} … {ratio.interval[1]:.2f}" if ratio.interval else ""
    return f"{ratio.median:.2f}", interval


def show_article(console: Console, article: analysis.ArticleTable) -> None:
    """The published figures beside ours."""
    grid = RichTable(box=None, pad_edge=False, header_style="dim", title=f"{article.title} there and here",
                     title_justify="left", title_style="")
    for title in ("there", "contestant", "req/s there", "req/s here", "rank", "µs here", "rank by cost"):
        grid.add_column(title, justify="left" if title == "contestant" else "right")
    for line in article.lines:
        grid.add_row(str(line.there_rank), escape(line.label), f"{line.there:,.0f}",
                     f"{line.here:,.0f}" if line.here else "not here", str(line.here_rank or ""),
                     f"{line.cost:.2f}" if line.cost else "", str(line.cost_rank or ""))
    console.print(grid)
    for sentence in article.turned:
        console.print("  " + escape(sentence), highlight=False, style="dim")
