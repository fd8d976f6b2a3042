"""`python -m tools.release`: the steps of a release that make runs, each a command of its own."""

from __future__ import annotations

import argparse
import sys
from datetime import UTC, datetime
from pathlib import Path

from tools.release.distribution import build, try_out, wheel_in
from tools.release.licences import installed, refused
from tools.release.locks import ROOT, update
from tools.release.versions import CHANGELOG, current, section, set_version


def main() -> int:
    """Run one step; 0 if it succeeded."""
    parser = argparse.ArgumentParser(prog="python -m tools.release")
    steps = parser.add_subparsers(dest="step", required=True)
    lock = steps.add_parser("lock", help="write the lock files")
    lock.add_argument(
        "--upgrade", action="store_true", help="take the newest versions that pyproject.toml allows"
    )
    steps.add_parser("dist", help="build wheel and sdist, and check them")
    steps.add_parser("try", help="install the wheel in an empty environment and run it")
    steps.add_parser("licences", help="compare the licences of this environment with those allowed")
    version = steps.add_parser("version", help="write a version to the sources and the changelog")
    version.add_argument("version")
    steps.add_parser("notes", help="print what the changelog says of the current version")
    given = parser.parse_args()
    taken = {
        "lock": _lock, "dist": _dist, "try": _try, "licences": _licences,
        "version": _version, "notes": _notes,
    }  # fmt: skip
    return taken[given.step](given)


def _lock(given: argparse.Namespace) -> int:
    for path in update(Path(sys.executable).parent / "uv", upgrade=given.upgrade):
        print(path.relative_to(ROOT))
    return 0


def _dist(_: argparse.Namespace) -> int:
    for path in build():
        print(path.relative_to(ROOT))
    return 0


def _try(_: argparse.Namespace) -> int:
    print(try_out(wheel_in()))
    return 0


def _licences(_: argparse.Namespace) -> int:
    packages = installed()
    found = list(refused(packages))
    for sentence in found:
        print(sentence, file=sys.stderr)
    if not found:
        print(f"{len(packages)} packages have licences that are allowed.")
    return 1 if found else 0


def _version(given: argparse.Namespace) -> int:
    try:
        changed = set_version(given.version, datetime.now(UTC).strftime("%Y-%m-%d"))
    except ValueError as error:
        print(error, file=sys.stderr)
        return 1
    for path in changed:
        print(path.relative_to(ROOT))
    return 0


def _notes(_: argparse.Namespace) -> int:
    print(section(CHANGELOG.read_text(encoding="utf-8"), current()))
    return 0


if __name__ == "__main__":
    sys.exit(main())
