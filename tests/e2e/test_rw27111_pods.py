# SPDX-License-Identifier: Apache-2.0
"""rw#27111 where Kubernetes knows the compute nodes: one whose container has ended is GONE, and one whose
actor never ends is fenced, if the operator wants that: its pod is deleted, that very process and no other,
and the purge waits for its kubelet's word that it has ended. The busy node has a pod, the other has none."""

from collections.abc import Callable, Iterator
from typing import Any

import pytest
from harness import Lab, Pod, boot_ns, hold, wait_for
from harness.nameserver import Nameserver, let_agents_ask
from interleave.deeds import Killer
from jobs import PATIENCE, Jobs, Node, Pending, await_event, since
from kube import Kube, Open, supersede
from nodepods import HOST, KILL, NAME, Gate, Kubelet
from workerpods import prepare

TTL = 30
KILLS = {"killNodes": True, "killAfter": "3s"}


Make = Callable[..., "Scene"]


@pytest.fixture
def scene_of(kube: Open, lab: Lab, monkeypatch: pytest.MonkeyPatch) -> Iterator[Make]:
    names = Nameserver(lab.dir)
    monkeypatch.setenv("METASIM_NAMESERVER", names.address)

    def make(pods: int = 1, **recovery: Any) -> Scene:
        made = kube(pods=pods, ttl=TTL)
        let_agents_ask(made.pods, names, lab.dir, monkeypatch)
        return Scene(made, **recovery)

    yield make
    names.close()


class Scene:
    """A DROP is pending behind an actor that never ends, on the node whose pod `kubelet` has."""

    def __init__(self, made: Kube, **recovery: Any) -> None:
        self.kube = made
        self.api = self.kube.api
        prepare(self.api)
        self.jobs = Jobs(self.kube.cluster)
        self.jobs.configure("enforce", **recovery)
        for pod in self.kube.pods:
            pod.config["reconcile"] = {"mode": "off"}
        self.leader: Pod = self.jobs.start(1, mode="enforce")
        self.free = self.jobs.nodes[0]
        streams = len(self.leader.witness.events("stream_connected"))
        self.node: Node = self.jobs.add_node("c2", host=HOST)
        wait_for(
            "its stream",
            lambda: len(self.leader.witness.events("stream_connected")) > streams,
            PATIENCE,
        )
        self.kubelet = Kubelet(self.api, self.node)
        self.pending = self._make_pending()
        self.free_pid = self.free.pid

    def _make_pending(self) -> Pending:
        jobs, leader = self.jobs, self.leader
        kept = jobs.create(leader, "kept", 2)
        job = jobs.create(leader, "mv", 2)
        assert self.node.running(job), "both nodes have an actor"
        busy = self.node.make_busy(job)
        return Pending(jobs, leader, self.node, job, kept, busy, jobs.drop(leader, job))

    def recover(self) -> None:
        """… until the purge is refused and the node has an Init that it does not answer."""
        self.at = boot_ns()
        self.recovered = self.jobs.recover(self.leader)
        await_event(self.node.witness, "reset_begin", self.at)
        wait_for("a refusal", lambda: self.jobs.refusals(self.at), PATIENCE)

    def come_back(self) -> None:
        """The node's next process; from then on all is well."""
        self.pending.busy.release()
        self.node.start()
        self.recovered.succeeds()
        self.jobs.wait_reclaimed(self.pending.job)
        self.jobs.wait_works(self.pending.kept)
        assert self.free.pid == self.free_pid and not self.jobs.panics()

    def acknowledged(self) -> list[tuple[str, dict[str, Any]]]:
        """Of the node, in the newest recovery: how, and by what evidence."""
        return self.kube.cluster.postgres.sql(
            "SELECT how, evidence FROM metafence.acknowledgement WHERE host = %s AND port = %s"
            " AND how <> 'asked' AND recovery_id = (SELECT max(id) FROM metafence.recovery) ORDER BY at",
            HOST,
            self.node.port,
        )

    def wait_gone(self) -> dict[str, Any]:
        [(how, evidence)] = wait_for("it is acknowledged", self.acknowledged, PATIENCE)
        assert how == "gone"
        return evidence

    def wait_purged(self) -> dict[str, Any]:
        [purge] = wait_for("the purge passes", self.jobs.purges, PATIENCE)
        assert set(purge["table_ids"]) == set(self.pending.job.tables)
        return purge

    def told(self, reason: str, pod: Pod | None = None) -> list[str]:
        """Notes of events of that reason."""
        said = self.api.events_of((pod or self.leader).name)
        return [e["note"] for e in said if e["reason"] == reason]

    def kills(self, result: str) -> int:
        """Of the metric."""
        page = self.leader.probe("/metrics")[1]
        sample = f'metafence_recovery_compute_kills_total{{result="{result}"}} '
        [line] = [line for line in page.splitlines() if line.startswith(sample)]
        return int(line.removeprefix(sample))


def assert_nothing_is_purged(scene: Scene) -> None:
    assert not scene.jobs.purges() and not scene.acknowledged()


# --- GONE ---


def test_a_container_that_ends_and_is_started_again_is_gone(scene_of: Make) -> None:
    scene = scene_of()
    scene.recover()
    scene.kubelet.wait_looked(2)  # whole: the second was begun after the first
    scene.kubelet.restart_container()
    evidence = scene.wait_gone()
    assert evidence["by"] == "its pod" and "killed" not in evidence
    assert scene.wait_purged()["outcome"] == "acknowledged"
    assert not scene.api.deletes(NAME)
    assert wait_for("an event", lambda: scene.told("ComputeGone"), PATIENCE)
    scene.come_back()


def test_a_pod_that_is_only_forgotten_is_not_gone(scene_of: Make) -> None:
    """Deleted by force: the API knows it no more, and nobody has said that its process has ended. It has
    not."""
    scene = scene_of()
    scene.recover()
    scene.kubelet.wait_looked(2)
    scene.api.delete_pod(NAME)
    scene.kubelet.make_pod()  # one of the same name and address
    scene.kubelet.wait_looked(2)
    assert_nothing_is_purged(scene)
    assert scene.node.alive
    scene.pending.busy.release()
    scene.recovered.succeeds()
    scene.jobs.wait_reclaimed(scene.pending.job)


# --- the fence of a node ---


def test_an_actor_that_never_ends_costs_its_process(scene_of: Make) -> None:
    """Opted in: its pod is deleted, and the purge waits until its kubelet says that the container has ended;
    not before, and not for any longer."""
    scene = scene_of(maxHold="120s", **KILLS)
    resource_version = None
    scene.recover()
    [asked] = wait_for("its pod is deleted", lambda: scene.api.deletes(NAME), PATIENCE)[:1]
    with scene.api.lock:
        resource_version = scene.api.pods[NAME].body["metadata"]["resourceVersion"]
    wanted = asked.body["preconditions"]
    assert wanted["uid"] == scene.kubelet.uid and asked.body["gracePeriodSeconds"] == 1
    assert int(wanted["resourceVersion"]) <= int(resource_version)
    begun = await_event(scene.node.witness, "reset_begin", scene.at)
    assert asked.at_ns - begun.boot_ns >= 2_000_000_000, "before killAfter"
    scene.kubelet.wait_looked(2)
    assert_nothing_is_purged(scene)  # that the API has agreed is no end
    assert scene.node.alive and scene.jobs.status(scene.leader) == 2
    scene.kubelet.end_pod()
    assert scene.node.ended_by() == KILL
    evidence = scene.wait_gone()
    assert evidence["killed"] == scene.kubelet.uid
    assert scene.wait_purged()["outcome"] == "acknowledged"
    [note] = scene.told("ComputeKilled")
    assert f"{HOST}:{scene.node.port}" in note and scene.kubelet.uid in note and NAME in note
    told = [h["detail"] for h in (scene.leader.status() or {})["history"] if h["event"] == "recovery"]
    assert any(d.startswith("ComputeKilled") for d in told), told
    assert scene.kills("agreed") == 1 and scene.kills("confirmed") == 1
    scene.kubelet.make_pod()
    scene.come_back()
    assert not scene.api.deletes(NAME)[1:], "the next one is left alone"


def test_who_unregisters_at_term_is_waited_for(scene_of: Make) -> None:
    """A kubelet begins with SIGTERM, at which a compute node takes its row away, with its actors still there,
    and with its subscription: it would see what is removed now."""
    scene = scene_of(maxHold="120s", **KILLS)
    scene.recover()
    wait_for("its pod is deleted", lambda: scene.api.deletes(NAME), PATIENCE)
    scene.node.terminate()
    wait_for("its row is gone", lambda: scene.node.worker_id() is None, PATIENCE)
    refused = len(scene.jobs.refusals(scene.at))
    wait_for("it is refused again", lambda: len(scene.jobs.refusals(scene.at)) > refused + 1, PATIENCE)
    assert scene.node.alive and not scene.jobs.purges()
    assert not since(scene.node.witness, "version_removed", scene.at)
    scene.kubelet.end_pod()
    assert scene.node.ended_by() == KILL
    [purge] = wait_for("the purge passes", scene.jobs.purges, PATIENCE)
    assert purge["outcome"] == "acknowledged" and not purge["missing"]
    scene.kubelet.make_pod()
    scene.come_back()


def is_holding(recovery: dict[str, Any]) -> bool:
    """By its agent's status: the purge is refused, and it knows the nodes."""
    return bool(recovery["leading"] and recovery["open"] and len(recovery["nodes"]) == 2)


@pytest.mark.parametrize("when", ["before", "after"])
def test_an_agent_that_dies_with_a_kill_under_way(scene_of: Make, when: str) -> None:
    """It is on record that the node is being killed, and nobody knows whether the API has heard of it: it has
    not, or it has agreed. The next agent's gate waits for that node all the same, also without its row."""
    scene = scene_of(maxHold="120s", **KILLS)
    killer = Killer(scene.api, when == "before")
    scene.recover()
    wait_for("a delete is under way", lambda: killer.strike(scene.leader.kill_agent), PATIENCE)
    killer.end()
    on_record = "SELECT host, port FROM metafence.acknowledgement WHERE how = 'asked'"
    assert scene.kube.cluster.postgres.sql(on_record) == [(HOST, scene.node.port)]
    assert len(scene.api.deletes(NAME)) == 1
    scene.leader.start_agent()
    if when == "before":
        wait_for("the next one kills it", lambda: scene.api.deletes(NAME)[1:], PATIENCE)
    scene.leader.wait_status("it holds", lambda s: is_holding(s["recovery"]), PATIENCE)
    scene.kubelet.wait_looked(2)  # only by a look since then a process is known to be another one
    scene.node.terminate()
    wait_for("its row is gone", lambda: scene.node.worker_id() is None, PATIENCE)
    refused = len(scene.jobs.refusals(scene.at))
    wait_for("it is refused again", lambda: len(scene.jobs.refusals(scene.at)) > refused + 1, PATIENCE)
    assert_nothing_is_purged(scene)
    assert scene.node.alive
    scene.kubelet.end_pod()
    purge = scene.wait_purged()
    assert purge["outcome"] == "acknowledged" and not purge["missing"]
    scene.kubelet.make_pod()
    scene.come_back()


def test_without_the_opt_in_nobody_is_killed(scene_of: Make) -> None:
    scene = scene_of(maxHold="10s", initTimeout="3s", killAfter="3s")
    scene.recover()
    purge = scene.wait_purged()
    assert purge["outcome"] == "bound"
    assert purge["missing"] == f"{scene.node.worker_id()} {scene.node.address}"
    assert purge["term"] == scene.leader.status()["term"]["term"]  # type: ignore[index]
    assert not scene.api.deletes(NAME) and scene.node.alive
    scene.pending.busy.release()


def test_what_the_api_refuses_ends_at_the_bound(scene_of: Make) -> None:
    """… and is said: the right is missing, or a policy says no."""
    scene = scene_of(maxHold="20s", initTimeout="5s", **KILLS)
    scene.api.denied = lambda r: r.method == "DELETE" and r.pod == NAME
    scene.recover()
    purge = scene.wait_purged()
    assert purge["outcome"] == "bound" and purge["held_ms"] >= 20000
    [note] = scene.told("ComputeNotKilled")
    assert NAME in note and "forbidden" in note
    assert scene.kills("denied") >= 1 and scene.kills("agreed") == 0
    assert scene.node.alive and not scene.told("ComputeKilled")
    scene.pending.busy.release()


@pytest.mark.parametrize("method", ["GET", "DELETE"])
def test_a_newer_container_is_left_alone(scene_of: Make, method: str) -> None:
    """It takes the place of the one that was decided about before the look at its pod, or between the look
    and the delete: then the API itself sees the difference."""
    scene = scene_of(maxHold="120s", **KILLS)
    gate = Gate(scene.api, method)
    scene.recover()
    gate.wait()
    scene.kubelet.restart_container()
    gate.open()
    assert "killed" not in scene.wait_gone()
    assert scene.wait_purged()["outcome"] == "acknowledged"
    wait_for("it is counted", lambda: scene.kills("changed") == 1 or None, PATIENCE)
    done = [r for r in scene.api.deletes(NAME) if r.status != 409]
    assert not done and not scene.told("ComputeKilled") and scene.kills("agreed") == 0
    scene.come_back()


def test_who_has_lost_the_leadership_kills_nobody(scene_of: Make) -> None:
    """Between the decision and the act another takes the row: the pod is looked at, and left alone."""
    scene = scene_of(pods=2, maxHold="120s", killNodes=True, killAfter="20s", initTimeout="60s")
    gate = Gate(scene.api, "GET")
    scene.recover()
    gate.wait()
    supersede(scene.kube, scene.leader)
    scene.leader.wait_status("it leads no more", lambda s: not s["recovery"]["leading"], PATIENCE)
    gate.open()
    hold(3)
    assert not scene.api.deletes(NAME) and scene.node.alive
    assert not scene.told("ComputeKilled")
    scene.pending.busy.release()
