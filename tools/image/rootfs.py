"""The root file system of the image, in a folder: the same files for the same locks and the same wheel."""

from __future__ import annotations

import os
import shutil
import struct
import subprocess
import sys
from collections.abc import Iterator
from hashlib import sha256
from pathlib import Path

from tools.image.debian import download, locked, unpack
from tools.release.locks import lock_file

USER = 65532
"""The user of the Deployment."""
PYTHON = "usr/bin/python3.11"
PYTHON_VERSION = "3.11"
PLATFORM = "x86_64-manylinux_2_36"
LIBRARIES = "usr/lib/x86_64-linux-gnu"
LOADER = f"{LIBRARIES}/ld-linux-x86-64.so.2"
SITE = "usr/local/lib/python3.11/dist-packages"
STANDARD = "usr/lib/python3.11"
COMMAND = "usr/local/bin/bayplan"
ENTRY = f"""#!/{PYTHON} -I
from bayplan.cli.commands.main import main
main(prog_name="bayplan")
"""
ELF_64_LITTLE = b"\x7fELF\x02\x01"
LINKS = {"bin": "usr/bin", "lib": "usr/lib", "lib64": "usr/lib64", "sbin": "usr/sbin"}
FILES = {
    "etc/passwd": f"root:x:0:0:root:/:/nonexistent\nbayplan:x:{USER}:{USER}:bayplan:/tmp:/nonexistent\n",
    "etc/group": f"root:x:0:\nbayplan:x:{USER}:\n",
    "etc/nsswitch.conf": "passwd: files\ngroup: files\nhosts: files dns\n",
    "etc/os-release": 'ID=debian\nVERSION_ID="12"\nPRETTY_NAME="Debian packages of Bayplan"\n',
}
FOLDERS = ("dev", "proc", "sys", "tmp", "run", "etc/bayplan", "etc/bayplan-metrics", "var/lib/bayplan")
"""Mount points, those of the Deployment among them: the root is read-only."""
LEFT_OUT = ("tests", "_pyinstaller", "f2py", "distutils")
"""Folders of wheels that only their own development needs."""
SOURCES = ("**/*.pyi", "**/*.pyx", "**/*.pxd", "**/*.h", "**/*.c", "**/*.a", "**/*.proto")
"""Files of wheels that compilers and type checkers read."""
NOT_USED = (
    "pygments/lexers/_*_builtins.py",  # names that languages define, to colour their sources
    "cel_expr_python/ext/ext_math.*",
    "cel_expr_python/ext/ext_encoders.*",
    "cel_expr_python/ext/ext_proto.*",
)
"""Extensions of the CEL library that selectors of devices and rules of CRDs do not have."""


def make(root: Path, wheel: Path, cache: Path) -> None:
    """Fill an empty folder."""
    root.mkdir(parents=True)
    (root / "usr").mkdir()
    for name, target in LINKS.items():
        (root / target).mkdir(parents=True, exist_ok=True)
        (root / name).symlink_to(target)
    for package in locked():
        unpack(download(package, cache), root)
    for folder in FOLDERS:
        (root / folder).mkdir(parents=True, exist_ok=True)
    for name, text in FILES.items():
        (root / name).write_text(text, encoding="utf-8")
    _install(root, wheel)
    command = root / COMMAND
    command.parent.mkdir(parents=True, exist_ok=True)
    command.write_text(ENTRY, encoding="utf-8")
    command.chmod(0o755)
    compile_all(root)


def _install(root: Path, wheel: Path) -> None:
    """Install the locked wheels and ours; nothing is built, and nothing is run."""
    uv = Path(sys.executable).parent / "uv"
    site = root / SITE
    common = [
        str(uv), "pip", "install", "--quiet", "--target", str(site), "--python-version", PYTHON_VERSION,
        "--python-platform", PLATFORM, "--only-binary", ":all:", "--no-deps", "--link-mode", "copy",
    ]  # fmt: skip
    subprocess.run([*common, "--require-hashes", "-r", str(lock_file("image"))], check=True)
    subprocess.run([*common, str(wheel)], check=True)
    for path in list(_left_out(site)):
        if path.is_dir():
            shutil.rmtree(path)
        else:
            path.unlink(missing_ok=True)  # one left-out folder may be inside another
    changed = set(_smaller(site))
    for record in sorted(site.glob("*.dist-info/RECORD")):
        lines = record.read_text(encoding="utf-8").splitlines()
        names = {line: line.partition(",")[0].strip('"') for line in lines}
        kept = [line for line in lines if (site / names[line]).exists()]
        kept = [f"{names[line]},," if site / names[line] in changed else line for line in kept]
        record.write_text("".join(f"{line}\n" for line in sorted(kept)), encoding="utf-8")


def _smaller(site: Path) -> Iterator[Path]:
    """Make shared libraries smaller; those that were changed.

    Section headers, symbol tables and debug information serve linkers and debuggers; the loader reads what
    the program headers name. Wheels have no symbolic links: a library with two names is there twice.
    """
    libraries = sorted(path for path in site.rglob("*.so*") if path.is_file() and not path.is_symlink())
    known: dict[bytes, Path] = {}
    for path in libraries:
        content = path.read_bytes()
        first = known.setdefault(sha256(content).digest(), path)
        if first is not path and first.parent == path.parent:
            path.unlink()
            path.symlink_to(first.name)
        elif content[:6] == ELF_64_LITTLE:
            path.write_bytes(_as_loaded(content))
        else:
            continue
        yield path


def _as_loaded(content: bytes) -> bytes:
    """An ELF file with what its program headers name, and no more."""
    table, size, count = *struct.unpack_from("<Q", content, 0x20), *struct.unpack_from("<HH", content, 0x36)
    end = table + size * count
    for number in range(count):
        offset, in_file = (struct.unpack_from("<Q", content, table + size * number + at)[0] for at in (8, 32))
        end = max(end, offset + in_file)
    header = bytearray(content[:0x40])
    struct.pack_into("<Q", header, 0x28, 0)  # where section headers are
    struct.pack_into("<HH", header, 0x3C, 0, 0)  # how many, and which has their names
    return bytes(header) + content[0x40:end]


def _left_out(site: Path) -> Iterator[Path]:
    """What wheels bring for development, and what the installer notes about this machine."""
    yield site / "bin"
    yield from sorted(path for name in LEFT_OUT for path in site.glob(f"*/**/{name}") if path.is_dir())
    for pattern in (*NOT_USED, *SOURCES, ".lock"):
        yield from sorted(path for path in site.glob(pattern) if path.is_file())
    for name in ("direct_url.json", "uv_cache.json", "uv_build.json", "REQUESTED", "INSTALLER"):
        yield from sorted(site.glob(f"*.dist-info/{name}"))


def compile_all(root: Path) -> None:
    """Compile all modules with the Python of the image, which cannot do so once its root is read-only.

    Imports write nothing meanwhile: they would note paths and times of this machine.
    """
    subprocess.run(
        [
            *python_of(root), "-S", "-m", "compileall", "-q", "-f", "-j", "1",
            "--invalidation-mode", "unchecked-hash", "-s", str(root), "-p", "/",
            str(root / STANDARD), str(root / SITE),
        ],
        check=True,
        env={**_environment(), "PYTHONHOME": str(root / "usr")},
    )  # fmt: skip


def python_of(root: Path) -> list[str]:
    """The Python of an unpacked image as a command that needs no privileges."""
    return [str(root / LOADER), "--library-path", str(root / LIBRARIES), str(root / PYTHON)]


def _environment() -> dict[str, str]:
    kept = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
    return {**kept, "PYTHONHASHSEED": "0", "PYTHONDONTWRITEBYTECODE": "1", "PYTHONNOUSERSITE": "1"}
