# SPDX-License-Identifier: Apache-2.0
"""Compute nodes as containers of pods in the fake API server. No pod can be told by a loopback address, but
by a name: the node registers under one that a name server of the test's gives to 127.0.0.1."""

import signal
import threading
from typing import Any

from harness import wait_for
from harness.fakeapi import FakeApi, Request
from harness.nameserver import NAME as HOST
from jobs import PATIENCE, Node
from workerpods import add_worker_pod

NAME = "compute-0"
HOSTNAME, SUBDOMAIN = HOST.split(".")


class Kubelet:
    """Of one pod: what the API shows of its container is what a test says that its kubelet has said."""

    def __init__(self, api: FakeApi, node: Node) -> None:
        self.api, self.node = api, node
        self._starts = 0
        self.uid = self.make_pod()

    @property
    def container(self) -> str:
        return f"containerd://{self._starts}"

    def make_pod(self) -> str:
        """A new one, whose first container runs; its uid."""
        with self.api.lock:
            uid = add_worker_pod(self.api, NAME, "10.9.8.1", "compute", "StatefulSet", self.node.port)
            self.api.pods[NAME].body["spec"].update(hostname=HOSTNAME, subdomain=SUBDOMAIN)
            self._start()
        self.uid = uid
        return uid

    def _status(self) -> dict[str, Any]:
        found: dict[str, Any] = self.api.pods[NAME].body["status"]
        return found

    def _start(self, last: dict[str, Any] | None = None) -> None:
        self._starts += 1
        running = {"name": "worker", "ready": True, "containerID": self.container, "state": {"running": {}}}
        self._status()["containerStatuses"] = [{**running, "lastState": last or {}}]
        self.api.touch(NAME)

    def restart_container(self) -> None:
        """Its process is gone, and it says that the next container runs. Nothing listens there yet."""
        self.node.kill()
        with self.api.lock:
            self._start({"terminated": {"exitCode": 137, "containerID": self.container}})

    def end_pod(self) -> None:
        """After a delete: the process is gone, the kubelet says so, and lets go of the pod."""
        self.node.kill()
        with self.api.lock:
            ended = {"terminated": {"exitCode": 137, "containerID": self.container}}
            status = self._status()
            status["phase"] = "Failed"
            status["containerStatuses"] = [
                {"name": "worker", "ready": False, "containerID": self.container, "state": ended}
            ]
            self.api.touch(NAME)
            self.api.delete_pod(NAME)

    def wait_looked(self, count: int = 1) -> None:
        """Until that many more lists of workers' pods have been answered."""

        def lists() -> int:
            with self.api.lock:
                return sum(
                    "labelSelector" in r.query and "component" in r.query["labelSelector"]
                    for r in self.api.requests
                    if r.status == 200
                )

        had = lists()
        wait_for("pods are looked at", lambda: lists() >= had + count, PATIENCE)


class Gate:
    """The first request of that method for the pod waits until it is let through."""

    def __init__(self, api: FakeApi, method: str) -> None:
        self._method, self._came, self._may_go = method, threading.Event(), threading.Event()
        api.gate = self._hold

    def _hold(self, request: Request) -> None:
        if request.method != self._method or request.pod != NAME or self._came.is_set():
            return
        self._came.set()
        self._may_go.wait(PATIENCE)

    def wait(self) -> None:
        assert self._came.wait(PATIENCE), f"no {self._method} of {NAME}"

    def open(self) -> None:
        self._may_go.set()


KILL = int(signal.SIGKILL)
