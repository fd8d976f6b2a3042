"""Gangs of the past with their run times: finished Workloads that still exist, and those of the journal."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click

from bayplan.cli.live.replay import body_of
from bayplan.cli.live.state import Live, Object
from bayplan.dialects.errors import Forbidden, NotServed
from bayplan.dialects.kube.fields.reader import Field
from bayplan.dialects.kube.fields.times import seconds
from bayplan.dialects.kueue.decode.workloads import decode_workload
from bayplan.dialects.kueue.status.conditions import ADMITTED, FINISHED, condition_of, is_true
from bayplan.model.change import Change, PodLost, PodSeen, QueuedGangLost, QueuedGangSeen
from bayplan.model.gang import Ref
from bayplan.model.pod import Pod, PodKey
from bayplan.model.queued_gang import QueuedGang
from bayplan.runtime.controllers.admission.controller import AdmissionController
from bayplan.runtime.controllers.scheduler.controller import SchedulerController
from bayplan.runtime.core.journal import Damaged, EntryKind, JournalEntry, replay
from bayplan.simulation.forecast.run_times import RunRequest, series

KEPT_MAX = 5000
"""Past gangs that are looked at, the latest ones."""


_KINDS = {
    AdmissionController.name: (QueuedGangSeen.__name__, QueuedGangLost.__name__),
    SchedulerController.name: (PodSeen.__name__, PodLost.__name__),
}
"""The changes that say when gangs start and end, by role."""


@dataclass(frozen=True, slots=True)
class PastRun:
    """A queued gang that was admitted, and when it ended; 0: it still runs."""

    gang: QueuedGang
    started: float
    ended: float


@dataclass(frozen=True, slots=True)
class PodRun:
    """A gang of the scheduler that has ended."""

    request: RunRequest
    started: float
    ended: float


class JournalRuns:
    """The runs of gangs, from entries of the journal in their order."""

    def __init__(self) -> None:
        self.open: dict[Ref, PastRun] = {}
        self.runs: dict[tuple[Ref, str], PastRun] = {}
        self.pods: dict[PodKey, Ref] = {}  # running pods of gangs of the scheduler
        self.members: dict[Ref, dict[PodKey, float]] = {}  # when each of them started; those that ended too
        self.pod_runs: deque[PodRun] = deque(maxlen=KEPT_MAX)

    def follow(self, entry: JournalEntry) -> None:
        """Take in one entry."""
        if entry.kind is not EntryKind.CHANGE or entry.role not in _KINDS:
            return
        kind = entry.body.get("is") if isinstance(entry.body, dict) else None
        if kind not in _KINDS[entry.role]:
            return
        match body_of(entry, Change):
            case QueuedGangSeen(gang):
                self._seen(gang, entry.now)
            case QueuedGangLost(ref):
                self._ended(ref, entry.now)
            case PodSeen(pod):
                self._pod_seen(pod, entry.now)
            case PodLost(key):
                self._pod_ended(key, entry.now)

    def _pod_seen(self, pod: Pod, now: float) -> None:
        if pod.finished:
            self._pod_ended(pod.key, now)
        elif pod.ours and pod.gang is not None and pod.node and not pod.unbound:
            self.pods[pod.key] = pod.gang
            self.members.setdefault(pod.gang, {}).setdefault(pod.key, pod.started or now)

    def _pod_ended(self, key: PodKey, now: float) -> None:
        """The gang has ended with its last pod."""
        ref = self.pods.pop(key, None)
        if ref is None or any(one in self.pods for one in self.members[ref]):
            return
        members = self.members.pop(ref)
        request = RunRequest(ref.namespace, series(ref.name), str(len(members)))
        self.pod_runs.append(PodRun(request, min(members.values()), now))

    def _seen(self, gang: QueuedGang, now: float) -> None:
        ref = gang.gang.source
        known = self.open.get(ref)
        if known is not None and (known.gang.gang.uid != gang.gang.uid or gang.evicted or not gang.admitted):
            self.open.pop(ref)  # it was stopped before its end: that says nothing of its run time
            known = None
        if gang.admitted and not gang.evicted and known is None:
            self.open[ref] = PastRun(gang, gang.reserved or now, 0.0)

    def _ended(self, ref: Ref, now: float) -> None:
        run = self.open.pop(ref, None)
        if run is not None and now >= run.started:
            self.runs[ref, run.gang.gang.uid] = PastRun(run.gang, run.started, now)
            while len(self.runs) > KEPT_MAX:
                del self.runs[next(iter(self.runs))]


journal_option = click.option(
    "--journal", type=click.Path(exists=True, path_type=Path), metavar="FOLDER",
    help="The journal that `bayplan run` writes: past run times, for expected starts.",
)  # fmt: skip


def runs_of(journal: Path | None) -> JournalRuns:
    """The runs of a journal; none without a journal."""
    return JournalRuns() if journal is None else journal_runs(journal)


def journal_runs(folder: Path) -> JournalRuns:
    """The runs that a journal holds. A journal that cannot be read is an error of the command."""
    found = JournalRuns()
    try:
        for entry in replay(folder):
            found.follow(entry)
    except (Damaged, OSError) as error:
        raise click.ClickException(f"--journal: {error}") from None
    return found


def past_runs(live: Live, journal: Iterable[PastRun] = ()) -> list[PastRun]:
    """All known runs, those that still run included, in order of their start."""
    found: dict[tuple[Ref, str], PastRun] = {
        (one.gang.gang.source, one.gang.gang.uid): one for one in journal
    }
    for ref, workload in live.workloads.items():
        if (run := _of_workload(live, workload)) is not None:
            found[ref, run.gang.gang.uid] = run
    return sorted(found.values(), key=lambda one: one.started)[-KEPT_MAX:]


def _of_workload(live: Live, workload: Object) -> PastRun | None:
    """The run of a Workload that has been admitted; finished ones tell their end."""
    admitted, finished = condition_of(workload, ADMITTED), condition_of(workload, FINISHED)
    if admitted is None or not is_true(workload, ADMITTED):
        return None
    field = Field(workload)
    gang = decode_workload(field, live.settings.resources)
    started = seconds(str(admitted.get("lastTransitionTime") or ""))
    if field.errors or not started or gang.evicted:
        return None
    if finished is None or not is_true(workload, FINISHED):
        return PastRun(gang, started, 0.0)
    ended = seconds(str(finished.get("lastTransitionTime") or ""))
    return PastRun(gang, started, ended) if ended >= started else None


def limits_of_jobs(live: Live, kinds: dict[str, Any]) -> Iterator[tuple[tuple[str, str, str], Object]]:
    """The jobs that own Workloads, by kind, namespace and name; kinds that cannot be listed are left out."""
    for kind, known in kinds.items():
        try:
            listed = live.listed(known)
        except (Forbidden, NotServed):
            continue
        for one in listed:
            meta = one.get("metadata", {})
            yield (kind, meta.get("namespace", ""), meta.get("name", "")), one
