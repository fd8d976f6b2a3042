"""Which volumes the claims of a pod are bound to once the pod has a node."""

from __future__ import annotations

from bayplan.model.pod_spec import PodSignature
from bayplan.model.storage import ClaimKey, Storage
from bayplan.placement.cluster.node_index import NodeIndex
from bayplan.placement.filters.volumes import candidates, reach


def volumes_for(
    node_index: NodeIndex, storage: Storage, shape: PodSignature, node: str
) -> dict[ClaimKey, str]:
    """For each unbound claim the volume to bind on the node; an empty name: one is to be provisioned.

    No volume is used twice, and each claim gets the smallest sufficient one, as in the volume filter.
    """
    claims = [storage.claims.get((shape.namespace, use.name)) for use in shape.claims]
    unbound = sorted((one for one in claims if one is not None and not one.bound), key=lambda one: one.size)
    row = node_index.row(node)
    found: dict[ClaimKey, str] = {}
    for claim in unbound:
        near = [
            volume.name
            for volume in (() if claim.selected_node else candidates(storage, claim))
            if volume.name not in found.values() and row >= 0 and reach(node_index, volume)[row]
        ]
        found[claim.key] = near[0] if near else ""
    return found
