"""A journal is decided on again and every plan comes out the same, however long gangs were incomplete."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

from bayplan.backends.embedded.http.backend import EmbeddedBackend
from bayplan.cli.live.replay import Replaying, body_of
from bayplan.configuration.settings import DEFAULTS
from bayplan.dialects.api import Ended, WriteOutcome
from bayplan.dialects.kube.gang_api.gates import V1ALPHA1, V1ALPHA2
from bayplan.model.plan import Bind, MarkStarted, Plan
from bayplan.runtime.controllers.scheduler.controller import SchedulerController
from bayplan.runtime.core.journal import EntryKind, FileJournal, JournalEntry, replay
from bayplan.runtime.core.loop import Loop
from tests.unit.runtime.controllers.scheduler.test_controller import OF_GROUP, OF_WORKLOAD, Site


def replayed(folder: Path) -> tuple[Replaying, list[JournalEntry]]:
    replaying, entries = Replaying(DEFAULTS), list(replay(folder))
    for entry in entries:
        replaying.apply(entry)
    return replaying, entries


def test_a_gang_that_is_incomplete_for_a_while_is_reported_at_the_same_moment(tmp_path: Path) -> None:
    site = Site(V1ALPHA1, journal=FileJournal(tmp_path))
    site.workload(3)
    for name in ("a", "b"):
        site.pod(name, **OF_WORKLOAD)
        site.run(3)  # the delay until the report counts from the first look, not from the report
    site.run(30)
    assert "2 of 3 are there" in site.said("a")[2]
    site.pod("c", **OF_WORKLOAD)
    site.run(10)
    assert site.on("a", "b", "c") != ["", "", ""]
    replaying, entries = replayed(tmp_path)
    assert replaying.result.different == 0
    assert sum(entry.kind is EntryKind.PLAN for entry in entries) >= 2


def test_a_replica_that_stood_by_first_replays_the_same(tmp_path: Path) -> None:
    """It has asked its state nothing until it led, and the replay does not either."""
    site = Site(V1ALPHA1, journal=FileJournal(tmp_path))
    leads = [False]
    site.role = SchedulerController()
    site.loop = Loop(site.loop.backend, (site.role,), site.journal, may_write=lambda now: leads[0])
    site.workload(2)
    site.pod("a", **OF_WORKLOAD)
    site.run(60)
    leads[0] = True
    site.run(20)
    assert "1 of 2 are there" in site.said("a")[2]
    assert replayed(tmp_path)[0].result.different == 0


class LosesAnswers(EmbeddedBackend):
    """Binds are made, and the answers are lost."""

    def outcomes(self) -> Iterable[WriteOutcome]:
        for one in super().outcomes():
            is_bind = isinstance(one.write.tag, Bind)
            yield replace(one, ended=Ended.TIMED_OUT, message="no answer") if is_bind else one


def test_a_start_whose_binds_got_no_answer_is_recorded_again_in_the_replay(tmp_path: Path) -> None:
    site = Site(V1ALPHA2, journal=FileJournal(tmp_path))
    site.loop = Loop(LosesAnswers(site.store), (site.role,), site.journal)
    site.group(V1ALPHA2, 2)
    for name in ("a", "b"):
        site.pod(name, **OF_GROUP)
    site.run(30)
    assert site.on("a", "b") != ["", ""]
    replaying, entries = replayed(tmp_path)
    starts = [
        action
        for entry in entries
        if entry.kind is EntryKind.PLAN
        for action in body_of(entry, Plan).actions
        if isinstance(action, MarkStarted)
    ]
    assert len(starts) > 1 and replaying.result.different == 0


def test_a_state_that_nothing_changes_adds_no_looks_to_the_journal(tmp_path: Path) -> None:
    site = Site(V1ALPHA1, journal=FileJournal(tmp_path))
    site.pod("a")
    site.run(10)
    before = len(list(replay(tmp_path)))
    site.run(300)
    assert len(list(replay(tmp_path))) <= before + 1
