"""Measuring code shared by tools/compare and tools/bench.

The question every tool here answers is "what did this request cost the server?", and a load generator cannot say:
it sees its own requests per second, which are the client's whenever the client is the slower of the two. So the
parts below ask the kernel instead.

    placement   which CPUs the server gets and which the client gets, and why
    process     CPU, context switches and memory of a whole process tree, from /proc
    server      start a server in its own session, wait until it answers, check what it answers, stop it for good
    client      run ab or wrk, and read what they print, odd output included
    run         one measured run: warm up, measure, verdict, reasons to doubt it
    share       hold a server to a share of a core
    network     TIME_WAIT, ephemeral ports, listen queue overflows
    statistics  medians, ratios pair by pair, a bootstrap interval, interleaved rounds
    machine     what this machine is

A small use, complete:

    import measure
    place = measure.plan_placement(workers=1)
    spec = measure.ServerSpec(name="ours", command=["./server", "--listen", "127.0.0.1:{port}", "--threads", "{workers}"])
    with measure.start_server(spec, place, workers=1) as server:
        run = measure.measure_run(server, measure.Ab(requests=20000, connections=64, keep_alive=True), place)
    print(run.server_us_per_request, run.verdict, run.voids)

Only the standard library is needed. Linux only: everything rests on /proc.
"""

from .client import Ab, ClientResult, Wrk, parse_ab, parse_wrk
from .machine import machine_facts, tool_versions
from .network import NetworkCounters, port_budget
from .placement import Placement, allowed_cpus, plan_placement
from .process import TreeMeter, TreeUsage, become_subreaper, tree_of
from .run import Run, TimelinePoint, measure_run, verdict_of
from .share import ShareError, cpu_share
from .server import Expectation, Probe, Server, ServerError, ServerSpec, probe, start_server, warm_by_hand
from .statistics import bootstrap_interval, interleaved, median, paired_ratios, Spread, spread_of

__all__ = [
    "Ab", "ClientResult", "Expectation", "NetworkCounters", "Placement", "Probe", "Run", "Server", "ServerError", "ShareError",
    "ServerSpec", "Spread", "TimelinePoint", "TreeMeter", "TreeUsage", "Wrk", "allowed_cpus", "become_subreaper",
    "bootstrap_interval", "cpu_share", "interleaved", "machine_facts", "measure_run", "median", "paired_ratios", "parse_ab",
    "parse_wrk", "plan_placement", "port_budget", "probe", "spread_of", "start_server", "tool_versions", "tree_of",
    "verdict_of", "warm_by_hand",
]
