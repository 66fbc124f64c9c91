# SPDX-License-Identifier: Apache-2.0
"""A purge that is held until its bound, because one compute node can't reset: what an operator sees of it in
a real Prometheus, with the rules and panels of the chart."""

from harness import Cluster, Lab, boot_ns, wait_for
from jobs import PATIENCE, make_pending
from promserver import NAMESPACE, Prometheus, panels
from scenario import Make
from test_rw27111 import guarded, wait_refused

ALERTS = ["MetafencePurgeHeld", "MetafencePurgeUnproven", "MetafenceResetsFailing"]


def best(server: Prometheus, query: str) -> float:
    """The highest value of the last five minutes; 0 without data."""
    found = (server.ask("query", query=f"max(max_over_time(({query})[5m:1s]))") or {"result": []})["result"]
    return float(found[0]["value"][1]) if found else 0


def test_a_hold_without_proof_is_an_alert(cluster: Make, lab: Lab) -> None:
    jobs, leader = guarded(cluster, maxHold="30s", initTimeout="3s")
    made: Cluster = jobs.cluster
    server = Prometheus(lab, made.pods)
    scraped = f'count(metafence_recovery_step{{namespace="{NAMESPACE}"}})'
    wait_for("the agents are scraped", lambda: server.holds(scraped), 60)
    assert best(server, "metafence_recovery_not_enforced") == 0
    p = make_pending(jobs, leader)
    at = boot_ns()
    recovered = jobs.recover(leader)
    wait_refused(jobs, at)
    wait_for("the purge passes at its bound", lambda: jobs.removals(at, "purge"), PATIENCE)
    wait_for("that is scraped", lambda: best(server, "metafence_recovery_unproven_total") == 1, 60)
    for name in ALERTS:
        raised = f'ALERTS{{alertname="{name}"}}'
        wait_for(f"{name} is raised", lambda q=raised: best(server, q) == 1, 60)
    # What the panels have shown meanwhile.
    shown = {panel["title"]: best(server, query) for panel, query in panels()}
    assert shown["Compute nodes that a held purge waits for"] == 1, shown
    assert shown["Dropped and not reclaimed, age of the oldest"] >= 5, shown
    assert shown["Resets of compute nodes"] > 0, shown
    p.busy.release()
    recovered.succeeds()
