# SPDX-License-Identifier: Apache-2.0
"""Container images as tar files, made from what is built and installed here: no registry, and no shell in
them but for metasim's. Pods name them by `reference` with imagePullPolicy Never."""

import hashlib
import io
import json
import os
import platform
import re
import subprocess
import tarfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from harness.paths import metafence, metafence_run, metasim, postgres_bin

from .layout import LabError
from .paths import cache_dir, programs_dir

UID = 65532  # the user of all images
KEEP_S = 24 * 3600
AUTHORITIES = Path("/etc/ssl/certs/ca-certificates.crt")
ARCHITECTURES = {"x86_64": "amd64", "aarch64": "arm64"}


class Tree:
    """The files of an image. The same content makes the same bytes."""

    def __init__(self) -> None:
        self._entries: dict[str, tuple[tarfile.TarInfo, bytes]] = {}
        self.text("/etc/passwd", f"root:x:0:0::/:/\nnonroot:x:{UID}:{UID}::/:/\n")
        self.text("/etc/group", f"root:x:0:\nnonroot:x:{UID}:\n")

    def _add(self, path: str, mode: int, content: bytes, uid: int = 0) -> None:
        info = tarfile.TarInfo(path.lstrip("/"))
        info.mode, info.size, info.uid, info.gid = mode, len(content), uid, uid
        self._entries[info.name] = (info, content)

    def text(self, path: str, content: str) -> None:
        self._add(path, 0o644, content.encode())

    def folder(self, path: str, mode: int = 0o755, uid: int = 0) -> None:
        self._add(path, mode, b"", uid)
        info, _ = self._entries[path.lstrip("/")]
        info.type = tarfile.DIRTYPE

    def link(self, path: str, target: str) -> None:
        self._add(path, 0o777, b"")
        info, _ = self._entries[path.lstrip("/")]
        info.type, info.linkname = tarfile.SYMTYPE, target

    def copy(self, source: Path, path: str | None = None) -> None:
        """A file, or all files of a folder; links are followed. Without `path`: to the same place."""
        path = path or str(source)
        if source.is_dir():
            for entry in sorted(source.iterdir()):
                self.copy(entry, f"{path}/{entry.name}")
            return
        try:
            mode = 0o755 if os.access(source, os.X_OK) else 0o644
            self._add(path, mode, source.read_bytes())
        except FileNotFoundError:
            raise LabError(f"{source} is missing: run ./dev setup") from None

    def program(self, source: Path, path: str | None = None) -> None:
        """With the shared libraries that it is linked with."""
        self.copy(source, path)
        for library in shared_libraries(source):
            self.copy(library)

    def layer(self) -> bytes:
        buffer = io.BytesIO()
        with tarfile.open(fileobj=buffer, mode="w") as tar:
            for name in sorted(self._entries):
                info, content = self._entries[name]
                tar.addfile(info, io.BytesIO(content))
        return buffer.getvalue()


def shared_libraries(program: Path) -> list[Path]:
    """Also the loader; none for a static program."""
    done = subprocess.run(["ldd", program], capture_output=True, text=True)
    if done.returncode != 0:
        if "not a dynamic executable" in done.stderr + done.stdout:
            return []
        raise LabError(f"ldd {program}: {done.stderr.strip()}")
    if "not found" in done.stdout:
        raise LabError(f"{program} can't run here: {done.stdout.strip()}")
    if "statically linked" in done.stdout:
        return []
    return [Path(p) for p in re.findall(r"(?:=> |^\s*)(/\S+) \(0x", done.stdout, re.MULTILINE)]


@dataclass(frozen=True)
class Image:
    name: str
    entrypoint: tuple[str, ...]
    fill: Callable[[Tree], None]

    @property
    def reference(self) -> str:
        return f"metafence.test/{self.name}:e2e"

    def tar(self) -> Path:
        """The image's file, made when the cache has none of the same content."""
        tree = Tree()
        self.fill(tree)
        layer = tree.layer()
        config = self._config(layer)
        folder = cache_dir() / "images"
        folder.mkdir(parents=True, exist_ok=True)
        path = folder / f"{self.name}-{hashlib.sha256(config).hexdigest()[:16]}.tar"
        if path.exists():
            path.touch()
        else:
            self._write(path, config, layer)
        self._forget_old(path)
        return path

    def _config(self, layer: bytes) -> bytes:
        tree = {
            "architecture": ARCHITECTURES.get(platform.machine(), platform.machine()),
            "os": "linux",
            "config": {"Entrypoint": self.entrypoint, "User": f"{UID}:{UID}", "Env": ["PATH=/usr/bin"]},
            "rootfs": {"type": "layers", "diff_ids": [f"sha256:{hashlib.sha256(layer).hexdigest()}"]},
        }
        return json.dumps(tree).encode()

    def _write(self, path: Path, config: bytes, layer: bytes) -> None:
        config_name = f"{hashlib.sha256(config).hexdigest()}.json"
        parts = [{"Config": config_name, "RepoTags": [self.reference], "Layers": ["layer.tar"]}]
        manifest = json.dumps(parts).encode()
        temporary = path.with_suffix(f".{os.getpid()}")
        with tarfile.open(temporary, "w") as tar:
            for name, content in (
                (config_name, config),
                ("layer.tar", layer),
                ("manifest.json", manifest),
            ):
                info = tarfile.TarInfo(name)
                info.size = len(content)
                tar.addfile(info, io.BytesIO(content))
        temporary.rename(path)

    def _forget_old(self, current: Path) -> None:
        for path in current.parent.glob(f"{self.name}-*"):
            try:
                if path != current and time.time() - path.stat().st_mtime > KEEP_S:
                    path.unlink()
            except FileNotFoundError:
                continue  # another run was faster


def _fill_pod(tree: Tree) -> None:
    tree.copy(programs_dir() / "pod", "/usr/bin/pod")


def _fill_metafence(tree: Tree) -> None:
    tree.program(metafence(), "/usr/bin/metafence")
    tree.copy(metafence_run(), "/usr/bin/metafence-run")
    tree.copy(AUTHORITIES)


def _fill_metasim(tree: Tree) -> None:
    tree.program(metasim(), "/usr/bin/metasim")
    tree.program(Path("/bin/dash"), "/bin/sh")  # --double-fork goes through one
    tree.folder("/tmp", 0o1777)


def _fill_postgres(tree: Tree) -> None:
    server = postgres_bin("postgres")
    version = server.parent.parent.name
    tree.program(server)
    tree.link("/usr/bin/postgres", str(server))  # it looks for its files beside the link's target
    tree.program(postgres_bin("pg_isready"))
    tree.link("/usr/bin/pg_isready", str(postgres_bin("pg_isready")))
    for extension in ("plpgsql", "dict_snowball"):
        tree.program(server.parent.parent / "lib" / f"{extension}.so")
    share = Path("/usr/share/postgresql") / version
    for folder in ("timezonesets", "tsearch_data"):
        tree.copy(share / folder)
    for file in sorted((share / "extension").glob("plpgsql*")):
        tree.copy(file)
    for zone in ("UTC", "Etc/UTC"):
        tree.copy(Path("/usr/share/zoneinfo") / zone)
    tree.folder("/tmp", 0o1777)


PAUSE = Image("pause", ("/usr/bin/pod", "pause"), _fill_pod)
POD = Image("pod", ("/usr/bin/pod",), _fill_pod)
METAFENCE = Image("metafence", ("/usr/bin/metafence",), _fill_metafence)
METASIM = Image("metasim", ("/usr/bin/metasim",), _fill_metasim)
POSTGRES = Image("postgres", ("/usr/bin/postgres",), _fill_postgres)
ALL = (PAUSE, POD, METAFENCE, METASIM, POSTGRES)
