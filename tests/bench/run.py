# SPDX-License-Identifier: Apache-2.0
"""./dev bench: how long from a changed election row to a dead meta, and what the guard costs idle.

Everything of one report is measured in one run on one machine, next to metas without metafence. Targets
are printed beside the numbers; nothing is judged here, since machines differ.
"""

import argparse
import json
import os
import platform
import random
import select
import signal
import sys
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

REPO = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(REPO / "tests" / "e2e"))

from harness import Cluster, Lab, Pod, boot_ns, hold, wait_for  # noqa: E402
from harness.lab import clean_after_crashes  # noqa: E402
from harness.paths import Missing  # noqa: E402
from harness.process import descendants  # noqa: E402

TAKE_ROW = "UPDATE election_leader SET id = 'other:1', last_heartbeat = now()"
NEVER_A_STORM = ["--max-kills=10", "--kill-window=1s"]


@dataclass(frozen=True)
class Latency:
    """Milliseconds from just before the statement is sent to the death of the process."""

    what: str
    count: int
    p50: float
    p99: float
    worst: float
    commit_p50: float  # of these, the statement's own round trip
    target: str


@dataclass(frozen=True)
class Idle:
    what: str
    rss_kib: float
    pss_kib: float
    cpu_percent: float
    target: str


TARGETS = {
    "with metafence, NOTIFY": "p50 5, p99 25",
    "with metafence, polling only": "worst: a poll (250) + 50",
    "metafence agent": "RSS 6144, CPU 0.1",
}


def percentile(values: list[float], share: float) -> float:
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))]


# --- row change -> dead ------------------------------------------------------------------------


def fence_once(cluster: Cluster, session: Any, pod: Pod, frozen: bool) -> tuple[float, float]:
    """Gives the row to somebody else; (ms until the process is dead, ms until the commit came back).
    A frozen meta can't read the row itself and leave, so that only the fence is measured."""
    pid = pod.meta_pid
    assert pid is not None
    handle = os.pidfd_open(pid)
    try:
        if frozen:
            signal.pidfd_send_signal(handle, signal.SIGSTOP)
        dead = select.poll()
        dead.register(handle, select.POLLIN)
        began = boot_ns()
        session.execute(TAKE_ROW)
        committed = boot_ns()
        assert dead.poll(10_000), f"pid {pid} lives 10 s after another id is in the row"
        ended = boot_ns()
    finally:
        os.close(handle)
    session.execute("DELETE FROM election_leader")
    return (ended - began) / 1e6, (committed - began) / 1e6


def summary(what: str, pairs: list[tuple[float, float]]) -> Latency:
    times = [death for death, _ in pairs]
    return Latency(
        what,
        len(pairs),
        percentile(times, 0.5),
        percentile(times, 0.99),
        max(times),
        percentile([commit for _, commit in pairs], 0.5),
        TARGETS.get(what, ""),
    )


def guarded_latency(count: int, notify: bool) -> Latency:
    what = "with metafence, NOTIFY" if notify else "with metafence, polling only"
    lab = Lab("bench-fence")
    try:
        cluster = Cluster(lab, ttl=30, pods=1, run_flags=NEVER_A_STORM)
        pod = cluster.pods[0]
        pod.config["notify"] = notify
        cluster.start()
        pairs = []
        with cluster.postgres.connect() as session:
            for n in range(count):
                leads_covered(pod)
                hold(random.uniform(0, 0.25))  # any phase of the poll
                pairs.append(fence_once(cluster, session, pod, frozen=True))
                progress(f"{what}: {n + 1} of {count}")
        return summary(what, pairs)
    finally:
        lab.close()


def leads_covered(pod: Pod) -> None:
    def covered() -> bool:
        status = pod.status()
        return (
            status is not None
            and status["rule"] == "Leader"
            and status["engaged"]
            and status["meta"]["pid"] == pod.meta_pid
        )

    wait_for(f"{pod.name} leads with a permit", covered, 30)


def control_latency(count: int) -> Latency:
    """The baseline: the meta itself reads another id and leaves, when its election code still works."""
    what = "without metafence (healthy election loop)"
    lab = Lab("bench-control")
    try:
        cluster = Cluster(lab, ttl=30, guarded=False, pods=1)
        pod = cluster.start()
        pairs = []
        with cluster.postgres.connect() as session:
            for n in range(count):
                hold(random.uniform(0, 1.0))  # any phase of the campaign
                pairs.append(fence_once(cluster, session, pod, frozen=False))
                pod.main.wait(5)
                pod.start()
                pid = pod.main.pid
                wait_for("leads again", lambda: pod.meta_pid == pid and pod.acts_as_leader, 10)
                progress(f"{what}: {n + 1} of {count}")
        return summary(what, pairs)
    finally:
        lab.close()


# --- idle ----------------------------------------------------------------------------------------


def memory_kib(pid: int) -> tuple[int, int]:
    lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()[1:]
    fields = {line.split(":")[0]: int(line.split()[1]) for line in lines}
    return fields["Rss"], fields["Pss"]


def cpu_ns(pids: list[int]) -> dict[int, int]:
    """Time on a core of each process, all its threads."""
    used = {}
    for pid in pids:
        try:
            tasks = list(Path(f"/proc/{pid}/task").iterdir())
            used[pid] = sum(int((t / "schedstat").read_text().split()[0]) for t in tasks)
        except (FileNotFoundError, ProcessLookupError):
            continue
    return used


def groups(cluster: Cluster, name: str) -> dict[str, list[int]]:
    postmaster = cluster.postgres.pid
    found = {
        f"meta, {name}": [p.meta_pid for p in cluster.pods if p.meta_pid],
        f"postgres and its sessions, {name}": [postmaster, *descendants(postmaster)],
    }
    if cluster.guarded:
        found["metafence agent"] = [p.agent.pid for p in cluster.pods if p.agent]
        found["metafence-run"] = [p.main.pid for p in cluster.pods]
    return found


def idle(seconds: float) -> list[Idle]:
    """Three healthy metas with metafence and three without, at the same time; means per process, for
    Postgres the sum."""
    labs = [Lab("bench-idle") for _ in range(2)]
    try:
        pairs = [(Cluster(lab, ttl=30, guarded=g), g) for lab, g in zip(labs, (True, False), strict=True)]
        for cluster, _ in pairs:
            cluster.start()
        hold(5)  # start-up work is over
        watched: dict[str, list[int]] = {}
        for cluster, g in pairs:
            watched |= groups(cluster, "with metafence" if g else "without")
        before = {what: cpu_ns(pids) for what, pids in watched.items()}
        began = boot_ns()
        progress(f"idle for {seconds:g} s")
        hold(seconds)
        took = boot_ns() - began
        return [measure(what, pids, before[what], took) for what, pids in watched.items()]
    finally:
        for lab in labs:
            lab.close()


def measure(what: str, pids: list[int], before: dict[int, int], took: int) -> Idle:
    after = cpu_ns(pids)
    used = sum(after[p] - before[p] for p in before if p in after)
    sizes = [memory_kib(p) for p in after]
    share = 1 if what.startswith("postgres") else len(after)
    rss, pss = (sum(s[n] for s in sizes) / share for n in (0, 1))
    return Idle(what, rss, pss, 100 * used / took / share, TARGETS.get(what, ""))


# --- report ----------------------------------------------------------------------------------------


def progress(text: str) -> None:
    if sys.stderr.isatty():
        print(f"\r\033[K{text}", end="", file=sys.stderr, flush=True)


def machine() -> str:
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30
    return f"{os.cpu_count()} cores, {memory:.0f} GiB, Linux {platform.release()}"


def markdown(latencies: list[Latency], idles: list[Idle]) -> str:
    lines = [
        f"Machine: {machine()}.",
        "",
        "| row change → meta dead, ms | n | p50 | p99 | worst | of it commit p50 | target |",
        "|---|---|---|---|---|---|---|",
    ]
    for row in latencies:
        numbers = (row.p50, row.p99, row.worst, row.commit_p50)
        lines.append(
            f"| {row.what} | {row.count} | " + " | ".join(f"{n:.2f}" for n in numbers) + f" | {row.target} |"
        )
    lines += [
        "",
        "| idle, per process | RSS KiB | PSS KiB | CPU, % of a core | target |",
        "|---|---|---|---|---|",
    ]
    for entry in idles:
        sizes = f"{entry.rss_kib:.0f} | {entry.pss_kib:.0f}"
        lines.append(f"| {entry.what} | {sizes} | {entry.cpu_percent:.3f} | {entry.target} |")
    return "\n".join(lines)


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="./dev bench", description=__doc__.splitlines()[0])
    parser.add_argument("--fences", type=int, default=200, help="per mode (default 200)")
    parser.add_argument("--idle", type=float, default=60, help="seconds (default 60)")
    parser.add_argument("--json", type=Path, default=REPO / "build" / "bench.json", metavar="FILE")
    return parser.parse_args()


def main() -> int:
    args = parse()
    clean_after_crashes()
    try:
        idles = idle(args.idle)
        latencies = [
            control_latency(max(1, args.fences // 10)),
            guarded_latency(args.fences, notify=True),
            guarded_latency(args.fences, notify=False),
        ]
    except Missing as error:
        print(f"bench: {error}", file=sys.stderr)
        return 1
    progress("")
    print(markdown(latencies, idles))
    report = {
        "machine": machine(),
        "latency_ms": [asdict(row) for row in latencies],
        "idle": [asdict(entry) for entry in idles],
    }
    args.json.parent.mkdir(parents=True, exist_ok=True)
    args.json.write_text(json.dumps(report, indent=2) + "\n")
    print(f"\nAs JSON: {args.json}")
    return 0


if __name__ == "__main__":
    if sys.argv[1:2] == ["guard"]:
        import guard

        sys.exit(guard.main(sys.argv[2:]))
    sys.exit(main())
