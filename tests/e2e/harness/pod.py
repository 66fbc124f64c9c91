# SPDX-License-Identifier: Apache-2.0
"""One meta with its link to Postgres: alone, or with metafence-run and agent as in a pod."""

import http.client
import json
import signal
import socket
import subprocess
import uuid
from pathlib import Path
from typing import Any

from .lab import Lab
from .logs import Event, Log, WitnessFile
from .paths import metafence, metafence_run, metasim
from .postgres import DATABASE, PASSWORD, USER, Postgres
from .process import Process, signal_pid
from .profile import Profile
from .proxy import Proxy
from .waiting import wait_for, wait_status


def to_yaml(tree: dict[str, Any], indent: str = "") -> str:
    lines = []
    for key, value in tree.items():
        if isinstance(value, dict):
            lines.append(f"{indent}{key}:\n{to_yaml(value, indent + '  ')}")
        else:
            lines.append(f"{indent}{key}: {json.dumps(value)}\n")
    return "".join(lines)


class Pod:
    def __init__(
        self,
        lab: Lab,
        postgres: Postgres,
        name: str,
        profile: Profile,
        guarded: bool,
        meta_flags: list[str] | None = None,
        run_flags: list[str] | None = None,  # over the defaults: given as --name=value
        advertise: str | None = None,
    ) -> None:
        self.lab, self.postgres, self.name = lab, postgres, name
        self.profile, self.guarded = profile, guarded
        self.meta_flags, self.run_flags = meta_flags or [], run_flags or []
        self.dir = lab.dir / name
        self.dir.mkdir(mode=0o755)
        self.service_port, self.metrics_port, self.dashboard_port = (lab.port() for _ in range(3))
        self.http_port = lab.port()  # the agent's probes and metrics
        self.id = advertise or f"127.0.0.1:{self.service_port}"
        self.uid = str(uuid.uuid4())
        self.proxy = Proxy(lab, postgres.port, self.dir)
        self.witness = WitnessFile(self.dir / "witness")
        self.run_log = Log(self.dir / "run.log")
        self.agent_log = Log(self.dir / "agent.log")
        self.config: dict[str, Any] = self._default_config()
        self._main: Process | None = None  # metafence-run, or meta itself
        self.agent: Process | None = None

    def _default_config(self) -> dict[str, Any]:
        p = self.profile
        return {
            "id": self.id,
            "podUid": self.uid,
            "podName": self.name,
            "postgres": {
                "host": "127.0.0.1",
                "port": self.proxy.port,
                "database": DATABASE,
                "user": USER,
                "sslmode": "disable",
                "connectTimeout": p.connect_timeout,
                "queryTimeout": p.query_timeout,
            },
            "election": {"ttl": p.ttl_text},
            "timing": p.timing(),
            "fence": {"socket": str(self.dir / "fence.sock")},
            "meta": {"servicePort": self.service_port},
            "control": {"socket": str(self.dir / "agent.sock")},
            "http": {"address": "127.0.0.1", "port": self.http_port},
        }

    # --- processes ---------------------------------------------------------------------------

    def _meta_argv(self) -> list[str | Path]:
        flags = [*self.profile.meta_flags(), *self.meta_flags]
        return [metasim(), "meta-node", *flags, f"--witness={self.witness.path}"]

    def _meta_env(self) -> dict[str, str]:
        return {
            "RW_SQL_ENDPOINT": f"127.0.0.1:{self.proxy.port}",
            "RW_SQL_DATABASE": DATABASE,
            "RW_SQL_USERNAME": USER,
            "RW_SQL_PASSWORD": PASSWORD,
            "RW_ADVERTISE_ADDR": self.id,
            "RW_LISTEN_ADDR": f"127.0.0.1:{self.service_port}",
            "RW_PROMETHEUS_HOST": f"127.0.0.1:{self.metrics_port}",
            "RW_DASHBOARD_HOST": f"127.0.0.1:{self.dashboard_port}",
        }

    def _run_argv(self) -> list[str | Path]:
        flags = [
            f"--socket={self.dir / 'fence.sock'}",
            f"--state={self.dir / 'state'}",
            f"--pod-uid={self.uid}",
            f"--host-id={self.id}",
            f"--service-port={self.service_port}",
            f"--metrics-port={self.metrics_port}",
            f"--dashboard-port={self.dashboard_port}",
            *self.profile.run_flags(),
        ]
        names = {f.split("=")[0] for f in self.run_flags}
        kept = [f for f in flags if f.split("=")[0] not in names]
        return [metafence_run(), *kept, *self.run_flags, "--"]

    def start(self, agent: bool = True) -> "Pod":
        """Starts meta, guarded or not; returns at once."""
        if self.guarded:
            argv = [*self._run_argv(), *self._meta_argv()]
            self._main = self.lab.spawn(f"{self.name}/run", argv, self.run_log.path, self._meta_env())
            if agent:
                self.start_agent()
        else:
            log = self.dir / "meta.log"
            self._main = self.lab.spawn(f"{self.name}/meta", self._meta_argv(), log, self._meta_env())
        return self

    def write_config(self) -> Path:
        path = self.dir / "agent.yaml"
        path.write_text(to_yaml(self.config))
        return path

    def start_agent(self, password: str | None = PASSWORD, **environment: str) -> None:
        argv: list[str | Path] = [metafence(), "agent", "--config", self.write_config()]
        env = environment | ({"PGPASSWORD": password} if password is not None else {})
        self.agent = self.lab.spawn(f"{self.name}/agent", argv, self.agent_log.path, env)

    def kill_agent(self) -> None:
        assert self.agent is not None
        self.agent.kill()

    @property
    def main(self) -> Process:
        assert self._main is not None, f"{self.name} was not started"
        return self._main

    def kill(self) -> None:
        """The whole pod at once, as a lost node: agent, metafence-run, meta."""
        pid = self.meta_pid
        for process in (self.agent, self._main):
            if process is not None:
                process.kill()
        if pid is not None:
            wait_for(f"meta of {self.name} is dead", lambda: not self.meta_alive, 5)

    def term(self, timeout: float = 20) -> int:
        """Planned end of the pod: TERM for its main process; its exit status."""
        self.main.signal(signal.SIGTERM)
        return self.main.wait(timeout)

    # --- meta --------------------------------------------------------------------------------

    @property
    def meta_pid(self) -> int | None:
        """Of the newest incarnation, alive or not."""
        starts = self.witness.events("start")
        return starts[-1].pid if starts else None

    @property
    def meta_alive(self) -> bool:
        pid = self.meta_pid
        if pid is None:
            return False
        try:
            state = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0]
        except (FileNotFoundError, ProcessLookupError):
            return False
        return state not in "ZX"

    @property
    def incarnations(self) -> int:
        return len(self.witness.events("start"))

    def signal_meta(self, number: int) -> None:
        pid = self.meta_pid
        assert pid is not None, f"{self.name}: meta was never started"
        signal_pid(pid, number)

    def _reached(self, kind: str) -> Event | None:
        pid = self.meta_pid
        found = self.witness.events(kind, pid) if pid is not None else []
        return found[-1] if found else None

    @property
    def acts_as_leader(self) -> bool:
        """The living incarnation has its leader services up (a zombie too)."""
        return self.meta_alive and self._reached("leader_up") is not None

    @property
    def is_follower(self) -> bool:
        ready = self.meta_alive and self._reached("ready") is not None
        return ready and self._reached("elected") is None

    def wait_leading(self, timeout: float) -> Event:
        def leads() -> bool:
            assert self.main.alive, f"{self.main.name} ended: {self.main.log.read_text()[-500:]}"
            return self.acts_as_leader

        wait_for(f"{self.name} acts as leader", leads, timeout)
        event = self._reached("leader_up")
        assert event is not None
        return event

    # --- metafence -----------------------------------------------------------------------------

    def cli(self, *words: str, timeout: float = 20) -> "subprocess.CompletedProcess[str]":
        """`metafence <words>` against this pod's agent."""
        config = self.dir / "agent.yaml"
        argv = [str(metafence()), *words]
        argv += ["--config", str(config)] if words[0] in ("sql", "config", "doctor", "report") else []
        if words[0] in ("status", "history", "fence", "unfence", "pause", "resume", "recover", "handover"):
            argv += ["--socket", str(self.dir / "agent.sock")]
        env = {"PATH": "/usr/bin:/bin", "PGPASSWORD": PASSWORD}
        return subprocess.run(argv, capture_output=True, text=True, timeout=timeout, env=env)

    def status(self) -> dict[str, Any] | None:
        """What `metafence status -o json` prints, without the price of a process; None while the agent
        does not answer."""
        with socket.socket(socket.AF_UNIX) as client:
            client.settimeout(2)
            try:
                client.connect(str(self.dir / "agent.sock"))
                client.sendall(b'{"cmd":"status"}\n')
                answer = client.makefile().readline()
            except OSError:
                return None
        return json.loads(answer) if answer else None

    def probe(self, path: str, timeout: float = 2) -> tuple[int, Any]:
        """What the agent answers to a GET: status and body, parsed where it is JSON."""
        connection = http.client.HTTPConnection("127.0.0.1", self.http_port, timeout=timeout)
        try:
            connection.request("GET", path)
            answer = connection.getresponse()
            text = answer.read().decode()
        finally:
            connection.close()
        is_json = answer.headers["Content-Type"] == "application/json"
        return answer.status, json.loads(text) if is_json else text

    def shim_status(self) -> dict[str, Any]:
        argv = [str(metafence_run()), "status", f"--state={self.dir / 'state'}"]
        done = subprocess.run(argv, capture_output=True, text=True, timeout=10)
        assert done.returncode == 0, f"metafence-run status: {done.stderr}"
        return json.loads(done.stdout)

    def wait_status(self, what: str, probe: Any, timeout: float) -> dict[str, Any]:
        """The first status of which `probe` is true."""
        return wait_status(f"{self.name}: {what}", self.status, probe, timeout)

    def kills(self) -> int:
        """How many incarnations metafence-run has killed."""
        return int(self.shim_status()["fences"])
