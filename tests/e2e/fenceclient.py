# SPDX-License-Identifier: Apache-2.0
"""The agent's side of metafence-run's socket (fence/proto.h), for tests that play the agent."""

import select
import socket
import struct
import time
import zlib
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

VERSION = 1
ORDER_MAGIC = 0x4D464F31
STATUS_MAGIC = 0x4D465331
ORDER = struct.Struct("<IHHQQ6IQQ5q64sII")
STATUS = struct.Struct("<IHHQq40sQiIQq64sIIqIIqqqQIIQIIQ64sIiqqqIIII")
assert (ORDER.size, STATUS.size) == (176, 360)

KEEP, FOLLOWER, LEADER, KILL = range(4)
(
    NONE,
    MANUAL,
    LEASE_EXPIRED,
    AGENT_LOST,
    SUPERSEDED,
    TWIN_IDENTITY,
    DATABASE_REPLACED,
    PHANTOM_LEADER,
    DIVERGED_LEADER,
    HANDOVER,
) = range(10)
ROW_UNKNOWN, ROW_ABSENT, ROW_OTHER, ROW_OURS = range(4)
DATABASE_UNKNOWN, DATABASE_UP, DATABASE_DOWN = range(3)
ARMED, ENGAGED, SUPERSEDED_FLAG, MANUAL_HOLD, TWIN_HOLD, PHANTOM_HOLD = (1 << n for n in range(6))

STATES = ("Holding", "Running", "Killing", "Terminating", "Ended")
HOLDS = (
    "None",
    "Manual",
    "AgentRequired",
    "Twin",
    "Phantom",
    "Identity",
    "Lease",
    "Database",
    "Storm",
    "Backoff",
    "Reset",
    "Handover",
)
REASONS = (
    "None",
    "Manual",
    "LeaseExpired",
    "AgentLost",
    "Superseded",
    "TwinIdentity",
    "DatabaseReplaced",
    "PhantomLeader",
    "DivergedLeader",
    "Handover",
)
FLAGS = (
    "engaged",
    "superseded",
    "armed",
    "manual",
    "agent_present",
    "term_received",
    "memory_locked",
    "alive",
    "silence_held",
)


def boot_ns() -> int:
    return time.clock_gettime_ns(time.CLOCK_BOOTTIME)


def text(raw: bytes) -> str:
    return raw.split(b"\0", 1)[0].decode()


@dataclass(frozen=True)
class Death:
    incarnation: int
    tag: str
    reason: str
    wait_status: int
    decided_ns: int
    dead_ns: int
    deadline_ns: int
    engaged: bool


@dataclass(frozen=True)
class Status:
    order_seq: int
    written_ns: int
    incarnation: int
    pid: int
    state: str
    tag: str
    flags: frozenset[str]
    ports: int
    engaged_ns: int
    permit: int
    hold: str
    deadline_ns: int
    hold_until_ns: int
    pause_end_ns: int
    system_id: int
    timeline: int
    restarts: int
    term: int
    kills: int
    fences: int
    last_death: Death

    @property
    def alive(self) -> bool:
        return "alive" in self.flags


def with_checksum(packet: bytes) -> bytes:
    """The last eight bytes are checksum and reserved; the sum counts the checksum as zero."""
    blank = packet[:-8] + bytes(4) + packet[-4:]
    return packet[:-8] + struct.pack("<I", zlib.crc32(blank)) + packet[-4:]


def pack_order(
    seq: int,
    incarnation: int = 0,
    role: int = KEEP,
    reason: int = NONE,
    flags: int = 0,
    row: int = ROW_UNKNOWN,
    database: int = DATABASE_UP,
    timeline: int = 0,
    system_id: int = 0,
    term: int = 0,
    deadline_ns: int = 0,
    pause_end_ns: int = 0,
    read_ns: int = 0,
    age_ns: int = 0,
    still_ns: int = 0,
    tag: str = "",
    version: int = VERSION,
) -> bytes:
    return with_checksum(
        ORDER.pack(
            ORDER_MAGIC,
            version,
            ORDER.size,
            seq,
            incarnation,
            role,
            reason,
            flags,
            row,
            database,
            timeline,
            system_id,
            term,
            deadline_ns,
            pause_end_ns,
            read_ns,
            age_ns,
            still_ns,
            tag.encode(),
            0,
            0,
        )
    )


def unpack_status(packet: bytes) -> Status:
    assert with_checksum(packet) == packet, "checksum of the status is wrong"
    v = STATUS.unpack(packet)
    assert v[:3] == (STATUS_MAGIC, VERSION, STATUS.size)
    return Status(
        order_seq=v[3],
        written_ns=v[4],
        incarnation=v[6],
        pid=v[7],
        state=STATES[v[8]],
        tag=text(v[11]),
        flags=frozenset(name for n, name in enumerate(FLAGS) if v[12] & 1 << n),
        ports=v[13],
        engaged_ns=v[14],
        permit=v[15],
        hold=HOLDS[v[16]],
        deadline_ns=v[17],
        hold_until_ns=v[18],
        pause_end_ns=v[19],
        system_id=v[20],
        timeline=v[21],
        restarts=v[22],
        term=v[23],
        kills=v[24],
        fences=v[25],
        last_death=Death(v[26], text(v[27]), REASONS[v[28]], v[29], v[30], v[31], v[32], bool(v[33])),
    )


class Closed(Exception):
    """metafence-run closed the connection."""


@dataclass
class FenceClient:
    path: Path | str
    seq: int = 0
    last: Status | None = None
    sock: socket.socket = field(init=False, repr=False)

    def __post_init__(self) -> None:
        self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self.sock.settimeout(30)
        self.sock.connect(str(self.path))
        self.receive(5)

    def __enter__(self) -> "FenceClient":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        self.sock.close()

    @property
    def status(self) -> Status:
        """The newest one that has come."""
        while self.receive(0):
            pass
        assert self.last
        return self.last

    def receive(self, timeout: float) -> Status | None:
        """The next status, or None when none comes in time."""
        if not select.select([self.sock], [], [], timeout)[0]:
            return None
        packet = self.sock.recv(4096)
        if not packet:
            raise Closed
        self.last = unpack_status(packet)
        return self.last

    def send(self, packet: bytes) -> None:
        try:
            self.sock.send(packet)
        except (BrokenPipeError, ConnectionResetError) as error:
            raise Closed from error

    def order(self, **fields: int | str) -> None:
        """Incarnation defaults to the newest one known; a row to a read of this moment."""
        self.seq += 1
        fields.setdefault("incarnation", self.status.incarnation)
        if fields.get("row", ROW_UNKNOWN) != ROW_UNKNOWN:
            fields.setdefault("read_ns", boot_ns())
        self.send(pack_order(self.seq, **fields))

    def follower(self, **fields: int | str) -> None:
        """What an agent says while another id leads."""
        fields = {"flags": ARMED, "row": ROW_OTHER, **fields}
        incarnation = self.status.incarnation
        self.order(role=FOLLOWER if incarnation else KEEP, **fields)

    def leader(self, for_s: float, **fields: int | str) -> int:
        """A leader permit; returns its deadline."""
        deadline = boot_ns() + int(for_s * 1e9)
        fields = {"flags": ARMED, "row": ROW_OURS, **fields}
        self.order(role=LEADER, deadline_ns=deadline, **fields)
        return deadline

    def kill(self, reason: int, **fields: int | str) -> None:
        fields = {"flags": ARMED, "row": ROW_OTHER, **fields}
        self.order(role=KILL, reason=reason, **fields)

    def until(
        self,
        what: str,
        condition: Callable[[Status], bool],
        timeout: float = 30,
        saying: Callable[[], object] | None = None,
    ) -> Status:
        """Waits until a status fulfills `condition`; meanwhile repeats `saying` as an agent would."""
        end = boot_ns() + int(timeout * 1e9)
        while True:
            if condition(self.status):
                return self.last
            if saying:
                saying()
            self.receive(0.05)
            if condition(self.last):
                return self.last
            assert boot_ns() < end, f"{what}: not within {timeout:g} s; last: {self.last}"
