"""Queues as tables, and as records for machines: who waits, who has quota, how much of it is used."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from bayplan.cli.gang_facts import closed_words
from bayplan.cli.live_state import Live
from bayplan.cli.tables import percent, table
from bayplan.cli.words import amount_text, importance
from bayplan.model.quota import Cell, Entrance, Queue, Stop
from bayplan.scheduling.round import share
from bayplan.state.queries import Tally, tallies
from bayplan.state.quotas import Account

HEADS = (
    "CLUSTERQUEUE", "COHORT", "PENDING", "RESERVING", "ADMITTED", "SHARE", "FLAVOR", "RESOURCE", "USED",
    "NOMINAL", "BORROWED",
)  # fmt: skip
WIDE = ("CAN BORROW", "LENDS", "FREE")
COUNTS = ("PENDING", "RESERVING", "ADMITTED")
RIGHT = (*COUNTS, "SHARE", "USED", "NOMINAL", "BORROWED", *WIDE)
NO_LIMIT = "all"


def queue_tables(live: Live, namespace: str, *, wide: bool) -> list[str]:
    """ClusterQueues with a line for each flavor and resource, then the LocalQueues, then what is wrong."""
    by_queue, by_entrance = tallies(live.state)
    rows = []
    for name in sorted(live.state.rules.queues):
        rows += list(_rows(live, name, by_queue.get(name, Tally()), wide=wide))
    lines = table((*HEADS, *WIDE) if wide else HEADS, rows, RIGHT)
    entrances = [
        (e.namespace, e.name, e.queue, *_counts(by_entrance.get((e.namespace, e.name), Tally())), _stop(e))
        for e in _entrances(live, namespace)
    ]
    if entrances:
        lines += ["", *table(("NAMESPACE", "LOCALQUEUE", "CLUSTERQUEUE", *COUNTS, "OPEN"), entrances, COUNTS)]
    closed = [words for name in sorted(live.state.rules.queues) if (words := closed_words(live, name))]
    return [*lines, "", *closed] if closed else lines


def queue_records(live: Live, namespace: str) -> dict[str, Any]:
    """All queues."""
    by_queue, by_entrance = tallies(live.state)
    return {
        "clusterQueues": [
            _record(live, queue, by_queue.get(name, Tally()))
            for name, queue in sorted(live.state.rules.queues.items())
        ],
        "localQueues": [
            {
                "namespace": e.namespace,
                "name": e.name,
                "clusterQueue": e.queue,
                **_counted(by_entrance.get((e.namespace, e.name), Tally())),
                "open": e.stop is Stop.OPEN,
            }
            for e in _entrances(live, namespace)
        ],
    }


def cohort_path(account: Account) -> str:
    """The cohorts above a queue, from the root down."""
    return "/".join(reversed([above.name for above in account.ancestors()])) or account.node.parent


def _entrances(live: Live, namespace: str) -> list[Entrance]:
    known = live.state.rules.entrances
    return [known[key] for key in sorted(known) if namespace in ("", key[0])]


def _rows(live: Live, name: str, tally: Tally, *, wide: bool) -> Iterator[list[object]]:
    account = live.state.holdings.books().queues[name]
    head: list[object] = [name, cohort_path(account), *_counts(tally), _share_text(account)]
    cells = _cells(account)
    if not cells:
        yield [*head, *[""] * (len(HEADS) - len(head) + (len(WIDE) if wide else 0))]
    for cell in cells:
        yield [*head, *_quota(account, cell, wide=wide)]
        head = [" "] * len(head)


def _quota(account: Account, cell: Cell, *, wide: bool) -> list[object]:
    (flavor, resource), quota, used = cell, account.quota(cell), account.usage.get(cell, 0)

    def text(amount: int | None, none: str = "") -> str:
        return none if amount is None else amount_text(resource, amount)

    borrowed = max(0, used - quota.nominal)
    row: list[object] = [flavor, resource, text(used), text(quota.nominal), text(borrowed)]
    if wide:
        shares = account.parent is not None
        limit = text(quota.borrowing, NO_LIMIT) if shares else ""
        lends = text(quota.lending, NO_LIMIT) if shares else ""
        row += [limit, lends, text(account.available(cell))]
    return row


def _cells(account: Account) -> list[Cell]:
    known = set(account.node.quotas) | {cell for cell, used in account.usage.items() if used}
    order = list(account.node.quotas)
    flavors = list(dict.fromkeys(cell[0] for cell in order))

    def rank(cell: Cell) -> tuple[int, str, tuple[int, str]]:
        place = flavors.index(cell[0]) if cell[0] in flavors else len(flavors)
        return place, cell[0], importance(cell[1])

    return sorted(known, key=rank)


def _share_text(account: Account) -> str:
    if account.parent is None:
        return ""
    infinite, weighted, _ = share(account)
    return "no limit" if infinite else percent(float(weighted) / 1000)


def _counts(tally: Tally) -> tuple[int, int, int]:
    return tally.pending, tally.reserving, tally.admitted


def _counted(tally: Tally) -> dict[str, int]:
    return {"pending": tally.pending, "reserving": tally.reserving, "admitted": tally.admitted}


def _stop(entrance: Entrance) -> str:
    return "yes" if entrance.stop is Stop.OPEN else "no, drains" if entrance.stop is Stop.DRAIN else "no"


def _record(live: Live, queue: Queue, tally: Tally) -> dict[str, Any]:
    account = live.state.holdings.books().queues[queue.name]
    infinite, weighted, _ = share(account)
    return {
        "name": queue.name,
        "cohort": cohort_path(account),
        **_counted(tally),
        "strict": queue.strict,
        "closed": closed_words(live, queue.name),
        "fairSharing": {
            "weight": str(float(account.node.weight)),
            "weightedShare": None if infinite else int(weighted),
        },
        "quota": [
            {
                "flavor": cell[0],
                "resource": cell[1],
                "used": account.usage.get(cell, 0),
                "nominal": account.quota(cell).nominal,
                "borrowed": max(0, account.usage.get(cell, 0) - account.quota(cell).nominal),
                "borrowingLimit": account.quota(cell).borrowing,
                "lendingLimit": account.quota(cell).lending,
                "available": account.available(cell),
            }
            for cell in _cells(account)
        ],
    }
