# SPDX-License-Identifier: Apache-2.0
"""./dev demo tells the story that it promises."""

import re
import subprocess
import sys
from pathlib import Path

import pytest


@pytest.mark.timeout(120)
def test_demo() -> None:
    script = Path(__file__).with_name("demo.py")
    done = subprocess.run([sys.executable, str(script)], capture_output=True, text=True, timeout=110)
    assert done.returncode == 0, done
    rows = dict(re.findall(r"^  (\S.*?\S) {2,}(\S+ +\S+)$", done.stdout, re.MULTILINE))
    pairs = {what: numbers.split() for what, numbers in rows.items()}
    assert pairs["old leader dead"][0] == pairs["old leader a follower again"][0] == "never", done.stdout
    assert int(pairs["old leader dead"][1]) < int(pairs["earliest takeover possible"][1]), done.stdout
    assert int(pairs["old leader a follower again"][1]) > 0, done.stdout
    without, guarded = map(int, pairs["old leader's writes after healing"])
    assert without > 0 and guarded == 0, done.stdout
