# SPDX-License-Identifier: Apache-2.0
"""How each step of a plan is done: one method for each kind. What it breaks comes back when what it returns
is called. A step that finds nothing to work on says so: NothingThere."""

import signal
import threading
from collections.abc import Callable
from contextlib import suppress
from typing import TYPE_CHECKING

from chaos.plan import Fault
from harness import Pod, boot_ns
from harness.fakeapi import FakeApi, Request
from harness.process import signal_pid
from jobs import Job, Node, await_event
from nodepods import NAME

if TYPE_CHECKING:
    from .world import World

End = Callable[[], None]
ORDER_S = 30  # of `metafence`, then it gives up
SOON_S = 5  # what is there at all is there by then


class NothingThere(AssertionError):
    """No leader, no job, no actor: the step is left out."""


class Killer:
    """Ends whoever has deleted the pod of a node: when the API has got the request and done nothing yet, or
    when it has done it and has not answered."""

    def __init__(self, api: FakeApi, is_before: bool) -> None:
        self._api, self._is_before = api, is_before
        self._came, self._may_go = threading.Event(), threading.Event()
        self._plain = api.gate, api.delay
        if is_before:
            api.gate = self._hold
        else:
            api.delay = self._hold

    def _hold(self, request: Request) -> None:
        if request.method != "DELETE" or request.pod != NAME or self._came.is_set():
            return
        self._came.set()
        self._may_go.wait(ORDER_S)
        if self._is_before:
            raise ConnectionAbortedError("it never came")

    def strike(self, victim: Callable[[], None]) -> bool:
        """Once, when a request waits."""
        if not self._came.is_set() or self._may_go.is_set():
            return False
        victim()
        self._may_go.set()
        return True

    def end(self) -> None:
        self._may_go.set()
        self._api.gate, self._api.delay = self._plain


class Deeds:
    def __init__(self, world: "World") -> None:
        self.world = world
        self._jobs = 0

    def begin(self, fault: Fault, is_first: bool) -> End:
        """is_first: it has to come to its end before the next begins."""
        do: Callable[[Fault], End | None] = getattr(self, fault.kind)
        end = do(fault)
        if is_first:
            self.world.calls[-1].succeeds()
        return end or (lambda: None)

    # --- who is meant --------------------------------------------------------------------------

    def leader(self) -> Pod:
        for pod in self.world.pods:
            if pod.acts_as_leader:
                return pod
        raise NothingThere("nobody leads")

    def victim(self, fault: Fault) -> Pod:
        return self.leader() if fault["who"] == "leader" else self.world.pods[int(fault["who"])]

    def node(self, fault: Fault) -> Node:
        return self.world.nodes[int(fault["node"])]

    def job(self, fault: Fault, status: str = "") -> Job:
        """Of those that a round has made and nobody has dropped."""
        found = self.world.jobs_of_round(status)
        if not found:
            raise NothingThere("no job")
        return found[0 if dict(fault.detail).get("which") == "oldest" else -1]

    # --- users ---------------------------------------------------------------------------------

    def _ask(self, *words: str) -> None:
        self.world.calls.append(self.world.jobs.later(self.leader(), *words))

    def create(self, fault: Fault) -> End | None:
        self._jobs += 1
        leader = self.leader()
        point = self.world.jobs.point(leader, "create-backfill") if fault["how"] == "held" else None
        how = ["background"] if fault["how"] == "background" else []
        self._ask("create", f"job{self._jobs}", fault["actors"], *how)
        return point and point.release

    def drop(self, fault: Fault) -> None:
        self._ask("drop", str(self.job(fault).id))

    def cancel(self, fault: Fault) -> None:
        self._ask("cancel", str(self.job(fault, "CREATING").id))

    def alter(self, fault: Fault) -> None:
        self._ask("alter", str(self.job(fault, "CREATED").id))

    def busy(self, fault: Fault) -> End:
        """An actor of the job's first fragment is in a chunk and sees nothing meanwhile."""
        job = self.job(fault)
        for node in self.world.nodes:
            if node.alive and node.name not in self.world.away and node.running(job):
                point, at = node.point("actor-busy"), boot_ns()
                try:
                    node.call("update", str(job.fragments[0]))
                    await_event(node.witness, "paused", at, SOON_S, at="actor-busy")
                    return point.release
                except AssertionError:
                    point.release()
        raise NothingThere(f"no actor of job {job.id}")

    def recover(self, fault: Fault) -> None:
        self._ask("recover")

    # --- operators -----------------------------------------------------------------------------

    def _order(self, pod: Pod, *words: str) -> None:
        wait = f"--timeout={ORDER_S}s"
        self.world.calls.append(self.world.jobs.order(pod, *words, "--reason", "test", wait))

    def recover_ordered(self, fault: Fault) -> None:
        self._order(self.leader(), "recover", "--wait", "2s")

    def handed_over(self, fault: Fault) -> None:
        self._order(self.leader(), "handover", "--wait", "0s")

    def fenced(self, fault: Fault) -> End:
        pod = self.victim(fault)
        self._order(pod, "fence")
        return lambda: self.world.unfence(pod)

    # --- metas and their agents ----------------------------------------------------------------

    def _meta_pid(self, pod: Pod) -> int:
        pid = pod.meta_pid
        if pid is None or not pod.meta_alive:
            raise NothingThere(f"{pod.name} has no meta")
        return pid

    def meta_killed(self, fault: Fault) -> None:
        signal_pid(self._meta_pid(self.victim(fault)), signal.SIGKILL)

    def meta_terminated(self, fault: Fault) -> None:
        signal_pid(self._meta_pid(self.victim(fault)), signal.SIGTERM)

    def meta_stopped(self, fault: Fault) -> End:
        pid = self._meta_pid(self.victim(fault))
        signal_pid(pid, signal.SIGSTOP)
        return lambda: signal_pid(pid, signal.SIGCONT)

    def pod_lost(self, fault: Fault) -> End:
        pod = self.victim(fault)
        self.world.away.add(pod.name)
        pod.kill()

        def end() -> None:
            pod.start()
            self.world.away.discard(pod.name)

        return end

    def agent_killed(self, fault: Fault) -> End:
        pod = self.victim(fault)
        self.world.agentless.add(pod.name)
        pod.kill_agent()
        return lambda: self.world.agentless.discard(pod.name)

    def agent_stopped(self, fault: Fault) -> End:
        agent = self.victim(fault).agent
        if agent is None or not agent.alive:
            raise NothingThere("no agent")
        agent.signal(signal.SIGSTOP)
        return lambda: agent.signal(signal.SIGCONT)

    def killer_killed(self, fault: Fault) -> End:
        killer = self.world.killer = Killer(self.world.kube.api, fault["when"] == "before")

        def end() -> None:
            killer.end()
            self.world.killer = None

        return end

    def recovery_held(self, fault: Fault) -> End:
        return self.world.jobs.point(self.leader(), fault["at"]).release

    # --- links ---------------------------------------------------------------------------------

    def pod_cut(self, fault: Fault) -> End:
        pod = self.victim(fault)
        pod.proxy.order(f"mode {fault['how']}")
        return pod.proxy.heal

    def node_cut(self, fault: Fault) -> End:
        """From metas and agents; it reaches them."""
        link = self.world.links[int(fault["node"])]
        link.order(f"mode {fault['how']}")
        return link.heal

    # --- compute nodes -------------------------------------------------------------------------

    def node_killed(self, fault: Fault) -> End:
        node = self.node(fault)
        self.world.away.add(node.name)
        self.world.kill(node)
        return lambda: self.world.away.discard(node.name)

    def node_terminated(self, fault: Fault) -> None:
        with suppress(ProcessLookupError):
            self.node(fault).terminate()

    def node_stopped(self, fault: Fault) -> End:
        node = self.node(fault)
        self.world.away.add(node.name)
        signal_pid(node.pid, signal.SIGSTOP)

        def end() -> None:
            signal_pid(node.pid, signal.SIGCONT)
            self.world.away.discard(node.name)

        return end
