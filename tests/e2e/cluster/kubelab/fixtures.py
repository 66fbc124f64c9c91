# SPDX-License-Identifier: Apache-2.0
"""What the fixtures of pytest are made of: a cluster for each worker, a namespace and a database for each
test, and the evidence when one fails."""

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from harness.paths import REPO
from harness.waiting import wait_for
from kubernetes import client
from kubernetes.client.exceptions import ApiException

from .api import CommandError
from .cluster import Cluster
from .layout import LabError, claim, release, root_dir
from .settings import Settings
from .volumes import NAMESPACE_LABEL

WORKERS = 16
PREFIXES = [f"mfw{number}" for number in range(WORKERS)]
RESULTS = REPO / "build" / "results" / "cluster"


@contextmanager
def private_cluster(settings: Settings | None = None) -> Iterator[Cluster]:
    """A cluster with a prefix that no other worker or test run has; not yet up, and down in the end. Its
    logs are kept in RESULTS when the block fails."""
    for prefix in PREFIXES:
        held = claim(prefix)
        if held is not None:
            break
    else:
        raise LabError(f"{WORKERS} clusters are in use: locks in {root_dir()}")
    cluster = Cluster(prefix, settings)
    try:
        yield cluster
    except BaseException:
        keep_logs(cluster)
        raise
    finally:
        cluster.down()
        release(prefix, held)


def keep_logs(cluster: Cluster) -> Path:
    """Copies them out of the run folder, which goes with the cluster."""
    target = RESULTS / cluster.layout.prefix
    shutil.rmtree(target, ignore_errors=True)
    if cluster.layout.logs.exists():
        shutil.copytree(cluster.layout.logs, target)
    return target


def make_namespace(cluster: Cluster, name: str, level: str) -> None:
    """One that holds its pods to a level of pod security, ready to take some: the account that pods run
    as by default comes a little later than its namespace."""
    labels = {"pod-security.kubernetes.io/enforce": level}
    cluster.core.create_namespace(client.V1Namespace(metadata=client.V1ObjectMeta(name=name, labels=labels)))

    def has_account() -> bool:
        try:
            cluster.core.read_namespaced_service_account("default", name)
            return True
        except ApiException as error:
            if error.status != 404:
                raise
            return False

    wait_for(f"namespace {name} has its default service account", has_account, 20)


def drop_namespace(cluster: Cluster, name: str) -> None:
    """Goes on behind our back. Its volumes belong to no namespace."""
    cluster.core.delete_namespace(name, grace_period_seconds=0)
    cluster.core.delete_collection_persistent_volume(label_selector=f"{NAMESPACE_LABEL}={name}")


def save_evidence(cluster: Cluster, namespace: str) -> Path:
    """What a person would ask first after a failure, in one folder of the namespace's name."""
    target = RESULTS / namespace
    shutil.rmtree(target, ignore_errors=True)
    target.mkdir(parents=True)
    here = ("-n", namespace)
    questions = {
        "pods": ("get", "pods", *here, "-o", "wide", "--show-labels"),
        "pods.yaml": ("get", "pods", *here, "-o", "yaml"),
        "events": ("get", "events", *here, "--sort-by=.metadata.creationTimestamp"),
        "nodes": ("get", "nodes", "-o", "wide"),
    }
    for file, question in questions.items():
        _save(cluster, target / file, *question)
    try:
        pods = cluster.core.list_namespaced_pod(namespace, _request_timeout=10).items
    except Exception as error:  # the API server may be the one that is broken
        (target / "pods").write_text(f"{error}\n")
        return target
    for pod in pods:
        name = pod.metadata.name
        for container in [*(pod.spec.init_containers or []), *pod.spec.containers]:
            source = ("logs", *here, name, "-c", container.name)
            _save(cluster, target / f"{name}-{container.name}.log", *source)
            _save(cluster, target / f"{name}-{container.name}-before.log", *source, "--previous")
    return target


def _save(cluster: Cluster, path: Path, *question: str) -> None:
    try:
        path.write_text(cluster.kubectl(*question, "--request-timeout=10s", timeout=20))
    except CommandError as error:
        if "previous terminated container" not in str(error):
            path.write_text(f"{error}\n")
    except Exception as error:
        path.write_text(f"{error}\n")
