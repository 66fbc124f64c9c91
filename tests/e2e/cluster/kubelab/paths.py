# SPDX-License-Identifier: Apache-2.0
"""Where things are that outlive a cluster."""

import os
import subprocess
from functools import cache
from pathlib import Path

from .layout import LabError

BUILD = Path(__file__).resolve().parent.parent / "build" / "build"
COMPONENTS = ("kube-apiserver", "kubelet", "kubectl", "helm", "etcd", "containerd", "coredns", "pod")


def cache_dir() -> Path:
    return Path(os.environ.get("METAFENCE_CACHE", Path.home() / ".cache" / "metafence"))


@cache
def programs_dir() -> Path:
    """The cluster's own programs, of the version that this checkout asks for."""
    done = subprocess.run([BUILD, "--where"], capture_output=True, text=True)
    if done.returncode != 0:
        raise LabError(f"{BUILD} --where: {done.stderr.strip()}")
    path = Path(done.stdout.strip())
    missing = [name for name in COMPONENTS if not os.access(path / name, os.X_OK)]
    if missing:
        raise LabError(f"{path} lacks {', '.join(missing)}: run {BUILD} (./dev cluster up does)")
    return path
