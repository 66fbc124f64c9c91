# SPDX-License-Identifier: Apache-2.0
"""Orders by annotation: kubectl and the command line see and undo the same thing, and neither a restart
of the agent nor an API server that is away loses one."""

import threading
import time
from typing import Any

from harness import Pod, hold, wait_for
from harness.fakeapi import FENCE_KEY, PAUSE_KEY, Request
from kube import AFTER_FAULT_S, Kube, Open


def restart_agent(pod: Pod) -> None:
    pod.kill_agent()
    pod.start_agent()
    pod.wait_status("agent is back", lambda s: s["armed"] and s["fence"]["connected"], 10)


def wait_fenced(pod: Pod, reason: str) -> None:
    def fenced(status: dict[str, Any]) -> bool:
        return status["fenced"]["confirmed"] and status["manual_reason"] == reason

    pod.wait_status(f"fenced for {reason}", fenced, 15)
    assert not pod.meta_alive


def wait_back(made: Kube, pod: Pod) -> None:
    pod.wait_status("not fenced", lambda s: not s["manual_fence"], AFTER_FAULT_S)
    wait_for(f"meta of {pod.name} is back", lambda: pod.meta_alive, 15)
    made.wait_labels(made.cluster.wait_converged(20), AFTER_FAULT_S)


def in_minutes(minutes: float) -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(time.time() + 60 * minutes))


def test_fence_by_annotation(kube: Open) -> None:
    made = kube()
    pod = made.start()

    def holds() -> list[str]:
        return [e["reason"] for e in made.api.events_of(pod.name) if e["action"] == "HeldStart"]

    assert holds() == [], "the moment of each start is no news"
    made.api.annotate(pod.name, FENCE_KEY, "disk is dying")
    wait_fenced(pod, "disk is dying")
    wait_for("the hold is told by an event", lambda: holds() == ["Manual"], 10)
    restart_agent(pod)  # its annotation is still there
    hold(2)
    wait_fenced(pod, "disk is dying")
    made.wait_label(pod, "unknown", 5)
    made.api.annotate(pod.name, FENCE_KEY, None)
    wait_back(made, pod)
    assert pod.kills() == 1


def test_annotation_removed_while_no_agent_ran(kube: Open) -> None:
    made = kube()
    pod = made.start()
    made.api.annotate(pod.name, FENCE_KEY, "for a while")
    wait_fenced(pod, "for a while")
    pod.kill_agent()
    made.api.annotate(pod.name, FENCE_KEY, None)
    hold(1)
    assert not pod.meta_alive  # metafence-run keeps what it was told
    pod.start_agent()
    wait_back(made, pod)


def test_fence_outlives_agent_without_api(kube: Open) -> None:
    """What the API has not said yet takes nothing back."""
    made = kube()
    pod = made.start()
    made.api.annotate(pod.name, FENCE_KEY, "stay down")
    wait_fenced(pod, "stay down")
    made.api.break_by("down")
    restart_agent(pod)
    hold(3)
    assert not pod.meta_alive
    made.api.heal()
    wait_fenced(pod, "stay down")


def test_command_line_is_mirrored(kube: Open) -> None:
    made = kube()
    pod = made.start()
    done = pod.cli("fence", "--reason", "by hand")
    assert done.returncode == 0, done.stderr
    wait_for("annotation", lambda: made.api.annotation(pod.name, FENCE_KEY) == "by hand", 5)
    wait_fenced(pod, "by hand")
    made.api.annotate(pod.name, FENCE_KEY, None)  # kubectl undoes what the command line did
    wait_back(made, pod)
    pod.cli("fence", "--reason", "again")
    wait_for("annotation", lambda: made.api.annotation(pod.name, FENCE_KEY) == "again", 5)
    wait_fenced(pod, "again")
    assert pod.cli("unfence").returncode == 0
    wait_for("no annotation", lambda: made.api.annotation(pod.name, FENCE_KEY) is None, 5)
    wait_back(made, pod)


def test_order_that_could_not_be_written_survives(kube: Open) -> None:
    """Fenced while the API is away, the agent restarted, the API back: its empty annotation is older
    than the order."""
    made = kube()
    pod = made.start()
    made.api.break_by("down")
    pod.cli("fence", "--reason", "in the dark")
    wait_fenced(pod, "in the dark")
    restart_agent(pod)
    made.api.heal()
    wait_for("annotation", lambda: made.api.annotation(pod.name, FENCE_KEY) == "in the dark", AFTER_FAULT_S)
    wait_fenced(pod, "in the dark")
    wait_for("nothing waits any more", lambda: not (pod.dir / "agent.sock.orders").exists(), 5)
    made.api.annotate(pod.name, FENCE_KEY, None)
    wait_back(made, pod)


def test_fenced_before_kubernetes_was_switched_on(kube: Open) -> None:
    """An annotation that was never written takes nothing back; one that was taken back in time is not
    written."""
    made = kube(pods=2)
    pod, other = made.pods
    for one in made.pods:
        one.config["kubernetes"]["enabled"] = "off"
    made.cluster.start()
    for one in made.pods:
        assert one.cli("fence", "--reason", "before").returncode == 0
        wait_fenced(one, "before")
    assert other.cli("unfence").returncode == 0
    for one in made.pods:
        one.config["kubernetes"]["enabled"] = "on"
        restart_agent(one)
    wait_for("annotation", lambda: made.api.annotation(pod.name, FENCE_KEY) == "before", 10)
    wait_fenced(pod, "before")
    wait_for("the other leads", lambda: other.acts_as_leader, 30)
    assert made.api.annotation(other.name, FENCE_KEY) is None
    made.api.annotate(pod.name, FENCE_KEY, None)
    wait_back(made, pod)


def test_fenced_and_unfenced_while_the_api_is_slow(kube: Open) -> None:
    """The annotation that is not there yet is not taken for one that is gone again."""
    made = kube()
    pod = made.start()
    made.api.hold_patches()
    assert pod.cli("fence", "--reason", "a slip").returncode == 0
    wait_fenced(pod, "a slip")
    assert pod.cli("unfence").returncode == 0
    made.api.touch(pod.name)  # the watch shows it without the annotation
    hold(0.5)
    made.api.stop_holding()
    made.api.release_patches()
    wait_back(made, pod)
    wait_for("nothing waits any more", lambda: not (pod.dir / "agent.sock.orders").exists(), AFTER_FAULT_S)
    assert made.api.annotation(pod.name, FENCE_KEY) is None
    assert pod.kills() == 1


def test_pause_by_annotation(kube: Open) -> None:
    made = kube()
    pod = made.start()
    made.api.annotate(pod.name, PAUSE_KEY, in_minutes(5))
    pod.wait_status("paused", lambda s: s["paused_until"] and "Paused" in s["not_covered"], 5)
    wait_for(
        "an event tells it",
        lambda: [e for e in made.api.events_of(pod.name) if e["action"] == "PausedFencing"],
        10,
    )
    restart_agent(pod)
    pod.wait_status("paused", lambda s: s["paused_until"] and "Paused" in s["not_covered"], 5)
    made.api.annotate(pod.name, PAUSE_KEY, in_minutes(-1))  # over
    pod.wait_status("not paused", lambda s: s["paused_until"] is None, 5)
    assert pod.cli("pause", "--for", "2m", "--reason", "work").returncode == 0
    wait_for("annotation", lambda: (made.api.annotation(pod.name, PAUSE_KEY) or "") > in_minutes(1.5), 5)
    made.api.annotate(pod.name, PAUSE_KEY, None)
    pod.wait_status("not paused", lambda s: s["paused_until"] is None, 5)
    assert made.kills() == 0


def test_a_look_that_the_watch_has_overtaken(kube: Open) -> None:
    """The first read of an agent's pod was answered before the pause ended, and arrives after it."""
    made = kube()
    pod = made.start()
    made.api.annotate(pod.name, PAUSE_KEY, in_minutes(5))
    pod.wait_status("paused", lambda s: s["paused_until"], 5)
    pod.kill_agent()
    is_made, may_arrive = threading.Event(), threading.Event()

    def delay(request: Request) -> None:
        if request.method == "GET" and request.pod == pod.name:
            is_made.set()
            assert may_arrive.wait(30)

    made.api.delay = delay
    pod.start_agent()
    assert is_made.wait(10)
    made.api.annotate(pod.name, PAUSE_KEY, in_minutes(-1))  # over
    pod.agent_log.expect(10, msg="ordered by annotation", value=made.api.annotation(pod.name, PAUSE_KEY))
    may_arrive.set()

    def is_not_paused() -> None:
        status = pod.status()
        assert status is not None and status["paused_until"] is None

    hold(1, is_not_paused)


def test_pause_that_is_no_time(kube: Open) -> None:
    made = kube()
    pod = made.start()
    made.api.annotate(pod.name, PAUSE_KEY, "tomorrow")
    said = pod.agent_log.expect(5, msg="annotation is no order", annotation=PAUSE_KEY)
    assert "2030-01-31T18:00:00Z" in said["err"]
    [event] = wait_for(
        "an event tells it",
        lambda: [e for e in made.api.events_of(pod.name) if e["reason"] == "InvalidAnnotation"],
        10,
    )
    assert event["type"] == "Warning" and event["note"].startswith("[fence] ")
    status = pod.status()
    assert status is not None and status["paused_until"] is None
