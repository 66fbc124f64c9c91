# SPDX-License-Identifier: Apache-2.0
"""What three healthy metas and their Postgres cost at rest, with metafence and without, at the same time.

./dev bench idle [--seconds S]
"""

import argparse
import contextlib
from dataclasses import asdict, dataclass

import report
from contenders import Memory, cpu_ns
from harness import Cluster, Lab, boot_ns, hold
from harness.lab import clean_after_crashes
from harness.process import descendants


@dataclass(frozen=True)
class Idle:
    what: str
    rss_kib: float
    pss_kib: float
    cpu_percent: float
    target: str


TARGETS = {"metafence agent": "RSS 6144, CPU 0.1"}


def used_ns(pids: list[int]) -> dict[int, int]:
    """Of those that are still there."""
    used = {}
    for pid in pids:
        with contextlib.suppress(FileNotFoundError, ProcessLookupError):
            used[pid] = cpu_ns(pid)
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
        before = {what: used_ns(pids) for what, pids in watched.items()}
        began = boot_ns()
        report.progress(f"idle for {seconds:g} s")
        hold(seconds)
        took = boot_ns() - began
        return [measure(what, pids, before[what], took) for what, pids in watched.items()]
    finally:
        for lab in labs:
            lab.close()


def measure(what: str, pids: list[int], before: dict[int, int], took: int) -> Idle:
    after = used_ns(pids)
    used = sum(after[p] - before[p] for p in before if p in after)
    sizes = [Memory.of(pid) for pid in after]
    share = 1 if what.startswith("postgres") else len(after)
    rss, pss = (sum(m.rss for m in sizes) / share, sum(m.pss for m in sizes) / share)
    return Idle(what, rss, pss, 100 * used / took / share, TARGETS.get(what, ""))


# --- report ----------------------------------------------------------------------------------------


def markdown(idles: list[Idle]) -> str:
    rows = []
    for entry in idles:
        numbers = [f"{entry.rss_kib:.0f}", f"{entry.pss_kib:.0f}", f"{entry.cpu_percent:.3f}"]
        rows.append([entry.what, *numbers, entry.target])
    return report.table(["per process", "RSS KiB", "PSS KiB", "CPU, % of a core", "target"], rows)


def plot(idles: list[Idle]) -> str:
    bars = {entry.what: entry.cpu_percent for entry in idles}
    return report.bars("At rest, three metas", "% of a core", bars)


def main(words: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="./dev bench idle", description=__doc__.splitlines()[0])
    parser.add_argument("--seconds", type=float, default=60, help="(default 60)")
    args = parser.parse_args(words)
    clean_after_crashes()
    data = report.header()
    idles = idle(args.seconds)
    data["idle"] = [asdict(entry) for entry in idles]
    report.deliver("idle", data, markdown(idles), plot(idles))
    return 0
