# SPDX-License-Identifier: Apache-2.0
"""Reads an OCI archive as the specification says, with no line of what writes it."""

import gzip
import hashlib
import io
import json
import tarfile
from pathlib import Path
from typing import Any


class Layout:
    """Of one image with one layer; each blob is compared with its descriptor."""

    def __init__(self, archive: Path) -> None:
        with tarfile.open(archive) as tar:
            self.files = {m.name: _content(tar, m) for m in tar.getmembers() if m.isfile()}
        self.index = json.loads(self.files["index.json"])
        (self.entry,) = self.index["manifests"]
        self.manifest = json.loads(self._blob(self.entry))
        self.config = json.loads(self._blob(self.manifest["config"]))
        (layer,) = self.manifest["layers"]
        self.layer = gzip.decompress(self._blob(layer))
        (diff_id,) = self.config["rootfs"]["diff_ids"]
        assert diff_id == f"sha256:{hashlib.sha256(self.layer).hexdigest()}"

    @property
    def digest(self) -> str:
        return self.entry["digest"]

    @property
    def version(self) -> str:
        return self.entry["annotations"]["org.opencontainers.image.ref.name"]

    @property
    def labels(self) -> dict[str, str]:
        return self.config["config"]["Labels"]

    def _blob(self, descriptor: dict[str, Any]) -> bytes:
        algorithm, value = descriptor["digest"].split(":")
        content = self.files[f"blobs/{algorithm}/{value}"]
        assert len(content) == descriptor["size"], descriptor
        assert hashlib.new(algorithm, content).hexdigest() == value, descriptor
        return content

    def members(self) -> list[tarfile.TarInfo]:
        with tarfile.open(fileobj=io.BytesIO(self.layer)) as tar:
            return tar.getmembers()

    def read(self, path: str) -> str:
        with tarfile.open(fileobj=io.BytesIO(self.layer)) as tar:
            return _content(tar, tar.getmember(path.lstrip("/"))).decode()

    def unpack(self, root: Path) -> None:
        root.mkdir(mode=0o755)
        with tarfile.open(fileobj=io.BytesIO(self.layer)) as tar:
            tar.extractall(root)


def _content(tar: tarfile.TarFile, member: tarfile.TarInfo) -> bytes:
    file = tar.extractfile(member)
    assert file is not None, member.name
    return file.read()
