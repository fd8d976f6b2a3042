"""Checks that the admission state is consistent, and equal to the state after a restart."""

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
CYCLES_MAX = 60


def belief_is_consistent(state: AdmissionState) -> Iterator[str]:
    """The quota tree is the sum of what gangs use, and every gang has exactly one queue state."""
    if state.holdings.made is not None:
        recount = QuotaTree(state.holdings.shared, (queue.node for queue in state.holdings.queues))
        for holding in state.holdings.by_gang.values():
            recount.use(holding.queue, holding.quota)
        ours, theirs = _usage(state.holdings.made), _usage(recount)
        if ours != theirs:
            yield f"the quota tree says {ours}, gangs use {theirs}"
    pending_in: dict[Ref, list[str]] = {}
    for name, queue in state.lines.lines.items():
        for entry in queue.waiting():
            pending_in.setdefault(entry.demand.gang.source, []).append(name)
    for ref, entry in state.lines.standings.items():
        queues = pending_in.pop(ref, [])
        if queues != ([entry.queue] if entry.place is QueueEntryState.WAITING else []):
            yield f"gang {ref.name} is {entry.place} and is pending in {queues}"
        if (entry.place in HOLDERS) != (ref in state.holdings.by_gang):
            yield f"gang {ref.name} is {entry.place}, and its quota is not counted accordingly"
        if entry.place in (QueueEntryState.BACKOFF, QueueEntryState.COMMITTED) and entry.due == NEVER:
            yield f"gang {ref.name} is {entry.place} forever"
    for ref in [*pending_in, *(ref for ref in state.holdings.by_gang if ref not in state.lines.standings)]:
        yield f"gang {ref.name} is deleted and still counted"


def check_free_capacity(state: AdmissionState) -> Iterator[str]:
    """Free capacity of every topology is what nodes have, less the usage of gangs and pods."""
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
        assigned = (
            {key: _nonzero(amounts) for key, amounts in c.held.items() if _nonzero(amounts)}
            for c in (cluster, other)
        )
        ours, theirs = assigned
        if ours != theirs:
            yield f"topology {name} has {ours} assigned instead of {theirs}"
        one, two = cluster.snapshot(), other.snapshot()
        for resource, row in one.resources.items():
            if resource not in two.resources:
                continue
            free = two.free[two.resources[resource]]
            if (one.free[row] != free).any():
                yield f"topology {name} has {one.free[row]} {resource} free instead of {free}"


def final_violations(
    controller: AdmissionController, store: Store, now: float, error_injection: ErrorInjection | None = None
) -> Iterator[str]:
    """After the faults: no work is in progress, and a restart would give the same state and decisions."""
    state = controller.state
    expected = {
        key for key in controller.agenda if error_injection is not None and error_injection.expects(key[1])
    }
    if controller.flying or set(controller.agenda) - expected:
        queued = sorted(set(controller.agenda) - expected)
        yield f"work in progress forever: {sorted(controller.flying)} and {queued}"
    for ref, entry in state.lines.standings.items():
        if entry.place is QueueEntryState.COMMITTED:
            yield f"gang {ref.name} is still {entry.place}"
    yield from check_free_capacity(state)
    yield from _check_pending_reasons(controller, store)
    fresh = AdmissionController(controller.profile)
    Loop(EmbeddedBackend(store), (fresh,), MemoryJournal()).take_in(now)
    ours, theirs = _usage(state.holdings.books()), _usage(fresh.state.holdings.books())
    if ours != theirs:
        yield f"the quota tree says {ours}, a fresh list gives {theirs}"
    yield from check_same_capacity(state, fresh.state)
    for ref, entry in fresh.state.lines.standings.items():
        own_entry = state.lines.standings.get(ref)
        if own_entry is None or own_entry.place != entry.place or own_entry.queue != entry.queue:
            yield f"gang {ref.name} is {own_entry and own_entry.place}, a fresh list has it {entry.place}"
    decide = fresh.decide if error_injection is None else partial(error_injection.decide, fresh)
    yield from _stuck(controller, fresh, decide, now)


def check_same_capacity(state: AdmissionState, fresh: AdmissionState) -> Iterator[str]:
    """The same capacity is free in every topology."""
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
    controller: AdmissionController,
    fresh: AdmissionController,
    decide: Callable[[Any, float], Plan],
    now: float,
) -> Iterator[str]:
    """Run cycles of a fresh controller until it has no gang left to try."""
    for _ in range(CYCLES_MAX):
        view = fresh.look(now)
        if view is None:
            return
        plan = decide(view, now)
        violations = []
        for action in plan.actions:
            entry = controller.state.lines.standings.get(action.gang)
            if entry is not None and entry.place is QueueEntryState.PLACING and entry.due > now:
                continue  # ours tries again, too
            if isinstance(action, Admit):
                violations.append(f"gang {action.gang.name} would be admitted but is pending")
            elif isinstance(action, EvictGang):
                violations.append(f"gang {action.gang.name} would be evicted but stays")
        yield from violations
        if violations:
            return
        fresh.assume(plan, now)
    yield "a fresh controller decides forever"


def _check_pending_reasons(controller: AdmissionController, store: Store) -> Iterator[str]:
    """Every pending Workload has a QuotaReserved condition that says why."""
    strict = {name: queue.strict for name, queue in controller.state.lines.lines.items()}
    conditions = {w["metadata"]["name"]: conditions_of(w) for w in store.list(LISTED["workloads"]).items}
    for ref, entry in controller.state.lines.standings.items():
        if strict.get(entry.queue):
            continue  # those behind the first were not looked at
        if entry.place is QueueEntryState.WAITING and "QuotaReserved" not in conditions.get(
            ref.name, {"QuotaReserved": False}
        ):
            yield f"gang {ref.name} is pending without a reason"


def _usage(tree: QuotaTree) -> dict[str, dict[str, int]]:
    accounts = [*((f"queue {n}", a) for n, a in tree.queues.items()), *tree.shared.items()]
    violations = {name: {"/".join(c): n for c, n in sorted(a.usage.items()) if n} for name, a in accounts}
    return {name: usage for name, usage in sorted(violations.items()) if usage}


def _nonzero(amounts: Mapping[str, int]) -> dict[str, int]:
    return {name: amount for name, amount in amounts.items() if amount}
