"""The journal: every change, plan and outcome in order, one JSON line each, so that a run can be replayed.

A journal is a folder. Each file is named by the sequence number of its first entry; the last file is appended
to, and when it is full a new one begins and the oldest is deleted. Equal entries give equal bytes.
"""

from __future__ import annotations

import fcntl
import os
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from enum import StrEnum
from functools import partial
from pathlib import Path
from typing import Any, Protocol

import msgspec

from bayplan.runtime.core.serialization import Unrestorable, plain, restore

SIZE_MAX = 64 * 1024 * 1024
FILES_MAX = 8
LINE_MAX = 256 * 1024 * 1024
WAITING_MAX = 16 * 1024 * 1024
BODIES_MAX = 500  # encoded bodies that are kept, of at most
BODY_MAX = 16 * 1024  # bytes each
"""Bytes buffered in memory while the disk accepts no writes."""
FILE_MODE, FOLDER_MODE = 0o600, 0o700
"""File mode: a journal shows who runs what and where, which not every user of the machine may read."""
_PREFIX, _SUFFIX = "journal-", ".jsonl"


class EntryKind(StrEnum):
    """What an entry is about."""

    CHANGE = "change"
    PLAN = "plan"
    OUTCOME = "outcome"
    FAILURE = "failure"  # an error while deciding on a gang, just before the plan that rejects it
    ASSUMED = "assumed"  # the plan that a rebuilt state assumes again
    LOOK = "look"  # a changed state was asked what is due, without a plan: delays of gangs count from then on


class Sync(StrEnum):
    """When an entry survives a crash of the machine. It survives a crash of the process at once."""

    FILES = "files"  # when its file is full, or the journal is closed
    PLANS = "plans"  # a plan and all entries before it, before `record` returns
    ENTRIES = "entries"  # every entry, before `record` returns


class JournalEntry(msgspec.Struct, frozen=True):
    """One recorded change, plan or outcome, and its time."""

    sequence: int
    now: float
    kind: EntryKind
    body: Any = None  # plain JSON values once read back
    role: str = ""  # the controller that it belongs to

    def body_as(self, shape: Any) -> Any:
        """The body as the value it was made from; `shape` is its type or a union of types.

        Raises Damaged if it is none, as in a journal of another version.
        """
        try:
            if self.body is None:
                raise Unrestorable("it is empty")
            return restore(self.body, shape)
        except Unrestorable as error:
            raise Damaged(
                f"entry {self.sequence} ({self.kind}) cannot be read: {error}; is it of another version?"
            ) from None


class Damaged(Exception):
    """The journal cannot be read further; the message names the file and the line."""


class InUse(Exception):
    """Another process writes this journal."""


class Journal(Protocol):
    """Where the loop records what it does."""

    def record(self, now: float, what: str, body: object, role: str = "") -> None:
        """Append an entry about a change, a plan or an outcome."""

    def flush(self) -> None:
        """Write again what the disk did not accept."""

    def close(self) -> None:
        """Save all entries and release the folder."""


class NullJournal:
    """Discards all entries: without --journal, decisions are visible in the API only."""

    def record(self, now: float, what: str, body: object, role: str = "") -> None:
        """Discard the entry."""

    def flush(self) -> None:
        """Do nothing."""

    def close(self) -> None:
        """Do nothing."""


class MemoryJournal:
    """A journal in memory; the same bytes that the files would hold."""

    def __init__(self) -> None:
        self.lines: list[bytes] = []
        self._bodies = _EncodedBodies()

    @property
    def sequence(self) -> int:
        """The number of the last entry."""
        return len(self.lines)

    def record(self, now: float, what: str, body: object, role: str = "") -> None:
        self.lines.append(_line(self.sequence + 1, now, EntryKind(what), role, self._bodies.of(body)))

    def flush(self) -> None:
        pass

    def close(self) -> None:
        pass

    def entries(self) -> Iterator[JournalEntry]:
        """All entries, read back."""
        return _entries(self.lines, "memory")


class FileJournal:
    """A journal in a folder, bounded by `files_max` files of about `size_max` bytes.

    A full disk does not stop the scheduler: entries are buffered in memory, then lost, and a reader of the
    journal sees where.
    """

    def __init__(
        self,
        folder: Path,
        *,
        size_max: int = SIZE_MAX,
        files_max: int = FILES_MAX,
        sync: Sync = Sync.FILES,
        note: Callable[[str], None] = lambda sentence: None,
    ) -> None:
        assert size_max > 0 and files_max > 0
        _make_private(folder)
        self._folder, self._size_max, self._files_max, self._sync = folder, size_max, files_max, sync
        self._note, self._trouble = note, ""
        self._lock = _lock(folder)
        self._waiting, self._bodies = bytearray(), _EncodedBodies()
        self._sequence, self._size = _resume(folder)
        files = _files(folder)
        for path in files:  # files of an earlier version were readable by the group
            with suppress(PermissionError):  # another account owns the file
                path.chmod(FILE_MODE)
        self._file = os.open(files[-1] if files else _path(folder, 1), _OPEN, FILE_MODE)

    @property
    def sequence(self) -> int:
        """The number of the last entry."""
        return self._sequence

    def record(self, now: float, what: str, body: object, role: str = "") -> None:
        kind = EntryKind(what)
        line = _line(self._sequence + 1, now, kind, role, self._bodies.of(body))
        if self._size and self._size + len(line) > self._size_max:
            self._try(self._rotate)
        self._sequence += 1
        if len(self._waiting) + len(line) <= WAITING_MAX or not self._waiting:
            self._waiting += line
            self._size += len(line)
        must = self._sync is Sync.ENTRIES or (self._sync is Sync.PLANS and kind is EntryKind.PLAN)
        self._try(self._save if must else self._hand_over)

    def flush(self) -> None:
        self._try(self._hand_over)

    def close(self) -> None:
        self._try(self._save)
        os.close(self._file)
        os.close(self._lock)

    def _hand_over(self) -> None:
        while self._waiting:  # what the disk did not accept stays here for the next call
            del self._waiting[: os.write(self._file, self._waiting)]

    def _save(self) -> None:
        self._hand_over()
        os.fsync(self._file)

    def _rotate(self) -> None:
        self._save()
        following = os.open(_path(self._folder, self._sequence + 1), _OPEN, FILE_MODE)
        os.close(self._file)
        self._file, self._size = following, 0
        os.fsync(self._lock)  # the folder itself: the new name in it
        for path in _files(self._folder)[: -self._files_max]:
            path.unlink()

    def _try(self, save: Callable[[], None]) -> None:
        try:
            save()
            self._trouble = ""
        except OSError as error:
            if str(error) != self._trouble:  # log it once, not for every entry
                self._trouble = str(error)
                self._note(f"the journal in {self._folder} cannot be written: {error}")


def replay(path: Path) -> Iterator[JournalEntry]:
    """All entries of a journal (its folder, or one of its files), oldest first.

    An incomplete last line is skipped. Anything else that is not an entry is damage.
    """
    if path.exists() and not path.is_file() and not path.is_dir():
        raise Damaged(f"{path} is a device or a pipe; name the folder of a journal, or a file of it")
    files = [path] if path.is_file() else _files(path)
    if not files:
        raise Damaged(f"{path} was to be read as a journal; there is no {_PREFIX}*{_SUFFIX} in it")
    after: int | None = None
    for file in files:
        with file.open("rb") as lines:
            pieces = iter(partial(lines.readline, LINE_MAX), b"")
            for entry in _entries(pieces, str(file), last=file is files[-1], after=after):
                after = entry.sequence
                yield entry


class JournalReader:
    """Reads a journal that another process may be writing. `read` goes on where it stopped."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.lost = False  # entries are missing, because their file was deleted before it was read
        self._file: Path | None = None
        self._offset = 0
        self._last = 0

    def read(self) -> Iterator[JournalEntry]:
        """The entries since the last call, oldest first. Raises Damaged, and OSError."""
        for path in self._unread():
            if path != self._file:
                self._file, self._offset = path, 0
            with path.open("rb") as file:
                file.seek(self._offset)
                for line in iter(partial(file.readline, LINE_MAX), b""):
                    if not line.endswith(b"\n"):
                        break  # it is being written
                    try:
                        entry = _decoder.decode(line)
                    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
                        raise Damaged(f"{path}: not an entry of a journal ({error})") from None
                    self.lost |= entry.sequence != self._last + 1
                    self._last, self._offset = entry.sequence, self._offset + len(line)
                    yield entry

    def _unread(self) -> list[Path]:
        files = _files(self.folder)
        if self._file is None:
            return files
        return [path for path in files if int(_first(path)) >= int(_first(self._file))]


_OPEN = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC | os.O_NOFOLLOW


_encoder = msgspec.json.Encoder(order="sorted")
_decoder = msgspec.json.Decoder(JournalEntry)


class _EncodedBodies:
    """Encodes bodies; what several controllers record, because they share it, is encoded once.

    Bodies are frozen values, told apart by identity, and kept, so that no other gets the identity of one.
    """

    def __init__(self) -> None:
        self._known: dict[int, tuple[object, bytes]] = {}

    def of(self, body: object) -> bytes:
        found = self._known.get(id(body))
        if found is None:
            found = (body, _encoder.encode(plain(body)))
            if len(found[1]) <= BODY_MAX:
                if len(self._known) >= BODIES_MAX:
                    self._known.clear()
                self._known[id(body)] = found
        return found[1]


def _line(sequence: int, now: float, kind: EntryKind, role: str, body: bytes) -> bytes:
    # Assembled by hand: the parts in reading order, everything inside the body sorted.
    return b'{"sequence":%d,"now":%s,"kind":"%s","role":%s,"body":%s}\n' % (
        sequence,
        _encoder.encode(float(now)),
        kind.encode(),
        _encoder.encode(role),
        body,
    )


def _entries(
    lines: Iterable[bytes], source: str, *, last: bool = True, after: int | None = None
) -> Iterator[JournalEntry]:
    for number, line in enumerate(lines, start=1):
        if last and not line.endswith(b"\n"):
            return
        try:
            entry = _decoder.decode(line)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            raise Damaged(f"{source}, line {number}: this is not an entry of a journal ({error})") from None
        if after is not None and entry.sequence != after + 1:
            raise Damaged(f"{source}, line {number}: entry {entry.sequence} follows entry {after}")
        after = entry.sequence
        yield entry


def _files(folder: Path) -> list[Path]:
    found = [path for path in folder.glob(f"{_PREFIX}*{_SUFFIX}") if _first(path).isdigit()]
    return sorted(found, key=lambda path: int(_first(path)))


def _first(path: Path) -> str:
    return path.name.removeprefix(_PREFIX).removesuffix(_SUFFIX)


def _path(folder: Path, first: int) -> Path:
    return folder / f"{_PREFIX}{first:012d}{_SUFFIX}"


def _make_private(folder: Path) -> None:
    """Create the folder for this account only. An existing folder keeps its mode: it may hold other files."""
    folder.parent.mkdir(parents=True, exist_ok=True)
    try:
        folder.mkdir(mode=FOLDER_MODE)
    except FileExistsError:
        if not folder.is_dir():
            raise


def _lock(folder: Path) -> int:
    held = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        fcntl.flock(held, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(held)
        raise InUse(
            f"the journal in {folder} is being written by another process; name another folder"
        ) from None
    return held


def _resume(folder: Path) -> tuple[int, int]:
    """The last sequence number and the size of the last file, after its unreadable end is cut off."""
    files = _files(folder)
    if not files:
        return 0, 0
    data = files[-1].read_bytes()
    sequence, end = int(_first(files[-1])) - 1, data.rfind(b"\n") + 1
    while end:
        start = data.rfind(b"\n", 0, end - 1) + 1
        try:
            sequence = _decoder.decode(data[start:end]).sequence
            break
        except (msgspec.DecodeError, UnicodeDecodeError):
            end = start
    if end < len(data):
        os.truncate(files[-1], end)
    return sequence, end
