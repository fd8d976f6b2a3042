"""The writes of a defragmentation plan: taints, evictions, and how writes ended."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from typing import Any

from bayplan.backends.remote.backend import RemoteBackend
from bayplan.cli.live.state import get
from bayplan.dialects.api import Ended, Verb, Write, WriteOutcome
from bayplan.dialects.kube.decode.wire import NODES, PODS_KIND, NodeWire
from bayplan.dialects.kube.encode.move_marks import PlanMark, fence_of, fence_patch
from bayplan.model.pod import Pod

WAIT_SECONDS = 30.0
TRIES = 5
"""A node that its kubelet changes at the same time is read and written again."""


class StepStoppedError(Exception):
    """The plan is not carried out further; the message says why."""


def written(backend: RemoteBackend, writes: Sequence[Write]) -> list[WriteOutcome]:
    """Make writes, and wait for all of them."""
    backend.submit(writes)
    found: list[WriteOutcome] = []
    while len(found) < len(writes):
        backend.wait(WAIT_SECONDS)
        found += backend.outcomes()
    return found


def require(outcomes: Iterable[WriteOutcome], what: str) -> None:
    """Raise StepStoppedError unless all writes were made."""
    failed = [one for one in outcomes if one.ended is not Ended.DONE]
    if failed:
        first = failed[0]
        raise StepStoppedError(f"could not {what}: {first.write.name}: {first.message or first.ended.value}")


def eviction(pod: Pod, *, dry: bool = False) -> Write:
    """The eviction of a pod, which respects its budgets."""
    body: dict[str, Any] = {"deleteOptions": {"dryRun": ["All"]}} if dry else {}
    return Write(Verb.CREATE, PODS_KIND, pod.key.namespace, pod.key.name, body, "eviction", uid=pod.uid)


def deletions(pods: Iterable[tuple[str, str]]) -> list[Write]:
    """The deletion of pods that hold a place, by namespace and name."""
    return [Write(Verb.DELETE, PODS_KIND, namespace, name, grace_seconds=0) for namespace, name in pods]


def put_up_fence(backend: RemoteBackend, nodes: Collection[str], mark: PlanMark) -> None:
    """Give nodes the taint of a plan, or renew its time there."""
    _patch_nodes(backend, nodes, mark, "")


def take_down_fence(backend: RemoteBackend, nodes: Collection[str], plan: str) -> None:
    """Take the taint of a plan away from nodes; those that have none, or that of another plan, stay."""
    _patch_nodes(backend, nodes, None, plan)


def _patch_nodes(backend: RemoteBackend, names: Collection[str], mark: PlanMark | None, plan: str) -> None:
    left, outcomes = sorted(names), list[WriteOutcome]()
    for _ in range(TRIES):
        writes = []
        for name in left:
            node: Any = get(backend, NODES, "", name)
            if node is None or (mark is None and not _is_fenced_by(node, plan)):
                continue  # there is nothing to keep pods off, or nothing to take away
            version = node.metadata.resource_version
            writes.append(Write(Verb.MERGE_PATCH, NODES, "", name, fence_patch(node, mark), version=version))
        outcomes = written(backend, writes)
        left = [one.write.name for one in outcomes if one.ended is Ended.CONFLICT]
        if not left:
            break
    require((one for one in outcomes if one.ended is not Ended.GONE), "taint nodes")


def _is_fenced_by(node: NodeWire, plan: str) -> bool:
    fence = fence_of(node)
    return fence is not None and fence.plan == plan
