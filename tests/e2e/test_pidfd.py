# SPDX-License-Identifier: Apache-2.0
"""The fence without metafence-run: a shared PID namespace, one user, meta killed by pidfd.

A pod is a PID namespace whose first process does nothing (it does not even reap); the agent and each
start of meta's container have mount namespaces of their own in it and run as a plain user. The kubelet
is played: it starts meta's container again whenever it has ended, ends with the container's first
process whatever else is in it, and asks the agent whether meta may live.
"""

import os
import shutil
import signal
import socket
import threading
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from fenceclient import STATUS, with_checksum
from harness import Cluster, Lab, Pod, boot_ns, hold, wait_for
from harness.paths import metafence
from harness.postgres import PASSWORD
from harness.process import Process, signal_pid
from scenario import Make

UID = 64321
PID = 7  # of STATUS' fields
BACK_OFF = 0.3  # the kubelet's first restart comes after 0.8 s

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="namespaces and users need root")


def status_of(pid: int | str) -> dict[str, str]:
    try:
        lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    except (FileNotFoundError, ProcessLookupError):
        return {}
    return {k: v.strip() for k, _, v in (line.partition(":") for line in lines)}


def link(pid: int | str, name: str) -> str:
    try:
        return os.readlink(f"/proc/{pid}/ns/{name}")
    except OSError:
        return ""


class Sandbox:
    """The pod's PID namespace, with a /proc that shows it alone."""

    def __init__(self, lab: Lab, directory: Path) -> None:
        argv: list[str | Path] = ["unshare", "--pid", "--fork", "--kill-child", "--mount", "--mount-proc"]
        self._process = lab.spawn("pause", [*argv, "sleep", "infinity"], directory / "pause.log")
        self.init = wait_for("the sandbox's first process", self._find_init, 5)
        self.pid_ns = link(self.init, "pid")

    def _find_init(self) -> int | None:
        tasks = Path(f"/proc/{self._process.pid}/task/{self._process.pid}/children").read_text().split()
        started = [int(t) for t in tasks if status_of(t).get("Name") == "sleep"]
        return started[0] if started else None

    def enter(self, uid: int, own_mounts: bool, argv: list[str | Path]) -> list[str | Path]:
        """What runs `argv` in here without any privilege."""
        user = [f"--reuid={uid}", f"--regid={uid}", "--clear-groups", "--no-new-privs"]
        caps = ["--inh-caps=-all", "--bounding-set=-all"]
        namespace = ["nsenter", f"--target={self.init}", "--pid", "--mount", "--"]
        mounts = ["unshare", "--mount"] if own_mounts else []
        return [*namespace, *mounts, "setpriv", *user, *caps, "--", *argv]

    def processes(self) -> dict[int, int]:
        """Pid in here -> pid outside, of what lives."""
        found = {}
        for entry in Path("/proc").iterdir():
            if not entry.name.isdigit() or link(entry.name, "pid") != self.pid_ns:
                continue
            status = status_of(entry.name)
            if status and status["State"][0] not in "ZX":
                found[int(status["NSpid"].split()[-1])] = int(entry.name)
        return found


class Kubelet:
    """Starts the container of meta again and again."""

    def __init__(self, pod: "PidfdPod", liveness: bool) -> None:
        self._pod, self._liveness = pod, liveness
        self._stop = threading.Event()
        self.probe_kills = 0
        self.starts = 0
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def stop(self) -> None:
        self._stop.set()
        self._thread.join(10)

    def _run(self) -> None:
        while not self._stop.is_set():
            container = self._pod.start_container()
            self.starts += 1
            failures = 0
            next_probe = boot_ns() + 10**9
            while container.alive and not self._stop.is_set():
                self._stop.wait(0.05)
                self._pod.wake_runtime(container)
                if not self._liveness or boot_ns() < next_probe:
                    continue
                next_probe = boot_ns() + 10**9  # periodSeconds 1, failureThreshold 3
                failures = 0 if self._pod.may_live() else failures + 1
                if failures == 3:
                    self.probe_kills += 1
                    self._pod.end_container()
            self._pod.end_container()  # the runtime leaves nothing behind
            self._stop.wait(BACK_OFF)


class PidfdPod(Pod):
    """The pids of the witness are those inside the pod."""

    wrapper: tuple[str, ...] = ()
    meta_uid = UID
    liveness = False

    def prepare(self) -> None:
        self.config["fence"] |= {"method": "pidfd"}
        self.config["meta"] |= {"metricsPort": self.metrics_port, "dashboardPort": self.dashboard_port}
        for path in (self.dir, *self.dir.iterdir()):
            shutil.chown(path, UID, UID)
        self.dir.chmod(0o777)  # also for a meta of another user
        self.sandbox = Sandbox(self.lab, self.dir)
        self.kubelet: Kubelet | None = None
        self.env: dict[str, str] = {}
        self._container_ns = ""

    def start(self, agent: bool = True) -> "PidfdPod":
        if agent:
            self.start_agent()
        kubelet = self.kubelet = Kubelet(self, self.liveness)
        wait_for("the first start", lambda: kubelet.starts > 0, 5)
        return self

    def start_agent(self, password: str | None = PASSWORD) -> None:
        argv = [metafence(), "agent", "--config", self.write_config()]
        env = {"PGPASSWORD": password} if password is not None else {}
        inside = self.sandbox.enter(UID, own_mounts=False, argv=argv)
        self.agent = self.lab.spawn(f"{self.name}/agent", inside, self.agent_log.path, env)

    def kill_agent(self) -> None:
        for pid in self.sandbox.processes().values():
            if b"agent" in Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0"):
                os.kill(pid, signal.SIGKILL)
        assert self.agent is not None
        self.agent.wait(5)

    def start_container(self) -> Process:
        argv = self.sandbox.enter(self.meta_uid, own_mounts=True, argv=[*self.wrapper, *self._meta_argv()])
        self._main = self.lab.spawn(f"{self.name}/meta", argv, self.run_log.path, self._meta_env() | self.env)
        return self._main

    def container(self) -> list[int]:
        """Host pids of meta's container: who is in neither of the two other mount namespaces."""
        others = {link(self.sandbox.init, "mnt"), ""}
        return [p for p in self.sandbox.processes().values() if link(p, "mnt") not in others]

    def end_container(self) -> None:
        for pid in self.container():
            signal_pid(pid, signal.SIGKILL)

    def wake_runtime(self, container: Process) -> None:
        """nsenter stops with what it waits for, and would miss its end."""
        if status_of(container.pid).get("State", "?")[0] == "T" and not self.container():
            container.signal(signal.SIGCONT)

    def may_live(self) -> bool:
        url = f"http://127.0.0.1:{self.http_port}/meta/livez"
        try:
            with urllib.request.urlopen(url, timeout=1) as answer:
                return answer.status == 200
        except (urllib.error.URLError, OSError):
            return False

    @property
    def meta_host_pid(self) -> int | None:
        return self.sandbox.processes().get(self.meta_pid or 0)

    @property
    def meta_alive(self) -> bool:
        return self.meta_host_pid is not None

    def signal_meta(self, number: int) -> None:
        pid = self.meta_host_pid
        assert pid is not None, f"{self.name}: meta does not run"
        signal_pid(pid, number)

    def fences(self) -> int:
        status = self.status()
        assert status is not None
        return int(status["meta"]["fences"])


Made = Callable[..., Cluster]


@pytest.fixture
def pidfd_cluster(cluster: Make, monkeypatch: pytest.MonkeyPatch) -> Iterator[Made]:
    """cluster(first={attribute: value of the first pod}); all pods are PidfdPods."""
    made: list[Cluster] = []

    def make(
        pods: int = 2, first: dict[str, Any] | None = None, pod_class: type[PidfdPod] = PidfdPod
    ) -> Cluster:
        monkeypatch.setattr("harness.cluster.Pod", pod_class)
        created = cluster(ttl=5, pods=pods)
        made.append(created)
        for pod in created.pods:
            assert isinstance(pod, PidfdPod)
            pod.prepare()
        for name, value in (first or {}).items():
            setattr(created.pods[0], name, value)
        return created

    yield make
    for created in made:
        for pod in created.pods:
            assert isinstance(pod, PidfdPod)
            if pod.kubelet is not None:
                pod.kubelet.stop()


def leading(made: Cluster) -> PidfdPod:
    leader = made.start()
    assert isinstance(leader, PidfdPod)
    leader.wait_status("leader, armed, engaged", lambda s: s["role"] == "leader" and s["engaged"], 10)
    return leader


def lose_lease(made: Cluster) -> None:
    """Another id takes the row, as after a failover."""
    with made.postgres.connect() as session:
        session.execute("UPDATE election_leader SET id = 'elsewhere:5690', last_heartbeat = now()")


def dead_for(pod: PidfdPod, pid: int | None, reason: str, timeout: float = 10) -> dict[str, Any]:
    status = pod.wait_status(
        f"dead for {reason}",
        lambda s: s["last_fence"] and s["last_fence"]["reason"] == reason and s["last_fence"]["confirmed"],
        timeout,
    )
    assert pid not in pod.sandbox.processes()
    return status


def test_lost_leadership(pidfd_cluster: Made) -> None:
    """Killed at once, found again when the kubelet has restarted it, a follower within seconds."""
    made = pidfd_cluster()
    leader = leading(made)
    pid = leader.meta_pid
    began = boot_ns()
    lose_lease(made)
    wait_for("the old leader is dead", lambda: pid not in leader.sandbox.processes(), 5, 0.01)
    took = (boot_ns() - began) / 1e9
    status = dead_for(leader, pid, "Superseded")
    assert took < 2, f"{took:.3f} s"
    assert status["last_fence"]["incarnation"] == 1 and status["meta"]["fences"] == 1
    made.wait_converged(20)
    assert leader.incarnations == 2 and leader.fences() == 1
    status = leader.status() or {}
    assert status["fence"]["method"] == "pidfd" and status["fence"]["unusable"] == ""
    assert status["not_fenced"] is None and not status["superseded"]


def test_silent_postgres(pidfd_cluster: Made) -> None:
    """Dead by its own deadline, before another can be elected."""
    made = pidfd_cluster()
    leader = leading(made)
    pid = leader.meta_pid
    leader.proxy.order("mode stall")
    began = boot_ns()
    wait_for("dead by its deadline", lambda: pid not in leader.sandbox.processes(), made.ttl, 0.01)
    assert boot_ns() - began < made.ttl * 1e9
    dead_for_status = leader.wait_status("said", lambda s: s["last_fence"], 5)
    assert dead_for_status["last_fence"]["reason"] == "LeaseExpired"
    leader.proxy.order("mode pass")
    made.wait_converged(30)
    assert made.witness().overlaps == 0


def test_restarted_agent_keeps_latches(pidfd_cluster: Made) -> None:
    """Engaged outlives the agent; superseded does too, and is acted on when the pause is over."""
    made = pidfd_cluster()
    leader = leading(made)
    pid = leader.meta_pid
    leader.kill_agent()
    leader.start_agent()
    status = leader.wait_status("leader again", lambda s: s["role"] == "leader" and s["armed"], 10)
    assert status["engaged"] and status["meta"]["incarnation"] == 1
    assert status["counters"]["kills"] == 0
    assert leader.meta_pid == pid and leader.meta_alive
    assert leader.agent_log.find(msg="took over from an earlier agent", lives="true", engaged="true")

    assert leader.cli("pause", "--for", "60s", "--reason", "test").returncode == 0
    leader.wait_status("paused", lambda s: s["paused_until"], 5)
    leader.signal_meta(signal.SIGSTOP)  # else it leaves by itself
    lose_lease(made)
    leader.wait_status("superseded", lambda s: s["superseded"], 10)
    leader.kill_agent()
    leader.start_agent()
    status = leader.wait_status("back", lambda s: s["armed"], 10)
    assert status["superseded"] and status["engaged"] and leader.meta_alive
    assert leader.cli("resume").returncode == 0
    dead_for(leader, pid, "Superseded")


def test_manual_fence_is_held(pidfd_cluster: Made) -> None:
    """Nothing can hold the kubelet's start back: what appears is killed again, until unfenced."""
    made = pidfd_cluster()
    leader = leading(made)
    assert leader.cli("fence", "--reason", "test").returncode == 0
    assert leader.kubelet is not None
    kubelet = leader.kubelet
    starts = kubelet.starts
    wait_for("the kubelet has tried thrice", lambda: kubelet.starts >= starts + 3, 20)
    status = leader.wait_status("fenced", lambda s: s["role"] == "fenced", 5)
    assert status["meta"]["fences"] >= 3 and status["meta"]["manual"]
    assert leader.cli("unfence").returncode == 0
    made.wait_converged(30)


def test_whole_container_dies(pidfd_cluster: Made) -> None:
    """A wrapper shell, and a double-forked child in a session of its own that holds a port."""
    made = pidfd_cluster()
    port = made.lab.port()
    pod = made.pods[0]
    assert isinstance(pod, PidfdPod)
    holder = pod.dir / "holder.py"
    holder.write_text(
        f"import socket, time\ns = socket.create_server(('127.0.0.1', {port}))\ntime.sleep(1e6)\n"
    )
    # It ignores TERM, and its parent is gone.
    script = 'setsid sh -c \'trap "" TERM; python3 "$0" & exit\' "$0"; "$@"; exit $?'
    pod.wrapper = ("sh", "-c", script, str(holder))

    def holds_port() -> bool:
        with socket.socket() as client:
            return client.connect_ex(("127.0.0.1", port)) == 0

    leader = leading(made)
    assert leader is pod
    inside = wait_for("wrapper, meta and child", lambda: len(pod.container()) >= 3 and pod.container(), 5)
    wait_for("it holds the port", holds_port, 5)
    lose_lease(made)
    wait_for("all of them are dead", lambda: not set(inside) & set(pod.container()), 5, 0.01)
    status = pod.wait_status("dead", lambda s: s["last_fence"] and s["last_fence"]["dead_boot_ns"], 5)
    assert status["last_fence"]["reason"] == "Superseded"
    made.wait_converged(20)


@pytest.mark.parametrize("what", ["stopped", "forks"])
def test_stubborn_process(pidfd_cluster: Made, what: str) -> None:
    """A stopped process dies without being continued; one that forks all the time dies too."""
    first = {} if what == "stopped" else {"wrapper": ("sh", "-c", 'while :; do sleep 0.01; done & "$@"', "w")}
    made = pidfd_cluster(first=first)
    leader = leading(made)
    pid = leader.meta_pid
    if what == "stopped":
        leader.signal_meta(signal.SIGSTOP)
    lose_lease(made)
    wait_for("dead", lambda: pid not in leader.sandbox.processes(), 5, 0.01)
    dead_for(leader, pid, "Superseded")
    if what == "stopped":
        assert not [e for e in leader.witness.events("term", pid)]
    made.wait_converged(20)


def test_another_user(pidfd_cluster: Made) -> None:
    """A meta of another user can't be killed: said at once, and NotFenced when it has to die."""
    made = pidfd_cluster(first={"meta_uid": UID + 1})
    pod = made.pods[0]
    assert isinstance(pod, PidfdPod)
    made.install_sql()
    pod.start()
    uid = f"uid {UID + 1} "  # until it has taken that, it runs as root
    status = pod.wait_status("not usable", lambda s: uid in (s["fence"]["unusable"] or ""), 10)
    why = status["fence"]["unusable"]
    assert f"uid {UID}," in why and "same runAsUser" in why
    pod.wait_status("said", lambda s: "FenceUnusable" in s["not_covered"], 5)
    assert pod.agent_log.find(msg="the fence is not usable", level="error")
    pod.wait_status("leads", lambda s: s["role"] == "leader" and s["engaged"], 15)
    pod.signal_meta(signal.SIGSTOP)  # else it leaves by itself
    lose_lease(made)
    status = pod.wait_status("not fenced", lambda s: s["not_fenced"], 10)
    assert status["not_fenced"]["why"] == why and status["not_fenced"]["method"] == "Pidfd"
    assert pod.agent_log.find(msg="not fenced", level="error")
    assert pod.meta_alive
    wait_for("the agent says it to the kubelet", lambda: not pod.may_live(), 5)


def test_kubelet_ends_what_has_no_agent(pidfd_cluster: Made) -> None:
    """The agent is gone and does not come back: meta's liveness probe points at it."""
    made = pidfd_cluster(first={"liveness": True})
    leader = leading(made)
    assert leader.kubelet is not None
    wait_for("a probe is answered", leader.may_live, 5)
    pid = leader.meta_pid
    hold(3)
    assert leader.kubelet.probe_kills == 0
    leader.kill_agent()
    wait_for("the kubelet has killed it", lambda: pid not in leader.sandbox.processes(), 10)
    assert leader.kubelet.probe_kills == 1


def test_reused_pid(pidfd_cluster: Made) -> None:
    """The number in the state file is another process' now: it is neither hit nor taken for meta."""
    made = pidfd_cluster()
    leader = leading(made)
    assert leader.kubelet is not None
    leader.kubelet.stop()
    leader.kill_agent()
    leader.end_container()
    wait_for("meta is gone", lambda: not leader.container(), 5)
    argv = leader.sandbox.enter(UID, own_mounts=True, argv=["sleep", "1000"])
    stranger = made.lab.spawn("stranger", argv, leader.dir / "stranger.log")

    def sleeper() -> int | None:
        seen = leader.sandbox.processes().items()
        return next((k for k, v in seen if k != 1 and status_of(v).get("Name") == "sleep"), None)

    state = leader.dir / "state"
    fields = list(STATUS.unpack(state.read_bytes()))
    fields[PID] = wait_for("the stranger runs", sleeper, 5)
    state.write_bytes(with_checksum(STATUS.pack(*fields)))
    leader.start_agent()
    status = leader.wait_status("it takes over", lambda s: s["meta"]["known"], 10)
    assert not status["meta"]["alive"] and status["meta"]["last_exit"]
    assert leader.cli("fence", "--reason", "test").returncode == 0
    hold(1, lambda: _assert_alive(stranger))


def _assert_alive(process: Process) -> None:
    assert process.alive, "a process that is not meta was killed"


class SharedPod(PidfdPod):
    """metafence-run in a pod with a shared PID namespace."""

    def prepare(self) -> None:
        super().prepare()
        del self.config["fence"]["method"]

    def start_container(self) -> Process:
        inside = [*self._run_argv(), *self._meta_argv()]
        argv = self.sandbox.enter(UID, own_mounts=True, argv=inside)
        self._main = self.lab.spawn(f"{self.name}/run", argv, self.run_log.path, self._meta_env())
        return self._main

    def signal_shim(self, number: int) -> None:
        for pid in self.sandbox.processes().values():
            if status_of(pid).get("Name") == "metafence-run":
                os.kill(pid, number)


def test_stopped_metafence_run(pidfd_cluster: Made) -> None:
    """The second method: metafence-run can't act, and we see meta in the shared PID namespace."""
    made = pidfd_cluster(pod_class=SharedPod)
    leader = leading(made)
    assert isinstance(leader, SharedPod)
    pid = leader.meta_pid
    leader.wait_status("pidfd beside it", lambda s: s["fence"]["pidfd_beside"], 5)
    leader.signal_shim(signal.SIGSTOP)
    began = boot_ns()
    lose_lease(made)
    wait_for("dead all the same", lambda: pid not in leader.sandbox.processes(), 5, 0.01)
    assert boot_ns() - began > 0.2e9, "not before metafence-run had its time"
    dead_for(leader, pid, "Superseded")
    assert leader.agent_log.find(msg="not fenced", level="error", method="Pidfd")
    leader.wait_status("fenced at last", lambda s: s["not_fenced"] is None, 5)

    def recorded() -> bool:
        with made.postgres.connect() as session:
            rows = session.execute("SELECT method, reason FROM metafence.death").fetchall()
        return ("pidfd", "Superseded") in rows

    wait_for("its death is recorded", recorded, 10)
    leader.signal_shim(signal.SIGCONT)
    made.wait_converged(30)
