"""One ledger: every hold on capacity is a claim, and nothing is counted twice."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from bayplan.model.pod import PodKey


@dataclass(frozen=True, slots=True)
class LedgerEntry:
    """A pod's hold on a node: assumed when decided, firm once the pod is seen there."""

    owner: PodKey
    node: str
    amounts: Mapping[str, int]
    assumed: bool = False


@dataclass(frozen=True, slots=True)
class Shift:
    """What a change of claims means for a node's room: `sign` 1 takes, -1 gives back."""

    node: str
    amounts: Mapping[str, int]
    sign: int


class Ledger:
    """Claims by owner. Every change says what it means for the room on nodes."""

    def __init__(self) -> None:
        self.claims: dict[PodKey, LedgerEntry] = {}

    def hold(self, claim: LedgerEntry) -> list[Shift]:
        """Make or renew a claim; a firm one takes over the assumed one of the same pod."""
        before = self.claims.get(claim.owner)
        self.claims[claim.owner] = claim
        if before is None:
            return [Shift(claim.node, claim.amounts, 1)]
        if before.node == claim.node and before.amounts == claim.amounts:
            return []
        return [Shift(before.node, before.amounts, -1), Shift(claim.node, claim.amounts, 1)]

    def release(self, owner: PodKey) -> list[Shift]:
        """Drop a claim, if there is one."""
        claim = self.claims.pop(owner, None)
        return [] if claim is None else [Shift(claim.node, claim.amounts, -1)]

    def release_assumed(self, owner: PodKey) -> list[Shift]:
        """Drop a claim that never became firm."""
        claim = self.claims.get(owner)
        return self.release(owner) if claim is not None and claim.assumed else []

    def by_node(self) -> dict[str, dict[str, int]]:
        """The sum of all claims: what the room on nodes must agree with."""
        total: dict[str, dict[str, int]] = {}
        for claim in self.claims.values():
            here = total.setdefault(claim.node, {})
            for name, amount in claim.amounts.items():
                here[name] = here.get(name, 0) + amount
        return total
