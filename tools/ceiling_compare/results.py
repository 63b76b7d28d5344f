"""results.json and results.csv.

`results.json` is meant for other programs too, so its form is stable: fields are added, never renamed or dropped, without
a new `format_version`. Everything report.html shows is computed from it (`tools/compare --report results.json`).

    format            "ceiling-compare"
    format_version    1
    created           start of the session, ISO 8601, UTC
    complete          false if it was interrupted: the runs that were made are all here
    seconds           how long the session took
    tool              {commit, command}: the checkout's commit (`+`: with changes) and the exact command line
    options           {rounds, shares{}, workers, server_bound, workloads[], held_to{}}; held_to: workload -> cores, in
                      server-bound mode
    placement         {server, client, reason}: CPU numbers of either side
    machine           what measure.machine_facts() says
    versions          {tool: version line}
    warnings          sentences about the whole session (load average high at the start, CPUs shared, …)
    contestants[]     {name, title, version, missing, control_of, fairness{}, answers{profile: {head, body_bytes, …}}}
                      missing: empty if it ran, else why not
    workloads[]       {name, what, client, mode, profile}
    runs[]            one measured run:
        contestant, workload, round     names, and the round from 0; `phase` is "main" or "scaling"
        workers, server_cores           workers asked for; cores the server was given (0.3: a share of one)
        voids[], warnings[]             sentences; a run with voids is not used for anything
        requests, seconds               as the client counted
        requests_per_second             as the client printed it
        server_us_per_request           CPU time of the server's whole tree ÷ requests, in µs
        server_user_us, server_system_us    the same, split by the kernel's ticks (sampled)
        client_us_per_request           CPU time of the client ÷ requests, in µs
        server_busy, client_busy        0 … 1, of the share of CPU each had
        server_waiting, client_waiting  0 … 1, of the same share: ready to run while other programs had its CPU
        requests_per_core               1e6 ÷ server_us_per_request
        switches_per_request            voluntary context switches of the server ÷ requests: it slept and was woken
        involuntary_per_request         it was pushed off its CPU
        peak_rss_bytes, pss_bytes       memory: sum of the processes' peaks; at the end with shared pages divided
        latency_ms{}                    "50", "75", "90", "99", "mean", "max" of a closed loop
        verdict, verdict_reason         server-bound, client-bound or neither, and the sentence
        time_wait                       growth of the machine's TIME_WAIT sockets
        listen_overflows                connections that found the accept queue full
        timeline[]                      [seconds, server user, system, idle, client user, system, idle, switches/s]
        server_command[], client_command[]
"""

from __future__ import annotations

import csv
import json
import os
from pathlib import Path
from typing import Any

from measure import Run

FORMAT, FORMAT_VERSION = "ceiling-compare", 1

CSV_FIELDS = (
    "workload", "contestant", "round", "phase", "workers", "valid", "verdict", "requests", "requests_per_second",
    "server_us_per_request", "server_user_us", "server_system_us", "client_us_per_request", "server_busy", "client_busy",
    "server_waiting", "client_waiting", "requests_per_core", "switches_per_request", "peak_rss_bytes", "p50_ms", "p99_ms", "max_ms", "voids", "warnings",
)


class ResultsError(Exception):
    """A results file cannot be read; the text is one sentence."""


def run_record(run: Run, workload: str, round_number: int, workers: int, phase: str = "main") -> dict[str, Any]:
    """One run as it stands in results.json."""
    usage, requests = run.usage, run.client.requests or 0
    each = (lambda value: value / requests if requests else None)
    return {
        "contestant": run.server, "workload": workload, "round": round_number, "phase": phase, "workers": workers,
        "server_cores": run.server_cores, "voids": run.voids, "warnings": run.warnings, "requests": run.client.requests,
        "seconds": run.client.seconds, "requests_per_second": _rounded(run.requests_per_second, 2),
        "server_us_per_request": _rounded(run.server_us_per_request), "server_user_us": _rounded(each(usage.user_ns / 1000)),
        "server_system_us": _rounded(each(usage.system_ns / 1000)),
        "client_us_per_request": _rounded(run.client_us_per_request), "server_busy": _rounded(run.server_busy),
        "client_busy": _rounded(run.client_busy), "server_waiting": _rounded(run.server_waiting),
        "client_waiting": _rounded(run.client_waiting), "requests_per_core": _rounded(run.requests_per_core, 1),
        "switches_per_request": _rounded(run.switches_per_request, 6),
        "involuntary_per_request": _rounded(each(usage.involuntary_switches), 6),
        "peak_rss_bytes": usage.peak_rss_bytes, "pss_bytes": usage.pss_bytes,
        "latency_ms": {name: _rounded(value) for name, value in run.client.latency_ms.items()},
        "verdict": run.verdict, "verdict_reason": run.verdict_reason,
        "time_wait": run.network.time_wait if run.network else None,
        "listen_overflows": run.network.listen_overflows if run.network else None,
        "timeline": [[_rounded(value, 3) for value in vars(point).values()] for point in run.timeline],
        "server_command": run.server_command, "client_command": run.client_command,
    }


def _rounded(value: Any, digits: int = 4) -> Any:
    return round(value, digits) if isinstance(value, float) else value


def write_json(results: dict[str, Any], path: Path) -> None:
    """Writes beside and renames, so that a reader never sees half a file."""
    beside = path.with_suffix(".json.new")
    beside.write_text(json.dumps(results, indent=1, ensure_ascii=False) + "\n")
    os.replace(beside, path)


def write_csv(results: dict[str, Any], path: Path) -> None:
    """One line a run."""
    with open(path, "w", newline="", encoding="utf-8") as file:
        table = csv.DictWriter(file, CSV_FIELDS, extrasaction="ignore")
        table.writeheader()
        for run in results["runs"]:
            latency = run["latency_ms"]
            table.writerow({**run, "valid": int(not run["voids"]), "voids": "; ".join(run["voids"]),
                            "warnings": "; ".join(run["warnings"]), "p50_ms": latency.get("50"), "p99_ms": latency.get("99"),
                            "max_ms": latency.get("max")})


def read_json(path: Path) -> dict[str, Any]:
    """Reads a results file back. Raises ResultsError with a sentence."""
    try:
        results = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise ResultsError(f"{path}: {error.strerror}") from error
    except ValueError as error:
        raise ResultsError(f"{path} is not JSON: {error}") from error
    if not isinstance(results, dict) or results.get("format") != FORMAT:
        raise ResultsError(f"{path} is not a results file of tools/compare")
    if results.get("format_version") != FORMAT_VERSION:
        raise ResultsError(f"{path} has format version {results.get('format_version')}, this program reads {FORMAT_VERSION}")
    return results
