# SPDX-License-Identifier: Apache-2.0
"""A single replica has no successor to make room for: while the API lists our pod, a silent Postgres is
no reason to kill it. Without the API's word it is fenced as any other."""

from harness import hold, wait_for
from kube import Kube, Open


def alone(kube: Open) -> Kube:
    """Alone for more than two leases, as reads have shown."""
    made = kube(pods=1)
    made.start()
    hold(2 * made.cluster.ttl + 2)
    return made


def test_held_while_the_api_lists_us(kube: Open) -> None:
    made = alone(kube)
    [pod] = made.pods
    made.cluster.postgres.stop("immediate")
    pod.wait_status("held", lambda s: "SingleReplicaHeld" in s["not_covered"], made.cluster.ttl + 5)
    hold(2 * made.cluster.ttl)
    assert pod.kills() == 0 and pod.meta_alive
    made.cluster.postgres.start()
    pod.wait_status("covered", lambda s: s["not_covered"] == [], 20)
    assert pod.kills() == 0


def test_fenced_when_the_api_is_silent_too(kube: Open) -> None:
    made = alone(kube)
    [pod] = made.pods
    made.api.break_by("down")
    made.cluster.postgres.stop("immediate")
    wait_for("fenced", lambda: pod.kills() == 1, made.cluster.ttl + 5)


def test_hold_ends_with_the_apis_word(kube: Open) -> None:
    """What the API said ten seconds ago is worth nothing."""
    made = alone(kube)
    [pod] = made.pods
    made.cluster.postgres.stop("immediate")
    pod.wait_status("held", lambda s: "SingleReplicaHeld" in s["not_covered"], made.cluster.ttl + 5)
    made.api.break_by("hang")
    wait_for("fenced", lambda: pod.kills() == 1, 10 + 2 * made.cluster.ttl)
