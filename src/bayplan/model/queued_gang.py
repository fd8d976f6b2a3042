"""A gang that asks a queue for quota and a place, and what it was given."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum

from bayplan.model.assignment import Assignment
from bayplan.model.gang import Gang, Ref
from bayplan.model.node_rules import Toleration
from bayplan.model.quota import Cell

Rank = tuple[int, float, str, str]
_DIGITS = re.compile("[0-9]+")


class Delayed(StrEnum):
    """Whether a place is still to be found for a pod set that has quota."""

    PENDING = "pending"
    READY = "ready"


@dataclass(frozen=True, slots=True)
class PodSetAdmission:
    """What one pod set was given: flavors by resource, amounts of quota, and a place."""

    name: str
    count: int
    flavors: Mapping[str, str] = field(default_factory=dict)
    usage: Mapping[str, int] = field(default_factory=dict)
    place: Assignment | None = None
    delayed: Delayed | None = None


@dataclass(frozen=True, slots=True)
class Admission:
    """What a whole gang was given, pod set by pod set, and by which queue."""

    queue: str
    given: tuple[PodSetAdmission, ...]

    def of(self, pod_set: str) -> PodSetAdmission | None:
        """What a pod set was given."""
        return next((given for given in self.given if given.name == pod_set), None)

    def usage(self) -> dict[Cell, int]:
        """The quota in use, by flavor and resource."""
        total: dict[Cell, int] = {}
        for given in self.given:
            for resource, flavor in given.flavors.items():
                cell = (flavor, resource)
                total[cell] = total.get(cell, 0) + given.usage.get(resource, 0)
        return total


class CheckState(StrEnum):
    """What a check says about one gang."""

    PENDING = "pending"
    READY = "ready"
    RETRY = "retry"
    REJECTED = "rejected"


@dataclass(frozen=True, slots=True)
class PodSetUpdate:
    """What a check that is ready asks of the pods of a pod set."""

    pod_set: str
    selector: Mapping[str, str] = field(default_factory=dict)
    tolerations: tuple[Toleration, ...] = ()


@dataclass(frozen=True, slots=True)
class CheckStatus:
    """A check's word about one gang."""

    check: str
    state: CheckState
    tweaks: tuple[PodSetUpdate, ...] = ()


@dataclass(frozen=True, slots=True)
class QuotaRequest:
    """The quota that one pod of a pod set needs, and whether its topology matters by itself."""

    name: str
    count: int
    each: Mapping[str, int]
    topology: bool = False  # asked for by name, not implied by the queue


@dataclass(frozen=True, slots=True)
class QueuedGang:
    """All that is known of a gang in a queue. `asks` stand in the order of the gang's pod sets."""

    gang: Gang
    asks: tuple[QuotaRequest, ...]
    entrance: tuple[str, str]  # namespace and name
    created: float = 0.0
    queued: float = 0.0  # when it joined the line: at its creation, or when it was sent back
    active: bool = True
    admission: Admission | None = None
    reserved: float = 0.0  # since when it has quota
    admitted: bool = False  # every check said yes and every place is found
    evicted: bool = False  # has to leave; holds its quota until it has
    verdicts: tuple[CheckStatus, ...] = ()
    failed_nodes: tuple[str, ...] = ()
    elastic: bool = False  # may grow and shrink while it runs
    replaces: str = ""  # the name of an earlier, admitted version of the same gang
    lineage: str = ""  # one name for all versions of a gang that may grow; empty: its own
    movable: bool = True  # may be given other nodes for failed ones
    not_before: float = 0.0  # put off until then
    labels: Mapping[str, str] = field(default_factory=dict)
    shape: str = ""  # equal for gangs that ask for the very same

    @property
    def rank(self) -> Rank:
        """Its place among others: more important first, then whoever waits longer, then by name."""
        source = self.gang.source
        return (-self.gang.priority, self.queued, source.namespace, _counted(source.name))

    @property
    def family(self) -> Ref:
        """What pods of any version of the gang name."""
        return replace(self.gang.source, name=self.lineage) if self.lineage else self.gang.source

    @property
    def places_pending(self) -> bool:
        """Quota is there and a place is to be found now: all checks agree, or nodes failed."""
        if self.admission is None or self.evicted:
            return False
        if self.failed_nodes and self.movable:
            return True
        waiting = any(given.delayed is Delayed.PENDING for given in self.admission.given)
        return waiting and all(verdict.state is CheckState.READY for verdict in self.verdicts)


def _counted(name: str) -> str:
    """A name by which the second of many comes before the tenth."""
    return _DIGITS.sub(lambda number: f"{len(number[0]):03}{number[0]}", name)
