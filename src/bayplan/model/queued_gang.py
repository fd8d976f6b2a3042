"""A gang that waits in a queue for quota and a placement, and its admission."""

from __future__ import annotations

import re
from collections.abc import Mapping, Set
from dataclasses import dataclass, field, replace
from enum import StrEnum

from bayplan.model.assignment import Assignment
from bayplan.model.gang import Gang, Ref
from bayplan.model.node_rules import Toleration
from bayplan.model.quota import Cell

Rank = tuple[int, float, str, str]
_DIGITS = re.compile("[0-9]+")


class Delayed(StrEnum):
    """Whether the placement of a pod set with quota is delayed."""

    PENDING = "pending"
    READY = "ready"


@dataclass(frozen=True, slots=True)
class PodSetAdmission:
    """The admission of one pod set: flavors by resource, amounts of quota, and a placement."""

    name: str
    count: int
    flavors: Mapping[str, str] = field(default_factory=dict)
    usage: Mapping[str, int] = field(default_factory=dict)
    assignment: Assignment | None = None
    delayed: Delayed | None = None


@dataclass(frozen=True, slots=True)
class Admission:
    """The admission of a gang: its queue, and the admission of each pod set."""

    queue: str
    pod_sets: tuple[PodSetAdmission, ...]

    def pod_set(self, pod_set: str) -> PodSetAdmission | None:
        """The admission of a pod set."""
        return next((given for given in self.pod_sets if given.name == pod_set), None)

    def usage(self) -> dict[Cell, int]:
        """The quota in use, by flavor and resource."""
        total: dict[Cell, int] = {}
        for given in self.pod_sets:
            for resource, flavor in given.flavors.items():
                cell = (flavor, resource)
                total[cell] = total.get(cell, 0) + given.usage.get(resource, 0)
        return total


class CheckState(StrEnum):
    """The state of an admission check for one gang."""

    PENDING = "pending"
    READY = "ready"
    RETRY = "retry"
    REJECTED = "rejected"


@dataclass(frozen=True, slots=True)
class PodSetUpdate:
    """Changes to the pods of a pod set that a ready check asks for."""

    pod_set: str
    selector: Mapping[str, str] = field(default_factory=dict)
    tolerations: tuple[Toleration, ...] = ()


@dataclass(frozen=True, slots=True)
class CheckStatus:
    """The status of one admission check for a gang."""

    check: str
    state: CheckState
    updates: tuple[PodSetUpdate, ...] = ()


@dataclass(frozen=True, slots=True)
class QuotaRequest:
    """The quota that one pod of a pod set needs, and whether it asks for topology placement."""

    name: str
    count: int
    per_pod: Mapping[str, int]
    topology: bool = False  # requested explicitly, not implied by the queue


@dataclass(frozen=True, slots=True)
class QueuedGang:
    """A gang in a queue with its admission status. `requests` are in the order of the gang's pod sets."""

    gang: Gang
    requests: tuple[QuotaRequest, ...]
    namespace_queue: tuple[str, str]  # namespace and name
    created: float = 0.0
    queued: float = 0.0  # when it was queued: at its creation, or at its last eviction
    active: bool = True
    admission: Admission | None = None
    reserved: float = 0.0  # since when it has quota
    admitted: bool = False  # all checks are ready and all placements are found
    evicted: bool = False  # being evicted; holds its quota until its pods are gone
    check_statuses: tuple[CheckStatus, ...] = ()
    failed_nodes: tuple[str, ...] = ()
    elastic: bool = False  # may be resized while it runs
    replaces: str = ""  # the name of an earlier, admitted version of the same gang
    lineage: str = ""  # one name for all versions of an elastic gang; empty: its own
    movable: bool = True  # failed nodes may be replaced
    not_before: float = 0.0  # backoff: not tried before
    labels: Mapping[str, str] = field(default_factory=dict)
    shape: str = ""  # equal for gangs with the same requests
    refusal: str = ""  # why it cannot be admitted as it is, in the words of its API

    @property
    def rank(self) -> Rank:
        """Its order in the queue: priority first, then pending time, then name."""
        source = self.gang.source
        return (-self.gang.priority, self.queued, source.namespace, _counted(source.name))

    @property
    def family(self) -> Ref:
        """The reference that pods of any version of the gang have."""
        return replace(self.gang.source, name=self.lineage) if self.lineage else self.gang.source

    @property
    def needs_placement(self) -> bool:
        """Whether it has quota and needs a placement now: all checks are ready, or nodes failed."""
        if self.admission is None or self.evicted:
            return False
        if self.failed_nodes and self.movable and self._is_on(set(self.failed_nodes), self.admission):
            return True
        waiting = any(given.delayed is Delayed.PENDING for given in self.admission.pod_sets)
        return waiting and all(verdict.state is CheckState.READY for verdict in self.check_statuses)

    @staticmethod
    def _is_on(nodes: Set[str], admission: Admission) -> bool:
        placements = (given.assignment for given in admission.pod_sets if given.assignment is not None)
        return any(share.values[-1] in nodes for placement in placements for share in placement.shares)


def _counted(name: str) -> str:
    """A sort key that orders numbers in names by value."""
    return _DIGITS.sub(lambda number: f"{len(number[0]):03}{number[0]}", name)
