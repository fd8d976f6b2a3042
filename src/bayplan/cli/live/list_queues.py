"""Queues as tables and as JSON records: pending, reserving and admitted gangs, and the use of quota."""

from __future__ import annotations

from collections.abc import Iterator
from math import inf
from typing import Any

from bayplan.cli.live.gangs import inactive_text
from bayplan.cli.live.state import Live
from bayplan.cli.render.tables import percent, table
from bayplan.explanation.text import amount_text, importance, unit
from bayplan.model.summary import CellUse, GangCounts, NamespaceQueueSummary, QueueSummary, Summaries
from bayplan.state.reports.summaries import summaries

HEADS = (
    "CLUSTERQUEUE", "COHORT", "PENDING", "RESERVING", "ADMITTED", "SHARE", "FLAVOR", "RESOURCE", "USED",
    "NOMINAL", "BORROWED",
)  # fmt: skip
WIDE = ("BORROWING LIMIT", "LENDING LIMIT", "AVAILABLE")
COUNTS = ("PENDING", "RESERVING", "ADMITTED")
RIGHT = (*COUNTS, "SHARE", "USED", "NOMINAL", "BORROWED", *WIDE)
UNLIMITED = "unlimited"


def queue_tables(live: Live, namespace: str, *, wide: bool) -> list[str]:
    """ClusterQueues with a line for each flavor and resource, LocalQueues, and why queues are not active."""
    summary = summaries(live.state)
    rows = [row for name in sorted(summary.queues) for row in _rows(live, summary.queues[name], wide=wide)]
    lines = table((*HEADS, *WIDE) if wide else HEADS, rows, RIGHT)
    local_queues = [
        (one.namespace, one.name, one.queue, *_counts(one.counts), "no" if why else "yes", why)
        for one in _local_queues(summary, namespace)
        for why in [_why_inactive(live, one)]
    ]
    if local_queues:
        heads = ("NAMESPACE", "LOCALQUEUE", "CLUSTERQUEUE", *COUNTS, "ACTIVE", "REASON")
        lines += ["", *table(heads, local_queues, COUNTS)]
    inactive = [text for name in sorted(summary.queues) if (text := inactive_text(live, name))]
    return [*lines, "", *inactive] if inactive else lines


def queue_records(live: Live, namespace: str) -> dict[str, Any]:
    """One JSON record for each queue."""
    summary = summaries(live.state)
    return {
        "clusterQueues": [_record(live, one) for _, one in sorted(summary.queues.items())],
        "localQueues": [
            {
                "namespace": one.namespace,
                "name": one.name,
                "clusterQueue": one.queue,
                **_counted(one.counts),
                "active": one.active,
                "reason": _why_inactive(live, one),
            }
            for one in _local_queues(summary, namespace)
        ],
    }


def _why_inactive(live: Live, one: NamespaceQueueSummary) -> str:
    """Why a LocalQueue admits no gang; empty if it is active."""
    if not one.queue_known:
        return f"there is no ClusterQueue {one.queue}"
    if one.stopped:
        return "it is stopped (spec.stopPolicy)"
    return inactive_text(live, one.queue) or ("" if one.active else f"ClusterQueue {one.queue} is not active")


def cohort_path(live: Live, queue: str) -> str:
    """The cohorts above a queue, from the root down."""
    account = live.state.usage.quota_tree().queues.get(queue)
    if account is None:
        return ""
    return "/".join(reversed([above.name for above in account.ancestors()])) or account.node.parent


def _local_queues(summary: Summaries, namespace: str) -> list[NamespaceQueueSummary]:
    return [one for key, one in sorted(summary.namespace_queues.items()) if namespace in ("", key[0])]


def _rows(live: Live, queue: QueueSummary, *, wide: bool) -> Iterator[list[object]]:
    head: list[object] = [queue.name, cohort_path(live, queue.name), *_counts(queue.counts), _share(queue)]
    if not queue.cells:
        yield [*head, *[""] * (len(HEADS) - len(head) + (len(WIDE) if wide else 0))]
    for cell in _cells(queue):
        yield [*head, *_quota(live, queue, cell, wide=wide)]
        head = [" "] * len(head)


def _cells(queue: QueueSummary) -> list[CellUse]:
    """Quota cells by flavor in the order of the queue, devices first."""
    flavors = list(dict.fromkeys(cell.flavor for cell in queue.cells))
    return sorted(queue.cells, key=lambda cell: (flavors.index(cell.flavor), importance(cell.resource)))


def _quota(live: Live, queue: QueueSummary, cell: CellUse, *, wide: bool) -> list[object]:
    def text(amount: int | None) -> str:
        return UNLIMITED if amount is None else amount_text(cell.resource, amount)

    used, quota = cell.reserved, cell.quota
    row: list[object] = [
        cell.flavor,
        cell.resource,
        text(used),
        text(quota.nominal),
        text(cell.borrowed(used)),
    ]
    if wide:
        limits = [text(quota.borrowing), text(quota.lending)] if cell.can_borrow else ["", ""]
        row += [*limits, text(_available(live, queue, cell))]
    return row


def _available(live: Live, queue: QueueSummary, cell: CellUse) -> int:
    return live.state.usage.quota_tree().queues[queue.name].available((cell.flavor, cell.resource))


def _share(queue: QueueSummary) -> str:
    if not queue.path or queue.share is None:
        return ""
    return "infinite" if queue.share == inf else percent(queue.share / 1000)


def _counts(counts: GangCounts) -> tuple[int, int, int]:
    return counts.pending, counts.reserving, counts.admitted


def _counted(counts: GangCounts) -> dict[str, int]:
    return {"pending": counts.pending, "reserving": counts.reserving, "admitted": counts.admitted}


def _record(live: Live, queue: QueueSummary) -> dict[str, Any]:
    rules, share = live.state.config.queues[queue.name], queue.share or 0.0
    inactive = inactive_text(live, queue.name)
    return {
        "name": queue.name,
        "cohort": cohort_path(live, queue.name),
        **_counted(queue.counts),
        "queueingStrategy": "StrictFIFO" if rules.strict else "BestEffortFIFO",
        "active": not inactive,
        "reason": inactive,
        "fairSharing": {
            "weight": str(float(rules.node.weight)),
            "weightedShare": None if share == inf else int(share),
        },
        "quota": [
            {
                "flavor": cell.flavor,
                "resource": cell.resource,
                "unit": unit(cell.resource),
                "used": cell.reserved,
                "nominal": cell.quota.nominal,
                "borrowed": cell.borrowed(cell.reserved),
                "borrowingLimit": cell.quota.borrowing,
                "lendingLimit": cell.quota.lending,
                "available": _available(live, queue, cell),
            }
            for cell in queue.cells
        ],
    }
