"""The search in one domain as a mixed-integer program (MILP): items, patterns and domains used."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from bayplan.placement.cluster.topology_tree import Ints
from bayplan.placement.exact.bounds import Grid, span
from bayplan.placement.exact.patterns import LeafClass, leaf_classes, row_scale
from bayplan.placement.exact.solver import Floats, Program


@dataclass(slots=True, eq=False)
class Model:
    """A program and the meaning of its columns. Parents are the domains directly above leaves."""

    grid: Grid
    level: int
    domain: int
    leaf_classes: list[LeafClass]
    parents: Ints  # ascending
    program: Program = field(default_factory=Program)
    used: dict[tuple[int, int], int] = field(default_factory=dict)  # (level, domain)
    items: dict[tuple[int, int], int] = field(default_factory=dict)  # (parent, item)
    opened: list[list[int]] = field(
        default_factory=list
    )  # by leaf class: one per pattern, or per leaf if not listed
    inside: dict[tuple[int, int], int] = field(
        default_factory=dict
    )  # (leaf, item), only of classes without listed patterns


def build_model(grid: Grid, level: int, domain: int) -> Model:
    """The program for placing the gang in this domain."""
    problem = grid.problem
    leaves = np.arange(*span(grid, level, domain, problem.lowest))
    leaves = leaves[grid.usable[leaves]]
    parents = np.zeros_like(leaves)
    if problem.lowest - 1 > level:
        parents = np.searchsorted(problem.firsts[problem.lowest - 1], leaves, side="right") - 1
    model = Model(grid, level, domain, leaf_classes(grid, leaves, parents), np.unique(parents))
    _add_domains(model)
    _add_items(model)
    for leaf_class in model.leaf_classes:
        if leaf_class.patterns:
            _add_patterns(model, leaf_class)
        else:
            _add_leaves(model, leaf_class)
    _cover_items(model)
    _nest(model)
    _keep_groups_together(model)
    _cut_segments(model)
    return model


def stages_of(model: Model) -> list[Floats]:
    """The objectives in order: domains used from the top down, leaves, then capacity of the used domains."""
    grid, size = model.grid, len(model.program.most)
    stages = [np.zeros(size) for _ in range(model.level + 1, grid.problem.lowest + 1)]
    rest = np.zeros(size)
    for (level, domain), column in model.used.items():
        stages[level - model.level - 1][column] = 1
        rest[column] = grid.problem.free[level][domain]
    for leaf_class, columns in zip(model.leaf_classes, model.opened, strict=True):
        stages[-1][columns] = 1
        rest[columns] = leaf_class.free
    return [*stages, rest]


def pods_of(model: Model, solution: Ints) -> Ints:
    """Convert a solution to pods by pod set and leaf."""
    grid = model.grid
    pods = np.zeros((len(grid.problem.names), grid.fits.shape[1]), np.int64)
    left = np.zeros((int(model.parents.max()) + 1, len(grid.counts)), np.int64)
    for key, column in model.items.items():
        left[key] = solution[column]
    for leaf_class, columns in zip(model.leaf_classes, model.opened, strict=True):
        if leaf_class.patterns:
            patterns = np.repeat(np.array(leaf_class.patterns, np.int64), solution[columns], axis=0)
            held = list(zip(leaf_class.leaves, patterns, strict=False))
        else:
            every = range(len(grid.counts))
            held = [
                (leaf, np.array([solution[model.inside[leaf, item]] for item in every]))
                for leaf in leaf_class.leaves
            ]
        for leaf, pattern in held:
            assumed = np.minimum(pattern, left[leaf_class.parent])
            left[leaf_class.parent] -= assumed
            pods[:, leaf] += assumed @ grid.pods
    return pods


def _add_domains(model: Model) -> None:
    """Add a column for each domain between this one and the leaves: whether it is used."""
    for level in range(model.level + 1, model.grid.problem.lowest):
        low, high = span(model.grid, model.level, model.domain, level)
        for domain in (np.flatnonzero(model.grid.open[level][low:high]) + low).tolist():
            model.used[level, domain] = model.program.column(1)


def _add_items(model: Model) -> None:
    """Add columns for how many of each item a parent holds."""
    parents = model.parents.tolist()
    for item, count in enumerate(model.grid.counts.tolist()):
        for parent in parents:
            most = _most(model, max(model.level, model.grid.problem.lowest - 1), parent, item)
            model.items[parent, item] = model.program.column(most)
        model.program.equal([(model.items[parent, item], 1) for parent in parents], count)


def _most(model: Model, level: int, domain: int, item: int) -> int:
    """The most of an item that a domain can hold."""
    count = int(model.grid.counts[item])
    return count if level == model.level else min(int(model.grid.held[level][item, domain]), count)


def _gate(model: Model, parent: int) -> int | None:
    """The column that says whether a parent is used; None if the parent is the searched domain."""
    return model.used.get((model.grid.problem.lowest - 1, parent))


def _add_patterns(model: Model, leaf_class: LeafClass) -> None:
    """Add columns for how many leaves of the class use each pattern."""
    number = len(leaf_class.leaves)
    columns = [model.program.column(number) for _ in leaf_class.patterns]
    model.opened.append(columns)
    model.program.at_most([(column, 1) for column in columns], number, _gate(model, leaf_class.parent))


def _add_leaves(model: Model, leaf_class: LeafClass) -> None:
    """Add columns for how many of each item a leaf holds. Leaves are identical, so they open in order."""
    grid, program, gate = model.grid, model.program, _gate(model, leaf_class.parent)
    scale = row_scale(grid)
    needs = grid.needs // scale
    opened: list[int] = []
    for leaf in leaf_class.leaves:
        open_leaf = program.column(1)
        if opened or gate is not None:
            program.at_most([(open_leaf, 1)], 1, opened[-1] if opened else gate)
        opened.append(open_leaf)
        most = grid.fits[:, leaf].tolist()
        columns = [program.column(top) for top in most]
        model.inside |= {(leaf, item): column for item, column in enumerate(columns)}
        for column, top in zip(columns, most, strict=True):
            program.at_most([(column, 1)], top, open_leaf)
        rooms = np.minimum(grid.problem.rooms[:, leaf] // scale, needs.T @ grid.fits[:, leaf])
        for need, room in zip(needs.T.tolist(), rooms.tolist(), strict=True):
            program.at_most(zip(columns, need, strict=True), room, open_leaf)
    model.opened.append(opened)


def _cover_items(model: Model) -> None:
    """The items of a parent fit into its open leaves."""
    room: dict[tuple[int, int], list[tuple[int, int]]] = {key: [] for key in model.items}
    for leaf_class, columns in zip(model.leaf_classes, model.opened, strict=True):
        for item in range(len(model.grid.counts)):
            if leaf_class.patterns:
                held = [
                    (column, -pattern[item])
                    for column, pattern in zip(columns, leaf_class.patterns, strict=True)
                    if pattern[item]
                ]
            else:
                held = [(model.inside[leaf, item], -1) for leaf in leaf_class.leaves]
            room[leaf_class.parent, item] += held
    for key, entries in room.items():
        model.program.at_most([(model.items[key], 1), *entries], 0)


def _within(model: Model, level: int) -> dict[int, list[int]]:
    """The parents inside each domain of a level."""
    parents_by_domain: dict[int, list[int]] = {domain: [] for at, domain in model.used if at == level}
    firsts = model.grid.problem.firsts
    above = (
        np.searchsorted(firsts[level], firsts[model.grid.problem.lowest - 1][model.parents], side="right") - 1
    )
    for parent, domain in zip(model.parents.tolist(), above.tolist(), strict=True):
        parents_by_domain[domain].append(parent)
    return parents_by_domain


def _nest(model: Model) -> None:
    """Unused domains hold no items and no used domains."""
    firsts = model.grid.problem.firsts
    for level in range(model.level + 1, model.grid.problem.lowest):
        for domain, parents in _within(model, level).items():
            gate = model.used[level, domain]
            for item in range(len(model.grid.counts)):
                entries = [(model.items[parent, item], 1) for parent in parents]
                model.program.at_most(entries, _most(model, level, domain, item), gate)
            if level - 1 > model.level:
                above = int(np.searchsorted(firsts[level - 1], firsts[level][domain], side="right")) - 1
                model.program.at_most([(gate, 1)], 1, model.used[level - 1, above])


def _keep_groups_together(model: Model) -> None:
    """All pods of a locality group are in one domain of its level."""
    grid = model.grid
    for group, level in zip(grid.problem.groups, grid.levels, strict=True):
        if not model.level < level < grid.problem.lowest:
            continue
        own_items = np.flatnonzero(grid.pods[:, list(group.pod_sets)].any(axis=1)).tolist()
        chosen = []
        for parents in _within(model, level).values():
            chosen.append(model.program.column(1))
            for item in own_items:
                entries = [(model.items[parent, item], 1) for parent in parents]
                model.program.equal([*entries, (chosen[-1], -int(grid.counts[item]))], 0)
        model.program.equal([(column, 1) for column in chosen], 1)


def _cut_segments(model: Model) -> None:
    """Domains of a layer hold whole segments; one of them also holds the last, smaller one."""
    grid, program = model.grid, model.program
    for position, layers in enumerate(grid.problem.layers):
        own_items = [
            (item, pods_per_item)
            for item, pods_per_item in enumerate(grid.pods[:, position].tolist())
            if pods_per_item
        ]
        for layer in layers:
            if not model.level < layer.level < grid.problem.lowest:
                continue
            holds_rest = []
            for parents in _within(model, layer.level).values():
                entries = [
                    (model.items[parent, item], pods_per_item)
                    for parent in parents
                    for item, pods_per_item in own_items
                ]
                entries.append(
                    (program.column(int(grid.problem.counts[position]) // layer.size), -layer.size)
                )
                if layer.rest:
                    holds_rest.append(program.column(1))
                    entries.append((holds_rest[-1], -layer.rest))
                program.equal(entries, 0)
            if layer.rest:
                program.equal([(column, 1) for column in holds_rest], 1)
