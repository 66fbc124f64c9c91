# SPDX-License-Identifier: Apache-2.0
"""metafence beside a Go sidecar (client-go, pgx) that does the same job, and beside metas alone.

    ./dev bench peer [--rounds N] [--idle SECONDS] [--starts N]

All contenders run at the same time, each with its own Postgres and API server, and take turns in random
order: the machine's mood is in all of them. Ratios are what counts; nothing is judged here, since machines
differ.
"""

import argparse
import gzip
import json
import os
import random
import select
import signal
import tarfile
from contextlib import ExitStack
from dataclasses import asdict
from pathlib import Path
from statistics import median
from typing import Any

import report
from contenders import BOOKMARK_S, Alone, Memory, Metafence, Peer, build_peer, cpu_ns
from harness import boot_ns, fakeapi, hold, wait_for
from harness.lab import clean_after_crashes
from harness.paths import metafence, metafence_run

TAKE_ROW = "UPDATE election_leader SET id = 'other:1', last_heartbeat = now()"
ALONE = "meta alone"
CERTIFICATES = Path("/etc/ssl/certs/ca-certificates.crt")
IMAGE = report.REPO / "build" / "image" / "metafence.oci.tar"


# --- row change -> dead --------------------------------------------------------------------------


def fence_once(one: Alone, session: Any) -> tuple[float, float]:
    """Gives the row to somebody else: milliseconds until the meta is dead, and until the commit came back.
    A meta with a sidecar is frozen, so that it can't read the row itself and leave."""
    pid = one.cluster.pods[0].meta_pid
    assert pid is not None
    handle = os.pidfd_open(pid)
    try:
        if one.sidecar != Alone.sidecar:
            signal.pidfd_send_signal(handle, signal.SIGSTOP)
        dead = select.poll()
        dead.register(handle, select.POLLIN)
        began = boot_ns()
        session.execute(TAKE_ROW)
        committed = boot_ns()
        assert dead.poll(10_000), f"{one.name}: pid {pid} lives 10 s after another id is in the row"
        ended = boot_ns()
    finally:
        os.close(handle)
    session.execute("DELETE FROM election_leader")
    return (ended - began) / 1e6, (committed - began) / 1e6


def fences(contenders: list[Alone], rounds: int) -> dict[str, list[tuple[float, float]]]:
    """The first round is not counted: sessions are fresh, and a real winner's has renewed before."""
    found: dict[str, list[tuple[float, float]]] = {one.name: [] for one in contenders}
    with ExitStack() as stack:
        sessions = {one.name: stack.enter_context(one.cluster.postgres.connect()) for one in contenders}
        for number in range(rounds + 1):
            for one in contenders:
                one.restart_dead()
            for one in contenders:
                one.wait_covered()
            for one in random.sample(contenders, len(contenders)):
                hold(random.uniform(0.1, 0.35))  # any phase of the poll
                found[one.name].append(fence_once(one, sessions[one.name]))
            report.progress(f"fences: round {number} of {rounds}")
    return {name: pairs[1:] for name, pairs in found.items()}


def latencies(found: dict[str, list[tuple[float, float]]]) -> list[dict[str, Any]]:
    rows = []
    for name, pairs in found.items():
        times = [death for death, _ in pairs]
        rows.append(
            {
                "what": name,
                "count": len(times),
                "p50_ms": report.percentile(times, 0.5),
                "p99_ms": report.percentile(times, 0.99),
                "worst_ms": max(times),
                "commit_p50_ms": report.percentile([commit for _, commit in pairs], 0.5),
                "ms": times,
            }
        )
    return rows


def writes(one: Metafence | Peer, since: int) -> dict[str, Any]:
    """What the changes of its pod's label cost the API server."""
    name = one.cluster.pods[0].name
    notes = [e for e in one.api.events_of(name, since) if e["action"] in ("ChangedRole", "KilledContainer")]
    changes, patches = len(one.api.labels_seen(name, since)), len(one.api.label_patches(name, since))
    return {"what": one.name, "changes": changes, "patches": patches, "events": len(notes)}


# --- at rest -------------------------------------------------------------------------------------


def at_rest(contenders: list[Alone], seconds: float) -> list[dict[str, Any]]:
    """Everything leads and nothing happens. Of statements, those of the meta alone are taken off."""
    for one in contenders:
        one.restart_dead()
        one.wait_covered()
    hold(3)  # work of the start is over
    before = [(one, one.sidecars(one.cluster.pods[0]), counts(one)) for one in contenders]
    began = boot_ns()
    report.progress(f"at rest for {seconds:g} s")
    hold(seconds)
    per_minute = 60e9 / (boot_ns() - began)
    after = {one.name: counts(one) for one in contenders}
    metas = next(after[o.name]["statements"] - was["statements"] for o, _, was in before if o.name == ALONE)
    rows = []
    for one, pids, was in before:
        if not pids:
            continue
        now = after[one.name]
        rows.append(
            {
                "what": one.name,
                "processes": {name: asdict(Memory.of(pid)) for name, pid in pids.items()},
                "cpu_s_per_min": {
                    name: (now["cpu"][name] - was["cpu"][name]) / 1e9 * per_minute for name in pids
                },
                "statements_per_min": (now["statements"] - was["statements"] - metas) * per_minute,
                "requests_per_min": (now["requests"] - was["requests"]) * per_minute,
            }
        )
    return rows


def counts(one: Alone) -> dict[str, Any]:
    pids = one.sidecars(one.cluster.pods[0])
    cpu = {name: cpu_ns(pid) for name, pid in pids.items()}
    return {"cpu": cpu, "statements": one.statements(), "requests": one.requests()}


# --- start ---------------------------------------------------------------------------------------


def start_once(one: Metafence | Peer) -> tuple[float, float]:
    """Of the sidecar, beside a leader that runs: ms until /readyz is 200, and until it would see a loss."""
    one.kill_sidecar()
    began = boot_ns()
    one.start_sidecar()
    wait_for(f"{one.name} is ready", one.is_ready, 20, every=0.001)
    ready = boot_ns()
    wait_for(f"{one.name} covers", one.covers, 30, every=0.001)
    return (ready - began) / 1e6, (boot_ns() - began) / 1e6


def starts(contenders: list[Metafence | Peer], rounds: int) -> list[dict[str, Any]]:
    found: dict[str, list[tuple[float, float]]] = {one.name: [] for one in contenders}
    for number in range(rounds):
        for one in random.sample(contenders, len(contenders)):
            found[one.name].append(start_once(one))
        report.progress(f"starts: {number + 1} of {rounds}")
    return [
        {"what": name, "ready_ms": median(r for r, _ in pairs), "covers_ms": median(c for _, c in pairs)}
        for name, pairs in found.items()
    ]


# --- sizes ---------------------------------------------------------------------------------------


def packed(paths: list[Path]) -> int:
    """Bytes of a layer with these."""
    return sum(len(gzip.compress(p.read_bytes(), 9)) for p in paths if p.exists())


def layers(image: Path) -> int | None:
    """Bytes of the layers of an OCI archive, as a registry moves them; None: it is not built."""
    if not image.exists():
        return None
    with tarfile.open(image) as tar:

        def blob(digest: str) -> Any:
            file = tar.extractfile(f"blobs/{digest.replace(':', '/')}")
            return json.loads(file.read()) if file else None

        index = tar.extractfile("index.json")
        assert index is not None
        manifest = blob(json.loads(index.read())["manifests"][0]["digest"])
        return sum(layer["size"] for layer in manifest["layers"])


def sizes() -> list[dict[str, Any]]:
    peer = build_peer()
    ours = metafence().stat().st_size + metafence_run().stat().st_size
    return [
        {"what": "metafence", "programs": ours, "image": layers(IMAGE)},
        {"what": "Go sidecar", "programs": peer.stat().st_size, "image": packed([peer, CERTIFICATES])},
    ]


# --- report --------------------------------------------------------------------------------------


def markdown(data: dict[str, Any]) -> str:
    parts = ["Row change → meta dead, ms; with a sidecar the meta is frozen and can't leave by itself."]
    head = ["", "n", "p50", "p99", "worst", "of it commit p50", "p50 / metafence's"]
    ours = {r["what"]: r["p50_ms"] for r in data["fences"]}
    rows = []
    for r in data["fences"]:
        own = ours.get("metafence, " + r["what"].split(", ")[-1])
        ratio = f"{r['p50_ms'] / own:.2f}" if own else ""
        numbers = [f"{r[k]:.2f}" for k in ("p50_ms", "p99_ms", "worst_ms", "commit_p50_ms")]
        rows.append([r["what"], str(r["count"]), *numbers, ratio])
    parts.append(report.table(head, rows))
    parts.append("At rest, per pod; statements without those of the meta itself.")
    head = ["", "RSS KiB", "PSS KiB", "private KiB", "CPU s/min", "SQL statements/min", "API requests/min"]
    parts.append(report.table(head, [row for r in data["at_rest"] for row in rest_rows(r)]))
    parts.append("Start of the sidecar beside a leader, median ms.")
    rows = [[r["what"], f"{r['ready_ms']:.0f}", f"{r['covers_ms']:.0f}"] for r in data["starts"]]
    parts.append(report.table(["", "/readyz 200", "sees a loss"], rows))
    parts.append("What the API server is asked to write for changes of the role.")
    rows = [[r["what"], *(str(r[k]) for k in ("changes", "patches", "events"))] for r in data["writes"]]
    parts.append(report.table(["", "changes", "patches of the label", "events"], rows))
    parts.append("Sizes; metafence's: agent, metafence-run.")
    rows = []
    for r in data["sizes"]:
        image = f"{r['image'] / 1e6:.1f} MB" if r["image"] else "not built"
        rows.append([r["what"], f"{r['programs'] / 1e6:.1f} MB", image])
    parts.append(report.table(["", "programs", "image, compressed"], rows))
    return "\n\n".join(parts)


def rest_rows(r: dict[str, Any]) -> list[list[str]]:
    rows = []
    for name, memory in r["processes"].items():
        is_first = name == next(iter(r["processes"]))
        counted = [f"{r[k]:.1f}" if is_first else "" for k in ("statements_per_min", "requests_per_min")]
        kib = [str(memory[k]) for k in ("rss", "pss", "private")]
        rows.append([f"{r['what']}: {name}", *kib, f"{r['cpu_s_per_min'][name]:.3f}", *counted])
    return rows


def plot(data: dict[str, Any]) -> str:
    series = {r["what"]: report.shares(r["ms"]) for r in data["fences"]}
    axes = ("ms from the row's change to the meta's death", "% of runs")
    return report.lines("Row change to death", axes, series, (True, False), floor=0)


def main(words: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="./dev bench peer", description=__doc__.split("\n")[0])
    parser.add_argument("--rounds", type=int, default=30, help="fences of each (default 30)")
    parser.add_argument("--idle", type=float, default=40, help="seconds at rest (default 40)")
    parser.add_argument("--starts", type=int, default=5, help="of each sidecar (default 5)")
    args = parser.parse_args(words)
    fakeapi.BOOKMARK_S = BOOKMARK_S
    clean_after_crashes()
    data = report.header()
    contenders: list[Alone] = []
    try:
        # Of each kind one process, so that none has its program's pages in common with another.
        notified = [Metafence("metafence, NOTIFY"), Peer("Go sidecar, NOTIFY")]
        contenders += [*notified, Alone(ALONE)]
        for one in contenders:
            one.count_statements()
            one.start()
        data["at_rest"] = at_rest(contenders, args.idle)
        data["starts"] = starts(notified, args.starts)
        contenders += [
            Metafence("metafence, polling", notify=False),
            Peer("Go sidecar, polling", notify=False),
        ]
        for one in contenders[3:]:
            one.start()
        since = boot_ns()
        data["fences"] = latencies(fences(contenders, args.rounds))
        data["writes"] = [writes(one, since) for one in contenders if isinstance(one, Metafence | Peer)]
    finally:
        for one in contenders:
            one.close()
    data["sizes"] = sizes()
    report.deliver("peer", data, markdown(data), plot(data))
    return 0
