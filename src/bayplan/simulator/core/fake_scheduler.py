"""A stand-in for kube-scheduler in a simulation: binds pods that nothing holds back, where they fit."""

from __future__ import annotations

from collections.abc import Iterator

from bayplan.backends.embedded.storage.store import Store
from bayplan.backends.fake_controllers.manifests import Object
from bayplan.backends.fake_controllers.objects import OVER, is_leaving, labels_of, name_of, phase_of
from bayplan.dialects.kube.decode.node_rule_fields import tolerations
from bayplan.dialects.kube.decode.wire import amounts_of
from bayplan.dialects.kube.fields.reader import Field
from bayplan.dialects.kueue.pods.node_health import CORDON
from bayplan.model.node_rules import Taint
from bayplan.simulator.core.checkers import pods_that_hold, used_by
from bayplan.simulator.core.fixtures import PLAIN_NODES, PLAIN_PODS

EFFECTS = ("NoSchedule", "NoExecute")


class FakeScheduler:
    """Looks at the store itself: nothing between it and the API fails."""

    def __init__(self, store: Store) -> None:
        self.store = store
        self.version = -1

    def step(self, now: float) -> float:
        """Bind whatever can be bound; nothing is ever due by itself."""
        if self.store.version != self.version:
            self._bind_all()
            self.version = self.store.version
        return float("inf")

    def _bind_all(self) -> None:
        pods = self.store.list(PLAIN_PODS).items
        waiting = [pod for pod in pods if _waits(pod)]
        if waiting:
            nodes = self.store.list(PLAIN_NODES).items
            used = used_by(pods_that_hold(pods))  # also by pods on their way out
            for pod in waiting:
                for name in _fitting(pod, nodes, used):
                    self._bind(pod, name)
                    for resource, amount in used_by([_on(pod, name)])[name].items():
                        here = used.setdefault(name, {})
                        here[resource] = here.get(resource, 0) + amount
                    break

    def _bind(self, pod: Object, node: str) -> None:
        namespace, name = name_of(pod)
        target = {"apiVersion": "v1", "kind": "Node", "name": node}
        body = {"metadata": {"name": name, "namespace": namespace}, "target": target}
        self.store.connect(PLAIN_PODS, namespace, name, "binding", body)


def bears(pod: Object, taint: Taint) -> bool:
    """Whether a pod tolerates a taint, be it for a while."""
    return any(one.accepts(taint) for one in tolerations(Field(pod["spec"].get("tolerations") or [])))


def taints_of(node: Object) -> list[Taint]:
    """What keeps pods away from a node."""
    spec = node.get("spec") or {}
    found = [Taint(one["key"], one.get("value", ""), one["effect"]) for one in spec.get("taints") or ()]
    return [one for one in found if one.effect in EFFECTS] + ([CORDON] if spec.get("unschedulable") else [])


def is_ready(node: Object) -> bool:
    """Whether a node says that it works."""
    told = node["status"].get("conditions") or ()
    return any(one["type"] == "Ready" and one["status"] == "True" for one in told)


def _fitting(pod: Object, nodes: list[Object], used: dict[str, dict[str, int]]) -> Iterator[str]:
    wanted = (pod["spec"].get("nodeSelector") or {}).items()
    for node in nodes:
        name = node["metadata"]["name"]
        if not (wanted <= labels_of(node).items() and is_ready(node)):
            continue
        if not all(bears(pod, taint) for taint in taints_of(node)):
            continue
        has, taken = amounts_of(node["status"]["allocatable"]), used.get(name, {})
        asked = used_by([_on(pod, name)])[name]
        if all(taken.get(what, 0) + amount <= has.get(what, 0) for what, amount in asked.items()):
            yield name


def _on(pod: Object, node: str) -> Object:
    return {**pod, "spec": {**pod["spec"], "nodeName": node}}


def _waits(pod: Object) -> bool:
    held = pod["spec"].get("nodeName") or pod["spec"].get("schedulingGates")
    return not (held or is_leaving(pod) or phase_of(pod) in OVER)
