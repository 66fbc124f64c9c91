# SPDX-License-Identifier: Apache-2.0
"""What goes wrong when: a list of rounds that only the seed decides. Pure.

A round has one fault, or two that overlap; each ends by itself after its time. The next round begins when
everything has come back: how many rounds fit into some minutes is the machine's to say, but never which.
"""

import random
from collections.abc import Iterator
from dataclasses import dataclass

MAX_S = 30.0  # no fault lasts longer
PAIRED = 0.4  # so many rounds have two faults, of those that may
SETTLE_S = 25.0  # a guess of what it takes to come back, for who asks what fits into some minutes

# Who is meant, found out when the fault begins: mostly the leader, or the meta (the node) of that number.
VICTIMS = ("leader", "leader", "leader", "leader", "0", "1", "2")
ONE_WAY = ("drop", "requests", "replies")


@dataclass(frozen=True)
class Kind:
    """part: of two faults in one round each breaks another part. is_alone: it shares a round with nobody,
    because what it does would explain, or excuse, what another one did."""

    name: str
    part: str
    shortest: float
    longest: float
    choices: tuple[tuple[str, tuple[str, ...]], ...] = ()
    is_alone: bool = False


def _of_victim(name: str, part: str, shortest: float, longest: float, **more: tuple[str, ...]) -> Kind:
    return Kind(name, part, shortest, longest, (("who", VICTIMS), *more.items()))


KINDS = (
    # Partitions. requests, replies: only the packets in that direction are lost.
    _of_victim("node_without_postgres", "link", 2, 25, how=ONE_WAY),
    _of_victim("node_without_api", "api", 2, 25, how=ONE_WAY),
    _of_victim("pod_without_postgres", "link", 0.5, 25, how=(*ONE_WAY, "reset")),
    _of_victim("node_cut", "node", 2, 20),
    # Processes. A killed one is started again by whoever does that in real life.
    _of_victim("meta_killed", "meta", 0, 1),
    _of_victim("meta_stopped", "meta", 0.5, 25),
    _of_victim("agent_killed", "agent", 0, 1),
    _of_victim("agent_stopped", "agent", 0.5, 25),
    _of_victim("run_killed", "meta", 0, 1),
    # Longer, and with a link that is cut, is what docs/fault-matrix.md says only the kubelet covers.
    Kind("run_stopped", "meta", 0.2, 2, (("who", VICTIMS),), is_alone=True),
    Kind("compute_killed", "compute", 0, 1, (("who", ("0", "1")),)),
    Kind("compute_stopped", "compute", 0.5, 25, (("who", ("0", "1")),)),
    _of_victim("kubelet_killed", "kubelet", 0, 1),
    _of_victim("kubelet_stopped", "kubelet", 2, 25),
    Kind("api_killed", "api", 0, 20),
    Kind("api_stopped", "api", 0.5, 25),
    Kind("postgres_killed", "postgres", 0, 20),
    Kind("postgres_stopped", "postgres", 0.5, 25),
    Kind("postgres_restarted", "postgres", 0, 2, (("how", ("fast", "immediate")),)),
    # Postgres and what it stands on.
    Kind(
        "postgres_clock",
        "postgres",
        3,
        20,
        (("step_s", ("-40", "-3", "-0.4", "0.4", "3", "12", "40")),),
        is_alone=True,
    ),
    Kind("failover", "postgres", 0, 10, (("lost_s", ("0", "1", "3", "8")),), is_alone=True),
    Kind("disk_full", "postgres", 2, 20, is_alone=True),
    _of_victim("node_starved", "node", 5, 25, percent=("15", "30", "60")),
    # Credentials.
    Kind("tokens_rotated", "api", 0, 1, is_alone=True),
    Kind("authority_rotated", "api", 0, 1, is_alone=True),
)
BY_NAME = {kind.name: kind for kind in KINDS}


@dataclass(frozen=True)
class Fault:
    """`at` seconds after its round began, for `seconds`."""

    kind: str
    at: float
    seconds: float
    detail: tuple[tuple[str, str], ...] = ()

    def __getitem__(self, name: str) -> str:
        return dict(self.detail)[name]

    @property
    def end(self) -> float:
        return self.at + self.seconds

    def __str__(self) -> str:
        words = " ".join(f"{name}={value}" for name, value in self.detail)
        return f"{self.kind:22} at {self.at:4.1f} s for {self.seconds:4.1f} s  {words}".rstrip()


@dataclass(frozen=True)
class Round:
    number: int
    faults: tuple[Fault, ...]

    @property
    def seconds(self) -> float:
        return max(fault.end for fault in self.faults)


def pick(kind: Kind, chance: random.Random, before: float) -> Fault:
    """Begins within the first `before` seconds."""
    at = round(chance.uniform(0, before), 1)
    seconds = round(chance.uniform(kind.shortest, kind.longest), 1)
    detail = tuple((name, chance.choice(values)) for name, values in kind.choices)
    return Fault(kind.name, at, seconds, detail)


def _bag(kinds: list[Kind], chance: random.Random) -> Iterator[Kind]:
    """Each once in random order, then again: none is left out for long."""
    while True:
        yield from chance.sample(kinds, len(kinds))


def rounds(seed: int, only: tuple[str, ...] = ()) -> Iterator[Round]:
    """Without end. `only`: of these kinds. KeyError for a kind that there isn't."""
    chance = random.Random(seed)
    kinds = [BY_NAME[name] for name in only] or list(KINDS)
    bag = _bag(kinds, chance)
    number = 0
    kind = next(bag)
    while True:
        number += 1
        following = next(bag)
        faults = [pick(kind, chance, 0)]
        is_pair = not (kind.is_alone or following.is_alone) and kind.part != following.part
        if is_pair and chance.random() < PAIRED:
            faults.append(pick(following, chance, faults[0].seconds))
            following = next(bag)
        kind = following
        yield Round(number, tuple(faults))


def that_fit(minutes: float, seed: int, only: tuple[str, ...] = ()) -> list[Round]:
    """Those that begin within so many minutes if each takes SETTLE_S to come back; at least one."""
    chosen, gone = [], 0.0
    for one in rounds(seed, only):
        if chosen and gone >= 60 * minutes:
            return chosen
        chosen.append(one)
        gone += one.seconds + SETTLE_S
    raise AssertionError("rounds() has no end")


def render(chosen: list[Round]) -> str:
    """A line for each fault."""
    lines = []
    for one in chosen:
        for n, fault in enumerate(one.faults):
            lines.append(f"{f'{one.number:3}.' if n == 0 else '    '} {fault}")
    return "\n".join(lines)
