# SPDX-License-Identifier: Apache-2.0
"""Certificates of one cluster, made anew at each start, and the kubeconfigs that name them."""

import json
import subprocess
from pathlib import Path

from .layout import API_PORT, CONTROL_PLANE, DOMAIN, FIRST_SERVICE, LabError, Layout, node_ip, node_name

DAYS = "30"
NEW_KEY = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-days", DAYS]

CONFIG = """
[req]
distinguished_name = name
prompt = no
[name]
[authority]
basicConstraints = critical, CA:true
keyUsage = critical, keyCertSign, cRLSign
[leaf]
basicConstraints = CA:false
extendedKeyUsage = serverAuth, clientAuth
"""

API_NAMES = [
    "DNS:kubernetes",
    "DNS:kubernetes.default",
    "DNS:kubernetes.default.svc",
    f"DNS:kubernetes.default.svc.{DOMAIN}",
    "DNS:localhost",
    f"IP:{CONTROL_PLANE}",
    f"IP:{FIRST_SERVICE}",
    "IP:127.0.0.1",
]

# Who, with which subject. The API server grants by these names.
CLIENTS = {
    "admin": "/O=system:masters/CN=admin",
    "apiserver-client": "/O=system:masters/CN=apiserver",
    "controller-manager": "/CN=system:kube-controller-manager",
    "scheduler": "/CN=system:kube-scheduler",
    "proxy": "/CN=system:kube-proxy",
    "coredns": "/O=system:masters/CN=coredns",
}


class Pki:
    def __init__(self, layout: Layout) -> None:
        self.layout = layout
        self.dir = layout.pki
        self._signer = "ca"  # who signs the API server's certificate

    def key(self, name: str) -> Path:
        return self.dir / f"{name}.key"

    def cert(self, name: str) -> Path:
        return self.dir / f"{name}.crt"

    @property
    def authority(self) -> Path:
        return self.cert("ca")

    def make(self, nodes: int) -> None:
        self.dir.mkdir(mode=0o700)
        (self.dir / "openssl.cnf").write_text(CONFIG)
        _finish([self._start_request("ca", "/CN=kubelab", "authority")])
        leaves = [self._start_leaf("apiserver", "/CN=kube-apiserver", API_NAMES)]
        leaves += [self._start_leaf(name, subject, [f"DNS:{name}"]) for name, subject in CLIENTS.items()]
        for index in range(1, nodes + 1):
            name = node_name(index)
            subject = f"/O=system:nodes/CN=system:node:{name}"
            leaves.append(self._start_leaf(name, subject, [f"DNS:{name}", f"IP:{node_ip(index)}"]))
        _finish(leaves)
        self._make_service_account_key()
        for name in [*CLIENTS, *(node_name(i) for i in range(1, nodes + 1))]:
            self._write_kubeconfig(name)

    def _start_request(self, name: str, subject: str, section: str, *more: str) -> "subprocess.Popen[str]":
        argv = ["openssl", "req", "-x509", "-config", str(self.dir / "openssl.cnf"), "-extensions", section]
        argv += [*NEW_KEY, "-subj", subject, *more]
        argv += ["-keyout", str(self.key(name)), "-out", str(self.cert(name))]
        return subprocess.Popen(argv, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)

    def _start_leaf(self, name: str, subject: str, names: list[str]) -> "subprocess.Popen[str]":
        signer = ["-CA", str(self.cert(self._signer)), "-CAkey", str(self.key(self._signer))]
        alternatives = f"subjectAltName={','.join(names)}"
        return self._start_request(name, subject, "leaf", *signer, "-addext", alternatives)

    def _make_service_account_key(self) -> None:
        key, public = self.key("service-account"), self.dir / "service-account.pub"
        curve = ["-algorithm", "EC", "-pkeyopt", "ec_paramgen_curve:P-256"]
        subprocess.run(["openssl", "genpkey", *curve, "-out", key], check=True, capture_output=True)
        argv = ["openssl", "pkey", "-in", key, "-pubout", "-out", public]
        subprocess.run(argv, check=True, capture_output=True)

    # --- rotation: each step takes effect when who reads the file reads it again ------------------

    def add_authority(self) -> None:
        """Another one beside those that are trusted: what it signs is good for whoever has read `authority`
        since. Clients keep their certificates of the first."""
        number = len(list(self.dir.glob("ca*.key"))) + 1
        self._signer = f"ca-{number}"
        _finish([self._start_request(self._signer, f"/CN=kubelab {number}", "authority")])
        _replace(self.authority, self.authority.read_text() + self.cert(self._signer).read_text())

    def renew_server(self) -> None:
        """A certificate for the API server by the newest authority."""
        _finish([self._start_leaf("apiserver", "/CN=kube-apiserver", API_NAMES)])

    def add_service_account_key(self) -> None:
        """Signs tokens from now on; those of the former are still good."""
        public = self.dir / "service-account.pub"
        former = public.read_text()
        self._make_service_account_key()
        _replace(public, public.read_text() + former)

    def drop_former_service_account_keys(self) -> None:
        public = self.dir / "service-account.pub"
        end = "-----END PUBLIC KEY-----\n"
        _replace(public, public.read_text().partition(end)[0] + end)

    def _write_kubeconfig(self, name: str) -> None:
        server = f"https://{CONTROL_PLANE}:{API_PORT}"
        tree = {
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [
                {"name": "lab", "cluster": {"server": server, "certificate-authority": str(self.authority)}}
            ],
            "users": [
                {
                    "name": name,
                    "user": {
                        "client-certificate": str(self.cert(name)),
                        "client-key": str(self.key(name)),
                    },
                }
            ],
            "contexts": [{"name": "lab", "context": {"cluster": "lab", "user": name}}],
            "current-context": "lab",
        }
        path = self.layout.kubeconfig(name)
        path.touch(mode=0o600)
        path.write_text(json.dumps(tree, indent=1))


def _replace(path: Path, text: str) -> None:
    """Never half a file for who reads it at this moment."""
    new = path.with_suffix(".new")
    new.write_text(text)
    new.rename(path)


def _finish(started: "list[subprocess.Popen[str]]") -> None:
    for process in started:
        _, text = process.communicate(timeout=60)
        if process.returncode != 0:
            raise LabError(f"openssl: exit {process.returncode}: {text.strip()}")
