# SPDX-License-Identifier: Apache-2.0
"""Many runs at once in one cluster, step by step: all are deployed, all lose their leader by the same kind of
cause, all are judged. Waiting is free, so the slow ones wait beside the quick ones."""

import json
import select
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from harness.waiting import boot_ns, hold, hold_until
from kubelab import Cluster, cgroups
from kubernetes import client

from .causes import CAUSES, Cause
from .methods import METHODS, Method
from .run import REPLICAS, Run

START_S, SETTLE_S = 400.0, 300.0  # many pods, two cores, and who knows what beside them
SESSIONS = 9  # of Postgres, for each pod
HANDS = 4
LOOK_S = 0.5  # between two looks at all pods
SHARES = 16384  # of the processor, for a node's pods; 1024 is what a process has


def cells() -> Iterator[tuple[Cause, Method]]:
    """All for which there is something to run: without metafence-run, none can be stopped."""
    for cause in CAUSES.values():
        for method in METHODS.values():
            if not (cause.name.startswith("metafence-run") and method.name == "pidfd"):
                yield cause, method


class Stopwatch:
    """What the steps of a wave take, for who looks at the test's output."""

    def __init__(self, what: str) -> None:
        self._what, self._last = what, boot_ns()

    def lap(self, step: str) -> None:
        now = boot_ns()
        print(f"{self._what}: {step} after {(now - self._last) / 1e9:.1f} s", flush=True)
        self._last = now


class Deaths:
    """Looks at the descriptors of processes and writes down when each ended."""

    def __init__(self) -> None:
        self._runs: dict[int, Run] = {}
        self._poll = select.poll()
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._look, daemon=True)

    def watch(self, run: Run) -> None:
        run.watch()
        for descriptor in run.watched:
            self._runs[descriptor] = run
            self._poll.register(descriptor, select.POLLIN)

    def _look(self) -> None:
        while not self._stop.is_set():
            for descriptor, _ in self._poll.poll(10):
                self._runs[descriptor].watched[descriptor] = boot_ns()
                self._poll.unregister(descriptor)

    def __enter__(self) -> "Deaths":
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()


class Wave:
    """All faults begin when all have a leader and the machine is quiet again; what belongs into a promotion
    begins with that."""

    def __init__(self, cluster: Cluster, runs: list[Run]) -> None:
        self.cluster, self.runs = cluster, runs
        self.wide = runs[0].cause.wide
        assert all(run.cause.wide == self.wide for run in runs), "what is wide is alone in its cluster"

    def go(self, results: Path) -> list[str]:
        """Runs all, writes a line for each to `results`, and says what was wrong with any."""
        clock = Stopwatch(f"{len(self.runs)} runs")
        try:
            self._make_room()
            self._deploy()
            clock.lap("deployed")
            with Deaths() as deaths:
                if self.wide:
                    self._all_at_once(deaths, clock)
                else:
                    self._each_by_itself(deaths)
                self._wait_settled()
            clock.lap("settled")
            self._judge(results)
        finally:
            self._clear_away()
            clock.lap("judged and cleared away")
        return [f"{run}: {run.problem}" for run in self.runs if run.problem]

    @property
    def good(self) -> list[Run]:
        return [run for run in self.runs if not run.problem]

    def _each(
        self, step: Callable[[Run], Any], hands: int = HANDS, only: list[Run] | None = None
    ) -> None:
        """A run in which a step goes wrong takes no further part."""

        def careful(run: Run) -> None:
            try:
                step(run)
            except Exception as error:
                run.problem = run.problem or f"{type(error).__name__}: {error}"

        with ThreadPoolExecutor(hands) as pool:
            list(pool.map(careful, self.good if only is None else only))

    def _pods(self) -> dict[str, list[client.V1Pod]]:
        """Of all metas, by namespace."""
        found: dict[str, list[client.V1Pod]] = {}
        listed = self.cluster.core.list_pod_for_all_namespaces(
            label_selector="risingwave/component=meta", _request_timeout=20
        )
        for pod in sorted(listed.items, key=lambda pod: pod.metadata.name):
            found.setdefault(pod.metadata.namespace, []).append(pod)
        return found

    def _give_up(self, runs: list[Run], what: str, seconds: float) -> None:
        for run in runs:
            run.problem = f"{what}: not within {seconds:g} s: {run.why_unsettled()}"

    # --- setting the scene -------------------------------------------------------------------

    def _make_room(self) -> None:
        """In Postgres for the sessions of so many pods, and on the processor: all pods of a node share what
        one process gets, unless somebody says that they weigh more."""
        postgres = self.cluster.postgres
        wanted = len(self.runs) * REPLICAS * SESSIONS
        if int(postgres.sql("SHOW max_connections")[0][0]) < wanted:
            postgres.sql(f"ALTER SYSTEM SET max_connections = {wanted}")
            postgres.restart("fast")
        for node in self.cluster.nodes:
            cgroups.weigh(node.group, SHARES)

    def _deploy(self) -> None:
        if self.wide != "node":
            self._each(lambda run: run.deploy(REPLICAS))
            return
        self._cordon(True)  # all leaders are to be on the node that will be cut off
        self._each(lambda run: run.deploy(1))
        self._wait_all(lambda run, pods: run.looks_settled(pods))
        self._cordon(False)
        self._each(lambda run: run.scale(REPLICAS))

    def _cordon(self, on: bool) -> None:
        for node in self.cluster.nodes[1:]:
            self.cluster.kubectl("cordon" if on else "uncordon", node.name)

    def _wait_all(self, is_there: Callable[[Run, list[client.V1Pod]], bool]) -> None:
        """Until it is so for all of them in one look."""
        end = boot_ns() + int(START_S * 1e9)
        while self._missing(self.good, is_there, self._pods()):
            if boot_ns() >= end:
                missing = self._missing(self.good, is_there, self._pods())
                self._give_up(missing, "it leads, the other follows", START_S)
                return
            hold(LOOK_S)

    @staticmethod
    def _missing(
        runs: list[Run],
        is_there: Callable[[Run, list[client.V1Pod]], bool],
        pods: dict[str, list[client.V1Pod]],
    ) -> list[Run]:
        """The metas themselves are asked only when all labels are as they should be."""
        missing = [run for run in runs if not run.is_labelled(pods.get(run.name, []))]
        return missing or [run for run in runs if not is_there(run, pods.get(run.name, []))]

    # --- causes of one pod -------------------------------------------------------------------

    def _each_by_itself(self, deaths: Deaths) -> None:
        """Until the last fault is over."""
        end = boot_ns() + int(START_S * 1e9)
        while waiting := [run for run in self.good if not run.ended_ns]:
            pods = self._pods()
            for run in self._can_begin([run for run in waiting if not run.began_ns], pods):
                self._each(lambda run: self._strike(run, deaths), only=[run])
            for run in waiting:
                if run.began_ns and boot_ns() >= run.due_ns():
                    self._each(Run.end, only=[run])
            self._look_for_settled(pods)
            if boot_ns() >= end:
                self._give_up([run for run in self.good if not run.began_ns], "it leads", START_S)
            hold(LOOK_S)

    def _can_begin(self, runs: list[Run], pods: dict[str, list[client.V1Pod]]) -> list[Run]:
        promoting = [run for run in runs if run.cause.init and run.find_leader(pods.get(run.name, []))]
        others = [run for run in runs if not run.cause.init]
        return promoting + ([] if self._missing(others, Run.find_leader, pods) else others)

    def _strike(self, run: Run, deaths: Deaths) -> None:
        deaths.watch(run)
        run.begin()

    # --- causes of all pods ------------------------------------------------------------------

    def _all_at_once(self, deaths: Deaths, clock: Stopwatch) -> None:
        self._wait_all(Run.find_leader)
        clock.lap("all lead")
        self._each(deaths.watch)
        fault = {"postgres": self._no_postgres, "api": self._no_api, "node": self._no_node}[self.wide]
        with fault():
            self._each(Run.begin, hands=1)
            hold_until(max(map(Run.due_ns, self.good), default=0))
        self._each(Run.end)
        clock.lap("fault over")

    def _note_begin(self) -> None:
        for run in self.good:
            run.began_ns = boot_ns()

    @contextmanager
    def _no_postgres(self) -> Iterator[None]:
        self._note_begin()
        self.cluster.postgres.stop()
        yield
        self.cluster.postgres.start()

    @contextmanager
    def _no_api(self) -> Iterator[None]:
        """Controllers and scheduler end when they can't renew their leases, and are started again; those here
        hold none, so they don't do it by themselves."""
        plane = self.cluster.plane
        parts = (plane.controllers, plane.scheduler)
        for program in (*parts, plane.apiserver):
            program.kill()
        yield
        plane.apiserver.start()
        plane.wait_ready()
        for program in parts:
            program.start()

    @contextmanager
    def _no_node(self) -> Iterator[None]:
        node = self.cluster.nodes[0]
        assert all(run.old.node is node for run in self.good), "all leaders are on one node"
        self._note_begin()
        node.cut()
        yield
        node.heal()

    # --- after it ----------------------------------------------------------------------------

    def _look_for_settled(self, pods: dict[str, list[client.V1Pod]]) -> None:
        for run in self.good:
            if run.ended_ns and not run.settled_ns and run.looks_settled(pods.get(run.name, [])):
                run.settled_ns = boot_ns()

    def _wait_settled(self) -> None:
        end = boot_ns() + int(SETTLE_S * 1e9)
        while waiting := [run for run in self.good if not run.settled_ns]:
            self._look_for_settled(self._pods())
            if boot_ns() >= end:
                self._give_up(waiting, "settled, nobody having touched it", SETTLE_S)
            hold(LOOK_S)

    def _judge(self, results: Path) -> None:
        lines: list[str] = []
        self._each(lambda run: lines.append(json.dumps(run.judge())))
        results.parent.mkdir(parents=True, exist_ok=True)
        results.write_text("".join(f"{line}\n" for line in lines))

    def _clear_away(self) -> None:
        for run in self.runs:
            run.end()
            if run.problem:
                run.keep_evidence()
        if self.wide:
            self.cluster.mend()
        self._each(Run.drop, only=self.runs)
