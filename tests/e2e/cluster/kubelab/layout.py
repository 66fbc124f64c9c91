# SPDX-License-Identifier: Apache-2.0
"""Names, addresses and places of one cluster. All clusters use the same addresses, each in network
namespaces of its own; what must differ on the machine begins with the cluster's prefix."""

import fcntl
import os
import re
import stat
from dataclasses import dataclass
from pathlib import Path

CONTROL_PLANE = "10.77.0.1"
API_PORT = 6443
POSTGRES_PORT = 5432
SERVICES = "10.78.0.0/24"
FIRST_SERVICE = "10.78.0.1"  # ClusterIP of the API server
PODS = "10.79.0.0/16"
EVERYTHING = "10.76.0.0/14"  # nodes, services and pods: all that can be reached from anywhere
DOMAIN = "cluster.local"
MAX_NODES = 9


class LabError(Exception):
    """Something that the person at the keyboard can put right; the text says how."""


def root_dir() -> Path:
    """Folder of all run folders. Short, because sockets lie in it; not in /run, /var/lib or /var/log, which
    nodes replace with their own. Every user may pass, as Postgres is not root."""
    path = Path(os.environ.get("METAFENCE_CLUSTER_DIR", "/tmp/metafence-cluster"))
    for taken in ("/run", "/var/run", "/var/lib", "/var/log"):
        if path.is_relative_to(taken):
            raise LabError(f"METAFENCE_CLUSTER_DIR={path}: nodes hide {taken}; use a folder elsewhere")
    if len(str(path)) > 30:
        raise LabError(f"METAFENCE_CLUSTER_DIR={path}: over 30 characters, sockets in it could not be bound")
    path.mkdir(mode=0o755, exist_ok=True)
    found = path.lstat()
    if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.geteuid():
        raise LabError(f"{path} is not a folder of our own: remove it or set METAFENCE_CLUSTER_DIR")
    return path


@dataclass(frozen=True)
class Layout:
    prefix: str

    def __post_init__(self) -> None:
        if not re.fullmatch(r"[a-z][a-z0-9]{0,7}", self.prefix):
            raise LabError(f'prefix "{self.prefix}": one to eight of a-z and 0-9, a letter first')

    @property
    def dir(self) -> Path:
        return root_dir() / self.prefix

    @property
    def logs(self) -> Path:
        return self.dir / "log"

    @property
    def pki(self) -> Path:
        return self.dir / "pki"

    @property
    def shared(self) -> Path:
        """Folders that pods mount and tests read, the same on all nodes."""
        return self.dir / "shared"

    @property
    def audit_log(self) -> Path:
        return self.logs / "audit.jsonl"

    @property
    def admin_config(self) -> Path:
        return self.kubeconfig("admin")

    def kubeconfig(self, user: str) -> Path:
        return self.dir / f"{user}.kubeconfig"

    def name(self, part: str) -> str:
        """Of a namespace or cgroup; `part` is "cp" or a node's name."""
        return f"{self.prefix}-{part}"

    def namespace(self, part: str) -> Path:
        return Path("/run/netns") / self.name(part)


def node_name(index: int) -> str:
    return f"n{index}"


def node_ip(index: int) -> str:
    return f"10.77.0.{10 + index}"


def pod_range(index: int) -> str:
    return f"10.79.{index}.0/24"


def _lock_file(prefix: str) -> Path:
    return root_dir() / f"{prefix}.lock"


def claim(prefix: str) -> int | None:
    """A descriptor that holds the prefix for this process until it is released or the process ends, or None
    when another has it."""
    path = _lock_file(prefix)
    fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        if os.path.samestat(os.fstat(fd), path.stat()):
            return fd
    except (BlockingIOError, FileNotFoundError):
        pass  # another's, or one that was released between the two calls
    os.close(fd)
    return None


def release(prefix: str, held: int) -> None:
    _lock_file(prefix).unlink(missing_ok=True)
    os.close(held)
