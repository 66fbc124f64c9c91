# SPDX-License-Identifier: Apache-2.0
"""Real Postgres, proxies, metas and agents as small classes, one per server.

A Lab owns a directory, ports and every process of one test; closing it ends them all.
"""

from . import results
from .cluster import Cluster
from .lab import Lab
from .pod import Pod
from .postgres import Postgres
from .profile import PROFILES, Profile
from .proxy import Proxy
from .waiting import TimedOut, boot_ns, hold, hold_until, wait_for

__all__ = [
    "PROFILES",
    "Cluster",
    "Lab",
    "Pod",
    "Postgres",
    "Profile",
    "Proxy",
    "TimedOut",
    "boot_ns",
    "hold",
    "hold_until",
    "results",
    "wait_for",
]
