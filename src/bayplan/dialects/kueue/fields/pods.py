"""Which pods are placed by topology, and which only use node capacity."""

from __future__ import annotations

from bayplan.dialects.kube.decode.pod_fields import holds_capacity
from bayplan.dialects.kube.decode.relevance import pod_update_matters
from bayplan.dialects.kube.fields.reader import Field
from bayplan.dialects.kueue.names.annotations import is_topology_aware, read_annotations


def is_placed_by_topology(pod: Field) -> bool:
    """Whether the pod belongs to a gang that is placed by topology."""
    return is_topology_aware(read_annotations(pod.at("metadata")))


def is_outside_assignments(pod: Field) -> bool:
    """Whether the pod uses capacity that no assignment of a gang covers."""
    return holds_capacity(pod) and not is_placed_by_topology(pod)


def update_counts(old: Field, new: Field) -> bool:
    """Whether a pod update changes the free capacity, or whether an assignment covers the pod."""
    return pod_update_matters(old, new) or is_outside_assignments(old) != is_outside_assignments(new)
