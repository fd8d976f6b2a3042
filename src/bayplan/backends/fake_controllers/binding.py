"""A simulated kube-scheduler for admission: binds pods whose node selector names one host."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from bayplan.backends.fake_controllers.objects import (
    NODES,
    OVER,
    PODS,
    Object,
    is_terminating,
    labels_of,
    name_of,
    phase_of,
    uid_of,
)  # fmt: skip
from bayplan.dialects.api import Backend, Happened, Verb, Write

HOSTNAME = "kubernetes.io/hostname"
SCHEDULERS = (None, "", "default-scheduler")
RETRY_SECONDS = 1.0


def bindings(pods: Iterable[Object], nodes: Iterable[Object]) -> Iterator[tuple[Object, str]]:
    """Pods whose node selector names a host that can take them now, each with the node's name.

    Pods that are gated, name another scheduler, or may use more than one host are left out.
    """
    hosts = {labels_of(node).get(HOSTNAME): node for node in nodes if _is_schedulable(node)}
    for pod in pods:
        selector = pod["spec"].get("nodeSelector") or {}
        node = hosts.get(selector.get(HOSTNAME)) if HOSTNAME in selector and _is_pending(pod) else None
        if node is not None and selector.items() <= labels_of(node).items():
            yield pod, name_of(node)[1]


class Binder:
    """Watches the cluster and binds pods; failed binds are retried."""

    def __init__(self, backend: Backend) -> None:
        self.backend = backend
        self.nodes: dict[str, Object] = {}
        self.waiting: dict[str, Object] = {}  # by uid
        self.tried: dict[str, float] = {}  # by uid: when it may be tried again
        backend.watch((NODES, PODS))

    def step(self, now: float) -> float:
        """Bind the pods that can be bound; return when a failed bind may be retried."""
        for event in self.backend.events():
            if event.happened is not Happened.SYNCED:
                found: Object = event.object
                known = self.nodes if event.kind is NODES else self.waiting
                if event.happened is Happened.GONE or (event.kind is PODS and not _is_pending(found)):
                    known.pop(uid_of(found), None)
                else:
                    known[uid_of(found)] = found
        self.backend.outcomes()
        self.tried = {uid: when for uid, when in self.tried.items() if when > now}
        free = [pod for uid, pod in self.waiting.items() if uid not in self.tried]
        writes = [_binding(pod, node) for pod, node in bindings(free, self.nodes.values())]
        self.tried |= {write.uid: now + RETRY_SECONDS for write in writes}
        if writes:
            self.backend.submit(writes)
        return min(self.tried.values(), default=float("inf"))


def _is_pending(pod: Object) -> bool:
    spec = pod["spec"]
    held = spec.get("nodeName") or spec.get("schedulingGates") or is_terminating(pod) or phase_of(pod) in OVER
    return not held and spec.get("schedulerName") in SCHEDULERS


def _is_schedulable(node: Object) -> bool:
    spec = node.get("spec") or {}
    closed = any(taint.get("effect") in ("NoSchedule", "NoExecute") for taint in spec.get("taints") or ())
    return not closed and not spec.get("unschedulable")


def _binding(pod: Object, node: str) -> Write:
    namespace, name = name_of(pod)
    body = {
        "apiVersion": "v1",
        "kind": "Binding",
        "metadata": {"name": name, "namespace": namespace},
        "target": {"apiVersion": "v1", "kind": "Node", "name": node},
    }
    return Write(Verb.CREATE, PODS, namespace, name, body, "binding", uid=uid_of(pod))
