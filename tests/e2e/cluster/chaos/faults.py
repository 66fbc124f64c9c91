# SPDX-License-Identifier: Apache-2.0
"""What the kinds of the plan do to the cluster. Each public method is a kind: it begins the fault, says in
`said` whom it hit, and returns what ends it."""

import os
import signal
from collections.abc import Callable
from typing import cast

from harness.waiting import hold
from kubelab import API_PORT, CONTROL_PLANE, POSTGRES_PORT, Block, Node
from kubelab.faults import How
from matrix.causes import AGENT, META, RUN
from matrix.run import pids_of
from metas import Compute, Meta, Registry
from metas.nets import node_without

from . import rotation
from .database import FullDisk, SteppedClock, fail_over
from .plan import Fault
from .schedule import End


def nothing() -> None:
    """A fault that is over at once."""


def _stop(pids: list[int]) -> End:
    """SIGSTOP, and to those that live then SIGCONT. By descriptors: a pid may be another's by then."""
    descriptors = [os.pidfd_open(pid) for pid in pids]
    for descriptor in descriptors:
        signal.pidfd_send_signal(descriptor, signal.SIGSTOP)

    def go_on() -> None:
        for descriptor in descriptors:
            try:
                signal.pidfd_send_signal(descriptor, signal.SIGCONT)
            except ProcessLookupError:
                pass  # somebody has ended it meanwhile, as may be
            finally:
                os.close(descriptor)

    return go_on


class Faults:
    """before_loss: called when a primary is about to be lost with what only it knows."""

    def __init__(self, metas: Registry, before_loss: Callable[[], None]) -> None:
        self.metas, self.cluster, self._before_loss = metas, metas.cluster, before_loss
        self.said = ""
        self._clock: SteppedClock | None = None
        self._computes: list[Compute] = []

    def begin(self, fault: Fault) -> End:
        self.said = ""
        return getattr(self, fault.kind)(fault)

    def prepare(self) -> None:
        """Before the metas are there: Postgres is started again with a clock that can be moved."""
        self._clock = SteppedClock(self.cluster.postgres)
        self.cluster.postgres.restart("fast")

    def look(self) -> None:
        """Who is there: also while the API server is away a victim is found. May raise then."""
        for meta in self.metas.refresh():
            meta.witness.lines()  # what it wrote stays from now on, also when its pod goes
        self._computes = self.metas.computes() or self._computes

    # --- who ---------------------------------------------------------------------------------

    def _meta(self, fault: Fault) -> Meta:
        metas = sorted(self.metas.metas, key=lambda meta: meta.name)
        if fault["who"] == "leader":
            chosen = next(iter(self.metas.leaders()), metas[0])
        else:
            chosen = metas[int(fault["who"]) % len(metas)]
        self.said = f"{chosen.name} on {chosen.node.name}"
        return chosen

    def _node(self, fault: Fault) -> Node:
        if fault["who"] == "leader":
            return self._meta(fault).node
        node = self.cluster.nodes[int(fault["who"])]
        self.said = node.name
        return node

    def _compute(self, fault: Fault) -> Compute:
        chosen = self._computes[int(fault["who"]) % len(self._computes)]
        self.said = f"{chosen.name} on {chosen.node.name}"
        return chosen

    def _pids(self, meta: Meta, program: str) -> list[int]:
        pids = pids_of(meta, program)
        assert pids, f"{meta} has no {program} now"
        return pids

    def _kubelet(self, fault: Fault) -> list[int]:
        pids = self._node(fault).pids("kubelet")
        assert pids, f"{self.said} has no kubelet now"
        return pids

    def _kill(self, pids: list[int]) -> End:
        for pid in pids:
            os.kill(pid, signal.SIGKILL)
        return nothing

    # --- partitions --------------------------------------------------------------------------

    def node_without_postgres(self, fault: Fault) -> End:
        return node_without(self.cluster, self._node(fault), POSTGRES_PORT, fault["how"]).begin().lift

    def node_without_api(self, fault: Fault) -> End:
        return node_without(self.cluster, self._node(fault), API_PORT, fault["how"]).begin().lift

    def pod_without_postgres(self, fault: Fault) -> End:
        meta = self._meta(fault)
        how = cast(How, fault["how"])
        return Block(meta.node.namespace, meta.ip, CONTROL_PLANE, POSTGRES_PORT, how).lift

    def node_cut(self, fault: Fault) -> End:
        node = self._node(fault)
        node.cut()
        return node.heal

    # --- processes ---------------------------------------------------------------------------

    def meta_killed(self, fault: Fault) -> End:
        return self._kill(self._pids(self._meta(fault), META))

    def meta_stopped(self, fault: Fault) -> End:
        return _stop(self._pids(self._meta(fault), META))

    def agent_killed(self, fault: Fault) -> End:
        return self._kill(self._pids(self._meta(fault), AGENT))

    def agent_stopped(self, fault: Fault) -> End:
        return _stop(self._pids(self._meta(fault), AGENT))

    def run_killed(self, fault: Fault) -> End:
        return self._kill(self._pids(self._meta(fault), RUN))

    def run_stopped(self, fault: Fault) -> End:
        return _stop(self._pids(self._meta(fault), RUN))

    def compute_killed(self, fault: Fault) -> End:
        self._compute(fault).signal(META, signal.SIGKILL)
        return nothing

    def compute_stopped(self, fault: Fault) -> End:
        pid = self._compute(fault).process
        assert pid is not None, f"{self.said} has no process now"
        return _stop([pid])

    def kubelet_killed(self, fault: Fault) -> End:
        return self._kill(self._kubelet(fault))

    def kubelet_stopped(self, fault: Fault) -> End:
        return _stop(self._kubelet(fault))

    def api_killed(self, fault: Fault) -> End:
        self.cluster.plane.apiserver.kill()
        return self.cluster.plane.apiserver.start

    def api_stopped(self, fault: Fault) -> End:
        self.cluster.plane.apiserver.pause()
        return self.cluster.plane.apiserver.resume

    # --- Postgres ----------------------------------------------------------------------------

    def postgres_killed(self, fault: Fault) -> End:
        self.cluster.postgres.kill()
        return lambda: self.cluster.postgres.start(wait=False)

    def postgres_stopped(self, fault: Fault) -> End:
        self.cluster.postgres.pause()
        return self.cluster.postgres.resume

    def postgres_restarted(self, fault: Fault) -> End:
        self.cluster.postgres.stop(fault["how"])
        return lambda: self.cluster.postgres.start(wait=False)

    def postgres_clock(self, fault: Fault) -> End:
        assert self._clock is not None, "prepare() was not called"
        clock = self._clock
        clock.step(float(fault["step_s"]))
        return lambda: clock.step(0)

    def failover(self, fault: Fault) -> End:
        def lose() -> None:
            hold(float(fault["lost_s"]))
            self._before_loss()

        return fail_over(self.cluster.postgres, lose)

    def disk_full(self, fault: Fault) -> End:
        disk = FullDisk(self.cluster.postgres)
        disk.fill()
        return disk.clear

    # --- the machine and its credentials -------------------------------------------------------

    def node_starved(self, fault: Fault) -> End:
        node = self._node(fault)
        node.starve(int(fault["percent"]))
        return node.feed

    def tokens_rotated(self, fault: Fault) -> End:
        rotation.rotate_tokens(self.cluster, self.metas.read_pods())
        return nothing

    def authority_rotated(self, fault: Fault) -> End:
        rotation.rotate_authority(self.cluster, self.metas.read_pods())
        return nothing
