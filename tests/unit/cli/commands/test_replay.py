"""`bayplan replay` of what is no journal, of another version's journal, and of gangs that are not in it."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from bayplan.cli.commands.main import main
from bayplan.model.change import NodeLost, PodSeen, Started
from bayplan.model.gang import Ref
from bayplan.model.pod import Pod, PodKey
from bayplan.runtime.core.journal import FileJournal


def replay(*arguments: str | Path) -> Result:
    return CliRunner().invoke(main, ["replay", *(str(one) for one in arguments)])


@pytest.fixture
def journal(tmp_path: Path) -> Path:
    made = FileJournal(tmp_path / "journal")
    made.record(1.0, "change", Started(), "scheduler")
    made.record(2.0, "change", NodeLost("n1"), "scheduler")
    pod = Pod(PodKey("default", "p"), "u", {}, gang=Ref("batch/v1", "Job", "default", "training"))
    made.record(3.0, "change", PodSeen(pod), "scheduler")
    made.close()
    return tmp_path / "journal"


def changed(journal: Path, **fields: Any) -> Path:
    """The journal with another second entry."""
    (path,) = journal.iterdir()
    lines = path.read_bytes().splitlines(keepends=True)
    lines[1] = json.dumps(json.loads(lines[1]) | fields).encode() + b"\n"
    path.write_bytes(b"".join(lines))
    return journal


def test_a_good_journal_is_replayed(journal: Path) -> None:
    result = replay(journal)
    assert result.exit_code == 0, result.output
    assert "3 changes, 0 plans, 0 outcomes" in result.output


@pytest.mark.parametrize(
    ("fields", "why"),
    [
        (
            {"role": "astrologer"},
            'entry 2 is of the role "astrologer"; this version has adm',
        ),
        ({"body": {"is": "Eclipse"}}, "entry 2 (change) cannot be read: 'Eclipse' is not known here"),
        ({"body": {"is": "NodeLost", "name": "n", "moon": 1}}, "a NodeLost has no field 'moon'"),
        ({"body": {"is": "NodeLost"}}, "a NodeLost lacks the field 'name'"),
        ({"body": {"is": "NodeSeen", "node": 7}}, "a Node is needed where there is '7'"),
        ({"body": {"is": 7}}, "'7' is not known here"),
        ({"body": [1]}, "entry 2 (change) cannot be read"),
        ({"body": "x"}, "entry 2 (change) cannot be read"),
        ({"body": None}, "entry 2 (change) cannot be read"),
        ({"kind": "plan", "body": {"is": "Plan", "actions": [7]}}, "entry 2 (plan) cannot be read"),
        ({"kind": "plan", "body": {"is": "Plan", "actions": 7}}, "entry 2 (plan) cannot be read"),
        ({"kind": "outcome", "body": {"is": "Settled"}}, "a Settled lacks the field 'action'"),
        ({"kind": "omen"}, "line 2: this is not an entry of a journal"),
        ({"sequence": 9}, "entry 9 follows entry 1"),
    ],
)
def test_what_another_version_wrote_is_named_with_its_entry(
    journal: Path, fields: dict[str, Any], why: str
) -> None:
    result = replay(changed(journal, **fields))
    assert result.exit_code == 1 and isinstance(result.exception, SystemExit)
    assert why in result.stderr and len(result.stderr.splitlines()) == 1


@pytest.mark.parametrize(
    ("content", "why"),
    [
        (b"", "contains no journal entries"),
        (b"hello", "contains no journal entries"),
        (b"hello\n", "line 1: this is not an entry of a journal"),
        (b"\0" * 5_000_000, "contains no journal entries"),
        (b"\xff\n", "line 1: this is not an entry of a journal"),
        (
            b'{"sequence": 1, "now": 1, "kind": "change", "body": ' + b"[" * 90_000 + b"\n",
            "line 1: this is not",
        ),
    ],
)
def test_a_file_that_is_no_journal_says_so(tmp_path: Path, content: bytes, why: str) -> None:
    path = tmp_path / "file"
    path.write_bytes(content)
    result = replay(path)
    assert result.exit_code == 1 and isinstance(result.exception, SystemExit)
    assert why in result.stderr


def test_devices_pipes_and_empty_folders_are_refused(tmp_path: Path) -> None:
    assert "/dev/zero is a device or a pipe" in replay("/dev/zero").stderr
    os.mkfifo(tmp_path / "pipe")
    assert "is a device or a pipe" in replay(tmp_path / "pipe").stderr
    (tmp_path / "empty").mkdir()
    assert "there is no journal-*.jsonl in it" in replay(tmp_path / "empty").stderr
    for path in ("/dev/zero", tmp_path / "pipe", tmp_path / "empty", tmp_path / "none"):
        assert replay(path).exit_code in (1, 2)


def test_a_gang_that_is_not_in_the_journal_is_an_error_that_names_those_near(journal: Path) -> None:
    assert replay(journal, "--gang", "training").exit_code == 0
    near = replay(journal, "--gang", "trainign")
    assert near.exit_code == 1
    assert "the journal has no entry about a gang trainign; did you mean training?" in near.stderr
    far = replay(journal, "--gang", "xyz")
    assert far.exit_code == 1 and "no entry about a gang xyz; it is about 1 other gang" in far.stderr
