"""Fair shares of each resource for every queue of a tree: quota first, then by priority, then by weight."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from math import floor

from bayplan.model.quota import QUEUE_DEPTH_MAX, Entitlement, FairQueue

Amounts = Mapping[str, Fraction | int]
"""Amounts by resource; a missing resource is zero."""

NOTHING_SAID = Entitlement()


def resources_of(queues: Iterable[FairQueue]) -> tuple[str, ...]:
    """The shared resources: all that any queue names."""
    return tuple(sorted({name for queue in queues for name in queue.entitlements}))


def fair_shares(
    queues: Mapping[str, FairQueue], requests: Mapping[str, Amounts], capacity: Amounts
) -> dict[str, dict[str, Fraction]]:
    """The fair share of every queue, by resource.

    `requests` is usage plus pending requests of each leaf. Queues are served within the share of their
    parent, never beyond their requests or their limit. Quota is granted even if capacity is smaller.
    """
    below = children(queues)
    resources = resources_of(queues.values())
    shares: dict[str, dict[str, Fraction]] = {name: {} for name in queues}
    for resource in resources:
        request = _asked(queues, below, requests, resource)
        there = Fraction(capacity.get(resource, 0))
        level: list[tuple[Fraction, Sequence[str]]] = [(there, below.get("", ()))]
        while level:
            amount, names = level.pop()
            found = divide([_claim(queues[name], resource, request[name]) for name in names], amount)
            for name, share in zip(names, found, strict=True):
                shares[name][resource] = share
                if name in below:
                    level.append((share, below[name]))
    return shares


def children(queues: Mapping[str, FairQueue]) -> dict[str, list[str]]:
    """Queues by their parent, "" for roots. Queues that do not reach a root are left out."""
    found: dict[str, list[str]] = {}
    for name, queue in queues.items():
        if is_rooted(queues, name):
            found.setdefault(queue.parent, []).append(name)
    return found


def is_rooted(queues: Mapping[str, FairQueue], name: str) -> bool:
    """Whether a queue reaches a root: all ancestors exist, are not too many, and there is no cycle."""
    for _ in range(QUEUE_DEPTH_MAX):
        if name not in queues:
            break
        name = queues[name].parent
    return not name


def _asked(
    queues: Mapping[str, FairQueue],
    below: Mapping[str, Sequence[str]],
    requests: Mapping[str, Amounts],
    resource: str,
) -> dict[str, Fraction]:
    """The requests of each queue including its descendants."""
    request = dict.fromkeys(queues, Fraction(0))
    for name, amounts in requests.items():
        amount = Fraction(amounts.get(resource, 0))
        if name in queues and name not in below and amount and is_rooted(queues, name):
            at = name
            while at:
                request[at] += amount
                at = queues[at].parent
    return request


# ── division among siblings ────────────────────────────────────────────────────────────────────────


@dataclass(frozen=True, slots=True)
class ShareClaim:
    """The claim of one of several siblings to one resource."""

    requested: Fraction
    quota: Fraction | None = Fraction(0)
    limit: Fraction | None = None
    weight: Fraction = Fraction(1)
    priority: int = 0
    age: tuple[float, str] = (0.0, "")  # ties go to the oldest queue

    @property
    def upper_bound(self) -> Fraction:
        """The upper bound of its share."""
        return self.requested if self.limit is None else min(self.requested, self.limit)


def _claim(queue: FairQueue, resource: str, request: Fraction) -> ShareClaim:
    said = queue.entitlements.get(resource, NOTHING_SAID)
    age = (queue.created, queue.name)
    return ShareClaim(request, said.quota, said.limit, said.weight, queue.priority, age)


def divide(claims: Sequence[ShareClaim], amount: Fraction) -> list[Fraction]:
    """Divide an amount among siblings: quota first, the rest by priority, at equal priority by weight."""
    shares = [min(claim.upper_bound, amount if claim.quota is None else claim.quota) for claim in claims]
    left = amount - sum(shares)
    for priority in sorted({claim.priority for claim in claims}, reverse=True):
        if left <= 0:
            break
        among = [at for at, claim in enumerate(claims) if claim.priority == priority]
        if len(among) == 1:  # weight only matters among several
            more = min(left, claims[among[0]].upper_bound - shares[among[0]])
            shares[among[0]] += more
            left -= more
        else:
            left = _by_weight(claims, shares, among, left)
    return shares


def _by_weight(
    claims: Sequence[ShareClaim], shares: list[Fraction], among: Sequence[int], left: Fraction
) -> Fraction:
    """Divide what is left among some claims by weight; returns what none of them requests.

    A claim that requests less than its part gets just that, and the others share the rest. Parts are
    integers: the remainder of the rounding goes to those that lost most by it, one each.
    """
    while True:
        wants = [at for at in among if shares[at] < claims[at].upper_bound and claims[at].weight > 0]
        total = sum(claims[at].weight for at in wants)
        if not total or left <= 0:
            return left
        parts = {at: left * claims[at].weight / total for at in wants}
        content = [at for at in wants if claims[at].upper_bound - shares[at] <= parts[at]]
        for at in content:
            left -= claims[at].upper_bound - shares[at]
            shares[at] = claims[at].upper_bound
        if not content:
            return left - _in_whole_numbers(claims, shares, parts, left)


def _in_whole_numbers(
    claims: Sequence[ShareClaim], shares: list[Fraction], parts: Mapping[int, Fraction], left: Fraction
) -> Fraction:
    """Every claim requests more than its part; returns the amount given."""
    before = left
    for at, part in parts.items():
        shares[at] += floor(part)
        left -= floor(part)
    for at in sorted(parts, key=lambda at: (floor(parts[at]) - parts[at], claims[at].age)):
        more = min(Fraction(1), left, claims[at].upper_bound - shares[at])
        shares[at] += more
        left -= more
    return before - left
