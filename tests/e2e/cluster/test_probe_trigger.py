# SPDX-License-Identifier: Apache-2.0
"""The kubelet's readiness probe of the sidecar alone leads to the fence: notifications are off, the next
poll is an hour away, the lease lasts for two."""

import signal
from collections.abc import Callable
from typing import Any

from harness.waiting import Starvation, hold, wait_for
from kubelab import Database
from metas import Deployment
from metas.deployment import config
from metas.meta import HTTP_PORT
from metas.nets import ConnectionTap

HOUR, LEASE = "1h", "7200s"
QUERY_TIMEOUT_S = 0.5  # of the chart's values
PERIOD_S = 5  # of the readiness probe


def test_one_readiness_probe_is_enough(
    deploy: Callable[..., Deployment], database: Database, note: Callable[[str, Any], None]
) -> None:
    values = config(notify=False, timing={"poll": HOUR}, election={"ttl": LEASE})
    metas = deploy(database=database, values=values)
    old = metas.start()
    pid = old.meta_process
    starvation = Starvation()
    with ConnectionTap(metas.cluster, old.node, old.ip, HTTP_PORT) as tap:
        wait_for("a round of probes is over", lambda: len(tap.opened) >= 1, 3 * PERIOD_S)
        hold(0.5)
        # Stopped, so that it does not see by itself that it has lost, as a full pool or a lost link does.
        old.signal("metasim", signal.SIGSTOP)
        starvation.worst = 0.0
        # Counted from before the change: a probe may arrive while psql is still on its way out.
        before = len(tap.opened)
        metas.database.sql("UPDATE election_leader SET id = 'meta-9.meta:5690', last_heartbeat = now()")

        def fenced() -> dict[str, Any] | None:
            status = old.status()
            fence = status and status["last_fence"]
            return fence if fence and fence["dead_boot_ns"] else None

        fence = metas.wait("the fence", fenced, 4 * PERIOD_S, every=0.02)
        dead_ns, decided_ns = fence["dead_boot_ns"], fence["decided_boot_ns"]
        assert fence["reason"] == "Superseded", fence
        probes = [t for t in tap.opened[before:] if t < decided_ns]
    assert probes, "nothing but a probe could have led to it"
    took_s = (dead_ns - probes[-1]) / 1e9
    # But for what the machine itself made everybody wait.
    bound_s = QUERY_TIMEOUT_S + 0.05 + starvation.worst
    assert took_s < bound_s, f"dead {took_s:.3f} s after the probe, bound {bound_s:.3f} s"
    assert old.meta_process != pid
    note("dead after the kubelet's probe, ms", round(took_s * 1e3, 1))
    note("probes of the kubelet between the loss and the fence", len(probes))
