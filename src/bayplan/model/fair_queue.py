"""Queues that share a cluster by quota first, then by weight: a tree, with gangs at its leaves."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from fractions import Fraction


@dataclass(frozen=True, slots=True)
class Entitlement:
    """What a queue may have of one resource. None means without bound."""

    quota: Fraction | None = Fraction(0)  # its own, whatever others want
    limit: Fraction | None = None  # never more than this
    weight: Fraction = Fraction(1)  # its part of what nobody has a quota for


@dataclass(frozen=True, slots=True)
class FairQueue:
    """A queue, or queues together. Of siblings, those of higher priority are served first beyond quota."""

    name: str
    parent: str = ""
    priority: int = 0
    entitlements: Mapping[str, Entitlement] = field(default_factory=dict)
    created: float = 0.0
    preempt_after: float | None = None  # seconds a gang may run before one of its own queue displaces it
    reclaim_after: float | None = None  # and before another queue takes back what is its own
