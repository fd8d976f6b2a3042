"""The past from a journal: what is shown at an entry is what replaying up to it gives."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml
from click.testing import CliRunner

from bayplan.backends.fake_controllers.manifests import RACK, job
from bayplan.cli.commands.main import main
from bayplan.cli.watching.journal_timeline import JournalTimeline
from bayplan.configuration.settings import DEFAULTS
from bayplan.dashboard.host_map import GangKey
from bayplan.dashboard.snapshot import DashboardSnapshot
from bayplan.dashboard.views import ALL, UserView
from bayplan.dialects.kueue.names.annotations import REQUIRED
from bayplan.runtime.core.clock import SystemClock
from bayplan.runtime.core.journal import FileJournal
from tests.unit.assembly.test_local_cluster import JOBS, NODES, QUEUE_KINDS, QUICKSTART, SAMPLE_JOB, World

LONG, WIDE = GangKey("default", "Job", "long"), GangKey("default", "Job", "wide")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The journal of a world in which a gang runs, one waits, one ends, and a node dies."""
    folder = tmp_path_factory.mktemp("past") / "journal"
    world = World(FileJournal(folder))
    for found in yaml.safe_load_all(QUICKSTART):
        world.store.create(QUEUE_KINDS[found["kind"]], found, found["metadata"].get("namespace", ""))
    world.home.submit(job("long", 2, 4, {REQUIRED: RACK}, 900))
    world.play(3)
    world.home.submit(job("wide", 3, 4, {REQUIRED: RACK}, 5))
    world.home.submit(job("short", 1, 4, {}, 2))
    world.store.create(JOBS, yaml.safe_load(SAMPLE_JOB), "default")
    world.play(8)
    world.store.delete(NODES, "", "b01-r01-h01")
    world.play(2)
    world.home.decision_log.journal.close()
    return folder


@pytest.fixture
def timeline(folder: Path) -> JournalTimeline:
    found = JournalTimeline(folder, DEFAULTS, SystemClock())
    found.read_new()
    return found


def hosts_of(snapshot: DashboardSnapshot, key: GangKey) -> set[str]:
    ids = {entry.id for entry in snapshot.gangs.values() if entry.key == key}
    (shown,) = snapshot.maps
    return {host for host, gang in zip(shown.layout.hosts, shown.layers["gang"], strict=True) if gang in ids}


def sentences(timeline: JournalTimeline, key: GangKey) -> list[str]:
    return [line.shown(ALL)["text"] for line in timeline.history(key)]


def test_decisions_are_the_ones_that_replay_prints(timeline: JournalTimeline, folder: Path) -> None:
    printed = CliRunner().invoke(main, ["replay", str(folder)]).output.splitlines()
    decisions = timeline.decisions(-1, 2**62, 1000)
    assert decisions
    for decision in decisions:
        for line in decision.lines:
            told = f"{decision.sequence} {line.key.name}: {line.text}"
            assert any(one.startswith(told) for one in printed), told


def test_at_an_entry_a_gang_is_where_its_decision_placed_it(timeline: JournalTimeline) -> None:
    decision, line = next(
        (one, line)
        for one in timeline.decisions(-1, 2**62, 1000)
        for line in one.lines
        if line.key == LONG and line.nodes
    )
    before, after = timeline.at(decision.sequence - 1), timeline.at(decision.sequence)
    assert before is not None and after is not None
    assert hosts_of(before, LONG) == set() and hosts_of(after, LONG) == set(line.nodes)
    assert after.now == decision.now


def test_stepping_back_shows_what_stepping_forward_showed(timeline: JournalTimeline, folder: Path) -> None:
    sequences = [one.sequence for one in timeline.decisions(-1, 2**62, 1000)]
    shown = {}
    for number in sequences:
        found = timeline.at(number)
        assert found is not None
        shown[number] = [one.packed() for one in found.maps]
    back = JournalTimeline(folder, DEFAULTS, SystemClock(), timeline._ids)
    back.read_new()
    for number in reversed(sequences):
        found = back.at(number)
        assert found is not None
        free = [one.layers["free"].tolist() for one in found.maps]
        forward = timeline.at(number)
        assert forward is not None and free == [one.layers["free"].tolist() for one in forward.maps]


def test_entries_that_the_journal_does_not_have_are_refused(timeline: JournalTimeline) -> None:
    known = timeline.overview()
    assert (known.first, known.is_read, known.note) == (1, True, "")
    assert timeline.at(0) is None and timeline.at(known.last + 1) is None
    assert timeline.at(known.last) is not None


def test_the_history_of_a_gang_names_its_decisions_and_the_node_that_it_lost(
    timeline: JournalTimeline,
) -> None:
    assert sentences(timeline, LONG)[0].startswith("2 pods on b01-r01-h01, b01-r01-h02")
    assert "a node with its pods was removed: b01-r01-h01" in sentences(timeline, LONG)
    assert sentences(timeline, WIDE)[0].startswith("unschedulable, ")


def test_the_history_of_a_queued_gang_begins_in_its_queue(timeline: JournalTimeline) -> None:
    queued = next(
        line.key
        for one in timeline.decisions(-1, 2**62, 1000)
        for line in one.lines
        if line.key.kind == "Workload"
    )
    told = sentences(timeline, queued)
    assert told[0] == "queued in default/user-queue"
    assert "3 pods admitted by cluster-queue" in told and "admitted: its pods may start" in told


def test_points_of_the_curves_are_the_totals_of_the_maps(timeline: JournalTimeline) -> None:
    points = timeline.overview().points
    assert len(points) > 5
    for sequence, point in points:
        found = timeline.at(sequence)
        assert found is not None
        assert (point.total, point.used, point.fragmentation) == (
            found.totals().total,
            found.totals().used,
            found.totals().fragmentation,
        )
        assert point.pending == found.totals().pending


def test_names_of_nodes_and_of_other_namespaces_are_left_out_for_a_limited_user(
    timeline: JournalTimeline,
) -> None:
    limited = UserView(everything=False, namespaces=frozenset({"default"}), nodes=False)
    assert not [line for line in timeline.history(LONG) if "b01" in line.shown(limited)["text"]]
    blind = UserView(everything=False)
    assert not any(one.shown(blind)["lines"] for one in timeline.decisions(-1, 2**62, 1000))


def test_a_journal_that_grows_is_read_on(tmp_path: Path, folder: Path) -> None:
    (source,) = folder.glob("*.jsonl")
    lines = source.read_bytes().splitlines(keepends=True)
    copy = tmp_path / source.name
    copy.write_bytes(b"".join(lines[:40]) + lines[40][:10])
    timeline = JournalTimeline(tmp_path, DEFAULTS, SystemClock())
    timeline.read_new()
    assert timeline.overview().last == 40, "an incomplete line is being written"
    copy.write_bytes(b"".join(lines))
    timeline.read_new()
    assert timeline.overview().last == len(lines)


def test_a_journal_without_its_beginning_says_so(tmp_path: Path, folder: Path) -> None:
    (source,) = folder.glob("*.jsonl")
    lines = source.read_bytes().splitlines(keepends=True)
    (tmp_path / "journal-000000000021.jsonl").write_bytes(b"".join(lines[20:]))
    timeline = JournalTimeline(tmp_path, DEFAULTS, SystemClock())
    timeline.read_new()
    assert "beginning" in timeline.overview().note and timeline.overview().first == 21
