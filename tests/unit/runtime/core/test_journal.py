"""The journal: what is recorded comes back, in order, across files, restarts and crashes."""

from __future__ import annotations

import os
import stat
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType

import pytest

from bayplan.model.gang import Ref
from bayplan.model.plan import MarkStarted, Plan
from bayplan.runtime.core.journal import (
    Damaged,
    EntryKind,
    FileJournal,
    InUse,
    JournalEntry,
    MemoryJournal,
    Sync,
    replay,
)


@dataclass(frozen=True, slots=True)
class Bound:
    pod: str
    node: str


def write(folder: Path, count: int, **options: int) -> None:
    journal = FileJournal(folder, **options)  # type: ignore[arg-type]
    for number in range(count):
        journal.record(float(number), "change", {"number": number})
    journal.close()


def sequences(path: Path) -> list[int]:
    return [entry.sequence for entry in replay(path)]


def files(folder: Path) -> list[Path]:
    return sorted(folder.iterdir())


def test_what_is_recorded_comes_back(tmp_path: Path) -> None:
    journal = FileJournal(tmp_path)
    journal.record(1.5, "plan", Bound("a", "x1"))
    journal.record(2.0, "outcome", {"ended": "done", "über": ["ä", None, 3]})
    journal.close()
    plan, outcome = replay(tmp_path)
    assert plan == JournalEntry(1, 1.5, EntryKind.PLAN, {"is": "Bound", "pod": "a", "node": "x1"})
    assert plan.body_as(Bound) == Bound("a", "x1")
    assert outcome == JournalEntry(2, 2.0, EntryKind.OUTCOME, {"ended": "done", "über": ["ä", None, 3]})


def test_the_same_entries_give_the_same_bytes_in_memory_and_in_a_file(tmp_path: Path) -> None:
    memory, file = MemoryJournal(), FileJournal(tmp_path)
    bodies = [
        {"b": 1, "a": {"z", "y", "x"}},
        {"a": {"x", "z", "y"}, "b": 1},
        MappingProxyType({"k": 1}),
        None,
    ]
    for journal in (memory, file):
        for body in bodies:
            journal.record(0.1, "change", body)
        journal.close()
    assert b"".join(memory.lines) == files(tmp_path)[0].read_bytes()
    assert (
        memory.lines[0]
        == b'{"sequence":1,"now":0.1,"kind":"change","role":"","body":{"a":["x","y","z"],"b":1}}\n'
    )
    assert memory.lines[1].split(b"body")[1] == memory.lines[0].split(b"body")[1]
    assert list(memory.entries()) == list(replay(tmp_path))


def test_what_cannot_be_written_is_a_bug_and_leaves_no_trace(tmp_path: Path) -> None:
    journal = FileJournal(tmp_path)
    with pytest.raises(TypeError, match="a object has no plain form"):
        journal.record(0, "change", {"x": object()})
    with pytest.raises(ValueError, match="dance"):
        journal.record(0, "dance", {})
    journal.record(0, "change", {})
    assert journal.sequence == 1
    journal.close()
    assert sequences(tmp_path) == [1]


def test_full_files_are_followed_by_others_and_the_oldest_go(tmp_path: Path) -> None:
    write(tmp_path, 100, size_max=300, files_max=4)
    found = files(tmp_path)
    assert len(found) == 4
    assert all(path.stat().st_size <= 300 for path in found)
    kept = sequences(tmp_path)
    assert kept == list(range(kept[0], 101)) and kept[0] > 1
    assert found[0].name == f"journal-{kept[0]:012d}.jsonl"


def test_an_entry_larger_than_a_file_has_a_file_of_its_own(tmp_path: Path) -> None:
    journal = FileJournal(tmp_path, size_max=100, files_max=9)
    for text in ("a", "b" * 1000, "c"):
        journal.record(0, "change", text)
    journal.close()
    assert [path.stat().st_size > 1000 for path in files(tmp_path)] == [False, True, False]
    assert sequences(tmp_path) == [1, 2, 3]


def test_the_sequence_goes_on_after_a_restart(tmp_path: Path) -> None:
    for _ in range(5):
        write(tmp_path, 7, size_max=250, files_max=100)
    assert sequences(tmp_path) == list(range(1, 36))


def test_the_size_is_bounded_across_restarts_too(tmp_path: Path) -> None:
    for _ in range(20):
        write(tmp_path, 1, size_max=200, files_max=100)
    assert all(path.stat().st_size <= 200 for path in files(tmp_path))


def test_files_of_more_digits_come_later(tmp_path: Path) -> None:
    write(tmp_path, 1)
    files(tmp_path)[0].rename(tmp_path / "journal-999999999999.jsonl")
    line = b'{"sequence":%d,"now":0.0,"kind":"change","body":null}\n'
    (tmp_path / "journal-999999999999.jsonl").write_bytes(line % 999999999999)
    (tmp_path / "journal-1000000000000.jsonl").write_bytes(line % 1000000000000)
    write(tmp_path, 1)
    assert sequences(tmp_path) == [999999999999, 1000000000000, 1000000000001]


@pytest.mark.parametrize(
    "torn", [b'{"sequence":4,"no', b"\0\0\0\0", b'{"sequence":4,"now":1.0,"kind":"change"}']
)
def test_a_line_that_was_never_finished_is_passed_over_and_then_overwritten(
    tmp_path: Path, torn: bytes
) -> None:
    write(tmp_path, 3)
    with files(tmp_path)[0].open("ab") as file:
        file.write(torn)
    assert sequences(tmp_path) == [1, 2, 3]
    write(tmp_path, 1)
    assert sequences(tmp_path) == [1, 2, 3, 4]


def test_every_way_to_tear_a_journal_leaves_the_entries_before(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "fsync", lambda file: None)  # two hundred of them are slow
    write(tmp_path, 3)
    path = files(tmp_path)[0]
    data = path.read_bytes()
    for length in range(len(data) + 1):
        path.write_bytes(data[:length])
        whole = data[:length].count(b"\n")
        assert sequences(tmp_path) == list(range(1, whole + 1))
        write(tmp_path, 1)
        assert sequences(tmp_path) == list(range(1, whole + 2))


def test_a_restart_right_after_a_new_file_began_keeps_the_count(tmp_path: Path) -> None:
    write(tmp_path, 3)
    (tmp_path / "journal-000000000004.jsonl").write_bytes(b'{"seq')
    write(tmp_path, 2)
    assert sequences(tmp_path) == [1, 2, 3, 4, 5]


@pytest.mark.parametrize(
    ("line", "why"),
    [
        (b"rubbish\n", "not an entry"),
        (b'{"sequence":2,"now":0.0,"kind":"dance","body":null}\n', "dance"),
        (b'{"sequence":"2","now":0.0,"kind":"plan","body":null}\n', "sequence"),
        (b'{"sequence":2,"now":0.0,"kind":"plan","body":"\xff"}\n', "not an entry"),
        (b'{"sequence":5,"now":0.0,"kind":"plan","body":null}\n', "entry 5 follows entry 1"),
    ],
)
def test_damage_is_named_by_file_and_line(tmp_path: Path, line: bytes, why: str) -> None:
    write(tmp_path, 3)
    path = files(tmp_path)[0]
    first, _, third = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(first + line + third)
    with pytest.raises(Damaged, match=rf"journal-000000000001\.jsonl, line 2: .*{why}"):
        sequences(tmp_path)


def test_a_torn_line_in_any_file_but_the_last_is_damage(tmp_path: Path) -> None:
    write(tmp_path, 30, size_max=500, files_max=9)
    path = files(tmp_path)[0]
    lines = path.read_bytes().count(b"\n")
    os.truncate(path, path.stat().st_size - 5)
    with pytest.raises(Damaged, match=rf"journal-000000000001\.jsonl, line {lines}"):
        sequences(tmp_path)


def test_a_missing_file_in_the_middle_is_damage(tmp_path: Path) -> None:
    write(tmp_path, 30, size_max=500, files_max=9)
    files(tmp_path)[1].unlink()
    with pytest.raises(Damaged, match=r"line 1: entry .* follows entry"):
        sequences(tmp_path)


def test_a_folder_without_a_journal_says_so(tmp_path: Path) -> None:
    with pytest.raises(Damaged, match="there is no journal-"):
        sequences(tmp_path)


def test_one_file_can_be_read_alone(tmp_path: Path) -> None:
    write(tmp_path, 30, size_max=500, files_max=9)
    second = files(tmp_path)[1]
    assert sequences(second)[0] == int(second.stem.removeprefix("journal-"))


def test_two_writers_do_not_share_a_folder(tmp_path: Path) -> None:
    journal = FileJournal(tmp_path)
    with pytest.raises(InUse, match="another process"):
        FileJournal(tmp_path)
    journal.close()
    FileJournal(tmp_path).close()


def test_what_is_recorded_is_there_for_readers_at_once(tmp_path: Path) -> None:
    journal = FileJournal(tmp_path)
    journal.record(0, "change", None)
    assert sequences(tmp_path) == [1]
    journal.close()


@pytest.mark.parametrize(
    ("sync", "calls"), [(Sync.FILES, [0, 0, 0]), (Sync.PLANS, [0, 1, 1]), (Sync.ENTRIES, [1, 2, 3])]
)
def test_the_policy_says_when_entries_are_safe(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, sync: Sync, calls: list[int]
) -> None:
    synced: list[int] = []
    monkeypatch.setattr(os, "fsync", lambda file: synced.append(os.fstat(file).st_size))
    journal = FileJournal(tmp_path, sync=sync)
    seen = []
    for kind in ("change", EntryKind.PLAN, EntryKind.OUTCOME):
        journal.record(0, kind, None)
        seen.append(len(synced))
    assert seen == calls
    assert all(synced), "synced before anything was written"
    journal.close()
    assert len(synced) == calls[-1] + 1


class Disk:
    """A disk that accepts so many bytes and no more, until it is emptied."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, room: int) -> None:
        self.room, self._write = room, os.write
        monkeypatch.setattr(os, "write", self.write)

    def write(self, file: int, data: bytes) -> int:
        if not self.room:
            raise OSError(28, "No space left on device")
        taken = self._write(file, bytes(data)[: self.room])
        self.room -= taken
        return taken


def test_a_full_disk_loses_nothing_once_there_is_room_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    notes: list[str] = []
    journal = FileJournal(tmp_path, size_max=100, files_max=99, note=notes.append)
    disk = Disk(monkeypatch, room=70)
    for number in range(10):
        journal.record(0, "change", number)
    assert notes == [f"the journal in {tmp_path} cannot be written: [Errno 28] No space left on device"]
    assert sequences(tmp_path) == [1]
    disk.room = 10**9
    journal.flush()
    assert sequences(tmp_path) == list(range(1, 11))
    disk.room = 0
    journal.record(0, "change", 10)
    disk.room = 10**9
    journal.close()
    assert [entry.body for entry in replay(tmp_path)] == list(range(11)) and len(notes) == 2


def test_what_a_full_disk_lost_is_told_to_the_reader(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("bayplan.runtime.core.journal.WAITING_MAX", 200)
    journal = FileJournal(tmp_path)
    disk = Disk(monkeypatch, room=0)
    for number in range(10):
        journal.record(0, "change", number)
    disk.room = 10**9
    journal.record(0, "change", 10)  # frees what was buffered
    journal.record(0, "change", 11)
    journal.close()
    with pytest.raises(Damaged, match=r"entry 12 follows entry \d$"):
        sequences(tmp_path)


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def test_a_journal_is_for_its_writer_alone(tmp_path: Path) -> None:
    before = os.umask(0)
    try:
        write(tmp_path / "a" / "journal", 30, size_max=200)
    finally:
        os.umask(before)
    assert mode(tmp_path / "a" / "journal") == 0o700
    assert len(files(tmp_path / "a" / "journal")) > 2
    assert {mode(path) for path in files(tmp_path / "a" / "journal")} == {0o600}


def test_a_folder_that_was_there_keeps_its_mode_and_files_that_were_there_are_closed(tmp_path: Path) -> None:
    folder = tmp_path / "journal"
    folder.mkdir()
    folder.chmod(0o755)
    write(folder, 3)
    for path in files(folder):
        path.chmod(0o644)
    write(folder, 3)
    assert mode(folder) == 0o755
    assert {mode(path) for path in files(folder)} == {0o600}
    assert sequences(folder) == [1, 2, 3, 4, 5, 6]


def test_a_link_in_the_folder_is_not_followed(tmp_path: Path) -> None:
    folder, elsewhere = tmp_path / "journal", tmp_path / "elsewhere"
    folder.mkdir()
    elsewhere.write_bytes(b"")
    (folder / "journal-000000000001.jsonl").symlink_to(elsewhere)
    with pytest.raises(OSError, match="symbolic links"):
        FileJournal(folder)


def test_a_body_that_several_controllers_record_is_encoded_once_and_written_for_each() -> None:
    journal, body = MemoryJournal(), Plan((MarkStarted(Ref("kube", "Job", "ns", "a")),))
    journal.record(1.0, "plan", body, "one")
    journal.record(2.0, "plan", body, "other")
    journal.record(3.0, "plan", Plan(), "other")
    found = [(entry.now, entry.role, len(entry.body["actions"])) for entry in journal.entries()]
    assert found == [(1.0, "one", 1), (2.0, "other", 1), (3.0, "other", 0)]
