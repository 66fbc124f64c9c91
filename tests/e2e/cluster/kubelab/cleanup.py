# SPDX-License-Identifier: Apache-2.0
"""Ending a cluster with all that is its own, whether it was left in order, half made, or by a kill -9 of
whatever made it. Nothing that is looked for depends on a file that could be lost."""

import shutil
import subprocess
from collections.abc import Iterable
from pathlib import Path

from harness.process import signal_pid
from harness.sysv import remove_segment
from harness.waiting import wait_for

from . import cgroups, network
from .layout import Layout, claim, release
from .netns import pids_inside
from .programs import is_running

SIGKILL = 9


def processes(layout: Layout) -> set[int]:
    """Whatever is in one of the cluster's namespaces or control groups."""
    found: set[int] = set()
    for name in network.existing(layout.prefix):
        found.update(pids_inside(Path("/run/netns") / name))
    for name in cgroups.existing(layout.prefix):
        found.update(cgroups.members(name))
    return {pid for pid in found if is_running(pid)}


def mounts(layout: Layout) -> list[str]:
    """Mount points below the run folder, deepest first; a node's are gone with the node."""
    points = [line.split()[1] for line in Path("/proc/mounts").read_text().splitlines()]
    return sorted((p for p in points if Path(p).is_relative_to(layout.dir)), reverse=True)


def leftovers(layout: Layout) -> list[str]:
    """What a cluster that is down still has on this machine; empty: nothing."""
    left = [f"process {pid}" for pid in sorted(processes(layout))]
    left += [f"mount {point}" for point in mounts(layout)]
    left += [f"namespace {name}" for name in sorted(network.existing(layout.prefix))]
    left += [f"control group {name}" for name in sorted(cgroups.existing(layout.prefix))]
    return left + ([f"folder {layout.dir}"] if layout.dir.exists() else [])


def remove(layout: Layout) -> None:
    """A second call finds nothing to do."""

    def all_ended() -> bool:
        left = processes(layout)
        for pid in left:
            signal_pid(pid, SIGKILL)
        return not left

    wait_for(f"all processes of {layout.prefix} end", all_ended, 30)
    for pid_file in (layout.dir / "pg").glob("*/postmaster.pid"):
        remove_segment(pid_file.parent)
    for point in mounts(layout):
        subprocess.run(["umount", "--lazy", point], check=True)
    for name in network.existing(layout.prefix):
        network.remove(name)
    for name in cgroups.existing(layout.prefix):
        cgroups.remove(name)
    _remove_folder(layout.dir)


def _remove_folder(path: Path) -> None:
    if path.exists():
        shutil.rmtree(path)


def after_crashes(prefixes: Iterable[str]) -> None:
    """Removes clusters of test runs that did not come to their end; one in use keeps its claim."""
    for prefix in prefixes:
        layout = Layout(prefix)
        if not (layout.dir.exists() or network.existing(prefix) or cgroups.existing(prefix)):
            continue
        held = claim(prefix)
        if held is None:
            continue
        try:
            remove(layout)
        finally:
            release(prefix, held)
