# SPDX-License-Identifier: Apache-2.0
"""What a long run costs: memory, descriptors, threads, files, log bytes, requests, statements, tables; of
one quiet window each, so that windows can be compared."""

import contextlib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from harness import Pod, boot_ns
from kube import Kube

# Grow by one row for an incarnation, and are kept for 90 days.
PER_INCARNATION = ("tag", "death")
NOT_OURS = ("witness", "proxy.log", "agent.log", "run.log", "agent.yaml")


@dataclass
class Use:
    """Of a process at one moment; KiB where it is memory."""

    pid: int
    rss: int
    pss: int
    private: int  # what nobody else could have brought in: Private_Dirty
    fds: int
    threads: int

    @staticmethod
    def of(pid: int) -> "Use":
        memory = {
            words[0].rstrip(":"): int(words[1])
            for words in map(str.split, Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()[1:])
        }
        status = Path(f"/proc/{pid}/status").read_text()
        threads = int(status.split("Threads:")[1].split()[0])
        fds = len(list(Path(f"/proc/{pid}/fd").iterdir()))
        return Use(pid, memory["Rss"], memory["Pss"], memory["Private_Dirty"], fds, threads)


@dataclass
class Row:
    """A process over one window."""

    window: str
    process: str
    role: str
    use: Use
    log_per_min: float
    files: int  # bytes that it keeps on the shared volume

    def cells(self) -> list[str]:
        u = self.use
        numbers = [u.rss, u.pss, u.private, u.fds, u.threads, round(self.log_per_min), self.files]
        return [self.window, self.process, self.role, *map(str, numbers)]


HEAD = "window|process|role|RSS KiB|PSS KiB|dirty KiB|fds|threads|log B/min|files B".split("|")


@dataclass
class Window:
    name: str
    at_s: float
    seconds: float
    rows: list[Row]
    api_per_min: float
    reads_per_min: dict[str, float]  # of each agent
    statements_per_min: float  # transactions of all, the metas too
    tables: dict[str, tuple[int, int]]  # rows, bytes
    incarnations: int

    def row(self, process: str) -> Row:
        return next(r for r in self.rows if r.process == process)


def sizes(made: Kube) -> dict[str, tuple[int, int]]:
    """Rows and bytes, indexes included, of each table of ours."""
    sql = made.cluster.postgres.sql
    schema = "relnamespace = 'metafence'::regnamespace AND relkind = 'r'"
    tables = sql(f"SELECT relname FROM pg_class WHERE {schema}")
    found = {}
    for (table,) in sorted(tables):
        counted = f"SELECT count(*), pg_total_relation_size('metafence.{table}') FROM metafence.{table}"
        found[table] = sql(counted)[0]
    return found


def kept_bytes(pod: Pod, of_agent: bool) -> int:
    """Files of the shared volume by their writer; metafence-run has its state file alone."""
    total = 0
    for path in pod.dir.iterdir():
        if path.name.startswith(NOT_OURS) or path.is_socket() or path.is_dir():
            continue
        with contextlib.suppress(FileNotFoundError):
            total += path.stat().st_size if (path.name != "state") == of_agent else 0
    return total


class Measuring:
    """From begin() to end(): one window. look() in between, often: descriptors are counted at their least,
    because a status call to meta opens one for a moment."""

    def __init__(self, made: Kube, name: str, since_ns: int) -> None:
        self.made, self.name, self.since_ns = made, name, since_ns
        self.processes: dict[str, tuple[Pod, int]] = {}
        for pod in made.pods:
            assert pod.agent is not None
            self.processes[f"agent {pod.name}"] = (pod, pod.agent.pid)
            self.processes[f"run {pod.name}"] = (pod, pod.main.pid)
        self.uses: dict[str, list[Use]] = {name: [] for name in self.processes}
        self.began = boot_ns()
        self._before = self._counted()

    def _counted(self) -> dict[str, Any]:
        logs = {}
        for name, (pod, _) in self.processes.items():
            log = pod.agent_log if name.startswith("agent") else pod.run_log
            logs[name] = log.path.stat().st_size
        reads = {}
        for pod in self.made.pods:
            status = pod.wait_status("answers", lambda s: "counters" in s, 10)
            reads[pod.name] = status["counters"]["reads"] + status["counters"]["reads_failed"]
        return {
            "logs": logs,
            "reads": reads,
            "api": self.made.api.count(),
            "xacts": self.made.cluster.postgres.sql(
                "SELECT xact_commit + xact_rollback FROM pg_stat_database WHERE datname = current_database()"
            )[0][0],
        }

    def look(self) -> None:
        for name, (_, pid) in self.processes.items():
            self.uses[name].append(Use.of(pid))

    def end(self) -> Window:
        self.look()
        took = (boot_ns() - self.began) / 1e9
        after, before = self._counted(), self._before

        def per_min(kind: str, name: str) -> float:
            return (after[kind][name] - before[kind][name]) * 60 / took

        rows = []
        for name, (pod, _) in self.processes.items():
            last = self.uses[name][-1]
            last.fds = min(u.fds for u in self.uses[name])
            role = "leader" if pod.acts_as_leader else "follower"
            kept = kept_bytes(pod, name.startswith("agent"))
            rows.append(Row(self.name, name, role, last, per_min("logs", name), kept))
        return Window(
            self.name,
            (self.began - self.since_ns) / 1e9,
            took,
            rows,
            (after["api"] - before["api"]) * 60 / took,
            {pod.name: per_min("reads", pod.name) for pod in self.made.pods},
            (after["xacts"] - before["xacts"]) * 60 / took,
            sizes(self.made),
            self.made.incarnations(),
        )


def columns(lines: list[list[str]]) -> list[str]:
    widths = [max(len(line[n]) for line in lines) for n in range(len(lines[0]))]
    return ["  ".join(cell.ljust(widths[n]) for n, cell in enumerate(line)).rstrip() for line in lines]


def table(windows: list[Window]) -> list[str]:
    """For people: each process over the windows, then what all share."""
    processes = [r.process for r in windows[0].rows]
    lines = [HEAD, *(w.row(p).cells() for p in processes for w in windows)]
    head = "window|at s|for s|API/min|reads/min|transactions/min|incarnations|tables"
    shared = [head.split("|")]
    for w in windows:
        reads = " ".join(f"{n:.0f}" for n in w.reads_per_min.values())
        tables = " ".join(f"{name}={rows}/{size >> 10}K" for name, (rows, size) in w.tables.items())
        numbers = [f"{w.at_s:.0f}", f"{w.seconds:.0f}", f"{w.api_per_min:.1f}"]
        shared.append([w.name, *numbers, reads, f"{w.statements_per_min:.0f}", str(w.incarnations), tables])
    return [*columns(lines), "", *columns(shared)]
