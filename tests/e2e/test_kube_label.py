# SPDX-License-Identifier: Apache-2.0
"""The role label follows the role: one patch and one event for each change, the newest value wins,
nothing is fought over, and another pod of our name is never written to."""

import json
import threading

import pytest
from harness import boot_ns, hold, wait_for
from harness.fakeapi import OWN_KEY, ROLE_KEY, Request
from kube import AFTER_FAULT_S, PATCH_S, Open, supersede


@pytest.mark.smoke
def test_leader_unknown_follower(kube: Open) -> None:
    made = kube()
    old = made.start()
    since = boot_ns()
    supersede(made, old)
    wait_for("the old leader was killed", lambda: old.kills() == 1, 5)
    leader = made.cluster.wait_converged(20)
    made.wait_labels(leader, PATCH_S)
    for key in (OWN_KEY, ROLE_KEY):
        assert made.api.labels_seen(old.name, since, key)[:2] == ["unknown", "follower"]
    wait_for("the events are there", lambda: len(made.api.events_of(leader.name, since)) > 1, 5)
    # One patch and one event for each change of the role, of every pod.
    for pod in made.pods:
        values = made.api.labels_seen(pod.name, since)
        patches = made.api.label_patches(pod.name, since)
        assert len(patches) == len(values), (pod.name, values, patches)
        events = [
            e
            for e in made.api.events_of(pod.name, since)
            if e["action"] in ("ChangedRole", "KilledContainer")
        ]
        assert len(events) == len(values), (pod.name, values, [e["note"] for e in events])
    said = [(e["action"], e["reason"]) for e in made.api.events_of(old.name, since)]
    said = [one for one in said if one[0] != "Recovery"]  # the cluster's own, whenever it comes
    assert said[0] == ("KilledContainer", "LeadershipLost"), said
    assert ("ConfirmedFence", "SessionsTerminated") in said, said
    page = old.probe("/metrics")[1]
    count = len(made.api.label_patches(old.name))
    assert f'metafence_label_patches_total{{outcome="ok"}} {count}\n' in page, page
    assert "metafence_kube_up 1\n" in page and "metafence_label_confirmed 1\n" in page
    # Labelled leader once: not at the moment of winning, and then again after the promotion.
    assert made.api.labels_seen(leader.name, since).count("leader") == 1


def test_answer_lost(kube: Open) -> None:
    """C15: the patch is done, its answer is lost, nothing else happens: the label is confirmed all the
    same."""
    made = kube()
    leader = made.start()
    made.api.lose_answers(1)
    heir = made.hand_over(leader)
    made.wait_labels(heir, AFTER_FAULT_S)
    for pod in made.pods:
        wanted = "leader" if pod is heir else "follower"
        pod.wait_status(
            "label is confirmed",
            lambda s, wanted=wanted: s["kubernetes"]["label"]["confirmed"] == wanted,
            AFTER_FAULT_S,
        )
    assert made.kills() == 0


def test_old_patch_lands_late(kube: Open) -> None:
    """C16: a patch hangs somewhere while the world goes on, and lands after the newer one."""
    made = kube()
    old = made.start()
    made.api.hold_patches()
    supersede(made, old)
    leader = made.cluster.wait_converged(20)
    wait_for("a patch of the old leader hangs", lambda: made.api.held() > 0, 5)
    made.api.stop_holding()
    made.wait_labels(leader, AFTER_FAULT_S)
    since = boot_ns()
    made.api.release_patches()
    wait_for("the past has landed", lambda: len(made.api.labels_seen(old.name, since)) > 0, 5)
    made.wait_labels(leader, AFTER_FAULT_S)


def test_labeler_is_not_fought(kube: Open) -> None:
    """An operator's labeler that rewrites the second key every 2 s keeps it; ours stays true."""
    resync = 6
    made = kube(kubernetes={"resync": f"{resync}s"})
    leader = made.start()
    stop = threading.Event()

    def rewrite() -> None:
        while not stop.wait(2):
            for pod in made.pods:
                # As the operator sees it: all are followers.
                made.api.set_label(pod.name, ROLE_KEY, "follower", manager="labeler")

    thread = threading.Thread(target=rewrite)
    thread.start()
    try:
        since = boot_ns()
        length = 3 * resync

        def stays_true() -> None:
            assert made.api.label(leader.name) == "leader"

        hold(length, stays_true)
        patches = made.api.label_patches(leader.name, since)
        # Both keys, then ours alone, at each resync.
        assert 2 <= len(patches) <= 2 * (length // resync + 1), patches
        assert made.api.label(leader.name, ROLE_KEY) == "follower"
        status = leader.status()
        assert status is not None
        assert status["kubernetes"]["label"]["role_label"] == "yielded", status["kubernetes"]
        assert len(leader.agent_log.find(msg="role label is left alone")) <= length // resync + 1
        # A change of the role while the key is theirs costs one patch as ever.
        supersede(made, leader)
        heir = made.cluster.wait_converged(20)
        made.wait_labels(heir, PATCH_S, keys=(OWN_KEY,))
    finally:
        stop.set()
        thread.join()
    assert made.kills() == 1


def test_observe_writes_ours_alone(kube: Open) -> None:
    made = kube(kubernetes={"onConflict": "observe", "resync": "2s"})
    leader = made.cluster.start()
    made.wait_labels(leader, PATCH_S, keys=(OWN_KEY,))
    made.api.set_label(leader.name, ROLE_KEY, "leader", manager="labeler")
    leader.wait_status("agreement is shown", lambda s: not s["kubernetes"]["label"]["role_label_differs"], 5)
    made.api.set_label(leader.name, ROLE_KEY, "follower", manager="labeler")
    status = leader.wait_status(
        "difference is shown", lambda s: s["kubernetes"]["label"]["role_label_differs"], 5
    )
    assert status["kubernetes"]["label"]["role_label"] == "observed"
    leader.agent_log.expect(5, msg="role label differs", value="follower", role="leader")
    hold(5)  # two resyncs
    for pod in made.pods:
        for patch in made.api.label_patches(pod.name):
            assert list(patch.body["metadata"]["labels"]) == [OWN_KEY]
    assert made.api.label(leader.name, ROLE_KEY) == "follower"


def test_patches_denied(kube: Open) -> None:
    """C14: rights that are missing stop no fence; once they are there, so is the label."""
    made = kube()

    def denied(request: Request) -> bool:
        return request.method == "PATCH"

    made.api.denied = denied
    old = made.cluster.start()
    old.wait_status("denial is shown", lambda s: s["kubernetes"]["label"]["denied"], 10)
    since = boot_ns()
    supersede(made, old)
    wait_for("the old leader was killed", lambda: old.kills() == 1, 5)
    leader = made.cluster.wait_converged(20)
    hold(10)
    assert made.kills() == 1
    # Slowly: two requests each 6 s or more, and one at each change of the role.
    assert len(made.api.label_patches(old.name, since)) <= 12
    assert len(old.agent_log.find(msg="request failed", what="label")) == 1
    made.api.denied = lambda _: False
    made.wait_labels(leader, AFTER_FAULT_S)
    old.agent_log.expect(5, msg="request works again", what="label")


def test_stripped_labels_come_back(kube: Open) -> None:
    """E10: without any event of the election."""
    made = kube()
    leader = made.start()
    with made.api.lock:
        for key in (OWN_KEY, ROLE_KEY):
            made.api.pods[leader.name].body["metadata"]["labels"].pop(key)
        made.api.pods[leader.name].owners.clear()
        made.api.touch(leader.name)
    made.wait_labels(leader, PATCH_S)
    assert made.kills() == 0


def test_other_pod_of_our_name(kube: Open) -> None:
    """Our pod was deleted by force and its twin is there: we write nothing to it, and end."""
    made = kube()
    old = made.start()
    since = boot_ns()
    made.api.delete_pod(old.name)
    made.api.add_pod(old.name, uid="00000000-aaaa-bbbb-cccc-000000000000")
    wait_for("ours is killed", lambda: old.kills() == 1, 10)
    old.agent_log.expect(5, msg="fence", rule="TwinIdentity")
    made.cluster.wait_new_leader(old, 20)
    patches = [p for p in made.api.label_patches(old.name, since) if p.status == 200]
    assert patches == []
    assert made.api.label(old.name) is None


def test_restart_of_the_agent_is_no_change(kube: Open, pytestconfig: pytest.Config) -> None:
    """H05: a new agent beside a healthy leader leaves its label alone and tells no change."""
    made = kube()
    leader = made.start()
    hold(1)  # the events of the start are out
    since = boot_ns()
    for _ in range(20 if pytestconfig.getoption("--full") else 3):
        leader.kill_agent()
        leader.start_agent()
        leader.wait_status("leads", lambda s: s["role"] == "leader", 10)
        leader.wait_status(
            "label is confirmed", lambda s: s["kubernetes"]["label"]["confirmed"] == "leader", 10
        )
    hold(1)
    assert made.api.labels_seen(leader.name, since) in ([], ["leader"])
    changes = [e for e in made.api.events_of(leader.name, since) if e["action"] == "ChangedRole"]
    assert changes == []
    assert made.kills() == 0


def test_agent_before_its_metafence_run(kube: Open) -> None:
    """A twin's agent sees the row renewed under its own id. Until its metafence-run has named an incarnation
    nobody is shown as the leader for that."""
    made = kube(pods=1)
    leader = made.start()
    twin = made.cluster.new_pod("twin", advertise=leader.id)
    made.api.add_pod(twin.name, twin.uid)
    twin.config["kubernetes"] = leader.config["kubernetes"]
    twin.start_agent()
    status = twin.wait_status("takes the row for its own", lambda s: s["rule"] == "Leader", 10)
    assert status["role"] == "unknown" and "NoFence" in status["not_covered"]
    made.wait_label(twin, "unknown", 15)
    assert "leader" not in made.api.labels_seen(twin.name)
    assert made.api.label(leader.name) == "leader" and made.kills() == 0


def test_broken_configuration_is_told(kube: Open) -> None:
    made = kube()
    leader = made.start()
    leader.kill_agent()
    leader.config["timing"]["margin"] = "a lot"
    leader.start_agent()
    [event] = wait_for(
        "an event tells it",
        lambda: [e for e in made.api.events_of(leader.name) if e["reason"] == "ConfigInvalid"],
        10,
    )
    assert "margin" in event["note"] and event["type"] == "Warning"
    made.wait_labels(leader, PATCH_S)
    assert made.kills() == 0


def test_an_annotation_that_is_wrong_is_told_and_left_out(kube: Open) -> None:
    """What the chart puts into the environment; the file's values hold, and the meta stays covered."""
    made = kube(ttl=30, pods=1)
    pod = made.start()
    pod.kill_agent()
    pod.start_agent(METAFENCE_POLL="soon", METAFENCE_LOG_LEVEL="debug")
    [event] = wait_for(
        "an event tells it",
        lambda: [e for e in made.api.events_of(pod.name) if e["reason"] == "OverridesInvalid"],
        30,
    )
    assert "metafence.io/poll" in event["note"] and '"soon"' in event["note"], event
    status = pod.wait_status("covered all the same", lambda s: s["not_covered"] == [], 30)
    assert status["config"]["valid"] and "metafence.io/poll" in status["config"]["override_error"]
    assert "metafence.io/poll" in pod.cli("status").stdout
    said = pod.cli("doctor", "-o", "json", timeout=60)
    faults = [f["check"] for f in json.loads(said.stdout)["findings"] if f["level"] == "failed"]
    assert "agent.overrides" in faults, said.stdout
    assert made.kills() == 0


def test_unknown_pod_is_said_once(kube: Open) -> None:
    """Without podUid there is no label, and all the rest works."""
    made = kube(pods=1)
    [pod] = made.pods
    made.cluster.install_sql()
    del pod.config["podUid"]
    pod.start()
    pod.wait_leading(15)
    said = pod.agent_log.expect(5, msg="kubernetes: off")
    assert "podUid" in said["err"] and "POD_UID" in said["err"]
    status = pod.wait_status("armed", lambda s: s["armed"], 10)
    assert status["kubernetes"] == {"enabled": False}
    assert made.api.count() == 0
