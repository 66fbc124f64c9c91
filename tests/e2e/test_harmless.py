# SPDX-License-Identifier: Apache-2.0
"""Badly installed, blind or dead, the guard is not an outage (P8): meta runs, and it is said what is
not covered."""

from typing import Any

import pytest
from harness import Cluster, Pod, hold
from harness.postgres import PASSWORD
from scenario import Make


def lives_on(pod: Pod, seconds: float) -> None:
    """Longer than the lease without a kill."""
    pid = pod.meta_pid

    def same() -> None:
        assert pod.meta_pid == pid and pod.acts_as_leader, pod.agent_log.tail(5)

    hold(seconds, same)
    assert pod.kills() == 0


def start_badly(made: Cluster, pod: Pod, password: str | None = PASSWORD) -> dict[str, Any]:
    pod.start(agent=False)
    pod.start_agent(password)
    pod.wait_leading(20)
    status = pod.wait_status("says what is not covered", lambda s: s["not_covered"], 10)
    lives_on(pod, made.ttl + 2)
    return status


def test_missing_grant(cluster: Make) -> None:
    made = cluster(ttl=5, pods=1, run_flags=["--database-hold=3s"])
    made.postgres.sql(f"CREATE ROLE blind LOGIN PASSWORD '{PASSWORD}'")
    pod = made.pods[0]
    pod.config["postgres"]["user"] = "blind"
    status = start_badly(made, pod)
    assert "Unarmed" in status["not_covered"], status
    denied = pod.agent_log.expect(err="permission denied")
    assert "election_leader" in denied["err"], denied


def test_missing_grant_on_our_schema(cluster: Make) -> None:
    """The row alone is enough to cover, but not to tell twins apart."""
    made = cluster(ttl=5, pods=1)
    made.install_sql()
    made.postgres.sql(
        f"CREATE ROLE blind LOGIN PASSWORD '{PASSWORD}'; GRANT SELECT ON election_leader TO blind"
    )
    pod = made.pods[0]
    pod.config["postgres"]["user"] = "blind"
    pod.start()
    pod.wait_leading(10)
    pod.wait_status("covers but for twins", lambda s: s["armed"] and s["not_covered"] == ["Untagged"], 10)
    said = pod.agent_log.expect(level="warn", msg="schema metafence is not readable")
    assert "--agent-role" in said["fix"], said
    assert "schema metafence" in pod.cli("status").stdout
    made.postgres.sql("GRANT meta TO blind")
    pod.wait_status("covers all", lambda s: not s["not_covered"], 15)
    assert pod.kills() == 0


def test_wrong_password(cluster: Make) -> None:
    made = cluster(ttl=5, pods=1, run_flags=["--database-hold=3s"])
    pod = made.pods[0]
    status = start_badly(made, pod, password="a wrong secret")
    assert "Unarmed" in status["not_covered"], status
    pod.agent_log.expect(err="password authentication failed")
    assert "a wrong secret" not in pod.agent_log.path.read_text()


@pytest.mark.parametrize(
    "content", ["id: [unclosed\n", "no-such-option: 1\n", "election: {ttl: 3}\n", "", "\0\1\2\xff"]
)
def test_unreadable_configuration(cluster: Make, content: str) -> None:
    made = cluster(ttl=5, pods=1)
    pod = made.pods[0]
    good = pod.write_config().read_text()
    pod.write_config = lambda: _write(pod, content)  # type: ignore[method-assign]
    pod.start(agent=False)
    pod.start_agent()
    pod.wait_leading(10)
    said = pod.agent_log.expect(level="error")
    assert "agent.yaml" in str(said), said
    uncovered = pod.agent_log.expect(msg="not covered")
    assert "Unarmed" in uncovered["reasons"], uncovered
    lives_on(pod, made.ttl + 2)
    checked = pod.cli("config", "validate")
    assert checked.returncode == 1 and "agent.yaml" in checked.stderr, checked
    # Repaired, it covers again.
    pod.kill_agent()
    pod.write_config = lambda: _write(pod, good)  # type: ignore[method-assign]
    pod.start_agent()
    pod.wait_status("covers", lambda s: s["rule"] == "Leader" and s["armed"], 10)


def _write(pod: Pod, content: str) -> Any:
    path = pod.dir / "agent.yaml"
    path.write_text(content, encoding="latin-1")
    return path


def test_no_agent_from_the_start(cluster: Make) -> None:
    """metafence-run without an agent sets no deadline, whatever happens to the database."""
    made = cluster(ttl=5, pods=1)
    pod = made.pods[0].start(agent=False)
    pod.wait_leading(10)
    pod.run_log.expect(msg="not covered until an agent has read the election")
    pod.proxy.order("mode stall")
    lives_on(pod, made.ttl + 3)
    pod.proxy.heal()
    status = pod.shim_status()
    assert status["armed"] is False and status["agent_present"] is False, status


def test_strict_pod_waits_for_its_agent(cluster: Make) -> None:
    """--require-agent: no cover, no start."""
    made = cluster(ttl=5, pods=1, run_flags=["--require-agent"])
    made.install_sql()
    pod = made.pods[0].start(agent=False)

    def not_started() -> None:
        assert pod.incarnations == 0

    hold(3, not_started)
    assert pod.shim_status()["hold"] == "AgentRequired"
    pod.start_agent()
    pod.wait_leading(10)
