"""One decision: the gangs whose turn it is, each placed whole or refused with the reason."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

from bayplan.model.assignment import Misfit
from bayplan.model.plan import Action, Bind, Plan, Refuse
from bayplan.model.profile import Profile
from bayplan.placement.complete import complete, nodes_in_rank_order
from bayplan.placement.place import place_in
from bayplan.placement.scope import Located, Scope, scope_of
from bayplan.state.state import Pending, Snapshot


def decide(snapshot: Snapshot, profile: Profile) -> Plan:
    """Place the pending gangs in order; each sees what those before it took."""
    scopes = {name: scope_of(supply, profile) for name, supply in snapshot.supplies.items()}
    actions: list[Action] = []
    for pending in snapshot.pending:
        scope = scopes[pending.topology]
        found = _place(scope, pending)
        if isinstance(found, Misfit):
            news = _is_news(found, pending.refused)
            actions.append(Refuse(pending.gang.source, found, news, pending.gang.uid))
            continue
        for pod_set in pending.gang.root.pod_sets():
            scope = scope.after(found[pod_set.name], pod_set.requests)
        actions += _binds(scope, pending, found)
        scopes[pending.topology] = scope
    return Plan(tuple(actions))


def _is_news(misfit: Misfit, before: Misfit | None) -> bool:
    """Whether people should hear of it: another reason or another number that fits, not other exclusions."""
    if before is None:
        return True
    return any(
        getattr(misfit, fact) != getattr(before, fact) for fact in ("code", "level", "fit", "asked", "layers")
    )


def _place(scope: Scope, pending: Pending) -> dict[str, Located] | Misfit:
    asked = sum(pod_set.count for pod_set in pending.gang.root.pod_sets())
    begins = not any(pod.did_its_part for pod in pending.standing)
    if begins and len(pending.waiting) == asked:
        return place_in(scope, pending.gang)
    standing: dict[str, list[str]] = {}
    for pod in pending.standing:
        standing.setdefault(pod.pod_set, []).append(pod.node)
    return complete(scope, pending.gang, standing, Counter(pod.pod_set for pod in pending.waiting))


def _binds(scope: Scope, pending: Pending, found: Mapping[str, Located]) -> list[Bind]:
    """Pods in rank order onto hosts in rank order."""
    binds: list[Bind] = []
    for name, located in found.items():
        waiting = [pod for pod in pending.waiting if pod.pod_set == name]
        nodes = nodes_in_rank_order(scope, located)
        binds += [Bind(pending.gang.source, pod, node) for pod, node in zip(waiting, nodes, strict=False)]
    return binds
