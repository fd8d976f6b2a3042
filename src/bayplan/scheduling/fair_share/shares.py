"""How much of each resource every queue of a tree may have: quota first, then by priority, then by weight."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from math import floor

from bayplan.model.quota import Entitlement, FairQueue

Amounts = Mapping[str, Fraction | int]
"""By resource; one that is not named is none of it."""

NOTHING_SAID = Entitlement()


def resources_of(queues: Iterable[FairQueue]) -> tuple[str, ...]:
    """The resources that are shared: those that any queue says something about."""
    return tuple(sorted({name for queue in queues for name in queue.entitlements}))


def fair_shares(
    queues: Mapping[str, FairQueue], requests: Mapping[str, Amounts], capacity: Amounts
) -> dict[str, dict[str, Fraction]]:
    """The fair share of every queue, by resource.

    `requests` is what each leaf has and wants together. Queues are served within the share of their parent,
    never beyond what they ask for or their limit. Quota counts even if there is less to share.
    """
    below = children(queues)
    resources = resources_of(queues.values())
    shares: dict[str, dict[str, Fraction]] = {name: {} for name in queues}
    for resource in resources:
        asked = _asked(queues, below, requests, resource)
        there = Fraction(capacity.get(resource, 0))
        level: list[tuple[Fraction, Sequence[str]]] = [(there, below.get("", ()))]
        while level:
            amount, names = level.pop()
            found = divide([_claim(queues[name], resource, asked[name]) for name in names], amount)
            for name, share in zip(names, found, strict=True):
                shares[name][resource] = share
                if name in below:
                    level.append((share, below[name]))
    return shares


def children(queues: Mapping[str, FairQueue]) -> dict[str, list[str]]:
    """Queues by their parent, "" for those at the top. Who does not get there is nowhere."""
    found: dict[str, list[str]] = {}
    for name, queue in queues.items():
        if is_rooted(queues, name):
            found.setdefault(queue.parent, []).append(name)
    return found


def is_rooted(queues: Mapping[str, FairQueue], name: str) -> bool:
    """Whether a queue and all above it are there, and none is above itself."""
    seen: set[str] = set()
    while name and name in queues and name not in seen:
        seen.add(name)
        name = queues[name].parent
    return not name


def _asked(
    queues: Mapping[str, FairQueue],
    below: Mapping[str, Sequence[str]],
    requests: Mapping[str, Amounts],
    resource: str,
) -> dict[str, Fraction]:
    """What each queue asks for with all below it."""
    asked = dict.fromkeys(queues, Fraction(0))
    for name, amounts in requests.items():
        amount = Fraction(amounts.get(resource, 0))
        if name in queues and name not in below and amount and is_rooted(queues, name):
            at = name
            while at:
                asked[at] += amount
                at = queues[at].parent
    return asked


# ── among siblings ─────────────────────────────────────────────────────────────────────────────────


@dataclass(frozen=True, slots=True)
class ShareClaim:
    """What one of several queues may have of one resource."""

    asked: Fraction
    quota: Fraction | None = Fraction(0)
    limit: Fraction | None = None
    weight: Fraction = Fraction(1)
    priority: int = 0
    age: tuple[float, str] = (0.0, "")  # ties go to the oldest

    @property
    def most(self) -> Fraction:
        """It never gets more."""
        return self.asked if self.limit is None else min(self.asked, self.limit)


def _claim(queue: FairQueue, resource: str, asked: Fraction) -> ShareClaim:
    said = queue.entitlements.get(resource, NOTHING_SAID)
    age = (queue.created, queue.name)
    return ShareClaim(asked, said.quota, said.limit, said.weight, queue.priority, age)


def divide(claims: Sequence[ShareClaim], amount: Fraction) -> list[Fraction]:
    """What each gets of an amount: its quota, then what is left by priority, and by weight among equals."""
    given = [min(claim.most, amount if claim.quota is None else claim.quota) for claim in claims]
    left = amount - sum(given)
    for priority in sorted({claim.priority for claim in claims}, reverse=True):
        if left <= 0:
            break
        among = [at for at, claim in enumerate(claims) if claim.priority == priority]
        if len(among) == 1:  # weight is a matter of several
            more = min(left, claims[among[0]].most - given[among[0]])
            given[among[0]] += more
            left -= more
        else:
            left = _by_weight(claims, given, among, left)
    return given


def _by_weight(
    claims: Sequence[ShareClaim], given: list[Fraction], among: Sequence[int], left: Fraction
) -> Fraction:
    """Give what is left to some of them; returns what nobody of them wants.

    Who wants less than its part gets just that, and the others share the rest. Parts are whole numbers: what
    rounding leaves over goes to those who lost most by it, one each.
    """
    while True:
        wants = [at for at in among if given[at] < claims[at].most and claims[at].weight > 0]
        total = sum(claims[at].weight for at in wants)
        if not total or left <= 0:
            return left
        parts = {at: left * claims[at].weight / total for at in wants}
        content = [at for at in wants if claims[at].most - given[at] <= parts[at]]
        for at in content:
            left -= claims[at].most - given[at]
            given[at] = claims[at].most
        if not content:
            return left - _in_whole_numbers(claims, given, parts, left)


def _in_whole_numbers(
    claims: Sequence[ShareClaim], given: list[Fraction], parts: Mapping[int, Fraction], left: Fraction
) -> Fraction:
    """Everybody wants more than its part; returns how much was given."""
    before = left
    for at, part in parts.items():
        given[at] += floor(part)
        left -= floor(part)
    for at in sorted(parts, key=lambda at: (floor(parts[at]) - parts[at], claims[at].age)):
        more = min(Fraction(1), left, claims[at].most - given[at])
        given[at] += more
        left -= more
    return before - left
