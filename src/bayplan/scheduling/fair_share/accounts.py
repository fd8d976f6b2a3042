"""Usage and limits of every queue during one cycle, and how queues rank among their siblings."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from fractions import Fraction

from bayplan.model.gang import GangSpec
from bayplan.model.pod import Pod
from bayplan.model.quota import FairQueue
from bayplan.model.rejection import QuotaExcess
from bayplan.scheduling.fair_share.shares import NOTHING_SAID, children, fair_shares, is_rooted, resources_of
from bayplan.state.scheduling.fair_usage import FairView

Use = dict[str, int]
NO_SHARE_RATIO = 1000  # dominant share of a queue that has no share of a resource it uses
NONE: Mapping[str, int] = {}
Ratio = tuple[bool, Fraction]
"""Whether it is infinite, and the exact ratio if it is not. Ratios are ordered."""


def amounts_of(pods: Iterable[Pod]) -> Use:
    """The total requests of pods."""
    total: Use = {}
    for pod in pods:
        for resource, amount in pod.amounts.items():
            total[resource] = total.get(resource, 0) + amount
    return total


class Accounts:
    """Fair shares are fixed for the cycle; usage follows the decisions."""

    def __init__(self, view: FairView, nominated: Iterable[tuple[GangSpec, Pod]] = ()) -> None:
        self.queues = view.queues
        self.below = children(view.queues)
        self.resources = resources_of(view.queues.values())
        self.capacity = view.capacity
        leaves = {*view.usage, *view.requested}
        request = {name: _sum(view.usage.get(name, NONE), view.requested.get(name, NONE)) for name in leaves}
        self.shares = fair_shares(view.queues, request, view.capacity)
        self.use: dict[str, Use] = {name: {} for name in view.queues}
        self.non_preemptible: dict[str, Use] = {name: {} for name in view.queues}
        self._ranks: dict[str, tuple[object, tuple[object, ...]]] = {}
        for name, amounts in view.usage.items():
            self.take(name, amounts)
        for name, amounts in view.non_preemptible.items():
            self._count(self.non_preemptible, name, amounts, 1)
        for spec, pod in nominated:
            if spec.queue:
                self.take(spec.queue, pod.amounts, lasting=spec.non_preemptible)

    # ── the tree ───────────────────────────────────────────────────────────────────────────────────

    def missing(self, name: str) -> str | None:
        """The queue that is missing or misplaced on the path of the named queue; None if the path is valid.

        Gangs belong to leaf queues, and every ancestor must exist. In a circle no queue is missing: the named
        one is returned.
        """
        if name not in self.queues or name in self.below:
            return name
        if is_rooted(self.queues, name):
            return None
        return next((at for at in self.path_up(name) if at not in self.queues), name)

    def path_up(self, name: str) -> Iterator[str]:
        """A queue and its ancestors; stops at a missing queue and before repeating a circle."""
        seen: set[str] = set()
        while name and name not in seen:
            yield name
            seen.add(name)
            queue = self.queues.get(name)
            name = queue.parent if queue is not None else ""

    def diverging(self, one: str, other: str) -> tuple[str, str]:
        """The first ancestors, from the root, in which two queues differ; else the queues themselves."""
        mine, theirs = [*self.path_up(one)][::-1], [*self.path_up(other)][::-1]
        found = one, other
        for found in zip(mine, theirs, strict=False):
            if found[0] != found[1]:
                break
        return found

    # ── usage ──────────────────────────────────────────────────────────────────────────────────────

    def take(self, queue: str, amounts: Mapping[str, int], *, lasting: bool = False, sign: int = 1) -> None:
        """Add amounts to the usage of a queue and its ancestors (sign -1: subtract)."""
        self._count(self.use, queue, amounts, sign)
        if lasting:
            self._count(self.non_preemptible, queue, amounts, sign)

    def _count(self, kept: dict[str, Use], queue: str, amounts: Mapping[str, int], sign: int) -> None:
        if queue not in self.queues or not is_rooted(self.queues, queue):
            return
        for name in self.path_up(queue):
            self._ranks.pop(name, None)
            for resource in self.resources:
                kept[name][resource] = kept[name].get(resource, 0) + sign * amounts.get(resource, 0)

    # ── quota, share and limit ─────────────────────────────────────────────────────────────────────

    def quota(self, name: str, resource: str) -> Fraction | None:
        """The quota of a queue."""
        return self.queues[name].entitlements.get(resource, NOTHING_SAID).quota

    def allowed(self, name: str, resource: str) -> Fraction | None:
        """The amount that is never reclaimed from a queue: its quota, or its fair share if that is more."""
        said = self.queues[name].entitlements.get(resource, NOTHING_SAID)
        if said.quota is None:
            return said.limit
        most = max(said.quota, self.shares[name].get(resource, Fraction(0)))
        return most if said.limit is None else min(most, said.limit)

    def beyond_limit(self, queue: str, amounts: Mapping[str, int]) -> QuotaExcess | None:
        """The first queue, from the leaf up, whose usage would exceed its limit."""
        for name in self.path_up(queue):
            for resource in self.resources:
                limit = self.queues[name].entitlements.get(resource, NOTHING_SAID).limit
                used, request = self.use[name].get(resource, 0), amounts.get(resource, 0)
                if request and limit is not None and used + request > limit:
                    return QuotaExcess(name, resource, limit, used, request)
        return None

    def beyond_quota(self, queue: str, amounts: Mapping[str, int]) -> QuotaExcess | None:
        """The first queue, from the leaf up, whose non-preemptible usage would exceed its quota."""
        for name in self.path_up(queue):
            for resource in self.resources:
                quota = self.quota(name, resource)
                used, request = self.non_preemptible[name].get(resource, 0), amounts.get(resource, 0)
                if request and quota is not None and used + request > quota:
                    return QuotaExcess(name, resource, quota, used, request)
        return None

    def could_hold(self, queue: str, amounts: Mapping[str, int], *, lasting: bool = False) -> bool:
        """Whether the amounts alone are within the share of the queue, and within all limits above it.

        Then they fit once other gangs of the queue have ended. Lasting amounts must be within quota, too.
        """
        share = self.shares[queue]
        if any(amounts.get(r, 0) > share.get(r, 0) for r in self.resources):
            return False
        said = [self.queues[name].entitlements for name in self.path_up(queue)]
        bounds = [(r, each.get(r, NOTHING_SAID).limit) for each in said for r in self.resources]
        bounds += [(r, each.get(r, NOTHING_SAID).quota) for each in said for r in self.resources if lasting]
        return all(bound is None or amounts.get(r, 0) <= bound for r, bound in bounds)

    def within_share(self, queue: str, amounts: Mapping[str, int]) -> bool:
        """Whether the queue's usage with these amounts stays within its fair share of every resource."""
        share, use = self.shares[queue], self.use[queue]
        return all(use.get(r, 0) + amounts.get(r, 0) <= share.get(r, 0) for r in self.resources)

    def within_quota(self, name: str, amounts: Mapping[str, int], use: Use | None = None) -> bool:
        """Whether the queue's usage with these amounts stays within its quota of every resource."""
        held = self.use[name] if use is None else use
        quotas = ((r, self.quota(name, r)) for r in self.resources)
        return all(quota is None or held.get(r, 0) + amounts.get(r, 0) <= quota for r, quota in quotas)

    def within_allowed(self, name: str, use: Use) -> bool:
        """Whether this usage stays within what is never reclaimed from the queue, for every resource."""
        bounds = ((r, self.allowed(name, r)) for r in self.resources)
        return all(bound is None or use.get(r, 0) <= bound for r, bound in bounds)

    # ── order among siblings ───────────────────────────────────────────────────────────────────────

    def rank(
        self, name: str, key: object, more: Mapping[str, int], less: Mapping[str, int]
    ) -> tuple[object, ...]:
        """Sort key of siblings if the queue gains `more` or loses `less`; `key` identifies the amounts."""
        known = self._ranks.get(name)
        if known is None or known[0] != key:
            known = self._ranks[name] = key, self._rank(name, more, less)
        return known[1]

    def _rank(self, name: str, more: Mapping[str, int], less: Mapping[str, int]) -> tuple[object, ...]:
        """Below share, below quota, priority, has a share at all, smallest dominant share, oldest."""
        queue, use, share = self.queues[name], self.use[name], self.shares[name]
        then = {r: use.get(r, 0) + more.get(r, 0) for r in self.resources}
        over = all(use.get(r, 0) > share.get(r, 0) for r in self.resources)
        allowed = {r: self.allowed(name, r) for r in self.resources}
        shareless = any(allowed[r] == 0 and then[r] > 0 for r in self.resources)
        after = {r: then[r] - less.get(r, 0) for r in self.resources}
        return (
            over,
            not self.within_quota(name, more),
            -queue.priority,
            shareless,
            self._dominant(allowed, after),
            self._dominant(allowed, use),
            sum(self._of_capacity(r, bound) for r, bound in allowed.items()),
            *_age(queue),
        )

    def _dominant(self, allowed: Mapping[str, Fraction | None], use: Mapping[str, int]) -> Fraction:
        """The dominant share: the largest ratio of usage to allowed amount over all resources."""
        most = Fraction(0)
        for resource, bound in allowed.items():
            have = use.get(resource, 0)
            if have > 0:
                of = self.capacity.get(resource, 0) if bound is None else bound
                most = max(most, _divided(have, of) if of else Fraction(have * NO_SHARE_RATIO))
        return most

    def _of_capacity(self, resource: str, bound: Fraction | None) -> Fraction | int:
        all_of_it = self.capacity.get(resource, 0)
        return 1 if bound is None or not all_of_it else bound / all_of_it


def share_ratio(has: int, share: Fraction | int) -> Ratio:
    """The ratio of usage to a share; infinite for usage without a share."""
    if not share:
        return has > 0, Fraction(0)
    return False, _divided(has, share)


def _divided(has: int, of: Fraction | int) -> Fraction:
    return Fraction(has * of.denominator, of.numerator)


def _age(queue: FairQueue) -> tuple[float, str]:
    return queue.created, queue.name


def _sum(one: Mapping[str, int], other: Mapping[str, int]) -> Use:
    return {name: one.get(name, 0) + other.get(name, 0) for name in (*one, *other)}
