# SPDX-License-Identifier: Apache-2.0
"""./dev demo: a leader's link to Postgres is cut for longer than its lease, before a person's eyes.

Once as RisingWave's metas are today, once with metafence; at the end both runs side by side in
milliseconds. Real processes, a real Postgres, a real lease: nothing here is a recording.
"""

import argparse
import os
import shlex
import shutil
import signal
import sys
from datetime import datetime
from pathlib import Path

from harness import Cluster, Lab, Pod, boot_ns, hold, wait_for
from harness.lab import clean_after_crashes, remove_databases, root_dir
from harness.paths import Missing, metafence, metafence_run, metasim, postgres_bin
from harness.process import signal_pid
from scenario import cut_link
from telling import WATCH, Run, Screen, intro, timeline, writers

TTL = 5


class Act:
    """One run of the story on a cluster of its own."""

    def __init__(self, screen: Screen, cluster: Cluster, old: Pod) -> None:
        self.screen, self.cluster, self.old = screen, cluster, old
        self.old_pid = old.meta_pid
        self.healed_at: datetime | None = None  # by the database's clock
        self.run = Run()

    def cut(self) -> None:
        self.run.cut = cut_link(self.old, "stall").began_ns
        renewals = self.old.witness.events("renew", self.old_pid)
        self.run.earliest = renewals[-1].boot_ns + TTL * 10**9
        self.screen.at(0, f"{self.old.name} leads. Its link to Postgres is cut: packets vanish, no error.")

    def wait(self, what: str, probe, timeout: float):  # type: ignore[no-untyped-def]
        """Waits with a running clock."""

        def check():  # type: ignore[no-untyped-def]
            self.screen.update(self.screen.paint(f"  {self.run.clock(boot_ns()):5.1f} s  …", "dim"))
            return probe()

        found = wait_for(what, check, timeout)
        self.screen.update("")
        return found

    def takeover(self) -> Pod:
        def another() -> Pod | None:
            return next((p for p in self.cluster.leaders() if p is not self.old), None)

        new = self.wait("another meta leads", another, TTL + 5)
        elected = new.witness.events("elected", new.meta_pid)
        self.run.takeover = elected[-1].boot_ns
        return new

    def heal(self) -> None:
        self.healed_at = self.cluster.postgres.sql("SELECT clock_timestamp()")[0][0]
        self.old.proxy.heal()
        self.run.healed = boot_ns()

    def count_writers(self, new: Pod) -> None:
        """Committed writes of the old and the new leader since the link healed, as Postgres has them."""
        run = self.run
        session = self.cluster.postgres.connect()

        def count() -> None:
            rows = session.execute(
                "SELECT pid, count(*) FROM witness_tick WHERE at > %s GROUP BY pid", (self.healed_at,)
            )
            by_pid = dict(rows.fetchall())
            run.old_writes = by_pid.get(self.old_pid, 0)
            run.new_writes = by_pid.get(new.meta_pid, 0)
            self.screen.update(writers(self.screen, run, self.old.name, new.name))

        with session:
            hold(WATCH, count)
            count()
        self.screen.settle(writers(self.screen, run, self.old.name, new.name))


def without(screen: Screen, lab: Lab) -> Run:
    screen.say("1  Without metafence", "bold")
    cluster = Cluster(lab, ttl=TTL, guarded=False)
    act = Act(screen, cluster, cluster.start())
    old, run = act.old, act.run
    act.cut()
    new = act.takeover()
    screen.at(run.clock(run.takeover), f"The lease ran out. {new.name} took the row and leads.")
    # The old leader's campaign fails when its wait for a connection ends, a lease after the cut.
    act.wait("the old leader's error", lambda: old.witness.events("err", act.old_pid), TTL)
    act.heal()
    screen.at(run.clock(run.healed), f"The link heals. {old.name} never stopped acting as leader:")
    act.count_writers(new)
    screen.at(
        run.clock(boot_ns()),
        f"Two leaders write to one metadata. {old.name} won't stop by itself: not in minutes, not in days.",
        "red",
    )
    screen.say()
    return run


def guarded(screen: Screen, cluster: Cluster, old: Pod) -> Run:
    screen.say("2  The same with metafence", "bold")
    act = Act(screen, cluster, old)
    run = act.run
    act.cut()
    run.dead = act.wait(f"{old.name} is dead", lambda: old.shim_status()["last_death"]["dead_ns"], TTL + 1)
    early = (run.earliest - run.dead) / 1e6
    screen.at(
        run.clock(run.dead),
        f"{old.name} is dead: it could not prove its lease. {early:.0f} ms before another can win.",
        "green",
    )
    new = act.takeover()
    screen.at(run.clock(run.takeover), f"The lease ran out. {new.name} took the row and leads.")
    act.heal()
    screen.at(run.clock(run.healed), "The link heals.")
    act.wait(f"{old.name} follows", lambda: old.is_follower, 2 * TTL)
    ready = old.witness.events("ready", old.meta_pid)
    run.follows = ready[-1].boot_ns
    screen.at(run.clock(run.follows), f"{old.name} is back as a follower, by itself.", "green")
    act.count_writers(new)
    screen.say()
    return run


def keep(screen: Screen, lab: Lab, cluster: Cluster) -> None:
    """Leaves the guarded cluster running and says how to look at it and end it."""
    (lab.dir / "pids").write_text("\n".join(f"{p} {started(p)}" for p in lab.pids()) + "\n")
    lab.dir.with_suffix(".kept").touch()
    binary = shlex.quote(os.path.relpath(metafence()))
    screen.say("The second cluster stays up. Look at it:", "bold")
    for pod in cluster.pods:
        screen.say(f"  {binary} status --socket {pod.dir}/agent.sock")
    screen.say(f"  psql '{cluster.postgres.dsn()}' -c 'TABLE election_leader' -c 'TABLE metafence.term'")
    leader = cluster.leaders()[0]
    screen.say("Fence its leader, and let it come back:")
    screen.say(f"  {binary} fence --reason 'trying it out' --socket {leader.dir}/agent.sock")
    screen.say(f"  {binary} unfence --socket {leader.dir}/agent.sock")
    screen.say(f"Logs are in {lab.dir}. End it with:")
    screen.say("  ./dev demo --stop")


def started(pid: int) -> str:
    """Start time in ticks: with the pid it names a process for good."""
    return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[19]


def stop(screen: Screen) -> int:
    """Ends what earlier runs with --keep left."""
    labs = [p.with_suffix("") for p in root_dir().glob("lab-demo-*.kept")]
    for lab in labs:
        for line in (lab / "pids").read_text().splitlines():
            pid, ticks = line.split()
            try:
                if started(int(pid)) == ticks:
                    # TERM would end each meta in good order; the databases are thrown away anyway.
                    signal_pid(int(pid), signal.SIGKILL)
            except FileNotFoundError:
                continue
        remove_databases(lab)
        shutil.rmtree(lab, ignore_errors=True)
        for suffix in (".kept", ".lock"):
            lab.with_suffix(suffix).unlink(missing_ok=True)
    screen.say(f"{len(labs)} kept demo(s) ended." if labs else "No kept demo is running.")
    return 0


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="./dev demo", description=__doc__.splitlines()[0])
    parser.add_argument("--keep", action="store_true", help="leave the guarded cluster running")
    parser.add_argument("--stop", action="store_true", help="end what --keep left running")
    return parser.parse_args()


def play(screen: Screen, keep_it: bool) -> None:
    began = boot_ns()
    lab = Lab("demo")
    second = Lab("demo", keep=keep_it)
    try:
        screen.say(intro(TTL))
        one = without(screen, lab)
        lab.close()
        cluster = Cluster(second, ttl=TTL, guarded=True)
        two = guarded(screen, cluster, cluster.start())
        timeline(screen, one, two, "milliseconds")
        screen.say(f"took {(boot_ns() - began) / 1e9:.0f} s", "dim")
        if keep_it:
            keep(screen, second, cluster)
    except BaseException:
        keep_it = False
        raise
    finally:
        lab.close()
        if not keep_it:
            second.close()


def main() -> int:
    args = parse()
    screen = Screen()
    clean_after_crashes()
    if args.stop:
        return stop(screen)
    try:
        for program in (metasim, metafence, metafence_run):
            program()
        postgres_bin("postgres")
        play(screen, args.keep)
    except Missing as error:
        print(f"demo: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        screen.say("\ninterrupted; everything that was started is ended")
        return 130
    return 0


if __name__ == "__main__":
    sys.exit(main())
