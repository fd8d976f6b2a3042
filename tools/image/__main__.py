"""`python -m tools.image`: builds the image from the wheel in dist/, or renews the lock of its packages."""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
from pathlib import Path

from tools.image import contents, rootfs
from tools.image.archive import Settings, write
from tools.image.debian import LOCK, Unavailable, lock
from tools.release.distribution import EPOCH, wheel_in
from tools.release.locks import ROOT
from tools.release.versions import current

ARCHIVE = ROOT / "build" / "image" / "bayplan.tar"
PATH = "/usr/local/bin:/usr/bin"


def settings(version: str, epoch: int) -> Settings:
    """The settings of the image of a version."""
    source = "org.opencontainers.image"
    return Settings(
        entrypoint=(f"/{rootfs.COMMAND}",),
        command=("--help",),
        user=rootfs.USER,
        environment={"PATH": PATH, "LANG": "C.UTF-8", "HOME": "/tmp"},
        labels={
            f"{source}.title": "bayplan",
            f"{source}.description": "Topology-aware gang scheduling for Kubernetes",
            f"{source}.version": version,
            f"{source}.licenses": "Apache-2.0",
            "dev.bayplan.sbom": f"/{contents.BOM}",
            "dev.bayplan.licences": f"/{contents.LICENCES}",
        },
        reference=f"bayplan:{version}",
        epoch=epoch,
    )


def build(target: Path, cache: Path) -> str:
    """Build the image archive, and return its digest."""
    epoch = int(os.environ.get("SOURCE_DATE_EPOCH", EPOCH))
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder) / "root"
        rootfs.make(root, wheel_in(), cache)
        contents.write(root, epoch)
        return write(root, target, settings(current(), epoch))


def main() -> int:
    """Build or lock; 0 if that succeeded."""
    parser = argparse.ArgumentParser(prog="python -m tools.image")
    parser.add_argument("step", choices=["build", "lock"])
    parser.add_argument("--output", type=Path, default=ARCHIVE, help="where to write the archive")
    given = parser.parse_args()
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "bayplan" / "image"
    cache.mkdir(parents=True, exist_ok=True)
    try:
        if given.step == "lock":
            lock(cache)
            print(LOCK.relative_to(ROOT))
        else:
            digest = build(given.output, cache)
            print(f"{given.output}\nbayplan:{current()}@{digest}")
    except Unavailable as error:
        print(error, file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
