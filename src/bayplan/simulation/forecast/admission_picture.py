"""Queues, quota and nodes of admission as the picture that is run forward."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from itertools import islice, product

import numpy as np

from bayplan.model.gang import Group, Locality, PodSet
from bayplan.model.node import PODS
from bayplan.model.queued_gang import QueuedGang
from bayplan.model.quota import Cell, Flavor, Queue
from bayplan.placement.cluster import node_table
from bayplan.placement.cluster.snapshot import CapacitySnapshot
from bayplan.simulation.forecast.forward_run import NO_QUEUE, Ints, RunningGang, StartOption, WaitingGang
from bayplan.simulation.forecast.node_room import ANYWHERE, Bools, Measure, NodeCapacity, NodeShare
from bayplan.simulation.forecast.quota_room import NO_PARENT, UNLIMITED, QuotaLimits
from bayplan.state.admission.quota_tree import QuotaAccount
from bayplan.state.admission.state import AdmissionState
from bayplan.state.admission.usage import GangUsage

OPTIONS_MAX = 8
"""Combinations of flavors that are tried for one gang."""
Shape = tuple[tuple[tuple[str, int], ...], object, str]


class AdmissionPicture:
    """Translates gangs of an admission state; measures are collected as gangs ask for them."""

    def __init__(self, state: AdmissionState, gangs: Iterable[QueuedGang]) -> None:
        self.state, self.usage, self.config = state, state.usage, state.config
        asked = {name for gang in gangs for pods in gang.gang.root.pod_sets() for name in pods.requests}
        self.resources = [*sorted(asked - {PODS}), PODS]
        self.supplies = self.usage.supplies()
        self.rows: dict[str, int] = {}
        for supply in self.supplies.values():
            for node in supply.tree.nodes:
                self.rows.setdefault(node.name, len(self.rows))
        self.free: Ints = np.zeros((len(self.rows), len(self.resources)), np.int64)
        self.rows_of = {name: self._read(supply) for name, supply in self.supplies.items()}
        self.domains: list[Ints] = []
        self.levels: dict[tuple[str, str], int] = {}
        for name, supply in self.supplies.items():
            self._number_domains(name, supply)
        self.shapes: dict[Shape, int] = {}
        self.requests: list[Ints] = []
        self.allowed: list[Bools] = []
        self.measures: dict[Measure, int] = {}
        groups = [group for queue in self.config.queues.values() for group in queue.groups]
        found = {(flavor, name) for group in groups for flavor in group.flavors for name in group.resources}
        self.cells: dict[Cell, int] = {cell: at for at, cell in enumerate(sorted(found))}
        self.accounts = _parents_first(self.usage.quota_tree().queues.values())
        self.numbers = {id(account): at for at, account in enumerate(self.accounts)}
        self.queues = {account.name: at for at, account in enumerate(self.accounts) if account.is_queue}

    # ── gangs ──────────────────────────────────────────────────────────────────────────────────────

    def waiting(self, gang: QueuedGang, name: str, queue: str) -> WaitingGang:
        """A gang that waits in a queue; without an option if the queue cannot take it."""
        rules = self.config.queues.get(queue)
        options = () if rules is None else tuple(islice(self._options(gang, rules), OPTIONS_MAX))
        return WaitingGang(name, options, self.queues.get(queue, NO_QUEUE), gang.queued)

    def running(self, name: str, usage: GangUsage) -> RunningGang:
        """A gang with quota, and its nodes as far as they are known."""
        quota = self._quota(usage.quota.items())
        return RunningGang(name, self._share(usage), self.queues.get(usage.queue, NO_QUEUE), quota)

    def started(self, waiting: WaitingGang, share: NodeShare) -> RunningGang:
        """A gang as it would run with its first option."""
        quota = waiting.options[0].quota if waiting.options else self._quota(())
        return RunningGang(waiting.name, share, waiting.queue, quota)

    # ── the cluster ────────────────────────────────────────────────────────────────────────────────

    def capacity(self, running: Sequence[RunningGang]) -> NodeCapacity:
        """The nodes as they are without the running gangs; asked for last, when all measures are known."""
        free = self.free.copy()
        for gang in running:
            np.add.at(free, gang.share.rows, gang.share.amounts)
        nothing: Ints = np.zeros((0, len(self.resources)), np.int64)
        return NodeCapacity(
            free,
            np.array(self.requests, np.int64) if self.requests else nothing,
            np.array(self.allowed, bool) if self.allowed else np.zeros((0, len(free)), bool),
            tuple(self.domains),
            tuple(self.measures),
        )

    def limits(self) -> QuotaLimits:
        """The quota tree without usage: all of it is of running gangs."""
        size = (len(self.accounts), len(self.cells))
        subtree, unlent = np.zeros(size, np.int64), np.zeros(size, np.int64)
        borrowing = np.full(size, UNLIMITED, np.int64)
        parents = []
        for at, account in enumerate(self.accounts):
            parents.append(NO_PARENT if account.parent is None else self.numbers[id(account.parent)])
            for cell, column in self.cells.items():
                subtree[at, column] = min(account.subtree.get(cell, 0), UNLIMITED)
                unlent[at, column] = min(account.unlent(cell), UNLIMITED)
                limit = account.quota(cell).borrowing
                borrowing[at, column] = UNLIMITED if limit is None else min(limit, UNLIMITED)
        return QuotaLimits(tuple(parents), subtree, unlent, borrowing, np.zeros(size, np.int64))

    def strict(self) -> frozenset[int]:
        """The queues whose first gang may not be overtaken."""
        return frozenset(at for name, at in self.queues.items() if self.config.queues[name].strict)

    # ── details ────────────────────────────────────────────────────────────────────────────────────

    def _read(self, supply: CapacitySnapshot) -> Ints:
        """Take the free amounts of a topology's nodes; returns their rows."""
        rows: Ints = np.array([self.rows[node.name] for node in supply.tree.nodes], np.int64)
        for column, name in enumerate(self.resources):
            if name in supply.resources:
                self.free[rows, column] = supply.free[supply.resources[name]]
        return rows

    def _number_domains(self, topology: str, supply: CapacitySnapshot) -> None:
        for level, label in enumerate(supply.tree.levels):
            numbers: Ints = np.full(len(self.rows), supply.tree.size(level), np.int64)  # outside of all
            numbers[self.rows_of[topology]] = np.cumsum(supply.tree.opens[level]) - 1
            self.levels[topology, label] = len(self.domains)
            self.domains.append(numbers)

    def _options(self, gang: QueuedGang, queue: Queue) -> Iterator[StartOption]:
        needed = {name for one in gang.requests for name, amount in one.per_pod.items() if amount}
        groups = [group for group in queue.groups if needed & set(group.resources)]
        if needed - {name for group in groups for name in group.resources} - {PODS}:
            return  # the queue has no quota for it
        for flavors in product(*(group.flavors for group in groups)):
            by_resource = {
                name: flavor
                for group, flavor in zip(groups, flavors, strict=True)
                for name in group.resources
            }
            quota = self._quota(
                ((by_resource[name], name), amount * one.count)
                for one in gang.requests
                for name, amount in one.per_pod.items()
                if name in by_resource
            )
            placed = [self.config.flavors[name] for name in flavors if name in self.config.flavors]
            placed = [flavor for flavor in placed if flavor.topology in self.supplies]
            asks = tuple(self._asks(gang.gang.root, placed[0])) if placed else ()
            yield StartOption(asks, quota)

    def _asks(self, group: Group, flavor: Flavor, above: Locality | None = None) -> Iterator[tuple[int, int]]:
        """What the pod sets ask of nodes; what a group has to keep to holds for each of its pod sets."""
        own = group.locality if group.locality.required else above
        for member in group.members:
            if isinstance(member, Group):
                yield from self._asks(member, flavor, own)
            elif member.count:
                locality = member.locality if member.locality.required else own
                level = locality.required if locality is not None else None
                number = self.levels.get((flavor.topology, level or ""), ANYWHERE)
                measure = Measure(self._shape(member, flavor), number)
                yield self.measures.setdefault(measure, len(self.measures)), member.count

    def _shape(self, pods: PodSet, flavor: Flavor) -> int:
        rules = replace(pods.rules, tolerations=pods.rules.tolerations + flavor.tolerations, preferred=())
        key = (tuple(sorted(pods.requests.items())), rules, flavor.name)
        if key not in self.shapes:
            supply = self.supplies[flavor.topology]
            allowed = np.zeros(len(self.rows), bool)
            good = node_table.mask(supply.table, rules) & node_table.labelled(supply.table, flavor.labels)
            allowed[self.rows_of[flavor.topology]] = good & supply.active
            self.shapes[key] = len(self.shapes)
            amounts = {**pods.requests, PODS: pods.requests.get(PODS, 0) + 1}
            self.requests.append(np.array([amounts.get(name, 0) for name in self.resources], np.int64))
            self.allowed.append(allowed)
        return self.shapes[key]

    def _quota(self, amounts: Iterable[tuple[Cell, int]]) -> Ints:
        found: Ints = np.zeros(len(self.cells), np.int64)
        for cell, amount in amounts:
            if cell in self.cells:
                found[self.cells[cell]] += amount
        return found

    def _share(self, usage: GangUsage) -> NodeShare:
        found: dict[int, Ints] = {}
        for placement in usage.placements:
            for share in placement.place.shares:
                host = share.values[-1]
                row = self.rows.get(self.usage.hosts.get(host, host))
                if row is None:  # a domain of several nodes, or a node that is gone
                    continue
                amounts = placement.amounts(share)
                added: Ints = np.array([amounts.get(name, 0) for name in self.resources], np.int64)
                found[row] = found[row] + added if row in found else added
        if not found:
            return NodeShare(np.zeros(0, np.int64), np.zeros((0, len(self.resources)), np.int64))
        rows = sorted(found)
        return NodeShare(np.array(rows, np.int64), np.array([found[row] for row in rows]))


def _parents_first(queues: Iterable[QuotaAccount]) -> list[QuotaAccount]:
    found: dict[int, QuotaAccount] = {}
    for queue in queues:
        for account in (*reversed([*queue.ancestors()]), queue):
            found.setdefault(id(account), account)
    return list(found.values())
