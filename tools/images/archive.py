"""Writes container images as one OCI archive, without a container engine.

Several images of one archive share their layers. `ctr images import`, `podman load`, `skopeo copy oci-archive:…` and
`kind load image-archive` read it. The same input gives the same bytes.
"""

from __future__ import annotations

import hashlib
import io
import json
import tarfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

__all__ = ["Image", "Layer", "write_archive", "write_layer"]

_MANIFEST = "application/vnd.oci.image.manifest.v1+json"
_CONFIG = "application/vnd.oci.image.config.v1+json"
_LAYER = "application/vnd.oci.image.layer.v1.tar"
_BLOCK = 1 << 20
_SECOND = 1_000_000_000
_HEALTH = {
    "Interval": 10 * _SECOND,
    "Timeout": 10 * _SECOND,
    "StartPeriod": 60 * _SECOND,
    "Retries": 3,
}


@dataclass(frozen=True, slots=True)
class Layer:
    """One layer: an uncompressed tar file, and the sha256 of its bytes."""

    path: Path
    digest: str

    @staticmethod
    def of(path: Path) -> Layer:
        """Returns the layer of a tar file."""
        found = hashlib.sha256()
        with path.open("rb") as file:
            while block := file.read(_BLOCK):
                found.update(block)
        return Layer(path, found.hexdigest())


@dataclass(frozen=True, slots=True)
class Image:
    """One image.

    Attributes:
        name: with its tag, such as `tarn/gateway:0.10.0`.
        layers: the lowest first.
        entrypoint: the command that a container runs.
        environment: variables of that command.
        user: `uid:gid`.
        architecture: of the layers, as Debian and OCI name it, such as `amd64`.
        labels: `org.opencontainers.image.*`.
        health: the command of the health check; empty for none. Docker and Podman run it, Kubernetes does not.
    """

    name: str
    layers: Sequence[Layer]
    entrypoint: Sequence[str]
    environment: Mapping[str, str]
    user: str
    architecture: str
    labels: Mapping[str, str] = field(default_factory=dict)
    health: Sequence[str] = ()

    def config(self) -> bytes:
        """Returns the image's configuration as JSON."""
        run: dict[str, object] = {
            "Entrypoint": list(self.entrypoint),
            "Env": [f"{name}={value}" for name, value in sorted(self.environment.items())],
            "Labels": dict(self.labels),
            "StopSignal": "SIGTERM",
            "User": self.user,
            "WorkingDir": "/",
        }
        if self.health:
            # Docker's extension of the format; durations in nanoseconds.
            run["Healthcheck"] = {"Test": ["CMD", *self.health], **_HEALTH}
        layers = [f"sha256:{layer.digest}" for layer in self.layers]
        rootfs = {"type": "layers", "diff_ids": layers}
        content = {
            "architecture": self.architecture,
            "os": "linux",
            "config": run,
            "rootfs": rootfs,
        }
        return json.dumps(content, sort_keys=True).encode()


def write_layer(out: Path, folders: Mapping[str, Path]) -> Layer:
    """Writes folders as a layer: all files belong to root, and their times are the epoch.

    Args:
        out: the tar file to write.
        folders: the folder to pack, by its absolute path in the image.
    """

    def plain(info: tarfile.TarInfo) -> tarfile.TarInfo:
        info.uid = info.gid = info.mtime = 0
        info.uname = info.gname = ""
        info.mode = (info.mode | 0o444 | (0o111 if info.mode & 0o100 else 0)) & 0o755
        return info

    with tarfile.open(out, "w", format=tarfile.PAX_FORMAT) as tar:
        for place, folder in sorted(folders.items()):
            for path in [folder, *sorted(folder.rglob("*"))]:
                inside = path.relative_to(folder).as_posix()
                name = place.strip("/") + ("" if inside == "." else f"/{inside}")
                tar.add(path, name, recursive=False, filter=plain)
    return Layer.of(out)


def write_archive(out: Path, images: Sequence[Image]) -> dict[str, str]:
    """Writes the images into one OCI archive; replaces the file when it is complete.

    Returns:
        The digest of each image by its name. A registry has it, too, if the image is pushed as it is.

    Raises:
        RuntimeError: the file of a layer has other bytes than its digest says.
    """
    blobs: dict[str, bytes | Path] = {}

    for layer in {layer for image in images for layer in image.layers}:
        if Layer.of(layer.path).digest != layer.digest:
            raise RuntimeError(f"{layer.path} was written again after its digest was taken")

    def held(data: bytes) -> tuple[str, int]:
        digest = hashlib.sha256(data).hexdigest()
        blobs[digest] = data
        return digest, len(data)

    manifests = []
    digests: dict[str, str] = {}
    for image in images:
        blobs.update({layer.digest: layer.path for layer in image.layers})
        manifest = json.dumps(
            {
                "schemaVersion": 2,
                "mediaType": _MANIFEST,
                "config": _descriptor(_CONFIG, *held(image.config())),
                "layers": [
                    _descriptor(_LAYER, layer.digest, layer.path.stat().st_size)
                    for layer in image.layers
                ],
                "annotations": dict(image.labels),
            },
            sort_keys=True,
        ).encode()
        names = {
            "io.containerd.image.name": image.name,
            "org.opencontainers.image.ref.name": image.name,
        }
        descriptor = _descriptor(_MANIFEST, *held(manifest))
        digests[image.name] = str(descriptor["digest"])
        manifests.append({**descriptor, "annotations": names})
    index = json.dumps({"schemaVersion": 2, "manifests": manifests}).encode()
    partial = out.with_name(out.name + ".partial")
    with tarfile.open(partial, "w") as tar:
        _add(tar, "oci-layout", b'{"imageLayoutVersion":"1.0.0"}')
        _add(tar, "index.json", index)
        for digest, content in sorted(blobs.items()):
            _add(tar, f"blobs/sha256/{digest}", content)
    partial.replace(out)
    return digests


def _descriptor(media_type: str, digest: str, size: int) -> dict[str, object]:
    return {"mediaType": media_type, "digest": f"sha256:{digest}", "size": size}


def _add(tar: tarfile.TarFile, name: str, content: bytes | Path) -> None:
    info = tarfile.TarInfo(name)
    if isinstance(content, Path):
        info.size = content.stat().st_size
        with content.open("rb") as file:
            tar.addfile(info, file)
    else:
        info.size = len(content)
        tar.addfile(info, io.BytesIO(content))
