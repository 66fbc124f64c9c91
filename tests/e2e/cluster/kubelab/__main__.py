# SPDX-License-Identifier: Apache-2.0
"""./dev cluster: a cluster for one's own hands, with the name METAFENCE_CLUSTER (default mf)."""

import argparse
import os
import sys
import time
from pathlib import Path

from harness.waiting import TimedOut

from . import images
from .cluster import Cluster
from .layout import LabError, Layout, claim, release
from .netns import enter
from .paths import programs_dir
from .settings import Settings

PREFIX = os.environ.get("METAFENCE_CLUSTER", "mf")


def take() -> int:
    held = claim(PREFIX)
    if held is None:
        raise LabError(f'cluster "{PREFIX}" is being worked on by another program: set METAFENCE_CLUSTER')
    return held


def up(options: argparse.Namespace) -> None:
    take()
    start = time.monotonic()
    cluster = Cluster(PREFIX, Settings(nodes=options.nodes))
    cluster.up(lambda text: print(f"{time.monotonic() - start:5.1f} s  {text}", flush=True))
    references = "\n".join(f"            {image.reference}" for image in images.ALL)
    print(f"""
kubectl     ./dev cluster kubectl get nodes
helm        ./dev cluster helm list -A
Postgres    {cluster.postgres.dsn()}; pods: {cluster.postgres.program.name} at 10.77.0.1:5432, by password
images      imagePullPolicy: Never
{references}
faults      ./dev cluster cut|heal|crash|start NODE
logs        {cluster.layout.logs}
end         ./dev cluster down""")


def down(options: argparse.Namespace) -> None:
    held = take()
    cluster = Cluster(PREFIX)
    cluster.down()
    left = cluster.leftovers()
    if left:
        raise LabError(f"still there: {', '.join(left)}")
    release(PREFIX, held)


def status(options: argparse.Namespace) -> None:
    cluster = Cluster.attach(PREFIX)
    for program in cluster.programs:
        state = "paused" if program.paused else "runs" if program.alive else "ENDED"
        print(f"{program.name:24} {program.pid or '-':>8}  {state}")
    sys.stdout.flush()
    if not cluster.plane.is_ready():
        raise LabError("the API server does not answer")
    print(cluster.kubectl("get", "nodes,pods", "-A", "-o", "wide"), end="")


def exec_inside(program: Path, arguments: list[str]) -> None:
    """Becomes the program: its terminal, signals and status are the caller's."""
    cluster = Cluster.attach(PREFIX)
    enter(cluster.layout.namespace("cp"))
    os.execve(program, [program.name, *arguments], {**os.environ, **cluster.command_env()})


def load(options: argparse.Namespace) -> None:
    cluster = Cluster.attach(PREFIX)
    for image in images.ALL:
        cluster.load(image)


def fault(options: argparse.Namespace) -> None:
    getattr(Cluster.attach(PREFIX).node(options.node), options.command)()


def parse(arguments: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="./dev cluster", description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    make = commands.add_parser("up", help="make it anew")
    make.add_argument("--nodes", type=int, default=Settings().nodes)
    make.set_defaults(run=up)
    commands.add_parser("down", help="end it; nothing is left").set_defaults(run=down)
    commands.add_parser("status", help="programs, nodes and pods").set_defaults(run=status)
    commands.add_parser("load", help="load images again after a build").set_defaults(run=load)
    commands.add_parser("kubectl", help="kubectl ARG...")
    commands.add_parser("helm", help="helm ARG...")
    for name, text in FAULTS.items():
        command = commands.add_parser(name, help=text)
        command.add_argument("node", metavar="NODE")
        command.set_defaults(run=fault)
    return parser.parse_args(arguments)


FAULTS = {
    "cut": "take a node off the network",
    "heal": "put it back on",
    "crash": "take a node's power",
    "start": "boot it again",
}


def main() -> int:
    try:
        if sys.argv[1:2] in (["kubectl"], ["helm"]):  # their options are theirs
            exec_inside(programs_dir() / sys.argv[1], sys.argv[2:])
        options = parse(sys.argv[1:])
        Layout(PREFIX)
        options.run(options)
        return 0
    except (LabError, TimedOut) as error:
        print(f"dev cluster: {error}", file=sys.stderr)
        return 1


sys.exit(main())
