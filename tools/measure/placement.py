"""Which CPUs the server gets and which the client gets.

A client that shares a CPU with the server takes its time away, and no figure of either means anything then. SMT
siblings are kept on one side: two hardware threads of a core are not two cores.
"""

from __future__ import annotations

import dataclasses
import os
from pathlib import Path
from typing import Optional, Sequence


@dataclasses.dataclass(frozen=True)
class Placement:
    """CPU numbers for either side, and a sentence that says how they were chosen."""
    server: tuple[int, ...]
    client: tuple[int, ...]
    reason: str

    @property
    def shared(self) -> bool:
        """True if some CPU serves both sides: a reason to distrust every figure."""
        return bool(set(self.server) & set(self.client))


def allowed_cpus() -> list[int]:
    """The CPUs this process may use (its affinity mask, as taskset or a container set it)."""
    return sorted(os.sched_getaffinity(0))


def parse_cpu_list(text: str) -> list[int]:
    """Reads the kernel's and taskset's way of writing CPU sets: `0-3,8`. Raises ValueError with a sentence."""
    cpus: set[int] = set()
    for part in text.strip().split(","):
        first, dash, last = part.partition("-")
        if not first.isdigit() or (dash and not last.isdigit()):
            raise ValueError(f"'{text}' is not a list of CPUs such as 0-3,8")
        cpus.update(range(int(first), int(last if dash else first) + 1))
    return sorted(cpus)


def cores_of(cpus: Sequence[int], topology: Path = Path("/sys/devices/system/cpu")) -> list[tuple[int, ...]]:
    """Groups CPUs into cores: SMT siblings together, in CPU order. A CPU whose siblings are unknown is its own core."""
    cores: dict[tuple[int, ...], None] = {}
    for cpu in cpus:
        try:
            text = (topology / f"cpu{cpu}/topology/thread_siblings_list").read_text()
            siblings = tuple(sibling for sibling in parse_cpu_list(text) if sibling in cpus)
        except (OSError, ValueError):
            siblings = (cpu,)
        cores[siblings or (cpu,)] = None
    return list(cores)


def plan_placement(workers: Optional[int] = None, server: Optional[Sequence[int]] = None,
                   client: Optional[Sequence[int]] = None, cpus: Optional[Sequence[int]] = None,
                   cores: Optional[Sequence[tuple[int, ...]]] = None) -> Placement:
    """Splits the machine: the server gets the first half of the cores, the client the others.

    `workers` caps the server's share at one core for each worker (the rest would only idle). `server` and `client`
    override the choice. `cpus` and `cores` stand in for the machine in tests.
    """
    usable = list(cpus) if cpus is not None else allowed_cpus()
    if server is not None or client is not None:
        chosen_server = tuple(server) if server is not None else tuple(cpu for cpu in usable if cpu not in client)
        chosen_client = tuple(client) if client is not None else tuple(cpu for cpu in usable if cpu not in server)
        return Placement(chosen_server or tuple(usable), chosen_client or tuple(usable), "as asked on the command line")
    groups = list(cores) if cores is not None else cores_of(usable)
    if len(groups) == 1 and len(groups[0]) == 1:
        return Placement(groups[0], groups[0], "this process may use one CPU only, so server and client share it")
    if len(groups) == 1:
        threads = groups[0]
        return Placement(threads[:1], threads[1:], "one core only: server and client sit on SMT siblings of it")
    half = len(groups) // 2
    if workers is not None:
        half = max(1, min(half, workers))
    server_cpus = tuple(sorted(cpu for group in groups[:half] for cpu in group))
    client_cpus = tuple(sorted(cpu for group in groups[half:] for cpu in group))
    return Placement(server_cpus, client_cpus, f"{half} of {len(groups)} cores for the server, the others for the client")
