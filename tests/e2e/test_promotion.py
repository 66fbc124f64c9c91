# SPDX-License-Identifier: Apache-2.0
"""Between the win and the open leader ports.

A promoting meta works on metadata long before its leader ports open and doesn't look at lost leadership
until its init ends; and a meta that missed the edge of its win renews the row for ever without leading.
"""

from harness import boot_ns, wait_for
from scenario import Case, Fault, Make, judge


def test_lease_lost_during_a_long_init(cluster: Make) -> None:
    """The link is cut while the leader still initializes: it is dead in time, although it never opened
    a leader port."""
    made = cluster(ttl=5, meta_flags=["--init=20s"])
    made.install_sql()
    old = made.pods[0].start()
    wait_for("the first meta initializes", lambda: old.witness.events("init_begin"), 10)
    old.wait_status("promoting is seen", lambda s: s["rule"] == "Promoting" and s["engaged"], 5)
    for pod in made.pods[1:]:
        pod.start()
    pid = old.meta_pid
    wait_for("the others follow", lambda: all(p.is_follower for p in made.pods[1:]), 10)
    fault = Fault.begins(made.ttl)
    old.proxy.order("mode stall")
    wait_for("another owns the row", lambda: made.owner() not in (None, old), made.ttl + 3)
    assert old.meta_pid != pid or not old.meta_alive
    assert not [e for e in old.witness.events("leader_up") if e.pid == pid]
    fault.wait_end()
    old.proxy.heal()
    made.wait_converged(25 + 2 * made.ttl)
    judge("b3 during init", made, Case(5, True, 0))


def test_phantom_leader_is_replaced(cluster: Make) -> None:
    """It owns the row and answers as a follower. After phantomAfter it is killed, its row deleted, and a
    meta that really leads takes over."""
    made = cluster(ttl=5)
    made.install_sql()
    phantom = made.pods[0]
    phantom.config["timing"]["phantomAfter"] = "8s"
    phantom.meta_flags = ["--phantom"]
    phantom.start()
    wait_for("the phantom owns the row", lambda: made.owner() is phantom, 10)
    since = boot_ns()
    for pod in made.pods[1:]:
        pod.start()
    wait_for("a real leader", lambda: any(p.acts_as_leader for p in made.pods[1:]), 30)
    assert boot_ns() - since > 7e9, "it was not watched for phantomAfter"
    assert phantom.shim_status()["last_death"]["reason"] == "PhantomLeader"
    wait_for("the phantom's pod follows", lambda: phantom.is_follower, 2 * made.ttl)
    assert made.owner() is not phantom
