"""Wheel and sdist: built with the locked tools, checked, and tried in an empty environment."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from tools.release.locks import ROOT

DIST = ROOT / "dist"
EPOCH = "1735689600"
"""Files in archives get this time, so that the same sources give the same bytes."""
DEMO = ("up", "--for", "5")


def build(folder: Path = DIST) -> list[Path]:
    """Build wheel and sdist into a folder, and check what an index would show of them."""
    shutil.rmtree(folder, ignore_errors=True)
    environment = {**os.environ, "SOURCE_DATE_EPOCH": os.environ.get("SOURCE_DATE_EPOCH", EPOCH)}
    command = [sys.executable, "-m", "build", "--no-isolation", "--outdir", str(folder), str(ROOT)]
    subprocess.run(command, check=True, env=environment)
    made = sorted(folder.iterdir())
    subprocess.run([sys.executable, "-m", "twine", "check", "--strict", *map(str, made)], check=True)
    return made


def wheel_in(folder: Path = DIST) -> Path:
    """The one wheel in a folder."""
    (wheel,) = folder.glob("*.whl")
    return wheel


def try_out(wheel: Path, python: str = sys.executable) -> str:
    """Install the wheel in a new environment, run a cluster in memory there, and return what it printed."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        subprocess.run([python, "-m", "venv", str(folder / "env")], check=True)
        programs = folder / "env" / "bin"
        subprocess.run([programs / "pip", "install", "--quiet", str(wheel)], check=True)
        version = _output(programs / "bayplan", folder, "version")
        return version + _output(programs / "bayplan", folder, *DEMO)


def _output(program: Path, folder: Path, *arguments: str) -> str:
    """What a program prints in a folder that holds no sources."""
    return subprocess.run(
        [program, *arguments], check=True, cwd=folder, capture_output=True, text=True
    ).stdout
