# SPDX-License-Identifier: Apache-2.0
"""Fixtures and options of the end-to-end tests.

--runs N   repeat each zombie scenario N times at ttl 5 (the full tier uses 20)
--full     long versions: ten minutes of healthy leading, every repetition
--write    what is kept of a run in the tree (surface/, docs/screens) is written instead of compared
"""

import re
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import Any

import pytest
from harness import Cluster, Lab, results
from harness.lab import clean_after_crashes
from harness.logs import LineFile
from harness.paths import metafence, metafence_run, metasim, postgres_bin
from harness.waiting import Starvation
from kube import Kube, Open, open_kube
from scenario import Case


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--runs", type=int, default=None, help="repetitions of a scenario at ttl 5")
    parser.addoption("--full", action="store_true", help="the long versions, for a release")
    parser.addoption("--write", action="store_true", help="write anew what the tree keeps of a run")


def pytest_configure(config: pytest.Config) -> None:
    if not hasattr(config, "workerinput"):
        clean_after_crashes()
        results.begin()


def runs(config: pytest.Config) -> int:
    wanted = config.getoption("--runs")
    return wanted or (20 if config.getoption("--full") else 1)


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """`zombie_case` = (ttl, guarded, run): ttl 30 once, ttl 5 as often as asked, control and
    guarded alike. The long ones come first, so that parallel workers end together."""
    if "zombie_case" in metafunc.fixturenames:
        cases = [(30, g, 0) for g in (False, True)]
        cases += [(5, g, n) for n in range(runs(metafunc.config)) for g in (False, True)]
        quick = metafunc.definition.get_closest_marker("smoke_when_short") is not None
        params = [
            pytest.param(
                Case(ttl, guarded, number),
                id=f"ttl{ttl}-{'guarded' if guarded else 'control'}-{number}",
                marks=[pytest.mark.smoke] if quick and ttl == 5 and number == 0 else [],
            )
            for ttl, guarded, number in cases
        ]
        metafunc.parametrize("zombie_case", params)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    def weight(item: pytest.Item) -> int:
        if item.get_closest_marker("long"):
            return 0
        return 1 if "ttl30" in item.name else 2

    items.sort(key=weight)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    if hasattr(terminalreporter.config, "workerinput"):
        return
    for name, table in results.kept():
        terminalreporter.section(name)
        for line in table:
            terminalreporter.write_line(line)
    lines = results.table()
    if lines:
        terminalreporter.section("two leaders beyond the lease?")
        for line in lines:
            terminalreporter.write_line(line)


def pytest_report_header() -> list[str]:
    programs = (metafence, metafence_run, metasim, lambda: postgres_bin("postgres"))
    lines = []
    for program in programs:
        try:
            lines.append(f"using {program()}")
        except Exception as error:
            lines.append(str(error))
    return lines


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Iterator[None]:
    report = yield
    if report.when == "call":
        item.stash[FAILED] = report.failed
    return report


STARVATION = Starvation()
FAILED = pytest.StashKey[bool]()


@pytest.fixture
def lab(request: pytest.FixtureRequest) -> Iterator[Lab]:
    name = re.sub(r"[^a-z0-9]+", "-", request.node.name.removeprefix("test_").lower()).strip("-")
    lab = Lab(name[:32])
    STARVATION.worst = 0.0
    yield lab
    failed = request.node.stash.get(FAILED, True)
    if failed:
        print(f"logs are kept in {lab.dir}; the machine let us wait up to {STARVATION.worst:.2f} s for a CPU")
        for path in sorted(lab.dir.glob("*/*.log")):
            print(f"--- {path}", *LineFile(path).tail(12), sep="\n")
    lab.close(keep_logs=failed)


@pytest.fixture
def cluster(lab: Lab) -> Callable[..., Cluster]:
    """Makes clusters: cluster(ttl=5, guarded=True, …)."""
    return lambda **options: Cluster(lab, **options)


@pytest.fixture
def kube(lab: Lab, cluster: Callable[..., Cluster]) -> Iterator[Open]:
    """Makes clusters with a Kubernetes API: kube(pods=3, kubernetes={"resync": "5s"}, …)."""
    with ExitStack() as stack:

        def make(**options: Any) -> Kube:
            return stack.enter_context(open_kube(lab, cluster, **options))

        yield make
