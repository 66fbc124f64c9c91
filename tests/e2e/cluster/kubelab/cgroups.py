# SPDX-License-Identifier: Apache-2.0
"""Control groups of version 1: what a node's pods live in, and by which every process of a cluster is
found again, whatever happened to the program that started it."""

import os
from functools import cache
from pathlib import Path

from harness.waiting import TimedOut, wait_for

from .layout import LabError


@cache
def hierarchies() -> tuple[Path, ...]:
    """Mount points, each once; also that of version 2 without controllers, where the runtime makes a group
    of the same name."""
    mounts = [line.split() for line in Path("/proc/mounts").read_text().splitlines()]
    found = {Path(m[1]).resolve() for m in mounts if m[2] in ("cgroup", "cgroup2")}
    if not any(path.name == "pids" for path in found):
        raise LabError("no control groups of version 1 with the controller pids: the cluster needs them")
    return tuple(sorted(found))


def _pids_dir(name: str) -> Path:
    return next(path for path in hierarchies() if path.name == "pids") / name


def make_for_tracking(name: str) -> None:
    """A group in which processes are only counted."""
    _pids_dir(name).mkdir(exist_ok=True)


def make_for_node(name: str) -> None:
    """A root for a kubelet's groups in every hierarchy."""
    for hierarchy in hierarchies():
        group = hierarchy / name
        group.mkdir(exist_ok=True)
        if hierarchy.name == "cpuset":  # a new group has no CPU and can't be joined
            for file in ("cpuset.cpus", "cpuset.mems"):
                (group / file).write_text((hierarchy / file).read_text())


def join(name: str) -> None:
    """Moves the calling process."""
    (_pids_dir(name) / "cgroup.procs").write_text(str(os.getpid()))


def is_member(name: str, pid: int) -> bool:
    try:
        lines = Path(f"/proc/{pid}/cgroup").read_text().splitlines()
    except (FileNotFoundError, ProcessLookupError):
        return False
    groups = [line.split(":", 2) for line in lines]
    return any(g[1] == "pids" and Path(g[2]).is_relative_to(f"/{name}") for g in groups)


def members(name: str) -> list[int]:
    """All processes in the group and below it, whose groups come and go meanwhile."""
    found = []
    for folder, _, _ in os.walk(_pids_dir(name)):
        try:
            found += [int(pid) for pid in Path(folder, "cgroup.procs").read_text().split()]
        except OSError:
            continue
    return found


def weigh(name: str, shares: int) -> None:
    """Of the processor, for the group as a whole against single processes, which have 1024 each."""
    for hierarchy in hierarchies():
        file = hierarchy / name / "cpu.shares"
        if file.exists():
            file.write_text(str(shares))


def limit_cpu(name: str, percent: int | None) -> None:
    """What the group and all below it get of one processor, in each tenth of a second; None: no limit."""
    group = next(path for path in hierarchies() if (path / name / "cpu.cfs_quota_us").exists()) / name
    period_us = 100_000
    (group / "cpu.cfs_period_us").write_text(str(period_us))
    (group / "cpu.cfs_quota_us").write_text(str(-1 if percent is None else period_us * percent // 100))


def existing(prefix: str) -> set[str]:
    """Names of groups of a cluster, in whatever hierarchy."""
    return {path.name for hierarchy in hierarchies() for path in hierarchy.glob(f"{prefix}-*")}


def remove(name: str) -> None:
    """Waits a little: a group is busy until its last process has been reaped."""

    def gone() -> bool:
        left = False
        for hierarchy in hierarchies():
            for folder, _, _ in os.walk(hierarchy / name, topdown=False):
                try:
                    os.rmdir(folder)
                except FileNotFoundError:
                    pass
                except OSError:
                    left = True
        return not left

    try:
        wait_for(f"control group {name} is empty", gone, 10)
    except TimedOut as error:
        raise LabError(f"{error}: still in it: {members(name)}") from None
