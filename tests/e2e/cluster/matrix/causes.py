# SPDX-License-Identifier: Apache-2.0
"""What goes wrong. Where a cause alone costs no leadership, the leader's link to Postgres is cut with it."""

import signal
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from kubelab import CONTROL_PLANE, POSTGRES_PORT
from metas.nets import Rules

if TYPE_CHECKING:
    from .run import Run

RUN, AGENT, META = "metafence-run", "metafence", "metasim"


# --- the link --------------------------------------------------------------------------------

# What happens to packets to and from Postgres: of all connections, or of those with these ports of the pod.
VERDICTS = {
    "dropped": ("", "drop"),
    "rejected": ("", "reject with tcp reset"),
    # Handshakes pass, data doesn't, in neither direction, until the kernels send it once more after the end.
    "stalled": (" tcp flags & psh == psh", "drop"),
    "old-dead": ("", "drop"),
}


def cut(run: "Run", how: str = "dropped") -> None:
    ip = run.old.ip
    here, there = "", ""
    if how == "old-dead":
        ports = [str(row[0]) for row in run.sessions_of(ip)]
        assert ports, f"{run}: the old leader has no session"
        here, there = (f" tcp {end} {{ {', '.join(ports)} }}" for end in ("sport", "dport"))
    narrowed, verdict = VERDICTS[how]
    chain = (
        "chain f { type filter hook forward priority -10; policy accept;\n"
        f"ip saddr {ip} ip daddr {CONTROL_PLANE} tcp dport {POSTGRES_PORT}{here}{narrowed} {verdict}\n"
        f"ip saddr {CONTROL_PLANE} ip daddr {ip} tcp sport {POSTGRES_PORT}{there}{narrowed} {verdict}\n}}"
    )
    rules = Rules(run.cluster, chain, run.old.node.name).begin()
    run.at_end(rules.lift)


def link(how: str) -> Callable[["Run"], None]:
    return lambda run: cut(run, how)


# --- processes -------------------------------------------------------------------------------


def agent(number: signal.Signals) -> Callable[["Run"], None]:
    def begin(run: "Run") -> None:
        run.send(AGENT, number)
        cut(run)

    return begin


def run_stopped(run: "Run") -> None:
    run.send(RUN, signal.SIGSTOP)
    cut(run)


def meta_stopped(run: "Run") -> None:
    """Continued when its lease is over, if it still is."""
    run.send(META, signal.SIGSTOP)
    run.at_end(lambda: run.send_watched(signal.SIGCONT))


# --- the table -------------------------------------------------------------------------------


@dataclass(frozen=True)
class Cause:
    """begin: for one run, right after what is done once to the whole cluster (`wide`). init: the leader is
    cut off while it still initializes."""

    name: str
    begin: Callable[["Run"], None]
    companion: str = ""
    flags: tuple[str, ...] = ()
    wide: str = ""
    init: bool = False


def nothing(_: "Run") -> None:
    """All is done by what is wide."""


CUT_TOO = "with the link dropped"
CAUSES = {
    c.name: c
    for c in (
        Cause("link dropped", link("dropped")),
        Cause("link rejected", link("rejected")),
        Cause("link stalled", link("stalled")),
        Cause("link old-dead", link("old-dead")),
        Cause("Postgres stopped", nothing, wide="postgres"),
        Cause("agent killed", agent(signal.SIGKILL), CUT_TOO),
        Cause("agent SIGSTOPped", agent(signal.SIGSTOP), CUT_TOO),
        Cause("metafence-run SIGSTOPped", run_stopped, CUT_TOO),
        Cause("API down", link("dropped"), CUT_TOO, wide="api"),
        Cause("node cut off", nothing, wide="node"),
        Cause("meta SIGSTOPped, continued after the lease", meta_stopped),
        Cause("meta ignores TERM", link("dropped"), CUT_TOO, flags=("--ignore-term",)),
        Cause("double-forked child keeps the port", link("dropped"), CUT_TOO, flags=("--double-fork",)),
        Cause("slow promotion cut in the middle", link("dropped"), CUT_TOO, init=True),
    )
}

# What one wave of pods can carry together: what is wide is alone in its cluster.
GROUPS: dict[str, tuple[str, ...]] = {
    "links": ("link dropped", "link rejected", "link stalled", "link old-dead"),
    "processes": (
        "agent killed",
        "agent SIGSTOPped",
        "metafence-run SIGSTOPped",
        "meta SIGSTOPped, continued after the lease",
    ),
    "metas": (
        "meta ignores TERM",
        "double-forked child keeps the port",
        "slow promotion cut in the middle",
    ),
    "postgres": ("Postgres stopped",),
    "api": ("API down",),
    "node": ("node cut off",),
}
