# SPDX-License-Identifier: Apache-2.0
"""The cluster itself: what scenarios rely on holds, and its faults do what they say."""

import os
import signal
import subprocess
import sys
import time
import urllib.request
from pathlib import Path

import pytest
from harness.process import signal_pid
from harness.waiting import wait_for
from kubelab import (
    CONTROL_PLANE,
    METAFENCE,
    METASIM,
    POD,
    POSTGRES_PORT,
    Cluster,
    CommandError,
    Database,
    Settings,
    Store,
)
from kubelab.api import make_client
from kubelab.cleanup import processes
from kubelab.fixtures import private_cluster
from kubelab.manifests import container, pod, service
from kubelab.netns import inside
from kubernetes import client
from kubernetes.client.exceptions import ApiException

PORT = 8080
OTHER_PORT = 8081
FAR = ("8.8.8.8", "1.1.1.1", "192.0.2.1")  # never asked, only looked up in the routes


def serve_pods(cluster: Cluster, namespace: str, nodes: list[str], ports: tuple[int, ...] = (PORT,)) -> None:
    """Pods web-NODE below a headless service `web`, each on its node, that say their names."""
    servers = [container(f"p{port}", POD, "serve", f":{port}") for port in ports]
    labels = {"app": "web"}
    cluster.apply(
        service(namespace, "web", labels, PORT, headless=True),
        service(namespace, "any", labels, PORT),
        *(
            pod(
                namespace,
                f"web-{node}",
                *servers,
                labels=labels,
                nodeName=node,
                hostname=f"web-{node}",
                subdomain="web",
            )
            for node in nodes
        ),
    )
    cluster.kubectl("-n", namespace, "wait", "--for=condition=Ready", "pod", "-l", "app=web", "--timeout=60s")


def get(cluster: Cluster, namespace: str, from_pod: str, host: str, port: int = PORT) -> str:
    """What the pod is told by http://host:port/; CommandError when it gets no answer."""
    url = f"http://{host}:{port}/"
    return cluster.kubectl(
        "-n", namespace, "exec", from_pod, "-c", f"p{PORT}", "--", "/usr/bin/pod", "get", url
    ).strip()


def node_ready(cluster: Cluster, name: str) -> str:
    node = cluster.core.read_node(name, _request_timeout=10)
    return next(c.status for c in node.status.conditions if c.type == "Ready")


def test_three_nodes_are_ready(cluster: Cluster) -> None:
    nodes = cluster.core.list_node().items
    assert [n.metadata.name for n in nodes] == ["n1", "n2", "n3"]
    assert {node_ready(cluster, n.metadata.name) for n in nodes} == {"True"}
    assert cluster.not_ready() == []
    assert '"gitVersion": "v1.37.' in cluster.kubectl("get", "--raw", "/version")
    assert "v4." in cluster.helm("version")


def test_pods_reach_each_other_by_name(cluster: Cluster, namespace: str) -> None:
    serve_pods(cluster, namespace, ["n1", "n2"])
    assert get(cluster, namespace, "web-n1", "web-n2.web") == "web-n2"
    full = f"web-n1.web.{namespace}.svc.cluster.local"
    assert get(cluster, namespace, "web-n2", full) == "web-n1"
    answers = {get(cluster, namespace, "web-n1", "any") for _ in range(20)}
    assert answers <= {"web-n1", "web-n2"}, "the service answers with its pods"
    with pytest.raises(CommandError, match="no such host"):
        get(cluster, namespace, "web-n1", "web-n3.web")


def test_pod_security_is_enforced(cluster: Cluster, namespace: str) -> None:
    plain = pod(namespace, "plain", container("c", POD, "pause", securityContext={}))
    with pytest.raises(CommandError, match='violates PodSecurity "restricted'):
        cluster.apply(plain)


def test_a_cut_node_is_not_ready_and_heals(cluster: Cluster, namespace: str) -> None:
    serve_pods(cluster, namespace, ["n1", "n2"])
    ip = cluster.pod(namespace, "web-n2").status.pod_ip
    node = cluster.node("n2")
    node.cut()
    assert node.is_cut
    with pytest.raises(CommandError):
        get(cluster, namespace, "web-n1", ip)
    wait_for("n2 is Unknown", lambda: node_ready(cluster, "n2") == "Unknown", 40)
    with cluster.inside("n2"), urllib.request.urlopen(f"http://{ip}:{PORT}/", timeout=5) as told:
        assert told.read() == b"web-n2\n", "its pods go on"
    node.heal()
    cluster.wait_nodes(60)


def test_a_node_that_lost_its_power_boots_again(cluster: Cluster, namespace: str) -> None:
    serve_pods(cluster, namespace, ["n3"])
    node = cluster.node("n3")
    node.crash()
    assert not node.alive
    wait_for("n3 is Unknown", lambda: node_ready(cluster, "n3") == "Unknown", 40)
    node.start()
    cluster.wait_nodes(60)
    serve_pods(cluster, namespace, ["n1", "n3"])  # n3's own may be gone or restarted
    assert get(cluster, namespace, "web-n1", "web-n3.web") == "web-n3"


@pytest.mark.parametrize(
    ("how", "error"),
    [("drop", "Timeout"), ("replies", "Timeout"), ("requests", "Timeout"), ("reset", "refused")],
)
def test_one_pod_is_blocked_from_one_port(cluster: Cluster, namespace: str, how: str, error: str) -> None:
    serve_pods(cluster, namespace, ["n1", "n2", "n3"], (PORT, OTHER_PORT))
    target = cluster.pod(namespace, "web-n2").status.pod_ip
    with cluster.block(cluster.pod(namespace, "web-n1"), target, PORT, how):
        with pytest.raises(CommandError, match=error):
            get(cluster, namespace, "web-n1", target)
        assert get(cluster, namespace, "web-n1", target, OTHER_PORT) == "web-n2"
        assert get(cluster, namespace, "web-n3", target) == "web-n2"
    assert get(cluster, namespace, "web-n1", target) == "web-n2"


def test_nothing_leads_out_of_the_machine(cluster: Cluster, namespace: str) -> None:
    serve_pods(cluster, namespace, ["n1", "n2", "n3"])
    for part in ("cp", "n1", "n2", "n3"):
        assert is_shut_in(part, cluster.layout.namespace(part))
    for node in cluster.nodes:
        pods = list(node.path("/run/netns").glob("cni-*"))
        assert any([is_shut_in(f"a pod on {node.name}", pod) for pod in pods]), f"{node.name} has a pod"


def is_shut_in(place: str, path: Path) -> bool:
    """False: it has just gone, with a pod of the test before."""
    for address in FAR:
        try:
            with inside(path):
                done = subprocess.run(["ip", "route", "get", address], capture_output=True, text=True)
        except OSError:
            wait_for(f"{path} is gone", lambda: not path.exists(), 10)
            return False
        assert done.returncode != 0 and "unreachable" in done.stderr, f"{place}: {done.stdout}"
    return True


def test_a_stopped_api_server_hangs_and_a_killed_one_comes_back(cluster: Cluster) -> None:
    server = cluster.plane.apiserver
    server.pause()
    assert server.paused and not cluster.plane.is_ready()
    server.resume()
    wait_for("it answers again", cluster.plane.is_ready, 30)
    server.kill()
    assert not server.alive and not cluster.plane.is_ready()
    server.start()
    cluster.plane.wait_ready()
    assert cluster.core.read_namespace("default").metadata.name == "default"


def test_the_audit_log_counts_what_a_pod_writes(cluster: Cluster, namespace: str) -> None:
    serve_pods(cluster, namespace, ["n1"])
    mark = cluster.audit.mark()
    cluster.kubectl("-n", namespace, "create", "role", "own", "--verb=get,patch", "--resource=pods")
    account = f"--serviceaccount={namespace}:default"
    cluster.kubectl("-n", namespace, "create", "rolebinding", "own", "--role=own", account)
    bound = ("--bound-object-kind=Pod", "--bound-object-name=web-n1")
    token = cluster.kubectl("-n", namespace, "create", "token", "default", *bound).strip()
    pods = client.CoreV1Api(make_client(cluster.layout, token))

    def may_read() -> bool:
        try:
            return pods.read_namespaced_pod("web-n1", namespace) is not None
        except ApiException as error:
            assert error.status == 403
            return False

    wait_for("the role is in force", may_read, 10)
    body = {"metadata": {"labels": {"seen": "yes"}}}
    pods.patch_namespaced_pod("web-n1", namespace, body)
    with pytest.raises(ApiException) as refused:
        pods.delete_namespaced_pod("web-n1", namespace)
    assert refused.value.status == 403
    writes = cluster.audit.writes(mark, pod="web-n1", namespace=namespace)
    assert [(w.verb, w.resource, w.code) for w in writes] == [("patch", "pods", 200), ("delete", "pods", 403)]
    assert cluster.audit.count(mark, pod="web-n1")[("get", "pods", 200)] == 1


def test_a_meta_leads_with_the_cluster_s_postgres(
    cluster: Cluster, namespace: str, database: Database
) -> None:
    env = {
        "RW_SQL_ENDPOINT": database.endpoint,
        "RW_SQL_DATABASE": database.name,
        "RW_SQL_USERNAME": database.user,
        "RW_SQL_PASSWORD": database.password,
        "RW_ADVERTISE_ADDR": "meta-0.meta:5690",
        "RW_LISTEN_ADDR": "0.0.0.0:5690",
        "RW_PROMETHEUS_HOST": "0.0.0.0:1250",
        "RW_DASHBOARD_HOST": "0.0.0.0:5691",
    }
    folder = cluster.shared_folder(namespace, "witness")
    meta = container(
        "meta",
        METASIM,
        "meta-node",
        "--lease=10s",
        "--witness=/witness/meta-0",
        env=[{"name": k, "value": v} for k, v in env.items()],
        volumeMounts=[{"name": "witness", "mountPath": "/witness"}],
    )
    claim = {"name": "witness", "persistentVolumeClaim": {"claimName": "witness"}}
    cluster.apply(pod(namespace, "meta-0", meta, volumes=[claim]))
    wait_for("it is elected", lambda: database.owner() == "meta-0.meta:5690", 60)
    wait_for("its witness file is here", lambda: "elected" in (folder / "meta-0").read_text(), 10)
    with cluster.block(cluster.pod(namespace, "meta-0"), CONTROL_PLANE, POSTGRES_PORT):
        newest = "SELECT max(seq) FROM witness.renewal"
        before = database.sql(newest)
        stays = time.monotonic() + 3
        wait_for("three seconds", lambda: time.monotonic() > stays, 5)
        assert database.sql(newest)[0][0] <= before[0][0] + 1, "at most the one on its way has arrived"


def test_metafence_s_image_runs(cluster: Cluster, namespace: str) -> None:
    cluster.apply(pod(namespace, "version", container("c", METAFENCE, "version"), restartPolicy="Never"))
    succeeded = "--for=jsonpath={.status.phase}=Succeeded"
    cluster.kubectl("-n", namespace, "wait", succeeded, "pod/version", "--timeout=60s")
    assert "metafence" in cluster.kubectl("-n", namespace, "logs", "version")


def test_a_store_keeps_its_data_when_its_pod_is_deleted(cluster: Cluster, namespace: str) -> None:
    store = Store(cluster, namespace).create()
    store.sql("INSERT INTO election_leader VALUES ('s', 'me', now())")
    old = cluster.pod(namespace, store.pod_name).metadata.uid
    store.force_delete()

    def replaced() -> bool:
        try:
            return cluster.pod(namespace, store.pod_name).metadata.uid != old
        except ApiException:
            return False

    wait_for("there is another pod", replaced, 30)
    store.wait_ready()
    assert store.owner() == "me"


ONE_NODE = Settings(nodes=1)
UP = "from kubelab import Cluster, Settings; Cluster({!r}, Settings(nodes=1)).up()"


def start_up(cluster: Cluster) -> "subprocess.Popen[bytes]":
    """up() by another program, which can be killed."""
    env = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    return subprocess.Popen([sys.executable, "-c", UP.format(cluster.layout.prefix)], env=env)


@pytest.mark.long
def test_up_works_after_whatever_was_left() -> None:
    """Killed half way, then all processes killed, then the run folder lost; down leaves nothing."""
    with private_cluster(ONE_NODE) as cluster:
        other = start_up(cluster)
        wait_for("it has begun", lambda: cluster.plane.apiserver.alive and cluster.nodes[0].alive, 60)
        other.kill()
        other.wait()
        assert processes(cluster.layout), "the programs do not end with the one that started them"

        cluster.up()
        for pid in processes(cluster.layout):
            signal_pid(pid, signal.SIGKILL)
        cluster.up()
        subprocess.run(["rm", "-rf", cluster.layout.dir], check=True)
        cluster.up()
        assert cluster.not_ready() == []
        kinds = {line.split()[0] for line in cluster.leftovers()}
        assert kinds >= {"process", "namespace", "control", "folder"}, "what is there is seen"

        cluster.down()
        assert cluster.leftovers() == []
        cluster.down()
