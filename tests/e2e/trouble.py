# SPDX-License-Identifier: Apache-2.0
"""Everything that can go wrong around three metas, one after another, each bounded, from a seed."""

import contextlib
import os
import random
import signal
import socket
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import psycopg
from harness import Pod, boot_ns, hold, wait_for
from harness.fakeapi import FAULTS, FENCE_KEY, OWN_KEY, PAUSE_KEY, ROLE_KEY
from harness.logs import WitnessFile
from harness.nameserver import Nameserver
from harness.process import signal_pid
from kube import Kube

AGENTS_SESSIONS = (
    "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
    " WHERE usename = 'meta' AND application_name = 'metafence'"
)
SLOW_PROBE_S = 0.5
PROBE_EVERY_S = 0.25


class Milestones(WitnessFile):
    """Without what comes many times a second: an hour of it would be most of this process's time."""

    FREQUENT = ("tick", "write", "renew", "trim", "row")

    def lines(self) -> list[str]:
        fresh = len(self._lines)
        lines = super().lines()
        if len(lines) > fresh:
            kept = [ln for ln in lines[fresh:] if ln.split(" ", 2)[1] not in self.FREQUENT]
            lines[fresh:] = kept
        return lines


class Keeper:
    """The kubelet's part: a container that ended is started again. And a look at the probes meanwhile."""

    def __init__(self, made: Kube) -> None:
        self.made = made
        self.is_open = True  # False while a test wants something down
        self.stopped: set[int] = set()  # pids that can't answer
        self.slow: list[str] = []
        self.probes = 0
        self.containers = 0  # started again
        self._next_probe = 0

    def look(self) -> None:
        for pod in self.made.pods:
            if not pod.main.alive:
                self.containers += 1
                pod.start(agent=False)
            if self.is_open and pod.agent is not None and not pod.agent.alive:
                self.containers += 1
                pod.start_agent()
        if boot_ns() >= self._next_probe:
            self._next_probe = boot_ns() + int(PROBE_EVERY_S * 1e9)
            for pod in self.made.pods:
                self._probe(pod)

    def _probe(self, pod: Pod) -> None:
        if pod.agent is None or pod.agent.pid in self.stopped or not pod.agent.alive:
            return
        before = time.monotonic()
        self.probes += 1
        try:
            code, _ = pod.probe("/livez", timeout=5)
            assert code == 200, f"/livez of {pod.name}: {code}"
        except ConnectionRefusedError:
            return  # it has only just been started
        except TimeoutError:
            pass  # no answer is a slow one
        took = time.monotonic() - before
        if took > SLOW_PROBE_S:
            self.slow.append(f"{pod.name} {took:.2f} s")

    def hold(self, seconds: float) -> None:
        hold(seconds, self.look)

    def wait(self, what: str, probe: Callable[[], bool], timeout: float) -> None:
        def looked() -> bool:
            self.look()
            return probe()

        wait_for(what, looked, timeout, every=0.1)


class Troubles:
    """Each public method of `kinds` is a trouble that has ended when it returns."""

    # Kill nobody. (With silent name servers half of each connect time-out is gone before the last good
    # address is taken: on a busy machine that may cost a lease.)
    HARMLESS = (
        "api_broken",
        "watch_silent",
        "watch_too_old",
        "answers_lost",
        "patch_late",
        "token_rotated",
        "probe_flood",
        "label_stripped",
        "notices",
    )

    def __init__(self, made: Kube, keeper: Keeper, names: Nameserver, chance: random.Random) -> None:
        self.made, self.keeper, self.names, self.random = made, keeper, names, chance
        self.ttl = made.cluster.ttl
        self.mortal = made.pods[-1]  # the one whose agent and meta are killed; the others' live for ever
        self.said = ""
        self.tokens = 0
        self.kinds: list[Callable[[], None]] = [
            self.link_cut,
            self.link_poor,
            self.database_restarted,
            self.database_stopped,
            self.logins_refused,
            self.sessions_ended,
            self.table_locked,
            self.row_taken,
            self.api_broken,
            self.watch_silent,
            self.watch_too_old,
            self.answers_lost,
            self.patch_late,
            self.token_rotated,
            self.names_silent,
            self.probe_flood,
            self.label_stripped,
            self.notices,
            self.agent_killed,
            self.agent_stopped,
            self.run_stopped,
            self.meta_stopped,
            self.meta_killed,
            self.fence_ordered,
            self.fence_annotated,
            self.pause_ordered,
            self.pause_annotated,
        ]

    # --- who and how long ----------------------------------------------------------------------

    def _say(self, text: str) -> None:
        self.said = text

    def _for(self, shortest: float, longest: float) -> float:
        return self.random.uniform(shortest, longest)

    def leader(self) -> Pod:
        return self.made.cluster.leaders()[0]

    def victim(self) -> Pod:
        """The leader, or now and then somebody."""
        return self.leader() if self.random.random() < 0.7 else self.random.choice(self.made.pods)

    @contextmanager
    def _stopped(self, pid: int) -> Iterator[None]:
        self.keeper.stopped.add(pid)
        signal_pid(pid, signal.SIGSTOP)
        try:
            yield
        finally:
            signal_pid(pid, signal.SIGCONT)
            self.keeper.stopped.discard(pid)

    # --- link and database ---------------------------------------------------------------------

    def link_cut(self) -> None:
        pod, seconds = self.victim(), self._for(0.5, 2 * self.ttl)
        mode = self.random.choice(["stall", "refuse", "reset", "old-dead", "drop-new"])
        self._say(f"{pod.name} {mode} {seconds:.1f} s")
        pod.proxy.order(f"mode {mode}")
        self.keeper.hold(seconds)
        pod.proxy.heal()

    def link_poor(self) -> None:
        pod, seconds = self.victim(), self._for(1, 6)
        fault, heal = self.random.choice([("latency 40", "latency 0"), ("loss 10", "loss 0")])
        self._say(f"{pod.name} {fault} {seconds:.1f} s")
        pod.proxy.order(fault)
        self.keeper.hold(seconds)
        pod.proxy.order(heal)

    def database_restarted(self) -> None:
        how, seconds = self.random.choice(["immediate", "fast"]), self._for(0.1, 1.5 * self.ttl)
        self._say(f"{how}, down for {seconds:.1f} s")
        self.made.cluster.postgres.stop(how)
        self.keeper.hold(seconds)
        self.made.cluster.postgres.start()

    def database_stopped(self) -> None:
        seconds = self._for(0.5, 1.5 * self.ttl)
        self._say(f"{seconds:.1f} s")
        self.made.cluster.postgres.freeze()
        try:
            self.keeper.hold(seconds)
        finally:
            self.made.cluster.postgres.thaw()

    def logins_refused(self) -> None:
        seconds = self._for(0.5, 6)
        self._say(f"{seconds:.1f} s")
        sql = self.made.cluster.postgres.sql
        sql("ALTER ROLE meta NOLOGIN")
        sql(AGENTS_SESSIONS)
        self.keeper.hold(seconds)
        sql("ALTER ROLE meta LOGIN")

    def sessions_ended(self) -> None:
        times = self.random.randint(1, 5)
        self._say(f"{times} times")
        for _ in range(times):
            self.made.cluster.postgres.sql(AGENTS_SESSIONS)
            self.keeper.hold(self._for(0, 0.5))

    def table_locked(self) -> None:
        seconds = self._for(0.5, 1.5 * self.ttl)
        self._say(f"{seconds:.1f} s")
        with self.made.cluster.postgres.connect() as blocker, blocker.transaction():
            # Never waits behind anybody: that would be another trouble.
            with contextlib.suppress(psycopg.errors.LockNotAvailable):
                blocker.execute("SET LOCAL lock_timeout = '2s'")
                blocker.execute("LOCK TABLE election_leader IN ACCESS EXCLUSIVE MODE")
                self.keeper.hold(seconds)

    def give_row_to(self, pod: Pod) -> None:
        self.made.cluster.postgres.sql(
            "UPDATE election_leader SET id = %s, last_heartbeat = clock_timestamp()", pod.id
        )

    def row_taken(self) -> None:
        """rw#8238: the leader finds another's name in the row."""
        leader = self.leader()
        heir = self.random.choice([p for p in self.made.pods if p is not leader])
        self._say(f"from {leader.name}, for {heir.name}")
        self.give_row_to(heir)

    def notices(self) -> None:
        """Anybody may notify on our channel."""
        seconds = self._for(0.5, 2)
        self._say(f"{seconds:.1f} s")
        with self.made.cluster.postgres.connect() as session:
            end = time.monotonic() + seconds
            while time.monotonic() < end:
                session.execute("SELECT pg_notify('metafence', '') FROM generate_series(1, 20)")
                time.sleep(0.01)

    # --- Kubernetes ------------------------------------------------------------------------------

    def api_broken(self) -> None:
        fault, seconds = self.random.choice(FAULTS), self._for(1, 8)
        self._say(f"{fault} {seconds:.1f} s")
        self.made.api.break_by(fault)
        self.keeper.hold(seconds)
        self.made.api.heal()

    def watch_silent(self) -> None:
        """It stays open and says nothing."""
        seconds = self._for(2, 8)
        self._say(f"{seconds:.1f} s")
        self.made.api.be_deaf(True)
        self.keeper.hold(seconds)
        self.made.api.be_deaf(False)

    def watch_too_old(self) -> None:
        as_status = self.random.choice([True, False])
        self._say("410 as status" if as_status else "410 in the stream")
        for pod in self.made.pods:
            self.made.api.touch(pod.name)
        self.made.api.compact(as_status)

    def answers_lost(self) -> None:
        count = self.random.randint(1, 4)
        self._say(f"{count} patches")
        self.made.api.lose_answers(count)
        self.made.api.set_label(self.victim().name, OWN_KEY, "nonsense")
        self.keeper.hold(2)
        self.made.api.lose_answers(0)

    def patch_late(self) -> None:
        """What was sent lands when its sender has long given up."""
        seconds = self._for(1, 6)
        self._say(f"{seconds:.1f} s")
        self.made.api.hold_patches()
        self.made.api.set_label(self.victim().name, OWN_KEY, None)
        self.keeper.hold(seconds)
        self.made.api.stop_holding()
        self.keeper.hold(1)
        self.made.api.release_patches()

    def token_rotated(self) -> None:
        self.tokens += 1
        self._say(f"number {self.tokens}")
        token = f"the-token-number-{self.tokens}"
        self.made.token.write_text(token)
        self.made.api.token = token
        self.made.api.cut()

    def label_stripped(self) -> None:
        pod, key = self.random.choice(self.made.pods), self.random.choice([OWN_KEY, ROLE_KEY])
        value = self.random.choice([None, "leader", "x"]) if key == OWN_KEY else None
        self._say(f"{pod.name} {key}={value}")
        self.made.api.set_label(pod.name, key, value)

    # --- names and probes -----------------------------------------------------------------------

    def names_silent(self) -> None:
        """And the sessions are gone, so that each agent has to look its database up again."""
        self.names.mode, seconds = self.random.choice(["silent", "servfail"]), self._for(1, 6)
        self._say(f"{self.names.mode} {seconds:.1f} s")
        self.made.cluster.postgres.sql(AGENTS_SESSIONS)
        self.keeper.hold(seconds)
        self.names.mode = "answer"

    def probe_flood(self) -> None:
        """Connections that never ask, that ask by the byte, and many that ask well."""
        pod = self.victim()
        count = self.random.randint(50, 300)
        self._say(f"{count} connections at {pod.name}")
        held = []
        for n in range(count):
            one = socket.socket()
            one.setblocking(False)
            one.connect_ex(("127.0.0.1", pod.http_port))
            held.append(one)
            if n % 3 == 0:
                with contextlib.suppress(OSError):
                    one.send(b"GET /livez HT")
        self.keeper.hold(self._for(0.5, 3))
        for one in held:
            one.close()
        for _ in range(count):
            with contextlib.suppress(OSError):
                pod.probe("/readyz")

    # --- processes -------------------------------------------------------------------------------

    def agent_killed(self) -> None:
        """Restarted at once, or late."""
        agent, seconds = self.mortal.agent, self.random.choice([0, self._for(0.5, self.ttl + 2)])
        assert agent is not None
        self._say(f"{self.mortal.name}, back after {seconds:.1f} s")
        self.keeper.is_open = False
        os.kill(agent.pid, signal.SIGKILL)
        agent.wait(5)
        self.keeper.hold(seconds)
        self.keeper.is_open = True

    def agent_stopped(self) -> None:
        pod, seconds = self.victim(), self._for(0.2, 1.5 * self.ttl)
        assert pod.agent is not None
        self._say(f"{pod.name} {seconds:.1f} s")
        with self._stopped(pod.agent.pid):
            self.keeper.hold(seconds)

    def run_stopped(self) -> None:
        pod, seconds = self.victim(), self._for(0.2, 2)
        self._say(f"{pod.name} {seconds:.1f} s")
        with self._stopped(pod.main.pid):
            self.keeper.hold(seconds)

    def meta_stopped(self) -> None:
        pod, seconds = self.victim(), self._for(0.5, 2 * self.ttl)
        pid = pod.meta_pid
        assert pid is not None
        self._say(f"{pod.name} {seconds:.1f} s")
        with self._stopped(pid):
            self.keeper.hold(seconds)

    def meta_killed(self) -> None:
        self._say(self.mortal.name)
        self.mortal.signal_meta(signal.SIGKILL)

    # --- orders ----------------------------------------------------------------------------------

    def fence_ordered(self) -> None:
        pod, seconds = self.victim(), self._for(0.5, 4)
        self._say(f"{pod.name} {seconds:.1f} s")
        assert pod.cli("fence", "--reason", "trouble").returncode in (0, 3)
        self.keeper.hold(seconds)
        assert pod.cli("unfence").returncode == 0

    def fence_annotated(self) -> None:
        pod, seconds = self.victim(), self._for(0.5, 4)
        self._say(f"{pod.name} {seconds:.1f} s")
        self.made.api.annotate(pod.name, FENCE_KEY, "trouble")
        self.keeper.hold(seconds)
        self.made.api.annotate(pod.name, FENCE_KEY, None)

    def pause_ordered(self) -> None:
        pod, seconds = self.victim(), self._for(0.5, 4)
        self._say(f"{pod.name} {seconds:.1f} s")
        assert pod.cli("pause", "--for", "1m", "--reason", "trouble").returncode == 0
        self.keeper.hold(seconds)
        assert pod.cli("resume").returncode == 0

    def pause_annotated(self) -> None:
        pod, seconds = self.victim(), self._for(0.5, 4)
        self._say(f"{pod.name} {seconds:.1f} s")
        end = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(time.time() + 60))
        self.made.api.annotate(pod.name, PAUSE_KEY, end)
        self.keeper.hold(seconds)
        self.made.api.annotate(pod.name, PAUSE_KEY, None)
