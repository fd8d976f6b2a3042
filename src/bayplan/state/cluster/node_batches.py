"""Nodes that arrive together are added together, since each addition rebuilds arrays."""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable, Mapping

from bayplan.model.change import Change, NodeSeen
from bayplan.model.node import Node


def apply_in_batches(
    changes: Iterable[Change],
    apply: Callable[[Change], None],
    load: Callable[[Mapping[str, Node]], None],
    known: Container[str] = (),
    beside: tuple[type, ...] = (),
) -> None:
    """Apply changes in order, with nodes that are not `known` in batches; changes `beside` end no batch."""
    fresh: dict[str, Node] = {}
    for change in changes:
        if isinstance(change, NodeSeen) and change.node.name not in known:
            fresh[change.node.name] = change.node
            continue
        if fresh and not isinstance(change, beside):
            load(fresh)
            fresh = {}
        apply(change)
    if fresh:
        load(fresh)
