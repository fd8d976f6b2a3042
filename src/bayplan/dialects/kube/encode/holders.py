"""Pods that hold a place on nodes for a gang that will move there. They run nothing."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from bayplan.dialects.kube.decode.wire import PodWire
from bayplan.dialects.kube.encode.move_marks import UNTIL, PlanMark
from bayplan.dialects.kube.fields.times import timestamp
from bayplan.model.node import PODS
from bayplan.model.pod import Pod, PodKey

HOLDER = "bayplan.dev/holds-place"
"""A label of such pods: the plan for which they hold a place."""
IMAGE = "bayplan.invalid/hold"
"""Never pulled: the container waits, and what the pod requests is held all the same."""


def holder_pods(
    mark: PlanMark, pods: Sequence[Pod], nodes: Sequence[str], wires: Mapping[PodKey, PodWire]
) -> Iterator[dict[str, Any]]:
    """One pod for each pod of a gang, bound to the node that is planned for it."""
    for number, (pod, node) in enumerate(zip(pods, nodes, strict=True)):
        wire = wires.get(pod.key)
        amounts = {
            name: _quantity(name, amount) for name, amount in pod.amounts.items() if name != PODS and amount
        }
        extended = {name: amount for name, amount in amounts.items() if "/" in name}
        container = {
            "name": "hold",
            "image": IMAGE,
            "imagePullPolicy": "Never",
            "resources": {"requests": amounts, "limits": extended},
            "securityContext": {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}},
        }
        spec: dict[str, Any] = {
            "nodeName": node,
            "restartPolicy": "Never",
            "terminationGracePeriodSeconds": 0,
            "automountServiceAccountToken": False,
            "securityContext": {
                "runAsNonRoot": True,
                "runAsUser": 65534,
                "seccompProfile": {"type": "RuntimeDefault"},
            },
            "tolerations": [{"operator": "Exists"}],
            "containers": [container],
        }
        if wire is not None and wire.spec.priority_class_name:
            spec["priorityClassName"] = wire.spec.priority_class_name
        yield {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {
                "name": f"hold-{mark.plan}-{pod.uid[-8:].lower()}-{number}",
                "namespace": pod.key.namespace,
                "labels": {HOLDER: mark.plan},
                "annotations": {UNTIL: timestamp(mark.until)},
            },
            "spec": spec,
        }


def _quantity(resource: str, amount: int) -> str:
    """An amount of the model: CPU in thousandths, everything else as it is."""
    return f"{amount}m" if resource == "cpu" else str(amount)
