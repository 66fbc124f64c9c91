# SPDX-License-Identifier: Apache-2.0
"""One meta pod: its agent, its metafence-run, and what it answers."""

import json
import os
import socket
import time
import urllib.error
import urllib.request
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from harness.paths import metafence_run, metasim
from harness.waiting import boot_ns, wait_status
from kubelab import Cluster
from kubernetes import client

from .pod import SimPod

ROLE = "metafence.io/role"
OPERATORS_ROLE = "risingwave/meta-role"
SERVICE_PORT, METRICS_PORT, HTTP_PORT = 5690, 1250, 9690


class CallFailed(Exception):
    """An RPC that was refused or not answered; gRPC's code and message."""


@dataclass(frozen=True)
class Answer:
    """Of an HTTP probe; status 0: none came."""

    status: int
    body: str
    took_ms: float


class Meta(SimPod):
    """One meta; most of it also when its node is cut off."""

    container = "meta"

    def __init__(self, cluster: Cluster, pod: client.V1Pod, witness_dir: Path) -> None:
        super().__init__(cluster, pod, witness_dir)
        self.id = f"{self.name}.meta:{SERVICE_PORT}"

    def exec(self, *words: str) -> str:
        """In the agent's container, as a person does."""
        return self.cluster.kubectl("exec", "-n", self.namespace, self.name, "-c", "metafence", "--", *words)

    def cli(self, *words: str) -> str:
        return self.exec("/usr/bin/metafence", *words)

    # --- as its node knows it ----------------------------------------------------------------

    @property
    def volume(self) -> Path:
        """What agent and metafence-run share."""
        return self.node.volume(self.uid, "metafence")

    def status(self) -> dict[str, Any] | None:
        """What `metafence status -o json` prints, without the way through API server and kubelet; None while
        the agent does not answer."""
        try:
            folder = os.open(self.volume, os.O_PATH)
        except FileNotFoundError:
            return None
        try:
            with socket.socket(socket.AF_UNIX) as talk:
                talk.settimeout(2)
                talk.connect(f"/proc/self/fd/{folder}/agent.sock")  # the path itself is too long
                talk.sendall(b'{"cmd":"status"}\n')
                answer = talk.makefile().readline()
        except OSError:
            return None
        finally:
            os.close(folder)
        return json.loads(answer) if answer else None

    def wait_status(self, what: str, probe: Any, timeout: float) -> dict[str, Any]:
        """The first status of which `probe` is true."""
        return wait_status(f"{self.name}: {what}", self.status, probe, timeout)

    def run_status(self) -> dict[str, Any]:
        """metafence-run's own word."""
        argv: list[str | Path] = [metafence_run(), "status", f"--state={self.volume / 'state'}"]
        done = self.cluster.run(argv, timeout=10)
        assert done.returncode == 0, f"metafence-run status: {done.stderr}"
        return json.loads(done.stdout)

    @property
    def meta_process(self) -> int | None:
        return self.process

    @property
    def acts_as_leader(self) -> bool:
        """The living process has its leader services up (a zombie too)."""
        return self.meta_process is not None and self._reached("leader_up") is not None

    @property
    def promotes(self) -> bool:
        """It has won, and its leader services are not up yet."""
        return self._reached("init_begin") is not None and self._reached("leader_up") is None

    @property
    def is_follower(self) -> bool:
        ready = self.meta_process is not None and self._reached("ready") is not None
        return ready and self._reached("elected") is None

    # --- asking it ---------------------------------------------------------------------------

    def members(self) -> list[dict[str, Any]] | None:
        """What its RPC Members answers: [{"id", "leader"}]; None without an answer."""
        done = self.cluster.run([metasim(), "members", f"{self.ip}:{SERVICE_PORT}"], timeout=10)
        return json.loads(done.stdout) if done.returncode == 0 else None

    def call(self, *words: str, timeout: float = 30) -> Any:
        """One RPC, as `metasim call`: call("list"), call("delete", "host:port"). CallFailed without a good
        answer."""
        argv: list[str | Path] = [metasim(), "call", "--timeout", f"{timeout:g}s"]
        done = self.cluster.run([*argv, f"{self.ip}:{SERVICE_PORT}", *words], timeout=timeout + 10)
        if done.returncode != 0:
            raise CallFailed(done.stderr.strip())
        return json.loads(done.stdout)

    def metric(self, name: str) -> float:
        """Of the leader's own metrics; `name` with its labels."""
        with self.cluster.inside():
            opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
            with opener.open(f"http://{self.ip}:{METRICS_PORT}/metrics", timeout=5) as reply:
                lines = reply.read().decode().splitlines()
        return next(float(line.removeprefix(name)) for line in lines if line.startswith(f"{name} "))

    def probe(self, path: str = "/readyz", timeout: float = 2) -> Answer:
        """As its kubelet asks."""
        opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
        began = boot_ns()
        with self.cluster.inside(self.node.name):
            try:
                with opener.open(f"http://{self.ip}:{HTTP_PORT}{path}", timeout=timeout) as reply:
                    status, body = reply.status, reply.read().decode()
            except urllib.error.HTTPError as error:
                status, body = error.code, error.read().decode()
            except OSError as error:
                status, body = 0, str(error)
        return Answer(status, body, (boot_ns() - began) / 1e6)


def wall_to_boot_ns(seconds: float) -> int:
    """An instant of the wall clock, as the API server gives them, by our clock."""
    return boot_ns() - int((time.time() - seconds) * 1e9)
