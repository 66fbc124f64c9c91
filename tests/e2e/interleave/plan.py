# SPDX-License-Identifier: Apache-2.0
"""One round is one interleaving: a job whose actor is in a long chunk, its DROP, another job, and two to five
things more that come while they are under way. Pure: seed and number of a round decide it, so that any one
can be made again without those before it."""

import random
from collections.abc import Iterator

from chaos.plan import Fault, Kind, Round, pick

METAS, NODES = 2, 2
WITHIN_S = 5.0  # all of a round has begun by then
ENDLESS_S = 40.0  # of a chunk: longer than maxHold
DROPPED = 0.85  # so many rounds drop the busy job
ENDLESS = 0.1  # so many of their chunks don't end in time
STEPS = (2, 5)

WHO = ("who", ("leader", "leader", "leader", "leader", *map(str, range(METAS))))
NODE = ("node", tuple(map(str, range(NODES))))
WHICH = ("which", ("oldest", "newest"))
POINTS = (
    "recovery-marked",
    "recovery-purge",
    "recovery-snapshot",
    "drop-committed",
    "drop-collected",
    "versioning-locked",
)

OPENING = Kind("create", "job", 0, 0, (("actors", ("1", "2")), ("how", ("foreground",))))
CHUNK = Kind("busy", "chunk", 0.5, 10, (("which", ("oldest",)),))
DROP = Kind("drop", "job", 0, 0, (("which", ("oldest",)),))
KINDS = (
    # What users do. held: it stays CREATING that long.
    Kind("create", "job", 0.2, 4, (("actors", ("1", "2")), ("how", ("foreground", "background", "held")))),
    Kind("drop", "job", 0, 0, (WHICH,)),
    Kind("cancel", "job", 0, 0),
    Kind("alter", "job", 0, 0, (WHICH,)),
    Kind("busy", "chunk", 0.5, 8, (WHICH,)),
    Kind("recover", "recovery", 0, 0),
    # What operators order.
    Kind("recover_ordered", "order", 0, 0),
    Kind("handed_over", "order", 0, 0),
    Kind("fenced", "order", 0.5, 4, (WHO,)),
    # What happens to processes and links; who is killed or cut off comes back.
    Kind("meta_killed", "meta", 0, 0, (WHO,)),
    Kind("meta_terminated", "meta", 0, 0, (WHO,)),
    Kind("meta_stopped", "meta", 0.3, 12, (WHO,)),
    Kind("pod_lost", "pod", 0.3, 12, (WHO,)),
    Kind("agent_killed", "agent", 0, 8, (WHO,)),
    Kind("agent_stopped", "agent", 0.2, 8, (WHO,)),
    Kind("pod_cut", "link", 0.3, 12, (WHO, ("how", ("stall", "reset", "refuse", "drop-new", "old-dead")))),
    Kind("node_cut", "node link", 0.3, 8, (NODE, ("how", ("stall", "reset", "refuse")))),
    Kind("node_killed", "node", 0, 4, (NODE,)),
    Kind("node_terminated", "node", 0, 0, (NODE,)),
    Kind("node_stopped", "node", 0.3, 8, (NODE,)),
    # The leader stands still at that point of a recovery or a DROP, if it comes there.
    Kind("recovery_held", "point", 0.3, 3, (("at", POINTS),)),
    # The agent that has a node killed dies when it has said so and has no answer yet: before the API has
    # heard of it, or after.
    Kind("killer_killed", "killer", 6, 12, (("when", ("before", "after")),)),
)
BY_NAME = {kind.name: kind for kind in KINDS}
# What may keep an agent from its row at the gate, for so long or until it is back.
KEEPS_AGENTS = ("pod_lost", "agent_killed", "agent_stopped", "pod_cut", "killer_killed")


def has_kills(seed: int) -> bool:
    """Whether the agents of that seed's clusters may end a node that never answers its reset."""
    return seed % 2 == 1


def interleaving(seed: int, number: int) -> Round:
    """That round of that seed. Its faults ascend by when they begin."""
    chance = random.Random(f"{seed}/{number}")
    chunk = pick(CHUNK, chance, 0)
    if chance.random() < ENDLESS:
        chunk = Fault(chunk.kind, 0, ENDLESS_S, chunk.detail)
    faults = [pick(OPENING, chance, 0), chunk, pick(BY_NAME["create"], chance, 1)]
    if chance.random() < DROPPED:
        faults.append(pick(DROP, chance, 1))
    kinds = [kind for kind in KINDS if has_kills(seed) or kind.name != "killer_killed"]
    steps = chance.sample(kinds, chance.randint(*STEPS))
    faults += [pick(kind, chance, WITHIN_S) for kind in steps]
    first, later = faults[:2], sorted(faults[2:], key=lambda fault: fault.at)
    return Round(number, (*first, *later))


def interleavings(seed: int, count: int) -> Iterator[Round]:
    return (interleaving(seed, number + 1) for number in range(count))
