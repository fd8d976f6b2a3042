"""What must always hold of queues, read from the API's own objects after every step."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from bayplan.dialects.kube.decode.wire import amounts_of
from bayplan.model.node import HOSTNAME
from bayplan.model.quota import Cell
from bayplan.simulator.core.checkers import pods_on_nodes, use_of, used_by
from bayplan.simulator.queues.workload_view import Admitted, Object, conditions_of, read

List = Callable[[str], Sequence[Object]]
GRACE_SECONDS = 25.0  # news of what others did may be this late
EVICTED_SECONDS = 75.0
STRANDED_SECONDS = 90.0
NO_LIMIT = 2**62


@dataclass(slots=True)
class LimitExcess:
    """What is above its limit. Shortly after others did something, that is theirs to answer for."""

    excused: dict[object, int] = field(default_factory=dict)
    over: dict[object, int] = field(default_factory=dict)  # in this look

    def judge(self, key: object, used: int, limit: int, *, others: bool) -> bool:
        """Whether we are to blame."""
        if used <= limit:
            return False
        allowed = used if others else self.excused.get(key, limit)
        self.over[key] = min(used, allowed)
        return used > allowed

    def next_look(self) -> None:
        """Forget what is no longer above its limit."""
        self.excused, self.over = self.over, {}


@dataclass(slots=True)
class QueueChecker:
    """Remembers what a single look cannot see: what others changed when, and who was told to leave."""

    known: dict[object, object] = field(default_factory=dict)
    changed: dict[object, float] = field(default_factory=dict)  # when others changed what
    disturbed: float = 0.0
    labels: dict[str, Mapping[str, str]] = field(default_factory=dict)  # also of nodes that are gone
    excess: LimitExcess = field(default_factory=LimitExcess)
    leaving: dict[str, float] = field(default_factory=dict)
    promised: dict[str, tuple[str, float]] = field(default_factory=dict)  # victim → for whom, and when
    read: dict[str, tuple[str, Admitted]] = field(default_factory=dict)  # by uid, for a resourceVersion
    admissions: int = 0
    is_quarantined: Callable[[str], bool] = lambda _: False  # whether errors keep a Workload from being read

    def check(self, objects: List, now: float) -> Iterator[str]:
        """Everything that is wrong right now."""
        nodes, pods = objects("nodes"), pods_on_nodes(objects("pods"))
        flavors = {flavor["metadata"]["name"]: flavor["spec"] for flavor in objects("resourceflavors")}
        self.labels |= {node["metadata"]["name"]: node["metadata"]["labels"] for node in nodes}
        self._note(objects, now)
        holders = []
        for workload in objects("workloads"):
            yield from self._conditions(workload, now)
            found = self._read(workload)
            if found is not None:
                yield from found.wrong
                yield from _on_its_nodes(found, flavors, self.labels)
                holders.append(found)
        yield from self._quota(objects, holders, now)
        yield from self._hosts(nodes, pods, holders, now)
        yield from self._domains(objects("topologies"), nodes, holders, now)
        yield from self._promises(objects("workloads"), now)
        self.excess.next_look()

    # ── what others did ──

    def _note(self, objects: List, now: float) -> None:
        """Remember when somebody else last changed something, by what it was."""
        seen: dict[object, object] = {}
        for plural in ("clusterqueues", "cohorts", "resourceflavors", "topologies"):
            seen |= {
                ("rule", plural, o["metadata"]["name"]): o["metadata"]["generation"] for o in objects(plural)
            }
        for node in objects("nodes"):
            name = node["metadata"]["name"]
            seen["node", name] = (node["metadata"]["uid"], str(node["status"]), str(node["spec"]))
        for pod in pods_on_nodes(objects("pods")):
            seen["pod", pod["spec"]["nodeName"], pod["metadata"]["uid"]] = True
        for workload in objects("workloads"):
            conditions = conditions_of(workload)
            checks = (workload.get("status") or {}).get("admissionChecks") or []
            answered = [check["state"] for check in checks if check["state"] != "Pending"]
            seen["work", workload["metadata"]["uid"]] = (
                workload["metadata"]["generation"], conditions.get("Finished", False), str(answered),
            )  # fmt: skip
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
            self.leaving.pop(meta["uid"], None)
        elif now - self.leaving.setdefault(meta["uid"], now) > EVICTED_SECONDS:
            yield f"workload {name} was told to leave and keeps its quota"

    def _promises(self, workloads: Sequence[Object], now: float) -> Iterator[str]:
        """Whoever made others leave is admitted in the end, unless something else happened."""
        reserved = {w["metadata"]["uid"]: conditions_of(w).get("QuotaReserved", False) for w in workloads}
        for workload in workloads:
            status, uid = workload.get("status") or {}, workload["metadata"]["uid"]
            told: Object = next((c for c in status.get("conditions") or () if c["type"] == "Preempted"), {})
            _, found, after = str(told.get("message", "")).partition("(UID: ")
            if told.get("status") == "True" and found:
                self.promised.setdefault(uid, (after.split(",")[0], now))
            else:
                self.promised.pop(uid, None)
            victor, since = self.promised.get(uid, ("", now))
            undisturbed = self.disturbed <= since and now - since > STRANDED_SECONDS
            if undisturbed and not reserved.get(victor, True):
                yield f"workload {workload['metadata']['name']} left in vain for {victor}"

    # ── all of them together ──

    def _quota(self, objects: List, holders: Sequence[Admitted], now: float) -> Iterator[str]:
        others = self._recent("rule", now=now)
        for node, cell, used, limit in quota_use(objects("cohorts"), objects("clusterqueues"), holders):
            if self.excess.judge(("quota", node, cell), used, limit, others=others):
                yield f"{node} uses {used} {cell} of {limit}"

    def _hosts(
        self, nodes: Sequence[Object], pods: Sequence[Object], holders: Sequence[Admitted], now: float
    ) -> Iterator[str]:
        used = used_by(pods)
        for holder in holders:
            for spot in holder.spots:
                if spot.levels[-1] == HOSTNAME:
                    for values, count in spot.shares:
                        _add(used.setdefault(values[-1], {}), spot.each, count)
        for name, resource, amount, limit in use_of(nodes, used):
            others = self._recent(("node", name), ("pod", name), now=now)
            if self.excess.judge(("host", name, resource), amount, limit, others=others):
                yield f"host {name} is promised {amount} {resource} of {limit}"

    def _domains(
        self, topologies: Sequence[Object], nodes: Sequence[Object], holders: Sequence[Admitted], now: float
    ) -> Iterator[str]:
        """Topologies that end above the host: what a lowest domain has in all."""
        for topology in topologies:
            levels = tuple(level["nodeLabel"] for level in topology["spec"]["levels"])
            if levels[-1] == HOSTNAME:
                continue
            used: dict[tuple[str, ...], dict[str, int]] = {}
            for spot in (spot for holder in holders for spot in holder.spots if spot.levels == levels):
                for values, count in spot.shares:
                    _add(used.setdefault(values, {}), spot.each, count)
            for values, amounts in used.items():
                inside = [
                    n
                    for n in nodes
                    if tuple(n["metadata"]["labels"].get(level) for level in levels) == values
                ]
                has: dict[str, int] = {}
                for node in inside:
                    _add(has, amounts_of(node["status"]["allocatable"]))
                others = self._recent(
                    *((sort, n["metadata"]["name"]) for n in inside for sort in ("node", "pod")), now=now
                )
                others = others or not inside or any(self._recent(key, now=now) for key in self._gone(nodes))
                for resource, amount in amounts.items():
                    if self.excess.judge(
                        ("domain", values, resource), amount, has.get(resource, 0), others=others
                    ):
                        yield f"domain {values} is promised {amount} {resource} of {has.get(resource, 0)}"

    def _gone(self, nodes: Sequence[Object]) -> list[tuple[str, str]]:
        there = {node["metadata"]["name"] for node in nodes}
        return [("node", name) for name in self.labels if name not in there]


def quota_use(
    cohorts: Sequence[Object], queues: Sequence[Object], holders: Sequence[Admitted]
) -> Iterator[tuple[str, Cell, int, int]]:
    """For every node of the tree and every flavor and resource: what is used, and what may be."""
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
    """The quota tree as the API shows it, counted without any of our own arithmetic."""

    def __init__(
        self, cohorts: Sequence[Object], queues: Sequence[Object], holders: Sequence[Admitted]
    ) -> None:
        self.quotas: dict[str, dict[Cell, dict[str, int]]] = {}
        self.above: dict[str, str] = {}
        self.own: dict[str, dict[Cell, int]] = {}
        for sort, objects, parent in (("cohort", cohorts, "parentName"), ("queue", queues, "cohortName")):
            for obj in objects:
                name = f"{sort} {obj['metadata']['name']}"
                self.quotas[name] = _quotas(obj["spec"])
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
        """What it brings in, with what those below it lend."""
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
        found = self.quotas[name].get(cell, {}).get("lendingLimit")
        return NO_LIMIT if found is None else int(found)


def _quotas(spec: Object) -> dict[Cell, dict[str, int]]:
    found: dict[Cell, dict[str, int]] = {}
    for group in spec.get("resourceGroups") or ():
        for flavor in group["flavors"]:
            for entry in flavor["resources"]:
                name = entry["name"]
                limits = {key: value for key, value in entry.items() if key != "name" and value is not None}
                amounts = {key: amounts_of({name: value})[name] for key, value in limits.items()}
                found[flavor["name"], name] = amounts
    return found


def _on_its_nodes(
    holder: Admitted, flavors: Mapping[str, Object], labels: Mapping[str, Mapping[str, str]]
) -> Iterator[str]:
    """A pod set stands on nodes of its flavor."""
    for spot in holder.spots:
        wanted = [flavors[name].get("nodeLabels") or {} for name in spot.flavors if name in flavors]
        for values, _ in spot.shares if spot.levels[-1] == HOSTNAME else ():
            has = labels.get(values[-1], {})
            if any(has.get(key) != value for each in wanted for key, value in each.items()):
                yield f"workload {holder.name} stands on {values[-1]}, which is not of its flavor"


def _add(total: dict[str, int], amounts: Mapping[str, int], times: int = 1) -> None:
    for name, amount in amounts.items():
        total[name] = total.get(name, 0) + amount * times
