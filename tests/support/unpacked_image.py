"""The image unpacked in a folder, and its entry point run as in a container: read-only, as its user."""

from __future__ import annotations

import json
import os
import subprocess
import tarfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from bayplan.assembly.install_settings import CONFIG_FOLDER, JOURNAL, USER
from tools.image.archive import unpack

ENTER = """
set -e
root="$1"; shift
mount --bind "$root" "$root"
mount -t tmpfs -o mode=1777 tmpfs "$root/tmp"
while [ "$1" != -- ]; do
    mkdir -p "$root$1"
    mount --bind "$2" "$root$1"
    shift 2
done
shift
mount -t proc proc "$root/proc"
mount --bind /dev "$root/dev"
mount -o remount,bind,ro "$root"
exec chroot --userspec=65532:65532 --groups= "$root" "$@"
"""
TAG = "bayplan-test"
Object = dict[str, Any]


class UnpackedImage:
    """The root of the image, its configuration, and two folders to mount into it unless others are given."""

    def __init__(self, root: Path, config: Object, folder: Path) -> None:
        self.root, self.config = root, config
        self.etc, self.journal = folder / "etc", folder / "journal"
        for path in (self.etc, self.journal):
            path.mkdir()
            path.chmod(0o755)
        os.chown(self.journal, USER, USER)

    @classmethod
    def of_archive(cls, archive: Path, folder: Path) -> UnpackedImage:
        """The image that `make image` built."""
        root = folder / "root"
        return cls(root, unpack(archive, root)["config"], folder)

    @classmethod
    def of_engine(cls, engine: str, sources: Path, folder: Path) -> UnpackedImage:
        """The image that a container engine builds from Containerfile."""

        def told(*arguments: str) -> str:
            ran = subprocess.run(
                [engine, *arguments], cwd=sources, capture_output=True, text=True, check=False
            )
            assert ran.returncode == 0, ran.stdout + ran.stderr
            return ran.stdout.strip()

        told("build", "-f", "Containerfile", "-t", TAG, ".")
        (image,) = json.loads(told("image", "inspect", TAG))
        container = told("create", TAG)
        try:
            told("export", "-o", str(folder / "root.tar"), container)
        finally:
            told("rm", container)
        root = folder / "root"
        root.mkdir()
        with tarfile.open(folder / "root.tar") as files:
            files.extractall(root, filter="tar")
        return cls(root, image["Config"], folder)

    def command(self, *arguments: str, mounts: Mapping[str, Path] | None = None) -> list[str]:
        """The entry point with arguments, inside; `mounts` are folders by their path inside."""
        chosen = mounts if mounts is not None else {CONFIG_FOLDER: self.etc, JOURNAL: self.journal}
        listed = [part for inside, outside in chosen.items() for part in (inside, str(outside))]
        entry = [*self.config["Entrypoint"], *arguments]
        enter = ["unshare", "--mount", "--propagation", "private", "sh", "-c", ENTER, "sh"]
        return [*enter, str(self.root), *listed, "--", *entry]

    @property
    def environment(self) -> dict[str, str]:
        given = dict(one.split("=", 1) for one in self.config["Env"])
        return {**given, "PATH": f"{given['PATH']}:/usr/sbin:/bin:/sbin"}  # for mount and chroot outside

    def run(self, *arguments: str) -> str:
        ran = subprocess.run(
            self.command(*arguments), env=self.environment, capture_output=True, text=True, check=False
        )
        assert ran.returncode == 0, ran.stdout + ran.stderr
        return ran.stdout
