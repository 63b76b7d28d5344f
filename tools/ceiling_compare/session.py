"""Running it all: every workload, every contestant, round after round.

Rounds are the outer loop, so that Ctrl-C after any of them leaves a whole table behind, and contestants the inner one,
so that each is measured next to the others and not an hour later. The results are written after every round.
"""

from __future__ import annotations

import contextlib
import dataclasses
import datetime
import os
import time
from pathlib import Path
from typing import Any, Optional, Protocol, Sequence, Union

import measure
from measure import Ab, Placement, Run, ServerError, ShareError, Wrk
from measure.machine import commit_of

from . import results as results_file
from .peers import ROOT, Peer, control
from .workloads import WARM_REQUESTS, Workload, workload as by_name

START_SECONDS = 0.8         # a first guess of what a run costs beside the client's own time; learnt as the session goes
SCALING_SECONDS = 1.4
LOAD_HIGH = 0.5             # load average per CPU at the start: somebody else is at work
HELD_SHARE = 0.6            # of what would keep both sides busy: the client then has two fifths of its time to spare
HELD_CORES_MIN = 0.05

Client = Union[Ab, Wrk]


class Watcher(Protocol):
    """What a session tells whoever shows its progress."""

    def step(self, text: str, done_seconds: float, total_seconds: float) -> None: ...
    def finished(self, record: dict[str, Any]) -> None: ...


@dataclasses.dataclass(frozen=True)
class Plan:
    """What a session is to do."""
    workloads: Sequence[Workload]
    peers: Sequence[Peer]               # in order, the missing ones too
    rounds: int
    shares: dict[str, float]            # workload -> share of its full size
    workers: int
    placement: Placement
    server_bound: Optional[float] = None    # cores the server is held to; 0: find them out
    scaling: bool = True


class Session:
    """One comparison. run() makes it; `results` holds what there is at any moment."""

    def __init__(self, plan: Plan, folder: Path, command: Sequence[str]):
        self.plan, self.folder = plan, folder
        self._begin = time.monotonic()
        self._hopeless: dict[tuple[str, str], str] = {}     # (contestant, workload) that cannot be measured at all
        self._held_to: dict[str, float] = {}                # workload -> cores, in server-bound mode
        self._durations: dict[str, float] = {}              # workload -> seconds a run took, learnt
        self.results: dict[str, Any] = {
            "format": results_file.FORMAT, "format_version": results_file.FORMAT_VERSION,
            "created": datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="seconds"), "complete": False, "seconds": 0,
            "tool": {"commit": commit_of(ROOT), "command": list(command)},
            "options": {"rounds": plan.rounds, "shares": plan.shares, "workers": plan.workers, "server_bound": plan.server_bound,
                        "workloads": [workload.name for workload in plan.workloads]},
            "placement": {"server": list(plan.placement.server), "client": list(plan.placement.client),
                          "reason": plan.placement.reason},
            "machine": measure.machine_facts(), "versions": measure.tool_versions(), "warnings": [],
            "contestants": [], "workloads": [], "runs": [],
        }

    def run(self, watcher: Watcher) -> None:
        """Makes the whole plan. KeyboardInterrupt passes through once the running server has been stopped."""
        plan = self.plan
        measure.become_subreaper()
        self._note_surroundings()
        entries = self._entries()
        self.results["contestants"] = [self._contestant(peer) for peer in entries]
        self.results["workloads"] = [{"name": workload.name, "what": workload.what, "mode": workload.mode,
                                      "profile": workload.profile, "client": self._client(workload).command("URL")}
                                     for workload in plan.workloads]
        ready = [peer for peer in entries if not peer.missing]
        own_cpus = os.sched_getaffinity(0)
        if not ready:
            raise ServerError("not one contestant can run here: tools/compare --list says what each of them lacks")
        os.sched_setaffinity(0, plan.placement.client)      # this program's own work must not touch the server's CPUs
        try:
            if plan.server_bound is not None:
                self._hold(ready, watcher)
            for round_number in range(plan.rounds):
                for workload in plan.workloads:
                    order = ready if round_number % 2 == 0 else list(reversed(ready))
                    for position, peer in enumerate(order):
                        self._tell(watcher, round_number, workload, peer, position, len(ready))
                        self._one(peer, workload, round_number, watcher)
                self.save()
            if plan.scaling:
                self._scale(ready, watcher, own_cpus)
            self.results["complete"] = True
        finally:
            os.sched_setaffinity(0, own_cpus)
            self.results["seconds"] = round(time.monotonic() - self._begin, 1)

    def save(self) -> None:
        """Writes results.json and results.csv with what there is."""
        self.results["seconds"] = round(time.monotonic() - self._begin, 1)
        self.folder.mkdir(parents=True, exist_ok=True)
        results_file.write_json(self.results, self.folder / "results.json")
        results_file.write_csv(self.results, self.folder / "results.csv")

    # ---- one run ----------------------------------------------------------------------------------------------------

    def _one(self, peer: Peer, workload: Workload, round_number: int, watcher: Watcher) -> None:
        if (peer.name, workload.name) in self._hopeless:
            return
        begin = time.monotonic()
        task = _Task(peer, workload, self._client(workload), self.plan.placement, self.plan.workers,
                     cores=self._held_to.get(workload.name))
        run, found = _measured(task, thorough=round_number == 0)
        if found is not None:
            self._remember_answer(task, found)
        if found is None or found.problems:
            self._hopeless[peer.name, workload.name] = run.voids[0]
        self._durations[workload.name] = 0.5 * (time.monotonic() - begin) + 0.5 * self._duration(workload)
        self._keep(results_file.run_record(run, workload.name, round_number, self.plan.workers), watcher)

    def _keep(self, record: dict[str, Any], watcher: Watcher) -> None:
        self.results["runs"].append(record)
        watcher.finished(record)

    def _client(self, workload: Workload) -> Client:
        return workload.sized(self.plan.shares[workload.name], len(self.plan.placement.client))

    def _remember_answer(self, task: "_Task", found: measure.Probe) -> None:
        """Keeps the answer's head for the fairness table, once a contestant and profile."""
        for entry in self.results["contestants"]:
            if entry["name"] == task.peer.name:
                entry["answers"].setdefault(task.workload.profile, {
                    "head": found.head.decode("latin-1"), "head_bytes": len(found.head), "body_bytes": len(found.body)})

    def _hold(self, ready: Sequence[Peer], watcher: Watcher) -> None:
        """Server-bound mode: finds, for each workload, a share of CPU that makes even the cheapest server the limit.

        Unless the reader gave one, our own server runs once unheld; with s and c for its and the client's cost of a
        request, a share of s / c would keep both sides busy, and HELD_SHARE of that leaves the client room to spare.
        """
        plan = self.plan
        for workload in plan.workloads:
            cores = plan.server_bound
            if cores == 0:
                watcher.step(f"finding the server's share for {workload.name}", 0, 1)
                peer = next((peer for peer in ready if peer.name == "ceiling"), ready[0])
                run, _ = _measured(_Task(peer, workload, self._client(workload), plan.placement, plan.workers), thorough=False)
                if not run.server_us_per_request or not run.client_us_per_request:
                    raise ShareError(f"{workload.name}: the run that finds the server's share failed: {'; '.join(run.voids)}")
                client_cores = min(run.client_threads, len(plan.placement.client))
                cores = HELD_SHARE * client_cores * run.server_us_per_request / run.client_us_per_request
            self._held_to[workload.name] = round(max(HELD_CORES_MIN, min(float(len(plan.placement.server)), cores)), 2)
        self.results["options"]["held_to"] = dict(self._held_to)

    # ---- around the runs --------------------------------------------------------------------------------------------

    def _entries(self) -> list[Peer]:
        """The contestants, and the A/A control right behind the one it repeats."""
        entries = list(self.plan.peers)
        ready = [peer for peer in entries if not peer.missing]
        twin = next((peer for peer in ready if peer.name == "ceiling"), ready[0] if ready else None)
        if twin is not None:
            entries.insert(entries.index(twin) + 1, control(twin))
        return entries

    def _contestant(self, peer: Peer) -> dict[str, Any]:
        return {"name": peer.name, "title": peer.title, "version": "" if peer.missing else peer.version(),
                "missing": peer.missing, "control_of": peer.control_of, "own": peer.own, "fairness": dict(peer.fairness),
                "answers": {}}

    def _note_surroundings(self) -> None:
        warnings, facts = self.results["warnings"], self.results["machine"]
        if facts["load_average"] > LOAD_HIGH * len(facts["cpus_allowed"]):
            warnings.append(f"the load average was {facts['load_average']:.1f} at the start: other programs take CPU time, and "
                            "requests/s and latencies below are worth little; CPU per request survives it better")
        if self.plan.placement.shared:
            warnings.append(f"server and client share CPUs ({self.plan.placement.reason}): no requests/s below means anything")
        if facts["cpu_quota"] is not None and facts["cpu_quota"] < len(facts["cpus_allowed"]):
            warnings.append(f"this container may use {facts['cpu_quota']:g} CPUs' worth of time, less than the "
                            f"{len(facts['cpus_allowed'])} CPUs it sees: the kernel stops whoever has used it up")

    def _duration(self, workload: Workload) -> float:
        return self._durations.get(workload.name, START_SECONDS + self._client(workload).expected_seconds())

    def _tell(self, watcher: Watcher, round_number: int, workload: Workload, peer: Peer, position: int, count: int) -> None:
        """Progress in seconds: what this session's runs took so far, and what the rest will."""
        whole_round = sum(self._duration(each) for each in self.plan.workloads) * count
        before = sum(self._duration(each) for each in self.plan.workloads[:self.plan.workloads.index(workload)]) * count
        done = round_number * whole_round + before + position * self._duration(workload)
        total = self.plan.rounds * whole_round + (SCALING_SECONDS * self.plan.rounds * len(self._scaling_steps()) if self.plan.scaling else 0)
        watcher.step(f"round {round_number + 1} of {self.plan.rounds}, {workload.name}: {peer.title}", done, total)

    # ---- scaling ----------------------------------------------------------------------------------------------------

    def _scaling_steps(self) -> list[int]:
        """Workers 1, 2, 4 … and as many as there are CPUs."""
        most = len(self.results["machine"]["cpus_allowed"])
        return [count for count in (1, 2, 4, 8, 16, 32, 64, 128) if count < most] + [most]

    def _scale(self, ready: Sequence[Peer], watcher: Watcher, cpus: set[int]) -> None:
        """Our server with more and more workers, connections kept, wrk; the client gets the CPUs that are left, or, with
        none left, shares them all (the run says so)."""
        peer = next((peer for peer in ready if peer.name == "ceiling"), None)
        if peer is None or self.plan.server_bound is not None:
            return
        workload, usable = by_name("keepalive"), sorted(cpus)
        steps = [(number, workers) for number in range(self.plan.rounds) for workers in self._scaling_steps()]
        for position, (number, workers) in enumerate(steps):
            watcher.step(f"scaling: {peer.title} with {workers} worker{'s' * (workers > 1)}", position * SCALING_SECONDS,
                         len(steps) * SCALING_SECONDS)
            placement = Placement(tuple(usable[:workers]), tuple(usable[workers:] or usable), "scaling")
            client = workload.sized(workload.default_share, len(placement.client))
            run, _ = _measured(_Task(peer, workload, client, placement, workers), thorough=False)
            self._keep(results_file.run_record(run, workload.name, number, workers, phase="scaling"), watcher)


@dataclasses.dataclass(frozen=True)
class _Task:
    """One run to be made. `cores` holds the server below its CPUs."""
    peer: Peer
    workload: Workload
    client: Client
    placement: Placement
    workers: int
    cores: Optional[float] = None


def _measured(task: _Task, thorough: bool) -> tuple[Run, Optional[measure.Probe]]:
    """Start, look, warm up, measure, stop. What goes wrong becomes the run's void; no probe means it did not come up."""
    peer, workload = task.peer, task.workload
    found = None
    try:
        with measure.start_server(peer.spec(workload), task.placement, task.workers) as server:
            found = measure.probe(server, workload.expectation(exact_body=not peer.own), thorough=thorough)
            if found.problems:
                return Run(server=peer.name, voids=list(found.problems), server_command=list(server.started),
                           client_command=task.client.command(server.url)), found
            cold = measure.warm_by_hand(server, WARM_REQUESTS, workload.mode == "close") if workload.warm_up() is None else ""
            if cold:
                return Run(server=peer.name, voids=[cold], server_command=list(server.started),
                           client_command=task.client.command(server.url)), found
            client = task.client
            if isinstance(client, Ab) and client != workload.client:
                # ab prints whole milliseconds; -e gives finer ones. Not at the full size, which is the article's exact command.
                client = dataclasses.replace(client, percentiles=str(server.work / "percentiles.csv"))
            held = measure.cpu_share(server.pid, task.cores) if task.cores else contextlib.nullcontext()
            with held:
                return measure.measure_run(server, client, task.placement, workload.warm_up(), task.cores), found
    except ServerError as error:
        return Run(server=peer.name, voids=[str(error)], client_command=task.client.command("URL")), None
