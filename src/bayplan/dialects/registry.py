"""The families of the scheduler, of admission and of webhooks: by kind, and by the dialect of a gang."""

from __future__ import annotations

from collections.abc import Collection, Iterator

from bayplan.dialects.api import Event, Write
from bayplan.dialects.dialect import Dialect, Membership, QueueDialect, Reader, SlotReader, StatusSource
from bayplan.dialects.kai.decode.events import GroupDecoder
from bayplan.dialects.kai.decode.group_dialect import GroupDialect
from bayplan.dialects.kai.decode.group_statuses import GroupStatuses
from bayplan.dialects.kube.decode import volumes
from bayplan.dialects.kube.decode.pod_spec_cache import PodSpecCache
from bayplan.dialects.kube.decode.wire import PodWire
from bayplan.dialects.kube.encode.gang_dialect import GangDialect
from bayplan.dialects.kube.gang.events import SchedulingDecoder
from bayplan.dialects.kueue.conversion.workload import GROUP, V1BETA2
from bayplan.dialects.kueue.decode import slots, workload_devices
from bayplan.dialects.kueue.decode.job_dialect import JobDialect
from bayplan.dialects.kueue.decode.scheduled_jobs import SCHEDULER
from bayplan.dialects.kueue.decode.workload_devices import WorkloadDevices
from bayplan.dialects.kueue.fields.counting import NO_TRANSFORMATIONS, Counting
from bayplan.dialects.kueue.status.misfit_messages import misfit_message
from bayplan.dialects.kueue.webhooks.reviews import QueueFacts
from bayplan.dialects.kueue.workload_dialect import WorkloadDialect
from bayplan.dialects.nrt.decoder import NumaReportDecoder
from bayplan.dialects.nrt.hints import zone_hint
from bayplan.dialects.reviews import NO_LOOK_UPS, LookUps, Reviewed, WatchedFacts
from bayplan.model.change import Change
from bayplan.model.gang import Ref

__all__ = [
    "ADMISSION_KINDS",
    "KINDS",
    "NO_TRANSFORMATIONS",
    "REVIEWED_AS",
    "SCHEDULER",
    "AdmissionDialects",
    "Counting",
    "PodSpecCache",
    "SchedulerDialects",
    "reviews",
    "watched_facts",
]

KINDS = (
    *(*GangDialect.kinds, *JobDialect.kinds, *NumaReportDecoder.kinds, *GroupDialect.kinds),
    *(*slots.WorkloadSlots.kinds, slots.WorkloadSlots.templates, *slots.FlavorReader.kinds),
)
ADMISSION_KINDS = (
    *(*WorkloadDialect.kinds, *NumaReportDecoder.kinds, *volumes.KINDS),
    *workload_devices.KINDS,
)

REVIEWED_AS = {GROUP: V1BETA2}
"""The version in which webhook functions get the objects of a group; the API server converts to it."""


def reviews(look_ups: LookUps = NO_LOOK_UPS) -> Iterator[Reviewed]:
    """The webhook functions of all families; those of one resource are called in this order."""
    for family in (WorkloadDialect, GangDialect, GroupDialect, JobDialect, NumaReportDecoder):
        yield from family.reviews(look_ups)


def watched_facts() -> WatchedFacts:
    """What the look-ups of webhook functions need of watched objects."""
    return QueueFacts()


class SchedulerDialects:
    """Pods with a scheduler name in `one_by_one` belong to no gang but one they name themselves."""

    def __init__(
        self,
        schedulers: Collection[str],
        one_by_one: Collection[str] = (),
        awaits_grouper: bool = False,
        pod_specs: PodSpecCache | None = None,
    ) -> None:
        self.one_by_one = frozenset(one_by_one)
        self.numa = NumaReportDecoder()
        self.groups = GroupDecoder(awaits_grouper)
        self.pods = SchedulingDecoder(schedulers, self.membership, slots.slot_of, pod_specs)
        self._group_dialect = GroupDialect(self.groups)
        self.dialects: tuple[Dialect, ...] = (  # a pod is joined to a group before its job counts
            GangDialect(self.pods, misfit_message),
            self._group_dialect,
            JobDialect(frozenset(schedulers) - self.one_by_one),
        )
        self.readers: tuple[Reader, ...] = (*self.dialects, self.numa, slots.FlavorReader())
        self.statuses: StatusSource = GroupStatuses(self.groups)
        self.slots: SlotReader = slots.WorkloadSlots(self.pods.devices)
        self.binding_notes = zone_hint
        """The annotations of a pod that is bound, from its NUMA zones."""
        self._by_kind = {kind: reader for reader in self.readers for kind in reader.kinds}
        self._by_name = {name: dialect for dialect in self.dialects for name in dialect.names}

    def of(self, gang: Ref) -> Dialect:
        """The dialect of a gang."""
        return self._by_name[gang.dialect]

    def starts_in_parts(self, gang: Ref) -> bool:
        """Whether each bind counts as a start; a journal may name a dialect that this version lacks."""
        dialect = self._by_name.get(gang.dialect)
        return dialect is not None and dialect.starts_in_parts(gang)

    def decode(self, event: Event) -> Iterator[Change]:
        """The changes that an event means."""
        if event.kind.group == self.slots.templates.group:
            self.slots.note(event)
            if event.kind == self.slots.templates:
                return iter(())
        reader = self._by_kind[event.kind]
        return self._positioned(reader, reader.decode(event))

    def flush(self) -> Iterator[Change]:
        """The changes that follow from all events since the last call together."""
        for reader in self.readers:
            yield from self._positioned(reader, reader.flush())

    def membership(self, pod: PodWire) -> Membership | None:
        """The gang that a pod is joined to, or else the job that owns it."""
        if pod.spec.scheduler_name not in self.one_by_one:
            for dialect in self.dialects:
                if (found := dialect.membership(pod)) is not None:
                    return found
        return None

    def _positioned(self, reader: Reader, changes: Iterator[Change]) -> Iterator[Change]:
        """The same changes with each pod at its position in its group; groups do that themselves."""
        return changes if reader is self._group_dialect else self.groups.position_pods(changes)


class AdmissionDialects:
    """The family with queues, and the readers of what its gangs are placed on.

    With `binding_filters`, pods, volumes and devices are read as binding reads them.
    """

    def __init__(
        self,
        counting: Counting = NO_TRANSFORMATIONS,
        *,
        protects: bool = False,
        binding_filters: bool = True,
        pod_specs: PodSpecCache | None = None,
        detailed_reasons: bool = True,
    ) -> None:
        specs = (pod_specs or PodSpecCache()) if binding_filters else None
        self.devices = WorkloadDevices(counting, places=binding_filters)
        self.queues: QueueDialect = WorkloadDialect(
            counting,
            protects=protects,
            pod_specs=specs,
            devices=self.devices,
            detailed_reasons=detailed_reasons,
        )
        self.numa = NumaReportDecoder()
        of_quota = (
            workload_devices.COUNTER_KINDS if counting.counts_counters else workload_devices.QUOTA_KINDS
        )
        of_filters = {*volumes.KINDS, *workload_devices.KINDS} - {*of_quota}
        without_filters = tuple(kind for kind in ADMISSION_KINDS if kind not in of_filters)
        self.kinds = ADMISSION_KINDS if binding_filters else without_filters
        self.readers: tuple[Reader, ...] = (self.numa,)
        self._by_kind = {kind: reader for reader in self.readers for kind in reader.kinds}

    def decode(self, event: Event) -> Iterator[Change]:
        """The changes that an event means."""
        if event.kind in workload_devices.KINDS:
            return self.devices.decode(event)
        reader = self._by_kind.get(event.kind)
        return self.queues.decode(event) if reader is None else reader.decode(event)

    def flush(self) -> Iterator[Change]:
        """The changes that follow from all events since the last call together."""
        return self.devices.flush()

    def reconcile(self, now: float) -> Iterator[Write]:
        """Writes of the readers."""
        for reader in self.readers:
            yield from reader.reconcile(now)
