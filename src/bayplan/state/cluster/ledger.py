"""The ledger of capacity in use: one entry per pod, so that nothing is counted twice."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from bayplan.model.pod import PodKey


@dataclass(frozen=True, slots=True)
class LedgerEntry:
    """The capacity a pod uses on a node: assumed once decided, confirmed when the API shows it."""

    owner: PodKey
    node: str
    amounts: Mapping[str, int]
    assumed: bool = False


@dataclass(frozen=True, slots=True)
class Shift:
    """The effect of a ledger change on a node: `sign` 1 uses capacity, -1 frees it."""

    node: str
    amounts: Mapping[str, int]
    sign: int


class Ledger:
    """Entries by pod. Every change returns its effect on the capacity of nodes."""

    def __init__(self) -> None:
        self.claims: dict[PodKey, LedgerEntry] = {}

    def hold(self, claim: LedgerEntry) -> list[Shift]:
        """Add or update an entry; a confirmed one replaces the assumed one of the same pod."""
        before = self.claims.get(claim.owner)
        self.claims[claim.owner] = claim
        if before is None:
            return [Shift(claim.node, claim.amounts, 1)]
        if before.node == claim.node and before.amounts == claim.amounts:
            return []
        return [Shift(before.node, before.amounts, -1), Shift(claim.node, claim.amounts, 1)]

    def release(self, owner: PodKey) -> list[Shift]:
        """Remove an entry, if there is one."""
        claim = self.claims.pop(owner, None)
        return [] if claim is None else [Shift(claim.node, claim.amounts, -1)]

    def release_assumed(self, owner: PodKey) -> list[Shift]:
        """Remove an entry that was never confirmed."""
        claim = self.claims.get(owner)
        return self.release(owner) if claim is not None and claim.assumed else []

    def by_node(self) -> dict[str, dict[str, int]]:
        """The sum of all entries by node."""
        total: dict[str, dict[str, int]] = {}
        for claim in self.claims.values():
            here = total.setdefault(claim.node, {})
            for name, amount in claim.amounts.items():
                here[name] = here.get(name, 0) + amount
        return total
