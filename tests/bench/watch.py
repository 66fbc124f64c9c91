# SPDX-License-Identifier: Apache-2.0
"""What it takes to know the pods of all workers: the agent, which lists them page by page at each comparison
and follows their changes, against client-go's informers in the Go sidecar of peer/, as they come and with a
transform that keeps only what is needed.

    ./dev bench watch [--pods N ...] [--seconds S]

Every contender has an API server with the same pods, of the size of real ones; some change all the time.
"""

import argparse
import random
from dataclasses import asdict
from typing import Any

import report
from computes import WORKERS, with_registry
from contenders import BOOKMARK_S, Alone, Memory, Metafence, Peer, cpu_ns
from harness import Lab, boot_ns, fakeapi, hold, wait_for
from harness.lab import clean_after_crashes
from manypods import PORT, SELECTOR, ManyPods

AGENT, INFORMER, TRIMMED = "metafence agent", "client-go informer", "client-go informer, trimmed"
CHANGES_PER_TENTH = 1  # hold() looks ten times a second

# Each worker has its row, in the state in which a leader asks nothing of it.
ROWS = """
INSERT INTO worker
    SELECT 100 + n, 'FRONTEND', '10.' || (n >> 16) || '.' || (n >> 8 & 255) || '.' || (n & 255), %(port)s,
        'RUNNING', 100 + n
    FROM generate_series(0, %(count)s - 1) n;
"""
PROPERTIES = """
INSERT INTO worker_property (worker_id, is_streaming, is_serving, is_unschedulable)
    SELECT 100 + n, false, true, false FROM generate_series(0, %(count)s - 1) n;
"""


def agent(api: ManyPods, count: int) -> Metafence:
    one = Metafence(AGENT, api=api, meta_flags=WORKERS)
    with_registry(one.cluster)
    with one.cluster.postgres.connect(user="meta") as session:
        session.execute(ROWS, {"port": PORT, "count": count})
        session.execute(PROPERTIES, {"count": count})
    return one


def is_settled(one: Alone) -> bool:
    """It knows all pods, and has worked with them as it does from now on."""
    pod = one.cluster.pods[0]
    if isinstance(one, Metafence):
        status = pod.status()
        return status is not None and status["workers"]["passes"] >= 2
    return "pods are known" in (pod.dir / "peer.log").read_text()


def measure(count: int, seconds: float) -> list[dict[str, Any]]:
    ports, made, apis = Lab("bench-api"), [], []
    try:
        for name in (AGENT, INFORMER, TRIMMED):
            api = ManyPods(ports.port(), count)
            apis.append(api)
            if name == AGENT:
                made.append(agent(api, count))
            else:
                flags = [f"-workers={SELECTOR}", *(["-trim"] if name == TRIMMED else [])]
                made.append(Peer(name, api=api, flags=flags))
            made[-1].start()
        for one in made:
            report.progress(f"{count} pods: {one.name}")
            wait_for(f"{one.name} knows {count} pods", lambda one=one: is_settled(one), 180, every=0.2)

        def change() -> None:
            for _ in range(CHANGES_PER_TENTH):
                n = random.randrange(count)
                for api in apis:
                    api.touch_worker(n)

        pairs = [(one, pid_of(one), api) for one, api in zip(made, apis, strict=True)]
        before = [(cpu_ns(pid), api.count()) for _, pid, api in pairs]
        began = boot_ns()
        hold(seconds, change)
        per_minute = 60e9 / (boot_ns() - began)
        return [
            {
                "what": one.name,
                "pods": count,
                "memory": asdict(Memory.of(pid)),
                "cpu_s_per_min": (cpu_ns(pid) - cpu) / 1e9 * per_minute,
                "requests_per_min": (api.count() - asked) * per_minute,
            }
            for (one, pid, api), (cpu, asked) in zip(pairs, before, strict=True)
        ]
    finally:
        for one in made:
            one.close()
        for api in apis:
            api.close()
        ports.close()


def pid_of(one: Alone) -> int:
    return one.sidecars(one.cluster.pods[0])[one.sidecar]


def markdown(rows: list[dict[str, Any]], bytes_each: int) -> str:
    said = []
    for r in rows:
        kib = [str(r["memory"][k]) for k in ("rss", "pss", "private", "peak")]
        counted = [f"{r['cpu_s_per_min']:.2f}", f"{r['requests_per_min']:.0f}"]
        said.append([str(r["pods"]), r["what"], *kib, *counted])
    head = ["pods", "", "RSS KiB", "PSS KiB", "private KiB", "peak RSS KiB", "CPU s/min", "API requests/min"]
    text = f"A pod is {bytes_each} bytes of JSON; {10 * CHANGES_PER_TENTH} pods change each second."
    return f"{text}\n\n{report.table(head, said)}"


def plot(rows: list[dict[str, Any]]) -> str:
    series = {
        name: [(r["pods"], r["memory"]["pss"] / 1024) for r in rows if r["what"] == name]
        for name in (AGENT, INFORMER, TRIMMED)
    }
    return report.lines("Memory to know all pods", ("pods", "PSS, MiB"), series, (True, True))


def main(words: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="./dev bench watch", description=__doc__.split("\n")[0])
    parser.add_argument("--pods", type=int, nargs="+", default=[100, 1000, 10000])
    parser.add_argument("--seconds", type=float, default=25, help="of measuring at each size (default 25)")
    args = parser.parse_args(words)
    fakeapi.BOOKMARK_S = BOOKMARK_S
    clean_after_crashes()
    data = report.header()
    data["watch"] = [row for count in args.pods for row in measure(count, args.seconds)]
    lab = Lab("bench-api")
    api = ManyPods(lab.port(), 1)
    data["bytes_each"] = len(api.worker(0))
    api.close()
    lab.close()
    report.deliver("watch", data, markdown(data["watch"], data["bytes_each"]), plot(data["watch"]))
    return 0
