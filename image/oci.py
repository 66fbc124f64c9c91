# SPDX-License-Identifier: Apache-2.0
"""An OCI image in a tar file: one layer, one platform. The same arguments make the same bytes.

Image layout as image-spec 1.0 has it, and manifest.json for `docker load`, which before version 25 knows no
other. Nothing here knows what the image is for.
"""

import gzip
import hashlib
import io
import json
import tarfile
from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import PurePosixPath
from typing import Any

MANIFEST = "application/vnd.oci.image.manifest.v1+json"
INDEX = "application/vnd.oci.image.index.v1+json"
CONFIG = "application/vnd.oci.image.config.v1+json"
LAYER = "application/vnd.oci.image.layer.v1.tar+gzip"


@dataclass(frozen=True)
class File:
    path: str  # absolute
    content: bytes
    mode: int = 0o644


@dataclass(frozen=True)
class Image:
    name: str  # with registry, without tag
    tag: str
    architecture: str  # as Go names it
    epoch: int  # seconds; every time in the image
    files: tuple[File, ...]
    run: dict[str, Any]  # User, Entrypoint, Env, ... as in the specification's `config`
    labels: dict[str, str] = field(default_factory=dict)


def timestamp(epoch: int) -> str:
    """As RFC 3339 has it."""
    return datetime.fromtimestamp(epoch, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def digest(content: bytes) -> str:
    return "sha256:" + hashlib.sha256(content).hexdigest()


def _json(tree: Any) -> bytes:
    return json.dumps(tree, sort_keys=True, separators=(",", ":")).encode()


def _entry(name: str, epoch: int, content: bytes | None = None, mode: int = 0o755) -> tarfile.TarInfo:
    """Of a folder without `content`; owned by root."""
    info = tarfile.TarInfo(name)
    info.mode, info.mtime = mode, epoch
    info.type = tarfile.DIRTYPE if content is None else tarfile.REGTYPE
    info.size = len(content or b"")
    return info


def tar(files: Iterable[File], epoch: int) -> bytes:
    """Sorted by name, each folder before what is in it."""
    by_name = {file.path.lstrip("/"): file for file in files}
    folders = {str(up) for name in by_name for up in PurePosixPath(name).parents} - {"."}
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w", format=tarfile.USTAR_FORMAT) as out:
        for name in sorted(folders | by_name.keys()):
            if name in folders:
                out.addfile(_entry(name, epoch))
                continue
            file = by_name[name]
            out.addfile(_entry(name, epoch, file.content, file.mode), io.BytesIO(file.content))
    return buffer.getvalue()


def _described(media_type: str, content: bytes, **more: Any) -> dict[str, Any]:
    return {"mediaType": media_type, "digest": digest(content), "size": len(content), **more}


def _config(image: Image, layer: bytes) -> bytes:
    created = timestamp(image.epoch)
    return _json(
        {
            "created": created,
            "architecture": image.architecture,
            "os": "linux",
            "config": {**image.run, "Labels": image.labels},
            "rootfs": {"type": "layers", "diff_ids": [digest(layer)]},
            "history": [{"created": created, "created_by": "image/build"}],
        }
    )


def archive(image: Image) -> tuple[bytes, str]:
    """The archive and the digest by which a registry will know the image."""
    layer = tar(image.files, image.epoch)
    packed = gzip.compress(layer, compresslevel=9, mtime=0)
    config = _config(image, layer)
    manifest = _json(
        {
            "schemaVersion": 2,
            "mediaType": MANIFEST,
            "config": _described(CONFIG, config),
            "layers": [_described(LAYER, packed)],
            "annotations": image.labels,
        }
    )
    reference = f"{image.name}:{image.tag}"
    names = {"org.opencontainers.image.ref.name": image.tag, "io.containerd.image.name": reference}
    platform = {"architecture": image.architecture, "os": "linux"}
    index = {
        "schemaVersion": 2,
        "mediaType": INDEX,
        "manifests": [_described(MANIFEST, manifest, platform=platform, annotations=names)],
    }

    def blob(content: bytes) -> str:
        return "blobs/sha256/" + digest(content).removeprefix("sha256:")

    for_docker = [{"Config": blob(config), "RepoTags": [reference], "Layers": [blob(packed)]}]
    parts = [File(blob(content), content) for content in (config, packed, manifest)]
    parts.append(File("index.json", _json(index)))
    parts.append(File("manifest.json", _json(for_docker)))
    parts.append(File("oci-layout", _json({"imageLayoutVersion": "1.0.0"})))
    return tar(parts, image.epoch), digest(manifest)
