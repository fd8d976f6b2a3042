"""CEL expressions for what our roles may write of pods, jobs and nodes: other fields must be unchanged."""

from __future__ import annotations

from bayplan.dialects.jobs.change_rules import NEW, OLD, WHERE, all_of, every, or_empty, same_but
from bayplan.dialects.jobs.kinds import KINDS
from bayplan.dialects.kube.encode.holders import HOLDER, IMAGE
from bayplan.dialects.kube.encode.move_marks import PLAN, UNTIL
from bayplan.dialects.kueue.fields.job_rules import SCHEDULING_GATE
from bayplan.dialects.kueue.names.annotations import ELASTIC_GATE, MANAGED, TOPOLOGY_GATE

VARIABLES = {NEW.partition(".")[2]: "dyn(object)", OLD.partition(".")[2]: "dyn(oldObject)"}
"""Untyped: each expression is for one kind; type-checking warnings for other kinds would fill the status."""
_BY_SERVER = ("managedFields", "resourceVersion", "generation")
_GATES = (SCHEDULING_GATE, TOPOLOGY_GATE, ELASTIC_GATE)

_METADATA = same_but(f"{NEW}.metadata", f"{OLD}.metadata", "labels", "annotations", *_BY_SERVER)
_FINALIZERS = (
    "(has(object.metadata.finalizers) ? object.metadata.finalizers : []) == "
    "(has(oldObject.metadata.finalizers) ? oldObject.metadata.finalizers : []) || "
    "(has(object.metadata.finalizers) ? object.metadata.finalizers : []) == "
    f"oldObject.metadata.finalizers.filter(one, one != '{MANAGED}')"
)
_FOREIGN_GATES = (
    "!has(oldObject.spec.schedulingGates) || oldObject.spec.schedulingGates.all(gate, "
    f"gate.name in {every(_GATES)} || (has(object.spec.schedulingGates) && "
    "object.spec.schedulingGates.exists(one, one.name == gate.name)))"
)

POD = " && ".join(
    f"({one})"
    for one in (
        same_but(f"{NEW}.metadata", f"{OLD}.metadata", "labels", "annotations", "finalizers", *_BY_SERVER),
        _FINALIZERS,
        same_but(f"{NEW}.spec", f"{OLD}.spec", *WHERE),
        _FOREIGN_GATES,
    )
)
POD_STATUS = (
    same_but(f"{NEW}.status", f"{OLD}.status", "conditions", "nominatedNodeName", "phase")
    + " && (object.status.phase == oldObject.status.phase || object.status.phase == 'Failed')"
)
JOBS = {kind.kind: all_of(_METADATA, *kind.changes) for kind in KINDS.values() if kind.suspend}
"""For each kind with a suspend flag: what must hold for a change by our account."""
JOB_STATUS = same_but(or_empty(f"{NEW}.status"), or_empty(f"{OLD}.status"), "startTime")
"""Only startTime may change: a stopped Job starts again, and its deadline counts from then."""
_TAINTS = "({0}.spec.?taints.orValue([]).filter(one, one.key != '" + PLAN + "'))"
_NOTES = "({0}.metadata.?annotations.orValue({{}}))"
NODE = all_of(
    same_but(f"{NEW}.metadata", f"{OLD}.metadata", "annotations", *_BY_SERVER),
    same_but(_NOTES.format(NEW), _NOTES.format(OLD), UNTIL),
    same_but(f"{NEW}.spec", f"{OLD}.spec", "taints"),
    f"{_TAINTS.format(NEW)} == {_TAINTS.format(OLD)}",
)
"""Of a node, only the taint and the annotation of a plan may change."""
HOLDING_POD = all_of(
    f"'{HOLDER}' in {NEW}.metadata.?labels.orValue({{}})",
    f"{NEW}.spec.containers.all(one, one.image == '{IMAGE}' && one.imagePullPolicy == 'Never')",
    f"{NEW}.spec.?initContainers.orValue([]).size() == 0 && {NEW}.spec.?volumes.orValue([]).size() == 0",
    f"{NEW}.spec.?automountServiceAccountToken.orValue(true) == false",
    f"!{NEW}.spec.?hostNetwork.orValue(false) && !{NEW}.spec.?hostPID.orValue(false)",
)
"""A new pod of ours runs no image that exists, and sees nothing of its node."""
