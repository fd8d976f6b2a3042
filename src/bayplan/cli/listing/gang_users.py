"""Whose gang it is: the value of a label on the gang, its job or its pods. Kubernetes records no creator."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import cached_property
from typing import Any

from bayplan.cli.live.gangs import GangFacts
from bayplan.cli.live.list_scheduled import Name, ScheduledRow
from bayplan.cli.live.scheduled_state import Scheduled
from bayplan.cli.live.state import Live
from bayplan.dialects.kai.api.wire import KaiPodGroupWire
from bayplan.explanation.text import shown_name
from bayplan.model.gang import Ref

Labels = Mapping[str, str]


class GangUsers:
    """Finds the users of the gangs of one cluster by a label."""

    def __init__(self, live: Live, scheduled: Scheduled, label: str) -> None:
        self.live, self.scheduled, self.label = live, scheduled, label

    def of_queued(self, one: GangFacts) -> str:
        """The label of the Workload, of its job, or of its pod templates."""
        ref = one.queued_gang.gang.source
        workload = self.live.workloads.get(ref, {})
        kind, _, name = one.owner.partition("/")
        pod_sets = (workload.get("spec") or {}).get("podSets") or ()
        return (
            self._label(_labels(workload))
            or self.by_owner.get((kind, ref.namespace, name), "")
            or next(filter(None, (self._label(_labels(one.get("template"))) for one in pod_sets)), "")
        )

    def of_group(self, one: KaiPodGroupWire) -> str:
        """The label of the group, which the grouper copies from its owner, or of its pods."""
        meta = one.metadata
        return self._label(meta.labels or {}) or self.by_owner.get(
            ("PodGroup", meta.namespace or "default", meta.name), ""
        )

    def of_row(self, row: ScheduledRow) -> str:
        """The label of the job, or of its pods."""
        return self.by_owner.get((row.kind, row.namespace, row.name), "")

    @cached_property
    def by_owner(self) -> dict[Name, str]:
        """The user of every job, gang, controller and pod that has one; a job's own label comes first."""
        found: dict[Name, str] = {}
        for ref, job in self.scheduled.jobs.items():
            if user := self._label(_labels(job)):
                found[ref.kind, ref.namespace, ref.name] = user
        pods = self.scheduled.controller.state.store.pods
        for key, wire in self.scheduled.pods.items():
            if user := self._label(wire.metadata.labels or {}):
                gang = pods[key].gang if key in pods else None
                owner = self.scheduled.owner(key)
                for name in _names(gang, (owner.kind, owner.name) if owner else None, key.namespace):
                    found.setdefault(name, user)
                found.setdefault(("Pod", key.namespace, key.name), user)
        return found

    def _label(self, labels: Labels) -> str:
        return str(labels.get(self.label) or "")


def _names(gang: Ref | None, owner: tuple[str, str] | None, namespace: str) -> Iterator[Name]:
    if gang is not None:
        yield gang.kind, gang.namespace, gang.name
        yield gang.kind, gang.namespace, shown_name(gang)
    if owner is not None:
        yield owner[0], namespace, owner[1]


def _labels(obj: Any) -> Labels:
    labels: Labels = ((obj or {}).get("metadata") or {}).get("labels") or {}
    return labels
