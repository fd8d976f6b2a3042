"""The key of a pod and the name of its node. Texts that many pods have in common are stored once."""

from __future__ import annotations

from sys import intern

from bayplan.dialects.kube.decode.wire import PodWire
from bayplan.model.pod import PodKey


def pod_key(wire: PodWire) -> PodKey:
    """The namespace and name of a pod."""
    return PodKey(intern(wire.metadata.namespace or "default"), wire.metadata.name)


def node_name(wire: PodWire) -> str:
    """The name of the node that a pod is bound to: the same text as that of the node, in memory too."""
    return intern(wire.spec.node_name) if wire.spec.node_name else ""
