# SPDX-License-Identifier: Apache-2.0
"""Rows of workers whose pods are gone: removed by the leader under an intent or by the next takeover, and
only when that is proven."""

from typing import Any

import pytest
from computes import aborts, deeds
from harness import Pod, hold, wait_for
from kube import Kube
from workerpods import PORT, Open, add_worker_pod, end_pod, pod_of, prepared, report, rows, wait_judged


def made(
    kube: Open, workers: int, pods: int = 1, ttl: int = 10, **reconcile: Any
) -> tuple[Kube, Pod, dict[str, int]]:
    """A leader that has loaded all rows under the guard; each has its pod."""
    hosts = [f"10.9.8.{n + 1}" for n in range(workers)]
    k, ids = prepared(kube, hosts, pods=pods, ttl=ttl, reconcile=reconcile)
    leader = k.cluster.start()
    wait_judged(leader)
    return k, leader, ids


def reasons(leader: Pod) -> set[str]:
    return {r["reason"] for r in report(leader, "--dry-run")[1]["rows"]}


def test_a_dead_worker_is_removed_by_its_leader(kube: Open) -> None:
    k, leader, ids = made(kube, 3)
    before = leader.incarnations
    end_pod(k.api, pod_of("10.9.8.2"))
    wait_for("its row is gone", lambda: "10.9.8.2" not in rows(k.cluster), 40)
    assert rows(k.cluster) == {"10.9.8.1", "10.9.8.3"}
    wait_for("it is recorded", lambda: deeds(k.cluster, "delete"), 10)
    action, worker_id, _, outcome = deeds(k.cluster, "delete")[0]
    assert (action, worker_id, outcome) == ("delete", ids["10.9.8.2"], "ok")
    wait_for(
        "the intent is withdrawn",
        lambda: not k.cluster.postgres.sql("SELECT worker_id FROM metafence.intent"),
        10,
    )
    status, seen = report(leader)
    assert status == 0 and {r["verdict"] for r in seen["rows"]} == {"LIVE"}
    assert leader.incarnations == before and not aborts(k.cluster)


def test_a_dry_run_and_a_follower(kube: Open) -> None:
    """It says what it would do, and does nothing; the agent of a follower says whom to ask."""
    k, leader, ids = made(kube, 2, pods=2, mode="observe")
    end_pod(k.api, pod_of("10.9.8.1"))

    def would() -> Any:
        status, seen = report(leader, "--dry-run")
        assert status == 0 and seen["dry"]
        return seen if seen["actions"] else None

    seen = wait_for("it would remove the row", would, 40, every=0.5)
    assert {(a["id"], a["result"]) for a in seen["actions"]} == {(ids["10.9.8.1"], "would")}
    row = next(r for r in seen["rows"] if r["host"] == "10.9.8.1")
    assert (row["verdict"], row["proof"]) == ("GONE", row["reason"])
    assert len(rows(k.cluster)) == 2 and not deeds(k.cluster)
    table = leader.cli("reconcile", "--dry-run", "--socket", str(leader.dir / "agent.sock"))
    assert "10.9.8.1:4567" in table.stdout and "GONE" in table.stdout
    follower = next(p for p in k.pods if p is not leader)
    refused = follower.cli("reconcile", "--socket", str(follower.dir / "agent.sock"))
    assert refused.returncode == 1 and leader.id in refused.stderr
    for pod, said in ((leader, "1 live, 1 gone, 0 unknown"), (follower, "beside the leader alone")):
        assert said in pod.cli("status").stdout


@pytest.mark.parametrize("fault", ["down", "500", "garbage", "half"])
def test_an_api_that_fails_removes_nobody(kube: Open, fault: str) -> None:
    k, leader, _ = made(kube, 3)
    before = rows(k.cluster)
    k.api.break_by(fault)
    end_pod(k.api, pod_of("10.9.8.1"))
    leader.wait_status("rounds fail", lambda s: s["workers"]["error"], 30)
    hold(5)
    assert rows(k.cluster) == before and not deeds(k.cluster)
    status, seen = report(leader, "--dry-run")
    assert status == 3 and seen["incomplete"]
    assert {r["verdict"] for r in seen["rows"]} == {"UNKNOWN"}
    k.api.heal()
    leader.wait_status("rounds work", lambda s: not s["workers"]["error"], 40)


@pytest.mark.parametrize("rest", ["410", "garbage"])
def test_a_list_cut_off_half_way_removes_nobody(kube: Open, rest: str) -> None:
    """One has ended, and its watch says so; but nobody knows who else is in the list."""
    k, leader, _ = made(kube, 3)
    k.api.page, k.api.rest = 2, rest
    failed = leader.status()["workers"]["failures"]  # type: ignore[index]
    end_pod(k.api, pod_of("10.9.8.1"))
    add_worker_pod(k.api, pod_of("10.9.8.4"), "10.9.8.4")
    leader.wait_status("rounds fail", lambda s: s["workers"]["failures"] >= failed + 4, 60)
    assert len(rows(k.cluster)) == 3 and not deeds(k.cluster)
    status, seen = report(leader, "--dry-run")
    assert status == 3 and seen["incomplete"].startswith("pods")
    assert {r["verdict"] for r in seen["rows"]} == {"UNKNOWN"}
    k.api.page = 0
    wait_for("with a whole list it goes", lambda: "10.9.8.1" not in rows(k.cluster), 60)
    assert len(rows(k.cluster)) == 2


@pytest.mark.parametrize("gone", [3, 5], ids=["60 %", "all"])
def test_pods_that_are_not_listed_any_more_remove_nobody(kube: Open, gone: int) -> None:
    """Three of five, or all, vanish at once, without an end of theirs."""
    k, leader, _ = made(kube, 5)
    hosts = sorted(rows(k.cluster))
    with k.api.lock:
        for host in hosts[:gone]:
            k.api.delete_pod(pod_of(host))
    wait_judged(leader, 8)
    _, seen = report(leader, "--dry-run")
    reasons = [(r["verdict"], r["reason"]) for r in seen["rows"]]
    assert reasons[:gone] == [("UNKNOWN", "ForceDeleted" if gone < 5 else "NoPods")] * gone
    assert len(rows(k.cluster)) == 5 and not deeds(k.cluster)


def test_a_stale_cache_removes_nobody(kube: Open) -> None:
    """A worker's pod is replaced by one with its address, which registers; a server that has stood still
    shows the former one, ended, to whoever is content with its cache, and its watches say nothing."""
    k, leader, ids = made(kube, 2, confirmAfter="4s")
    host, sql = "10.9.8.1", k.cluster.postgres.sql
    with k.api.lock:
        k.api.be_deaf(True)
        end_pod(k.api, pod_of(host), stays=True)
        k.api.stand_still()
        k.api.delete_pod(pod_of(host))
        add_worker_pod(k.api, "its-successor", host)
    sql("UPDATE worker_property SET is_unschedulable = false WHERE worker_id = %s", ids[host])
    wait_judged(leader, 8)
    _, seen = report(leader, "--dry-run")
    assert {r["reason"] for r in seen["rows"]} == {"PodRuns"}
    assert len(rows(k.cluster)) == 2 and not deeds(k.cluster)


def test_an_address_that_was_given_away(kube: Open) -> None:
    """To a stranger with that port, to a worker of ours, to somebody who can't be the row's worker. Of the
    last alone it is sure that the row is nobody's, and only where its own pod has ended."""
    k, leader, ids = made(kube, 6, maxPercent=100)
    forced, stranger, heir, foreign, unseen = (f"10.9.8.{n}" for n in range(1, 6))
    with k.api.lock:
        for host in (forced, unseen):
            k.api.delete_pod(pod_of(host))
        for host in (stranger, heir, foreign):
            end_pod(k.api, pod_of(host))
        add_worker_pod(k.api, "heir", heir)
        for name, host, port in (
            ("a", forced, PORT),
            ("b", stranger, PORT),
            ("c", foreign, 80),
            ("d", unseen, 80),
        ):
            add_worker_pod(k.api, name, host, owner="Job", port=port)
    wait_for("one row is removed", lambda: foreign not in rows(k.cluster), 60)
    wait_judged(leader, 4)
    _, seen = report(leader, "--dry-run")
    assert {r["host"]: (r["verdict"], r["reason"]) for r in seen["rows"]} == {
        forced: ("UNKNOWN", "ForceDeleted"),
        stranger: ("UNKNOWN", "Stranger"),
        heir: ("LIVE", "PodRuns"),
        unseen: ("UNKNOWN", "ForceDeleted"),
        "10.9.8.6": ("LIVE", "PodRuns"),
    }
    assert {d[1] for d in deeds(k.cluster)} == {ids[foreign]}


@pytest.mark.parametrize("begun", [False, True], ids=["no", "begun"])
def test_d15_member_and_database_fail_together(kube: Open, begun: bool) -> None:
    """Nothing else happens afterwards: the next passes remove the row, confirmed by what they see, not by
    what was seen before the outage."""
    confirm_s = 4
    k, leader, ids = made(kube, 2, ttl=30, confirmAfter=f"{confirm_s}s")
    postgres, pid = k.cluster.postgres, leader.meta_pid
    end_pod(k.api, pod_of("10.9.8.1"))
    if begun:
        wait_for("it is proven once", lambda: "Unconfirmed" in reasons(leader), 30)
    postgres.stop("immediate")
    leader.wait_status("rounds fail", lambda s: s["workers"]["error"], 30)
    hold(confirm_s)
    postgres.start()
    back = postgres.sql("SELECT clock_timestamp()")[0][0]
    wait_for("its row is gone", lambda: rows(k.cluster) == {"10.9.8.2"}, 60)
    wait_for("it is recorded", lambda: deeds(k.cluster, "delete"), 10)
    [(asked,)] = postgres.sql("SELECT at FROM metafence.reconcile WHERE action = 'bury'")
    assert (asked - back).total_seconds() >= confirm_s
    assert [d[1] for d in deeds(k.cluster, "delete")] == [ids["10.9.8.1"]]
    assert leader.meta_pid == pid and not aborts(k.cluster)


def test_many_at_once_meet_the_brake(kube: Open) -> None:
    """60 % of the pods have ended, and are proven to: one row goes at a time, and the brake says so."""
    k, leader, _ = made(kube, 5, confirmAfter="4s")
    for n in range(1, 4):
        end_pod(k.api, pod_of(f"10.9.8.{n}"))
    held = leader.wait_status("the brake holds", lambda s: s["workers"]["held"] >= 2, 40)
    assert held["workers"]["held"] == 2
    assert len(rows(k.cluster)) >= 4
    leader.agent_log.expect(10, msg="the brake holds")
    status, _ = report(leader, "--dry-run")
    assert status == 3
