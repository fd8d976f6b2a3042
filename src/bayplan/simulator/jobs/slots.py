"""The slots of an admitted Workload: one for every rank, kept when nodes fail."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator
from dataclasses import dataclass, field
from typing import Any

from bayplan.dialects.kube.fields.reader import Field
from bayplan.dialects.kueue.fields.assignment_decode import decode_assignment
from bayplan.model.node import HOSTNAME

Object = dict[str, Any]
Path = tuple[str, ...]


@dataclass(slots=True)
class SlotTable:
    """The slots of one pod set, for as long as its gang stays admitted."""

    pod_set: str
    levels: tuple[str, ...]
    slots: Counter[Path]
    by_rank: list[Path]
    replaced: bool = False  # since then ranks that lack a place at the same time may exchange theirs
    before: Counter[Path] = field(default_factory=Counter)  # the slots one look ago
    index_label: str = ""
    subgroup_label: str = ""
    subgroups: int = 1

    def update(self, order: list[Path], failed: Collection[str]) -> Iterator[str]:
        """Take the new slots; yield a violation for each change that no failed host explains."""
        self.before, slots = self.slots, Counter(order)
        if slots == self.slots:
            return
        lost, added = self.slots - slots, slots - self.slots
        for place in sorted(lost):
            if place[-1] not in failed:
                yield f"{self.pod_set} gave up its slot on {place[-1]}, which has not failed"
        if lost.total() != added.total():
            yield f"{self.pod_set} had {self.slots.total()} slots and has {slots.total()}"
        self.slots, self.by_rank, self.replaced = slots, order, True

    def hosts(self) -> set[str]:
        """The hosts of the slots, if slots are of hosts."""
        return {place[-1] for place in self.slots} if self.levels[-1] == HOSTNAME else set()

    def place_of(self, pod: Object) -> Path:
        """The slot of a pod by its node selector."""
        selector = pod["spec"].get("nodeSelector") or {}
        return tuple(selector.get(level, "") for level in self.levels)

    def rank_of(self, pod: Object) -> int | None:
        """The rank of a pod, if it has a valid one."""
        labels = pod["metadata"].get("labels") or {}
        index = labels.get(self.index_label, "")
        subgroup = labels.get(self.subgroup_label, "") if self.subgroup_label else "0"
        if not (self.index_label and index.isdigit() and subgroup.isdigit()):
            return None
        size = len(self.by_rank) // self.subgroups
        whole = int(index) < size and int(subgroup) < self.subgroups
        return int(subgroup) * size + int(index) if whole else None

    def allows(self, rank: int, place: Path) -> bool:
        """Whether a rank may use a slot."""
        return self.replaced or place == self.by_rank[rank]


def slot_tables(workload: Object) -> dict[str, SlotTable]:
    """The slots of every pod set that is placed by topology."""
    requests = {one["name"]: one.get("topologyRequest") or {} for one in workload["spec"]["podSets"]}
    counts = {one["name"]: one["count"] for one in workload["spec"]["podSets"]}
    added = {}
    for part in workload["status"]["admission"]["podSetAssignments"]:
        assigned = part.get("topologyAssignment")
        place = decode_assignment(Field(assigned)) if assigned else None
        if place is None:
            continue
        slots, name = list(place.ranks()), part["name"]
        request = requests[name]
        ranked = len(slots) == counts[name]  # else pods that are over left gaps
        added[name] = SlotTable(
            name,
            place.levels,
            Counter(slots),
            slots,
            index_label=request.get("podIndexLabel", "") if ranked else "",
            subgroup_label=request.get("subGroupIndexLabel", ""),
            subgroups=request.get("subGroupCount") or 1,
        )
        added[name].before = added[name].slots
    return added
