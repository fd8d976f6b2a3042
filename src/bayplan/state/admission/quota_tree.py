"""The quota tree: usage of each node, what is available, and the maximum that could ever be available."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from fractions import Fraction

from bayplan.model.quota import QUEUE_DEPTH_MAX, Cell, Quota, QuotaNode
from bayplan.model.summary import Flaw

NONE = Quota(0)


class QuotaAccount:
    """One node of the quota tree. Usage beyond the quota it does not lend counts at its parent too."""

    __slots__ = ("children", "is_queue", "name", "node", "parent", "subtree", "usage")

    def __init__(self, node: QuotaNode, is_queue: bool = False) -> None:
        self.name = node.name
        self.node = node
        self.is_queue = is_queue
        self.parent: QuotaAccount | None = None
        self.children: list[QuotaAccount] = []
        self.subtree: dict[Cell, int] = {}  # its own quota and what its children lend
        self.usage: dict[Cell, int] = {}

    def quota(self, cell: Cell) -> Quota:
        return self.node.quotas.get(cell, NONE)

    def unlent(self, cell: Cell) -> int:
        """The quota that is never lent to the parent."""
        lending = self.quota(cell).lending
        return 0 if lending is None else max(0, self.subtree.get(cell, 0) - lending)

    def unlent_free(self, cell: Cell) -> int:
        return max(0, self.unlent(cell) - self.usage.get(cell, 0))

    def _left(self, cell: Cell) -> int:
        """Quota minus usage; negative if usage exceeds quota."""
        subtree, usage = self.subtree.get(cell, 0), self.usage.get(cell, 0)
        if self.parent is None:
            return subtree - usage
        above, limit = self.parent._left(cell), self.quota(cell).borrowing
        unlent = self.unlent(cell)
        if limit is not None:
            above = min(above, subtree - unlent - max(0, usage - unlent) + limit)
        return max(0, unlent - usage) + above

    def available(self, cell: Cell) -> int:
        """The quota available now, including what can be borrowed."""
        return max(0, self._left(cell))

    def maximum(self, cell: Cell) -> int:
        """The maximum available if the whole tree were unused."""
        subtree = self.subtree.get(cell, 0)
        if self.parent is None:
            return subtree
        reachable, limit = self.unlent(cell) + self.parent.maximum(cell), self.quota(cell).borrowing
        return reachable if limit is None else min(reachable, subtree + limit)

    def add(self, cell: Cell, amount: int) -> None:
        """Add usage."""
        beyond = amount - self.unlent_free(cell)
        self.usage[cell] = self.usage.get(cell, 0) + amount
        if self.parent is not None and beyond > 0:
            self.parent.add(cell, beyond)

    def remove(self, cell: Cell, amount: int) -> None:
        """Remove usage."""
        usage = self.usage.get(cell, 0)
        above = usage - self.unlent(cell)
        self.usage[cell] = usage - amount
        if self.parent is not None and above > 0:
            self.parent.remove(cell, min(amount, above))

    def borrows(self, cell: Cell, more: int = 0) -> bool:
        """Whether this much more usage would exceed the quota of the subtree."""
        return self.subtree.get(cell, 0) < self.usage.get(cell, 0) + more

    def ancestors(self) -> Iterator[QuotaAccount]:
        """The ancestors from the parent to the root."""
        above = self.parent
        while above is not None:
            yield above
            above = above.parent

    def root(self) -> QuotaAccount:
        top = self
        while top.parent is not None:
            top = top.parent
        return top

    def queues(self) -> Iterator[QuotaAccount]:
        """All queues of the subtree, including this one."""
        if self.is_queue:
            yield self
        for child in self.children:
            yield from child.queues()

    def height(self) -> int:
        """The distance to the furthest leaf."""
        return max((child.height() + 1 for child in self.children), default=0)


class QuotaTree:
    """All nodes of the quota tree. Shared nodes and queues have separate name spaces."""

    def __init__(self, shared: Iterable[QuotaNode] = (), queues: Iterable[QuotaNode] = ()) -> None:
        self.queues = {node.name: QuotaAccount(node, is_queue=True) for node in queues}
        self.shared = {node.name: QuotaAccount(node) for node in shared}
        for account in [*self.queues.values(), *self.shared.values()]:
            above = account.node.parent
            if above and above not in self.shared:  # referenced, but not defined
                self.shared[above] = QuotaAccount(QuotaNode(above))
        self.misplaced = _misplaced(self.shared)
        for account in [*self.shared.values(), *self.queues.values()]:
            above = account.node.parent
            if above and above not in self.misplaced:
                account.parent = self.shared[above]
                account.parent.children.append(account)
        for account in [*self.queues.values(), *self.shared.values()]:
            if account.parent is None:
                _sum_up(account)

    def copy(self) -> QuotaTree:
        """A copy for simulation: usage is copied, configuration is shared."""
        result = QuotaTree.__new__(QuotaTree)
        result.misplaced = self.misplaced
        result.queues = {name: _copied(account) for name, account in self.queues.items()}
        result.shared = {name: _copied(account) for name, account in self.shared.items()}
        for accounts, copies in ((self.queues, result.queues), (self.shared, result.shared)):
            for name, account in accounts.items():
                if account.parent is not None:
                    copies[name].parent = result.shared[account.parent.name]
        for name, account in self.shared.items():
            result.shared[name].children = [
                (result.queues if child.is_queue else result.shared)[child.name] for child in account.children
            ]
        return result

    def use(self, queue: str, amounts: Mapping[Cell, int], sign: int = 1) -> None:
        """Add the usage of a gang to a queue (sign -1: remove it)."""
        account = self.queues.get(queue)
        if account is not None and account.parent is None:  # no ancestor to update
            usage = account.usage
            for cell, amount in amounts.items():
                usage[cell] = usage.get(cell, 0) + sign * amount
        elif account is not None:
            for cell, amount in amounts.items():
                account.add(cell, amount) if sign > 0 else account.remove(cell, amount)


def dominant_share(account: QuotaAccount) -> tuple[bool, Fraction, Fraction]:
    """The dominant resource share of a node: (infinite, weighted, unweighted), in thousandths.

    Usage above quota relative to what can be lent, for the resource with the largest ratio. A node of weight
    0 that borrows has an infinite share.
    """
    zero = (False, Fraction(0), Fraction(0))
    if account.parent is None:
        return zero
    over: dict[str, int] = {}
    for cell, quota in account.subtree.items():
        more = account.usage.get(cell, 0) - quota
        if more > 0:
            over[cell[1]] = over.get(cell[1], 0) + more
    if not over:
        return zero
    lendable: dict[str, int] = {}
    for cell in account.root().subtree:
        if cell[1] in over:
            lendable[cell[1]] = lendable.get(cell[1], 0) + account.parent.maximum(cell)
    plain = max(
        (Fraction(amount * 1000, lendable[name]) for name, amount in over.items() if lendable.get(name)),
        default=Fraction(0),
    )
    weight = account.node.weight
    if not weight:
        return (bool(plain), Fraction(0), plain)
    return (False, plain / weight, Fraction(0))


def _copied(account: QuotaAccount) -> QuotaAccount:
    copy = QuotaAccount(account.node, account.is_queue)
    copy.subtree, copy.usage = account.subtree, dict(account.usage)
    return copy


def _sum_up(account: QuotaAccount) -> None:
    """Compute the quota of each subtree from the leaves up."""
    account.subtree = {cell: quota.nominal for cell, quota in account.node.quotas.items()}
    for child in account.children:
        _sum_up(child)
        for cell, amount in child.subtree.items():
            account.subtree[cell] = account.subtree.get(cell, 0) + amount - child.unlent(cell)


def _misplaced(shared: Mapping[str, QuotaAccount]) -> Mapping[str, Flaw]:
    """Nodes that nothing may be below: in or below a cycle, or too many levels below their root."""
    levels: dict[str, int | None] = {}  # None: in or below a cycle
    for name in shared:
        path: dict[str, None] = {}
        while name in shared and name not in levels and name not in path:
            path[name] = None
            name = shared[name].node.parent
        level = None if name in path else levels.get(name, 0)
        for one in reversed(path):
            level = levels[one] = None if level is None else level + 1
    return {
        name: Flaw.CYCLE if level is None else Flaw.TOO_DEEP
        for name, level in levels.items()
        if level is None or level > QUEUE_DEPTH_MAX
    }
