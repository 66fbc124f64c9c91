# SPDX-License-Identifier: Apache-2.0
"""What the guard costs a busy meta: its writes with bare tables and with the guard off, in observe and in
enforce, in turns on one Postgres with fsync on.

    ./dev bench guard [--rounds N] [--seconds S] [--dir FOLDER-ON-A-DISK] [--json FILE]

Slices of a few seconds take turns in random order, and each is compared with the bare slice of its own round:
the machine's mood is in both. Ratios are what counts; nothing is judged here, since machines differ. pgbench
writes as the meta does: prepared statements, its tag on each session.
"""

import argparse
import json
import os
import random
import subprocess
import sys
import tempfile
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import median

REPO = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(REPO / "tests" / "e2e"))

from harness import Cluster, Lab, wait_for  # noqa: E402
from harness.lab import clean_after_crashes  # noqa: E402
from harness.paths import metasim, postgres_bin  # noqa: E402
from harness.postgres import DATABASE, PASSWORD, USER  # noqa: E402

TAG = "metafence:bench001:0123456789abcdef"
MODES = ("bare", "off", "observe", "enforce")
TARGET = "throughput >= 0.95, p50 <= +0.1 ms"



def field(number: int, body: bytes) -> bytes:
    """A field of a protobuf message, shorter than 16 kB."""
    length = bytes([len(body)]) if len(body) < 128 else bytes([len(body) & 127 | 128, len(body) >> 7])
    return bytes([number << 3 | 2]) + length + body


# Deltas that are understood, as RisingWave's are. Of others none would be seen to commit an epoch (field 11)
# and end the recovery with which the term begins: each would be searched, and counted as unknown.
GROUPS = field(3, b"\xab" * 200)
COMMIT = (b"\x10\x07" + 5 * GROUPS + field(10, b"\xab" * 40) + field(11, b"\xab" * 40)).hex()
COMPACTION = (b"\x10\x07" + 3 * GROUPS).hex()

# What a leader with streaming jobs writes: a checkpoint, a compaction, a pin, and single statements.
SCRIPTS = {
    "checkpoint": (
        6,
        f"""
        BEGIN;
        INSERT INTO hummock_version_delta (id, prev_id, max_committed_epoch, safe_epoch, trivial_move,
            full_version_delta)
            VALUES (nextval('bench_seq'), 0, 0, 0, false, decode('{COMMIT}', 'hex'));
        UPDATE hummock_version_stats SET stats = '{{"1": {{"total_key_count": 7}}}}' WHERE id = :client_id;
        INSERT INTO hummock_time_travel_delta (version_id, version_delta)
            VALUES (nextval('bench_seq'), decode(repeat('cd', 1200), 'hex'));
        UPDATE hummock_sequence SET seq = seq + 1 WHERE name = 'now' || :client_id;
        COMMIT;
        """,
    ),
    "compaction": (
        3,
        f"""
        BEGIN;
        DELETE FROM compaction_task WHERE id = :client_id;
        INSERT INTO compaction_task (id, task, context_id)
            VALUES (:client_id, decode(repeat('ab', 200), 'hex'), 1);
        UPDATE compaction_status SET status = decode(repeat('ab', 400), 'hex')
            WHERE compaction_group_id = :client_id;
        INSERT INTO hummock_version_delta (id, prev_id, max_committed_epoch, safe_epoch, trivial_move,
            full_version_delta)
            VALUES (nextval('bench_seq'), 0, 0, 0, false, decode('{COMPACTION}', 'hex'));
        COMMIT;
        """,
    ),
    "pin": (
        1,
        """
        INSERT INTO hummock_pinned_version (context_id, min_pinned_id) VALUES (:client_id, 1)
            ON CONFLICT (context_id) DO UPDATE SET min_pinned_id = excluded.min_pinned_id + 1;
        """,
    ),
    "sequence": (
        2,
        "UPDATE hummock_sequence SET seq = seq + 10 WHERE name = 'now' || :client_id;\n",
    ),
}

SCENE = """
CREATE SEQUENCE bench_seq START 1000; GRANT USAGE ON bench_seq TO meta;
INSERT INTO hummock_version_stats (id, stats) SELECT i, '{}' FROM generate_series(0, 9) i;
INSERT INTO hummock_sequence (name, seq) SELECT 'now' || i, 0 FROM generate_series(0, 9) i;
INSERT INTO compaction_status (compaction_group_id, status) SELECT i, 'x' FROM generate_series(0, 9) i;
"""

GROWN = ("hummock_version_delta", "hummock_time_travel_delta")


@dataclass(frozen=True)
class Slice:
    mode: str
    clients: int
    round: int
    tps: float
    p50_ms: float
    p99_ms: float
    cpu_us: float  # of the backends, per transaction: what a busy machine can't blur


@dataclass(frozen=True)
class Cost:
    """Medians over the rounds, and the quarter and three-quarter points of what is paired."""

    mode: str
    clients: int
    tps: float
    p50_ms: float
    p99_ms: float
    tps_ratio: tuple[float, float, float]
    p50_added_ms: tuple[float, float, float]
    p99_added_ms: tuple[float, float, float]
    cpu_us: float
    cpu_added_us: tuple[float, float, float]


class Bench:
    def __init__(self, lab: Lab, scripts: Path) -> None:
        self.cluster = Cluster(lab, guarded=False, pods=1)
        self.postgres = self.cluster.postgres
        with open(self.postgres.data / "postgresql.conf", "a") as conf:
            conf.write("fsync = on\nfull_page_writes = on\nshared_buffers = 256MB\nmax_wal_size = 4GB\n")
            conf.write("log_min_messages = fatal\ncheckpoint_timeout = 30min\n")
        self.postgres.restart("fast")
        self._bring_up()
        self.files = []
        for name, (weight, text) in SCRIPTS.items():
            path = scripts / f"{name}.sql"
            path.write_text(text)
            self.files.append(f"--file={path}@{weight}")

    def _bring_up(self) -> None:
        """The tables of the newest release, owned by the meta, guarded; and the meta leads."""
        dsn = self.postgres.dsn(USER) + f" password='{PASSWORD}'"
        env = os.environ | {"METASIM_DSN": dsn}
        subprocess.run([metasim(), "schema", "--version", "head"], env=env, check=True, capture_output=True)
        self.cluster.install_sql()
        with self.postgres.connect() as session:
            session.execute(SCENE)
        self.postgres.sql("DROP TRIGGER witness_renewal ON election_leader")
        with self.postgres.connect(user=USER) as session:
            session.execute(f"SET application_name = '{TAG}'")
            session.execute("INSERT INTO election_leader VALUES ('bench', 'meta', now())")

    def tables(self) -> list[str]:
        return [row[0] for row in self.postgres.sql("SELECT name FROM metafence.guarded_tables()")]

    def set_mode(self, mode: str) -> None:
        with self.postgres.connect() as session:
            if mode != "bare":
                session.execute("UPDATE metafence.setting SET value = %s WHERE name = 'guard'", [mode])
            for table in self.tables():
                how = "DISABLE" if mode == "bare" else "ENABLE"
                session.execute("SELECT metafence.cover(%s)", [table])
                session.execute(f"ALTER TABLE {table} {how} TRIGGER USER")
            session.execute(f"TRUNCATE {', '.join(GROWN)}")
            session.execute("VACUUM ANALYZE hummock_sequence, hummock_version_stats, compaction_status")
            session.execute("VACUUM compaction_task, hummock_pinned_version")
            session.execute("CHECKPOINT")

    def is_idle(self) -> bool:
        return self.postgres.sql("SELECT true FROM pg_stat_activity WHERE application_name = %s", TAG) == []

    def backends_us(self) -> float:
        """CPU time of all backends that have ended."""
        fields = Path(f"/proc/{self.postgres.pid}/stat").read_text().rsplit(")", 1)[1].split()
        return (int(fields[13]) + int(fields[14])) * 1e6 / os.sysconf("SC_CLK_TCK")

    def slice(self, mode: str, clients: int, number: int, seconds: float) -> Slice:
        self.set_mode(mode)
        with tempfile.TemporaryDirectory() as logs:
            argv = [postgres_bin("pgbench"), "-n", "-M", "prepared", "-c", str(clients), "-j", "1"]
            argv += [
                "-T",
                str(max(1, round(seconds))),
                "-l",
                f"--log-prefix={logs}/log",
                *self.files,
                DATABASE,
            ]
            env = os.environ | {
                "PGHOST": "127.0.0.1",
                "PGPORT": str(self.postgres.port),
                "PGUSER": USER,
                "PGPASSWORD": PASSWORD,
                "PGAPPNAME": TAG,
            }
            before = self.backends_us()
            done = subprocess.run(argv, env=env, capture_output=True, text=True)
            wait_for("the backends have ended", self.is_idle, 10)
            spent = self.backends_us() - before
            if done.returncode != 0:
                raise RuntimeError(f"pgbench: {done.stderr}")
            # client, transaction, microseconds, script, …
            lines = [line.split() for log in Path(logs).iterdir() for line in log.read_text().splitlines()]
        times = sorted(int(line[2]) / 1000 for line in lines)
        if not times:
            raise RuntimeError(f"not one transaction in {seconds} s: this machine is too busy to measure on")
        took = max(1, round(seconds))
        return Slice(
            mode,
            clients,
            number,
            len(times) / took,
            times[len(times) // 2],
            times[min(len(times) - 1, len(times) * 99 // 100)],
            spent / len(times),
        )


def quarters(values: list[float]) -> tuple[float, float, float]:
    ordered = sorted(values)
    last = len(ordered) - 1
    return ordered[last // 4], median(ordered), ordered[last - last // 4]


def cost(slices: list[Slice], mode: str, clients: int) -> Cost:
    mine = {s.round: s for s in slices if (s.mode, s.clients) == (mode, clients)}
    bare = {s.round: s for s in slices if (s.mode, s.clients) == ("bare", clients)}
    pairs = [(mine[n], bare[n]) for n in sorted(mine.keys() & bare.keys())]
    return Cost(
        mode,
        clients,
        median(m.tps for m, _ in pairs),
        median(m.p50_ms for m, _ in pairs),
        median(m.p99_ms for m, _ in pairs),
        quarters([m.tps / b.tps for m, b in pairs]),
        quarters([m.p50_ms - b.p50_ms for m, b in pairs]),
        quarters([m.p99_ms - b.p99_ms for m, b in pairs]),
        median(m.cpu_us for m, _ in pairs),
        quarters([m.cpu_us - b.cpu_us for m, b in pairs]),
    )


def show(costs: list[Cost]) -> None:
    print(
        f"{'':24}{'tps':>7}{'p50 ms':>8}{'p99 ms':>8}{'CPU us':>8}   tps / bare           p50 +ms"
        "                 CPU +us    (25, 50, 75 %)"
    )
    for c in costs:
        ratio = ", ".join(f"{v:.3f}" for v in c.tps_ratio)
        added = ", ".join(f"{v:+.3f}" for v in c.p50_added_ms)
        spent = ", ".join(f"{v:+.0f}" for v in c.cpu_added_us)
        label = f"{c.clients} connections, {c.mode}"
        print(
            f"{label:24}{c.tps:7.0f}{c.p50_ms:8.3f}{c.p99_ms:8.3f}{c.cpu_us:8.0f}   {ratio}  {added}  {spent}"
        )
    print(f"target: {TARGET}")


def main(words: list[str]) -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--seconds", type=float, default=2)
    parser.add_argument("--clients", type=int, nargs="+", default=[1, 4])
    parser.add_argument(
        "--dir", type=Path, default=Path("/var/tmp"), help="on a disk: fsync has to mean something"
    )
    parser.add_argument("--json", type=Path)
    options = parser.parse_args(words)
    work = Path(tempfile.mkdtemp(prefix="metafence-bench-", dir=options.dir))
    work.chmod(0o755)
    os.environ["METAFENCE_E2E_DIR"] = str(work)
    clean_after_crashes()
    lab = Lab("bench-guard")
    slices: list[Slice] = []
    try:
        bench = Bench(lab, work)
        for number in range(options.rounds):
            for clients in options.clients:
                for mode in random.sample(MODES, len(MODES)):
                    slices.append(bench.slice(mode, clients, number, options.seconds))
            print(f"round {number + 1} of {options.rounds}", file=sys.stderr)
        refused = dict(bench.postgres.sql("SELECT name, value FROM metafence.counters()"))["refused"]
        assert refused == 0, f"{refused} writes of the leader were refused"
    finally:
        lab.close()
        subprocess.run(["rm", "-rf", work], check=False)
    costs = [cost(slices, mode, clients) for clients in options.clients for mode in MODES]
    show(costs)
    if options.json:
        options.json.write_text(
            json.dumps({"costs": [asdict(c) for c in costs], "slices": [asdict(s) for s in slices]})
        )
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
