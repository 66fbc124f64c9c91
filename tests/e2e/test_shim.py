# SPDX-License-Identifier: Apache-2.0
"""metafence-run as a process: the tests play the agent over its socket and let it run small children."""

import json
import os
import random
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import fenceclient as fc
import pytest
from fenceclient import Closed, FenceClient, boot_ns, pack_order
from harness.paths import metafence_run
from harness.process import descendants, signal_pid
from harness.waiting import hold, wait_for

CHILD = Path(__file__).with_name("shim_child.py")
POD = "0a1b2c3d-e4f5"
KILL_BUDGET_S = 0.3
TTL_S = 5.0
PATIENCE_S = 30  # bound of a wait for what takes milliseconds: the machine may be busy
ROOM_S = TTL_S - 0.3 - KILL_BUDGET_S  # what of a lease is left to a leader


def free_ports(count: int) -> list[int]:
    """Each parallel worker has a range of its own."""
    worker = int(os.environ.get("PYTEST_XDIST_WORKER", "gw0").removeprefix("gw")) % 10
    found = []
    for port in random.sample(range(23000 + worker * 100, 23100 + worker * 100), 100):
        with socket.socket() as s:
            if s.connect_ex(("127.0.0.1", port)) != 0:
                found.append(port)
        if len(found) == count:
            return found
    raise AssertionError("no free ports")


def exists(pid: int) -> bool:
    """Zombies are dead."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] not in "ZX"
    except (FileNotFoundError, ProcessLookupError):
        return False


class Shim:
    """One pod volume; start() runs a metafence-run in it, again and again if need be."""

    def __init__(self) -> None:
        self.dir = Path(tempfile.mkdtemp(prefix="mf-shim-"))
        self.socket = self.dir / "fence.sock"
        self.state = self.dir / "state"
        self.child_log = self.dir / "child.log"
        self.log = self.dir / "run.log"
        self.service, self.metrics, self.dashboard = free_ports(3)
        self.process: subprocess.Popen | None = None
        self.agents: list[FenceClient] = []
        self.wrapper: list[str] = []

    def start(self, *command: str, habits: tuple[str, ...] = (), **options: str | None) -> None:
        if not command:
            command = (sys.executable, str(CHILD), str(self.child_log), str(self.service))
            command += (str(self.metrics), *habits)
        given = {
            "socket": self.socket,
            "state": self.state,
            "pod-uid": POD,
            "ttl": "5s",
            "margin": "300ms",
            "kill-budget": "300ms",
            "service-port": self.service,
            "metrics-port": self.metrics,
            "dashboard-port": self.dashboard,
        }
        given |= {name.replace("_", "-"): value for name, value in options.items()}
        argv = [*self.wrapper, str(metafence_run())]
        for name, value in given.items():
            argv += [f"--{name}"] if value is None else [f"--{name}={value}"]
        with open(self.log, "ab") as log:
            self.process = subprocess.Popen(
                [*argv, "--", *command], stdin=subprocess.DEVNULL, stdout=log, stderr=log
            )

    def agent(self) -> FenceClient:
        wait_for("metafence-run listens", self.listens, PATIENCE_S)
        self.agents.append(FenceClient(self.socket))
        return self.agents[-1]

    def listens(self) -> bool:
        assert self.process.poll() is None, self.log.read_text()
        try:
            with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as s:
                s.connect(str(self.socket))
            return True
        except (FileNotFoundError, ConnectionRefusedError):
            return False

    def running(self, *command: str, **options: str | None) -> FenceClient:
        """Starts it with an agent that reads another leader; returns when the child serves."""
        self.start(*command, **options)
        agent = self.agent()
        agent.until("child runs", lambda s: s.alive, saying=agent.follower)
        if not command:
            agent.until("service port seen", lambda s: s.ports & 2, saying=agent.follower)
            wait_for("the child's first word", self.children, PATIENCE_S)
        return agent

    def lead(self, agent: FenceClient, permit_s: float | None = None) -> int:
        """Makes the child lead; with a permit if wanted. Returns the permit's deadline or 0."""
        deadline = agent.leader(permit_s) if permit_s else 0
        os.kill(agent.status.pid, signal.SIGUSR1)
        agent.until("engagement is seen", lambda s: "engaged" in s.flags)
        return deadline

    def children(self) -> list[dict[str, str]]:
        """The starts that the children wrote."""
        lines = self.child_log.read_text().splitlines() if self.child_log.exists() else []
        return [
            dict(pair.split("=", 1) for pair in line.split()[1:])
            for line in lines
            if line.startswith("start ")
        ]

    def said(self, line: str) -> bool:
        return self.child_log.exists() and line in self.child_log.read_text()

    def grandchild(self) -> int:
        def find() -> int:
            text = self.child_log.read_text() if self.child_log.exists() else ""
            for line in text.splitlines():
                if line.startswith("grandchild pid="):
                    return int(line.split("=")[1])
            return 0

        return wait_for("grandchild", find, PATIENCE_S)

    def processes_with(self, end_of_argv: str) -> list[int]:
        found = []
        for folder in Path("/proc").glob("[0-9]*"):
            try:
                if (folder / "cmdline").read_text().endswith(end_of_argv):
                    found.append(int(folder.name))
            except (FileNotFoundError, ProcessLookupError):
                pass
        return found

    def json(self) -> dict:
        argv = [str(metafence_run()), "status", "--state", str(self.state)]
        return json.loads(subprocess.check_output(argv))

    def probe(self, kind: str) -> tuple[int, str]:
        argv = [str(metafence_run()), "probe", kind, "--state", str(self.state)]
        done = subprocess.run(argv, capture_output=True, text=True)
        assert done.stdout.count("\n") == 1
        return done.returncode, done.stdout

    def close(self) -> None:
        for agent in self.agents:
            agent.close()
        if self.process and self.process.poll() is None:
            os.kill(self.process.pid, signal.SIGCONT)
            self.process.terminate()
            try:
                self.process.wait(1)
            except subprocess.TimeoutExpired:
                for pid in [*descendants(self.process.pid), self.process.pid]:
                    signal_pid(pid, signal.SIGKILL)
                self.process.wait()
        shutil.rmtree(self.dir)


@pytest.fixture
def shim() -> Iterator[Shim]:
    shim = Shim()
    yield shim
    print(shim.log.read_text() if shim.log.exists() else "no log")
    shim.close()


# ---- exit status and signals


@pytest.mark.parametrize("code", [1, 2, 42, 100, 126, 127, 128, 133, 135, 137, 143, 200, 255])
def test_exit_code_is_passed_on(shim: Shim, code: int) -> None:
    shim.start("sh", "-c", f"exit {code}")
    with shim.agent() as agent:
        agent.order(row=fc.ROW_ABSENT)
    assert shim.process.wait(5) == code


HARMLESS = {signal.SIGCHLD, signal.SIGCONT, signal.SIGURG, signal.SIGWINCH}
HARMLESS |= {signal.SIGSTOP, signal.SIGTSTP, signal.SIGTTIN, signal.SIGTTOU}


@pytest.mark.parametrize("number", sorted(signal.valid_signals() - HARMLESS - {signal.SIGABRT}), ids=int)
def test_death_by_signal_is_128_plus(shim: Shim, number: int) -> None:
    script = "import os,signal,sys; signal.signal(int(sys.argv[1]), signal.SIG_DFL) "
    script += "if int(sys.argv[1]) not in (9,) else 0; os.kill(os.getpid(), int(sys.argv[1]))"
    shim.start(sys.executable, "-c", script, str(int(number)))
    with shim.agent() as agent:
        agent.order(row=fc.ROW_ABSENT)
    assert shim.process.wait(5) == 128 + number


@pytest.mark.parametrize("end", ["exit 0", "exit 134", "kill -ABRT $$"])
def test_unordered_clean_ends_start_again_with_backoff(shim: Shim, end: str) -> None:
    shim.start("sh", "-c", end)
    agent = shim.agent()
    ended = agent.until("first end", lambda s: s.last_death.incarnation == 1, saying=agent.follower)
    assert ended.last_death.reason == "None"
    again = agent.until("third start", lambda s: s.incarnation == 3, saying=agent.follower)
    assert again.kills == 0 and again.fences == 0
    assert "hold=Backoff" in shim.log.read_text()


def test_container_mode_ends_with_every_end(shim: Shim) -> None:
    shim.start("sh", "-c", "exit 0", restart="container")
    with shim.agent() as agent:
        agent.order(row=fc.ROW_ABSENT)
    assert shim.process.wait(5) == 0


def test_what_cannot_be_executed(shim: Shim) -> None:
    shim.start("/no/such/meta")
    with shim.agent() as agent:
        agent.order(row=fc.ROW_ABSENT)
    assert shim.process.wait(5) == 127
    assert 'cannot execute \\"/no/such/meta\\": ENOENT' in shim.log.read_text()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_term_is_forwarded_and_nothing_starts_again(shim: Shim, number: signal.Signals) -> None:
    shim.running()
    shim.process.send_signal(number)
    assert shim.process.wait(5) == 0
    assert shim.said(f"signal {number.name}")
    assert len(shim.children()) == 1
    assert not shim.socket.exists()


def test_all_other_signals_are_forwarded_and_a_second_int(shim: Shim) -> None:
    shim.running(habits=("ignore-term",))
    for number in (signal.SIGHUP, signal.SIGUSR2, signal.SIGINT, signal.SIGINT, signal.SIGTERM):
        before = shim.child_log.read_text().count(f"signal {number.name}")
        shim.process.send_signal(number)
        wait_for(
            number.name,
            lambda n=number, b=before: shim.child_log.read_text().count(f"signal {n.name}") > b,
            5,
        )
    assert shim.process.poll() is None
    assert shim.json()["state"] == "Terminating"


def test_deadline_kills_also_after_an_ignored_term(shim: Shim) -> None:
    agent = shim.running(habits=("ignore-term",))
    deadline = shim.lead(agent, 1.5)
    shim.process.terminate()
    wait_for("TERM arrives", lambda: shim.said("signal SIGTERM"), PATIENCE_S)
    assert shim.process.wait(5) == 137
    assert shim.json()["last_death"]["dead_ns"] <= deadline + int(KILL_BUDGET_S * 1e9)


def test_term_while_held(shim: Shim) -> None:
    shim.start()
    shim.agent()
    shim.process.terminate()
    assert shim.process.wait(5) == 0
    assert shim.children() == []


# ---- killing


def test_deadline_kill_is_punctual_and_the_agent_is_named(shim: Shim) -> None:
    agent = shim.running()
    deadline = shim.lead(agent, 1.5)
    with pytest.raises(AssertionError):
        agent.until("dies early", lambda s: not s.alive, 1.2, lambda: agent.order(flags=fc.ARMED))
    dead = agent.until(
        "dead", lambda s: s.last_death.incarnation == 1, 5, lambda: agent.order(flags=fc.ARMED)
    )
    assert dead.last_death.reason == "LeaseExpired"
    assert dead.last_death.engaged
    assert deadline <= dead.last_death.dead_ns <= deadline + int(KILL_BUDGET_S * 1e9)
    assert dead.last_death.deadline_ns == deadline


def test_kill_order_latency(shim: Shim) -> None:
    agent = shim.running()
    took = []
    for _ in range(5):
        incarnation = agent.status.incarnation
        sent = boot_ns()
        agent.kill(fc.MANUAL)
        dead = agent.until("dead", lambda s, i=incarnation: s.last_death.incarnation == i)
        took.append(dead.last_death.dead_ns - sent)
        agent.until("again", lambda s, i=incarnation: s.incarnation == i + 1, 5, agent.follower)
    assert sorted(took)[2] < 50e6, f"median of {took}"


@pytest.mark.parametrize(
    "habits",
    [("grandchild",), ("grandchild", "ignore-term"), ("freeze",), ("grandchild", "freeze")],
    ids="-".join,
)
def test_the_whole_tree_dies(shim: Shim, habits: tuple[str, ...]) -> None:
    agent = shim.running(habits=habits)
    pids = [agent.status.pid]
    if "grandchild" in habits:
        pids.append(shim.grandchild())
    if "freeze" in habits:
        os.kill(pids[0], signal.SIGUSR1)
        agent.until("leads", lambda s: "engaged" in s.flags or s.ports & 4)
    agent.kill(fc.SUPERSEDED)
    dead = agent.until("dead", lambda s: s.last_death.incarnation == 1)
    assert dead.last_death.reason == "Superseded"
    assert [pid for pid in pids if exists(pid)] == []
    with socket.socket() as s:
        assert s.connect_ex(("127.0.0.1", shim.service)) != 0


def test_what_meta_leaves_behind_is_dead_before_the_next_start(shim: Shim) -> None:
    shim.start(habits=("grandchild", "leave"))
    agent = shim.agent()
    agent.until("ended", lambda s: s.last_death.incarnation == 1, saying=agent.follower)
    assert not exists(shim.grandchild())
    # The port is free again: the next one can listen on it.
    agent.until("second", lambda s: s.last_death.incarnation == 2, 8, saying=agent.follower)
    assert len(shim.children()) == 2


CHAIN = """
import os, sys
print("chain", flush=True)
while True:
    if os.fork() == 0:
        os.setsid()
    else:
        os._exit(0)
"""


@pytest.mark.parametrize("as_pid_1", [False, True])
def test_a_tree_that_forks_faster_than_one_looks(shim: Shim, as_pid_1: bool) -> None:
    """The first process stays; a descendant forks, its parent ends, and so on for ever."""
    if as_pid_1 and os.geteuid() != 0:
        pytest.skip("needs root for a PID namespace")
    shim.wrapper = ["unshare", "--pid", "--fork", "--kill-child", "--mount-proc"] if as_pid_1 else []
    # The marker in the arguments is how what is left of the chain is found.
    script = f'{sys.executable} -c "$0" {shim.dir} & exec sleep 1000'
    agent = shim.running("sh", "-c", script, CHAIN)
    wait_for("chain runs", lambda: "chain" in shim.log.read_text(), PATIENCE_S)
    agent.kill(fc.SUPERSEDED)
    dead = agent.until("dead", lambda s: s.last_death.incarnation == 1)
    assert dead.last_death.reason == "Superseded"
    assert shim.processes_with(str(shim.dir) + "\0") == []


def test_under_a_wrapper_shell(shim: Shim) -> None:
    child = f"{sys.executable} {CHILD} {shim.child_log} {shim.service} {shim.metrics}"
    agent = shim.running("sh", "-c", f"{child}; echo wrapper goes on; sleep 1000")
    wait_for("child", shim.children, PATIENCE_S)
    pid = int(shim.children()[0]["pid"])
    agent.kill(fc.SUPERSEDED)
    agent.until("dead", lambda s: s.last_death.incarnation == 1)
    assert not exists(pid)


def test_meta_dies_with_a_killed_metafence_run(shim: Shim) -> None:
    agent = shim.running(habits=("grandchild",))
    pid, grandchild = agent.status.pid, shim.grandchild()
    shim.process.kill()
    shim.process.wait()
    wait_for("meta is dead", lambda: not exists(pid), PATIENCE_S)
    # What only a new one can clear away is cleared away before the next start.
    shim.start()
    agent = shim.agent()
    assert not exists(grandchild)
    assert agent.status.last_death.incarnation == 1
    again = agent.until("started", lambda s: s.alive, saying=agent.follower)
    assert again.incarnation == 2 and again.restarts == 1


# ---- permits and the agent


def test_a_follower_is_not_killed_for_silence(shim: Shim) -> None:
    agent = shim.running()
    agent.close()
    hold(TTL_S + 1)
    assert shim.json()["incarnation"] == 1
    assert shim.json()["alive"] and not shim.json()["agent_present"]


def test_engaged_without_permit_dies_when_its_lease_could_end(shim: Shim) -> None:
    agent = shim.running()
    agent.follower()
    read = boot_ns()
    shim.lead(agent)
    agent.close()
    wait_for("dead", lambda: shim.json()["last_death"]["incarnation"] == 1, 8)
    death = shim.json()["last_death"]
    assert death["reason"] == "AgentLost"
    assert death["dead_ns"] <= read + int((ROOM_S + KILL_BUDGET_S) * 1e9)
    assert death["dead_ns"] >= read + int((ROOM_S - 0.5) * 1e9)


def test_one_fence_for_a_lost_agent_then_unarmed_and_not_at_once(shim: Shim) -> None:
    agent = shim.running()
    shim.lead(agent, 1.0)
    agent.close()
    wait_for("dead", lambda: shim.json()["last_death"]["reason"] == "AgentLost", PATIENCE_S)
    held = shim.json()
    assert held["hold"] == "Lease" and not held["armed"]
    # Healthy peers go first: not before ttl + 1 s after the death.
    wait_for("second start", lambda: shim.json()["incarnation"] == 2, TTL_S + 4)
    again = shim.json()
    assert again["started_ns"] >= held["last_death"]["dead_ns"] + int((TTL_S + 1) * 1e9)
    wait_for("serves", lambda: shim.json()["service_open"], PATIENCE_S)
    os.kill(shim.json()["pid"], signal.SIGUSR1)
    wait_for("leads", lambda: shim.json()["engaged"], PATIENCE_S)
    hold(TTL_S + 1)
    assert shim.json()["alive"] and shim.json()["fences"] == 1
    # Until an agent is back.
    agent = shim.agent()
    agent.order(flags=fc.ARMED)
    agent.until("armed", lambda s: "armed" in s.flags)


def test_when_agent_lost_hold(shim: Shim) -> None:
    agent = shim.running(when_agent_lost="hold")
    deadline = shim.lead(agent, 1.0)
    agent.close()
    wait_for("held", lambda: shim.json()["silence_held"], PATIENCE_S)
    assert boot_ns() >= deadline and shim.json()["alive"]
    assert shim.probe("liveness")[0] == 0
    assert "not covered" in shim.log.read_text()
    agent = shim.agent()
    agent.leader(3)
    agent.until("covered", lambda s: "silence_held" not in s.flags)
    assert agent.status.incarnation == 1


def test_pause_ends_by_itself_and_kills_what_is_overdue(shim: Shim) -> None:
    agent = shim.running()
    end = boot_ns() + int(3e9)
    shim.lead(agent, 1.0)
    agent.leader(1.0, pause_end_ns=end)
    agent.close()
    while boot_ns() < end - int(0.2e9):
        assert shim.json()["alive"]
        time.sleep(0.1)
    wait_for("dead", lambda: shim.json()["last_death"]["incarnation"] == 1, 3)
    assert end <= shim.json()["last_death"]["dead_ns"] <= end + int(KILL_BUDGET_S * 1e9)


def test_an_order_for_another_incarnation_kills_nobody(shim: Shim) -> None:
    agent = shim.running()
    for incarnation in (2, 7, 2**63):
        agent.kill(fc.SUPERSEDED, incarnation=incarnation)
    agent.until("answered", lambda s: s.order_seq == agent.seq)
    assert agent.status.alive and agent.status.incarnation == 1


def test_no_agent_at_all_starts_after_ttl_and_never_kills(shim: Shim) -> None:
    began = boot_ns()
    shim.start()
    wait_for("started", lambda: shim.state.exists() and shim.json()["alive"], TTL_S + 3)
    assert shim.json()["started_ns"] >= began + int(TTL_S * 1e9)
    wait_for("serves", lambda: shim.json()["service_open"], PATIENCE_S)
    os.kill(shim.json()["pid"], signal.SIGUSR1)
    wait_for("leads", lambda: shim.json()["engaged"], PATIENCE_S)
    hold(TTL_S + 1)
    assert shim.json()["alive"] and shim.json()["deadline_ns"] == 0


# ---- start gate


def test_ten_manual_fences_in_a_row(shim: Shim) -> None:
    agent = shim.running()
    for n in range(1, 11):
        agent.kill(fc.MANUAL, flags=fc.ARMED | fc.MANUAL_HOLD)
        held = agent.until(
            "held",
            lambda s: s.hold == "Manual",
            saying=lambda: agent.order(flags=fc.ARMED | fc.MANUAL_HOLD, row=fc.ROW_OTHER),
        )
        assert held.last_death.reason == "Manual" and held.hold_until_ns == 2**63 - 1
        assert shim.probe("liveness")[0] == 0
        released = boot_ns()
        agent.until("back", lambda s, i=n: s.incarnation == i + 1, 3, agent.follower)
        assert boot_ns() - released < 3e9
    assert agent.status.kills == 0 and agent.status.fences == 10


def test_manual_fence_outlives_metafence_run(shim: Shim) -> None:
    agent = shim.running(restart="container")
    agent.kill(fc.MANUAL, flags=fc.ARMED | fc.MANUAL_HOLD)
    assert shim.process.wait(5) == 137
    shim.start(restart="container")
    wait_for("held", lambda: shim.json()["hold"] == "Manual", PATIENCE_S)
    hold(TTL_S + 1)
    assert len(shim.children()) == 1


def test_lease_hold_outlives_metafence_run(shim: Shim) -> None:
    agent = shim.running(restart="container")
    shim.lead(agent, 1.0)
    agent.close()
    assert shim.process.wait(5) == 137
    dead_ns = shim.json()["last_death"]["dead_ns"]
    shim.start(restart="container")
    wait_for("held", lambda: shim.json()["hold"] == "Lease", PATIENCE_S)
    wait_for("started", lambda: shim.json()["incarnation"] == 2, TTL_S + 3)
    assert shim.json()["started_ns"] >= dead_ns + int((TTL_S + 1) * 1e9)


def test_storm_limit(shim: Shim) -> None:
    agent = shim.running()
    for n in range(1, 5):
        agent.until("runs", lambda s, i=n: s.incarnation == i, 5, agent.follower)
        agent.kill(fc.SUPERSEDED)
        agent.until("dead", lambda s, i=n: s.last_death.incarnation == i)
    held = agent.until("storm", lambda s: s.hold == "Storm", saying=agent.follower)
    assert held.kills == 4
    assert held.hold_until_ns == held.last_death.dead_ns + int(10e9)


def test_a_twin_that_renews_keeps_us_down(shim: Shim) -> None:
    shim.start()
    agent = shim.agent()
    twin = {"row": fc.ROW_OURS, "tag": "metafence:ffffffff:0123456789abcdef", "flags": fc.ARMED}
    end = boot_ns() + int((TTL_S + 2) * 1e9)
    while boot_ns() < end:
        agent.order(**twin)
        agent.receive(0.2)
        assert agent.status.hold == "Identity"
    assert shim.children() == []
    agent.until("ends", lambda s: s.alive, 3, lambda: agent.order(still_ns=int(5e9), **twin))


def test_require_agent_holds_then_starts(shim: Shim) -> None:
    began = boot_ns()
    shim.start(require_agent=None)
    wait_for("held", lambda: shim.state.exists() and shim.json()["hold"] == "AgentRequired", PATIENCE_S)
    agent = shim.agent()
    agent.until("armed and started", lambda s: s.alive, 3, agent.follower)
    assert boot_ns() - began < 4e9


# ---- probes


def test_probes_of_a_stopped_metafence_run(shim: Shim) -> None:
    agent = shim.running()
    assert [shim.probe(k)[0] for k in ("startup", "liveness", "readiness")] == [0, 0, 0]
    deadline = shim.lead(agent, 1.5)
    assert shim.probe("readiness")[0] == 0  # promoting
    os.kill(shim.process.pid, signal.SIGSTOP)
    assert shim.probe("liveness")[0] == 0
    wait_for("liveness fails", lambda: shim.probe("liveness")[0] == 1, PATIENCE_S)
    assert boot_ns() >= deadline
    assert "deadline has passed" in shim.probe("liveness")[1]
    os.kill(shim.process.pid, signal.SIGCONT)
    agent.until("dead", lambda s: s.last_death.incarnation == 1)
    assert shim.probe("liveness")[0] == 0


@pytest.mark.parametrize("content", [None, b"", b"x" * 360, bytes(range(180)) * 2, bytes(10000)])
def test_probe_of_a_broken_state_file(shim: Shim, content: bytes | None) -> None:
    if content is not None:
        shim.state.write_bytes(content)
    code, line = shim.probe("liveness")
    assert code == 1 and line.startswith("fail: ")


def test_a_broken_state_file_is_replaced(shim: Shim) -> None:
    shim.state.write_bytes(os.urandom(500))
    shim.running()
    assert shim.json()["incarnation"] == 1


# ---- the socket


def test_garbage_closes_the_connection_and_nothing_else(shim: Shim) -> None:
    agent = shim.running()
    shim.lead(agent, 4.0)
    good = pack_order(1, incarnation=1, role=fc.FOLLOWER)
    rng = random.Random(7)
    packets = [
        b"x",
        good[:-1],
        good + b"x",
        pack_order(1, version=2),
        pack_order(1, incarnation=1, role=4),
        bytes(176),
        bytes(60000),
    ]
    for _ in range(200):
        spoiled = bytearray(good)
        spoiled[rng.randrange(len(good))] ^= 1 << rng.randrange(8)
        packets.append(bytes(spoiled))
    for packet in packets:
        stranger = FenceClient(shim.socket)
        with pytest.raises(Closed):
            stranger.send(packet)
            while stranger.receive(5):
                pass
        stranger.close()
    assert agent.status.alive
    # The agent is still the one that is heard.
    agent.leader(4.0)
    agent.until("heard", lambda s: s.order_seq == agent.seq)
    assert agent.status.permit == fc.LEADER
    log = shim.log.read_text()
    assert "connection refused" in log and log.count("connection refused") < 20


def test_the_agent_that_ordered_last_to_connect_is_heard(shim: Shim) -> None:
    old = shim.running()
    new = shim.agent()
    old.follower()
    old.until("heard", lambda s: s.order_seq == old.seq)
    new.follower()
    new.until("heard", lambda s: s.order_seq == new.seq)
    old.kill(fc.SUPERSEDED)
    new.follower()
    new.until("heard", lambda s: s.order_seq == new.seq)
    assert new.status.alive and new.status.incarnation == 1
    new.close()
    old.until(
        "is heard again",
        lambda s: s.last_death.incarnation == 1,
        5,
        lambda: old.kill(fc.SUPERSEDED),
    )


def test_a_peer_that_does_not_read_blocks_nobody(shim: Shim) -> None:
    agent = shim.running()
    deaf = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    deaf.connect(str(shim.socket))
    for n in range(2000):
        agent.follower(pause_end_ns=n)  # each is news for everybody
        assert agent.receive(1)
    agent.until("heard", lambda s: s.order_seq == agent.seq)
    deaf.close()
    assert "does not read" in shim.log.read_text()


@pytest.mark.skipif(os.geteuid() != 0, reason="needs two users")
def test_another_user_is_refused(shim: Shim) -> None:
    shim.running(peer_uid="0")
    script = f"""
import os, socket
os.chmod({str(shim.dir)!r}, 0o755)
os.setuid(65534)
s = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
s.connect({str(shim.socket)!r})
s.settimeout(5)
assert s.recv(1000) == b""
"""
    subprocess.run([sys.executable, "-c", script], check=True)
    assert "of user 65534 is not the agent's user 0" in shim.log.read_text()


def test_a_second_metafence_run_is_refused(shim: Shim) -> None:
    shim.running()
    first = shim.process
    shim.start()
    assert shim.process.wait(5) == 1
    assert "another metafence-run guards this meta" in shim.log.read_text()
    shim.process = first
    assert shim.json()["alive"]


def test_its_log_and_that_of_meta_fit_in_one_file(shim: Shim) -> None:
    """As a shell's > opens it: without O_APPEND."""
    log = shim.dir / "shell.log"
    argv = f'"{metafence_run()}" --socket "{shim.socket}" --state "{shim.state}" --pod-uid {POD}'
    meta = 'sh -c "echo first of meta; sleep 0.3; echo last of meta; exit 7"'
    agent = None
    with open(log, "wb") as out:
        shim.process = subprocess.Popen(
            ["/bin/sh", "-c", f"exec {argv} --restart container -- {meta}"],
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=out,
        )
    agent = shim.agent()
    agent.until("meta has started", lambda s: s.incarnation, saying=agent.follower)
    assert shim.process.wait(PATIENCE_S) == 7
    lines = log.read_text().splitlines()
    assert "first of meta" in lines and "last of meta" in lines, lines
    assert all(line.startswith("ts=") or line.endswith(" of meta") for line in lines), lines


def test_a_full_log_pipe_does_not_stop_it(shim: Shim) -> None:
    agent = shim.running()
    stuck = shim.process.pid
    assert exists(stuck)
    agent.close()
    shim.process.terminate()
    shim.process.wait(5)
    read_end, write_end = os.pipe()
    os.set_blocking(write_end, False)
    with pytest.raises(BlockingIOError):
        while True:
            os.write(write_end, b"x" * 4096)
    with pytest.raises(BlockingIOError):
        while True:
            os.write(write_end, b"x")
    os.set_blocking(write_end, True)
    saved, shim.log = shim.log, Path(f"/proc/self/fd/{write_end}")
    shim.start(habits=())
    shim.log = saved
    agent = shim.agent()
    agent.until("runs", lambda s: s.alive, saying=agent.follower)
    agent.kill(fc.SUPERSEDED)
    agent.until("dead", lambda s: s.last_death.reason == "Superseded")
    os.close(read_end)
    os.close(write_end)


def test_memory_and_descriptors_are_flat(shim: Shim) -> None:
    agent = shim.running()
    proc = Path(f"/proc/{shim.process.pid}")

    def size() -> tuple[str, int]:
        lines = (proc / "status").read_text().splitlines()
        data = next(line for line in lines if line.startswith("VmData:"))
        return data, len(list((proc / "fd").iterdir()))

    before = size()
    for n in range(1, 4):
        for _ in range(300):
            agent.follower()
            agent.receive(1)
        with FenceClient(shim.socket) as stranger:
            stranger.send(b"garbage")
        agent.kill(fc.MANUAL)
        agent.until("back", lambda s, i=n: s.incarnation == i + 1, 5, agent.follower)
    agent.until("strangers are gone", lambda _: size()[1] == before[1])
    assert size() == before


# ---- the command line


@pytest.mark.parametrize(
    ("argv", "message"),
    [
        (["--ttl", "5"], '--ttl: "5" lacks a unit'),
        (["--ttl"], "--ttl needs a value"),
        (["--ttl=5s", "--ttl=6s"], "--ttl is given twice"),
        (["--bogus=1"], '"--bogus=1" is no option of metafence-run'),
        (["meta-node"], '"meta-node" is no option of metafence-run'),
        (["--service-port", "65536"], '--service-port "65536" is not a whole number from 0'),
        (["--service-port", "0"], "--service-port is 0"),
        (["--service-port=1250"], "must differ"),
        (["--restart=never"], '--restart "never" is neither in-place nor container'),
        (["--when-agent-lost=x"], '--when-agent-lost "x" is neither fence nor hold'),
        (["--require-agent=yes"], "--require-agent takes no value"),
        (["--peer-uid=-1"], '--peer-uid "-1" is not a whole number'),
        (["--pod-uid=short"], '--pod-uid "short" has less than 8 characters'),
        (["--pod-uid=a b c d e"], "must be letters, digits or -"),
        (["--pod-uid="], "--pod-uid is empty"),
        (["--socket=" + "/x" * 60], "has 120 bytes: the kernel takes 107"),
        (
            ["--ttl=2s", "--margin=2s"],
            "--margin 2s + --kill-budget 500ms must be less than --ttl 2s",
        ),
        (["--max-kills=11"], "--max-kills is 11: at most 10"),
        (["probe", "life"], 'probe "life" is none of startup, liveness, readiness'),
        (["probe", "liveness"], "--state is missing"),
    ],
)
def test_bad_options(argv: list[str], message: str) -> None:
    names = {a.split("=")[0] for a in argv}
    full = list(argv)
    if argv[0] != "probe":
        defaults = {"--socket": "s", "--state": "t", "--pod-uid": POD}
        full += [f"{k}={v}" for k, v in defaults.items() if k not in names]
        if not argv[-1].startswith("--ttl") or "=" in argv[-1]:
            full += ["--", "true"]
        elif len(argv) == 1:
            full = [f"{k}={v}" for k, v in defaults.items()] + argv + ["--", "true"]
    done = subprocess.run([str(metafence_run()), *full], capture_output=True, text=True)
    assert done.returncode == 2
    assert message in done.stderr and done.stderr.count("\n") == 1


def test_no_secret_reaches_log_status_or_argv(shim: Shim, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RW_SQL_PASSWORD", "hunter2hunter2")
    agent = shim.running()
    agent.kill(fc.SUPERSEDED)
    agent.until("dead", lambda s: s.last_death.incarnation == 1)
    files = [shim.log, shim.state, Path(f"/proc/{shim.process.pid}/cmdline")]
    assert [f for f in files if b"hunter2" in f.read_bytes()] == []


def test_tag_is_new_in_each_incarnation(shim: Shim) -> None:
    agent = shim.running()
    agent.kill(fc.SUPERSEDED)
    agent.until("second", lambda s: s.incarnation == 2, 5, agent.follower)
    wait_for("second child", lambda: len(shim.children()) == 2, PATIENCE_S)
    tags = [child["tag"] for child in shim.children()]
    assert agent.status.tag == tags[1] != tags[0] == agent.status.last_death.tag
    assert all(t.startswith("metafence:0a1b2c3d:") and len(t) == 35 for t in tags)
