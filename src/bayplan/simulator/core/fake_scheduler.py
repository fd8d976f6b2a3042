"""A stand-in for kube-scheduler in a simulation: binds ungated pods to nodes that fit."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from bayplan.backends.embedded.storage.store import Store
from bayplan.backends.fake_controllers.manifests import Object
from bayplan.backends.fake_controllers.objects import OVER, is_terminating, labels_of, name_of, phase_of
from bayplan.dialects.kube.decode.node_rule_fields import tolerations
from bayplan.dialects.kube.fields.reader import Field
from bayplan.dialects.kueue.pods.node_health import CORDON
from bayplan.model.node_rules import Taint
from bayplan.simulator.core.checkers import allocatable_of, pod_requests, pods_on_nodes, used_by
from bayplan.simulator.core.documents import once_per_listing
from bayplan.simulator.core.fixtures import PLAIN_NODES, PLAIN_PODS

EFFECTS = ("NoSchedule", "NoExecute")


class FakeScheduler:
    """Reads the store directly, without injected faults."""

    def __init__(self, store: Store) -> None:
        self.store = store
        self.version = -1

    def step(self, now: float) -> float:
        """Bind all pods that fit; returns infinity, since nothing is due without a change in the store."""
        if self.store.version != self.version:
            self._bind_all()
            self.version = self.store.version
        return float("inf")

    def _bind_all(self) -> None:
        pods = self.store.everything(PLAIN_PODS)
        if pending := _pending(pods):
            nodes = self.store.list(PLAIN_NODES).items
            used = used_by(pods_on_nodes(pods))  # also by pods on their way out
            for pod in pending:
                for name in _feasible_nodes(pod, nodes, used):
                    self._bind(pod, name)
                    for resource, amount in pod_requests(pod).items():
                        node_usage = used.setdefault(name, {})
                        node_usage[resource] = node_usage.get(resource, 0) + amount
                    break

    def _bind(self, pod: Object, node: str) -> None:
        namespace, name = name_of(pod)
        target = {"apiVersion": "v1", "kind": "Node", "name": node}
        body = {"metadata": {"name": name, "namespace": namespace}, "target": target}
        self.store.connect(PLAIN_PODS, namespace, name, "binding", body)


def tolerates(pod: Object, taint: Taint) -> bool:
    """Whether a pod tolerates a taint, possibly for a limited time."""
    return any(one.accepts(taint) for one in tolerations(Field(pod["spec"].get("tolerations") or [])))


def taints_of(node: Object) -> list[Taint]:
    """The taints of a node that keep pods away, including the one for a cordoned node."""
    spec = node.get("spec") or {}
    taints = [Taint(one["key"], one.get("value", ""), one["effect"]) for one in spec.get("taints") or ()]
    return [one for one in taints if one.effect in EFFECTS] + ([CORDON] if spec.get("unschedulable") else [])


def is_ready(node: Object) -> bool:
    """Whether the Ready condition of a node is true."""
    conditions = node["status"].get("conditions") or ()
    return any(one["type"] == "Ready" and one["status"] == "True" for one in conditions)


def _feasible_nodes(pod: Object, nodes: list[Object], used: dict[str, dict[str, int]]) -> Iterator[str]:
    selector = (pod["spec"].get("nodeSelector") or {}).items()
    for node in nodes:
        name = node["metadata"]["name"]
        if not (selector <= labels_of(node).items() and is_ready(node)):
            continue
        if not all(tolerates(pod, taint) for taint in taints_of(node)):
            continue
        allocatable, used_here = allocatable_of(node), used.get(name, {})
        if all(
            used_here.get(resource, 0) + amount <= allocatable.get(resource, 0)
            for resource, amount in pod_requests(pod).items()
        ):
            yield name


@once_per_listing
def _pending(pods: Sequence[Object]) -> tuple[Object, ...]:
    return tuple([pod for pod in pods if _is_pending(pod)])


def _is_pending(pod: Object) -> bool:
    assigned_or_gated = pod["spec"].get("nodeName") or pod["spec"].get("schedulingGates")
    return not (assigned_or_gated or is_terminating(pod) or phase_of(pod) in OVER)
