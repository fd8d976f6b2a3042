"""Decode ClusterQueues, Cohorts, LocalQueues and AdmissionChecks."""

from __future__ import annotations

from fractions import Fraction

from bayplan.dialects.kube.fields.quantity import amount, parse_quantity
from bayplan.dialects.kube.fields.reader import Field
from bayplan.dialects.kueue.names.annotations import IN_USE
from bayplan.model.node_rules import Requirement
from bayplan.model.quota import (
    Cell,
    Check,
    CheckKind,
    FlavorPreference,
    FlavorSearchPolicy,
    Fungibility,
    NamespaceQueue,
    Preemption,
    Queue,
    Quota,
    QuotaNode,
    ResourceGroup,
    StopPolicy,
    VictimPolicy,
)

PROVISIONING = "kueue.x-k8s.io/provisioning-request"
MULTIKUEUE = "kueue.x-k8s.io/multikueue"

_CHECK_KINDS = {PROVISIONING: CheckKind.PROVISIONING, MULTIKUEUE: CheckKind.MULTI_CLUSTER}
_STOPS = {"Hold": StopPolicy.HOLD, "HoldAndDrain": StopPolicy.DRAIN}
_VICTIMS = {
    "LowerPriority": VictimPolicy.LOWER,
    "LowerOrNewerEqualPriority": VictimPolicy.LOWER_OR_NEWER,
    "Any": VictimPolicy.ANY,
}
_TRY_NEXT = "TryNextFlavor"


def queue(obj: Field, *, protects: bool = False) -> Queue:
    """A ClusterQueue. With `protects`, one that lacks the finalizer is marked as unprotected."""
    spec, terminating = obj.at("spec"), obj.at("metadata", "deletionTimestamp").present
    finalizers = [name.text() for name in obj.at("metadata", "finalizers").items()] if protects else []
    return Queue(
        node=QuotaNode(_name(obj), spec.at("cohortName").text(), _quotas(spec), _weight(spec)),
        groups=tuple(_group(group) for group in spec.at("resourceGroups").items()),
        strict=spec.at("queueingStrategy").text() == "StrictFIFO",
        fungibility=_fungibility(spec.at("flavorFungibility")),
        preemption=_preemption(spec.at("preemption")),
        checks={
            check.at("name").text(): tuple(flavor.text() for flavor in check.at("onFlavors").items())
            for check in spec.at("admissionChecksStrategy", "admissionChecks").items()
        },
        namespaces=label_selector(spec.at("namespaceSelector")),
        stop=_STOPS.get(spec.at("stopPolicy").text(), StopPolicy.OPEN),
        terminating=terminating,
        unprotected=protects and not terminating and IN_USE not in finalizers,
    )


def quota_node(obj: Field) -> QuotaNode:
    """A Cohort."""
    spec = obj.at("spec")
    return QuotaNode(_name(obj), spec.at("parentName").text(), _quotas(spec), _weight(spec))


def namespace_queue(obj: Field) -> NamespaceQueue:
    """A LocalQueue."""
    spec, namespace = obj.at("spec"), obj.at("metadata", "namespace").text("default")
    stop = _STOPS.get(spec.at("stopPolicy").text(), StopPolicy.OPEN)
    return NamespaceQueue(namespace, _name(obj), spec.at("clusterQueue").text(), stop)


def check(obj: Field) -> Check:
    """An AdmissionCheck."""
    kind = _CHECK_KINDS.get(obj.at("spec", "controllerName").text(), CheckKind.OTHER)
    active = all(
        condition.at("status").text() == "True"
        for condition in obj.at("status", "conditions").items()
        if condition.at("type").text() == "Active"
    )
    return Check(_name(obj), kind, active)


def label_selector(field: Field) -> tuple[Requirement, ...] | None:
    """The requirements of a label selector: an empty one matches everything, an absent one nothing (None)."""
    if not field.present:
        return None
    exact = field.at("matchLabels").texts()
    return (
        *(Requirement(key, "In", (value,)) for key, value in sorted(exact.items())),
        *(
            Requirement(
                rule.at("key").text(),
                rule.at("operator").text(),
                tuple(value.text() for value in rule.at("values").items()),
            )
            for rule in field.at("matchExpressions").items()
        ),
    )


def _name(obj: Field) -> str:
    return obj.at("metadata", "name").text()


def _group(group: Field) -> ResourceGroup:
    return ResourceGroup(
        tuple(resource.text() for resource in group.at("coveredResources").items()),
        tuple(flavor.at("name").text() for flavor in group.at("flavors").items()),
    )


def _quotas(spec: Field) -> dict[Cell, Quota]:
    quotas: dict[Cell, Quota] = {}
    for group in spec.at("resourceGroups").items():
        for flavor in group.at("flavors").items():
            for resource in flavor.at("resources").items():
                name = resource.at("name").text()
                quotas[flavor.at("name").text(), name] = Quota(
                    _amount(name, resource.at("nominalQuota")) or 0,
                    _amount(name, resource.at("borrowingLimit")),
                    _amount(name, resource.at("lendingLimit")),
                )
    return quotas


def _amount(resource: str, field: Field) -> int | None:
    if not field.present:
        return None
    try:
        return amount(resource, field.value)
    except ValueError as error:
        field.error(str(error))
        return None


def _weight(spec: Field) -> Fraction:
    field = spec.at("fairSharing", "weight")
    if not field.present:
        return Fraction(1)
    try:
        return parse_quantity(field.value)
    except ValueError as error:
        field.error(str(error))
        return Fraction(1)


def _fungibility(field: Field) -> Fungibility:
    return Fungibility(
        FlavorSearchPolicy.CONTINUE
        if field.at("whenCanBorrow").text() == _TRY_NEXT
        else FlavorSearchPolicy.STOP,
        FlavorSearchPolicy.CONTINUE
        if field.at("whenCanPreempt").text(_TRY_NEXT) == _TRY_NEXT
        else FlavorSearchPolicy.STOP,
        FlavorPreference.PREEMPT
        if field.at("preference").text() == "PreemptionOverBorrowing"
        else FlavorPreference.BORROW,
    )


def _preemption(field: Field) -> Preemption:
    borrow = field.at("borrowWithinCohort")
    threshold = borrow.at("maxPriorityThreshold")
    return Preemption(
        _VICTIMS.get(field.at("withinClusterQueue").text(), VictimPolicy.NEVER),
        _VICTIMS.get(field.at("reclaimWithinCohort").text(), VictimPolicy.NEVER),
        borrow.present and borrow.at("policy").text("Never") != "Never",
        threshold.integer(minimum=-(2**31)) if threshold.present else None,
    )
