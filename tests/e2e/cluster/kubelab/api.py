# SPDX-License-Identifier: Apache-2.0
"""The Kubernetes client, kubectl and helm, each reaching into the control plane's namespace."""

from pathlib import Path

import urllib3
from kubernetes import client, config

from .layout import Layout
from .netns import inside
from .programs import run_in


class CommandError(AssertionError):
    """kubectl or helm ended with a status other than 0; the text has what it said."""


def _pool_through(namespace: Path) -> type[urllib3.HTTPSConnectionPool]:
    """Connections that are made in the namespace, by whatever thread."""

    class Connection(urllib3.connection.HTTPSConnection):
        def _new_conn(self):  # type: ignore[no-untyped-def]
            with inside(namespace):
                return super()._new_conn()

    class Pool(urllib3.HTTPSConnectionPool):
        ConnectionCls = Connection

    return Pool


def make_client(layout: Layout, token: str = "") -> client.ApiClient:
    """As administrator, or as whose token it is; usable from outside. A request has no time limit of its
    own: give _request_timeout where the server may be slow."""
    settings = client.Configuration()
    config.load_kube_config(str(layout.admin_config), client_configuration=settings)
    if token:
        settings.cert_file = settings.key_file = None
        settings.api_key = {"authorization": f"Bearer {token}"}
    settings.proxy = None
    api = client.ApiClient(settings)
    pool = _pool_through(layout.namespace("cp"))
    api.rest_client.pool_manager.pool_classes_by_scheme = {"https": pool}
    return api


class Commands:
    def __init__(self, layout: Layout, programs: Path) -> None:
        self._layout, self._bin = layout, programs

    def env(self) -> dict[str, str]:
        helm = self._layout.dir / "helm"
        homes = {f"HELM_{kind.upper()}_HOME": str(helm / kind) for kind in ("cache", "config", "data")}
        path = f"{self._bin}:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
        return {"KUBECONFIG": str(self._layout.admin_config), "PATH": path, **homes}

    def run(
        self, program: str, *arguments: str | Path, stdin: str | None = None, timeout: float = 120
    ) -> str:
        """What it prints; CommandError on any other status than 0."""
        argv: list[str | Path] = [self._bin / program, *arguments]
        done = run_in(self._layout.namespace("cp"), argv, timeout, stdin, self.env())
        if done.returncode != 0:
            call = " ".join(map(str, [program, *arguments]))
            raise CommandError(f"{call}: exit {done.returncode}: {done.stdout}{done.stderr}".strip())
        return done.stdout
