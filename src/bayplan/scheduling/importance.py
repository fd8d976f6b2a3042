"""Who could be made to go for others, in which units, and who of them is rather let stay."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from math import inf

from bayplan.model.charter import Budget, Charter
from bayplan.model.gang import Ref
from bayplan.model.pod import Pod, PodKey
from bayplan.model.wants import Labels


@dataclass(frozen=True, slots=True)
class Unit:
    """Pods that go or stay together: one, or all of a gang that cannot do with less."""

    pods: tuple[Pod, ...]
    priority: int
    of_gang: bool
    started: float  # the earliest; a pod that has not started is the youngest

    @property
    def keys(self) -> tuple[PodKey, ...]:
        return tuple(pod.key for pod in self.pods)

    @property
    def whole(self) -> bool:
        """Whether it is more than the pod that is in the way."""
        return len(self.pods) > 1

    def rank(self) -> tuple[object, ...]:
        """Sorts the most important first."""
        size = len(self.pods) if self.of_gang else 0
        return -self.priority, not self.of_gang, -size, self.started, str(self.pods[0].key)


def units_of(pods: Iterable[Pod], charters: Mapping[Ref, Charter]) -> list[Unit]:
    """All pods that take room and are not on their way out already, the most important first."""
    units: list[Unit] = []
    together: dict[Ref, list[Pod]] = {}
    for pod in pods:
        if pod.leaving or not pod.takes_room:
            continue
        charter = charters.get(pod.gang) if pod.gang is not None else None
        if charter is not None and charter.leaves_whole:
            together.setdefault(charter.source, []).append(pod)
        else:
            units.append(Unit((pod,), pod.wants.priority, pod.gang is not None, pod.started or inf))
    for ref, members in together.items():
        members.sort(key=lambda pod: str(pod.key))
        said = charters[ref].priority
        priority = said if said is not None else max(pod.wants.priority for pod in members)
        started = min(pod.started or inf for pod in members)
        units.append(Unit(tuple(members), priority, True, started))
    return sorted(units, key=Unit.rank)


class Budgets:
    """How many more may go of the pods that somebody wants to keep, and who would be one too many."""

    def __init__(self, budgets: Sequence[Budget]) -> None:
        self.budgets = tuple(budgets)
        self.spent = [0] * len(self.budgets)
        self.known: dict[tuple[str, Labels], tuple[int, ...]] = {}

    def spend(self, pods: Iterable[Pod]) -> None:
        """These go for good: what may go besides them is less."""
        for pod in pods:
            for at in self._meaning(pod):
                self.spent[at] += 1

    def split(self, units: Sequence[Unit]) -> tuple[list[Unit], list[Unit]]:
        """Those that would break a budget, and those that would not, if all went in their order."""
        if not self.budgets:
            return [], list(units)
        left = [budget.allowed - gone for budget, gone in zip(self.budgets, self.spent, strict=True)]
        breaking: list[Unit] = []
        others: list[Unit] = []
        for unit in units:
            broken = False
            for pod in unit.pods:
                for at in self._meaning(pod):
                    left[at] -= 1
                    broken |= left[at] < 0
            (breaking if broken else others).append(unit)
        return breaking, others

    def broken(self, units: Sequence[Unit]) -> int:
        """How many of these would break a budget."""
        return len(self.split(units)[0])

    def _meaning(self, pod: Pod) -> tuple[int, ...]:
        """The budgets on whose account a pod would go; not those that it is counted for already."""
        if not self.budgets:
            return ()
        shape = pod.wants.shape
        found = self.known.get((pod.key.namespace, shape.labels))
        if found is None:
            labels = dict(shape.labels)
            found = self.known[pod.key.namespace, shape.labels] = tuple(
                at
                for at, budget in enumerate(self.budgets)
                if budget.namespace == pod.key.namespace and budget.selector.accepts(labels)
            )
        return tuple(at for at in found if pod.key.name not in self.budgets[at].spent)
