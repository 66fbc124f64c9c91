# SPDX-License-Identifier: Apache-2.0
"""Pods that come back, end in every way there is, or move the lease round the ring; what the API and the
status pages say meanwhile."""

import http.client
import json
import signal
import threading
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest
from harness import Cluster, Pod, boot_ns, hold, wait_for
from harness.fakeapi import OWN_KEY
from kube import AFTER_FAULT_S, Kube, Open
from scenario import Make

# --- replaced inside its lease ---


def test_leader_pod_replaced_inside_its_lease(kube: Open) -> None:
    """Killed with everything in it, and a new pod of the same name and id is there two seconds later, while
    the row still names it. Nobody is fenced for that; the new object is labelled leader only after its own
    process has renewed."""
    made = kube()
    old = made.start()
    old.kill()
    made.api.delete_pod(old.name)
    new = made.cluster.new_pod(f"{old.name}-again", advertise=old.id)
    new.name = old.name
    new.config |= {"podName": old.name, "kubernetes": old.config["kubernetes"]}
    made.api.add_pod(new.name, new.uid)
    made.cluster.pods[made.cluster.pods.index(old)] = new
    since = boot_ns()
    new.start()
    leader = made.cluster.wait_converged(6 * made.cluster.ttl)
    made.wait_labels(leader, AFTER_FAULT_S)
    assert made.kills() == 0
    assert new.incarnations == 1, "no fence loop against the new one"
    renewed = new.witness.events("renew")
    seen = [s for s in made.api.labels_seen(new.name, since) if s == "leader"]
    assert not seen or (renewed and leader is new), "labelled for what its predecessor was"


# --- every way to end ---


@dataclass(frozen=True)
class Exit:
    name: str
    do: Callable[[Kube, Pod], None]


def both_term(made: Kube, pod: Pod) -> None:
    """As the kubelet ends ordinary containers: all at once."""
    assert pod.agent is not None
    pod.agent.signal(signal.SIGTERM)
    pod.main.signal(signal.SIGTERM)


def moved(made: Kube, pod: Pod) -> None:
    other = next(p for p in made.pods if p is not pod)
    made.cluster.postgres.sql("UPDATE election_leader SET id = %s, last_heartbeat = now()", other.id)


EXITS = [
    Exit("meta-term", lambda made, pod: pod.signal_meta(signal.SIGTERM)),
    Exit("meta-kill", lambda made, pod: pod.signal_meta(signal.SIGKILL)),
    Exit("meta-abort", lambda made, pod: pod.signal_meta(signal.SIGABRT)),
    Exit("pod-term", lambda made, pod: pod.main.signal(signal.SIGTERM)),
    Exit("pod-term-all", both_term),
    Exit("fenced-by-hand", lambda made, pod: pod.cli("fence", "--reason", "test")),
    Exit("superseded", moved),
    Exit("postgres-cut", lambda made, pod: pod.proxy.order("mode stall")),
    Exit("pod-gone", lambda made, pod: pod.kill()),
]


@pytest.mark.parametrize("way", EXITS, ids=lambda e: e.name)
def test_no_way_to_end_keeps_the_label(kube: Open, way: Exit) -> None:
    """However leadership ends: `leader` is off that pod soon, and never on two that live."""
    made = kube()
    old = made.start()
    since, ttl = boot_ns(), made.cluster.ttl
    way.do(made, old)
    if way.name in ("meta-kill", "meta-abort"):
        # metafence-run ends as meta did; the kubelet starts the container again.
        assert old.main.wait(5) != 0
        hold(1)
        old.start(agent=False)
    leaves = way.name in ("pod-term", "pod-term-all", "pod-gone")

    def is_off() -> bool:
        return made.api.label(old.name, OWN_KEY) != "leader"

    # A meta whose process dies keeps its lease until it ends or is back; the label is off at its death.
    wait_for(f"{old.name} is not labelled leader", is_off, ttl + AFTER_FAULT_S)
    took = (boot_ns() - since) / 1e9
    print(f"label off after {took:.2f} s")
    if way.name not in ("pod-gone", "postgres-cut"):
        assert took < 5, f"{took:.1f} s"
    if way.name == "fenced-by-hand":
        assert old.cli("unfence").returncode == 0
    if leaves:
        made.pods.remove(old)
    old.proxy.heal()
    leader = made.cluster.wait_converged(6 * ttl)
    wanted = {p.name: "leader" if p is leader else "follower" for p in made.pods}
    wait_for(
        "labels come back right",
        lambda: {p.name: made.api.label(p.name, OWN_KEY) for p in made.pods} == wanted,
        AFTER_FAULT_S,
    )


@pytest.mark.parametrize("first", ["all-at-once", "agent-last"])
def test_who_gets_term_first(kube: Open, first: str) -> None:
    """Meta needs three seconds to end. As an ordinary container the agent is told at the same moment, as a
    native sidecar afterwards: it takes `leader` off at once, and its duty lasts as long as meta does."""
    made = kube(meta_flags=["--wrapper-shell"])
    old = made.start()
    assert old.agent is not None
    # The shell forwards nothing: meta lives until the kubelet's patience ends.
    old.main.signal(signal.SIGTERM)
    if first == "all-at-once":
        old.agent.signal(signal.SIGTERM)
    wait_for("label is off", lambda: made.api.label(old.name, OWN_KEY) != "leader", 5)

    def on_duty() -> None:
        assert old.agent is not None and (old.agent.alive or not old.meta_alive)

    hold(3, on_duty)
    for process in (old.main, old.agent):
        process.kill()
    wait_for("nothing of the pod is left", lambda: not old.meta_alive, 5)
    made.pods.remove(old)
    made.wait_labels(made.cluster.wait_converged(6 * made.cluster.ttl), AFTER_FAULT_S, keys=(OWN_KEY,))


# --- round the ring, with everybody asked ---


class Asker:
    """Asks every agent for its role, ten times a second, and keeps what contradicts itself."""

    def __init__(self, made: Cluster) -> None:
        self.made, self.asked, self.problems = made, 0, list[str]()
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run)

    def __enter__(self) -> "Asker":
        self._thread.start()
        return self

    def __exit__(self, *_: Any) -> None:
        self._stop.set()
        self._thread.join()

    def _run(self) -> None:
        while not self._stop.wait(0.1):
            said = {}
            for pod in self.made.pods:
                try:
                    code, body = pod.probe("/leader")
                except (OSError, http.client.HTTPException):
                    continue
                said[pod.name] = (code, body)
                self.asked += 1
                self._one(pod, code, body)

    def _one(self, pod: Pod, code: int, body: dict[str, Any]) -> None:
        told = f"{pod.name}: {code} {json.dumps(body)[:300]}"
        if (code == 200) != (body["role"] == "leader"):
            self.problems.append(f"code and role differ: {told}")
        if code == 200 and body["leader"] != pod.id:
            self.problems.append(f"leads, and names another: {told}")
        if code == 200 and (body["proof_age_ms"] is None or body["proof_age_ms"] > 1000 * self.made.ttl):
            self.problems.append(f"leads without proof: {told}")


@pytest.mark.long
def test_round_the_ring(cluster: Make, pytestconfig: pytest.Config) -> None:
    """Leadership is moved again and again, and Postgres is gone for two seconds each time. Every old leader
    is killed, the first time as the tenth; all keep up; no status page contradicts itself."""
    made = cluster(ttl=5, run_flags=["--max-kills=10"])
    leader = made.start()
    moves = 20 if pytestconfig.getoption("--full") else 10
    with Asker(made) as asker:
        for n in range(moves):
            at = made.pods.index(leader)
            heir = made.pods[(at + 1) % len(made.pods)]
            pid = leader.meta_pid
            kills = leader.kills()
            leader.signal_meta(signal.SIGSTOP)  # else it may see the row first, and leave by itself
            made.postgres.sql("UPDATE election_leader SET id = %s, last_heartbeat = now()", heir.id)
            old = leader
            wait_for(
                f"move {n}: the old leader is dead",
                lambda o=old, p=pid: o.meta_pid != p or not o.meta_alive,
                3,
            )
            wait_for(f"move {n}: the kill is noted", lambda o=old, k=kills: o.kills() == k + 1, 2)
            for pod in made.pods:
                pod.proxy.order("mode stall")
            hold(2)
            for pod in made.pods:
                pod.proxy.heal()
            leader = made.wait_converged(6 * made.ttl)
    assert asker.asked > 10 * moves
    assert asker.problems == [], asker.problems[:5]
    # The others go away one by one: the last survivor leads.
    for pod in [p for p in made.pods if p is not leader]:
        pod.kill()
        made.pods.remove(pod)
    assert made.wait_converged(3 * made.ttl) is leader
    assert made.witness().raw["unknown_ticks"] == 0
