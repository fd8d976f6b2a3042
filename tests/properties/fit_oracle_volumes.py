"""Volume oracle: why volumes reject a node for a pod, computed from API objects without Bayplan."""

from __future__ import annotations

from typing import Any

Obj = dict[str, Any]
ZONE = "topology.kubernetes.io/zone"
BOUND = "pv.kubernetes.io/bind-completed"
SELECTED = "volume.kubernetes.io/selected-node"
GIB = {"1Gi": 1, "2Gi": 2, "3Gi": 3, "4Gi": 4}


def uses(pod: Obj) -> list[str]:
    volumes = pod["spec"].get("volumes") or []
    sources = [volume.get("persistentVolumeClaim") for volume in volumes]
    return [claim["claimName"] for claim in sources if claim]


def find(world: Obj, kind: str, name: str, namespace: str | None = None) -> Obj | None:
    for obj in world[kind]:
        if obj["metadata"]["name"] == name and namespace in (None, obj["metadata"].get("namespace")):
            match: Obj = obj
            return match
    return None


def claims(world: Obj, pod: Obj) -> list[Obj]:
    claim_objects = [find(world, "claims", name, pod["metadata"]["namespace"]) for name in uses(pod)]
    return [claim for claim in claim_objects if claim is not None]


def is_bound(claim: Obj) -> bool:
    return bool(claim["spec"].get("volumeName")) and BOUND in (claim["metadata"].get("annotations") or {})


def claims_error(world: Obj, pod: Obj) -> str:
    for name in uses(pod):
        if find(world, "claims", name, pod["metadata"]["namespace"]) is None:
            return f'persistentvolumeclaim "{name}" not found'
    for claim in claims(world, pod):
        if claim["status"].get("phase") == "Lost":
            name, volume = claim["metadata"]["name"], claim["spec"]["volumeName"]
            return f'persistentvolumeclaim "{name}" bound to non-existent persistentvolume "{volume}"'
    for claim in claims(world, pod):
        storage_class = find(world, "classes", claim["spec"]["storageClassName"])
        delayed = storage_class is not None and storage_class["volumeBindingMode"] == "WaitForFirstConsumer"
        if not is_bound(claim) and (not delayed or claim["spec"].get("volumeName")):
            return "pod has unbound immediate PersistentVolumeClaims"
    for claim in claims(world, pod):
        volume = claim["spec"].get("volumeName")
        if volume and find(world, "volumes", volume) is None:
            return f'persistentvolume "{volume}" not found'
    return ""


def reaches(volume: Obj, node: Obj) -> bool:
    affinity = volume["spec"].get("nodeAffinity")
    if affinity is None:
        return True
    labels = node["metadata"]["labels"]
    return any(
        all(labels.get(one["key"]) in one["values"] for one in term["matchExpressions"])
        for term in affinity["required"]["nodeSelectorTerms"]
    )


def handle(world: Obj, claim: Obj) -> tuple[str, str]:
    volume = find(world, "volumes", claim["spec"].get("volumeName", ""))
    if volume is not None:
        return volume["spec"]["csi"]["driver"], volume["spec"]["csi"]["volumeHandle"]
    storage_class = find(world, "classes", claim["spec"]["storageClassName"])
    assert storage_class is not None
    key = f"claim {claim['metadata']['namespace']}/{claim['metadata']['name']}"
    return storage_class["provisioner"], key


def too_many(world: Obj, pod: Obj, node: Obj) -> bool:
    csi = find(world, "csinodes", node["metadata"]["name"])
    if csi is None:
        return False
    there = [other for other in world["pods"] if other["spec"].get("nodeName") == node["metadata"]["name"]]
    attached = {handle(world, claim) for other in there for claim in claims(world, other)}
    new = {handle(world, claim) for claim in claims(world, pod)} - attached
    for driver in csi["spec"]["drivers"]:
        mine = sum(one[0] == driver["name"] for one in new)
        before = sum(one[0] == driver["name"] for one in attached)
        if mine and before + mine > driver["allocatable"]["count"]:
            return True
    return False


def size(obj: Obj) -> int:
    spec = obj["spec"]
    return GIB[
        spec["capacity"]["storage"] if "capacity" in spec else spec["resources"]["requests"]["storage"]
    ]


def finds_volume(world: Obj, claim: Obj, node: Obj, used: set[str]) -> bool:
    """Whether an existing volume matches the claim on this node; it is marked as used then."""
    fitting = [
        volume
        for volume in world["volumes"]
        if volume["spec"]["storageClassName"] == claim["spec"]["storageClassName"]
        and volume["metadata"]["name"] not in used
        and volume["status"].get("phase") == "Available"
        and not volume["spec"].get("claimRef")
        and size(volume) >= size(claim)
        and set(claim["spec"]["accessModes"]) <= set(volume["spec"]["accessModes"])
        and reaches(volume, node)
    ]
    if fitting:
        used.add(min(fitting, key=size)["metadata"]["name"])
    return bool(fitting)


def can_provision(world: Obj, claim: Obj, node: Obj) -> bool:
    storage_class = find(world, "classes", claim["spec"]["storageClassName"])
    if storage_class is None or storage_class["provisioner"] == "kubernetes.io/no-provisioner":
        return False
    allowed = storage_class.get("allowedTopologies")
    labels = node["metadata"]["labels"]
    return not allowed or any(
        all(labels.get(one["key"]) in one["values"] for one in term["matchLabelExpressions"])
        for term in allowed
    )


def disk_names(volume: Obj) -> set[tuple[str, str]]:
    """The identities of an inline disk; two disks are the same if one identity is equal."""
    match volume:
        case {"gcePersistentDisk": disk}:
            return {("gce", disk["pdName"])}
        case {"awsElasticBlockStore": disk}:
            return {("aws", disk["volumeID"])}
        case {"iscsi": disk}:
            return {("iscsi", disk["iqn"])}
        case {"rbd": disk}:
            return {("rbd", f"{monitor} {disk['image']}") for monitor in disk["monitors"]}
    return set()


def disks_conflict(one: Obj, other: Obj) -> bool:
    """Whether two volumes are a disk that two pods cannot share; some kinds allow shared reading."""
    if not disk_names(one) & disk_names(other):
        return False
    readers = [any(source.get("readOnly") for source in volume.values() if isinstance(source, dict))
               for volume in (one, other)]  # fmt: skip
    return "awsElasticBlockStore" in one or not all(readers)


def volume_reasons(world: Obj, pod: Obj, node: Obj) -> list[str]:
    mine = claims(world, pod)
    there = [other for other in world["pods"] if other["spec"].get("nodeName") == node["metadata"]["name"]]
    theirs = [volume for other in there for volume in other["spec"].get("volumes") or []]
    if any(disks_conflict(one, other) for one in pod["spec"].get("volumes") or [] for other in theirs):
        return ["node(s) had no available disk"]
    for claim in mine:
        if "ReadWriteOncePod" in claim["spec"]["accessModes"]:
            place, name = claim["metadata"]["namespace"], claim["metadata"]["name"]
            if any(name in uses(o) and o["metadata"]["namespace"] == place for o in world["pods"]):
                return [
                    "node(s) unavailable due to PersistentVolumeClaim with ReadWriteOncePod access mode"
                    " already in-use by another pod"
                ]
    if too_many(world, pod, node):
        return ["node(s) exceed max volume count"]
    messages = []
    bound = [find(world, "volumes", c["spec"]["volumeName"]) for c in mine if is_bound(c)]
    if any(not reaches(volume, node) for volume in bound if volume is not None):
        messages.append("node(s) didn't match PersistentVolume's node affinity")
    if not _unbound_satisfied(world, [claim for claim in mine if not is_bound(claim)], node):
        messages.append("node(s) didn't find available persistent volumes to bind")
    if messages:
        return messages
    labels = node["metadata"]["labels"]
    for volume in bound:
        zones = (volume["metadata"].get("labels") or {}).get(ZONE) if volume is not None else None
        if zones and ZONE in labels and labels[ZONE] not in zones.split("__"):
            return ["node(s) had no available volume zone"]
    return []


def _unbound_satisfied(world: Obj, unbound: list[Obj], node: Obj) -> bool:
    used: set[str] = set()
    for claim in sorted(unbound, key=size):
        selected = (claim["metadata"].get("annotations") or {}).get(SELECTED)
        if selected is not None and selected != node["metadata"]["name"]:
            return False
        has_volume = selected is None and finds_volume(world, claim, node, used)
        if not has_volume and not can_provision(world, claim, node):
            return False
    return True
