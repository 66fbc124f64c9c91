# SPDX-License-Identifier: Apache-2.0
"""What all zombie scenarios share: the case they run in and the verdict at their end."""

from collections.abc import Callable
from dataclasses import dataclass

from harness import Cluster, Pod, boot_ns, hold_until, results, wait_for

Make = Callable[..., Cluster]
FULL_RATE = 20  # this many writes are two seconds of work


@dataclass(frozen=True)
class Case:
    """ttl of the lease; guarded: with metafence, else the control run."""

    ttl: int
    guarded: bool
    run: int


@dataclass(frozen=True)
class Fault:
    """Something that began now and lasts clearly longer than the lease: a wait in the pool begins up to
    two seconds after it and takes one lease until it fails."""

    began_ns: int
    ttl: float

    @staticmethod
    def begins(ttl: float) -> "Fault":
        return Fault(boot_ns(), ttl)

    def wait_end(self) -> None:
        length = max(self.ttl * 4 / 3, self.ttl + 3)
        hold_until(self.began_ns + int(length * 1e9))


def next_campaign_ns(renewals: list[int]) -> int:
    """When the leader's next campaign begins: they begin a second apart, and each ends with a renewal that is
    more or less late. The renewal that was the least late tells the phase."""
    second = 10**9
    lateness = [(renewals[-1] - r) % second for r in renewals]
    return renewals[-1] - max(late for late in lateness if late < second // 2) + second


def cut_link(old: Pod, mode: str) -> Fault:
    """Cuts the leader's link between two campaigns. One that hits a campaign on its way ends differently:
    that statement hangs until the link heals, and the leader leaves with exit 0 (b7). On a machine that was
    too busy to be in time, the link is healed and cut again."""
    pid = old.meta_pid
    for _ in range(10):
        since = boot_ns()

        def campaigned(since: int = since) -> bool:
            return any(e.boot_ns > since for e in old.witness.events("trim", pid))

        wait_for(f"{old.name} is done with a campaign and the trim after it", campaigned, 5)
        fault = Fault.begins(old.profile.ttl)
        old.proxy.order(f"mode {mode}")
        if boot_ns() < next_campaign_ns([e.boot_ns for e in old.witness.events("renew", pid)]):
            return fault
        old.proxy.heal()
    raise AssertionError("the machine is too busy to cut a link between two campaigns")


def wait_error(old: Pod, old_pid: int | None, fault: Fault) -> None:
    """The old leader's campaign has failed, which makes it a zombie. When the fault hit another statement
    first, that one's wait comes before: up to two acquire time-outs."""

    def failed() -> bool:
        return any(e.boot_ns > fault.began_ns for e in old.witness.events("err", old_pid))

    wait_for(f"{old.name}'s campaign fails", failed, 2 * fault.ttl + 5)


def writes_beside(old: Pod, old_pid: int | None, since_ns: int, timeout: float = 10) -> None:
    """The process that lost leadership goes on writing to Postgres at full rate."""

    def written() -> bool:
        writes = old.witness.events("write", old_pid)
        done = [e for e in writes if e.boot_ns > since_ns and e.fields["db"] == "ok"]
        return len(done) >= FULL_RATE

    wait_for(f"{old.name} writes on as a zombie", written, timeout)


def knows_better_and_acts_on(old: Pod, old_pid: int | None, timeout: float) -> None:
    """It reads that another leads, and goes on acting all the same."""
    own_id = old.id

    def acts() -> bool:
        other = [e for e in old.witness.events("row", old_pid) if e.fields["leader"] != own_id]
        ticks = old.witness.events("tick", old_pid)
        return bool(other) and sum(t.boot_ns > other[0].boot_ns for t in ticks) >= FULL_RATE

    wait_for(f"{old.name} knows of another leader and acts on", acts, timeout)


def judge(name: str, cluster: Cluster, case: Case) -> None:
    """Records the verdict of the witness. The control run must show what metafence is for; with
    metafence nobody may act beyond his lease."""
    verdict = cluster.witness()
    results.record(results.Measured(name, case.ttl, case.guarded, verdict.overlaps, verdict.worst_margin_ms))
    assert verdict.ticks > 0 and verdict.raw["unknown_ticks"] == 0, "the witness saw too little"
    if case.guarded:
        assert verdict.overlaps == 0 and verdict.raw["late_ticks"] == 0, verdict.raw
    else:
        assert verdict.overlaps > 0, verdict.raw
