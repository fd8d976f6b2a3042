"""All gangs of a cluster that pass the filters: queued ones, pod groups, and what the scheduler places."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from bayplan.cli.listing.gang_selection import EVERYTHING, LAST, GangSelection, GangTraits
from bayplan.cli.listing.gang_users import GangUsers
from bayplan.cli.live.gangs import ClusterOutlook, GangFacts, outlook
from bayplan.cli.live.list_gangs import Starts, gang_columns, gang_records
from bayplan.cli.live.list_groups import group_columns, group_facts, group_records, pod_groups
from bayplan.cli.live.list_scheduled import (
    ScheduledRow,
    scheduled_columns,
    scheduled_records,
    scheduled_rows,
    with_starts,
)
from bayplan.cli.live.scheduled_state import Scheduled, queue_of
from bayplan.cli.live.state import Live
from bayplan.cli.render.tables import column_table
from bayplan.dialects.kai.api.names import USER_LABEL
from bayplan.dialects.kai.api.wire import KaiPodGroupWire
from bayplan.dialects.kube.fields.times import seconds
from bayplan.model.gang import Ref


@dataclass(frozen=True, slots=True)
class GangListing:
    """The gangs of three tables, chosen and sorted."""

    live: Live
    users: GangUsers
    queued: list[GangFacts]
    groups: list[KaiPodGroupWire]
    rows: list[ScheduledRow]
    starts: Starts
    unmatched: str  # why there is none although the namespace has gangs

    @property
    def is_empty(self) -> bool:
        return not (self.queued or self.groups or self.rows)

    @property
    def unread(self) -> list[str]:
        """Kinds that the user may not list."""
        return self.users.scheduled.unread

    def tables(self, *, wide: bool) -> list[list[str]]:
        """The lines of each table that has gangs."""
        live, users = self.live, self.users
        made = (
            column_table(gang_columns(live, users.of_queued, self.starts), self.queued, wide=wide),
            column_table(group_columns(live, users.of_group, self.starts), self.groups, wide=wide),
            column_table(scheduled_columns(live, users.of_row), self.rows, wide=wide),
        )
        return [lines for lines in made if len(lines) > 1]

    def records(self) -> list[dict[str, Any]]:
        """One JSON record for each gang."""
        records = [
            *gang_records(self.live, self.queued, self.starts),
            *group_records(self.live, self.groups, self.starts),
            *scheduled_records(self.rows, self.live.now),
        ]
        users = (
            *map(self.users.of_queued, self.queued),
            *map(self.users.of_group, self.groups),
            *map(self.users.of_row, self.rows),
        )
        return [{**record, "user": user} for record, user in zip(records, users, strict=True)]


def list_gangs(
    live: Live,
    scheduled: Scheduled,
    namespace: str = "",
    selection: GangSelection = EVERYTHING,
    user_label: str = USER_LABEL,
    *,
    forecast: Callable[[ClusterOutlook], Starts],
) -> GangListing:
    """The gangs of a namespace (empty: of all); `forecast` tells when those that wait will start."""
    cluster = outlook(live)
    starts = forecast(cluster)
    queued = [one for one in cluster.gangs if namespace in ("", one.queued_gang.gang.source.namespace)]
    groups = pod_groups(live, namespace)
    rows = with_starts(scheduled_rows(live, scheduled, namespace), starts)
    traits = _Traits(live, GangUsers(live, scheduled, user_label))
    listing = GangListing(
        live,
        traits.users,
        selection.chosen(queued, traits.of_queued),
        selection.chosen(groups, traits.of_group),
        selection.chosen(rows, traits.of_row),
        starts,
        "",
    )
    if not (listing.is_empty and selection.filters and (queued or groups or rows)):
        return listing
    every = [*map(traits.of_queued, queued), *map(traits.of_group, groups), *map(traits.of_row, rows)]
    return GangListing(live, traits.users, [], [], [], {}, selection.unmatched(every))


@dataclass(frozen=True, slots=True)
class _Traits:
    """What gangs of each table are chosen by."""

    live: Live
    users: GangUsers

    def of_queued(self, one: GangFacts) -> GangTraits:
        queued = one.queued_gang
        admission = queued.admission
        return GangTraits(
            queued.gang.source.namespace,
            queued.gang.source.name,
            one.state,
            (queued.namespace_queue[1], admission.queue if admission is not None else one.entry.queue),
            self.users.of_queued(one),
            one.token,
            one.why,
            queued.created,
            queued.gang.priority,
            one.pods,
            one.position.position if one.position is not None else LAST,
        )

    def of_group(self, one: KaiPodGroupWire) -> GangTraits:
        facts = group_facts(self.live, one)
        reason, _, message = str(facts["REASON"]).partition(": ")
        return GangTraits(
            str(facts["NAMESPACE"]),
            one.metadata.name,
            str(facts["STATE"]),
            (one.spec.queue,) if one.spec.queue else (),
            self.users.of_group(one),
            reason,
            message,
            seconds(one.metadata.creation_timestamp or ""),
            pods=one.spec.min_member or 1,
        )

    def of_row(self, row: ScheduledRow) -> GangTraits:
        return GangTraits(
            row.namespace,
            row.name,
            row.state,
            tuple(_queues(self.users.scheduled, row)),
            self.users.of_row(row),
            message=row.message,
            created=row.created,
            priority=row.priority,
            pods=row.pods,
        )


def _queues(scheduled: Scheduled, row: ScheduledRow) -> Iterator[str]:
    """The queue that a job names although it has no Workload yet."""
    job = scheduled.jobs.get(Ref("kueue", row.kind, row.namespace, row.name))
    if job is not None and (queue := queue_of(job)):
        yield queue
