"""CPU, context switches and memory of a whole process tree, from /proc.

The kernel keeps a task's run time in nanoseconds (/proc/PID/task/TID/schedstat) but forgets it when the task ends,
and keeps the time of ended threads and reaped children only in ticks (/proc/PID/stat, usually 10 ms each). So
TreeMeter samples while the run lasts, remembers the last reading of every task it saw, and lets the ticks speak
where they prove that a task came and went between two samples.

A tree is: the root, whoever descends from it, and whoever shares its session. The session matters since a daemon's
parent may die, and then nothing in /proc leads from the root to the child any more.
"""

from __future__ import annotations

import ctypes
import dataclasses
import os
import time
from typing import Iterable, Optional

NANOSECONDS = 1_000_000_000
TICK_NS = NANOSECONDS // os.sysconf("SC_CLK_TCK")
PR_SET_CHILD_SUBREAPER = 36     # prctl(2)
SCAN_COST_SHARE = 0.02          # finding new processes means reading all of /proc: spend at most 2 % of the time on it


@dataclasses.dataclass
class TreeUsage:
    """What a tree used between TreeMeter.begin() and the newest sample."""
    cpu_ns: int = 0             # time on a CPU, all tasks, ended ones included
    wait_ns: int = 0            # time ready to run but kept waiting for a CPU
    user_ns: int = 0            # cpu_ns split by the ticks' ratio of user to system: sampled, coarse for short runs
    system_ns: int = 0
    voluntary_switches: int = 0     # it went to sleep
    involuntary_switches: int = 0   # it was pushed off its CPU
    peak_rss_bytes: int = 0     # sum of each process' peak; pages shared between workers count once for each
    pss_bytes: int = 0          # memory at the last full look, shared pages divided among their users; 0 if unreadable
    tasks: int = 0              # threads alive at the newest sample
    recovered_ns: int = 0       # part of cpu_ns known from ticks only: tasks that came and went between samples
    busiest_ns: tuple[int, ...] = ()    # cpu_ns of each task, the busiest first
    coarse: bool = False        # no schedstat on this kernel: everything is from ticks


@dataclasses.dataclass
class _Task:
    run_ns: int
    wait_ns: int
    voluntary: int
    involuntary: int


@dataclasses.dataclass
class _Process:
    user: int                   # ticks, own threads (ended ones included)
    system: int
    children: int               # ticks, reaped children, user and system
    peak_rss: int


def become_subreaper() -> bool:
    """Makes orphans below this process its own children, so that stopping a server's tree cannot miss one."""
    try:
        return ctypes.CDLL(None, use_errno=True).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) == 0
    except (OSError, AttributeError):
        return False


def read_stat(pid: int) -> Optional[list[str]]:
    """The fields of /proc/PID/stat behind the command name (which may hold blanks and brackets): [0] is the state,
    [1] the parent, [3] the session, [11] … [14] utime, stime, cutime, cstime, [19] the start time. None if it is gone."""
    text = _read(f"/proc/{pid}/stat")
    return text.rpartition(")")[2].split() if text else None


def tree_of(root: int) -> list[int]:
    """The pids of root, its descendants and everybody in its session, zombies excluded."""
    parents: dict[int, int] = {}
    members: set[int] = set()
    for entry in os.listdir("/proc"):
        if not entry.isdigit():
            continue
        fields = read_stat(int(entry))
        if fields is None or fields[0] in "ZX":
            continue
        parents[int(entry)] = int(fields[1])
        if int(fields[3]) == root or int(entry) == root:
            members.add(int(entry))
    grew = True
    while grew:
        found = {pid for pid, parent in parents.items() if parent in members and pid not in members}
        members |= found
        grew = bool(found)
    return sorted(members)


class TreeMeter:
    """Adds up what a process tree uses. Call begin(), then sample() a few times a second, then read usage()."""

    def __init__(self, root: int):
        self.root = root
        self._pids: list[int] = []
        self._scan_due = 0.0
        self._restart()

    def begin(self) -> None:
        """Starts counting: everything used so far is left out."""
        self._restart()
        self._look(full=True)
        self._task_base = dict(self._tasks)
        self._process_base = dict(self._processes)

    def sample(self, full: bool = False) -> TreeUsage:
        """Reads the tree again. `full` looks for new processes at once and reads PSS too; use it for the last sample."""
        self._look(full)
        return self.usage()

    def usage(self) -> TreeUsage:
        """The sums since begin(), by the newest sample."""
        zero_task = _Task(0, 0, 0, 0)
        result = TreeUsage(tasks=len(self._alive), pss_bytes=self._pss, coarse=self._coarse)
        each: list[int] = []
        for key, task in self._tasks.items():
            base = self._task_base.get(key, zero_task)
            each.append(task.run_ns - base.run_ns)
            result.cpu_ns += task.run_ns - base.run_ns
            result.wait_ns += task.wait_ns - base.wait_ns
            result.voluntary_switches += task.voluntary - base.voluntary
            result.involuntary_switches += task.involuntary - base.involuntary
        result.busiest_ns = tuple(sorted(each, reverse=True))
        result.peak_rss_bytes = sum(process.peak_rss for process in self._processes.values())
        user, system, total = self._ticks()
        slack = 2 * max(1, len(self._processes))      # a tick may be half used at either end
        missing = total - slack - result.cpu_ns // TICK_NS
        if self._coarse:
            result.cpu_ns = total * TICK_NS
        elif missing > 0:
            result.recovered_ns = missing * TICK_NS
            result.cpu_ns += result.recovered_ns
        if user + system > 0:
            result.user_ns = result.cpu_ns * user // (user + system)
            result.system_ns = result.cpu_ns - result.user_ns
        return result

    def _restart(self) -> None:
        self._tasks: dict[tuple[int, int, str], _Task] = {}
        self._task_base: dict[tuple[int, int, str], _Task] = {}
        self._processes: dict[tuple[int, str], _Process] = {}
        self._process_base: dict[tuple[int, str], _Process] = {}
        self._alive: set[tuple[int, int, str]] = set()
        self._alive_processes: set[tuple[int, str]] = set()
        self._pss = 0
        self._coarse = False

    def _look(self, full: bool) -> None:
        now = time.monotonic()
        if full or now >= self._scan_due:
            self._pids = tree_of(self.root)
            cost = time.monotonic() - now
            self._scan_due = now + max(0.25, cost / SCAN_COST_SHARE)
        self._alive = set()
        self._alive_processes = set()
        for pid in self._pids:
            self._look_at(pid)
        if full:
            self._pss = sum(_pss_bytes(pid) for pid in self._pids)

    def _look_at(self, pid: int) -> None:
        fields = read_stat(pid)
        if fields is None:
            return
        process = (pid, fields[19])
        self._alive_processes.add(process)
        self._processes[process] = _Process(int(fields[11]), int(fields[12]), int(fields[13]) + int(fields[14]),
                                            _status(f"/proc/{pid}/status").get("VmHWM", 0) * 1024)
        for tid in _tasks(pid):
            times = _read(f"/proc/{pid}/task/{tid}/schedstat")
            if times is None:
                self._coarse = self._coarse or not os.path.exists(f"/proc/{pid}/schedstat")
                continue
            run_ns, wait_ns = (int(word) for word in times.split()[:2])
            status = _status(f"/proc/{pid}/task/{tid}/status")
            key = (pid, tid, fields[19])
            self._alive.add(key)
            self._tasks[key] = _Task(run_ns, wait_ns, status.get("voluntary_ctxt_switches", 0),
                                     status.get("nonvoluntary_ctxt_switches", 0))

    def _ticks(self) -> tuple[int, int, int]:
        """User, system and all ticks since begin(). Reaped children are in their parent's sum for their whole life, so
        what they had used before begin() is taken off again."""
        none = _Process(0, 0, 0, 0)
        user = system = children = own_alive = 0
        for key, process in self._processes.items():
            base = self._process_base.get(key, none)
            user += process.user - base.user
            system += process.system - base.system
            if key in self._alive_processes:
                own_alive += process.user + process.system - base.user - base.system
                children += process.children - base.children
            else:
                children -= base.user + base.system
        return user, system, own_alive + max(0, children)


def _read(path: str) -> Optional[str]:
    try:
        with open(path, encoding="utf-8", errors="replace") as file:
            return file.read()
    except OSError:             # the task ended between listing and reading: normal
        return None


def _tasks(pid: int) -> list[int]:
    try:
        return [int(name) for name in os.listdir(f"/proc/{pid}/task")]
    except OSError:
        return []


def _status(path: str) -> dict[str, int]:
    """The numeric lines of a status file that we use."""
    wanted = ("VmHWM", "voluntary_ctxt_switches", "nonvoluntary_ctxt_switches")
    found: dict[str, int] = {}
    for line in (_read(path) or "").splitlines():
        name, _, rest = line.partition(":")
        if name in wanted:
            found[name] = int(rest.split()[0])
    return found


def _pss_bytes(pid: int) -> int:
    for line in (_read(f"/proc/{pid}/smaps_rollup") or "").splitlines():
        if line.startswith("Pss:"):
            return int(line.split()[1]) * 1024
    return 0


def cpu_times(cpus: Iterable[int]) -> dict[str, int]:
    """Sums /proc/stat's ticks over some CPUs: user (with nice), system, interrupt (hard and soft), idle (with I/O
    wait), steal; and the machine's context switches so far."""
    wanted = {f"cpu{cpu}" for cpu in cpus}
    sums = dict.fromkeys(("user", "system", "interrupt", "idle", "steal", "switches"), 0)
    for line in (_read("/proc/stat") or "").splitlines():
        words = line.split()
        if words and words[0] in wanted:
            values = [int(word) for word in words[1:9]] + [0] * 8
            sums["user"] += values[0] + values[1]
            sums["system"] += values[2]
            sums["idle"] += values[3] + values[4]
            sums["interrupt"] += values[5] + values[6]
            sums["steal"] += values[7]
        elif words and words[0] == "ctxt":
            sums["switches"] = int(words[1])
    return sums
