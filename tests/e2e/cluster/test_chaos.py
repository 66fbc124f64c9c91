# SPDX-License-Identifier: Apache-2.0
"""Random trouble from seeds, as ./dev chaos has it: nothing is violated, all comes back, nothing is left.
Only with --full, half an hour in all: CI has no room for it. A seed that failed joins the list for good."""

from collections.abc import Callable
from typing import Any

import pytest
from chaos.plan import rounds
from chaos.run import DISK_MB, describe, run
from kubelab import Settings
from kubelab.fixtures import private_cluster

SEEDS = (1, 2, 3)
MINUTES = 10.0


@pytest.mark.matrix
@pytest.mark.long
@pytest.mark.timeout(2400)
@pytest.mark.parametrize("seed", SEEDS)
def test_chaos(seed: int, request: pytest.FixtureRequest, note: Callable[[str, Any], None]) -> None:
    if not request.config.getoption("--full"):
        pytest.skip("10 minutes: with --full, or ./dev chaos --minutes 10 --seed N")
    with private_cluster(Settings(postgres_mb=DISK_MB)) as cluster:
        cluster.up()
        report = run(cluster, seed, MINUTES, rounds(seed), lambda text: print(text, flush=True))
    assert report.verdict is not None and report.verdict.is_clean, "\n".join(describe(report))
    assert cluster.leftovers() == []
    note("rounds", report.rounds)
    note("faults", report.faults)
    note("acts judged", report.verdict.acts)
    note("slowest return, s", round(report.slowest_s, 1))
