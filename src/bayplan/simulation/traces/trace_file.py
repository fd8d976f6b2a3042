"""Reads the lines of a trace, plain or compressed, and fails with the file and the line of a problem.

Lines and their number are bounded, so that a file that is no trace cannot exhaust memory.
"""

from __future__ import annotations

import csv
import gzip
import lzma
import math
import tarfile
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO, cast

LINE_MAX = 64 * 1024
LINES_MAX = 5_000_000
NUMBER_MAX = 2.0**50
MEMBER = "#"
"""Between an archive and the file in it: `traces.tar.xz#jobs.csv`."""


class TraceError(Exception):
    """The trace cannot be read. The message has the file, the line, what was found and what was expected."""

    def __init__(self, file: str, line: int | None, problem: str) -> None:
        super().__init__(f"{file}, line {line}: {problem}" if line else f"{file}: {problem}")


@dataclass(frozen=True, slots=True)
class Row:
    """One line of a table, with where it was found."""

    file: str
    line: int
    cells: Mapping[str, str]

    def error(self, problem: str) -> TraceError:
        """A problem with this line."""
        return TraceError(self.file, self.line, problem)

    def text(self, column: str) -> str:
        """The cell of a column, without spaces around it."""
        return self.cells[column].strip()

    def number(self, column: str, least: float = 0.0) -> float:
        """A finite number of at least `least`."""
        text = self.text(column)
        try:
            value = float(text)
        except ValueError:
            value = math.nan
        if not math.isfinite(value) or not least <= value <= NUMBER_MAX:
            raise self.error(f"{column} is {shown(text)}; give a number of at least {least:g}")
        return value

    def whole(self, column: str, least: int = 0) -> int:
        """A whole number of at least `least`; `8.0` is one too."""
        value = self.number(column, least)
        if value != int(value):
            raise self.error(f"{column} is {shown(self.text(column))}; give a whole number")
        return int(value)


def shown(text: str) -> str:
    """A cell as quoted in a message: short, and printable."""
    return "empty" if not text else ascii(text if len(text) <= 40 else text[:40] + "…")


def members(path: str) -> list[str]:
    """The files of an archive, each as a path to read; the path itself if it is no archive."""
    if not _is_archive(path):
        return [path]
    with _troubles(path), tarfile.open(path) as archive:
        return [f"{path}{MEMBER}{one.name}" for one in archive if one.isfile()]


def lines(path: str) -> Iterator[tuple[int, str]]:
    """Each line with its number, without its end."""
    with _troubles(path), _opened(path) as file:
        number = 0
        while found := file.readline(LINE_MAX + 1):
            number += 1
            if len(found) > LINE_MAX:
                raise TraceError(
                    path, number, f"the line is longer than {LINE_MAX:,} bytes; is this a trace?"
                )
            if number > LINES_MAX:
                raise TraceError(path, number, f"the file has more than {LINES_MAX:,} lines; cut it")
            try:
                yield number, found.decode("utf-8").rstrip("\r\n")
            except UnicodeDecodeError:
                raise TraceError(path, number, "the line is not UTF-8 text; is this a trace?") from None


def table(path: str, columns: Iterable[str]) -> Iterator[Row]:
    """The rows of a CSV file with a header that has at least these columns."""
    numbered = lines(path)
    header = next(numbered, None)
    if header is None:
        raise TraceError(path, None, f"the file is empty; a header with {', '.join(columns)} was expected")
    names = [name.strip().removeprefix("\ufeff") for name in _cells(path, *header)]
    missing = [name for name in columns if name not in names]
    if missing:
        raise TraceError(
            path, 1, f"there is no column {', '.join(missing)}; found: {shown(', '.join(names))}"
        )
    for number, line in numbered:
        if not line.strip():
            continue
        cells = _cells(path, number, line)
        if len(cells) != len(names):
            raise TraceError(path, number, f"{len(cells)} cells, but the header has {len(names)} columns")
        yield Row(path, number, dict(zip(names, cells, strict=True)))


def _cells(path: str, number: int, line: str) -> list[str]:
    try:
        return next(csv.reader([line], strict=True))
    except (csv.Error, StopIteration):
        raise TraceError(path, number, "the line is no row of a CSV file; check its quotes") from None


@contextmanager
def _troubles(path: str) -> Iterator[None]:
    """Turn errors of the file system and of decompression into one sentence."""
    try:
        yield
    except OSError as error:
        raise TraceError(path, None, error.strerror or str(error)) from None
    except (lzma.LZMAError, tarfile.TarError, EOFError) as error:
        raise TraceError(path, None, f"it cannot be decompressed ({error})") from None


@contextmanager
def _opened(path: str) -> Iterator[IO[bytes]]:
    file, _, member = path.partition(MEMBER)
    if not member:
        with _decompressed(path) as opened:
            yield opened
        return
    with tarfile.open(file) as archive:
        try:
            found = archive.extractfile(member)
        except KeyError:
            found = None
        if found is None:
            raise TraceError(file, None, f"there is no file {member} in the archive")
        with found:
            yield found


def _decompressed(path: str) -> IO[bytes]:
    if _is_archive(path):
        raise TraceError(path, None, f"it is an archive; name a file in it: {path}{MEMBER}FILE")
    if path.endswith(".xz"):
        return cast("IO[bytes]", lzma.open(path, "rb"))
    if path.endswith(".gz"):
        return cast("IO[bytes]", gzip.open(path, "rb"))
    return Path(path).open("rb")


def _is_archive(path: str) -> bool:
    return MEMBER not in path and path.endswith((".tar", ".tar.xz", ".tar.gz", ".tgz"))
