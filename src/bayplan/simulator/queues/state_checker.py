"""Whether what admission believes agrees with itself, and with what a fresh start would believe."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import Any

from bayplan.backends.embedded.http.backend import EmbeddedBackend
from bayplan.backends.embedded.storage.store import Store
from bayplan.model.gang import Ref
from bayplan.model.plan import Admit, EvictGang, Plan
from bayplan.runtime.controllers.admission.controller import AdmissionController
from bayplan.runtime.core.journal import MemoryJournal
from bayplan.runtime.core.loop import Loop
from bayplan.simulator.core.fixtures import LISTED
from bayplan.simulator.core.thrown_errors import ErrorInjection
from bayplan.simulator.queues.workload_view import conditions_of
from bayplan.state.admission.queues import NEVER, QueueEntryState
from bayplan.state.admission.quota_tree import QuotaTree
from bayplan.state.admission.state import AdmissionState
from bayplan.state.admission.usage import AdmittedUsage

HOLDERS = (QueueEntryState.COMMITTED, QueueEntryState.HOLDING, QueueEntryState.PLACING)
ROUNDS_MAX = 60


def belief_is_consistent(state: AdmissionState) -> Iterator[str]:
    """The books are what gangs hold in sum, and every gang is in exactly one place."""
    if state.holdings.made is not None:
        recount = QuotaTree(state.holdings.shared, (queue.node for queue in state.holdings.queues))
        for holding in state.holdings.by_gang.values():
            recount.use(holding.queue, holding.quota)
        ours, theirs = _usage(state.holdings.made), _usage(recount)
        if ours != theirs:
            yield f"the books say {ours}, gangs hold {theirs}"
    in_line: dict[Ref, list[str]] = {}
    for name, line in state.lines.lines.items():
        for standing in line.waiting():
            in_line.setdefault(standing.demand.gang.source, []).append(name)
    for ref, standing in state.lines.standings.items():
        lines = in_line.pop(ref, [])
        if lines != ([standing.queue] if standing.place is QueueEntryState.WAITING else []):
            yield f"gang {ref.name} is {standing.place} and stands in {lines}"
        if (standing.place in HOLDERS) != (ref in state.holdings.by_gang):
            yield f"gang {ref.name} is {standing.place}, and its quota is not accounted for so"
        if standing.place in (QueueEntryState.BACKOFF, QueueEntryState.COMMITTED) and standing.due == NEVER:
            yield f"gang {ref.name} is {standing.place} forever"
    for ref in [*in_line, *(ref for ref in state.holdings.by_gang if ref not in state.lines.standings)]:
        yield f"gang {ref.name} is gone and still accounted for"


def check_free_capacity(state: AdmissionState) -> Iterator[str]:
    """What is free under every topology is what nodes have, less what gangs and pods take."""
    known = state.holdings
    recount = AdmittedUsage(flavors=dict(known.flavors), shared=known.shared, queues=known.queues)
    recount.put_nodes(known.nodes)
    for name, cluster in known.clusters.items():
        recount.set_topology(name, cluster.topology, state.ledger.by_node())
    for holding in known.by_gang.values():
        recount.take(holding)
    for name, cluster in known.clusters.items():
        other = recount.clusters[name]
        for node in known.nodes:
            if _nonzero(cluster.used.get(node, {})) != _nonzero(other.used.get(node, {})):
                taken = f"{cluster.used.get(node)} taken on {node} instead of {other.used.get(node)}"
                yield f"topology {name} has {taken}"
        held = (
            {key: _nonzero(amounts) for key, amounts in c.held.items() if _nonzero(amounts)}
            for c in (cluster, other)
        )
        ours, theirs = held
        if ours != theirs:
            yield f"topology {name} has {ours} promised instead of {theirs}"
        one, two = cluster.snapshot(), other.snapshot()
        for resource, row in one.resources.items():
            if resource not in two.resources:
                continue
            free = two.free[two.resources[resource]]
            if (one.free[row] != free).any():
                yield f"topology {name} has {one.free[row]} {resource} free instead of {free}"


def final_violations(
    role: AdmissionController, store: Store, now: float, error_injection: ErrorInjection | None = None
) -> Iterator[str]:
    """After the faults: nothing is under way, and a fresh start would believe and decide the same."""
    state = role.state
    spared = {key for key in role.agenda if error_injection is not None and error_injection.expects(key[1])}
    if role.flying or set(role.agenda) - spared:
        yield f"under way forever: {sorted(role.flying)} and {sorted(set(role.agenda) - spared)}"
    for ref, standing in state.lines.standings.items():
        if standing.place is QueueEntryState.COMMITTED:
            yield f"gang {ref.name} is still {standing.place}"
    yield from check_free_capacity(state)
    yield from _told(role, store)
    fresh = AdmissionController(role.profile)
    Loop(EmbeddedBackend(store), (fresh,), MemoryJournal()).take_in(now)
    ours, theirs = _usage(state.holdings.books()), _usage(fresh.state.holdings.books())
    if ours != theirs:
        yield f"the books say {ours}, a fresh list gives {theirs}"
    yield from check_same_capacity(state, fresh.state)
    for ref, standing in fresh.state.lines.standings.items():
        mine = state.lines.standings.get(ref)
        if mine is None or mine.place != standing.place or mine.queue != standing.queue:
            yield f"gang {ref.name} is {mine and mine.place}, a fresh list has it {standing.place}"
    decide = fresh.decide if error_injection is None else partial(error_injection.decide, fresh)
    yield from _stuck(role, fresh, decide, now)


def check_same_capacity(state: AdmissionState, fresh: AdmissionState) -> Iterator[str]:
    """The same room is free under every topology."""
    ours, theirs = state.holdings.supplies(), fresh.holdings.supplies()
    if set(ours) != set(theirs):
        yield f"topologies {sorted(ours)} are known, a fresh list has {sorted(theirs)}"
        return
    for name, supply in ours.items():
        other = theirs[name]
        if supply.tree.nodes.tolist() != other.tree.nodes.tolist():
            yield f"topology {name} has other nodes than a fresh list"
            continue
        for resource, row in other.resources.items():
            if (
                resource not in supply.resources
                or (supply.free[supply.resources[resource]] != other.free[row]).any()
            ):
                yield f"topology {name} has another {resource} free than a fresh list"


def _stuck(
    role: AdmissionController, fresh: AdmissionController, decide: Callable[[Any, float], Plan], now: float
) -> Iterator[str]:
    """Rounds of a fresh start, until it has nobody left to try."""
    for _ in range(ROUNDS_MAX):
        view = fresh.look(now)
        if view is None:
            return
        plan = decide(view, now)
        found = []
        for action in plan.actions:
            standing = role.state.lines.standings.get(action.gang)
            if standing is not None and standing.place is QueueEntryState.PLACING and standing.due > now:
                continue  # ours tries again, too
            if isinstance(action, Admit):
                found.append(f"gang {action.gang.name} would be admitted but waits")
            elif isinstance(action, EvictGang):
                found.append(f"gang {action.gang.name} would have to leave but stays")
        yield from found
        if found:
            return
        fresh.assume(plan, now)
    yield "a fresh start decides forever"


def _told(role: AdmissionController, store: Store) -> Iterator[str]:
    """Whoever waits was told why."""
    strict = {name: line.strict for name, line in role.state.lines.lines.items()}
    told = {w["metadata"]["name"]: conditions_of(w) for w in store.list(LISTED["workloads"]).items}
    for ref, standing in role.state.lines.standings.items():
        if strict.get(standing.queue):
            continue  # those behind the first were not looked at
        if standing.place is QueueEntryState.WAITING and "QuotaReserved" not in told.get(
            ref.name, {"QuotaReserved": False}
        ):
            yield f"gang {ref.name} waits and was never told why"


def _usage(books: QuotaTree) -> dict[str, dict[str, int]]:
    accounts = [*((f"queue {n}", a) for n, a in books.queues.items()), *books.shared.items()]
    found = {name: {"/".join(c): n for c, n in sorted(a.usage.items()) if n} for name, a in accounts}
    return {name: usage for name, usage in sorted(found.items()) if usage}


def _nonzero(amounts: Mapping[str, int]) -> dict[str, int]:
    return {name: amount for name, amount in amounts.items() if amount}
