"""Checks that the admission state is consistent, and equal to the state after a restart."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from bayplan.backends.embedded.http.backend import EmbeddedBackend
from bayplan.backends.embedded.storage.store import Store
from bayplan.model.gang import Ref
from bayplan.model.plan import Admit, EvictGang, Plan
from bayplan.runtime.controllers.admission.controller import AdmissionController
from bayplan.runtime.core.journal import NullJournal
from bayplan.runtime.core.loop import Loop
from bayplan.simulator.core.fixtures import LISTED
from bayplan.simulator.core.thrown_errors import ErrorInjection
from bayplan.simulator.queues.workload_view import conditions_of
from bayplan.state.admission.queues import QueueEntryState
from bayplan.state.admission.quota_tree import QuotaTree
from bayplan.state.admission.state import AdmissionState
from bayplan.state.admission.usage import AdmittedUsage
from bayplan.state.pending_queue import NEVER

HOLDERS = (QueueEntryState.ADMITTING, QueueEntryState.QUOTA_RESERVED, QueueEntryState.PLACING)
CYCLES_MAX = 60


def check_consistency(state: AdmissionState) -> Iterator[str]:
    """The quota tree is the sum of what gangs use, and every gang has exactly one queue state."""
    if state.usage.tree is not None:
        ours, theirs = _usage(state.usage.tree), _RECOUNT.of(state.usage)
        if ours != theirs:
            yield f"the quota tree says {ours}, gangs use {theirs}"
    pending_in: dict[Ref, list[str]] = {}
    for name, queue in state.pending.queues.items():
        for entry in queue.entries():
            pending_in.setdefault(entry.queued_gang.gang.source, []).append(name)
    for ref, entry in state.pending.entries.items():
        queues = pending_in.pop(ref, [])
        if queues != ([entry.queue] if entry.state is QueueEntryState.PENDING else []):
            yield f"gang {ref.name} is {entry.state} and is pending in {queues}"
        if (entry.state in HOLDERS) != (ref in state.usage.by_gang):
            yield f"gang {ref.name} is {entry.state}, and its quota is not counted accordingly"
        if entry.state in (QueueEntryState.BACKOFF, QueueEntryState.ADMITTING) and entry.due == NEVER:
            yield f"gang {ref.name} is {entry.state} forever"
    for ref in [*pending_in, *(ref for ref in state.usage.by_gang if ref not in state.pending.entries)]:
        yield f"gang {ref.name} is deleted and still counted"


@dataclass(slots=True)
class _Recount:
    """What gangs use of quota, added up again when another queue, quota or gang counts than before."""

    parts: tuple[object, ...] = ()  # values that never change: they are told apart by identity
    usage: dict[str, dict[str, int]] = field(default_factory=dict)

    def of(self, known: AdmittedUsage) -> dict[str, dict[str, int]]:
        """The usage by queue and quota node."""
        parts = (known.shared, known.queues, *known.by_gang.values())
        if len(parts) != len(self.parts) or any(
            one is not other for one, other in zip(parts, self.parts, strict=True)
        ):
            tree = QuotaTree(known.shared, (queue.node for queue in known.queues))
            for holding in known.by_gang.values():
                tree.use(holding.queue, holding.quota)
            self.parts, self.usage = parts, _usage(tree)
        return self.usage


_RECOUNT = _Recount()


def check_free_capacity(state: AdmissionState) -> Iterator[str]:
    """Free capacity of every topology is what nodes have, less the usage of gangs and pods."""
    known = state.usage
    recount = AdmittedUsage(flavors=dict(known.flavors), shared=known.shared, queues=known.queues)
    recount.put_nodes(known.nodes)
    for name, cluster in known.topologies.items():
        recount.set_topology(name, cluster.topology, state.unmanaged.ledger.by_node())
    for holding in known.by_gang.values():
        recount.add(holding)
    for name, cluster in known.topologies.items():
        other = recount.topologies[name]
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
    reconciler = controller.reconciler
    expected = {
        key for key in reconciler.queue if error_injection is not None and error_injection.expects(key[1])
    }
    queued = sorted(set(reconciler.queue) - expected)
    if reconciler.in_flight or queued:
        yield f"work in progress forever: {list(reconciler.in_flight)} and {queued}"
    for ref, entry in state.pending.entries.items():
        if entry.state is QueueEntryState.ADMITTING:
            yield f"gang {ref.name} is still {entry.state}"
    yield from check_free_capacity(state)
    yield from _check_pending_reasons(controller, store)
    fresh = AdmissionController(controller.profile)
    Loop(EmbeddedBackend(store), (fresh,), NullJournal()).apply_events(now)
    ours, theirs = _usage(state.usage.quota_tree()), _usage(fresh.state.usage.quota_tree())
    if ours != theirs:
        yield f"the quota tree says {ours}, a fresh list gives {theirs}"
    yield from check_same_capacity(state, fresh.state)
    for ref, entry in fresh.state.pending.entries.items():
        own_entry = state.pending.entries.get(ref)
        if own_entry is None or own_entry.state != entry.state or own_entry.queue != entry.queue:
            yield f"gang {ref.name} is {own_entry and own_entry.state}, a fresh list has it {entry.state}"
    decide = fresh.decide if error_injection is None else partial(error_injection.decide, fresh)
    yield from _stuck(controller, fresh, decide, now)


def check_same_capacity(state: AdmissionState, fresh: AdmissionState) -> Iterator[str]:
    """The same capacity is free in every topology."""
    ours, theirs = state.usage.supplies(), fresh.usage.supplies()
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
        view = fresh.snapshot(now)
        if view is None:
            return
        plan = decide(view, now)
        violations = []
        for action in plan.actions:
            entry = controller.state.pending.entries.get(action.gang)
            if entry is not None and entry.state is QueueEntryState.PLACING and entry.due > now:
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
    strict = {name: queue.strict for name, queue in controller.state.pending.queues.items()}
    conditions = {w["metadata"]["name"]: conditions_of(w) for w in store.list(LISTED["workloads"]).items}
    for ref, entry in controller.state.pending.entries.items():
        if strict.get(entry.queue):
            continue  # those behind the first were not looked at
        if entry.state is QueueEntryState.PENDING and "QuotaReserved" not in conditions.get(
            ref.name, {"QuotaReserved": False}
        ):
            yield f"gang {ref.name} is pending without a reason"


def _usage(tree: QuotaTree) -> dict[str, dict[str, int]]:
    accounts = [*((f"queue {n}", a) for n, a in tree.queues.items()), *tree.shared.items()]
    violations = {name: {"/".join(c): n for c, n in sorted(a.usage.items()) if n} for name, a in accounts}
    return {name: usage for name, usage in sorted(violations.items()) if usage}


def _nonzero(amounts: Mapping[str, int]) -> dict[str, int]:
    return {name: amount for name, amount in amounts.items() if amount}
