# SPDX-License-Identifier: Apache-2.0
"""H01: whatever becomes of the API server, nobody is killed for it, probes answer, requests stay few;
and the labels are right within 10 s of its return."""

import signal
import time

import pytest
from harness import boot_ns, hold
from harness.fakeapi import FAULTS
from kube import AFTER_FAULT_S, Open

FAULT_S = 12  # longer than any time-out and than an answer is believed
REQUESTS = 8 * FAULT_S  # of one agent, at the most


@pytest.mark.parametrize("fault", FAULTS)
def test_api_broken(kube: Open, fault: str) -> None:
    made = kube()
    old = made.start()
    restarts = made.incarnations()
    made.api.break_by(fault)
    since = boot_ns()
    # Leadership moves meanwhile, in good order.
    leader = made.hand_over(old)
    worst = 0.0

    def harmless() -> None:
        nonlocal worst
        assert made.kills() == 0
        for pod in made.pods:
            for path in ("/livez", "/readyz"):
                before = time.monotonic()
                assert pod.probe(path)[0] == 200, (pod.name, path)
                worst = max(worst, time.monotonic() - before)

    hold(FAULT_S, harmless)
    assert worst < 0.5
    assert made.api.count(since) < len(made.pods) * REQUESTS
    made.api.heal()
    made.wait_labels(leader, AFTER_FAULT_S)
    assert made.kills() == 0
    assert made.incarnations() == restarts + 1
    status = leader.wait_status("watch is up again", lambda s: s["kubernetes"]["up"], 40)
    assert status["kubernetes"]["error"] == ""


def test_api_not_there_at_the_start(kube: Open) -> None:
    """E04: nothing waits for the first label."""
    made = kube()
    made.api.break_by("down")
    leader = made.cluster.start()
    hold(3)
    assert made.kills() == 0
    made.api.heal()
    made.wait_labels(leader, AFTER_FAULT_S)


@pytest.mark.parametrize("as_status", [True, False], ids=["status", "event"])
def test_watch_is_too_old(kube: Open, as_status: bool) -> None:
    """410 in both disguises: the watch goes on from a list."""
    made = kube()
    leader = made.start()
    made.api.compact(as_status)
    made.api.annotate(leader.name, "metafence.io/fence", "after the gap")
    leader.wait_status("fence by annotation", lambda s: s["manual_fence"], 10)


def test_token_is_rotated(kube: Open) -> None:
    made = kube()
    old = made.start()
    made.token.write_text("the-next-one")
    made.api.token = "the-next-one"
    made.api.cut()
    leader = made.hand_over(old)
    made.wait_labels(leader, AFTER_FAULT_S)
    for pod in made.pods:
        text = pod.agent_log.path.read_text()
        assert "the-next-one" not in text and "not-a-real-token" not in text


@pytest.mark.parametrize("fault", [None, "hang", "down"])
def test_agent_ends_at_once(kube: Open, fault: str | None) -> None:
    """C19: whatever is under way with the API."""
    made = kube(pods=1)
    pod = made.start()
    if fault:
        made.api.break_by(fault)
        hold(1)
    assert pod.agent is not None
    pod.agent.signal(signal.SIGINT)
    assert pod.agent.wait(2) == 0
