# SPDX-License-Identifier: Apache-2.0
"""The sets of numbers that the tests run with: ttl 30 s is what ships, ttl 5 s is the named test
profile. meta's own time-outs are scaled with the lease: acquire = ttl is the very reason of a zombie."""

from dataclasses import dataclass, replace


@dataclass(frozen=True)
class Profile:
    ttl: float
    connect_timeout: str
    query_timeout: str
    poll: str
    renew_gap: str
    margin: str
    kill_budget: str
    meta_connect_timeout: str

    @property
    def ttl_text(self) -> str:
        return f"{self.ttl:g}s"

    def meta_flags(self) -> list[str]:
        """A meta that was kept waiting for more than half a lease leaves or campaigns again, by chance:
        here always the worse of the two, it stays (f2)."""
        return [
            "--tie=campaign",
            f"--lease={self.ttl_text}",
            f"--acquire-timeout={self.ttl_text}",
            f"--connect-timeout={self.meta_connect_timeout}",
            f"--idle-timeout={self.ttl_text}",
        ]

    def run_flags(self) -> list[str]:
        return [
            f"--ttl={self.ttl_text}",
            f"--margin={self.margin}",
            f"--kill-budget={self.kill_budget}",
        ]

    def timing(self) -> dict[str, str]:
        return {
            "poll": self.poll,
            "renewGap": self.renew_gap,
            "margin": self.margin,
            "killBudget": self.kill_budget,
        }


_SHORT = Profile(5, "200ms", "200ms", "100ms", "1500ms", "300ms", "300ms", "2s")

PROFILES = {
    5: _SHORT,
    # Room for a restart of Postgres, and for its first logins after that, on a busy machine.
    10: replace(_SHORT, ttl=10, connect_timeout="1s", query_timeout="1s"),
    30: Profile(30, "2s", "2s", "250ms", "3s", "2s", "500ms", "10s"),
    # Nothing happens by itself for an hour: what a single event causes can be seen.
    7200: Profile(7200, "500ms", "500ms", "1h", "3s", "300ms", "300ms", "10s"),
}
