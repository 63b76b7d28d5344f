"""From runs to findings. Works on the dictionaries of results.json alone, so that old results can be rendered again.

Rows are ranked by the server's CPU time per request, always: requests a second are the client's wherever the client was
the limit, and the few runs where it was not do not make a table. Differences within the noise floor, which is what the
A/A control shows, are ties.
"""

from __future__ import annotations

import dataclasses
import itertools
from typing import Any, Iterable, Optional

from measure import Spread, bootstrap_interval, median, paired_ratios, spread_of
from measure.run import CLIENT_BOUND, NEITHER, SERVER_BOUND

from .workloads import PROFILES, WORKLOADS, Article

NOISE_MIN = 0.01            # below one per cent no difference is claimed, however quiet the control was
REGIME_SLEEPS = 0.1         # voluntary switches per request: above, the server slept between requests
REGIME_BUSY = 0.02          # below, it was kept busy; a request that includes a wake-up costs up to twice as much
SIZE_DIFFERENCE = 0.25      # answers that differ by more than this in bytes are named
STICK = "floor"
PROJECTED_CORES = 4         # the articles' boxes

Runs = list[dict[str, Any]]


@dataclasses.dataclass
class Row:
    """One contestant in one workload: medians over the valid rounds."""
    name: str
    title: str
    control: bool                           # the A/A control: shown, never ranked
    stick: bool                             # the null server: a measuring stick, never ranked either
    valid: int                              # rounds that count
    voids: list[str]                        # why others do not
    warnings: list[str]
    cost: Optional[Spread] = None           # server µs per request
    client_cost: Optional[Spread] = None
    rate: Optional[Spread] = None           # requests/s
    user: Optional[float] = None            # µs
    system: Optional[float] = None
    server_busy: Optional[float] = None
    client_busy: Optional[float] = None
    server_waiting: float = 0.0             # ready to run while other programs had its CPU
    client_waiting: float = 0.0
    sleeps: Optional[float] = None          # voluntary switches per request
    memory: Optional[float] = None          # peak RSS, bytes
    latency: dict[str, float] = dataclasses.field(default_factory=dict)
    per_core: Optional[float] = None        # requests/s a full core would pay for
    verdict: str = NEITHER
    verdict_reason: str = ""
    rank: int = 0                           # by cost; 0 if it has none
    tied: bool = False                      # shares its rank
    to_reference: Optional["Ratio"] = None  # cost ÷ ceiling's, pair by pair
    to_floor: Optional["Ratio"] = None


@dataclasses.dataclass(frozen=True)
class Ratio:
    """A cost ratio: median of the pairs, and a bootstrap interval of it if there are two pairs or more."""
    median: float
    interval: Optional[tuple[float, float]]
    pairs: int


@dataclasses.dataclass
class Table:
    """One workload."""
    name: str
    what: str
    command: list[str]
    rows: list[Row]                         # cheapest first; rows without a valid run at the end
    reference: str                          # title of the row that ratios are against
    noise: Optional[float]                  # largest |ratio - 1| of the A/A control's pairs; None without a control
    findings: list[str]                     # sentences
    held_to: Optional[float] = None         # cores the server was held to, in server-bound mode
    article: Optional["ArticleTable"] = None

    @property
    def shown(self) -> list[Row]:
        """Rows that have a cost, without the A/A control: what figures show."""
        return [row for row in self.rows if row.cost is not None and not row.control]

    @property
    def ranked(self) -> list[Row]:
        """Rows that have a cost and are contestants."""
        return [row for row in self.shown if not row.stick]


@dataclasses.dataclass(frozen=True)
class ArticleLine:
    """A published figure beside ours. Ranks are within the rows of the article that ran here."""
    label: str
    name: str
    there: float                            # requests/s
    there_rank: int
    here: Optional[float]
    here_rank: Optional[int]
    cost: Optional[float]
    cost_rank: Optional[int]
    verdict: str


@dataclasses.dataclass(frozen=True)
class ArticleTable:
    title: str
    box: str
    lines: list[ArticleLine]
    turned: list[str]                       # sentences: pairs whose order turns over


def tables(results: dict[str, Any]) -> list[Table]:
    """One table a workload, in the order they were run."""
    return [_table(results, entry) for entry in results["workloads"]]


def main_runs(results: dict[str, Any], workload: str, contestant: Optional[str] = None) -> Runs:
    """The runs of one workload (scaling left out), perhaps of one contestant."""
    return [run for run in results["runs"] if run["workload"] == workload and run["phase"] == "main"
            and (contestant is None or run["contestant"] == contestant)]


def _table(results: dict[str, Any], entry: dict[str, Any]) -> Table:
    contestants = [one for one in results["contestants"] if not one["missing"]]
    control = next((one for one in contestants if one["control_of"]), None)
    reference = control["control_of"] if control else (contestants[0]["name"] if contestants else "")
    costs = {one["name"]: _by_round(main_runs(results, entry["name"], one["name"])) for one in contestants}
    rounds = sorted(set(itertools.chain.from_iterable(costs.values())))
    noise = None
    if control:
        twins = paired_ratios(_in_order(costs[control["name"]], rounds), _in_order(costs[reference], rounds))
        noise = max((abs(ratio - 1) for ratio in twins), default=None)
    rows = []
    for one in contestants:
        row = _row(one, main_runs(results, entry["name"], one["name"]))
        row.to_reference = _ratio(costs[one["name"]], costs.get(reference, {}), rounds)
        row.to_floor = _ratio(costs[one["name"]], costs.get(STICK, {}), rounds)
        rows.append(row)
    rows.sort(key=lambda row: (row.cost is None, row.cost.median if row.cost else 0.0))
    titles = {one["name"]: one["title"] for one in contestants}
    table = Table(entry["name"], entry["what"], entry["client"], rows, titles.get(reference, ""), noise, [],
                  results["options"].get("held_to", {}).get(entry["name"]))
    _rank(table, costs, rounds)
    workload = next((known for known in WORKLOADS if known.name == entry["name"]), None)
    if workload is not None and workload.article is not None:
        table.article = _article(workload.article, table)
    table.findings = _findings(table)
    return table


def _by_round(runs: Runs) -> dict[int, float]:
    return {run["round"]: run["server_us_per_request"] for run in runs if not run["voids"] and run["server_us_per_request"]}


def _in_order(costs: dict[int, float], rounds: Iterable[int]) -> list[Optional[float]]:
    return [costs.get(number) for number in rounds]


def _ratio(costs: dict[int, float], others: dict[int, float], rounds: list[int]) -> Optional[Ratio]:
    pairs = paired_ratios(_in_order(costs, rounds), _in_order(others, rounds))
    return Ratio(median(pairs), bootstrap_interval(pairs), len(pairs)) if pairs else None


def _row(contestant: dict[str, Any], runs: Runs) -> Row:
    valid = [run for run in runs if not run["voids"]]
    row = Row(contestant["name"], contestant["title"], bool(contestant["control_of"]), contestant["name"] == STICK, len(valid),
              _unique(sentence for run in runs for sentence in run["voids"]),
              _unique(sentence for run in valid for sentence in run["warnings"]))
    if not valid:
        return row
    middle = (lambda key: _middle(run[key] for run in valid))
    row.cost = spread_of([run["server_us_per_request"] for run in valid])
    row.client_cost = spread_of([run["client_us_per_request"] for run in valid])
    row.rate = spread_of([run["requests_per_second"] for run in valid])
    row.user, row.system = middle("server_user_us"), middle("server_system_us")
    row.server_busy, row.client_busy = middle("server_busy"), middle("client_busy")
    row.server_waiting, row.client_waiting = middle("server_waiting") or 0.0, middle("client_waiting") or 0.0
    row.sleeps, row.memory, row.per_core = middle("switches_per_request"), middle("peak_rss_bytes"), middle("requests_per_core")
    for name in ("50", "90", "99", "max"):
        value = _middle(run["latency_ms"].get(name) for run in valid)
        if value is not None:
            row.latency[name] = value
    row.verdict, row.verdict_reason = _common_verdict(valid)
    return row


def _middle(values: Iterable[Optional[float]]) -> Optional[float]:
    spread = spread_of(list(values))
    return spread.median if spread else None


def _unique(sentences: Iterable[str]) -> list[str]:
    """Each sentence once, in order; figures in them may differ from round to round, so the first of a kind stands."""
    seen: dict[str, str] = {}
    for sentence in sentences:
        seen.setdefault("".join(letter for letter in sentence if not letter.isdigit()), sentence)
    return list(seen.values())


def _common_verdict(runs: Runs) -> tuple[str, str]:
    """The verdict of most rounds, with the sentence of the first of them."""
    verdicts = [run["verdict"] for run in runs]
    verdict = max((SERVER_BOUND, CLIENT_BOUND, NEITHER), key=verdicts.count)
    return verdict, next(run["verdict_reason"] for run in runs if run["verdict"] == verdict)


def _rank(table: Table, costs: dict[str, dict[int, float]], rounds: list[int]) -> None:
    """Ranks by cost. A row that is within the noise of the first of its group shares that one's rank."""
    leader: Optional[Row] = None
    tolerance = max(NOISE_MIN, table.noise or 0.0)
    for position, row in enumerate(table.ranked, start=1):
        ratio = _ratio(costs[row.name], costs[leader.name], rounds) if leader else None
        if leader is not None and ratio is not None and abs(ratio.median - 1) <= tolerance:
            row.rank, row.tied, leader.tied = leader.rank, True, True
        else:
            row.rank, leader = position, row


# ---- sentences ------------------------------------------------------------------------------------------------------

def _findings(table: Table) -> list[str]:
    rows = [row for row in table.ranked if row.rate is not None]
    found: list[str] = []
    if table.held_to is not None:
        found.append(f"Server-bound mode: every server was held to {table.held_to:g} of a core so that it, and not the load generator, "
                     "is the limit; `per full core` is what one whole core would serve at that cost.")
    if table.noise is not None:
        found.append(f"Noise floor: {table.reference} against itself differed by up to {table.noise:.1%}; rows within "
                     f"{max(NOISE_MIN, table.noise):.1%} of each other share a rank.")
    bound = [row for row in rows if row.verdict == CLIENT_BOUND]
    if len(rows) >= 2:
        rates = [row.rate.median for row in rows]
        expenses = [row.cost.median for row in rows]
        found.append(f"Requests/s differ by a factor of {max(rates) / min(rates):.2f} between the contestants, the server's CPU "
                     f"per request by {max(expenses) / min(expenses):.2f}.")
    if bound:
        found.append(f"{len(bound)} of {len(rows)} rows are client-bound: their requests/s are the load generator's, and "
                     "are not ranked. The order is by CPU per request.")
    turned = inversions(rows, max(NOISE_MIN, table.noise or 0.0))
    if turned:
        slow, fast = turned[0]
        found.append(f"{len(turned)} pair{'s' * (len(turned) > 1)} stand{'s' * (len(turned) == 1)} in the other order by requests/s "
                     f"than by cost; the widest: {slow.title} shows {slow.rate.median / fast.rate.median - 1:.0%} more requests/s "
                     f"than {fast.title} and costs {slow.cost.median / fast.cost.median:.2f} times the CPU.")
    sleepy = [row for row in rows if (row.sleeps or 0) > REGIME_SLEEPS]
    if sleepy and any((row.sleeps or 0) < REGIME_BUSY for row in rows):
        most = max(sleepy, key=lambda row: row.sleeps)
        found.append(f"Two regimes: {len(sleepy)} of {len(rows)} rows slept between requests ({most.title} most often, "
                     f"{most.sleeps:.2f} times a request), the others were kept busy. Being woken can cost as much as a request: "
                     "compare across that line with care.")
    return found


def inversions(rows: list[Row], tolerance: float) -> list[tuple[Row, Row]]:
    """Pairs (dearer, cheaper) where the dearer one shows more requests/s (by a per cent at least), beyond the noise in cost;
    widest cost first."""
    pairs = []
    for cheap, dear in itertools.permutations(rows, 2):
        if dear.cost.median > cheap.cost.median * (1 + tolerance) and dear.rate.median > cheap.rate.median * (1 + NOISE_MIN):
            pairs.append((dear, cheap))
    return sorted(pairs, key=lambda pair: pair[1].cost.median / pair[0].cost.median)


def _listed(names: list[str]) -> str:
    return names[0] if len(names) == 1 else ", ".join(names[:-1]) + " and " + names[-1]


def _article(article: Article, table: Table) -> ArticleTable:
    rows = {row.name: row for row in table.ranked}
    by_there = sorted(article.rows, key=lambda row: -row.requests_per_second)
    present = [rows[row.peer] for row in article.rows if row.peer in rows]
    by_here = [row.name for row in sorted(present, key=lambda row: -row.rate.median)]
    by_cost = [row.name for row in sorted(present, key=lambda row: row.cost.median)]
    lines = []
    for position, published in enumerate(by_there, start=1):
        row = rows.get(published.peer)
        lines.append(ArticleLine(published.label, published.peer, published.requests_per_second, position,
                                 row.rate.median if row else None, by_here.index(row.name) + 1 if row else None,
                                 row.cost.median if row else None, by_cost.index(row.name) + 1 if row else None,
                                 row.verdict if row else ""))
    turned = []
    for first, second in itertools.combinations([line for line in lines if line.cost is not None], 2):
        if second.cost < first.cost / (1 + max(NOISE_MIN, table.noise or 0.0)):
            turned.append(f"{first.label} stands above {second.label} in the article ({first.there:,.0f} and {second.there:,.0f} "
                          f"requests/s) and costs more here ({first.cost:.1f} and {second.cost:.1f} µs a request)")
    return ArticleTable(article.title, article.box, lines, turned)


# ---- fairness -------------------------------------------------------------------------------------------------------

@dataclasses.dataclass
class FairRow:
    """What differs between contestants although it should not, or cannot be helped."""
    title: str
    version: str
    event_loop: str
    access_log: str
    keep_alive_limit: str
    answer_bytes: dict[str, int]            # profile -> bytes of a whole answer
    note: str
    warnings: list[str]


def fairness(results: dict[str, Any]) -> list[FairRow]:
    """One row a contestant that ran; warnings are sentences about what makes it unequal to the reference."""
    ran = [one for one in results["contestants"] if not one["missing"] and not one["control_of"]]
    reference = next((one for one in ran if one["name"] == "ceiling"), ran[0] if ran else None)
    return [_fair_row(one, reference) for one in ran]


def _fair_row(one: dict[str, Any], reference: dict[str, Any]) -> FairRow:
    told = one["fairness"]
    sizes = {profile: answer["head_bytes"] + answer["body_bytes"] for profile, answer in one["answers"].items()}
    warnings = []
    for profile, size in sizes.items():
        against = reference["answers"].get(profile)
        if against:
            other = against["head_bytes"] + against["body_bytes"]
            if abs(size - other) > SIZE_DIFFERENCE * other:
                warnings.append(f"its answer is {size} bytes, {reference['title']}'s {other} (profile {profile.upper()})")
        names = _header_names(one["answers"][profile]["head"])
        if "date" not in names:
            warnings.append("its answer has no Date, which RFC 9110 asks of a server with a clock")
        lacking = [name for name, _ in PROFILES[profile].headers
                   if name.lower() not in names and not (name == "E-Tag" and "etag" in names)]
        if lacking:
            warnings.append(f"its answer lacks {_listed(lacking)} (profile {profile.upper()})")
    if told.get("access_log") == "on":
        warnings.append("it writes an access log, the others do not")
    if "requests" in told.get("keep_alive_limit", ""):
        warnings.append(f"it closes each connection after {told['keep_alive_limit']}")
    if "event loop select" in one["version"]:
        warnings.append("its event loop is select: slower, and at most 1024 connections; ext-event would be used if PHP had it")
    return FairRow(one["title"], one["version"], told.get("event_loop", "not stated"), told.get("access_log", "not stated"),
                   told.get("keep_alive_limit", "not stated"), sizes, told.get("note", ""), _unique(warnings))


def _header_names(head: str) -> set[str]:
    return {line.partition(":")[0].strip().lower() for line in head.split("\r\n")[1:] if ":" in line}


# ---- scaling and projection -----------------------------------------------------------------------------------------

@dataclasses.dataclass(frozen=True)
class ScalingPoint:
    workers: int
    requests_per_second: float
    cost: float
    verdict: str
    warnings: list[str]


def scaling(results: dict[str, Any]) -> list[ScalingPoint]:
    """Our server with more and more workers: medians over the rounds."""
    runs = [run for run in results["runs"] if run["phase"] == "scaling" and not run["voids"] and run["server_us_per_request"]]
    points = []
    for workers in sorted({run["workers"] for run in runs}):
        same = [run for run in runs if run["workers"] == workers]
        points.append(ScalingPoint(workers, median([run["requests_per_second"] for run in same]),
                                   median([run["server_us_per_request"] for run in same]), _common_verdict(same)[0],
                                   _unique(sentence for run in same for sentence in run["warnings"])))
    return points


@dataclasses.dataclass(frozen=True)
class Projection:
    """What four cores like these would serve: with the client on the same box, and with it elsewhere."""
    title: str
    one_worker: float                       # requests/s, client on the same box
    shared: float                           # requests/s
    shared_limit: str                       # who would be the limit then
    remote: float                           # requests/s


PROJECTION_ASSUMPTIONS = (
    f"{PROJECTED_CORES} cores, each as fast as one of these, and no loss from using several (loopback, memory and locks allow that "
    "for a server whose threads share nothing; the scaling runs show how far it holds here)",
    "a request costs the server and the client what it cost in this comparison, in the median",
    "client on the same box: each of the load generator's threads has a core of its own, the server the others; with one "
    "worker, as article A had it, the server has one core",
    "client elsewhere: the server has all four cores, the network costs what loopback costs, and nothing else limits",
)


def projection(table: Table, client_threads: int) -> list[Projection]:
    """Projects one table to the articles' boxes; see PROJECTION_ASSUMPTIONS."""
    projected = []
    for row in table.shown:
        if row.client_cost is None:
            continue
        client = client_threads * 1e6 / row.client_cost.median
        server = (PROJECTED_CORES - client_threads) * 1e6 / row.cost.median
        projected.append(Projection(row.title, min(client, 1e6 / row.cost.median), min(client, server), "client" if client < server else "server",
                                    PROJECTED_CORES * 1e6 / row.cost.median))
    return projected
