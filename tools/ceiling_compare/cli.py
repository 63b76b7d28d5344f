"""Options of tools/compare, and what happens in which order."""

from __future__ import annotations

import argparse
import datetime
import signal
import sys
from pathlib import Path
from typing import Optional, Sequence

from rich.console import Console

import measure
from measure import Placement, ServerError, ShareError
from measure.client import missing_client
from measure.placement import parse_cpu_list

from . import peers as contestants
from . import report, results as results_file, terminal
from .session import Plan, Session
from .workloads import ARTICLE_NAMES, DEFAULT_NAMES, WORKLOADS, workload

EXIT_SYSTEM, EXIT_USAGE, EXIT_INTERRUPTED = 1, 2, 130
FILE_WIDTH = 120            # columns where the output is no terminal

DESCRIPTION = """\
Replays two well-known benchmark articles on this machine, and says what was really measured: the server's CPU time per
request, and who was the bottleneck. Rows are ranked by cost; requests per second stand beside it, with a verdict.

  tools/compare                 about two minutes: what is installed, three rounds
  tools/compare --quick         a first look
  tools/compare --article a     the article's exact commands, its figures beside ours
  tools/compare --server 'mine=./mine --port {port} --threads {workers}'
"""

EPILOGUE = """\
workloads:
""" + "\n".join(f"  {each.name:20} {each.what}" for each in WORKLOADS) + """

The result is a folder with results.json (stable, documented in tools/ceiling_compare/results.py), results.csv and
report.html, one page without anything beside it. Ctrl-C stops at once, keeps what was measured and leaves no process.
Exit status: 0 measured, 1 could not, 2 wrong usage, 130 interrupted (what was measured is kept).
"""


def parser() -> argparse.ArgumentParser:
    """The command line."""
    made = argparse.ArgumentParser(prog="tools/compare", description=DESCRIPTION, epilog=EPILOGUE,
                                   formatter_class=argparse.RawDescriptionHelpFormatter)
    what = made.add_argument_group("what to run")
    what.add_argument("--quick", action="store_true", help="smaller counts, two rounds")
    what.add_argument("--article", choices=sorted(ARTICLE_NAMES), help="the article's workloads with its exact commands")
    what.add_argument("--workloads", metavar="LIST", help=f"comma-separated, or `all` (default: {','.join(DEFAULT_NAMES)})")
    what.add_argument("--only", metavar="LIST", help="comma-separated contestants (default: all that are here)")
    what.add_argument("--without", metavar="LIST", help="contestants to leave out")
    what.add_argument("--server", action="append", default=[], metavar="NAME=COMMAND",
                      help="your own contestant; {port} and {workers} are filled in, it must answer GET / with 200 and a "
                           "Content-Length; may be given several times")
    how = made.add_argument_group("how")
    how.add_argument("--rounds", type=int, metavar="N", help="rounds over all contestants (default: 3; quick and article b: 2)")
    how.add_argument("--scale", type=float, default=1.0, metavar="FACTOR", help="multiply every count and duration (default: 1)")
    how.add_argument("--workers", type=int, metavar="N", help="workers of every contestant (default: the server's CPUs)")
    how.add_argument("--server-cpus", metavar="CPUS", help="CPUs of the server, such as 0-3 (default: half of the cores)")
    how.add_argument("--client-cpus", metavar="CPUS", help="CPUs of the load generator (default: the others)")
    how.add_argument("--server-bound", nargs="?", type=float, const=0.0, metavar="CORES",
                     help="hold the server to a share of a core (0.3: 30 %%), so that it is the limit even on a small machine; "
                          "without a number, find one (needs control groups, which usually means root)")
    how.add_argument("--no-scaling", action="store_true", help="leave out the runs with 1, 2, 4 … workers")
    out = made.add_argument_group("results")
    out.add_argument("--output", metavar="FOLDER", help="where the results go (default: results/DATE-TIME)")
    out.add_argument("--list", action="store_true", help="contestants, versions, what is missing and the line that gets it")
    out.add_argument("--report", metavar="RESULTS.JSON", help="render old results again, beside them; measure nothing")
    return made


def main(arguments: Optional[Sequence[str]] = None) -> int:
    """The program; returns its exit status."""
    words = list(sys.argv[1:] if arguments is None else arguments)
    options = parser().parse_args(words)
    console = Console()
    if not console.is_terminal:
        console = Console(width=FILE_WIDTH)
    try:
        if options.report:
            return _render_again(console, Path(options.report))
        known = _contestants(options)
        if options.list:
            terminal.show_list(console, known)
            return 0
        session = Session(_plan(options, known), _folder(options), ["tools/compare", *words])
    except (contestants.PeerError, UsageError) as error:
        return _fail(str(error), EXIT_USAGE)
    except results_file.ResultsError as error:
        return _fail(str(error), EXIT_SYSTEM)
    return _measure(console, session)


class UsageError(Exception):
    """The command line asks for something that cannot be; the text is one sentence."""


def _fail(sentence: str, status: int) -> int:
    print(f"compare: {sentence}", file=sys.stderr)
    return status


def _contestants(options: argparse.Namespace) -> list[contestants.Peer]:
    """All contestants that the options leave, in order."""
    known = contestants.load_peers() + [contestants.own_server(text) for text in options.server]
    names = {peer.name for peer in known}
    if len(names) < len(known):
        raise UsageError("a name given with --server is a contestant's already, or given twice")
    for option in ("only", "without"):
        chosen = set(_words(getattr(options, option)))
        if chosen - names:
            raise UsageError(f"--{option}: no contestant called {sorted(chosen - names)[0]}; tools/compare --list shows them")
    only = set(_words(options.only)) or names
    own = {peer.name for peer in known if peer.own}
    known = [peer for peer in known if peer.name in only | own and peer.name not in _words(options.without)]
    return sorted(known, key=lambda peer: (peer.order, peer.name))


def _words(text: Optional[str]) -> list[str]:
    return [word.strip() for word in (text or "").split(",") if word.strip()]


def _plan(options: argparse.Namespace, known: list[contestants.Peer]) -> Plan:
    if options.article:
        names: Sequence[str] = ARTICLE_NAMES[options.article]
    elif options.workloads:
        names = [each.name for each in WORKLOADS] if options.workloads == "all" else _words(options.workloads)
    else:
        names = DEFAULT_NAMES
    try:
        chosen = [workload(name) for name in names]
    except KeyError as error:
        raise UsageError(f"--workloads: no workload called {error.args[0]}; see --help") from error
    for client in sorted({each.client.name for each in chosen}):
        lacking = missing_client(client)
        if lacking:
            raise UsageError(lacking)
    if options.scale <= 0:
        raise UsageError(f"--scale wants a number above 0, got {options.scale:g}")
    shares = {each.name: options.scale * (1.0 if options.article else each.quick_share if options.quick else each.default_share)
              for each in chosen}
    for name in ("rounds", "workers"):
        value = getattr(options, name)
        if value is not None and value < 1:
            raise UsageError(f"--{name} wants a number from 1, got {value}")
    if options.server_bound is not None and options.server_bound < 0:
        raise UsageError(f"--server-bound wants a number of cores above 0, got {options.server_bound:g}")
    placement = _placement(options)
    rounds = options.rounds or (2 if options.quick or options.article == "b" else 3)
    return Plan(workloads=chosen, peers=known, rounds=rounds, shares=shares, workers=options.workers or len(placement.server),
                placement=placement, server_bound=options.server_bound,
                scaling=not (options.no_scaling or options.quick or options.article))


def _placement(options: argparse.Namespace) -> Placement:
    sides = {}
    for side in ("server", "client"):
        text = getattr(options, f"{side}_cpus")
        if text is not None:
            try:
                sides[side] = parse_cpu_list(text)
            except ValueError as error:
                raise UsageError(f"--{side}-cpus: {error}") from error
            forbidden = sorted(set(sides[side]) - set(measure.allowed_cpus()))
            if forbidden:
                raise UsageError(f"--{side}-cpus: this process may not use CPU {forbidden[0]}")
    return measure.plan_placement(workers=options.workers, server=sides.get("server"), client=sides.get("client"))


def _folder(options: argparse.Namespace) -> Path:
    name = datetime.datetime.now().strftime("%Y%m%d-%H%M%S")
    return Path(options.output) if options.output else contestants.ROOT / "results" / name


def _measure(console: Console, session: Session) -> int:
    """Runs the session; Ctrl-C and SIGTERM end it early and keep what was measured."""
    def interrupted(*_: object) -> None:
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, signal.SIG_IGN)       # a second Ctrl-C shall not stop the cleaning up, nor cut a file in two
        raise KeyboardInterrupt
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, interrupted)
    status = 0
    try:
        session.folder.mkdir(parents=True, exist_ok=True)
        with terminal.ProgressWatcher(console) as watcher:
            session.run(watcher)
    except KeyboardInterrupt:
        status = EXIT_INTERRUPTED
    except (ServerError, ShareError) as error:
        return _fail(str(error), EXIT_SYSTEM)
    except BrokenPipeError:
        raise
    except OSError as error:
        return _fail(f"{error.filename or session.folder}: {error.strerror}", EXIT_SYSTEM)
    if not session.results["runs"]:
        return _fail("interrupted before the first run ended: nothing was measured", EXIT_INTERRUPTED)
    session.save()
    report.write_report(session.results, session.folder / "report.html")
    terminal.show_results(console, session.results)
    if status == EXIT_INTERRUPTED:
        console.print("\n[yellow]interrupted[/]: the figures above are of the runs that were made", highlight=False)
    console.print(f"\n{session.folder}/report.html, results.json, results.csv ({session.results['seconds']:.0f} s)", highlight=False)
    valid = any(not run["voids"] for run in session.results["runs"])
    return status if valid else _fail("no run was valid: every row says why", EXIT_SYSTEM)


def _render_again(console: Console, path: Path) -> int:
    results = results_file.read_json(path)
    terminal.show_results(console, results)
    page = path.with_name("report.html")
    try:
        report.write_report(results, page)
    except OSError as error:
        return _fail(f"{page}: {error.strerror}", EXIT_SYSTEM)
    console.print(f"\n{page}", highlight=False)
    return 0
