# SPDX-License-Identifier: Apache-2.0
"""Waiting for conditions, with a deadline and a message. The only place that sleeps."""

import threading
import time
from collections.abc import Callable
from typing import Any, TypeVar

T = TypeVar("T")
Status = dict[str, Any]

BOOT = time.CLOCK_BOOTTIME


class TimedOut(AssertionError):
    """A condition did not come true in time."""


def boot_ns() -> int:
    return time.clock_gettime_ns(BOOT)


def wait_for(what: str, probe: Callable[[], T | None], timeout: float, every: float = 0.03) -> T:
    """Returns the first truthy answer of `probe`. Raises TimedOut after `timeout` seconds, saying
    `what` was waited for and what was seen last."""
    end = boot_ns() + int(timeout * 1e9)
    while True:
        seen = probe()
        if seen:
            return seen
        if boot_ns() >= end:
            raise TimedOut(f"{what}: not within {timeout:g} s (last: {seen!r})")
        time.sleep(every)


def wait_status(what: str, status: Callable[[], Status | None], probe: Any, timeout: float) -> Status:
    """The first status of an agent of which `probe` is true; a failure says the last one. None: no answer."""

    def check() -> Status | None:
        now = status()
        return now if now is not None and probe(now) else None

    try:
        return wait_for(what, check, timeout, every=0.05)
    except AssertionError as error:
        raise AssertionError(f"{error}; status now: {status()}") from None


class Starvation:
    """How long this machine kept a thread waiting that wanted to run: explains a lost race."""

    PERIOD = 0.05

    def __init__(self) -> None:
        self.worst = 0.0
        threading.Thread(target=self._measure, daemon=True).start()

    def _measure(self) -> None:
        while True:
            before = boot_ns()
            time.sleep(self.PERIOD)
            self.worst = max(self.worst, (boot_ns() - before) / 1e9 - self.PERIOD)


def hold(seconds: float, meanwhile: Callable[[], None] = lambda: None) -> None:
    """Lets a fault last for `seconds`; `meanwhile` may assert what must stay true."""
    end = boot_ns() + int(seconds * 1e9)
    while boot_ns() < end:
        meanwhile()
        time.sleep(min(0.1, max(0.0, (end - boot_ns()) / 1e9)))


def hold_until(end_ns: int, meanwhile: Callable[[], None] = lambda: None) -> None:
    """As hold, until an instant of boot_ns()."""
    hold((end_ns - boot_ns()) / 1e9, meanwhile)
