# SPDX-License-Identifier: Apache-2.0
"""The screens and the plot of docs/screens are those of a real run: three metas with agents, a Postgres, a
Prometheus; a worker's pod ends, fencing is paused, the leader's link to Postgres is cut until it is fenced, a
follower is fenced by hand. `--write` draws them anew; else they are compared in their structure: names,
numbers and times are each run's own.

Each query of the dashboard returns data there."""

import fcntl
import math
import os
import pty
import re
import struct
import subprocess
import termios
import time
from collections.abc import Iterator

import computes
import pictures
import promserver
import pytest
from doctor_faults import GOOD_TOML
from harness import Cluster, Lab, Pod, hold, wait_for
from harness.paths import REPO, metafence
from harness.postgres import PASSWORD
from kube import Open
from promserver import Prometheus
from test_doctor import Install
from workerpods import end_pod, pod_of, prepared

SCREENS = REPO / "docs" / "screens"
WORKERS = ["10.42.0.21", "10.42.0.22", "10.42.0.23"]
RELEASE = "v3.0"
FLAGS = [flag.replace("head", RELEASE) for flag in computes.WORKERS]
STEP_S = 1
SEEN_S = 6
FILE = "/etc/metafence/agent.yaml"
CALM_S = 15  # the start is out of what a rate looks at
TITLE = "The dashboard while the leader's link to Postgres is cut (lease 30 s)"


def on_a_terminal(pod: Pod, command: str, *words: str) -> str:
    """What `metafence` shows there, in color, with the names of a cluster in place of the test's."""
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 50, 130, 0, 0))
    argv = [str(metafence()), *command.split(), *words]
    env = {"TERM": "xterm", "PATH": "/usr/bin:/bin", "PGPASSWORD": PASSWORD}
    with subprocess.Popen(argv, stdout=theirs, stdin=theirs, stderr=theirs, env=env) as process:
        os.close(theirs)
        shown = b""
        while True:
            try:
                part = os.read(ours, 65536)
            except OSError:  # the other side is closed
                break
            if not part:
                break
            shown += part
        process.wait(60)
    os.close(ours)
    assert PASSWORD not in shown.decode()
    return shown.decode().replace("\r\n", "\n")


def socket(pod: Pod) -> list[str]:
    return ["--socket", str(pod.dir / "agent.sock")]


class Story:
    """One run, and what it showed."""

    def __init__(self, kube: Open, lab: Lab) -> None:
        # The newest release that this one of metafence was verified with.
        made, _ = prepared(kube, WORKERS, pods=3, ttl=30, meta_flags=FLAGS, release=RELEASE)
        self.lab, self.made = lab, made
        self.names: list[tuple[str, str]] = []
        self.install = Install(made, start=self._start)
        self.leader = self.install.leader
        hold(CALM_S)
        self.began = time.time()
        self.moments: dict[str, float] = {}
        self.screens: dict[str, tuple[str, str]] = {}

    def _start(self, cluster: Cluster) -> Pod:
        leader = cluster.start()
        for n, pod in enumerate(cluster.pods):
            (pod.dir / "risingwave.toml").write_text(GOOD_TOML)
            self.names += [
                (pod.id, f"10.42.0.{11 + n}:5690"),
                (pod.uid, f"7d3f2a1{n}-4f0e-4d51-9c44-0a6f6f0e6c01"),
            ]
            self.names += [(pod.uid[:8], f"7d3f2a1{n}"), (str(pod.dir / "agent.yaml"), FILE)]
            self.names += [(str(pod.dir), "/run/metafence")]
            self.names += [(f"127.0.0.1 port {pod.proxy.port}", "postgres port 5432")]
            self.names += [
                (str(port), name) for port, name in ((pod.http_port, "9690"), (pod.service_port, "5690"))
            ]
        self.prometheus = Prometheus(self.lab, cluster.pods)
        all_up = "sum(metafence_is_leader) == 1 and sum(up) == 3"
        wait_for("all agents are scraped", lambda: self.prometheus.holds(all_up), 60)
        return leader

    def named(self, text: str) -> str:
        for old, new in self.names:
            text = text.replace(old, new)
        return text

    def moment(self, name: str) -> None:
        self.moments[name] = time.time() - self.began

    def show(self, name: str, pod: Pod, command: str, *words: str, said: str = "") -> None:
        told = f"kubectl exec {pod.config['podName']} -c metafence -- metafence {command}{said}"
        self.screens[name] = (told, self.named(on_a_terminal(pod, command, *words)))

    def tell(self) -> None:
        """All of it."""
        self._good()
        self._a_worker_ends()
        self._paused()
        self._cut()
        self._fenced_by_hand()

    def _good(self) -> None:
        leader = self.leader
        everyone = len(WORKERS)
        leader.wait_status("all workers live", lambda s: s["workers"]["last_pass"]["live"] == everyone, 60)
        files = ["--config", str(leader.dir / "agent.yaml")]
        files += ["--meta-config", str(leader.dir / "risingwave.toml")]
        self.show("status", leader, "status", *socket(leader))
        self.show(
            "doctor", leader, "doctor", *files, said=f" --config {FILE} --meta-config - < risingwave.toml"
        )

    def _a_worker_ends(self) -> None:
        self.moment("a worker's pod ends")
        end_pod(self.made.api, pod_of(WORKERS[0]))
        row = "SELECT count(*) FROM worker"
        left = [(len(WORKERS) - 1,)]
        wait_for("its row is removed", lambda: self.made.cluster.postgres.sql(row) == left, 90)

    def _paused(self) -> None:
        leader = self.leader
        self.moment("paused")
        assert leader.cli("pause", "--for", "10m", "--reason", "switch is replaced").returncode == 0
        paused = 'metafence_not_covered{reason="Paused"} == 1'
        wait_for("the pause is scraped", lambda: self.prometheus.holds(paused), 30)
        hold(SEEN_S)
        assert leader.cli("resume").returncode == 0
        leader.wait_status("nothing is without cover", lambda s: not s["not_covered"], 30)
        hold(SEEN_S)

    def _cut(self) -> None:
        leader, cluster = self.leader, self.made.cluster
        pid = leader.meta_pid
        self.moment("link is cut")
        leader.proxy.order("mode stall")
        leader.wait_status("the deadline is near", lambda s: 0 < (s["deadline_ms_left"] or 1e9) < 12_000, 60)
        self.show("status-silent", leader, "status", *socket(leader))
        wait_for("the old leader is dead", lambda: leader.meta_pid != pid or not leader.meta_alive, 60)
        cluster.wait_new_leader(leader, 90)
        self.moment("another leads; link is whole")
        leader.proxy.heal()
        cluster.wait_converged(90)
        wait_for("the death is recorded", lambda: "death recorded" in self._history(), 60)
        self.show("history", leader, "history", *socket(leader))

    def _fenced_by_hand(self) -> None:
        """A fence that is the agent's in any case: at the deadline metafence-run may have been faster."""
        leads = self.made.cluster.leaders()[0]
        pod = next(p for p in self.made.pods if p not in (leads, self.leader))
        self.moment("a follower is fenced by hand")
        words = ("--reason", "disk is replaced", "--timeout", "60s")
        assert pod.cli("fence", *words, timeout=90).returncode == 0
        died = 'sum(metafence_fence_attempts_total{reason="Manual",result="confirmed"}) >= 1'
        wait_for("its death is scraped", lambda: self.prometheus.holds(died), 60)
        hold(SEEN_S)  # a rate has two values
        assert pod.cli("unfence").returncode == 0
        self.made.cluster.wait_converged(60)
        self.ended = time.time()

    def _history(self) -> str:
        return self.leader.cli("history").stdout

    def panels(self) -> Iterator[pictures.Panel]:
        for panel, query in promserver.panels():
            [target] = panel["targets"]
            series = self._series(query, target["legendFormat"])
            yield pictures.Panel(panel["title"], target["expr"], series)

    def _series(self, query: str, legend_format: str) -> dict[str, pictures.Series]:
        times = {"start": f"{self.began}", "end": f"{self.ended}", "step": f"{STEP_S}"}
        found: dict[str, pictures.Series] = {}
        for series in self.prometheus.ask("query_range", query=query, **times)["result"]:
            labels = series["metric"]
            legend = re.sub(r"{{(\w+)}}", lambda m, known=labels: known.get(m[1], ""), legend_format)
            points = [(float(at) - self.began, float(value)) for at, value in series["values"]]
            found[legend.strip() or "sum"] = points
        return found


# --- the dashboard -------------------------------------------------------------------------------


def finite(panel: pictures.Panel) -> list[float]:
    return [v for points in panel.series.values() for _, v in points if math.isfinite(v)]


def check_panels(panels: list[pictures.Panel]) -> None:
    for panel in panels:
        assert len(finite(panel)) >= 2, f"{panel.title}: {panel.query} returned nothing"
    named = {panel.title: panel for panel in panels}
    left = finite(named["Time left to the deadline"])
    assert min(left) < 12 and 20 < max(left) <= 28, (min(left), max(left))
    assert max(finite(named["Attempts to end meta"])) >= 1
    assert max(finite(named["Decision to confirmed death, p99"])) > 0
    assert max(finite(named["Worker rows: what was done"])) >= 1
    assert any("leader" in legend for legend in named["Role"].series)
    assert any("Paused" in legend for legend in named["Not covered"].series)


def with_something(panel: pictures.Panel) -> pictures.Panel:
    """Without the series that are 0 all the time, if there are others."""
    moved = {
        name: points
        for name, points in panel.series.items()
        if any(math.isfinite(value) and value != 0 for _, value in points)
    }
    return pictures.Panel(panel.title, panel.query, moved or dict(list(panel.series.items())[:1]))


# --- screens -------------------------------------------------------------------------------------


def skeleton(line: str) -> str:
    """Without what is each run's own: numbers, and how wide they are."""
    line = re.sub(r"metafence:[0-9a-f]{8}:[0-9a-f]{16}", "TAG", line)
    line = re.sub(r"\d+(\.\d+)?(ms|s)?\b", "9", line)
    return re.sub(r"\s+", " ", line).strip()


def rows_of(text: str) -> list[str]:
    """The names of a status: what stands before the values."""
    return [name for line in text.splitlines() if (name := line[:14].strip())]


def checks_of(text: str) -> list[str]:
    return re.findall(r"^\S (\S+)", text, re.MULTILINE)


STORY = [r"dead +\S+ +LeaseExpired", r"confirmed dead", r"death recorded"]


def told(text: str) -> list[str]:
    """What of the story a history has, in its order."""
    found = [(match.start(), event) for event in STORY if (match := re.search(event, text))]
    return [event for _, event in sorted(found)]


def same_structure(name: str, kept: str, now: str) -> None:
    kept, now = pictures.plain(kept), pictures.plain(now)
    if name.startswith("status"):
        assert rows_of(kept) == rows_of(now), (kept, now)
    elif name == "doctor":
        assert [skeleton(line) for line in kept.splitlines()] == [skeleton(line) for line in now.splitlines()]
        assert checks_of(kept), kept
    else:
        assert skeleton(kept.splitlines()[0]) == skeleton(now.splitlines()[0])
        assert told(kept) == told(now) == STORY, (kept, now)


@pytest.mark.long
@pytest.mark.timeout(600)
def test_screens_and_dashboard(kube: Open, lab: Lab, request: pytest.FixtureRequest) -> None:
    story = Story(kube, lab)
    story.tell()
    panels = list(story.panels())
    check_panels(panels)
    assert "\033[31mfence connected" not in story.screens["history"][1], "no alarm: the agent is there"
    if request.config.getoption("--write"):
        SCREENS.mkdir(exist_ok=True)
        for name, (command, text) in story.screens.items():
            (SCREENS / f"{name}.svg").write_text(pictures.terminal(command, text))
        end = story.ended - story.began
        drawn = pictures.dashboard(TITLE, [with_something(p) for p in panels], end, STEP_S, story.moments)
        (SCREENS / "dashboard.svg").write_text(drawn)
    for name, (_, text) in story.screens.items():
        same_structure(name, pictures.terminal_text((SCREENS / f"{name}.svg").read_text()), text)
    kept = pictures.drawn((SCREENS / "dashboard.svg").read_text())
    assert kept == [(panel.title, panel.query) for panel in panels], "run with --write"
