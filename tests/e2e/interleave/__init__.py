# SPDX-License-Identifier: Apache-2.0
"""Random interleavings of what rw#27111 is made of, end to end: a plan that only the seed decides (plan.py),
real metas, agents, compute nodes and Postgres that go through it (world.py), what they left behind
(evidence.py), and a judge that trusts none of metafence's own decisions (judge.py). Rounds, faults and their
schedule are those of ./dev chaos."""

import sys

from harness.paths import REPO

sys.path.append(str(REPO / "tests/e2e/cluster"))
