# SPDX-License-Identifier: Apache-2.0
"""What may differ between clusters."""

from dataclasses import dataclass

from .layout import MAX_NODES, LabError


@dataclass(frozen=True)
class Settings:
    """Times are as in Kubernetes, but shorter: its defaults are 50 s of grace and 300 s of toleration."""

    nodes: int = 3
    grace_s: int = 12  # a node silent for so long is NotReady
    toleration_s: int = 5  # pods leave a NotReady node after this
    postgres_mb: int = 0  # of a file system of its own for Postgres, in memory; 0: on the run folder's
    restart_backoff: str = "1s"  # longest wait of the kubelet before a restart; "" = its own, up to 300 s

    def __post_init__(self) -> None:
        if not 1 <= self.nodes <= MAX_NODES:
            raise LabError(f"{self.nodes} nodes: use 1 to {MAX_NODES}")
        if self.grace_s < 10:
            raise LabError(f"a grace of {self.grace_s} s: nodes report each 3 s, use at least 10")
