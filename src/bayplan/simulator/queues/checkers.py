"""Invariants of queues, checked against the objects in the API after every step."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from bayplan.dialects.kube.decode.wire import amounts_of
from bayplan.model.node import HOSTNAME
from bayplan.model.quota import Cell
from bayplan.simulator.core.checkers import allocatable_of, labels_by_node, pods_on_nodes, use_of, used_by
from bayplan.simulator.core.documents import LastLook, once_per_document, once_per_listing
from bayplan.simulator.queues.workload_view import Admitted, Object, conditions_of, read

List = Callable[[str], Sequence[Object]]
GRACE_SECONDS = 25.0  # news of what others did may be this late
EVICTED_SECONDS = 75.0
STRANDED_SECONDS = 90.0
NO_LIMIT = 2**62
_RULES = ("clusterqueues", "cohorts", "resourceflavors", "topologies")


@dataclass(slots=True)
class LimitExcess:
    """Usage above a limit. An excess is allowed if another actor caused it a short time ago."""

    excused: dict[object, int] = field(default_factory=dict)
    over: dict[object, int] = field(default_factory=dict)  # in this look

    def is_violation(self, key: object, used: int, limit: int, *, others: bool) -> bool:
        """Whether usage above a limit is a violation of Bayplan."""
        if used <= limit:
            return False
        allowed = used if others else self.excused.get(key, limit)
        self.over[key] = min(used, allowed)
        return used > allowed

    def next_check(self) -> None:
        """Forget excesses that are over."""
        self.excused, self.over = self.over, {}


@dataclass(slots=True)
class QueueChecker:
    """Checks quota, hosts and domains; remembers when other actors changed what, and evictions."""

    known: dict[object, object] = field(default_factory=dict)
    changed: dict[object, float] = field(default_factory=dict)  # when others changed what
    disturbed: float = 0.0
    outside: float = -NO_LIMIT  # when pods that no queue knows were bound last, if that is told
    labels: dict[str, Mapping[str, str]] = field(default_factory=dict)  # also of nodes that are gone
    excess: LimitExcess = field(default_factory=LimitExcess)
    evicted_since: dict[str, float] = field(default_factory=dict)
    preemptors: dict[str, tuple[str, float]] = field(default_factory=dict)  # victim → for whom, and when
    read: dict[str, tuple[str, Admitted]] = field(default_factory=dict)  # by uid, for a resourceVersion
    admissions: int = 0
    holders: tuple[Admitted, ...] = ()  # what is admitted
    unsettled: bool = False  # whether a Workload was wrong at the last look, or may be when time has passed
    looked_at: LastLook = field(default_factory=LastLook)
    recorded: LastLook = field(default_factory=LastLook)
    is_quarantined: Callable[[str], bool] = lambda _: False  # whether errors keep a Workload from being read

    def check(self, objects: List, now: float) -> Iterator[str]:
        """Yield a sentence for each violation in the current state."""
        nodes, pods = objects("nodes"), pods_on_nodes(objects("pods"))
        self.labels |= labels_by_node(nodes)
        self._record_changes(objects, now)
        workloads, flavors = objects("workloads"), objects("resourceflavors")
        if not self.looked_at.repeats(workloads, flavors, nodes) or self.unsettled:
            yield from self._workloads(workloads, flavors, now)
        yield from self._quota(objects, now)
        yield from self._hosts(nodes, pods, now)
        yield from self._domains(objects("topologies"), nodes, now)
        yield from self._check_preemptors(workloads, now)
        self.excess.next_check()

    def _workloads(self, workloads: Sequence[Object], flavors: Sequence[Object], now: float) -> Iterator[str]:
        """Check each Workload by itself, and note what is admitted."""
        specs = {flavor["metadata"]["name"]: flavor["spec"] for flavor in flavors}
        holders = []
        self.unsettled = False
        for workload in workloads:
            found = list(self._conditions(workload, now))
            admitted = self._read(workload)
            if admitted is not None:
                found += [*admitted.violations, *_check_flavor_nodes(admitted, specs, self.labels)]
                holders.append(admitted)
            conditions = conditions_of(workload)
            keeps = bool(conditions.get("QuotaReserved") and conditions.get("Evicted"))
            self.unsettled = self.unsettled or keeps or bool(found)
            yield from found
        self.holders = tuple(holders)

    # ── what others did ──

    def _record_changes(self, objects: List, now: float) -> None:
        """Remember when other actors last changed each kind of object."""
        if self.recorded.repeats(*(objects(plural) for plural in (*_RULES, "nodes", "pods", "workloads"))):
            return
        seen: dict[object, object] = {}
        for plural in _RULES:
            seen |= {
                ("rule", plural, o["metadata"]["name"]): o["metadata"]["generation"] for o in objects(plural)
            }
        for node in objects("nodes"):
            seen["node", node["metadata"]["name"]] = _state_of_node(node)
        for pod in pods_on_nodes(objects("pods")):
            seen["pod", pod["spec"]["nodeName"], pod["metadata"]["uid"]] = True
        for workload in objects("workloads"):
            seen["work", workload["metadata"]["uid"]] = _done_by_others(workload)
        for key in {**seen, **self.known}:
            if seen.get(key) != self.known.get(key):
                assert isinstance(key, tuple)
                self.changed[key[:2] if key[0] in ("node", "pod") else key[0]] = now
                self.disturbed = now
        self.known = seen

    def _recent(self, *keys: object, now: float) -> bool:
        return any(now - self.changed.get(key, -NO_LIMIT) < GRACE_SECONDS for key in keys)

    def _read(self, workload: Object) -> Admitted | None:
        meta = workload["metadata"]
        if conditions_of(workload).get("Finished") or "admission" not in (workload.get("status") or {}):
            self.read.pop(meta["uid"], None)
            return None
        known = self.read.get(meta["uid"])
        if known is None or known[0] != meta["resourceVersion"]:
            self.admissions += known is None
            self.read[meta["uid"]] = known = (meta["resourceVersion"], read(workload, self.labels))
        return known[1]

    # ── one Workload ──

    def _conditions(self, workload: Object, now: float) -> Iterator[str]:
        meta, status = workload["metadata"], workload.get("status") or {}
        name, conditions = meta["name"], conditions_of(workload)
        if conditions.get("Finished"):
            return
        reserved, admitted = conditions.get("QuotaReserved", False), conditions.get("Admitted", False)
        evicted = conditions.get("Evicted", False)
        if admitted and not reserved:
            yield f"workload {name} is admitted without quota"
        if reserved != ("admission" in status):
            yield f"workload {name} and its admission disagree on whether it has quota"
        checks = status.get("admissionChecks") or []
        if admitted and not evicted and any(check["state"] != "Ready" for check in checks):
            yield f"workload {name} is admitted before its checks are ready"
        if not (reserved and evicted) or self.is_quarantined(name):
            self.evicted_since.pop(meta["uid"], None)
        elif now - self.evicted_since.setdefault(meta["uid"], now) > EVICTED_SECONDS:
            yield f"workload {name} is evicted and keeps its quota"

    def _check_preemptors(self, workloads: Sequence[Object], now: float) -> Iterator[str]:
        """A preemptor is admitted in the end, unless other changes prevent it, or it was preempted itself."""
        if not (self.preemptors or _some_preempted(workloads)):
            return
        reserved = {w["metadata"]["uid"]: conditions_of(w).get("QuotaReserved", False) for w in workloads}
        for workload in workloads:
            status, uid = workload.get("status") or {}, workload["metadata"]["uid"]
            condition: Object = next(
                (c for c in status.get("conditions") or () if c["type"] == "Preempted"), {}
            )
            _, admitted, after = str(condition.get("message", "")).partition("(UID: ")
            if condition.get("status") == "True" and admitted:
                self.preemptors.setdefault(uid, (after.split(",")[0], now))
            else:
                self.preemptors.pop(uid, None)
            preemptor, since = self.preemptors.get(uid, ("", now))
            undisturbed = self.disturbed <= since and self.outside < since and now - since > STRANDED_SECONDS
            preempted_since = self.preemptors.get(preemptor, ("", -NO_LIMIT))[1]
            if undisturbed and preempted_since < since and not reserved.get(preemptor, True):
                name = workload["metadata"]["name"]
                yield f"workload {name} was preempted for {preemptor}, which is not admitted"

    # ── all of them together ──

    def _quota(self, objects: List, now: float) -> Iterator[str]:
        others = self._recent("rule", now=now)
        over = _over_quota(objects("cohorts"), objects("clusterqueues"), self.holders)
        for node, cell, used, limit in over:
            if self.excess.is_violation(("quota", node, cell), used, limit, others=others):
                yield f"{node} uses {used} {cell} of {limit}"

    def _hosts(self, nodes: Sequence[Object], pods: Sequence[Object], now: float) -> Iterator[str]:
        for name, resource, amount, limit in _over_hosts(nodes, pods, self.holders):
            others = self._recent(("node", name), ("pod", name), now=now)
            if self.excess.is_violation(("host", name, resource), amount, limit, others=others):
                yield f"host {name} has {amount} {resource} assigned of {limit}"

    def _domains(self, topologies: Sequence[Object], nodes: Sequence[Object], now: float) -> Iterator[str]:
        """Usage of the lowest domains of topologies without a host level."""
        for values, inside, resource, amount, limit in _over_domains(topologies, nodes, self.holders):
            others = self._recent(*((sort, name) for name in inside for sort in ("node", "pod")), now=now)
            others = (
                others or not inside or any(self._recent(key, now=now) for key in self._deleted_nodes(nodes))
            )
            if self.excess.is_violation(("domain", values, resource), amount, limit, others=others):
                yield f"domain {values} has {amount} {resource} assigned of {limit}"

    def _deleted_nodes(self, nodes: Sequence[Object]) -> list[tuple[str, str]]:
        present = {node["metadata"]["name"] for node in nodes}
        return [("node", name) for name in self.labels if name not in present]


@once_per_document
def _state_of_node(node: Object) -> tuple[str, str, str]:
    return node["metadata"]["uid"], str(node["status"]), str(node["spec"])


@once_per_document
def _done_by_others(workload: Object) -> tuple[int, bool, str]:
    """What other actors write to a Workload: its specification, its end, and the answers of checks."""
    checks = (workload.get("status") or {}).get("admissionChecks") or []
    answered = [check["state"] for check in checks if check["state"] != "Pending"]
    return workload["metadata"]["generation"], conditions_of(workload).get("Finished", False), str(answered)


@once_per_listing
def _some_preempted(workloads: Sequence[Object]) -> bool:
    """Whether a Workload has a condition that says for whom it was preempted."""
    return any("Preempted" in conditions_of(workload) for workload in workloads)


@once_per_listing
def _over_hosts(
    nodes: Sequence[Object], pods: Sequence[Object], holders: Sequence[Admitted]
) -> tuple[tuple[str, str, int, int], ...]:
    """Hosts that pods and placements use more of than there is: host, resource, amount and limit."""
    used = used_by(pods)
    for holder in holders:
        for placement in holder.placements:
            if placement.levels[-1] == HOSTNAME:
                for values, count in placement.shares:
                    _add(used.setdefault(values[-1], {}), placement.each, count)
    return tuple(one for one in use_of(nodes, used) if one[2] > one[3])


@once_per_listing
def _over_domains(
    topologies: Sequence[Object], nodes: Sequence[Object], holders: Sequence[Admitted]
) -> tuple[tuple[tuple[str, ...], tuple[str, ...], str, int, int], ...]:
    """Lowest domains without a host level of which more is assigned than there is.

    The values of the domain, its nodes, the resource, the amount and the limit.
    """
    found = []
    placements = [placement for holder in holders for placement in holder.placements]
    for topology in topologies:
        levels = tuple(level["nodeLabel"] for level in topology["spec"]["levels"])
        if levels[-1] == HOSTNAME:
            continue
        used: dict[tuple[str, ...], dict[str, int]] = {}
        for placement in placements:
            for values, count in placement.shares if placement.levels == levels else ():
                _add(used.setdefault(values, {}), placement.each, count)
        for values, amounts in used.items():
            inside = [
                node
                for node in nodes
                if tuple(node["metadata"]["labels"].get(level) for level in levels) == values
            ]
            has: dict[str, int] = {}
            for node in inside:
                _add(has, allocatable_of(node))
            names = tuple(node["metadata"]["name"] for node in inside)
            for resource, amount in amounts.items():
                if amount > has.get(resource, 0):
                    found.append((values, names, resource, amount, has.get(resource, 0)))
    return tuple(found)


@once_per_listing
def _over_quota(
    cohorts: Sequence[Object], queues: Sequence[Object], holders: Sequence[Admitted]
) -> tuple[tuple[str, Cell, int, int], ...]:
    """Nodes of the quota tree above their limits."""
    return tuple(one for one in quota_use(cohorts, queues, holders) if one[2] > one[3])


def quota_use(
    cohorts: Sequence[Object], queues: Sequence[Object], holders: Sequence[Admitted]
) -> Iterator[tuple[str, Cell, int, int]]:
    """Usage and limit for every node of the quota tree and every flavor and resource."""
    tree = _Tree(cohorts, queues, holders)
    for queue in queues:
        used = {
            cell for holder in holders if holder.queue == queue["metadata"]["name"] for cell in holder.quota
        }
        name = f"queue {queue['metadata']['name']}"
        for cell in sorted(used | set(tree.quotas[name])):
            at: str | None = name
            while at is not None:
                yield at, cell, tree.used(at, cell), tree.limit(at, cell)
                at = tree.above.get(at)


class _Tree:
    """The quota tree of the API objects, computed independently of the scheduler."""

    def __init__(
        self, cohorts: Sequence[Object], queues: Sequence[Object], holders: Sequence[Admitted]
    ) -> None:
        self.quotas: dict[str, dict[Cell, dict[str, int]]] = {}
        self.above: dict[str, str] = {}
        self.own: dict[str, dict[Cell, int]] = {}
        for sort, objects, parent in (("cohort", cohorts, "parentName"), ("queue", queues, "cohortName")):
            for obj in objects:
                name = f"{sort} {obj['metadata']['name']}"
                self.quotas[name] = _quotas(obj)
                if obj["spec"].get(parent):
                    self.above[name] = f"cohort {obj['spec'][parent]}"
                    self.quotas.setdefault(self.above[name], {})
        self.below: dict[str, list[str]] = {}
        for name, above in self.above.items():
            self.below.setdefault(above, []).append(name)
        for holder in holders:
            mine = self.own.setdefault(f"queue {holder.queue}", {})
            for cell, amount in holder.quota.items():
                mine[cell] = mine.get(cell, 0) + amount

    def has(self, name: str, cell: Cell) -> int:
        """Its own quota and what the nodes below it lend."""
        return self.quotas[name].get(cell, {}).get("nominalQuota", 0) + sum(
            min(self.has(child, cell), self._lends(child, cell)) for child in self.below.get(name, ())
        )

    def used(self, name: str, cell: Cell) -> int:
        beyond = (
            max(0, self.used(child, cell) - max(0, self.has(child, cell) - self._lends(child, cell)))
            for child in self.below.get(name, ())
        )
        return self.own.get(name, {}).get(cell, 0) + sum(beyond)

    def limit(self, name: str, cell: Cell) -> int:
        if name not in self.above:
            return self.has(name, cell)
        borrows = self.quotas[name].get(cell, {}).get("borrowingLimit")
        return NO_LIMIT if borrows is None else self.has(name, cell) + int(borrows)

    def _lends(self, name: str, cell: Cell) -> int:
        admitted = self.quotas[name].get(cell, {}).get("lendingLimit")
        return NO_LIMIT if admitted is None else int(admitted)


@once_per_document
def _quotas(account: Object) -> dict[Cell, dict[str, int]]:
    """The quotas of a queue or cohort."""
    spec = account["spec"]
    admitted: dict[Cell, dict[str, int]] = {}
    for group in spec.get("resourceGroups") or ():
        for flavor in group["flavors"]:
            for entry in flavor["resources"]:
                name = entry["name"]
                limits = {key: value for key, value in entry.items() if key != "name" and value is not None}
                amounts = {key: amounts_of({name: value})[name] for key, value in limits.items()}
                admitted[flavor["name"], name] = amounts
    return admitted


def _check_flavor_nodes(
    holder: Admitted, flavors: Mapping[str, Object], labels: Mapping[str, Mapping[str, str]]
) -> Iterator[str]:
    """A pod set is placed on nodes of its flavor."""
    for placement in holder.placements:
        wanted = [flavors[name].get("nodeLabels") or {} for name in placement.flavors if name in flavors]
        for values, _ in placement.shares if placement.levels[-1] == HOSTNAME else ():
            has = labels.get(values[-1], {})
            if any(has.get(key) != value for each in wanted for key, value in each.items()):
                yield f"workload {holder.name} is placed on {values[-1]}, which is not of its flavor"


def _add(total: dict[str, int], amounts: Mapping[str, int], times: int = 1) -> None:
    for name, amount in amounts.items():
        total[name] = total.get(name, 0) + amount * times
