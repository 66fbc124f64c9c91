# SPDX-License-Identifier: Apache-2.0
"""rw#27092, criterion 2: a removal is by id. RisingWave's DeleteWorkerNode knows host and port alone, and
the endpoint may register again between any two steps of ours: verdict, tombstone, intent, second look, call,
the leader's SELECT and its DELETE. The row that our removal touches is the very row that was judged, or none.
Each step waits for the other here: a statement of the agent's that a relay holds, a request that the API
server holds, a pause point of the leader's, a table that is locked."""

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psycopg
import pytest
from computes import WORKERS, aborts, call, deeds
from harness import Lab, Pod, wait_for
from harness.fakeapi import Request
from harness.postgres import PASSWORD, USER
from relay import Relay
from workerpods import PORT, SETS, Open, end_pod, pod_of, prepared, wait_judged

BURY, INTEND, ROWS, LOG = (f"metafence.{f}(" for f in ("bury", "intend", "workers", "reconcile_log"))
# Rows that wait for us for longer than confirmAfter are not judged; nothing is to be braked.
CALM = {"confirmAfter": "4s", "maxPercent": 100}


class Scene:
    def __init__(self, lab: Lab, kube: Open, count: int) -> None:
        self.pauses = lab.dir / "pauses"
        self.pauses.mkdir(mode=0o755)
        hosts = [f"10.9.8.{n}" for n in range(count + 1)]
        self.hosts = hosts[1:]  # the first lives on: where none does, nothing is judged
        flags = [*WORKERS, f"--pause-dir={self.pauses}"]
        self.k, self.ids = prepared(kube, hosts, "compute", ttl=30, meta_flags=flags, reconcile=CALM)
        postgres = self.k.cluster.postgres
        self.sql = postgres.sql
        self.relay = Relay(postgres.port, lab.port())
        self.k.pods[0].config["postgres"]["port"] = self.relay.port
        self.leader: Pod = self.k.cluster.start()
        wait_judged(self.leader)

    def end(self, host: str) -> None:
        """Its pod has ended: now the row is proven gone, and begins to be removed."""
        end_pod(self.k.api, pod_of(host))

    def id_of(self, host: str) -> int | None:
        found = self.sql("SELECT worker_id FROM worker WHERE host = %s AND port = %s", host, PORT)
        return int(found[0][0]) if found else None

    def register(self, host: str) -> int:
        return int(call(self.leader, "register", host)["worker"])

    def replace(self, host: str) -> int:
        """The leader removes the row by itself, and the endpoint registers: another id."""
        call(self.leader, "delete", host)
        return self.register(host)

    def as_leader(self) -> "psycopg.Connection[Any]":
        """One more session of the leader's pool."""
        tag = self.leader.witness.events("start", self.leader.meta_pid)[-1].fields["tag"]
        where = self.k.cluster.postgres.dsn(USER)
        return psycopg.connect(where, password=PASSWORD, application_name=tag, autocommit=True)

    def removed(self) -> list[int]:
        """By calls, ours and those by hand."""
        return [int(e.fields["worker"]) for e in self.leader.witness.events("worker_deleted")]

    def outcome(self, host: str) -> str:
        """Of the call for that endpoint's row."""

        def recorded() -> str | None:
            found = [d[3] for d in deeds(self.k.cluster, "delete") if d[1] == self.ids[host]]
            return found[0] if found else None

        return wait_for(f"the call for {host} is recorded", recorded, 30)

    def not_asked(self, host: str, why: str) -> None:
        self.leader.agent_log.expect(
            30,
            msg="reconcile: not done",
            action="delete",
            worker_id=str(self.ids[host]),
            outcome=f"not asked for: {why}",
        )

    def stays(self, host: str, worker_id: int) -> None:
        """Two more passes, and it is still there; nothing is left that could act on it later."""
        wait_judged(self.leader, 2)
        assert self.id_of(host) == worker_id
        assert self.sql("SELECT worker_id FROM metafence.tombstone WHERE outcome IS NULL") == []

    def pause(self, point: str) -> Path:
        path = self.pauses / point
        path.touch()
        return path

    def wait_paused(self, point: str) -> None:
        def reached() -> bool:
            paused = [e.fields["at"] for e in self.leader.witness.events("paused")]
            resumed = [e.fields["at"] for e in self.leader.witness.events("resumed")]
            return paused.count(point) > resumed.count(point)

        wait_for(f"the leader waits at {point}", reached, 60)

    @contextmanager
    def api_holds(self, path: str) -> Iterator[Callable[[], None]]:
        """The next request there waits; yields what waits until it has come."""
        came, may_go = threading.Event(), threading.Event()

        def gate(request: Request) -> None:
            if request.path == path and not came.is_set():
                came.set()
                may_go.wait(30)

        self.k.api.gate = gate
        try:
            yield lambda: bool(wait_for(f"a request of {path} comes", came.is_set, 60)) and None
        finally:
            may_go.set()
            self.k.api.gate = lambda _: None


@pytest.fixture
def scene(lab: Lab, kube: Open) -> Iterator[Callable[[int], Scene]]:
    made: list[Scene] = []

    def make(count: int) -> Scene:
        made.append(Scene(lab, kube, count))
        return made[-1]

    yield make
    for each in made:
        each.relay.close()
        for path in each.pauses.iterdir():
            path.unlink()


def refusal(worker_id: int) -> str:
    return f"DELETE of worker refused: key worker_id={worker_id}, but the removal under way is of"


def test_criterion_2_registered_between_verdict_and_call(scene: Callable[[int], Scene]) -> None:
    """The agent sees it, and does not ask."""
    s = scene(4)
    leader, began = s.leader, s.leader.incarnations

    # Rows are read and judged, the tombstone is on its way.
    host = s.hosts[0]
    hold = s.relay.hold(BURY)
    s.end(host)
    hold.wait()
    assert s.register(host) == s.ids[host]
    hold.release()
    s.not_asked(host, "the row has been written since")
    s.stays(host, s.ids[host])

    # The tombstone is there, the intent is on its way.
    host = s.hosts[1]
    hold = s.relay.hold(INTEND)
    s.end(host)
    hold.wait()
    assert s.register(host) == s.ids[host]
    hold.release()
    s.not_asked(host, "the row has been written since")
    s.stays(host, s.ids[host])

    # The intent is there, the second look begins.
    host = s.hosts[2]
    hold = s.relay.hold(INTEND)
    s.end(host)
    hold.wait()
    again = s.relay.hold(ROWS)
    hold.release()
    again.wait()
    assert s.register(host) == s.ids[host]
    again.release()
    s.not_asked(host, "the row has been written since")
    s.stays(host, s.ids[host])

    # The same, and the leader's own expiry was first: the endpoint has another id.
    host = s.hosts[3]
    hold = s.relay.hold(INTEND)
    s.end(host)
    hold.wait()
    again = s.relay.hold(ROWS)
    hold.release()
    again.wait()
    new = s.replace(host)
    again.release()
    s.not_asked(host, "the row is gone already")
    s.stays(host, new)

    assert s.removed() == [s.ids[host]], "by hand, in the last story"
    assert not deeds(s.k.cluster, "delete")
    assert s.sql("SELECT worker_id FROM metafence.intent") == []
    assert leader.incarnations == began and not aborts(s.k.cluster)


def test_criterion_2_registered_between_second_look_and_call(scene: Callable[[int], Scene]) -> None:
    """Too late for the agent to see it: the call is made, and Postgres refuses it to touch another row, or
    the row as it is now."""
    s = scene(2)
    leader, began = s.leader, s.leader.incarnations

    host = s.hosts[0]
    hold = s.relay.hold(INTEND)
    s.end(host)
    hold.wait()
    read = s.relay.hold(LOG)  # behind the rows of the second look
    hold.release()
    read.wait()
    assert s.register(host) == s.ids[host]
    read.release()
    assert refusal(s.ids[host]) in s.outcome(host)
    s.stays(host, s.ids[host])

    host = s.hosts[1]
    hold = s.relay.hold(INTEND)
    s.end(host)
    hold.wait()
    with s.api_holds(SETS) as wait_held:  # the last but one that the second look asks for
        hold.release()
        wait_held()
        new = s.replace(host)
    assert refusal(new) in s.outcome(host)
    s.stays(host, new)

    assert s.removed() == [s.ids[host]], "by hand, in the last story"
    assert s.sql("SELECT worker_id FROM metafence.intent") == []
    assert leader.incarnations == began and not aborts(s.k.cluster)


def test_criterion_2_registered_inside_of_the_leader(scene: Callable[[int], Scene]) -> None:
    """Between its SELECT by host and port and its DELETE by the id that it has found, and behind that."""
    s = scene(3)
    leader, began = s.leader, s.leader.incarnations

    # Written again by another task of the leader's.
    host = s.hosts[0]
    point = s.pause("delete-selected")
    s.end(host)
    s.wait_paused("delete-selected")
    with s.as_leader() as session:
        session.execute(
            "UPDATE worker_property SET parallelism = 7 WHERE worker_id = %s", [s.ids[host]]
        )
    point.unlink()
    assert refusal(s.ids[host]) in s.outcome(host)
    s.stays(host, s.ids[host])

    # Replaced: the id that the leader has found is nobody's any more.
    host = s.hosts[1]
    point = s.pause("delete-selected")
    s.end(host)
    s.wait_paused("delete-selected")
    with s.as_leader() as session, session.transaction():
        session.execute("DELETE FROM worker WHERE worker_id = %s", [s.ids[host]])
        session.execute(
            "INSERT INTO worker VALUES (7001, 'COMPUTE_NODE', %s, %s, 'STARTING', 900)", [host, PORT]
        )
    point.unlink()
    assert "worker not found" in s.outcome(host)
    s.stays(host, 7001)

    # It waits for the leader, which has deleted the row: what it gets is a row of its own.
    host = s.hosts[2]
    point = s.pause("delete-done")
    s.end(host)
    s.wait_paused("delete-done")
    got: list[int] = []
    waiting = threading.Thread(target=lambda: got.append(s.register(host)))
    waiting.start()
    point.unlink()
    waiting.join()
    assert s.outcome(host) == "ok"
    assert got != [s.ids[host]]
    s.stays(host, got[0])

    assert s.removed() == [s.ids[host]], "the only one that was as it was judged"
    assert s.sql("SELECT worker_id FROM metafence.intent") == []
    assert leader.incarnations == began and not aborts(s.k.cluster)


def test_criterion_2_a_call_without_an_answer_comes_late(scene: Callable[[int], Scene]) -> None:
    """The leader is kept waiting for longer than the agent waits for its answer. When it comes to look for
    the endpoint, that has registered anew: the intent still binds."""
    s = scene(1)
    [host] = s.hosts
    hold = s.relay.hold(INTEND)
    s.end(host)
    hold.wait()
    read = s.relay.hold(LOG)
    hold.release()
    read.wait()
    with s.as_leader() as session, session.transaction():
        session.execute("LOCK TABLE worker IN ACCESS EXCLUSIVE MODE")
        read.release()
        assert "unknown" in s.outcome(host)
        session.execute("DELETE FROM worker WHERE worker_id = %s", [s.ids[host]])
        session.execute(
            "INSERT INTO worker VALUES (7001, 'COMPUTE_NODE', %s, %s, 'STARTING', 900)", [host, PORT]
        )
    wait_for(
        "the late delete is refused",
        lambda: s.sql("SELECT true FROM metafence.counters() WHERE name = 'intended' AND value > 0"),
        30,
    )
    s.stays(host, 7001)
    assert s.leader.status()["workers"]["state"]["intents"] == 1  # type: ignore[index]
    assert s.removed() == [] and not aborts(s.k.cluster)
