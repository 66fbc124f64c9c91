# SPDX-License-Identifier: Apache-2.0
"""./dev demo --cluster: a leader's pod loses its link to Postgres for longer than its lease.

A real Kubernetes of three nodes on this machine, metas installed by helm under pod security "restricted":
once as the RisingWave operator runs them today, once with metafence. What is shown is kubectl's view.
"""

import argparse
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

from harness.paths import Missing
from harness.waiting import boot_ns, hold, wait_for
from kubelab import CONTROL_PLANE, POSTGRES_PORT, Cluster, Database, LabError
from kubelab.fixtures import make_namespace
from kubelab.layout import claim
from metas import Change, Deployment, Meta, OperatorLabeler
from metas.faults import wait_renewal
from telling import WATCH, Run, Screen, intro, timeline, writers

PREFIX = "mfdemo"
LABELS = ("-L", "risingwave/meta-role", "-L", "metafence.io/role")

class Act:
    """One run of the story."""

    def __init__(self, screen: Screen, metas: Deployment) -> None:
        self.screen, self.metas = screen, metas
        self.old = metas.wait_converged(120)
        self.incarnation = self.old.incarnation
        self.run = Run()
        self._shown = 0

    # --- what kubectl shows ------------------------------------------------------------------

    def kubectl(self, *words: str) -> None:
        self.screen.say(f"  $ kubectl {' '.join(words)}", "bold")
        shown = self.metas.cluster.kubectl("-n", self.metas.namespace, *words)
        for line in shown.splitlines():
            self.screen.say(f"    {line}", "dim")

    def pods(self) -> None:
        self.kubectl("get", "pods", *LABELS)

    def show_labels(self) -> None:
        """What a watch has seen since it was last asked."""
        changes = self.metas.recorder.changes()
        fresh, self._shown = changes[self._shown :], len(changes)
        for change in fresh:
            if change.boot_ns >= self.run.cut > 0:
                self.screen.update("")
                self.screen.at(self.run.clock(change.boot_ns), self._describe(change), "yellow")

    def _describe(self, change: Change) -> str:
        role = change.role if self.metas.guarded else change.operators_role
        key = "metafence.io/role" if self.metas.guarded else "risingwave/meta-role"
        return f"label     {change.name}  {key}={role or '(none)'}"

    def wait(self, what: str, probe: Callable[[], Any], timeout: float) -> Any:
        """Waits with a running clock, and with the labels as they change."""

        def check() -> Any:
            self.show_labels()
            self.screen.update(self.screen.paint(f"  {self.run.clock(boot_ns()):5.1f} s  …", "dim"))
            return probe()

        found = wait_for(what, check, timeout)
        self.screen.update("")
        return found

    # --- the story ---------------------------------------------------------------------------

    @contextmanager
    def cut(self) -> Iterator[None]:
        self.show_labels()
        wait_renewal(self.old)
        block = self.metas.cluster.block(self.old.read(), CONTROL_PLANE, POSTGRES_PORT)
        self.run.cut = boot_ns()
        self.run.earliest = self.old.events("renew")[-1].boot_ns + int(self.metas.ttl * 1e9)
        text = f"{self.old.name} leads, on node {self.old.node.name}. Its packets to Postgres are dropped."
        self.screen.at(0, text)
        yield
        block.lift()
        self.run.healed = boot_ns()

    def takeover(self) -> Meta:
        new = self.wait(
            "another meta leads",
            lambda: next((m for m in self.metas.leaders() if m is not self.old), None),
            self.metas.ttl + 15,
        )
        self.run.takeover = new.events("elected")[-1].boot_ns
        text = f"The lease ran out. {new.name} took the row and leads."
        self.screen.at(self.run.clock(self.run.takeover), text)
        return new

    def writes(self, meta: Meta, incarnation: str | None) -> int:
        done = meta.events("write", self.run.healed, incarnation)
        return sum(e.fields["db"] == "ok" for e in done)

    def count_writers(self, new: Meta) -> None:
        """Writes that Postgres committed to the old and the new leader since the link healed."""
        run = self.run

        def line() -> str:
            run.old_writes = self.writes(self.old, self.incarnation)
            run.new_writes = self.writes(new, None)
            return writers(self.screen, run, self.old.name, new.name)

        hold(WATCH, lambda: self.screen.update(line()))
        self.screen.settle(line())
        self.run.restarts = self.old.kubelet_restarts()


def without(act: Act) -> Run:
    screen, run = act.screen, act.run
    screen.say("1  Without metafence, labelled by RisingWave's operator", "bold")
    with OperatorLabeler(act.metas.cluster, act.metas.namespace):
        act.wait("it is labelled", lambda: labelled(act.metas), 20)
        act.pods()
        with act.cut():
            new = act.takeover()
            # The old leader's campaign fails when its wait for a connection ends, a lease after the cut.
            act.wait("the error", lambda: act.old.events("err", run.cut, act.incarnation), 2 * act.metas.ttl)
        text = f"The link heals. {act.old.name} never stopped acting as leader:"
        screen.at(run.clock(run.healed), text)
        act.wait("it writes", lambda: act.writes(act.old, act.incarnation), 30)
        act.count_writers(new)
        act.wait("its label", lambda: operators_role(act.metas, act.old) == "follower", 20)
        act.pods()
        screen.at(
            run.clock(boot_ns()),
            f"Two leaders write to one metadata. {act.old.name} is labelled follower; nobody restarts it.",
            "red",
        )
    screen.say()
    return run


def operators_role(metas: Deployment, meta: Meta) -> str | None:
    change = metas.recorder.now(meta.uid)
    return change.operators_role if change else None


def labelled(metas: Deployment) -> bool:
    return all(operators_role(metas, m) in ("leader", "follower") for m in metas.metas)


def guarded(act: Act) -> Run:
    screen, run = act.screen, act.run
    screen.say("2  The same with metafence", "bold")
    act.pods()
    with act.cut():
        status = act.wait(f"{act.old.name} is dead", lambda: death(act.old), act.metas.ttl + 2)
        run.dead = status["dead_ns"]
        early = (run.earliest - status["dead_ns"]) / 1e6
        text = f"{act.old.name} is dead: its lease can't be proven. {early:.0f} ms before another can win."
        screen.at(run.clock(status["dead_ns"]), text, "green")
        new = act.takeover()
    screen.at(run.clock(run.healed), "The link heals.")
    act.wait(f"{act.old.name} follows", lambda: act.old.is_follower, 3 * act.metas.ttl)
    run.follows = act.old.events("ready")[-1].boot_ns
    screen.at(run.clock(run.follows), f"{act.old.name} is back as a follower, by itself.", "green")
    recorder = act.metas.recorder
    act.wait("its label", lambda: recorder.roles(act.old.uid)[-1] == "follower", 20)
    act.wait("the new leader's label", lambda: recorder.roles(new.uid)[-1] == "leader", 20)
    act.count_writers(new)
    act.pods()
    ours = f"involvedObject.name={act.old.name},reportingComponent=metafence.io/agent"
    act.kubectl("get", "events", "--field-selector", ours)
    screen.say()
    return run


def death(meta: Meta) -> dict[str, Any] | None:
    status = meta.run_status()
    return status["last_death"] if status["fences"] else None


def install(cluster: Cluster, name: str, is_guarded: bool) -> Deployment:
    make_namespace(cluster, name, "restricted")
    database = Database(cluster.postgres, name.replace("-", "_")).create()
    metas = Deployment(cluster, name, database, guarded=is_guarded)
    if is_guarded:
        metas.install_sql()
    metas.install()
    metas.recorder.start()
    return metas


def story(screen: Screen, cluster: Cluster, names: tuple[str, str]) -> tuple[Run, Run]:
    """On a cluster that is up; in two namespaces, which are left behind."""
    with ExitStack() as stack:
        both = [install(cluster, names[0], False), install(cluster, names[1], True)]
        for metas in both:
            stack.callback(metas.close)
        screen.update("")
        screen.say(cluster.kubectl("get", "nodes").rstrip(), "dim")
        screen.say()
        one = without(Act(screen, both[0]))
        two = guarded(Act(screen, both[1]))
    timeline(screen, one, two, "seconds")
    return one, two


def play(screen: Screen, cluster: Cluster) -> None:
    began = boot_ns()
    screen.say(intro(10))
    screen.say("Starting a Kubernetes of three nodes on this machine ...", "dim")
    cluster.up(lambda text: screen.update(screen.paint(f"  {text}", "dim")))
    story(screen, cluster, ("control", "guarded"))
    screen.say(f"took {(boot_ns() - began) / 1e9:.0f} s", "dim")


def say_how_to_look(screen: Screen, cluster: Cluster) -> None:
    name = f"METAFENCE_CLUSTER={cluster.layout.prefix} ./dev cluster"
    screen.say("The cluster stays up. Look at it, break it:", "bold")
    for words in (
        "kubectl -n guarded get pods -L metafence.io/role",
        "kubectl -n guarded exec meta-0 -c metafence -- metafence status",
        "kubectl -n guarded annotate pod meta-0 metafence.io/fence='trying it out'",
        "kubectl -n guarded annotate pod meta-0 metafence.io/fence-",
        "cut n1",
        "heal n1",
    ):
        screen.say(f"  {name} {words}")
    screen.say("End it with:")
    screen.say(f"  {name} down")


def main() -> int:
    parser = argparse.ArgumentParser(prog="./dev demo --cluster", description=__doc__.splitlines()[0])
    parser.add_argument("--keep", action="store_true", help="leave the cluster running")
    keep = parser.parse_args().keep
    screen = Screen()
    try:
        held = claim(PREFIX)
        if held is None:
            raise LabError("another demo is running")
        cluster = Cluster(PREFIX)
        try:
            play(screen, cluster)
            if keep:
                say_how_to_look(screen, cluster)
        except BaseException:
            keep = False
            raise
        finally:
            if not keep:
                cluster.down()
            os.close(held)
    except (LabError, Missing) as error:
        print(f"demo: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        screen.say("\ninterrupted; everything that was started is ended")
        return 130
    return 0


if __name__ == "__main__":
    sys.exit(main())
