# SPDX-License-Identifier: Apache-2.0
"""`metafence recover` and `metafence handover`: they wait, bounded, for what is dropped and being created,
say for what, and go on in the safe order. A fence never waits."""

import json
import signal
from collections.abc import Callable

from harness import Cluster, Pod, boot_ns, wait_for
from jobs import PATIENCE, Jobs, Order, await_event, make_pending, paused, since

Make = Callable[..., Cluster]
LONG = ("--timeout", f"{PATIENCE}s")


def made(cluster: Make, pods: int = 1, ttl: int = 30, nodes: int = 2) -> tuple[Jobs, Pod]:
    jobs = Jobs(cluster(pods=pods, ttl=ttl))
    short = {"resetBeforeStart": "4s", "initTimeout": "3s"} if ttl < 30 else {}
    jobs.configure("enforce", **short)
    return jobs, jobs.start(nodes, mode="enforce")


def wait_said(order: Order, *parts: str) -> str:
    def line() -> str | None:
        return next((x for x in order.said().splitlines() if all(p in x for p in parts)), None)

    return wait_for(f"it says {parts}", line, PATIENCE)


def test_recover_waits_for_a_drop_and_says_for_which(cluster: Make) -> None:
    """The DROP ends by itself, so the recovery has nothing to purge."""
    jobs, leader = made(cluster)
    p = make_pending(jobs, leader)
    at = boot_ns()
    order = jobs.order(leader, "recover", "--reason", "test", *LONG)
    line = wait_said(order, "DRAIN: waits for dropped jobs", f"mv (job {p.job.id}, ")
    assert "kept" not in line
    status = leader.status()
    assert status is not None and status["request"]["reason"] == "test" and not status["request"]["result"]
    second = leader.cli("handover")
    assert second.returncode == 1 and "recover is under way" in second.stderr, second
    assert not since(leader.witness, "recovery_start", at)
    p.busy.release()
    p.dropped.succeeds()
    order.succeeds()
    assert order.said().splitlines()[-1].startswith("recovered"), order.said()
    assert [e.fields["by"] for e in jobs.removals(at)] == ["drop"]
    assert since(leader.witness, "recovery_done", at)
    jobs.wait_works(p.kept)
    request = leader.wait_status("done", lambda s: s["request"]["result"] == "done", 5)["request"]
    assert not request["gave_up_waiting"] and not jobs.panics()


def test_recover_waits_for_a_job_that_is_created(cluster: Make) -> None:
    jobs, leader = made(cluster, nodes=1)
    at = boot_ns()
    with paused(jobs.point(leader, "create-backfill")):
        created = jobs.later(leader, "create", "slow", "1")
        begun = await_event(leader.witness, "paused", at, at="create-backfill")
        order = jobs.order(leader, "recover", *LONG)
        wait_said(order, "being created", f"slow (job {begun.fields['job']}, ")
        assert not since(leader.witness, "recovery_start", at)
    created.succeeds()
    order.succeeds()
    assert not since(leader.witness, "dirty_cleaned", at)


def test_recover_goes_on_at_the_end_of_its_wait(cluster: Make) -> None:
    """A barrier that is stuck would be waited for for ever: what is left goes the way of the gate."""
    jobs, leader = made(cluster)
    p = make_pending(jobs, leader)
    at = boot_ns()
    short = leader.cli("recover", "--wait", "1s", "--timeout", "3s", timeout=60)
    assert short.returncode == 3 and "ordered, but not confirmed" in short.stderr, short
    assert f"not waited for: dropped: mv (job {p.job.id}, " in short.stdout, short.stdout
    await_event(p.node.witness, "reset_begin", at)
    wait_for("the purge is refused", lambda: jobs.refusals(at), PATIENCE)
    assert not jobs.removals(at)
    p.busy.release()
    done = leader.wait_status("done", lambda s: s["request"]["result"], PATIENCE)["request"]
    assert done["result"] == "done" and done["gave_up_waiting"], done
    assert [e.fields["by"] for e in jobs.removals(at)] == ["purge"]
    jobs.wait_works(p.kept)
    assert not jobs.panics()


def test_handover_moves_leadership_with_the_nodes_reset_before(cluster: Make) -> None:
    jobs, leader = made(cluster, pods=2, ttl=10)
    kept = jobs.create(leader, "kept", 2)
    other = next(pod for pod in jobs.cluster.pods if pod is not leader)
    term, at = leader.status()["term"]["term"], boot_ns()  # type: ignore[index]
    done = leader.cli("handover", "--reason", "test", "-o", "json", *LONG, timeout=2 * PATIENCE)
    assert done.returncode == 0, done
    said = json.loads(done.stdout)
    assert said["confirmed"] and (said["command"], said["result"]) == ("handover", "done")
    assert "ADMIT: waits for another leader" in done.stderr, done.stderr
    jobs.cluster.wait_converged(PATIENCE)
    assert other.acts_as_leader and leader.is_follower
    assert other.status()["term"]["term"] > term  # type: ignore[index]
    death = leader.shim_status()["last_death"]
    assert death["reason"] == "Handover" and leader.shim_status()["kills"] == 0, "no storm"
    elected = since(other.witness, "elected", at)[0]
    for node in jobs.nodes:
        resets = node.resets(at)
        assert resets and resets[0].boot_ns < elected.boot_ns, f"{node.name} has reset before"
    jobs.wait_works(kept)
    assert not jobs.panics()


def test_what_is_refused(cluster: Make) -> None:
    jobs, leader = made(cluster, pods=2, ttl=10, nodes=0)
    other = next(pod for pod in jobs.cluster.pods if pod is not leader)

    def refused(pod: Pod, *words: str, status: int = 1) -> str:
        done = pod.cli(*words)
        assert done.returncode == status, done
        return done.stderr

    for verb in ("recover", "handover"):
        assert leader.id in refused(other, verb), "it names the leader"
        assert "from 0s to 1h" in refused(leader, verb, "--wait", "2h", status=2)
        dry = leader.cli(verb, "--dry-run")
        assert dry.returncode == 0 and "would wait for nothing" in dry.stdout, dry
    leader.cli("pause", "--for", "1m", "--reason", "test")
    leader.wait_status("paused", lambda s: s["rule"] == "Paused", 10)
    assert "resume first" in refused(leader, "handover")
    leader.cli("resume")
    other.term()
    jobs.cluster.postgres.sql("DELETE FROM election_member WHERE id = %s", other.id)
    leader.wait_status("alone", lambda s: s["members"] == 1 and s["rule"] == "Leader", 20)
    assert "no other meta" in refused(leader, "handover")
    assert leader.status()["request"] is None and leader.incarnations == 1  # type: ignore[index]


def test_ordered_recovery_is_off(cluster: Make) -> None:
    jobs = Jobs(cluster(pods=1, ttl=10))
    jobs.configure("off")
    leader = jobs.start(0, mode="off")
    for verb in ("recover", "handover"):
        done = leader.cli(verb)
        assert done.returncode == 1 and "recovery.mode is off" in done.stderr, done


def test_leadership_lost_while_it_waits(cluster: Make) -> None:
    """Nothing of it was begun, so nothing is to be confirmed."""
    jobs, leader = made(cluster, pods=2, ttl=10)
    p = make_pending(jobs, leader)
    order = jobs.order(leader, "recover", *LONG)
    wait_said(order, "DRAIN")
    leader.signal_meta(signal.SIGTERM)
    status, said = order.wait()
    p.busy.release()
    assert status == 1 and "leadership was lost while it waited" in said, said
    jobs.cluster.wait_converged(PATIENCE)
    jobs.wait_reclaimed(p.job)
    assert not jobs.panics()


def test_an_agent_that_restarts_forgets_the_order(cluster: Make) -> None:
    """It says so, and the recovery that was not begun is not begun later."""
    jobs, leader = made(cluster)
    p = make_pending(jobs, leader)
    at = boot_ns()
    order = jobs.order(leader, "recover", *LONG)
    wait_said(order, "DRAIN: waits for dropped jobs")
    leader.kill_agent()
    leader.start_agent()
    status, said = order.wait()
    assert status == 3 and "does not know the order any more" in said, said
    p.busy.release()
    p.dropped.succeeds()
    leader.wait_status("it leads", lambda s: s["role"] == "leader" and s["request"] is None, PATIENCE)
    assert not since(leader.witness, "recovery_start", at) and leader.incarnations == 1


def test_a_fence_never_waits(cluster: Make) -> None:
    jobs, leader = made(cluster, pods=2, ttl=10)
    p = make_pending(jobs, leader)
    at = boot_ns()
    done = leader.cli("fence", "--reason", "test", "--timeout", "30s", timeout=60)
    assert done.returncode == 0, done
    assert not jobs.removals(at) and p.node.running(p.job), "dead, and the DROP is as pending as before"
    other = jobs.cluster.wait_new_leader(leader, 2 * PATIENCE)
    wait_for("reset, or refused", lambda: p.node.resets(at) or jobs.refusals(at), PATIENCE)
    p.busy.release()
    jobs.wait_reclaimed(p.job)
    assert not jobs.panics() and other.acts_as_leader
