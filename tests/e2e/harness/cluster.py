# SPDX-License-Identifier: Apache-2.0
"""A Postgres and n pods; what an operator would ask of them."""

import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

from .lab import Lab
from .paths import metasim
from .pod import Pod
from .postgres import Postgres
from .profile import PROFILES
from .waiting import TimedOut, hold, wait_for
from .witness import Verdict, check_witness


def brief(status: dict[str, Any] | None) -> dict[str, Any] | None:
    """What one wants to see of a status in a failed test."""
    keys = ("rule", "role", "armed", "engaged", "superseded", "row", "deadline_ms_left", "not_covered")
    return status and {k: status[k] for k in (*keys, "meta", "last_fence")}


class Cluster:
    def __init__(
        self,
        lab: Lab,
        ttl: int = 5,
        guarded: bool = True,
        pods: int = 3,
        meta_flags: list[str] | None = None,
        run_flags: list[str] | None = None,
    ) -> None:
        self.lab, self.profile, self.guarded = lab, PROFILES[ttl], guarded
        self.meta_flags, self.run_flags = meta_flags or [], run_flags or []
        self.postgres = Postgres(lab).create()
        self._install_witness()
        self._witnesses: list[Path] = []  # also of pods that are gone
        self.pods = [self.new_pod(f"m{n + 1}") for n in range(pods)]

    def new_pod(self, name: str, advertise: str | None = None) -> Pod:
        """A pod that is not part of `pods` yet and not started."""
        pod = Pod(
            self.lab,
            self.postgres,
            name,
            self.profile,
            self.guarded,
            self.meta_flags,
            self.run_flags,
            advertise,
        )
        self._witnesses.append(pod.witness.path)
        return pod

    def _install_witness(self) -> None:
        """The test's own record of renewals inside Postgres, independent of metafence's triggers."""
        script = subprocess.run(
            [metasim(), "witness", "sql"], capture_output=True, text=True, check=True
        ).stdout
        with self.postgres.connect() as session:
            session.execute(script)

    def install_sql(self) -> None:
        self.pods[0].write_config()
        done = self.pods[0].cli("sql", "install", timeout=120)  # hundreds of statements, on a busy machine
        assert done.returncode == 0, f"sql install: {done.stderr}"

    def start(self, sql: bool = True) -> Pod:
        """Starts the first pod, waits until it leads, then the others; the leader."""
        if self.guarded and sql:
            self.install_sql()
        leader = self.pods[0].start()
        leader.wait_leading(15)
        for pod in self.pods[1:]:
            pod.start()
        self.wait_converged(20, needs_status=self.guarded)
        return leader

    @property
    def ttl(self) -> float:
        return self.profile.ttl

    def leaders(self) -> list[Pod]:
        """All that act as leader at this moment."""
        return [p for p in self.pods if p.acts_as_leader]

    def owner(self) -> Pod | None:
        owner_id = self.postgres.owner()
        return next((p for p in self.pods if p.id == owner_id), None)

    def wait_new_leader(self, old: Pod, timeout: float) -> Pod:
        """Another pod than `old` acts as leader."""

        def other() -> Pod | None:
            return next((p for p in self.leaders() if p is not old), None)

        return self._wait(f"another leader than {old.name}", other, timeout)

    def wait_successor(self, old: Pod, old_pid: int | None, timeout: float) -> Pod:
        """Another process than `old_pid` acts as leader. With a healthy database that may be the next
        incarnation of the same pod: it is the same id, and its predecessor is proven dead."""

        def other() -> Pod | None:
            return next((p for p in self.leaders() if p.meta_pid != old_pid), None)

        return self._wait(f"another leader than pid {old_pid} of {old.name}", other, timeout)

    def _wait(self, what: str, probe: Callable[[], Pod | None], timeout: float) -> Pod:
        try:
            return wait_for(what, probe, timeout)
        except TimedOut as error:
            raise TimedOut(f"{error}\n{self.describe()}") from None

    def _converged(self, needs_status: bool) -> bool:
        leaders = self.leaders()
        if len(leaders) != 1 or self.owner() is not leaders[0]:
            return False
        followers = [p for p in self.pods if p is not leaders[0]]
        if not all(p.is_follower for p in followers):
            return False
        return not needs_status or all(
            (s := p.status()) is not None
            and s["role"] == ("leader" if p in leaders else "follower")
            and s["armed"]
            for p in self.pods
        )

    def wait_converged(self, timeout: float, needs_status: bool | None = None) -> Pod:
        """Exactly one leader, the row's owner, and all others followers; the agents agree."""
        with_status = self.guarded if needs_status is None else needs_status
        try:
            wait_for("one leader, others follow", lambda: self._converged(with_status), timeout, 0.1)
        except TimedOut as error:
            raise TimedOut(f"{error}\n{self.describe()}") from None
        return self.leaders()[0]

    def watch(self, seconds: float, check: Callable[[], None]) -> None:
        hold(seconds, check)

    def witness(self) -> Verdict:
        """Judges all witness files by the database's record of renewals."""
        return check_witness(self.postgres, self.profile.ttl_text, [w for w in self._witnesses if w.exists()])

    def describe(self) -> str:
        try:
            row = f"row: {self.postgres.owner()}"
        except Exception as error:
            row = f"row: {type(error).__name__}"
        states = [
            f"{p.name} {p.id}: alive={p.meta_alive} acts_as_leader={p.acts_as_leader} "
            f"follower={p.is_follower} starts={p.incarnations}"
            + (f" status={brief(p.status())}" if self.guarded else "")
            for p in self.pods
        ]
        return "\n".join([row, *states])
