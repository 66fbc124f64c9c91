# SPDX-License-Identifier: Apache-2.0
"""Fixtures of the tests on a real Kubernetes. Each worker has a cluster of its own, made when its first
test asks for it; each test has a namespace and, if it wants one, a database.

--cluster PREFIX  use one that ./dev cluster up has made (PREFIX mf), and leave it up
--full            the long versions
--resume          of the fault matrix only what has no result yet
"""

import re
import time
import uuid
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from kubelab import Cluster, Database, Store
from kubelab.cleanup import after_crashes
from kubelab.fixtures import (
    PREFIXES,
    drop_namespace,
    keep_logs,
    make_namespace,
    private_cluster,
    save_evidence,
)
from matrix import table
from metas import Deployment, Registry

FAILED = pytest.StashKey[bool]()
BEGAN = time.time()


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--cluster", default=None, metavar="PREFIX", help="use this one, which is up")
    parser.addoption("--full", action="store_true", help="the long versions, for a release")
    parser.addoption("--resume", action="store_true", help="of the matrix only waves without a result yet")


def pytest_configure(config: pytest.Config) -> None:
    if not hasattr(config, "workerinput") and not config.option.collectonly:
        after_crashes(PREFIXES)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    items.sort(key=lambda item: item.get_closest_marker("long") is None)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Iterator[None]:
    report = yield
    if report.when in ("setup", "call"):
        item.stash[FAILED] = report.failed
    return report


@pytest.fixture(scope="session")
def shared_cluster(request: pytest.FixtureRequest) -> Iterator[Cluster]:
    """The worker's cluster, as the last test left it; tests take `cluster`."""
    prefix = request.config.getoption("--cluster")
    if prefix:
        yield Cluster.attach(prefix)
        return
    with private_cluster() as cluster:
        yield cluster.up()
        if request.session.testsfailed:
            print(f"logs of the cluster are kept in {keep_logs(cluster)}")


@pytest.fixture
def cluster(shared_cluster: Cluster) -> Iterator[Cluster]:
    """Whole before the test and made whole again after it, whatever the test broke."""
    yield shared_cluster
    shared_cluster.mend()


@pytest.fixture
def unique_name(request: pytest.FixtureRequest) -> str:
    """Of the test, fit for objects in Kubernetes and Postgres."""
    plain = re.sub(r"[^a-z0-9]+", "-", request.node.name.removeprefix("test_").lower()).strip("-")
    return f"{plain[:28].strip('-')}-{uuid.uuid4().hex[:6]}"


@pytest.fixture
def namespace(cluster: Cluster, unique_name: str, request: pytest.FixtureRequest) -> Iterator[str]:
    """A fresh one that enforces pod security "restricted". After a failure its pods, events and logs are
    in build/results/cluster."""
    make_namespace(cluster, unique_name, "restricted")
    yield unique_name
    if request.node.stash.get(FAILED, True):
        print(f"pods, events and logs are kept in {save_evidence(cluster, unique_name)}")
    cluster.mend()
    drop_namespace(cluster, unique_name)


@pytest.fixture
def database(cluster: Cluster, unique_name: str) -> Iterator[Database]:
    """A fresh one in the cluster's Postgres, with the election tables, an owner for the metas and the log of
    renewals."""
    database = Database(cluster.postgres, "t_" + unique_name.replace("-", "_"))
    yield database.create()
    if not cluster.postgres.program.alive:
        cluster.postgres.start()
    cluster.postgres.resume()
    database.drop()


@pytest.fixture
def store(namespace: str, cluster: Cluster) -> Store:
    """As `database`, in a Postgres that is a pod of its own."""
    return Store(cluster, namespace).create()


@pytest.fixture
def deploy(cluster: Cluster, namespace: str) -> Iterator[Callable[..., Deployment]]:
    """Metas in the test's namespace: deploy(database=…, guarded=True, values={…})."""
    made: list[Deployment] = []

    def make(**options: Any) -> Deployment:
        made.append(Deployment(cluster, namespace, **options))
        return made[-1]

    yield make
    for deployment in made:
        deployment.close()


@pytest.fixture
def enlist(cluster: Cluster, namespace: str, database: Database) -> Iterator[Callable[..., Registry]]:
    """Metas with workers in the test's namespace, on the test's database: enlist(release="v3.0", metas=2,
    computes=1, flags=(…), guard="enforce", recovery="observe", values={…})."""
    made: list[Registry] = []

    def make(**options: Any) -> Registry:
        made.append(Registry(cluster, namespace, database, **options))
        return made[-1]

    yield make
    for registry in made:
        registry.close()


@pytest.fixture
def note(record_property: Callable[[str, object], None]) -> Callable[[str, Any], None]:
    """note(what, figure): a measured figure, for the table at the end and the results' file."""
    return lambda what, figure: record_property(what, str(figure))


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    reports = [r for r in terminalreporter.getreports("passed") if r.when == "call" and r.user_properties]
    if reports:
        terminalreporter.section("measured")
    for report in sorted(reports, key=lambda r: r.nodeid):
        for what, figure in report.user_properties:
            terminalreporter.write_line(f"{report.nodeid.split('::')[-1]}: {what}: {figure}")
    config = terminalreporter.config
    since = 0 if config.getoption("--resume") else BEGAN
    files = table.results_dir(config.getoption("--full")).glob("*.jsonl")
    matrix = [path for path in files if path.stat().st_mtime >= since]
    if matrix and not config.option.collectonly:
        terminalreporter.section("fault matrix")
        terminalreporter.write_line(table.render(matrix))
