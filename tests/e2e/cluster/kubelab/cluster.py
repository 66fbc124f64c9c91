# SPDX-License-Identifier: Apache-2.0
"""A Kubernetes of several nodes on this machine, with its own Postgres, and the faults it is made for."""

import json
import os
import subprocess
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager
from dataclasses import asdict
from datetime import UTC, datetime
from functools import cached_property
from pathlib import Path
from typing import Any

from harness.waiting import wait_for
from kubernetes import client

from . import cgroups, cleanup, faults, images, network, preflight, volumes
from .api import Commands, make_client
from .audit import AuditLog
from .controlplane import ControlPlane
from .images import Image
from .layout import LabError, Layout
from .netns import inside
from .node import Node
from .paths import programs_dir
from .pki import Pki
from .postgres import Postgres
from .programs import Program, run_in
from .settings import Settings

Say = Callable[[str], None]


class Cluster:
    """Describes one; up() makes it, and another process may attach() to what is there."""

    def __init__(self, prefix: str = "mf", settings: Settings | None = None) -> None:
        self.settings = settings or Settings()
        self.layout = Layout(prefix)
        self._bin = programs_dir()
        self._pki = Pki(self.layout)
        self.plane = ControlPlane(self.layout, self.settings, self._bin, self._pki)
        self.postgres = Postgres(self.layout, self.settings.postgres_mb)
        self.audit = AuditLog(self.layout.audit_log)
        self._commands = Commands(self.layout, self._bin)
        indexes = range(1, self.settings.nodes + 1)
        self.nodes = [Node(self.layout, i, self.settings, self._bin, self._pki) for i in indexes]

    @classmethod
    def attach(cls, prefix: str) -> "Cluster":
        """One that is up, with the settings it was made with."""
        path = Layout(prefix).dir / "settings.json"
        try:
            return cls(prefix, Settings(**json.loads(path.read_text())))
        except FileNotFoundError:
            raise LabError(f'no cluster "{prefix}" is up: run ./dev cluster up') from None

    # --- up and down -------------------------------------------------------------------------

    def up(self, say: Say = lambda text: None) -> "Cluster":
        """Everything Ready and all images loaded; what a former one left is removed first."""
        preflight.check()
        self.down()
        self.layout.logs.mkdir(parents=True)
        self.layout.shared.mkdir()
        (self.layout.dir / "settings.json").write_text(json.dumps(asdict(self.settings)))
        cgroups.make_for_tracking(self.layout.name("cp"))
        network.make(self.layout, self.settings.nodes)
        self._pki.make(self.settings.nodes)
        say("starting")
        self.plane.start_store()
        for node in self.nodes:
            node.start()
        with ThreadPoolExecutor(max_workers=8) as pool:
            postgres = pool.submit(self._start_postgres)
            tars = list(pool.map(Image.tar, images.ALL))
            loads = [pool.submit(self._load_on, node, tars) for node in self.nodes]
            self.plane.wait_ready()
            self.plane.start_rest()
            say("API server ready")
            for job in (postgres, *loads):
                job.result()
        say("Postgres ready, images loaded")
        self.wait_nodes()
        say("nodes ready")
        return self

    def _start_postgres(self) -> None:
        self.postgres.create()
        self.postgres.start()

    @staticmethod
    def _load_on(node: Node, tars: Iterable[Path]) -> None:
        node.wait_up()
        for tar in tars:
            node.load(tar)

    def down(self) -> None:
        """Leaves no process, mount, namespace, control group or file."""
        self.__dict__.pop("api", None)
        cleanup.remove(self.layout)

    def leftovers(self) -> list[str]:
        return cleanup.leftovers(self.layout)

    @property
    def programs(self) -> list[Program]:
        return [*self.plane.programs, self.postgres.program, *(node.program for node in self.nodes)]

    # --- asking ------------------------------------------------------------------------------

    @cached_property
    def api(self) -> client.ApiClient:
        """As administrator, from outside: CoreV1Api(cluster.api) and so on."""
        return make_client(self.layout)

    @property
    def core(self) -> client.CoreV1Api:
        return client.CoreV1Api(self.api)

    @property
    def apps(self) -> client.AppsV1Api:
        return client.AppsV1Api(self.api)

    def kubectl(self, *arguments: str | Path, stdin: str | None = None, timeout: float = 120) -> str:
        """What it prints; CommandError when it fails."""
        return self._commands.run("kubectl", *arguments, stdin=stdin, timeout=timeout)

    def helm(self, *arguments: str | Path, stdin: str | None = None, timeout: float = 300) -> str:
        return self._commands.run("helm", *arguments, stdin=stdin, timeout=timeout)

    def command_env(self) -> dict[str, str]:
        """For a kubectl or helm of one's own in the control plane's namespace."""
        return self._commands.env()

    def apply(self, *objects: dict[str, Any]) -> None:
        """kubectl apply of objects as they would be in YAML."""
        tree = {"apiVersion": "v1", "kind": "List", "items": list(objects)}
        self.kubectl("apply", "-f", "-", stdin=json.dumps(tree))

    def inside(self, part: str = "cp") -> AbstractContextManager[None]:
        """The calling thread, its new sockets and new processes are in that namespace: the control plane's,
        which reaches pods by address, or a node's, which reaches services too."""
        return inside(self.layout.namespace(part))

    def run(self, argv: list[str | Path], timeout: float = 120) -> "subprocess.CompletedProcess[str]":
        """A program of the machine in the control plane's namespace, to its end."""
        return run_in(self.layout.namespace("cp"), argv, timeout)

    def spawn(self, name: str, argv: list[str | Path], env: dict[str, str] | None = None) -> Program:
        """A program of the machine in the control plane's namespace that goes on until it is killed or the
        cluster goes down. Its output is in the log folder."""
        program = Program(self.layout, name, argv, env=env or {})
        program.start()
        return program

    # --- nodes and pods ----------------------------------------------------------------------

    def node(self, name: str) -> Node:
        for node in self.nodes:
            if node.name == name:
                return node
        raise LabError(f'no node "{name}": there are {", ".join(n.name for n in self.nodes)}')

    def node_of(self, pod: client.V1Pod) -> Node:
        return self.node(pod.spec.node_name)

    def pod(self, namespace: str, name: str) -> client.V1Pod:
        return self.core.read_namespaced_pod(name, namespace, _request_timeout=10)

    def address(self, pod: client.V1Pod) -> str:
        """Of the pod; its processes may be at work before the kubelet has told it to the API server."""
        meta = pod.metadata

        def told() -> str | None:
            return pod.status.pod_ip or self.pod(meta.namespace, meta.name).status.pod_ip

        return wait_for(f"pod {meta.name} has an address", told, 30, every=0.1)

    def volume(self, pod: client.V1Pod, name: str) -> Path:
        """An emptyDir of a running pod, to read and write from here."""
        return self.node_of(pod).volume(pod.metadata.uid, name)

    def load(self, image: Image) -> None:
        """Makes a newly built image known to all nodes."""
        tar = image.tar()
        for node in self.nodes:
            if node.alive:
                node.load(tar)

    def not_ready(self) -> list[str]:
        """Nodes that can't take pods, each with its reason. A node is Ready up to a second before the
        scheduler may use it: its taint is the last to go."""
        seen = {node.metadata.name: node for node in self.core.list_node(_request_timeout=10).items}
        bad = [f"{node.name}: unknown" for node in self.nodes if node.name not in seen]
        for name, node in seen.items():
            ready = [c.status for c in node.status.conditions or [] if c.type == "Ready"]
            if ready != ["True"]:
                bad.append(f"{name}: Ready is {ready[0] if ready else 'unset'}")
            elif node.spec.taints:
                bad.append(f"{name}: tainted")
        return bad

    def wait_nodes(self, timeout: float = 120) -> None:
        bad: list[str] = []

        def all_ready() -> bool:
            bad[:] = self.not_ready()
            return not bad

        try:
            wait_for("all nodes are Ready", all_ready, timeout, every=0.1)
        except AssertionError as error:
            raise LabError(f"{error}: {'; '.join(bad)}") from None

    def shared_folder(self, namespace: str, name: str, uid: int = images.UID) -> Path:
        """A claim `name` for a volume that is one folder on all nodes and here: pods of whatever level of
        security mount it, and what they write stays when they go."""
        folder = self.layout.shared / namespace / name
        folder.mkdir(parents=True)
        os.chown(folder, uid, uid)
        self.apply(*volumes.shared(namespace, name, folder))
        return folder

    # --- faults ------------------------------------------------------------------------------

    def block(
        self, pod: client.V1Pod, address: str, port: int, how: faults.How = "drop"
    ) -> faults.Block:
        """Cuts a pod off from one address, as the API server's, Postgres' or another pod's; a service is
        known here by the address of its pods."""
        return faults.Block(self.node_of(pod).namespace, self.address(pod), address, port, how)

    def mend(self, timeout: float = 120) -> None:
        """Ends all faults and waits until the cluster is whole: for what comes after a scenario."""
        for node in self.nodes:
            faults.lift_all(node.namespace)
            node.heal()
            if not node.alive:
                node.crash()
                node.start()
        self._mend_programs()
        self.plane.wait_ready(timeout)
        self._mend_clients(timeout)
        self.wait_nodes(timeout)

    def _mend_programs(self) -> None:
        if self.postgres.program.alive:
            self.postgres.resume()
        else:
            self.postgres.start()
        for program in self.plane.programs:
            if not program.alive:
                program.start()
            elif program.paused:
                program.resume()

    def _mend_clients(self, timeout: float) -> None:
        """Whoever has not reached the API server for a while would be slow to ask it again."""
        server = self.plane.apiserver
        cut_off = [node for node in self.nodes if node.was_cut or server.was_away]
        began = datetime.now(UTC).replace(microsecond=0)
        for node in cut_off:
            node.restart_clients()
        if server.was_away:
            for program in (self.plane.controllers, self.plane.scheduler, self.plane.dns):
                program.kill()
                program.start()
        for node in cut_off:
            what = f"the new kubelet of {node.name} reports"
            wait_for(what, lambda node=node: self._heard_of(node) > began, timeout)
            node.was_cut = False
        server.was_away = False

    def _heard_of(self, node: Node) -> datetime:
        status = self.core.read_node(node.name, _request_timeout=10).status
        return next(c.last_heartbeat_time for c in status.conditions if c.type == "Ready")
