# SPDX-License-Identifier: Apache-2.0
"""Helm upgrades while somebody else than the first pod leads: nothing that the agents wrote is put back."""

from collections.abc import Callable
from typing import Any

from harness.waiting import boot_ns, hold
from kubelab import Database
from metas import Deployment
from metas.deployment import CHART
from metas.faults import take_row

Deploy = Callable[..., Deployment]
Note = Callable[[str, Any], None]
QUIET_S = 8.0  # a rollout that should not be would begin within a second


def test_upgrade_without_a_change(deploy: Deploy, database: Database, note: Note) -> None:
    """The same values again, a rollback, and the manifests applied on the server's side: no pod restarts, no
    role changes, nobody is in conflict with the agents about a field."""
    metas = deploy(database=database)
    old = metas.start()
    leader = take_row(metas, old)
    assert metas.wait_converged(60) is leader
    uids = {m.name: m.uid for m in metas.metas}
    incarnations = {m.name: m.incarnation for m in metas.metas}
    here = ("--namespace", metas.namespace)
    helm = metas.cluster.helm
    since = boot_ns()

    def nothing_happened() -> None:
        assert {m.name: m.uid for m in metas.refresh()} == uids, "a pod was replaced"
        assert {m.name: m.incarnation for m in metas.metas} == incarnations

    helm("upgrade", "meta", CHART, *here, "--reuse-values")
    hold(QUIET_S, nothing_happened)
    helm("rollback", "meta", "1", *here)
    hold(QUIET_S, nothing_happened)
    manifests = helm("get", "manifest", "meta", *here)
    kubectl = metas.cluster.kubectl
    apply = ("apply", "--server-side", "--field-manager=gitops", "--force-conflicts", "-f", "-")
    kubectl(*apply, *here, stdin=manifests)
    hold(QUIET_S, nothing_happened)
    assert metas.wait_converged(10) is leader
    for meta in metas.metas:
        role = "leader" if meta is leader else "follower"
        assert metas.recorder.roles(meta.uid, since) == [role], metas.recorder.describe(since)
        assert meta.kubelet_restarts() == meta.kubelet_restarts("metafence") == 0
    note("revisions", helm("history", "meta", *here, "-o", "json").count('"revision"'))
