# SPDX-License-Identifier: Apache-2.0
"""Somebody else writes the agent's own label."""

import threading

import pytest
from harness import boot_ns, hold
from harness.fakeapi import OWN_KEY
from kube import AFTER_FAULT_S, Open


@pytest.mark.parametrize("value", ["follower", None, "leader"], ids=["wrong", "removed", "leader-elsewhere"])
def test_foreign_writer_of_our_key(kube: Open, value: str | None) -> None:
    """Twice a second, the wrong value or none, and on a follower's pod "leader": it is set right again and
    again, but calmly, and nobody is killed for what a label says."""
    length = 15
    made = kube()
    leader = made.start()
    target = made.pods[1] if value == "leader" else leader
    stop = threading.Event()

    def overwrite() -> None:
        while not stop.wait(0.5):
            made.api.set_label(target.name, OWN_KEY, value, manager="policy")

    thread = threading.Thread(target=overwrite)
    thread.start()
    try:
        since = boot_ns()
        hold(length)
        patches = made.api.label_patches(target.name, since)
        assert patches, "nobody set it right"
        # On a follower's pod by two: its own agent, and the leader's, who takes "leader" off.
        writers = 1 if target is leader else 2
        assert len(patches) <= writers * (length / 5 + 4), f"{len(patches)} patches in {length} s: a fight"
    finally:
        stop.set()
        thread.join()
    assert made.kills() == 0
    assert made.cluster.wait_converged(5) is leader
    made.wait_labels(leader, AFTER_FAULT_S)
