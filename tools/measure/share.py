"""Holding a server to a share of a core, so that it, and not the client, is the bottleneck.

On two cores a server on one core is never the limit: the client needs more CPU than the server does. A control group
with a quota makes it so: the server gets, say, 30 % of its core, the client a whole one. The period is short, since a
server that has used up its quota stands still until the period ends.
"""

from __future__ import annotations

import contextlib
import os
from pathlib import Path
from typing import Iterator, Optional

from .process import tree_of

PERIOD_US = 5000            # the shortest stand-still that still lets the kernel hand out slices of 1 ms or more


class ShareError(Exception):
    """No control group can be made; the text is one sentence."""


@contextlib.contextmanager
def cpu_share(root_pid: int, cores: float, base: Optional[Path] = None) -> Iterator[None]:
    """Holds a process tree to `cores` (0.3 is 30 % of one core) while the block runs. Raises ShareError if it cannot be.

    The tree is moved as it stands: workers must be up. Processes they fork later are in the group by inheritance.
    """
    folder = None
    try:
        try:
            folder = _make_group(base or Path("/sys/fs/cgroup"), max(1000, int(cores * PERIOD_US)))
            for pid in tree_of(root_pid):
                (folder / "cgroup.procs").write_text(str(pid))
        except OSError as error:
            raise ShareError(f"this machine lets nobody set a CPU quota (control groups: {error.strerror}): run as root, or "
                             "give the server fewer cores with --server-cpus") from error
        yield
    finally:
        if folder is not None:
            _remove(folder)


def _make_group(base: Path, quota_us: int) -> Path:
    """Version 1 where its cpu controller is mounted, else version 2."""
    name = f"ceiling-{os.getpid()}"
    if (base / "cpu/cpu.cfs_quota_us").exists() or (base / "cpu/cgroup.procs").exists():
        folder = base / "cpu" / name
        folder.mkdir(exist_ok=True)
        (folder / "cpu.cfs_period_us").write_text(str(PERIOD_US))
        (folder / "cpu.cfs_quota_us").write_text(str(quota_us))
        return folder
    folder = base / name
    folder.mkdir(exist_ok=True)
    if not (folder / "cpu.max").exists():
        with contextlib.suppress(OSError):
            (base / "cgroup.subtree_control").write_text("+cpu")
    (folder / "cpu.max").write_text(f"{quota_us} {PERIOD_US}")
    return folder


def _remove(folder: Path) -> None:
    """A group can go only when it is empty: what still runs goes back to the parent."""
    with contextlib.suppress(OSError):
        for pid in (folder / "cgroup.procs").read_text().split():
            with contextlib.suppress(OSError):
                (folder.parent / "cgroup.procs").write_text(pid)
    with contextlib.suppress(OSError):
        folder.rmdir()
