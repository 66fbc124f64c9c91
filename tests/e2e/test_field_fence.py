# SPDX-License-Identifier: Apache-2.0
"""A process that SIGKILL does not end: it waits in the kernel for a disk that does not answer."""

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from harness import Lab, hold, wait_for
from harness.process import descendants
from kube import AFTER_FAULT_S, Open, supersede

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="mounts need root")

# A child that appends to a file on that disk, and meta beside it.
WRITER = 'while :; do echo x >> "$0" || exit; sleep 0.05; done & exec "$@"'


class Disk:
    """A small file system of its own that can be made to stand still."""

    def __init__(self, lab: Lab) -> None:
        self.path = lab.dir / "disk"
        self.path.mkdir()
        image = lab.dir / "disk.img"
        with open(image, "wb") as file:
            file.truncate(16 << 20)
        self._run("mkfs.ext4", "-q", "-F", image)
        self._run("mount", "-o", "loop", image, self.path)
        self.path.chmod(0o777)
        self._is_frozen = False

    def _run(self, *argv: str | Path) -> None:
        subprocess.run(argv, check=True, capture_output=True)

    def freeze(self) -> None:
        self._run("fsfreeze", "-f", self.path)
        self._is_frozen = True

    def thaw(self) -> None:
        if self._is_frozen:
            self._run("fsfreeze", "-u", self.path)
        self._is_frozen = False

    def close(self) -> None:
        self.thaw()
        self._run("umount", "-l", self.path)


@pytest.fixture
def disk(lab: Lab) -> Iterator[Disk]:
    disk = Disk(lab)
    yield disk
    disk.close()


def state_of(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0]
    except (FileNotFoundError, ProcessLookupError):
        return ""


def test_unkillable_process(kube: Open, disk: Disk) -> None:
    """As long as it lives this is no fence, and nobody calls it one: NotFenced in status, log, metric and
    probe, label unknown, nothing started beside it. When the disk is back the pending KILL ends it."""
    made = kube()
    old = made.pods[0]
    argv = old._meta_argv()
    old._meta_argv = lambda: ["sh", "-c", WRITER, disk.path / "log", *argv]  # type: ignore[method-assign]
    made.start()
    wait_for("it writes", lambda: (disk.path / "log").exists(), 5)
    disk.freeze()
    stuck = wait_for(
        "the writer hangs in the kernel",
        lambda: [p for p in descendants(old.main.pid) if state_of(p) == "D"],
        10,
    )
    incarnations = old.incarnations
    supersede(made, old)
    status = old.wait_status("not fenced", lambda s: s["not_fenced"], 10)
    assert status["not_fenced"]["why"], status
    assert old.probe("/readyz")[0] == 503
    assert old.agent_log.find(msg="not fenced", level="error")
    assert "metafence_not_fenced 1" in old.probe("/metrics")[1].splitlines()
    made.wait_label(old, "unknown", AFTER_FAULT_S)
    lines = len(old.agent_log.path.read_text().splitlines())

    def held() -> None:
        assert old.incarnations == incarnations, "a new meta was started beside the old"
        assert [state_of(p) for p in stuck] == ["D"] * len(stuck)
        assert old.main.alive and old.agent is not None and old.agent.alive

    hold(8, held)
    assert len(old.agent_log.path.read_text().splitlines()) < lines + 20, "it says it again and again"
    assert (old.status() or {})["not_fenced"]
    assert not (old.status() or {})["last_fence"] or not (old.status() or {})["last_fence"]["confirmed"]
    disk.thaw()
    wait_for("the pending KILL ends it", lambda: not any(state_of(p) in ("D", "R", "S") for p in stuck), 5)
    old.wait_status("fenced at last", lambda s: s["not_fenced"] is None, 10)
    leader = made.cluster.wait_converged(4 * made.cluster.ttl)
    made.wait_labels(leader, AFTER_FAULT_S)
    assert old.kills() == 1
