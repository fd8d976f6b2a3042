"""kai/seed_examples*: every example of the design text, by the part of ours that answers it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from bayplan.dialects.jobs.kinds import BY_GROUP
from bayplan.dialects.jobs.part import REPLICA_INDEX
from bayplan.dialects.kai.api import segments
from bayplan.dialects.kai.api.gang_tree import Pods, decode
from bayplan.dialects.kai.api.names import (
    POD_INDEX_LABEL,
    SEGMENT_PREFERRED,
    SEGMENT_REQUIRED,
    SEGMENT_SIZE,
    TOPOLOGY_NAME,
)
from bayplan.dialects.kai.api.pod_group import PodGroup
from bayplan.dialects.kai.api.segments import INDEX_LABELS, SegmentAnnotations, read_plan
from bayplan.dialects.kai.grouper.dispatch import Grouped, group_pod
from bayplan.dialects.kai.grouper.training import REPLICA_TYPE
from bayplan.model.assignment import Assignment
from bayplan.model.gang import Gang
from bayplan.placement.gang.place import place
from bayplan.testing import world

Object = dict[str, Any]


def check_case(case: Object) -> list[str]:
    """One example."""
    return CHECKS[case["kind"]](case["input"], case["expected"])


def _tree(given: Object, wanted: Object) -> list[str]:
    owner = given["owner"]
    wrong: list[str] = []
    for segment in wanted["segments"]:
        for name in segment["pods"]:
            replica_type, _, index = name.rpartition("-")
            found = _grouped(owner, replica_type.lower(), index)
            assert found.group is not None
            wrong += _whole(found.group, wanted)
            own = [one for one in found.group.sub_groups if one.name == found.sub_group]
            expected = (segment["minMember"], segment["parent"].lower(), segment["topologyConstraint"])
            got = [(one.minimum, one.parent, _constraint(one.constraint)) for one in own]
            if got != [expected] or not found.sub_group.endswith(f"-{segment['segment']}"):
                wrong.append(f"{name}: want segment {segment['segment']} {expected}, got {got}")
    for replicas in wanted["replicaTypeSubGroups"]:
        for name in replicas.get("pods", ()):
            got_name = _grouped(owner, *name.lower().rsplit("-", 1)).sub_group
            if got_name != replicas["replicaType"].lower():
                wrong.append(f"{name} is in {got_name!r}")
    return wrong


def _whole(group: PodGroup, wanted: Object) -> list[str]:
    names = [one.name for one in group.sub_groups if not one.parent]
    expected = [one["replicaType"].lower() for one in wanted["replicaTypeSubGroups"]]
    wrong = [] if names == expected else [f"replica types: want {expected}, got {names}"]
    for one in wanted["replicaTypeSubGroups"]:
        cut = sum(sub.parent == one["replicaType"].lower() for sub in group.sub_groups)
        if cut != one["segments"]:
            wrong.append(f"{one['replicaType']}: want {one['segments']} segments, got {cut}")
    if _constraint(group.constraint) != wanted["podGroup"]["topologyConstraint"]:
        wrong.append(f"the whole: {group.constraint}")
    return wrong


def _placement(given: Object, wanted: Object) -> list[str]:
    """The group is made, decoded and placed in two zones of three racks; one zone is too small."""
    notes = {SEGMENT_SIZE: str(given["segmentSize"]), SEGMENT_REQUIRED: "rack", TOPOLOGY_NAME: "t"}
    template = {"metadata": {"annotations": notes}, "spec": {"containers": []}}
    root = {TOPOLOGY_NAME: "t"}
    if "workloadRequired" in given:
        root["kai.scheduler/topology-required-placement"] = given["workloadRequired"]
    owner = {
        "apiVersion": "kubeflow.org/v1",
        "kind": "PyTorchJob",
        "metadata": {"name": "train", "uid": "1", "annotations": root},
        "spec": {"pytorchReplicaSpecs": {"Worker": {"replicas": given["replicas"], "template": template}}},
    }
    group = _grouped(owner, "worker", "0").group
    assert group is not None
    cut = [one for one in group.sub_groups if one.parent]
    known = {one.name: Pods(one.minimum, {"gpu": 1}) for one in cut}
    drawn = world(
        "zone z1\n  rack r1\n    - x1 gpu=7\n  rack r2\n    - x2 gpu=3\n"
        "zone z2\n  rack r3\n    - x3 gpu=7\n    - x4 gpu=3\n  rack r4\n    - x5 gpu=9\n"
    )
    found = place(drawn.cluster().snapshot(), Gang(group.ref, decode(group, known).root))
    if not found.ok:
        return [f"no place: {found.misfit}"]
    wrong = [] if len(cut) == wanted["numSegments"] else [f"{len(cut)} segments"]
    (assigned,) = found.assignments.values()
    racks = {"x1": "r1", "x2": "r2", "x3": "r3", "x4": "r3", "x5": "r4"}
    return wrong + _held(assigned, racks, given)


def _held(assigned: Assignment, racks: Mapping[str, str], given: Object) -> list[str]:
    hosts = [path[-1] for path in assigned.ranks()]
    size = given["segmentSize"]
    wrong = [] if len(hosts) == given["replicas"] else [f"{len(hosts)} pods placed"]
    cut = [hosts[start : start + size] for start in range(0, len(hosts), size)]
    wrong += [f"a segment on {there}" for there in cut if len({racks[host] for host in there}) != 1]
    if "workloadRequired" in given and not set(hosts) <= {"x3", "x4", "x5"}:
        wrong.append(f"more than one zone: {hosts}")
    return wrong


def _api(given: Object, wanted: Object) -> list[str]:
    known = {SEGMENT_SIZE, SEGMENT_REQUIRED, SEGMENT_PREFERRED, POD_INDEX_LABEL}
    named = {text.partition(" ")[0] for text in given["annotations"]}
    return [] if named == known else [f"unknown annotations {named ^ known}"]


def _index(given: Object, wanted: Object) -> list[str]:
    got = segments.segment_of(given["replicaIndex"], given["segmentSize"])
    return _same(wanted, {"segmentId": got})


def _leaders(given: Object, wanted: Object) -> list[str]:
    (label,) = given["label"].items()
    if label[0] != INDEX_LABELS[given["kind"]]:
        return [f"the label is {INDEX_LABELS[given['kind']]}"]
    number = segments.worker_number(int(label[1]), given["leaderCount"])
    return _same(
        wanted,
        {"normalizedIndex": number, "segmentId": segments.segment_of(number, given["segmentSize"])},
    )


def _minimums(given: Object, wanted: Object) -> list[str]:
    size = given["segmentSize"]
    found = segments.segment_sizes(given["replicas"], given["minMember"], size)
    got = [(share.size, share.minimum) for share in found]
    expected = [(_pods(one), one["minMember"]) for one in wanted["segments"]]
    return [] if got == expected else [f"want {expected}, got {got}"]


def _pods(segment: Object) -> int:
    if "size" in segment:
        return int(segment["size"])
    first, last = segment["pods"]
    return int(last - first + 1)


def _count(given: Object, wanted: Object) -> list[str]:
    return _same(wanted, {"numSegments": segments.count(given["replicas"], given["segmentSize"])})


def _precedence(given: Object, wanted: Object) -> list[str]:
    notes = SegmentAnnotations({**given["podTemplate"], **given["segmentAnnotations"]}, given["root"], {})
    told: list[str] = []
    plan = read_plan(notes, "PyTorchJob", told)
    wrong = _same(wanted, {"effectiveTopology": notes.topology or None, "segmentation": _applied(plan)})
    if plan is None and not told:
        wrong.append("nothing was said")
    return wrong


def _label(given: Object, wanted: Object) -> list[str]:
    if "defaultIndexLabel" in wanted:
        kind = given["kind"].partition(" ")[0]
        known = any(name == kind for _, name in BY_GROUP)
        return _same(wanted, {"defaultIndexLabel": INDEX_LABELS.get(kind)}) + (
            [] if known else ["no such kind"]
        )
    told: list[str] = []
    plan = read_plan(SegmentAnnotations(given["annotations"], {TOPOLOGY_NAME: "t"}, {}), given["kind"], told)
    got = {
        "segmentation": _applied(plan),
        "indexLabel": plan.index_label if plan else "",
        "warning": bool(told),
    }
    return _same(wanted, {key: got[key] for key in wanted})


def _applied(plan: object) -> str:
    return "ignored" if plan is None else "applied"


def _same(wanted: Object, got: Object) -> list[str]:
    return [] if wanted == got else [f"want {wanted}, got {got}"]


def _grouped(owner: Object, replica_type: str, index: str) -> Grouped:
    labels = {REPLICA_TYPE: replica_type, REPLICA_INDEX: index}
    pod = {"metadata": {"name": f"{replica_type}-{index}", "namespace": "default", "labels": labels}}
    return group_pod(pod, [owner])


def _constraint(one: object) -> Object:
    fields = {
        "topology": "topology",
        "required": "requiredTopologyLevel",
        "preferred": "preferredTopologyLevel",
    }
    return {key: getattr(one, name) for name, key in fields.items() if getattr(one, name, "")}


CHECKS: Mapping[str, Callable[[Object, Object], list[str]]] = {
    "podgroup-tree": _tree,
    "placement": _placement,
    "api": _api,
    "index-to-segment": _index,
    "lws-normalisation": _leaders,
    "segment-minmember": _minimums,
    "num-segments": _count,
    "annotation-precedence": _precedence,
    "index-label": _label,
}
FILES = {"kai/seed_examples*": check_case}
