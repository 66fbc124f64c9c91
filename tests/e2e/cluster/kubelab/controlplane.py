# SPDX-License-Identifier: Apache-2.0
"""etcd, API server, controllers, scheduler and DNS as plain processes in one network namespace."""

import json
import ssl
import urllib.request
from pathlib import Path

from harness.waiting import wait_for

from .layout import API_PORT, CONTROL_PLANE, DOMAIN, SERVICES, LabError, Layout
from .netns import inside
from .pki import Pki
from .programs import Program
from .settings import Settings

ETCD = "http://127.0.0.1:2379"

# What pods ask and write, each request once; the cluster's own parts would only fill the file.
AUDIT_POLICY = {
    "apiVersion": "audit.k8s.io/v1",
    "kind": "Policy",
    "omitStages": ["RequestReceived"],
    "rules": [{"level": "Metadata", "userGroups": ["system:serviceaccounts"]}, {"level": "None"}],
}

# Names of pods and services are forgotten within a second, as tests look at their moves. There is no other
# name in the world: the search lists of pods end in a question for it.
COREFILE = """
{domain}:53 {{
    bind {address}
    errors
    health 127.0.0.1:8081
    ready 127.0.0.1:8181
    kubernetes {domain} {{
        kubeconfig {config}
        ttl 1
    }}
}}
.:53 {{
    bind {address}
    template ANY ANY {{
        rcode NXDOMAIN
    }}
}}
"""


class ControlPlane:
    def __init__(self, layout: Layout, settings: Settings, programs: Path, pki: Pki) -> None:
        self.layout, self.settings, self.pki = layout, settings, pki
        self._bin = programs
        self.etcd = self._program("etcd", self._etcd_flags())
        self.apiserver = self._program("kube-apiserver", self._apiserver_flags())
        self.controllers = self._program("kube-controller-manager", self._controllers_flags())
        self.scheduler = self._program("kube-scheduler", self._scheduler_flags())
        self.dns = self._program("coredns", ["-conf", str(layout.dir / "Corefile")])

    @property
    def programs(self) -> list[Program]:
        return [self.etcd, self.apiserver, self.controllers, self.scheduler, self.dns]

    def start_store(self) -> None:
        """etcd and the API server; the rest needs it ready."""
        (self.layout.dir / "audit-policy.json").write_text(json.dumps(AUDIT_POLICY))
        config = self.layout.kubeconfig("coredns")
        corefile = COREFILE.format(address=CONTROL_PLANE, domain=DOMAIN, config=config)
        (self.layout.dir / "Corefile").write_text(corefile)
        self.etcd.start()
        self.apiserver.start()

    def start_rest(self) -> None:
        for program in (self.controllers, self.scheduler, self.dns):
            program.start()

    def is_ready(self) -> bool:
        """Does the API server say so?"""
        context = ssl.create_default_context(cafile=str(self.pki.authority))
        context.load_cert_chain(self.pki.cert("admin"), self.pki.key("admin"))
        opener = urllib.request.build_opener(
            urllib.request.ProxyHandler({}), urllib.request.HTTPSHandler(context=context)
        )
        try:
            with inside(self.layout.namespace("cp")):
                with opener.open(f"https://{CONTROL_PLANE}:{API_PORT}/readyz", timeout=5) as answer:
                    return answer.status == 200
        except OSError:
            return False

    def wait_ready(self, timeout: float = 120) -> None:
        def ready() -> bool:
            for program in (self.etcd, self.apiserver):
                if not program.alive:
                    raise LabError(f"{program.name} ended; {program.log} says:\n{program.log_tail()}")
            return self.is_ready()

        wait_for("the API server is ready", ready, timeout, every=0.1)

    def _program(self, name: str, flags: list[str]) -> Program:
        return Program(self.layout, name, [self._bin / name, *flags])

    def _etcd_flags(self) -> list[str]:
        return [
            f"--data-dir={self.layout.dir / 'etcd'}",
            f"--listen-client-urls={ETCD}",
            f"--advertise-client-urls={ETCD}",
            "--listen-peer-urls=http://127.0.0.1:2380",
            "--unsafe-no-fsync",
        ]

    def _apiserver_flags(self) -> list[str]:
        pki, toleration = self.pki, self.settings.toleration_s
        return [
            f"--etcd-servers={ETCD}",
            f"--bind-address={CONTROL_PLANE}",
            f"--advertise-address={CONTROL_PLANE}",
            f"--secure-port={API_PORT}",
            f"--tls-cert-file={pki.cert('apiserver')}",
            f"--tls-private-key-file={pki.key('apiserver')}",
            f"--client-ca-file={pki.authority}",
            f"--kubelet-client-certificate={pki.cert('apiserver-client')}",
            f"--kubelet-client-key={pki.key('apiserver-client')}",
            "--kubelet-preferred-address-types=InternalIP",  # a node's name is in no DNS
            "--service-account-issuer=https://kubernetes.default.svc",
            f"--service-account-key-file={pki.dir / 'service-account.pub'}",
            f"--service-account-signing-key-file={pki.key('service-account')}",
            f"--service-cluster-ip-range={SERVICES}",
            "--authorization-mode=Node,RBAC",
            "--enable-admission-plugins=NodeRestriction",
            "--allow-privileged=true",
            "--profiling=false",
            f"--default-not-ready-toleration-seconds={toleration}",
            f"--default-unreachable-toleration-seconds={toleration}",
            f"--audit-policy-file={self.layout.dir / 'audit-policy.json'}",
            f"--audit-log-path={self.layout.audit_log}",
            "--audit-log-maxsize=10000",  # MB: never a second file
        ]

    def _controllers_flags(self) -> list[str]:
        return [
            f"--kubeconfig={self.layout.kubeconfig('controller-manager')}",
            f"--service-account-private-key-file={self.pki.key('service-account')}",
            f"--root-ca-file={self.pki.authority}",
            "--use-service-account-credentials=true",
            "--leader-elect=false",
            "--controllers=*,-node-ipam-controller",  # the ranges of pods are given
            "--node-monitor-period=1s",
            f"--node-monitor-grace-period={self.settings.grace_s}s",
            "--kube-api-qps=100",
            "--kube-api-burst=200",
            "--profiling=false",
        ]

    def _scheduler_flags(self) -> list[str]:
        return [f"--kubeconfig={self.layout.kubeconfig('scheduler')}", "--leader-elect=false"]
