# SPDX-License-Identifier: Apache-2.0
"""A purge that is held until its bound, because one compute node can't reset: what an operator sees of it in
a real Prometheus, with the rules and panels of the chart."""

from harness import Cluster, Lab, boot_ns, wait_for
from jobs import PATIENCE, Call, Jobs, Pending, make_pending
from promserver import NAMESPACE, Prometheus, panels
from scenario import Make
from test_rw27111 import guarded, wait_refused


def best(server: Prometheus, query: str) -> float:
    """The highest value of the last ten minutes; 0 without data."""
    found = (server.ask("query", query=f"max(max_over_time(({query})[10m:1s]))") or {"result": []})["result"]
    return float(found[0]["value"][1]) if found else 0


def watched(lab: Lab, made: Cluster) -> Prometheus:
    server = Prometheus(lab, made.pods)
    scraped = f'count(metafence_recovery_step{{namespace="{NAMESPACE}"}})'
    wait_for("the agents are scraped", lambda: server.holds(scraped), 60)
    return server


def wait_fires(server: Prometheus, name: str) -> None:
    fires = f'ALERTS{{alertname="{name}",alertstate="firing"}}'
    wait_for(f"{name} fires", lambda: best(server, fires) == 1, 3 * PATIENCE)


def hold_purge(cluster: Make, lab: Lab, max_hold: str) -> tuple[Jobs, Prometheus, Pending, int, Call]:
    """A recovery with a drop pending and a node that can't reset, watched: since when, and its RPC."""
    jobs, leader = guarded(cluster, maxHold=max_hold, initTimeout="3s")
    server = watched(lab, jobs.cluster)
    pending = make_pending(jobs, leader)
    at = boot_ns()
    return jobs, server, pending, at, jobs.recover(leader)


def test_a_purge_that_is_held_is_an_alert(cluster: Make, lab: Lab) -> None:
    """It is held for as long as it takes until that is seen."""
    jobs, server, p, at, recovered = hold_purge(cluster, lab, "30m")
    wait_refused(jobs, at)
    wait_fires(server, "MetafencePurgeHeld")
    wait_fires(server, "MetafenceResetsFailing")
    least = {
        "Compute nodes that a held purge waits for": 1,
        "Dropped and not reclaimed, age of the oldest": 10,
        "Resets of compute nodes": 1,
    }
    shown = {panel["title"]: query for panel, query in panels()}
    for title, value in least.items():
        wait_for(f"panel {title}", lambda q=shown[title], v=value: best(server, q) >= v, PATIENCE)
    assert best(server, "metafence_recovery_unproven_total") == 0
    p.busy.release()
    recovered.succeeds()


def test_a_hold_without_proof_is_an_alert(cluster: Make, lab: Lab) -> None:
    jobs, server, p, at, recovered = hold_purge(cluster, lab, "8s")
    wait_for("the purge passes at its bound", lambda: jobs.removals(at, "purge"), PATIENCE)
    wait_fires(server, "MetafencePurgeUnproven")
    p.busy.release()
    recovered.succeeds()
