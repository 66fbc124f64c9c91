# SPDX-License-Identifier: Apache-2.0
"""A Postgres in a pod, as small installations have their meta store: its data outlives it on a shared
volume, so that the pod can be deleted by force and come back."""

import os
import shutil
from typing import Any

from harness.paths import postgres_bin
from harness.waiting import wait_for
from psycopg import OperationalError

from .cluster import Cluster
from .images import POSTGRES, UID
from .layout import DOMAIN, EVERYTHING, POSTGRES_PORT, LabError
from .manifests import POD_SECURITY, container, service
from .postgres import Access, make_data
from .programs import run_tracked

MOUNT = "/data"
ACCESS = f"local all all trust\nhost all all {EVERYTHING} scram-sha-256\n"
SETTINGS = {
    "listen_addresses": "*",
    "unix_socket_directories": MOUNT,  # on the volume: tests find it there
    "unix_socket_permissions": "0777",
    "fsync": "off",
    "full_page_writes": "off",
    "shared_buffers": "16MB",
    "dynamic_shared_memory_type": "mmap",  # in its own folder, which goes with it
    "max_connections": "200",
    "log_line_prefix": "%m [%p] %d %a ",
}


class Store(Access):
    """StatefulSet and service `name`, one pod `name`-0, database and owner "meta"."""

    def __init__(self, cluster: Cluster, namespace: str, name: str = "store") -> None:
        folder = cluster.layout.shared / namespace / name
        super().__init__(f"{name}.{namespace}.svc.{DOMAIN}", "meta", folder)
        self.cluster, self.namespace, self.service, self.folder = cluster, namespace, name, folder

    @property
    def pod_name(self) -> str:
        return f"{self.service}-0"

    def create(self, witness: bool = True) -> "Store":
        self.cluster.shared_folder(self.namespace, self.service)
        self._make_data()
        selector = {"app": self.service}
        self.cluster.apply(
            service(self.namespace, self.service, selector, POSTGRES_PORT), self._stateful_set(selector)
        )
        self.wait_ready()
        self.install_election(witness)
        return self

    def _make_data(self) -> None:
        """Role and database are made by a server without connections, as there is no pod yet."""
        data = self.folder / "data"
        make_data(self.cluster.layout, data, SETTINGS, ACCESS)
        role = f"CREATE ROLE {self.user} LOGIN PASSWORD '{self.password}';"
        postgres = [postgres_bin("postgres"), "--single", "-j", "-D", data, "postgres"]
        database = f"CREATE DATABASE {self.name} OWNER {self.user};"
        done = run_tracked(self.cluster.layout, postgres, "postgres", f"{role}\n\n{database}\n\n")
        if done.returncode != 0 or "ERROR" in done.stderr:
            raise LabError(f"postgres --single: exit {done.returncode}: {done.stderr.strip()}")
        for folder, folders, files in os.walk(data):
            for entry in (*folders, *files):
                os.lchown(os.path.join(folder, entry), UID, UID)
        shutil.chown(data, UID, UID)

    def _stateful_set(self, selector: dict[str, str]) -> dict[str, Any]:
        ready = {"exec": {"command": ["/usr/bin/pg_isready", "-h", "127.0.0.1"]}, "periodSeconds": 1}
        server = container(
            "postgres",
            POSTGRES,
            "-D",
            f"{MOUNT}/data",
            readinessProbe=ready,
            volumeMounts=[{"name": "data", "mountPath": MOUNT}],
        )
        claim = {"name": "data", "persistentVolumeClaim": {"claimName": self.service}}
        spec = {
            "securityContext": POD_SECURITY,
            "terminationGracePeriodSeconds": 5,
            "containers": [server],
            "volumes": [claim],
        }
        return {
            "apiVersion": "apps/v1",
            "kind": "StatefulSet",
            "metadata": {"name": self.service, "namespace": self.namespace},
            "spec": {
                "replicas": 1,
                "serviceName": self.service,
                "selector": {"matchLabels": selector},
                "template": {"metadata": {"labels": selector}, "spec": spec},
            },
        }

    def wait_ready(self, timeout: float = 60) -> None:
        def answers() -> bool:
            try:
                self.connect().close()
                return True
            except OperationalError:
                return False

        wait_for(f"{self.pod_name} answers", answers, timeout)

    def scale(self, replicas: int) -> None:
        self.cluster.kubectl("-n", self.namespace, "scale", f"sts/{self.service}", f"--replicas={replicas}")

    def force_delete(self) -> None:
        """kubectl delete pod --force: the object is gone at once. Unless scaled to 0 the next one starts."""
        self.cluster.kubectl(
            "-n", self.namespace, "delete", "pod", self.pod_name, "--force", "--grace-period=0"
        )
