"""Victim units: the running pods that may be preempted, grouped as they leave, and disruption budgets."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from math import inf
from typing import NamedTuple

from bayplan.model.gang import DisruptionBudget, GangSpec, Ref
from bayplan.model.pod import Pod, Slot
from bayplan.model.pod_spec import Labels

NO_AMOUNTS: Mapping[str, int] = {}


class VictimUnit(NamedTuple):
    """Pods that are preempted or stay together: one pod, or the core of a gang."""

    pods: tuple[Pod, ...]
    priority: int
    of_gang: bool
    started: float  # the earliest start; a pod that has not started counts as the youngest
    of_groups: bool = False  # a group of pod groups, preempted as one
    queue: str = ""  # the fair-share queue of its gang
    core: bool = False  # without these pods those beyond the minimum cannot run
    amounts: Mapping[str, int] = NO_AMOUNTS  # its total requests, if it is in a fair-share queue
    created: float = 0.0  # when its gang was created

    @property
    def gang(self) -> Ref | None:
        """The gang of its pods."""
        return self.pods[0].gang

    @property
    def leaves_together(self) -> bool:
        """Whether pods leave with their whole gang."""
        return self.core or len(self.pods) > 1

    def rank(self) -> tuple[object, ...]:
        """Sort key, most important first."""
        key = self.pods[0].key
        size = len(self.pods) if self.of_gang else 0
        return (
            -self.priority,
            not self.of_groups,
            not self.of_gang,
            -size,
            self.started,
            key.namespace,
            key.name,
        )


def victim_units(
    pods: Iterable[Pod], specs: Mapping[Ref, GangSpec], below: int, slots: Collection[Slot] = ()
) -> list[VictimUnit]:
    """All running units below a priority, most important first.

    Pods in `slots` of admitted gangs are not among them: the slot would stay with the gang, and the pod would
    be preempted in vain. Which admitted gang has to go is decided in the queues.

    A gang that leaves as a whole, or does not run below its minimum, has the priority of its spec, whatever
    its pods say. Of the latter, the pods beyond the minimum are units of their own.
    """
    units: list[VictimUnit] = []
    whole_gangs: dict[Ref, list[Pod]] = {}
    parts: dict[tuple[Ref, str], list[Pod]] = {}
    for pod in pods:
        gang = pod.gang
        if pod.slot is not None and pod.slot in slots:
            continue
        if gang is None:
            priority = pod.spec.priority
            if priority < below and not pod.terminating and pod.node and not pod.finished:
                units.append(VictimUnit((pod,), priority, False, pod.started or inf))
        elif not pod.terminating and pod.uses_capacity:
            spec = specs.get(gang)
            if spec is not None and spec.non_preemptible:
                continue
            if spec is not None and (spec.disrupt_together or spec.is_strict):
                whole_gangs.setdefault(gang, []).append(pod)
            elif spec is not None and pod.pod_set in spec.disrupted_with:
                parts.setdefault((gang, spec.disrupted_with[pod.pod_set]), []).append(pod)
            elif pod.spec.priority < below:
                units.append(VictimUnit((pod,), pod.spec.priority, True, pod.started or inf))
    for gang, members in whole_gangs.items():
        spec = specs[gang]
        spec_priority = spec.priority
        priority = spec_priority if spec_priority is not None else max(pod.spec.priority for pod in members)
        if priority < below:
            members.sort(key=lambda pod: (pod.key.namespace, pod.key.name))
            surplus, core = ([], members) if spec.disrupt_together else beyond_minimum(spec, members)
            started = min(pod.started or inf for pod in members)
            units += [VictimUnit((one,), priority, True, started) for one in surplus]
            if core:
                units.append(VictimUnit(tuple(core), priority, True, started, core=bool(surplus)))
    units += _subgroup_units(parts, specs, below)
    units.sort(key=VictimUnit.rank)
    return units


def _subgroup_units(
    parts: Mapping[tuple[Ref, str], list[Pod]], specs: Mapping[Ref, GangSpec], below: int
) -> Iterator[VictimUnit]:
    """Subgroups that are preempted as a whole, with the priority of their gang."""
    for (gang, part), members in parts.items():
        spec = specs[gang]
        spec_priority = spec.priority
        priority = spec_priority if spec_priority is not None else max(pod.spec.priority for pod in members)
        if priority < below:
            members.sort(key=lambda pod: (pod.key.namespace, pod.key.name))
            started = min(pod.started or inf for pod in members)
            of_groups = not any(pod.pod_set == part for pod in members)
            yield VictimUnit(tuple(members), priority, True, started, of_groups)


def beyond_minimum(spec: GangSpec, pods: Iterable[Pod]) -> tuple[list[Pod], list[Pod]]:
    """The pods beyond the minimum, from the pod set grown most; and the rest.

    A gang below its minimum has no surplus.
    """
    minima = {"": spec.minimum}
    if spec.tree is not None:
        minima = {pod_set.name: pod_set.minimum for pod_set in spec.tree.pod_sets()}
    by_set: dict[str, list[Pod]] = {name: [] for name in minima}
    for pod in sorted(pods, key=lambda pod: (pod.rank, pod.created, pod.key.namespace, pod.key.name)):
        by_set[pod.pod_set if pod.pod_set in by_set else min(by_set)].append(pod)
    surplus: list[Pod] = []
    if all(len(by_set[name]) >= least for name, least in minima.items()):
        while more := [name for name in by_set if len(by_set[name]) > minima[name]]:
            most = max(more, key=lambda name: len(by_set[name]) / max(minima[name], 0.5))
            surplus.append(by_set[most].pop())
    return surplus, [pod for some in by_set.values() for pod in some]


class DisruptionBudgets:
    """Disruption budgets: how many more pods may be preempted, and which units would violate a budget."""

    def __init__(self, budgets: Sequence[DisruptionBudget]) -> None:
        self.budgets = tuple(budgets)
        self.spent = [0] * len(self.budgets)
        self.matching: dict[tuple[str, Labels], tuple[int, ...]] = {}

    def spend(self, pods: Iterable[Pod]) -> None:
        """Count preempted pods against their budgets."""
        for pod in pods:
            for at in self._budgets_of(pod):
                self.spent[at] += 1

    def split(self, units: Sequence[VictimUnit]) -> tuple[list[VictimUnit], list[VictimUnit]]:
        """Units that would violate a budget, and the others, if all were preempted in this order."""
        if not self.budgets:
            return [], list(units)
        left = [budget.allowed - removed for budget, removed in zip(self.budgets, self.spent, strict=True)]
        breaking: list[VictimUnit] = []
        others: list[VictimUnit] = []
        for unit in units:
            broken = False
            for pod in unit.pods:
                for at in self._budgets_of(pod):
                    left[at] -= 1
                    broken |= left[at] < 0
            (breaking if broken else others).append(unit)
        return breaking, others

    def broken(self, units: Sequence[VictimUnit]) -> int:
        """How many of these units would violate a budget."""
        return len(self.split(units)[0])

    def _budgets_of(self, pod: Pod) -> tuple[int, ...]:
        """The budgets that count a pod, without those that count it as disrupted already."""
        if not self.budgets:
            return ()
        signature = pod.spec.signature
        found = self.matching.get((pod.key.namespace, signature.labels))
        if found is None:
            labels = dict(signature.labels)
            found = self.matching[pod.key.namespace, signature.labels] = tuple(
                at
                for at, budget in enumerate(self.budgets)
                if budget.namespace == pod.key.namespace and budget.selector.accepts(labels)
            )
        return tuple(at for at in found if pod.key.name not in self.budgets[at].spent)
