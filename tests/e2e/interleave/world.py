# SPDX-License-Identifier: Apache-2.0
"""Two metas with agents, two compute nodes behind links that can be cut, a kubelet for all of them, and
interleavings one after another. After each round all has to come back by itself, what it has made is dropped,
and one more recovery has to leave nothing behind: that nothing waits for ever is seen there."""

import subprocess
from collections.abc import Callable, Iterable
from contextlib import suppress

import psycopg
import pytest
from chaos.history import Cause
from chaos.plan import Fault, Round
from chaos.schedule import Schedule
from harness import Lab, Pod, Proxy, boot_ns, hold, hold_until
from harness.nameserver import Nameserver, let_agents_ask
from jobs import PATIENCE, Call, Job, Jobs, Node
from kube import Open
from nodepods import HOST, NAME, Kubelet
from trouble import Milestones
from workerpods import prepare

from . import plan
from .deeds import Deeds, Killer, NothingThere
from .evidence import Books, actors, numbers, panics, refusals, removals
from .judge import History, Wait

TTL = 10
MAX_HOLD_S = 15
RECOVERY = {"resetBeforeStart": "4s", "initTimeout": "3s", "maxHold": f"{MAX_HOLD_S}s"}
KILLS = {"killNodes": True, "killAfter": "3s"}
RELEASES = ("v2.6", "v2.8", "v3.0", "head")
REST_S = 240.0  # a start that waits for a lease, a hold, pauses up to 5 s: some times over, on a busy machine
STEP_S = 30.0  # of one thing on the way there, before all of it is looked at again
GRACE_S = 1.0  # from SIGTERM to SIGKILL, of a node whose pod is deleted
# After what has kept an agent away its row may be missing so long, and the stream of a node that was cut off.
BACK_S = 30.0
AWAY = (AssertionError, OSError, subprocess.SubprocessError, psycopg.Error)


class World:
    """patch, names: how agents find the node that has a pod. tell: is given each line of the timeline."""

    def __init__(
        self,
        kube: Open,
        lab: Lab,
        patch: pytest.MonkeyPatch,
        names: Nameserver,
        seed: int,
        tell: Callable[[str], None],
        mode: str = "enforce",
    ) -> None:
        self.seed, self.say = seed, lambda text: tell(f"{boot_ns() / 1e9:10.3f}  {text}")
        self.kube = kube(pods=plan.METAS, ttl=TTL)
        let_agents_ask(self.kube.pods, names, lab.dir, patch)
        prepare(self.kube.api)
        self.jobs = Jobs(self.kube.cluster, RELEASES[seed // 2 % len(RELEASES)])
        self.jobs.configure(mode, **RECOVERY, **(KILLS if plan.has_kills(seed) else {}))
        for pod in self.pods:
            pod.config["reconcile"] = {"mode": "off"}
            pod.meta_flags = [*pod.meta_flags, "--tick=1s"]
            pod.witness = Milestones(pod.witness.path)
        self.away: set[str] = set()  # pods and nodes that nobody starts now
        self.agentless: set[str] = set()
        self.calls: list[Call] = []
        self.killer: Killer | None = None
        self.links: list[Proxy] = []
        self.dead: dict[int, int] = {}  # pid of a node -> when it was
        self.books = Books(self.kube.cluster.postgres)
        self.causes: list[Cause] = []
        self.cut_off: list[Cause] = []
        self.waits: list[Wait] = []
        self.missed = 0
        self._end_pod_ns: int | None = None
        self.deeds = Deeds(self)
        leader = self.jobs.start(0, mode=mode)
        for name, host in (("c1", "127.0.0.1"), ("c2", HOST)):
            self._add_node(lab, name, host)
        self.kubelet = Kubelet(self.kube.api, self.nodes[1])
        self.kept = self.jobs.create(leader, "kept", 2)

    def _add_node(self, lab: Lab, name: str, host: str) -> None:
        node = Node(self.kube.cluster, name, host)
        self.links.append(Proxy(lab, node.port, node.dir, "link"))
        node.listen_port, node.port = node.port, self.links[-1].port
        self.jobs.nodes.append(node.start())
        node.wait_running(PATIENCE)

    @property
    def pods(self) -> list[Pod]:
        return self.kube.pods

    @property
    def nodes(self) -> list[Node]:
        return self.jobs.nodes

    # --- the kubelet's part --------------------------------------------------------------------

    def kill(self, node: Node) -> None:
        """… which its kubelet says, of the one that it knows."""
        node.kill()
        self.dead.setdefault(node.pid, boot_ns())  # the first time counts
        if node is self.nodes[1]:
            self.kubelet.restart_container()

    def look(self) -> None:
        """Who has ended is started again, unless somebody keeps it away."""
        if self.killer and self.killer.strike(self._kill_agents):
            self.say("agents are killed, with a delete under way")
        for pod in self.pods:
            if pod.name in self.away:
                continue
            if not pod.main.alive:
                pod.start(agent=False)
            if pod.name not in self.agentless and (pod.agent is None or not pod.agent.alive):
                pod.start_agent()
        for node in self.nodes:
            if not node.alive and node.name not in self.away:
                self.kill(node)  # it has ended by itself: that is said
                node.start()
        self._delete_pod()

    def _kill_agents(self) -> None:
        """Of whoever leads: one of them has sent it."""
        for pod in self.pods:
            if pod.acts_as_leader:
                pod.kill_agent()

    def _delete_pod(self) -> None:
        """A kubelet's way: SIGTERM, after a while SIGKILL, its word; and then there is a new pod."""
        node, api = self.nodes[1], self.kube.api
        with api.lock:
            is_deleted = "deletionTimestamp" in api.pods[NAME].body["metadata"]
        if not is_deleted:
            self._end_pod_ns = None
        elif self._end_pod_ns is None:
            self._end_pod_ns = boot_ns() + int(GRACE_S * 1e9)
            self.say(f"the pod of {node.name} is deleted")
            self.away.add(node.name)
            node.terminate()
        elif boot_ns() >= self._end_pod_ns:
            node.kill()
            self.dead.setdefault(node.pid, boot_ns())
            self.kubelet.end_pod()
            self.kubelet.make_pod()
            self.away.discard(node.name)

    def unfence(self, pod: Pod) -> None:
        with suppress(*AWAY):
            pod.cli("unfence", timeout=5)

    # --- a round -------------------------------------------------------------------------------

    def go(self, rounds: Iterable[Round], is_over: Callable[[], bool] = lambda: False) -> None:
        """Until the first that does not come to its end; what came until then is there to be judged."""
        for one in rounds:
            self._round(one)
            if self.waits[-1].missing or is_over():
                return

    def _round(self, one: Round) -> None:
        self.say(f"round {one.number} of seed {self.seed}")
        began = boot_ns()
        Schedule(self._begin, self._wait_until).play(one)
        ended = boot_ns()
        missing = self._rest()
        took = (boot_ns() - ended) / 1e9
        self.books.look()
        self.waits.append(Wait(f"round {one.number}", took, missing))
        excuses = [str(fault) for fault in one.faults if fault.kind in plan.KEEPS_AGENTS]
        self.causes += [Cause(excuse, began, ended + int(BACK_S * 1e9)) for excuse in excuses]
        cut = [self.deeds.node(fault).name for fault in one.faults if fault.kind == "node_cut"]
        self.cut_off += [Cause(name, began, ended + int(BACK_S * 1e9)) for name in cut]
        self.say(f"at rest after {took:.1f} s" if not missing else f"not at rest: {missing}")

    def _begin(self, fault: Fault, is_first: bool) -> Callable[[], None] | None:
        try:
            end = self.deeds.begin(fault, is_first)
        except AWAY as error:
            self.missed += 1
            why = error if isinstance(error, NothingThere) else f"{type(error).__name__}: {error}"
            self.say(f"{fault}: left out: {str(why).splitlines()[0]}")
            return None
        self.say(str(fault))

        def ended() -> None:
            end()
            self.say(f"  ends: {fault.kind}")

        return ended if fault.seconds else end

    def _wait_until(self, end_ns: int, under_way: list[Fault]) -> None:
        hold_until(end_ns, self.look)

    # --- is all well? --------------------------------------------------------------------------

    def _rest(self) -> str:
        """What is missing at the end; "": nothing."""
        end = boot_ns() + int(REST_S * 1e9)
        while missing := self._missing():
            if boot_ns() > end:
                return missing
            hold(0.2, self.look)
        return ""

    def _missing(self) -> str:
        try:
            return (
                self._missing_processes()
                or self._missing_answers()
                or self._missing_nodes()
                or self._missing_drops()
                or self._left_behind()
            )
        except AWAY as error:
            return f"{type(error).__name__}: {error}".splitlines()[0]

    def _missing_processes(self) -> str:
        self.look()
        for pod in self.pods:
            status = pod.status()
            if status is None or status["manual_fence"]:
                self.unfence(pod)
                return f"{pod.name} answers and is not fenced"
        return "" if self.kube.cluster._converged(True) else "one leader, whom agents agree on"

    def _missing_answers(self) -> str:
        self.calls = [call for call in self.calls if not call.done()]
        return "; ".join("an answer to " + " ".join(call.words) for call in self.calls)

    def _missing_nodes(self) -> str:
        for node in self.nodes:
            rows = self.kube.cluster.postgres.sql(
                "SELECT status FROM worker WHERE host = %s AND port = %s", node.host, node.port
            )
            if rows != [("RUNNING",)] or not node.alive:
                return f"{node.name} is registered and runs: {rows}"
        return ""

    def _wait(self, call: Call) -> str:
        """For its answer, whatever it is, while the kubelet goes on; an answer that says no is told."""
        end = boot_ns() + int(STEP_S * 1e9)
        while not call.done():
            if boot_ns() > end:
                self.calls.append(call)
                return "an answer to " + " ".join(call.words)
            hold(0.1, self.look)
        status, said = call.wait()
        return "" if status == 0 else f"{' '.join(call.words)}: {said}".splitlines()[0]

    def _missing_drops(self) -> str:
        leader = self.deeds.leader()
        if (status := self.jobs.status(leader)) != 3:
            return f"{leader.name} has recovered: {status}"
        for job, status in self._catalog():
            verb = "drop" if status == "CREATED" else "cancel"
            if missing := self._wait(self.jobs.later(leader, verb, str(job))):
                return missing
        return ""

    def _left_behind(self) -> str:
        """After one more recovery there is nothing but what stays."""
        leader = self.deeds.leader()
        if missing := self._wait(self.jobs.recover(leader)):
            return missing
        tables = self.jobs.tables(leader)
        if set(tables) != set(self.kept.tables):
            return f"tables {tables} are {self.kept.tables}"
        if not sum(node.running(self.kept) for node in self.nodes):
            return "what stays runs"
        end = boot_ns() + int(STEP_S * 1e9)
        while (missing := self._open()) and boot_ns() < end:  # until the next barrier is committed
            hold(0.2, self.look)
        return missing

    def _open(self) -> str:
        sql = self.kube.cluster.postgres.sql
        pending = sql("SELECT job_id, table_ids FROM metafence.dropped")
        recoveries = sql("SELECT id, scope FROM metafence.recovery WHERE closed_at IS NULL")
        return f"pending {pending}, open {recoveries}" if pending or recoveries else ""

    # --- what is there -------------------------------------------------------------------------

    def _catalog(self) -> list[tuple[int, str]]:
        """Jobs but the one that stays, the oldest first, with their status."""
        sql = "SELECT job_id, job_status FROM streaming_job WHERE job_id <> %s ORDER BY job_id"
        return self.kube.cluster.postgres.sql(sql, self.kept.id)

    def jobs_of_round(self, status: str = "") -> list[Job]:
        made = {
            int(event.fields["job"]): Job(
                int(event.fields["job"]),
                list(numbers(event.fields["fragments"])),
                list(numbers(event.fields["tables"])),
            )
            for pod in self.pods
            for event in pod.witness.events("create_committed")
        }
        return [made[job] for job, now in self._catalog() if job in made and status in ("", now)]

    def history(self) -> History:
        with suppress(*AWAY):
            self.books.look()
        return History(
            max_hold_ns=MAX_HOLD_S * 10**9,
            actors=tuple(actor for node in self.nodes for actor in actors(node, self.dead)),
            removals=tuple(removal for pod in self.pods for removal in removals(pod)),
            passages=tuple(self.books.passages.values()),
            refusals=tuple(refusal for pod in self.pods for refusal in refusals(pod)),
            held_from=tuple(self.books.held_from.items()),
            panics=tuple(panic for node in self.nodes for panic in panics(node)),
            causes=tuple(self.causes),
            cut_off=tuple(self.cut_off),
            waits=tuple(self.waits),
        )
