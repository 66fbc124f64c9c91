# SPDX-License-Identifier: Apache-2.0
"""Can this machine hold a cluster? Asked before anything is made."""

import os
import shutil
from pathlib import Path

from harness.paths import Missing, metafence, metafence_run, metasim, postgres_bin

from . import cgroups
from .layout import LabError, root_dir
from .node import CNI
from .paths import programs_dir

TOOLS = {
    "ip": "iproute2",
    "nft": "nftables",
    "nsenter": "util-linux",
    "unshare": "util-linux",
    "runc": "runc",
    "openssl": "openssl",
    "bash": "bash",
}


def check() -> None:
    """Raises LabError with all that is missing."""
    if os.geteuid() != 0:
        raise LabError("a cluster is made of namespaces, control groups and mounts: run as root")
    os.environ["PATH"] += ":/usr/sbin:/sbin"
    missing = [f"{tool} (package {package})" for tool, package in TOOLS.items() if not shutil.which(tool)]
    missing += [
        f"{CNI / plugin} (package containernetworking-plugins)"
        for plugin in ("ptp", "host-local", "loopback")
        if not (CNI / plugin).is_file()
    ]
    if missing:
        raise LabError(f"missing: {', '.join(missing)}: run ./dev setup")
    cgroups.hierarchies()
    programs_dir()
    for program in (metafence, metafence_run, metasim, lambda: postgres_bin("initdb")):
        try:
            program()
        except Missing as error:
            raise LabError(str(error)) from None
    if _file_system(root_dir()) == "overlay":
        raise LabError(
            f"{root_dir()} is on an overlay file system, which can't carry containers: "
            "set METAFENCE_CLUSTER_DIR to a short path on a disk or in memory"
        )
    if "overlay" not in Path("/proc/filesystems").read_text():
        raise LabError("the kernel has no overlay file system: containers need it")


def _file_system(path: Path) -> str:
    """Its type."""
    mounts = [line.split() for line in Path("/proc/mounts").read_text().splitlines()]
    holding = [m for m in mounts if path.resolve().is_relative_to(m[1])]
    return max(reversed(holding), key=lambda m: len(m[1]))[2]  # of two on one point the later counts
