# SPDX-License-Identifier: Apache-2.0
"""The image's programs, run from its own root and nothing else."""

import os
import shutil
import subprocess
from pathlib import Path

from harness import Lab

UID = 65532
CONTAIN = Path(__file__).resolve().parent / "contain"
METAFENCE = "/usr/bin/metafence"


class Container:
    """A copy of the root for one test, which may put files into it, and a folder that it may write to."""

    def __init__(self, lab: Lab, root: Path, folder: Path) -> None:
        self.lab, self.folder = lab, folder
        self.root = lab.dir / f"root-{folder.name}"
        shutil.copytree(root, self.root)
        folder.mkdir(exist_ok=True)
        os.chown(folder, UID, UID)
        self.write("/etc/hosts", "127.0.0.1 localhost\n::1 localhost\n")

    def write(self, path: str, text: str, mode: int = 0o644) -> str:
        place = self.root / path.lstrip("/")
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_text(text)
        place.chmod(mode)
        os.chown(place, UID, UID)
        return path

    def argv(self, *words: str | Path) -> list[str | Path]:
        return [CONTAIN, self.root, self.folder, *words]

    def metafence(self, *words: str | Path, **env: str) -> "subprocess.CompletedProcess[str]":
        return self.run(self.argv(METAFENCE, *words), **env)

    def run(self, argv: list[str | Path], **env: str) -> "subprocess.CompletedProcess[str]":
        """With that environment, and the path on which `contain` finds its tools."""
        full = {"PATH": "/usr/sbin:/usr/bin:/sbin:/bin", **env}
        return subprocess.run(argv, capture_output=True, text=True, timeout=120, env=full)
