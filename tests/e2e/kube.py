# SPDX-License-Identifier: Apache-2.0
"""A cluster of metas whose agents have a Kubernetes API to talk to: fakeapi.py."""

import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from harness import Cluster, Lab, Pod, wait_for
from harness.fakeapi import NAMESPACE, OWN_KEY, ROLE_KEY, FakeApi

AFTER_FAULT_S = 10  # within which labels are right again
PATCH_S = 5  # a healthy API, on a busy machine


class Kube:
    def __init__(self, lab: Lab, cluster: Callable[..., Cluster], **options: Any) -> None:
        kubernetes = options.pop("kubernetes", {})
        self.api = options.pop("api", None) or FakeApi(lab.port())
        self.cluster = cluster(**options)
        self.token = lab.dir / "token"
        self.token.write_text(self.api.token)
        for pod in self.cluster.pods:
            self.api.add_pod(pod.name, pod.uid)
            pod.config["kubernetes"] = {
                "enabled": "on",
                "server": self.api.url,
                "namespace": NAMESPACE,
                "tokenFile": str(self.token),
                **kubernetes,
            }

    @property
    def pods(self) -> list[Pod]:
        return self.cluster.pods

    def start(self) -> Pod:
        """The leader, once all labels are right."""
        leader = self.cluster.start()
        self.wait_labels(leader, PATCH_S)
        return leader

    def roles(self, key: str = OWN_KEY) -> dict[str, str | None]:
        return {pod.name: self.api.label(pod.name, key) for pod in self.pods}

    def wait_labels(self, leader: Pod, timeout: float, keys: tuple[str, ...] = (OWN_KEY, ROLE_KEY)) -> None:
        wanted = {pod.name: "leader" if pod is leader else "follower" for pod in self.pods}
        for key in keys:
            wait_for(
                f"label {key} is {wanted}",
                lambda key=key: self.roles(key) == wanted,
                timeout,
            )

    def wait_label(self, pod: Pod, role: str, timeout: float, key: str = OWN_KEY) -> None:
        wait_for(f"{pod.name} is labelled {role}", lambda: self.api.label(pod.name, key) == role, timeout)

    def kills(self) -> int:
        return sum(pod.kills() for pod in self.pods)

    def incarnations(self) -> int:
        return sum(pod.incarnations for pod in self.pods)

    def hand_over(self, old: Pod) -> Pod:
        """Leadership moves in good order: the leader's process leaves and comes back. The new leader."""
        before = old.incarnations
        old.signal_meta(signal.SIGTERM)
        wait_for(f"{old.name} is back", lambda: old.incarnations == before + 1 and old.meta_alive, 15)
        return self.cluster.wait_converged(20)


Open = Callable[..., Kube]


def supersede(made: Kube, old: Pod) -> None:
    """Takes the row from under the leader, for another: the shape of rw#8238."""
    other = next(p for p in made.pods if p is not old)
    with made.cluster.postgres.connect() as session:
        session.execute("UPDATE election_leader SET id = %s, last_heartbeat = now()", [other.id])


@contextmanager
def open_kube(lab: Lab, cluster: Callable[..., Cluster], **options: Any) -> Iterator[Kube]:
    kube = Kube(lab, cluster, **options)
    try:
        yield kube
    finally:
        kube.api.close()
