# SPDX-License-Identifier: Apache-2.0
"""The image's agent among two of build/gcc: the same judgment, labels over HTTPS and HTTP/2, the handoff of
rw#8238, a copy of metafence-run for meta's container, and less memory."""

import subprocess
from pathlib import Path
from typing import Any

import pytest
from container import METAFENCE, UID, Container
from harness import Cluster, Lab, Pod, results, wait_for
from harness.postgres import PASSWORD
from harness.process import descendants
from kube import Kube, supersede
from layout import Layout
from measures import Use
from secure import Authority, SecureApi, switch_tls_on

RSS_MAX_KIB = 6 * 1024


def contain_agent(pod: Pod, container: Container) -> None:
    """From now on its agent is the image's. metafence-run, of root here, takes orders of that user alone."""
    pod.run_flags.append(f"--peer-uid={UID}")

    def start(password: str | None = PASSWORD) -> None:
        argv = container.argv(METAFENCE, "agent", "--config", pod.write_config())
        env = {"PGPASSWORD": password or "", "METAFENCE_RUN": str(pod.dir / "metafence-run")}
        pod.agent = pod.lab.spawn(f"{pod.name}/agent", argv, pod.agent_log.path, env)

    pod.start_agent = start  # type: ignore[method-assign]


def agent_pid(pod: Pod) -> int:
    assert pod.agent is not None
    return [pod.agent.pid, *descendants(pod.agent.pid)][-1]


class Scene:
    """m1 has the image's agent, m2 and m3 those of build/gcc; all speak TLS to Postgres and the API."""

    def __init__(self, lab: Lab, root: Path) -> None:
        authority = Authority(lab.dir / "authority")

        def cluster(**options: Any) -> Cluster:
            made = Cluster(lab, ttl=10, **options)
            switch_tls_on(made.postgres, authority)
            return made

        self.kube = Kube(lab, cluster)
        self.api = SecureApi(lab, authority, self.kube.api.url)
        for pod in self.kube.pods:
            token = pod.dir / "token"
            token.write_text(self.kube.api.token)
            ca = pod.dir / "ca.crt"
            ca.write_text(authority.file.read_text())
            pod.config["postgres"] |= {"sslmode": "verify-full", "sslRootCert": str(ca)}
            pod.config["kubernetes"] |= {"server": self.api.url, "caFile": str(ca), "tokenFile": str(token)}
        self.ours = self.kube.pods[0]
        self.ours.config["postgres"]["host"] = "localhost"  # of the container's /etc/hosts
        self.container = Container(lab, root, self.ours.dir)
        contain_agent(self.ours, self.container)


@pytest.fixture
def scene(lab: Lab, root: Path):
    made = Scene(lab, root)
    yield made
    made.kube.api.close()


def test_as_an_agent(scene: Scene, layout: Layout) -> None:
    ours, kube = scene.ours, scene.kube
    old = kube.start()
    assert old is ours
    status = Path(f"/proc/{agent_pid(ours)}/status").read_text()
    assert f"Uid:\t{UID}\t{UID}\t{UID}\t{UID}" in status
    assert "CapEff:\t0000000000000000" in status

    # What meta's container runs, from the shared volume alone.
    copy = ours.dir / "metafence-run"
    said = subprocess.run(["chroot", ours.dir, "/metafence-run", "--version"], capture_output=True, text=True)
    assert said.returncode == 0 and layout.version in said.stdout, said
    assert copy.read_bytes() == (scene.container.root / "usr/bin/metafence-run").read_bytes()

    supersede(kube, old)
    wait_for("the old leader was killed", lambda: old.kills() >= 1, 30)
    leader = kube.cluster.wait_converged(60)
    kube.wait_labels(leader, 30)
    tls = kube.cluster.postgres.sql(
        "SELECT DISTINCT ssl FROM pg_stat_ssl JOIN pg_stat_activity USING (pid)"
        " WHERE application_name LIKE 'metafence%%' AND client_addr IS NOT NULL"
    )
    assert (True,) in tls
    protocols = {line.split()[0] for line in scene.api.lines()}
    assert protocols == {"HTTP/2.0", "HTTP/1.1"}, "requests share one connection, a watch has its own"


def test_memory_beside_build_gcc(scene: Scene) -> None:
    """In one run, once each has given back what only its start needed; PSS shares the code."""
    kube = scene.kube
    kube.start()

    def sizes() -> list[Use] | None:
        """Of image and build/gcc."""
        uses = [Use.of(agent_pid(pod)) for pod in kube.pods[:2]]
        return uses if uses[0].rss <= RSS_MAX_KIB else None

    image, other = wait_for(f"the image's agent has {RSS_MAX_KIB} KiB or less", sizes, 150)
    lines = [f"{'agent, KiB':12}{'RSS':>8}{'PSS':>8}"]
    lines += [f"{name:12}{use.rss:8}{use.pss:8}" for name, use in (("image", image), ("build/gcc", other))]
    results.keep("image-memory", lines, lines)
    print(*lines, sep="\n")
    assert image.rss <= other.rss + 1024
