"""What this machine is: everything a reader needs to judge a figure taken on it."""

from __future__ import annotations

import os
import platform
import re
import resource
import shutil
import subprocess
from pathlib import Path
from typing import Mapping, Optional

SYSCTLS = (
    "net.core.somaxconn", "net.core.netdev_max_backlog", "net.core.default_qdisc", "net.core.busy_poll",
    "net.ipv4.ip_local_port_range", "net.ipv4.tcp_tw_reuse", "net.ipv4.tcp_fin_timeout", "net.ipv4.tcp_max_tw_buckets",
    "net.ipv4.tcp_max_syn_backlog", "net.ipv4.tcp_syncookies", "net.ipv4.tcp_congestion_control", "net.ipv4.tcp_rmem",
    "net.ipv4.tcp_wmem", "net.ipv4.tcp_timestamps", "kernel.sched_autogroup_enabled", "kernel.randomize_va_space",
    "kernel.perf_event_paranoid", "fs.file-max", "vm.overcommit_memory",
)

VERSION_COMMANDS = {
    "ab": ["ab", "-V"],
    "wrk": ["wrk", "-v"],
    "g++": ["g++", "--version"],
    "clang++": ["clang++", "--version"],
    "python3": ["/usr/bin/python3", "--version"],
}


def machine_facts() -> dict:
    """CPU, cores and affinity, kernel, mitigations, sysctls that matter, limits, load. Every value is plain JSON."""
    cpu = _cpu_info()
    return {
        "cpu": cpu.get("model name") or cpu.get("Processor") or platform.machine(),
        "architecture": platform.machine(),
        "virtual": "hypervisor" in cpu.get("flags", "").split(),
        "cpus_online": os.cpu_count() or 1,
        "cpus_allowed": sorted(os.sched_getaffinity(0)),
        "cpu_quota": cpu_quota(),
        "memory_bytes": os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"),
        "governor": _text("/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor") or "not shown",
        "smt": _text("/sys/devices/system/cpu/smt/control") or "not shown",
        "clocksource": _text("/sys/devices/system/clocksource/clocksource0/current_clocksource") or "not shown",
        "kernel": platform.release(),
        "distribution": _distribution(),
        "mitigations": _mitigations(),
        "sysctls": {name: value for name in SYSCTLS
                    if (value := _text("/proc/sys/" + name.replace(".", "/"))) is not None},
        "descriptors_max": resource.getrlimit(resource.RLIMIT_NOFILE)[1],
        "load_average": os.getloadavg()[0],
    }


def cpu_quota() -> Optional[float]:
    """CPUs' worth of time the cgroup allows (cpu.max, or cpu.cfs_quota_us of version 1), None for no limit. Only the own
    group is read: enough for containers, whose root it is."""
    text = _text("/sys/fs/cgroup/cpu.max")
    if text and not text.startswith("max"):
        quota, period = text.split()[:2]
        return int(quota) / int(period)
    quota, period = _text("/sys/fs/cgroup/cpu/cpu.cfs_quota_us"), _text("/sys/fs/cgroup/cpu/cpu.cfs_period_us")
    if quota and period and int(quota) > 0:
        return int(quota) / int(period)
    return None


def tool_versions() -> dict[str, str]:
    """The version line of every tool that is here."""
    return {name: version for name, command in VERSION_COMMANDS.items() if (version := version_of(command))}


def version_of(command: list[str], environment: Mapping[str, str] = {}) -> str:
    """The first line with a digit that a version command prints, on either stream; empty if it cannot be run."""
    variables = {**os.environ, **environment}
    variables["PATH"] = variables.get("PATH", "") + ":/usr/sbin:/sbin"
    if shutil.which(command[0], path=variables["PATH"]) is None:
        return ""
    try:
        done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True, errors="replace", timeout=20,
                              env=variables)
    except (OSError, subprocess.SubprocessError):
        return ""
    for line in (done.stdout + "\n" + done.stderr).splitlines():
        if re.search(r"\d", line):
            return line.strip()[:160]
    return ""


def commit_of(root: Path) -> str:
    """The commit of a checkout, with `+` behind it if the tree has changes; `unknown` outside git."""
    try:
        head = subprocess.run(["git", "-C", str(root), "rev-parse", "--short=12", "HEAD"],
                              capture_output=True, text=True, timeout=20)
        changed = subprocess.run(["git", "-C", str(root), "status", "--porcelain", "--untracked-files=no"],
                                 capture_output=True, text=True, timeout=20)
    except (OSError, subprocess.SubprocessError):
        return "unknown"
    if head.returncode != 0:
        return "unknown"
    return head.stdout.strip() + ("+" if changed.stdout.strip() else "")


def _cpu_info() -> dict[str, str]:
    """The first processor's entry of /proc/cpuinfo."""
    found: dict[str, str] = {}
    for line in (_text("/proc/cpuinfo") or "").splitlines():
        if not line.strip():
            break
        name, _, value = line.partition(":")
        found[name.strip()] = value.strip()
    return found


def _mitigations() -> dict[str, str]:
    folder = Path("/sys/devices/system/cpu/vulnerabilities")
    try:
        return {path.name: path.read_text().strip() for path in sorted(folder.iterdir())}
    except OSError:
        return {}


def _distribution() -> str:
    for line in (_text("/etc/os-release") or "").splitlines():
        if line.startswith("PRETTY_NAME="):
            return line.partition("=")[2].strip('"')
    return "not shown"


def _text(path: str) -> Optional[str]:
    try:
        return " ".join(Path(path).read_text().split()) if path.startswith("/proc/sys") else Path(path).read_text().strip()
    except OSError:
        return None
