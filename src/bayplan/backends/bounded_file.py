"""Read a file of untrusted size within a limit, so that a device or a huge file cannot exhaust memory."""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Callable
from pathlib import Path

_CHUNK = 1024 * 1024


def read_bounded(path: Path, most: int) -> bytes:
    """All of a file or a pipe. Raises OSError with a clear `strerror`."""
    with path.open("rb") as file:
        mode = os.fstat(file.fileno()).st_mode
        if stat.S_ISBLK(mode) or (stat.S_ISCHR(mode) and not file.isatty()):
            raise OSError(errno.EINVAL, "it is a device, not a file")
        return read_up_to(file.read, most)


def read_up_to(read: Callable[[int], bytes], most: int) -> bytes:
    """All that there is to read. Raises OSError if it is more than that."""
    found = bytearray()
    while chunk := read(_CHUNK):
        if len(chunk) == _CHUNK and not chunk.strip(b"\0"):
            raise OSError(errno.EINVAL, "it holds null bytes, not text")
        found += chunk
        if len(found) > most:
            raise OSError(errno.EFBIG, f"it is larger than {most // _CHUNK:,} MiB, the most that is read")
    return bytes(found)
