"""What short connections use up, and what the kernel dropped: TIME_WAIT, ephemeral ports, listen queue overflows."""

from __future__ import annotations

import dataclasses
from pathlib import Path


@dataclasses.dataclass(frozen=True)
class NetworkCounters:
    """A reading of the kernel's counters; subtract two to learn what happened in between."""
    time_wait: int              # sockets in TIME_WAIT now
    listen_overflows: int       # connections dropped since the accept queue was full, since boot
    listen_drops: int           # SYNs dropped at a listener, since boot
    time_wait_overflows: int    # TIME_WAITs cut short since net.ipv4.tcp_max_tw_buckets was reached, since boot

    @staticmethod
    def read(proc: Path = Path("/proc")) -> "NetworkCounters":
        """Reads this network namespace's counters; a kernel that lacks one gives 0 for it."""
        extended = _pairs(proc / "net/netstat", "TcpExt")
        return NetworkCounters(time_wait=_time_wait(proc / "net/sockstat"),
                               listen_overflows=extended.get("ListenOverflows", 0),
                               listen_drops=extended.get("ListenDrops", 0),
                               time_wait_overflows=extended.get("TCPTimeWaitOverflow", 0))

    def since(self, earlier: "NetworkCounters") -> "NetworkCounters":
        """The growth of each counter since an earlier reading (time_wait may shrink)."""
        return NetworkCounters(*(getattr(self, field.name) - getattr(earlier, field.name)
                                 for field in dataclasses.fields(self)))


@dataclasses.dataclass(frozen=True)
class PortBudget:
    """How many short connections to one address and port are safe in one go, and what holds them back."""
    ports: int                  # size of net.ipv4.ip_local_port_range
    reuse: bool                 # the kernel takes a port in TIME_WAIT again for loopback (tcp_tw_reuse 1 or 2)

    def shortage(self, connections: int) -> str:
        """A sentence if that many short connections cannot all have a port of their own, else an empty string."""
        if self.reuse or connections <= self.ports:
            return ""
        return (f"{connections} short connections need more than the {self.ports} ports of net.ipv4.ip_local_port_range, "
                "and net.ipv4.tcp_tw_reuse = 0 forbids taking one again within a minute")


def port_budget(proc: Path = Path("/proc")) -> PortBudget:
    """Reads the port range and the reuse rule; the documented kernel defaults (ip-sysctl) stand in for what is missing."""
    low, high = 32768, 60999
    try:
        low, high = (int(part) for part in (proc / "sys/net/ipv4/ip_local_port_range").read_text().split())
    except (OSError, ValueError):
        pass
    try:
        reuse = (proc / "sys/net/ipv4/tcp_tw_reuse").read_text().strip() != "0"
    except OSError:
        reuse = True
    return PortBudget(high - low + 1, reuse)


def _pairs(path: Path, prefix: str) -> dict[str, int]:
    """/proc/net/netstat has a line of names and below it a line of values, both with the same prefix."""
    try:
        rows = [line.split() for line in path.read_text().splitlines() if line.startswith(prefix + ":")]
    except OSError:
        return {}
    found: dict[str, int] = {}
    for names, values in zip(rows[::2], rows[1::2]):
        found.update((name, int(value)) for name, value in zip(names[1:], values[1:]))
    return found


def _time_wait(path: Path) -> int:
    try:
        for line in path.read_text().splitlines():
            words = line.split()
            if words and words[0] == "TCP:" and "tw" in words:
                return int(words[words.index("tw") + 1])
    except (OSError, ValueError, IndexError):
        pass
    return 0
