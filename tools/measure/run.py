"""One measured run: a server that is up, a client, and what the kernel says both of them used.

    warm-up → first readings → client runs, a sample every 250 ms → last readings → verdict → reasons to doubt

CPU per request is the tree's CPU time between the readings divided by the answers the client counted. It includes the
kernel's work for the server, and on loopback also the receiving half of the client's TCP (softirq runs in the
sender's time): the same for every contestant, so ratios hold, but absolute figures are loopback's.
"""

from __future__ import annotations

import contextlib
import dataclasses
import os
import select
import signal
import subprocess
import tempfile
import time
from typing import Optional, Union

from .client import Ab, ClientResult, Wrk, missing_client
from .network import NetworkCounters, port_budget
from .placement import Placement
from .process import NANOSECONDS, TICK_NS, TreeMeter, TreeUsage, cpu_times
from .server import Server, prepare_child, uninterrupted

Client = Union[Ab, Wrk]

SAMPLE_SECONDS = 0.25           # 25 ticks of 10 ms: a timeline in steps of 4 %; a sample takes 0.3 ms, a search for new processes 2 ms
SAMPLE_SHORT_SECONDS = 0.1      # for runs expected to be over within SHORT_SECONDS: steps of 10 %, but some at all
SHORT_SECONDS = 3.0
TIMEOUT_FACTOR = 60             # a server sixty times slower than the usual ones is still measured; ab gives a silent one up after 30 s
TIMEOUT_SECONDS = 35.0          # on top, so that ab's own word comes first
BUSY = 0.95                     # of its share: no more to give
NEARLY_BUSY = 0.90
OTHERS_SHARE_MAX = 0.05         # of a side's CPUs taken by other programs
WAIT_SHARE_MAX = 0.15           # ready to run but kept waiting, as a share of the time on a CPU
STALL_MS = 500.0                # no hello-world answer takes that long unless something stood still
SKEW_MAX = 2.0                  # busiest worker ÷ least busy worker

SERVER_BOUND, CLIENT_BOUND, NEITHER = "server-bound", "client-bound", "neither"


@dataclasses.dataclass(frozen=True)
class TimelinePoint:
    """Shares of CPU time (0 … 1) since the previous point, for the server's CPUs and for the client's."""
    seconds: float
    server_user: float
    server_system: float        # interrupts included
    server_idle: float
    client_user: float
    client_system: float
    client_idle: float
    switches_per_second: float  # whole machine


@dataclasses.dataclass
class Run:
    """Everything one run gave. Figures are None where the run could not give them."""
    server: str
    client: ClientResult = dataclasses.field(default_factory=ClientResult)
    usage: TreeUsage = dataclasses.field(default_factory=TreeUsage)
    wall_seconds: float = 0.0
    client_cpu_ns: int = 0
    client_threads: int = 1
    server_us_per_request: Optional[float] = None
    client_us_per_request: Optional[float] = None
    server_busy: Optional[float] = None         # of its share: CPUs × time, capped by workers
    client_busy: Optional[float] = None
    server_waiting: Optional[float] = None      # ready to run, but other programs had its CPU; of the same share
    client_waiting: Optional[float] = None
    server_cores: float = 1.0                   # that share, in cores
    switches_per_request: Optional[float] = None    # voluntary: the server slept and was woken
    verdict: str = NEITHER
    verdict_reason: str = ""
    voids: list[str] = dataclasses.field(default_factory=list)
    warnings: list[str] = dataclasses.field(default_factory=list)
    timeline: list[TimelinePoint] = dataclasses.field(default_factory=list)
    network: Optional[NetworkCounters] = None   # growth during the run
    server_command: list[str] = dataclasses.field(default_factory=list)
    client_command: list[str] = dataclasses.field(default_factory=list)
    client_output: str = ""

    @property
    def valid(self) -> bool:
        return not self.voids

    @property
    def requests_per_second(self) -> Optional[float]:
        return self.client.requests_per_second

    @property
    def requests_per_core(self) -> Optional[float]:
        """Requests a second that one full core of the server's would pay for, at this run's cost."""
        return 1e6 / self.server_us_per_request if self.server_us_per_request else None


def verdict_of(server_busy: Optional[float], client_busy: Optional[float], server_waiting: float = 0.0,
               client_waiting: float = 0.0) -> tuple[str, str]:
    """Who held the run back, and a sentence. Shares are of what each side was given; the waiting ones are the time a side
    was ready to run while other programs had its CPU: then it was not idle either."""
    if server_busy is None or client_busy is None:
        return NEITHER, "the run gave no CPU figures"
    shares = f"server {_share(server_busy, server_waiting)}, client {_share(client_busy, client_waiting)}"
    server, client = server_busy + server_waiting, client_busy + client_waiting
    if client >= BUSY and server < NEARLY_BUSY:
        return CLIENT_BOUND, f"{shares}: requests/s is the client's limit, not the server's"
    if client >= BUSY:
        return NEITHER, f"{shares}: both were at their limit"
    if server >= NEARLY_BUSY:
        return SERVER_BOUND, f"{shares}: requests/s is the server's limit"
    return NEITHER, f"{shares}: neither was at its limit"


def _share(busy: float, waiting: float) -> str:
    return f"{busy:.0%} busy" + (f" and {waiting:.0%} kept waiting" if waiting >= 0.02 else "")


def measure_run(server: Server, client: Client, placement: Placement, warm_up: Optional[Client] = None,
                server_cores: Optional[float] = None) -> Run:
    """Warms up, runs the client once, and says what it cost and whether to believe it.

    `server_cores` is the server's share of CPU where something holds it below its CPUs (see share.py).
    Never raises for what a server or client does: that is what `voids` is for.
    """
    run = Run(server=server.spec.name, server_command=list(server.started), client_command=client.command(server.url))
    run.server_cores = server_cores or float(min(len(placement.server), max(1, server.workers)))
    run.client_threads = client.threads
    run.voids += [text for text in (missing_client(client.name), server.death(),
                                    port_budget().shortage(client.short_connections())) if text]
    if run.voids:
        return run
    if warm_up is not None:
        warmed = _run_client(warm_up, server, placement, None)
        if warmed.result.problems:
            run.voids += [f"warm-up: {problem}" for problem in warmed.result.problems]
            run.voids += [text for text in (server.death(),) if text]
            return run

    network = NetworkCounters.read()
    recorder = _Recorder(server.pid, placement)
    finished = _run_client(client, server, placement, recorder)
    run.usage = recorder.finish()
    run.timeline = recorder.points
    run.network = NetworkCounters.read().since(network)
    run.client, run.client_output = finished.result, finished.output
    run.wall_seconds, run.client_cpu_ns = finished.wall_seconds, finished.cpu_ns
    _figures(run, server, placement, recorder)
    _doubts(run, server, placement, recorder)
    return run


def _figures(run: Run, server: Server, placement: Placement, recorder: "_Recorder") -> None:
    requests = run.client.requests or 0
    seconds = run.client.seconds or run.wall_seconds
    if requests > 0:
        run.server_us_per_request = run.usage.cpu_ns / 1000 / requests
        run.client_us_per_request = run.client_cpu_ns / 1000 / requests
        run.switches_per_request = run.usage.voluntary_switches / requests
    if seconds > 0 and run.wall_seconds > 0:
        server_ns = seconds * run.server_cores * NANOSECONDS
        client_ns = run.wall_seconds * min(run.client_threads, len(placement.client)) * NANOSECONDS
        run.server_busy = min(1.0, run.usage.cpu_ns / server_ns)
        run.client_busy = min(1.0, run.client_cpu_ns / client_ns)
        server_wait = run.usage.wait_ns if _waits_for_others(run, server, placement) else 0
        run.server_waiting = min(1.0 - run.server_busy, server_wait / server_ns)
        run.client_waiting = min(1.0 - run.client_busy, run.client_cpu_ns * recorder.client_waits() / client_ns)
    run.verdict, run.verdict_reason = verdict_of(run.server_busy, run.client_busy, run.server_waiting or 0.0, run.client_waiting or 0.0)


def _waits_for_others(run: Run, server: Server, placement: Placement) -> bool:
    """True if a task of the server's that waits for a CPU waits for other programs: there is one CPU at least for each task
    that works, and no quota holds the server back on purpose."""
    workers = sum(1 for task_ns in run.usage.busiest_ns if task_ns > run.usage.cpu_ns / 100)
    return workers <= len(placement.server) and run.server_cores >= min(len(placement.server), server.workers)


def _doubts(run: Run, server: Server, placement: Placement, recorder: "_Recorder") -> None:
    run.voids += run.client.problems
    run.warnings += run.client.warnings
    death = server.death()
    if death:
        run.voids.append(f"the server died during the run: {death}")
    if not run.voids and run.usage.cpu_ns == 0:
        run.voids.append("the server used no CPU time: somebody else answered")
    if placement.shared:
        run.warnings.append("server and client share a CPU: each takes time from the other")
    if run.usage.coarse:
        run.warnings.append("this kernel has no schedstat: CPU time is known to 10 ms only")
    if run.usage.recovered_ns > 0.02 * run.usage.cpu_ns:
        run.warnings.append(f"{run.usage.recovered_ns / run.usage.cpu_ns:.0%} of the server's CPU time was spent by "
                            "tasks that came and went between two samples (known to 10 ms only)")
    for side, share in recorder.others().items():
        if share > OTHERS_SHARE_MAX:
            run.warnings.append(f"other programs used {share:.0%} of the {side}'s CPUs during the run")
    if (run.server_waiting or 0) > WAIT_SHARE_MAX * (run.server_busy or 0):
        run.warnings.append(f"the server was ready to run but kept waiting for its CPU for {run.server_waiting:.0%} of the time")
    longest = run.client.latency_ms.get("max")
    if longest is not None and longest >= STALL_MS:
        run.warnings.append(f"one answer took {longest:.0f} ms: something stood still, and a closed loop's percentiles "
                            "hide how many requests would have been waiting")
    workers = run.usage.busiest_ns[:server.workers]
    if len(workers) == server.workers > 1 and workers[0] > SKEW_MAX * max(1, workers[-1]):
        run.warnings.append(f"the busiest of {server.workers} workers used {workers[0] / max(1, workers[-1]):.1f} times "
                            "the CPU of the least busy")
    if run.network and run.network.listen_overflows > 0:
        run.warnings.append(f"{run.network.listen_overflows} connections found the accept queue full and had to retry after "
                            "a second or more")
    if run.network and run.network.time_wait_overflows > 0:
        run.warnings.append("the kernel ran out of TIME_WAIT slots (net.ipv4.tcp_max_tw_buckets)")


# ---- running the client ---------------------------------------------------------------------------------------------

@dataclasses.dataclass
class _Finished:
    result: ClientResult
    output: str
    wall_seconds: float
    cpu_ns: int


def _run_client(client: Client, server: Server, placement: Placement, recorder: Optional["_Recorder"]) -> _Finished:
    """Runs one client to its end, sampling meanwhile. Its output goes to files: a full pipe would stall it."""
    seconds_max = client.expected_seconds() * TIMEOUT_FACTOR + TIMEOUT_SECONDS
    with tempfile.TemporaryFile() as output, tempfile.TemporaryFile() as errors:
        if recorder is not None:
            recorder.begin()
        begin = time.monotonic()
        interval = SAMPLE_SHORT_SECONDS if client.expected_seconds() < SHORT_SECONDS else SAMPLE_SECONDS
        process = None
        try:
            with uninterrupted():
                process = subprocess.Popen(client.command(server.url), stdin=subprocess.DEVNULL, stdout=output, stderr=errors,
                                           start_new_session=True, preexec_fn=lambda: prepare_child(placement.client))
            hung, used = _wait(process, begin + seconds_max, interval, server, recorder)
        except (OSError, subprocess.SubprocessError) as error:
            return _Finished(ClientResult(problems=[f"{client.name} cannot be started: {error}"]), "", 0.0, 0)
        finally:
            if process is not None and process.returncode is None:      # Ctrl-C: leave no client behind
                process.kill()
                process.wait()
        wall = time.monotonic() - begin
        texts = []
        for file in (output, errors):
            file.seek(0)
            texts.append(file.read().decode(errors="replace"))
    result = client.read(texts[0], texts[1], process.returncode)
    if hung:
        result.problems.insert(0, hung)
    return _Finished(result, texts[0] + texts[1], wall, int((used.ru_utime + used.ru_stime) * NANOSECONDS))


def _wait(process: subprocess.Popen, deadline: float, interval: float, server: Server, recorder: Optional["_Recorder"]):
    """Waits for the client, sampling; kills it if it hangs or its server is gone. Returns the reason and its rusage."""
    reason = ""
    while not _ended_within(process.pid, interval):
        if recorder is not None:
            recorder.sample(process.pid)
        if not reason and time.monotonic() > deadline:
            reason = "the client did not finish in time and was killed"
        if not reason and server.death():
            reason = server.death()
        if reason:
            os.kill(process.pid, signal.SIGKILL)
    _, status, used = os.wait4(process.pid, 0)
    process.returncode = -os.WTERMSIG(status) if os.WIFSIGNALED(status) else os.WEXITSTATUS(status)
    return reason, used


def _ended_within(pid: int, seconds: float) -> bool:
    """Waits until a child has ended, without reaping it (wait4 shall still give its CPU time)."""
    with contextlib.suppress(OSError, AttributeError):
        descriptor = os.pidfd_open(pid)         # Linux 5.3; readable once the process has ended
        try:
            return bool(select.select([descriptor], [], [], seconds)[0])
        finally:
            os.close(descriptor)
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        if os.waitid(os.P_PID, pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None:
            return True
        time.sleep(0.005)
    return False


class _Recorder:
    """Takes the readings of one run: the server's tree, and both sides' CPUs."""

    def __init__(self, server_pid: int, placement: Placement):
        self._meter = TreeMeter(server_pid)
        self._placement = placement
        self.points: list[TimelinePoint] = []
        self._client_ns = self._client_wait_ns = 0
        self._usage = TreeUsage()

    def begin(self) -> None:
        self._meter.begin()
        self._own = time.process_time_ns()
        self._begin = self._last = time.monotonic()
        self._first_times = self._last_times = self._read()

    def sample(self, client_pid: int) -> None:
        self._usage = self._meter.sample()
        run_ns, wait_ns = _process_ns(client_pid)
        if run_ns:
            self._client_ns, self._client_wait_ns = run_ns, wait_ns
        now, times = time.monotonic(), self._read()
        if now - self._last >= SAMPLE_SHORT_SECONDS / 2:
            self.points.append(self._point(now, times))
            self._last, self._last_times = now, times

    def finish(self) -> TreeUsage:
        self._usage = self._meter.sample(full=True)
        now, self._end_times = time.monotonic(), self._read()
        if now - self._last >= SAMPLE_SHORT_SECONDS / 2:
            self.points.append(self._point(now, self._end_times))
        self._wall = now - self._begin
        self._own = time.process_time_ns() - self._own
        return self._usage

    def others(self) -> dict[str, float]:
        """The share of either side's CPUs that went to programs which are neither. Only told for runs long enough that
        ticks of 10 ms do not drown it; interrupts are nobody's."""
        if self._wall < 0.5 or self._placement.shared:
            return {}
        shares = {}
        for side, cpus, ours in (("server", self._placement.server, self._usage.cpu_ns),
                                 ("client", self._placement.client, self._client_ns + self._own)):
            first, last = self._first_times[side], self._end_times[side]
            busy = (last["user"] + last["system"] - first["user"] - first["system"]) * TICK_NS
            shares[side] = max(0.0, (busy - ours) / NANOSECONDS / (self._wall * len(cpus)))
        return shares

    def client_waits(self) -> float:
        """How long the client was kept waiting for a CPU for each second it ran, as far as the samples saw it."""
        return self._client_wait_ns / self._client_ns if self._client_ns else 0.0

    def _read(self) -> dict[str, dict[str, int]]:
        return {"server": cpu_times(self._placement.server), "client": cpu_times(self._placement.client)}

    def _point(self, now: float, times: dict[str, dict[str, int]]) -> TimelinePoint:
        shares = {}
        for side in ("server", "client"):
            grown = {name: times[side][name] - self._last_times[side][name] for name in times[side]}
            total = max(1, sum(grown[name] for name in ("user", "system", "interrupt", "idle", "steal")))
            shares[side] = (grown["user"] / total, (grown["system"] + grown["interrupt"]) / total, grown["idle"] / total)
        switches = times["server"]["switches"] - self._last_times["server"]["switches"]
        return TimelinePoint(round(now - self._begin, 3), *shares["server"], *shares["client"],
                             switches / max(1e-9, now - self._last))


def _process_ns(pid: int) -> tuple[int, int]:
    """CPU time so far of a client, all its threads, and the time they were kept waiting for one; noughts if it is gone."""
    run_ns = wait_ns = 0
    with contextlib.suppress(OSError, ValueError):
        for tid in os.listdir(f"/proc/{pid}/task"):
            with open(f"/proc/{pid}/task/{tid}/schedstat", encoding="ascii") as file:
                ran, waited = file.read().split()[:2]
                run_ns, wait_ns = run_ns + int(ran), wait_ns + int(waited)
        return run_ns, wait_ns
    return 0, 0
