"""The ledger of capacity in use: one claim per owner, so that nothing is counted twice."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from bayplan.model.pod import Pod, PodKey


@dataclass(frozen=True, slots=True)
class LedgerEntry:
    """Capacity of a node that is in use, other than all that a pod requests on its node."""

    key: PodKey
    node: str
    amounts: Mapping[str, int]


Claim = Pod | LedgerEntry
"""A pod is its own claim: it uses its amounts on its node."""


@dataclass(frozen=True, slots=True)
class Shift:
    """The effect of a ledger change on a node: `sign` 1 uses capacity, -1 frees it."""

    node: str
    amounts: Mapping[str, int]
    sign: int


class Ledger:
    """Claims by owner. Every change returns its effect on the capacity of nodes."""

    def __init__(self) -> None:
        self.pods: dict[PodKey, Pod] = {}  # on the node that they use, or are assumed to use
        self.entries: dict[PodKey, LedgerEntry] = {}

    @property
    def claims(self) -> dict[PodKey, Claim]:
        """All claims."""
        return {**self.pods, **self.entries}

    def claim_of(self, key: PodKey) -> Claim | None:
        """The claim of an owner."""
        return self.pods.get(key) or self.entries.get(key)

    def hold(self, claim: Claim) -> list[Shift]:
        """Add a claim, or replace that of the same owner."""
        before: Claim | None
        if isinstance(claim, Pod):
            before = self.entries.pop(claim.key, None) or self.pods.get(claim.key)
            self.pods[claim.key] = claim
        else:
            before = self.pods.pop(claim.key, None) or self.entries.get(claim.key)
            self.entries[claim.key] = claim
        if before is None:
            return [Shift(claim.node, claim.amounts, 1)]
        if before.node == claim.node and before.amounts == claim.amounts:
            return []
        return [Shift(before.node, before.amounts, -1), Shift(claim.node, claim.amounts, 1)]

    def release(self, key: PodKey) -> list[Shift]:
        """Remove a claim, if there is one."""
        claim = self.pods.pop(key, None) or self.entries.pop(key, None)
        return [] if claim is None else [Shift(claim.node, claim.amounts, -1)]

    def by_node(self) -> dict[str, dict[str, int]]:
        """The sum of all claims by node."""
        total: dict[str, dict[str, int]] = {}
        for claims in (self.pods, self.entries):
            for claim in claims.values():
                here = total.setdefault(claim.node, {})
                for name, amount in claim.amounts.items():
                    here[name] = here.get(name, 0) + amount
        return total
