# SPDX-License-Identifier: Apache-2.0
"""A child for metafence-run, with the habits of a meta: python3 shim_child.py LOG SERVICE METRICS [habit…]

It writes `start pid=… tag=…` to LOG, listens on SERVICE, and on USR1 begins to lead (SERVICE closes,
METRICS opens). Habits: ignore-term, grandchild (a double-forked session of its own that inherits the
service port), leave (end at once, the grandchild stays), freeze (stops itself once it leads)."""

import os
import signal
import socket
import sys


def listen(port: int) -> socket.socket:
    s = socket.socket()
    s.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    s.bind(("127.0.0.1", port))
    s.listen()
    return s


def say(line: str) -> None:
    with open(sys.argv[1], "a") as out:
        out.write(line + "\n")


def main() -> None:
    service_port, metrics_port, habits = int(sys.argv[2]), int(sys.argv[3]), sys.argv[4:]
    waited = {signal.SIGUSR1, signal.SIGUSR2, signal.SIGHUP, signal.SIGTERM, signal.SIGINT}
    signal.pthread_sigmask(signal.SIG_BLOCK, waited)
    service = listen(service_port)
    settled, settle = os.pipe()
    if "grandchild" in habits and os.fork() == 0:
        os.setsid()
        if os.fork():
            os._exit(0)
        say(f"grandchild pid={os.getpid()}")
        os.write(settle, b".")
        while True:
            signal.pause()
    if "grandchild" in habits:
        os.read(settled, 1)
    say(f"start pid={os.getpid()} tag={os.environ['PGAPPNAME']}")
    if "leave" in habits:
        os._exit(0)
    leading = []
    while True:
        number = signal.sigwait(waited)
        say(f"signal {signal.Signals(number).name}")
        if number == signal.SIGUSR1:
            service.close()
            leading.append(listen(metrics_port))
            if "freeze" in habits:
                os.kill(os.getpid(), signal.SIGSTOP)
        if number in (signal.SIGTERM, signal.SIGINT) and "ignore-term" not in habits:
            sys.exit(0)


main()
