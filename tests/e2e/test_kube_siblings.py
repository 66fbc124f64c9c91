# SPDX-License-Identifier: Apache-2.0
"""E01: a node is gone with its leader, and nobody there can take the label off. The new leader's agent
does: from pods of its own StatefulSet, and from no other."""

from harness import boot_ns, wait_for
from harness.fakeapi import OWN_KEY, ROLE_KEY
from kube import AFTER_FAULT_S, Open


def test_dead_leader_is_relabelled(kube: Open) -> None:
    made = kube()
    old = made.start()
    # Not ours to touch: another StatefulSet's, and one without a controller.
    for name in ("stranger-0", "stranger-1"):
        made.api.add_pod(name, owner="another-sts")
        made.api.set_label(name, OWN_KEY, "leader", manager="metafence")
    with made.api.lock:
        made.api.pods["stranger-1"].body["metadata"].pop("ownerReferences")
        made.api.touch("stranger-1")
    old.kill()
    leader = made.cluster.wait_new_leader(old, 20)
    won = boot_ns()
    made.wait_label(leader, "leader", AFTER_FAULT_S)
    made.wait_label(old, "unknown", AFTER_FAULT_S)
    made.wait_label(old, "unknown", AFTER_FAULT_S, key=ROLE_KEY)
    assert (boot_ns() - won) / 1e9 < AFTER_FAULT_S
    [patch] = made.api.label_patches(old.name, won - int(5e9))
    assert patch.body["metadata"]["uid"] == old.uid
    for name in ("stranger-0", "stranger-1"):
        assert made.api.label(name) == "leader"
        assert made.api.label_patches(name) == []
    leader.agent_log.expect(5, msg="cleared the leader label of a sibling", pod=old.name)
    wait_for(
        "an event tells it",
        lambda: [e for e in made.api.events_of(leader.name) if old.name in e["note"]],
        10,
    )


def test_dead_leader_while_the_api_is_away(kube: Open) -> None:
    """The takeover happens without the API; its return brings the truth."""
    made = kube()
    old = made.start()
    made.api.break_by("down")
    old.kill()
    leader = made.cluster.wait_new_leader(old, 20)
    made.api.heal()
    made.wait_label(leader, "leader", AFTER_FAULT_S)
    made.wait_label(old, "unknown", AFTER_FAULT_S)


def test_second_key_is_denied(kube: Open) -> None:
    """A role for our own key alone, as somebody wrote it by hand: that one tells the truth all the same."""
    made = kube()
    made.api.denied = lambda r: r.method == "PATCH" and ROLE_KEY in r.body["metadata"].get("labels", {})
    old = made.cluster.start()
    made.wait_label(old, "leader", AFTER_FAULT_S)
    old.kill()
    leader = made.cluster.wait_new_leader(old, 20)
    made.wait_label(leader, "leader", AFTER_FAULT_S)
    made.wait_label(old, "unknown", AFTER_FAULT_S)


def test_observed_since_it_was_cut_off(kube: Open) -> None:
    """The second key is the labeler's by now, but what a dead pod shows in it is what we left there: nobody
    takes a key off another's pod, and `leader` is not left standing."""
    made = kube()
    old = made.start()
    for pod in made.pods[1:]:
        pod.config["kubernetes"]["onConflict"] = "observe"
        pod.kill_agent()
        pod.start_agent()
        pod.wait_status("is back", lambda s: s["armed"] and s["fence"]["connected"], 10)
    old.kill()
    made.cluster.wait_new_leader(old, 20)
    made.wait_label(old, "unknown", AFTER_FAULT_S)
    made.wait_label(old, "unknown", AFTER_FAULT_S, key=ROLE_KEY)
    assert made.api.labels_seen(old.name, key=ROLE_KEY)[-2:] == ["leader", "unknown"]


def test_the_next_pod_of_that_name_is_not_meant(kube: Open) -> None:
    """Between the list and the patch the dead pod is replaced: the uid protects the new one."""
    made = kube()
    old = made.start()
    old.kill()
    made.api.hold_patches()
    made.cluster.wait_new_leader(old, 20)
    wait_for("the patch of the sibling is under way", lambda: made.api.label_patches(old.name), 10)
    made.api.delete_pod(old.name)
    made.api.add_pod(old.name, uid="00000000-aaaa-bbbb-cccc-000000000000")
    made.api.set_label(old.name, OWN_KEY, "follower", manager="metafence")
    made.api.stop_holding()
    made.api.release_patches()
    made.wait_label(old, "follower", 1)
    wait_for("labels are right", lambda: made.api.label(old.name) == "follower", 5)
