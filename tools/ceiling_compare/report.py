"""report.html: one page that needs nothing beside it and can be read on a phone, in light and in dark.

Bars and tables are HTML, so that they flow with the window; figures with axes come from charts.py. The page is made
from results.json alone.
"""

from __future__ import annotations

import html
from pathlib import Path
from typing import Any, Iterable, Optional, Sequence

from . import analysis, charts
from .analysis import Row, Table

STYLE = Path(__file__).with_name("report.css")


def write_report(results: dict[str, Any], path: Path) -> None:
    """Writes the page."""
    path.write_text(page(results), encoding="utf-8")


def page(results: dict[str, Any]) -> str:
    """The whole page as text."""
    tables = analysis.tables(results)
    sections = [_section(results, table) for table in tables]
    sections += [_scaling(results, tables), _fairness(results), _missing(results), _how_to_read(), _machine(results),
                 _commands(results)]
    links = [(table.name, table.name) for table in tables]
    links += [("scaling", "Scaling"), ("fairness", "Fairness"), ("reading", "How to read this"), ("machine", "Machine")]
    navigation = "".join(f'<a href="#{anchor}">{_text(title)}</a>' for anchor, title in links)
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>What a request costs</title><style>{STYLE.read_text()}</style></head><body>"
        f'{_top(results, tables)}<nav aria-label="Sections"><div>{navigation}</div></nav>'
        f'<main>{"".join(sections)}</main>{_footer(results)}</body></html>\n')


# ---- the top --------------------------------------------------------------------------------------------------------

def _top(results: dict[str, Any], tables: Sequence[Table]) -> str:
    facts, place = results["machine"], results["placement"]
    where = (f"{_text(facts['cpu'])}, {len(facts['cpus_allowed'])} CPUs{' (virtual)' if facts['virtual'] else ''}, "
             f"Linux {_text(facts['kernel'])}; server on CPU {_cpus(place['server'])}, load generator on CPU "
             f"{_cpus(place['client'])}")
    when = f"{_text(results['created'].replace('T', ' ').replace('+00:00', ' UTC'))}, commit {_text(results['tool']['commit'])}"
    boxes = [_text(warning) for warning in results["warnings"]]
    if not results["complete"]:
        boxes.insert(0, "The session was interrupted; the figures are of the runs that were made.")
    return ('<header class="top"><h1>What a request costs</h1>'
            '<p>The CPU time that each server spends on one small answer, and what the load generator made of it. Rows are '
            'ranked by <b>server CPU per request</b>; requests per second stand beside it, with a verdict on who was the '
            f'bottleneck.</p><p class="faint small">{where}.<br>{when}.</p>'
            + "".join(f'<div class="box"><p>{warning}</p></div>' for warning in boxes)
            + _list(_headlines(tables), "findings lead") + "</header>")


def _headlines(tables: Sequence[Table]) -> list[str]:
    """One sentence a workload, for who reads no further."""
    found = []
    for table in tables:
        rows = [row for row in table.ranked if row.rate is not None]
        if len(rows) < 2:
            continue
        rates, costs = [row.rate.median for row in rows], [row.cost.median for row in rows]
        bound = sum(row.verdict == analysis.CLIENT_BOUND for row in rows)
        found.append(f"<b>{_text(table.name)}</b>: {_text(rows[0].title)} costs least ({rows[0].cost.median:.1f} µs), "
                     f"{_text(rows[-1].title)} most ({rows[-1].cost.median:.1f} µs): {max(costs) / min(costs):.1f} times the CPU, while requests/s "
                     f"differ {max(rates) / min(rates):.1f} times"
                     + (f"; the load generator was the limit in {bound} of {len(rows)} rows" if bound else "") + ".")
    return found


# ---- one workload ---------------------------------------------------------------------------------------------------

def _section(results: dict[str, Any], table: Table) -> str:
    parts = [f'<section id="{_text(table.name)}"><h2>{_text(table.name)}</h2><p class="faint">{_text(table.what)}<br>'
             f'<code>{_text(" ".join(table.command))}</code></p>', _list(map(_text, table.findings), "findings")]
    if not table.shown:
        return "".join(parts) + "<p>No run of this workload was valid.</p>" + _doubts(table) + "</section>"
    parts += ["<h3>Server CPU per request, µs (shorter is better)</h3>", _bars(table)]
    figure = charts.scatter(table)
    if figure:
        client = table.command[0] if table.command else "the client"
        parts += [f"<h3>What {_text(client)} saw against what the server paid</h3>", _verdict_legend(), figure,
                  '<p class="faint small">Both axes start at nought. Points above each other were told apart by the server’s '
                  'CPU alone. The line through a point spans its rounds.</p>']
    parts += ["<h3>Who was busy</h3>", _stacks(table)]
    if table.article:
        parts.append(_article(table.article))
    drawn = charts.timelines(table.name, _series(results, table))
    if drawn:
        parts += ["<h3>The server’s CPUs while the client ran (first round)</h3>", _legend(user="user", system="system and interrupts"),
                  drawn, '<p class="faint small">Whole CPUs, as vmstat and sar show them: other programs are in it.</p>']
    parts += ["<details><summary>All figures</summary>", _figures(table), "</details>", _doubts(table), "</section>"]
    return "".join(parts)


def _bars(table: Table) -> str:
    longest = max(row.cost.maximum for row in table.rows if row.cost)
    return '<div class="bars">' + "".join(_bar(row, longest) for row in table.rows) + "</div>"


def _bar(row: Row, longest: float) -> str:
    kind = "control" if row.control else "own" if row.name == "ceiling" else "stick" if row.stick else ""
    if row.cost is None:
        return (f'<div class="bar"><span class="name"><span class="rank"></span><span>{_text(row.title)}</span></span>'
                f'<span class="rate">{_text(row.voids[0]) if row.voids else "not run"}</span>'
                '<span class="value"><span class="tag void">void</span></span></div>')
    width, low, high = (100 * value / longest for value in (row.cost.median, row.cost.minimum, row.cost.maximum))
    ratio = f" · {row.to_reference.median:.2f}×" if row.to_reference and row.name != "ceiling" else ""
    rank = "A/A" if row.control else "–" if row.stick else f"{row.rank}{'=' if row.tied else '.'}"
    rate = f"{row.rate.median:,.0f} requests/s" if row.rate else "no requests/s"
    return (f'<div class="bar {kind}"><span class="name"><span class="rank">{rank}</span><span>{_text(row.title)}</span></span>'
            f'<span class="track"><span class="fill" style="width:{width:.2f}%"></span>'
            f'<span class="range" style="left:{low:.2f}%;width:{max(0.2, high - low):.2f}%"></span></span>'
            f'<span class="value"><b>{row.cost.median:.2f}</b>{ratio}</span>'
            f'<span class="rate">{rate} <span class="tag {row.verdict}">{row.verdict}</span></span></div>')


def _stacks(table: Table) -> str:
    """Two meters a row: the server's share of CPU in user, system and idle time, and the client's in busy and idle."""
    lines = ['<div class="stack head"><span class="name"></span><span>server</span><span>load generator</span></div>']
    for row in table.rows:
        if row.cost is None or row.server_busy is None or row.client_busy is None:
            continue
        whole = (row.user or 0) + (row.system or 0)
        user = row.server_busy * (row.user or 0) / whole * 100 if whole else 0
        system = row.server_busy * 100 - user
        lines.append(
            f'<div class="stack"><span class="name">{_text(row.title)}</span>'
            f'<span class="meter" title="{row.server_busy:.0%} busy"><span class="user" style="width:{user:.1f}%"></span>'
            f'<span class="system" style="width:{system:.1f}%"></span>'
            f'<span class="waiting" style="width:{row.server_waiting * 100:.1f}%"></span></span>'
            f'<span class="meter" title="{row.client_busy:.0%} busy"><span class="busy" style="width:{row.client_busy * 100:.1f}%">'
            f'</span><span class="waiting" style="width:{row.client_waiting * 100:.1f}%"></span></span></div>')
    return (_legend(user="server, user", system="server, system", busy="load generator", waiting="kept waiting by other programs",
                    idle="idle")
            + f'<div class="stacks">{"".join(lines)}</div>')


def _article(article: analysis.ArticleTable) -> str:
    turned = {line.name for line in article.lines if line.cost_rank is not None and line.cost_rank != _rank_there(article, line)}
    rows = []
    for line in article.lines:
        rows.append((
            [line.label, f"{line.there:,.0f}", str(line.there_rank), f"{line.here:,.0f}" if line.here else "not here",
             str(line.here_rank or ""), f"{line.cost:.2f}" if line.cost else "", str(line.cost_rank or ""), line.verdict],
            "turned" if line.name in turned else ""))
    heads = ["contestant", "requests/s there", "rank there", "requests/s here", "rank here", "server µs here", "rank by cost", "verdict"]
    sentences = [_text(sentence) + "." for sentence in article.turned] or [
        "The order by cost here is the article’s order by requests/s."]
    return (f"<h3>{_text(article.title[0].upper() + article.title[1:])}: there and here</h3>"
            f'<p class="faint small">There: {_text(article.box)}. Rows whose place turns over are coloured.</p>'
            + _grid(heads, rows, numbers=range(1, 7)) + _list(sentences, "findings small"))


def _rank_there(article: analysis.ArticleTable, line: analysis.ArticleLine) -> int:
    """The published rank among the rows that ran here."""
    return 1 + sum(other.cost is not None and other.there > line.there for other in article.lines)


def _series(results: dict[str, Any], table: Table) -> list[tuple[str, list[list[float]]]]:
    series = []
    for row in table.rows:
        runs = [run for run in analysis.main_runs(results, table.name, row.name) if not run["voids"]]
        if runs and not row.control:
            series.append((row.title, runs[0]["timeline"]))
    return series


def _figures(table: Table) -> str:
    heads = ["contestant", "server µs", "min … max", "user", "system", "client µs", f"÷ {table.reference}", "95 %", "÷ floor",
             "requests/s", "per full core", "sleeps/request", "p50 ms", "p99 ms", "max ms", "peak memory", "rounds"]
    rows = []
    for row in table.rows:
        if row.cost is None:
            continue
        ratio = row.to_reference
        rows.append(([
            row.title, f"{row.cost.median:.2f}", f"{row.cost.minimum:.2f} … {row.cost.maximum:.2f}", _number(row.user),
            _number(row.system), _number(row.client_cost.median if row.client_cost else None), _number(ratio.median if ratio else None),
            f"{ratio.interval[0]:.2f} … {ratio.interval[1]:.2f}" if ratio and ratio.interval else "",
            _number(row.to_floor.median if row.to_floor else None), f"{row.rate.median:,.0f}" if row.rate else "",
            f"{row.per_core:,.0f}" if row.per_core else "", f"{row.sleeps:.3f}" if row.sleeps is not None else "",
            _number(row.latency.get("50"), 3), _number(row.latency.get("99"), 3), _number(row.latency.get("max"), 3),
            f"{row.memory / 2**20:.1f} MiB" if row.memory else "", str(row.valid)], ""))
    return ('<div style="overflow-x:auto">' + _grid(heads, rows, numbers=range(1, len(heads))) + "</div>"
            '<p class="faint small">Latencies are a closed loop’s: a client that waits for an answer before it asks again asks '
            'less while the server is slow, so queueing hides from them. User and system are split by the kernel’s ticks.</p>')


def _doubts(table: Table) -> str:
    lines = [f'<b>{_text(row.title)}</b>: <span class="tag void">void</span> {_text(sentence)}' for row in table.rows
             for sentence in row.voids]
    lines += [f"<b>{_text(row.title)}</b>: {_text(sentence)}" for row in table.rows for sentence in row.warnings]
    if not lines:
        return ""
    return (f"<details{' open' if any(row.voids for row in table.rows) else ''}><summary>Voids and warnings ({len(lines)})</summary>"
            + _list(lines, "findings small") + "</details>")


def _verdict_legend() -> str:
    return ('<div class="legend">' + "".join(
        f'<span><i class="dot" style="background:var(--{colour})"></i>{name}</span>'
        for name, colour in (("server-bound", "server"), ("client-bound", "client"), ("neither", "neither"))) + "</div>")


def _legend(**entries: str) -> str:
    return '<div class="legend">' + "".join(f'<span><i class="{name}"></i>{text}</span>' for name, text in entries.items()) + "</div>"


# ---- scaling, fairness, machine -------------------------------------------------------------------------------------

def _scaling(results: dict[str, Any], tables: Sequence[Table]) -> str:
    points = analysis.scaling(results)
    parts = ['<section id="scaling"><h2>Scaling and projection</h2>']
    if points:
        parts += ["<p>./server, wrk, connections kept; the load generator has the CPUs that are left. The dashed line is the first "
                  "point times the workers.</p>", charts.scaling(points),
                  _grid(["workers", "requests/s", "server µs", "verdict", "doubts"],
                        [([str(point.workers), f"{point.requests_per_second:,.0f}", f"{point.cost:.2f}", point.verdict,
                           "; ".join(point.warnings)], "") for point in points], numbers=(1, 2))]
    else:
        parts.append("<p>Runs with more and more workers were not part of this session.</p>")
    for table in tables:
        threads = len(results["placement"]["client"]) if table.command and table.command[0] == "wrk" else 1
        projected = analysis.projection(table, threads)
        if projected and table.article:
            parts += [f"<h3>{_text(table.name)} on {analysis.PROJECTED_CORES} cores like these, requests/s at most</h3>",
                      _grid(["contestant", "one worker, client on the same box", "all workers, client on the same box", "limit then",
                             "client elsewhere"],
                            [([one.title, f"{one.one_worker:,.0f}", f"{one.shared:,.0f}", one.shared_limit, f"{one.remote:,.0f}"], "")
                             for one in projected], numbers=(1, 2, 4))]
    parts += ['<p class="small">Assumed:</p>', _list(map(_text, analysis.PROJECTION_ASSUMPTIONS), "findings small"), "</section>"]
    return "".join(parts)


def _fairness(results: dict[str, Any]) -> str:
    rows = []
    for fair in analysis.fairness(results):
        sizes = ", ".join(f"{size} ({profile.upper()})" for profile, size in sorted(fair.answer_bytes.items()))
        rows.append(([fair.title, fair.version, fair.event_loop, fair.access_log, fair.keep_alive_limit, sizes,
                      "; ".join(([fair.note] if fair.note else []) + fair.warnings)], ""))
    workers = results["options"]["workers"]
    return ('<section id="fairness"><h2>Fairness</h2>'
            f"<p>Every contestant had {workers} worker{'s' * (workers != 1)}, the same CPUs, and was told the same body and headers. "
            "What differs all the same:</p>"
            + _grid(["contestant", "version", "event loop", "access log", "keep-alive limit", "answer, bytes", "differs"], rows)
            + "</section>")


def _missing(results: dict[str, Any]) -> str:
    missing = [one for one in results["contestants"] if one["missing"]]
    if not missing:
        return ""
    return ("<section><h2>Not here</h2>" + _list([f"<b>{_text(one['title'])}</b>: {_text(one['missing'])}" for one in missing], "findings")
            + "</section>")


def _how_to_read() -> str:
    return """<section id="reading"><h2>How to read this</h2>
<p><b>Server CPU per request</b> is the time that all of the server’s processes and threads, and the kernel on their behalf,
spent on a CPU while the client ran, divided by the answers. It repeats within a few per cent on a noisy machine, where requests per
second may wander by tens. On loopback it includes the client’s half of receiving: the same for everybody.</p>
<p><b>Server-bound</b>: the server used up its share of CPU while the client had time to spare, so requests/s is the server’s.
<b>Client-bound</b>: the load generator was at least 95 % busy and the server less than 90 %, so requests/s is the load
generator’s: such rows are never ranked by it. <b>Neither</b>: both had time to spare, or both had none.</p>
<p><b>A/A</b>: the same server entered twice. What differs between the two is noise, and no smaller difference between
other rows is claimed.</p></section>"""


def _machine(results: dict[str, Any]) -> str:
    facts = results["machine"]
    quota = f"{facts['cpu_quota']:g} CPUs" if facts["cpu_quota"] is not None else "none"
    pairs = [
        ("CPU", f"{facts['cpu']}{', virtual machine' if facts['virtual'] else ''}"),
        ("CPUs", f"{facts['cpus_online']} online, may use {_cpus(facts['cpus_allowed'])}; quota: {quota}; SMT: {facts['smt']}"),
        ("Placement", f"server {_cpus(results['placement']['server'])}, load generator {_cpus(results['placement']['client'])}: "
                      f"{results['placement']['reason']}"),
        ("Memory", f"{facts['memory_bytes'] / 2**30:.1f} GiB"),
        ("System", f"{facts['distribution']}, Linux {facts['kernel']}"),
        ("Clock, governor", f"{facts['clocksource']}, {facts['governor']}"),
        ("Load at the start", f"{facts['load_average']:.2f}"),
        ("Descriptors", f"{facts['descriptors_max']:,} at most"),
        *results["versions"].items()]
    lists = [("Mitigations", facts["mitigations"]), ("Kernel settings", facts["sysctls"])]
    return ('<section id="machine"><h2>Machine</h2>' + _facts(pairs)
            + "".join(f"<details><summary>{title}</summary>{_facts(values.items())}</details>" for title, values in lists) + "</section>")


def _commands(results: dict[str, Any]) -> str:
    """The exact commands, one of each kind."""
    seen: dict[tuple[str, str], dict[str, Any]] = {}
    for run in results["runs"]:
        if run["server_command"] and run["phase"] == "main":
            seen.setdefault((run["workload"], run["contestant"]), run)
    text = "\n".join(f"# {workload}, {contestant}\n{' '.join(map(_quoted, run['server_command']))}\n"
                     f"{' '.join(map(_quoted, run['client_command']))}" for (workload, contestant), run in seen.items())
    command = " ".join(map(_quoted, results["tool"]["command"]))
    return (f"<section><h2>Commands</h2><p>This page was made by <code>{_text(command)}</code>.</p>"
            f"<details><summary>Every server’s and client’s exact command (first round)</summary><pre>{_text(text)}</pre></details></section>")


def _footer(results: dict[str, Any]) -> str:
    runs = results["runs"]
    void = sum(bool(run["voids"]) for run in runs)
    return (f"<footer>{len(runs)} runs in {results['seconds']:.0f} s, {void} of them void and not shown. All figures, every run: "
            "results.json and results.csv beside this page.</footer>")


# ---- small pieces ---------------------------------------------------------------------------------------------------

def _grid(heads: Sequence[str], rows: Iterable[tuple[Sequence[str], str]], numbers: Iterable[int] = ()) -> str:
    """A table that becomes cards on a phone. A row is (cells, class)."""
    numeric = set(numbers)
    kind = (lambda index: ' class="number"' if index in numeric else ' class="verdict"' if heads[index] == "verdict" else "")
    head = "".join(f"<th{kind(index)}>{_text(text)}</th>" for index, text in enumerate(heads))
    body = "".join(
        f'<tr class="{style}">' + "".join(f'<td{kind(index)} data-label="{_text(heads[index])}">{_text(cell)}</td>'
                                          for index, cell in enumerate(cells)) + "</tr>" for cells, style in rows)
    return f'<table class="cards"><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>'


def _facts(pairs: Iterable[tuple[str, Any]]) -> str:
    return '<dl class="facts">' + "".join(f"<dt>{_text(name)}</dt><dd>{_text(value)}</dd>" for name, value in pairs) + "</dl>"


def _list(items: Iterable[str], style: str) -> str:
    lines = "".join(f"<li>{item}</li>" for item in items)
    return f'<ul class="{style}">{lines}</ul>' if lines else ""


def _text(value: Any) -> str:
    return html.escape(str(value), quote=True)


def _number(value: Optional[float], digits: int = 2) -> str:
    return f"{value:.{digits}f}" if value is not None else ""


def _cpus(cpus: Sequence[int]) -> str:
    """0, 1, 2, 5 as `0-2, 5`."""
    groups: list[list[int]] = []
    for cpu in cpus:
        if groups and cpu == groups[-1][-1] + 1:
            groups[-1].append(cpu)
        else:
            groups.append([cpu])
    return ", ".join(f"{group[0]}-{group[-1]}" if len(group) > 1 else str(group[0]) for group in groups)


def _quoted(word: str) -> str:
    """A word as a shell needs it."""
    return word if word and all(letter.isalnum() or letter in "-_./:,=+@" for letter in word) else "'" + word.replace("'", "'\\''") + "'"
