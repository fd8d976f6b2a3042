"""The levels of a topology: from the command line, or inferred from the labels of the nodes."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

from bayplan.model.gang import AUTO, Gang
from bayplan.model.node import HOSTNAME, LEVELS_MAX, Node, Topology

INFERRED = "inferred"

# Coarse to fine. A label counts as a level if its last word is one of these and every node has it.
_WORDS = (
    "region",
    "zone",
    "datacenter",
    "hall",
    "superpod",
    "block",
    "subblock",
    "spine",
    "accelerator",
    "rack",
    "leaf",
    "host",
)
_WELL_KNOWN = ("topology.kubernetes.io/region", "topology.kubernetes.io/zone")
_LAYER = re.compile(r"network-node-layer-(\d+)$")
_WORD = re.compile(rf"(?:^|[/-])({'|'.join(_WORDS)})$")
_LEVEL = re.compile(rf"topology-({'|'.join(_WORDS)})$")


def parse_levels(text: str) -> tuple[str, ...]:
    """Parse the option --levels and add the host as the lowest level. Raises ValueError."""
    levels = [level.strip() for level in text.split(",")]
    if not all(levels):
        raise ValueError("a level between the commas is empty")
    if len(set(levels)) < len(levels):
        raise ValueError("a level is named twice")
    if HOSTNAME in levels[:-1]:
        raise ValueError(f"{HOSTNAME} may only be the lowest level")
    if levels[-1] != HOSTNAME:
        levels.append(HOSTNAME)
    if len(levels) > LEVELS_MAX:
        raise ValueError(f"there are more than {LEVELS_MAX} levels")
    return tuple(levels)


def inferred_topology(nodes: Iterable[Node], gangs: Iterable[Gang]) -> Topology:
    """The levels that gangs name and some node has, and well-known labels that all nodes have."""
    labels = [node.labels for node in nodes]
    asked = {level for gang in gangs for level in named_levels(gang)}
    keys = {key for each in labels for key in each}
    everywhere = {key for key in keys if all(key in each for each in labels)}
    chosen = {key for key in everywhere if _is_level(key)} | (asked & keys)
    values = {key: {each[key] for each in labels if key in each} for key in chosen}
    ranks = {key: _rank(key) for key in chosen}
    if None in ranks.values():
        # An unknown word: the fewer values a label has, the larger its domains.
        order = sorted(chosen, key=lambda key: (len(values[key]), key))
    else:
        order = sorted(chosen, key=lambda key: (ranks[key], key))
    levels = [key for key in order if key != HOSTNAME]
    return Topology(INFERRED, (*levels[: LEVELS_MAX - 1], HOSTNAME))


def named_levels(gang: Gang) -> Sequence[str]:
    """Every level that the gang names."""
    levels: list[str] = []
    for pod_set in gang.root.pod_sets():
        names = (pod_set.locality.required, pod_set.locality.preferred)
        levels += [name for name in names if name and name != AUTO]
        levels += [segment.level for segment in pod_set.segments]
    return list(dict.fromkeys(levels))


def _is_level(key: str) -> bool:
    """Whether the name of a label is that of a well-known level."""
    return key in _WELL_KNOWN or bool(_LAYER.search(key) or _LEVEL.search(key))


def _rank(key: str) -> tuple[int, int] | None:
    """How coarse a label's domains are, judged by its name; None if unknown."""
    if key == HOSTNAME:
        return len(_WORDS), 1
    if key in _WELL_KNOWN:
        return _WELL_KNOWN.index(key), 0
    layer = _LAYER.search(key)
    if layer:  # the first layer is the widest; all are inside a zone
        return _WORDS.index("block"), int(layer[1])
    word = _WORD.search(key)
    return (_WORDS.index(word[1]), 0) if word else None
