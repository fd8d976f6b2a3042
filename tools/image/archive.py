"""The image as an OCI archive: one layer, its configuration, manifest and index, the same bytes each time."""

from __future__ import annotations

import gzip
import hashlib
import io
import json
import stat
import tarfile
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

MEDIA = "application/vnd.oci.image"


@dataclass(frozen=True, slots=True)
class Settings:
    """How the image runs."""

    entrypoint: tuple[str, ...]
    command: tuple[str, ...]
    user: int
    environment: Mapping[str, str]
    labels: Mapping[str, str]
    reference: str  # its name and tag
    epoch: int  # the time of all files


def layer(root: Path, epoch: int) -> bytes:
    """All files below a root as a tar archive, sorted, owned by root, with one time."""
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w", format=tarfile.PAX_FORMAT) as archive:
        for path in sorted(root.rglob("*")):
            name = path.relative_to(root).as_posix()
            member = archive.gettarinfo(path, name)
            member.uid = member.gid = 0
            member.uname = member.gname = ""
            member.mtime = epoch
            member.mode = _mode(name, path)
            if member.isreg():
                with path.open("rb") as file:
                    archive.addfile(member, file)
            else:
                if member.islnk():  # a second name of a file is stored as a file of its own
                    raise ValueError(f"{name} is a hard link")
                archive.addfile(member)
    return buffer.getvalue()


def _mode(name: str, path: Path) -> int:
    """Readable by all, writable by root; no file gets more rights by being run."""
    if name == "tmp":
        return 0o1777
    mode = path.lstat().st_mode
    if stat.S_ISLNK(mode):
        return 0o777
    return 0o755 if stat.S_ISDIR(mode) or mode & stat.S_IXUSR else 0o644


def write(root: Path, target: Path, settings: Settings) -> str:
    """Write the archive, and return the digest of the image."""
    tar = layer(root, settings.epoch)
    packed = gzip.compress(tar, compresslevel=6, mtime=0)
    config = _encoded(_config(tar, settings))
    manifest = _encoded(
        {
            "schemaVersion": 2,
            "mediaType": f"{MEDIA}.manifest.v1+json",
            "config": _described(config, f"{MEDIA}.config.v1+json"),
            "layers": [_described(packed, f"{MEDIA}.layer.v1.tar+gzip")],
            "annotations": dict(settings.labels),
        }
    )
    entry = _described(manifest, f"{MEDIA}.manifest.v1+json")
    entry["annotations"] = {"org.opencontainers.image.ref.name": settings.reference}
    entry["platform"] = {"architecture": "amd64", "os": "linux"}
    index = {"schemaVersion": 2, "mediaType": f"{MEDIA}.index.v1+json", "manifests": [entry]}
    loadable = [
        {"Config": _blob(config), "RepoTags": [settings.reference], "Layers": [_blob(packed)]}
    ]  # what `docker load` and `podman load` of older versions read
    files = {
        "oci-layout": _encoded({"imageLayoutVersion": "1.0.0"}),
        "index.json": _encoded(index),
        "manifest.json": json.dumps(loadable).encode(),
        **{_blob(content): content for content in (config, manifest, packed)},
    }
    _pack(target, files, settings.epoch)
    return f"sha256:{hashlib.sha256(manifest).hexdigest()}"


def _config(tar: bytes, settings: Settings) -> dict[str, Any]:
    created = datetime.fromtimestamp(settings.epoch, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    return {
        "architecture": "amd64",
        "os": "linux",
        "created": created,
        "config": {
            "User": f"{settings.user}:{settings.user}",
            "Entrypoint": list(settings.entrypoint),
            "Cmd": list(settings.command),
            "Env": [f"{name}={value}" for name, value in sorted(settings.environment.items())],
            "WorkingDir": "/tmp",
            "Labels": dict(settings.labels),
        },
        "rootfs": {"type": "layers", "diff_ids": [f"sha256:{hashlib.sha256(tar).hexdigest()}"]},
        "history": [{"created": created, "created_by": "make image"}],
    }


def _pack(target: Path, files: Mapping[str, bytes], epoch: int) -> None:
    target.parent.mkdir(parents=True, exist_ok=True)
    unfinished = target.with_suffix(".part")
    with tarfile.open(unfinished, "w", format=tarfile.PAX_FORMAT) as archive:
        for name in sorted(files):
            member = tarfile.TarInfo(name)
            member.size, member.mtime, member.mode = len(files[name]), epoch, 0o644
            archive.addfile(member, io.BytesIO(files[name]))
    unfinished.replace(target)


def _described(content: bytes, kind: str) -> dict[str, Any]:
    digest = hashlib.sha256(content).hexdigest()
    return {"mediaType": kind, "digest": f"sha256:{digest}", "size": len(content)}


def _blob(content: bytes) -> str:
    return f"blobs/sha256/{hashlib.sha256(content).hexdigest()}"


def _encoded(value: Any) -> bytes:
    return json.dumps(value, sort_keys=True, separators=(",", ":")).encode()


def unpack(archive: Path, root: Path) -> dict[str, Any]:
    """Unpack the layers of an archive into a folder, and return the configuration of the image."""
    with tarfile.open(archive) as outer:
        index = json.load(_file(outer, "index.json"))
        manifest = json.load(_file(outer, _path(index["manifests"][0]["digest"])))
        for one in manifest["layers"]:
            with tarfile.open(fileobj=_file(outer, _path(one["digest"])), mode="r:gz") as inner:
                inner.extractall(root, filter="tar")
        config: dict[str, Any] = json.load(_file(outer, _path(manifest["config"]["digest"])))
    return config


def _path(digest: str) -> str:
    return f"blobs/{digest.replace(':', '/')}"


def _file(archive: tarfile.TarFile, name: str) -> Any:
    found = archive.extractfile(name)
    assert found is not None, name
    return found
