"""Pairs of a cluster and a pod, with what the real kube-scheduler made of them: kept, held against ours."""

from __future__ import annotations

import json
import lzma
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bayplan.dialects.kube.encode.filter_messages import (
    NO_CLAIMS,
    NO_HELP,
    NO_VICTIMS,
    preemption_message,
    unavailable,
)
from bayplan.placement.filters.pipeline import FilterResult, run_filters
from bayplan.placement.filters.score import best, score_nodes
from tests.properties.fit_scenes import scene_of, shape_of

Obj = dict[str, Any]
RANKED_ALIKE = "1.35."


@dataclass(frozen=True, slots=True)
class Pair:
    """What was there, what was asked for, and the node that it was given or the sentence that it was told."""

    world: Obj
    pod: Obj
    node: str = ""
    told: str = ""
    kube: str = ""


def disagreement(pair: Pair) -> str:
    """In what our answer differs from theirs; nothing if it does not."""
    scene, shape = scene_of(pair.world), shape_of(pair.world, pair.pod)
    verdict = run_filters(scene, shape)
    names = [node["metadata"]["name"] for node in pair.world["nodes"]]
    ours = [name for name, fits in zip(names, verdict.fits, strict=True) if fits]
    if pair.node:
        if pair.node not in ours:
            reasons = verdict.reasons(names.index(pair.node))
            return f"it went to {pair.node}; ours says {verdict.why.error or reasons}"
        worth = score_nodes(scene, shape, verdict.fits)
        if not best(worth, verdict.fits)[names.index(pair.node)] and not _ranked_otherwise(pair):
            return f"it went to {pair.node}; ours ranks {dict(zip(names, worth.tolist(), strict=True))}"
        return ""
    if ours:
        return f"it was told: {pair.told} Ours fits {ours}"
    told = pair.told.replace(f"{NO_CLAIMS}, ", "")  # said by some versions and not by others
    expected = unavailable(verdict.why, _afterwards(verdict))
    return "" if expected == told else f"it was told: {told} Ours: {expected}"


def _afterwards(verdict: FilterResult) -> str:
    """All pods are of one priority: nobody has to make room for anybody.

    If a pod is refused before any node is looked at, theirs trips over notes that it never took.
    """
    if verdict.why.error is not None:
        return "not found"
    curable, nodes = int(verdict.resolvable.sum()), verdict.why.nodes
    reasons = {NO_VICTIMS: curable, NO_HELP: nodes - curable}
    return preemption_message(nodes, {reason: count for reason, count in reasons.items() if count})


def _ranked_otherwise(pair: Pair) -> bool:
    """Whether theirs ranks nodes in another way.

    Amounts for a pod as a whole are passed over when it looks for the emptiest node; and since Kubernetes
    1.36 a node is worth more if the pod makes it more balanced, not if it is balanced then.
    """
    return "resources" in pair.pod["spec"] or not pair.kube.startswith(RANKED_ALIKE)


def keeping(path: Path, pairs: Iterable[Pair]) -> Iterator[Pair]:
    """Write pairs as they come, one per line; a world that did not change is not said again."""
    before: Obj | None = None
    with lzma.open(path, "wt", encoding="utf-8") as file:
        for pair in pairs:
            world = None if pair.world == before else pair.world
            line = {"world": world, "pod": pair.pod, "node": pair.node, "told": pair.told, "kube": pair.kube}
            file.write(json.dumps(line, separators=(",", ":"), sort_keys=True) + "\n")
            before = pair.world
            yield pair


def kept(path: Path) -> Iterator[Pair]:
    """Read them again."""
    world: Obj = {}
    with lzma.open(path, "rt", encoding="utf-8") as file:
        for text in file:
            line = json.loads(text)
            world = line["world"] or world
            yield Pair(world, line["pod"], line["node"], line["told"], line["kube"])


def telling(obj: Obj) -> Obj:
    """An object without what says nothing about where pods fit."""
    meta = obj["metadata"]
    wanted = ("name", "namespace", "labels", "annotations", "deletionTimestamp")
    slim = {key: meta[key] for key in wanted if key in meta}
    rest = {key: value for key, value in obj.items() if key not in ("metadata", "status")}
    status = obj.get("status") or {}
    seen = {key: status[key] for key in ("allocatable", "images", "phase") if key in status}
    return {"metadata": slim, **rest, "status": seen}
