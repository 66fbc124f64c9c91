# SPDX-License-Identifier: Apache-2.0
"""A process that stands still by its control group, as containers do: in version 1 even SIGKILL waits for the
thaw, in version 2 it does not. Where we may not make a group, SIGSTOP takes its place."""

import contextlib
import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from .process import signal_pid
from .waiting import wait_for

V1 = Path("/sys/fs/cgroup/freezer")
V2 = Path("/sys/fs/cgroup")


def _make_group() -> tuple[str, Path] | None:
    name = f"metafence-e2e-{os.getpid()}"
    for version, root, marker in (("v1", V1, "freezer.state"), ("v2", V2, "cgroup.freeze")):
        if version == "v2" and not (root / "cgroup.controllers").exists():
            continue
        group = root / name
        try:
            group.mkdir()
        except OSError:
            continue
        if (group / marker).exists():
            return version, group
        group.rmdir()
    return None


def _remove(group: Path) -> bool:
    with contextlib.suppress(OSError):
        group.rmdir()
    return not group.exists()


@contextmanager
def frozen(pid: int) -> Iterator[str]:
    """Gives how: v1, v2 or stop. Thawed at the end of the block; what it is then is the caller's business."""
    made = _make_group()
    if made is None:
        signal_pid(pid, signal.SIGSTOP)
        stat = Path(f"/proc/{pid}/stat")
        wait_for("it is stopped", lambda: stat.read_text().rsplit(")", 1)[1].split()[0] == "T", 10)
        try:
            yield "stop"
        finally:
            signal_pid(pid, signal.SIGCONT)
        return
    version, group = made
    state, freeze, thaw = {
        "v1": ("freezer.state", "FROZEN", "THAWED"),
        "v2": ("cgroup.freeze", "1", "0"),
    }[version]
    (group / "cgroup.procs").write_text(str(pid))
    (group / state).write_text(freeze)
    told, word = {"v1": ("freezer.state", "FROZEN"), "v2": ("cgroup.events", "frozen 1")}[version]
    wait_for("the group is frozen", lambda: word in (group / told).read_text(), 10)
    try:
        yield version
    finally:
        (group / state).write_text(thaw)
        home = group.parent / "cgroup.procs"
        for left in (group / "cgroup.procs").read_text().split():
            with contextlib.suppress(OSError):  # dead by now
                home.write_text(left)
        wait_for("the group is empty", lambda: _remove(group), 10)
