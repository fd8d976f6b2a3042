"""Validation of ClusterQueues, Cohorts and LocalQueues beyond their schemas; every violation is recorded."""

from __future__ import annotations

from fractions import Fraction

from bayplan.dialects.kube.fields.metadata_rules import (
    NEGATIVE,
    check_key,
    check_selector,
    check_supported,
    check_unchanged,
)
from bayplan.dialects.kube.fields.quantity import parse_quantity
from bayplan.dialects.kube.fields.reader import Field, FieldErrorType
from bayplan.dialects.kueue.fields.workload_rules import check_not_negative
from bayplan.dialects.kueue.names.feature_switches import FeatureSwitches

FLAVORS_MAX = 256
RESOURCES_MAX = 256
COMBINATIONS_MAX = 512
CONCURRENT_FLAVORS_MAX = 16
PREFERRED_FLAVORS = "TryPreferredFlavors"
NEXT_FLAVOR = "TryNextFlavor"
_LEAST_WEIGHT = Fraction(1, 10**9)


def check_cluster_queue(queue: Field, rules: FeatureSwitches) -> None:
    """Validate a ClusterQueue."""
    del rules
    spec = queue.at("spec")
    groups, parent = spec.at("resourceGroups"), cohort_of(spec)
    check_resource_groups(groups, parent="cohort", has_parent=bool(parent.text()), lend_own_only=True)
    check_selector(spec.at("namespaceSelector"))
    _check_preemption(spec.at("preemption"))
    _check_fungibility(spec.at("flavorFungibility"))
    check_fair_sharing(spec.at("fairSharing"))
    _check_totals(groups)
    _check_concurrent(spec)
    flavors = flavor_names(groups)
    for check in spec.at("admissionChecksStrategy", "admissionChecks").items():
        for flavor in check.at("onFlavors").items():
            check_supported(flavor, flavors)


def check_cluster_queue_update(new: Field, old: Field, rules: FeatureSwitches) -> None:
    """Validate an update of a ClusterQueue."""
    del rules
    key = "concurrentAdmissionPolicy"
    check_unchanged(new.at("spec", key), old.at("spec", key))


def check_cohort(cohort: Field, rules: FeatureSwitches) -> None:
    """Validate a Cohort."""
    del rules
    spec = cohort.at("spec")
    parent = spec.at("parentName") if spec.at("parentName").present else spec.at("parent")
    check_fair_sharing(spec.at("fairSharing"))
    groups = spec.at("resourceGroups")
    check_resource_groups(groups, parent="parent", has_parent=bool(parent.text()), lend_own_only=False)
    name = cohort.at("metadata", "name").text()
    if name and parent.text() == name:
        parent.error("a cohort cannot be its own parent", FieldErrorType.INVALID)


def check_local_queue_update(new: Field, old: Field, rules: FeatureSwitches) -> None:
    """Validate an update of a LocalQueue: its ClusterQueue is immutable."""
    del rules
    check_unchanged(new.at("spec", "clusterQueue"), old.at("spec", "clusterQueue"))


def check_resource_groups(groups: Field, *, parent: str, has_parent: bool, lend_own_only: bool) -> None:
    """Validate resource groups: resources and flavors are unique, quotas in the order of coveredResources."""
    resources: set[str] = set()
    flavors: set[str] = set()
    for group in groups.items():
        covered = group.at("coveredResources").items()
        for resource in covered:
            check_key(resource)
            _once(resource, resources)
        for flavor in group.at("flavors").items():
            for quota, resource in zip(flavor.at("resources").items(), covered, strict=False):
                if quota.at("name").value != resource.value:
                    quota.at("name").error("must match the name in coveredResources", FieldErrorType.INVALID)
                _check_quota(quota, "" if has_parent else parent, lend_own_only=lend_own_only)
            _once(flavor.at("name"), flavors)


def check_fair_sharing(sharing: Field) -> None:
    """Validate a fair sharing weight: 0, or large enough not to vanish in rounding."""
    weight = sharing.at("weight")
    number = _number(weight)
    if number is None:
        return
    if number < 0:
        sharing.error(NEGATIVE, FieldErrorType.INVALID, str(weight.value))
    elif 0 < number <= _LEAST_WEIGHT:
        sharing.error("When not 0, weight must be > 10e-9", FieldErrorType.INVALID, str(weight.value))


def cohort_of(spec: Field) -> Field:
    """The field in which a ClusterQueue names its cohort, in either version of the API."""
    return spec.at("cohortName") if spec.at("cohortName").present else spec.at("cohort")


def flavor_names(groups: Field) -> list[str]:
    """The flavors of all resource groups, in their order."""
    return [flavor.at("name").text() for group in groups.items() for flavor in group.at("flavors").items()]


def _once(field: Field, seen: set[str]) -> None:
    if field.text() in seen:
        field.error("", FieldErrorType.DUPLICATE)
    seen.add(field.text())


def _check_quota(quota: Field, missing: str, *, lend_own_only: bool) -> None:
    check_not_negative(quota.at("nominalQuota"))
    for name in ("borrowingLimit", "lendingLimit"):
        limit = quota.at(name)
        check_not_negative(limit)
        if limit.present and missing:
            limit.error(f"must be nil when {missing} is empty", FieldErrorType.INVALID, str(limit.value))
    lending, nominal = _number(quota.at("lendingLimit")), _number(quota.at("nominalQuota"))
    if lend_own_only and lending is not None and lending > (nominal or 0):
        why = "must be less than or equal to the nominalQuota"
        quota.at("lendingLimit").error(why, FieldErrorType.INVALID, str(quota.at("lendingLimit").value))


def _number(quantity: Field) -> Fraction | None:
    if not quantity.present:
        return None
    try:
        return parse_quantity(quantity.value)
    except ValueError as wrong:
        quantity.error(str(wrong))
        return None


def _check_preemption(preemption: Field) -> None:
    reclaims = preemption.at("reclaimWithinCohort").text("Never") != "Never"
    borrows = preemption.at("borrowWithinCohort", "policy").text("Never") != "Never"
    if borrows and not reclaims:
        why = "reclaimWithinCohort=Never and borrowWithinCohort.Policy!=Never"
        preemption.error(why, FieldErrorType.INVALID)


def _check_fungibility(fungibility: Field) -> None:
    preference = fungibility.at("preference")
    tried = [fungibility.at(key).text() for key in ("whenCanBorrow", "whenCanPreempt")]
    if preference.present and tried != [NEXT_FLAVOR, NEXT_FLAVOR]:
        why = (
            f'preference "{preference.text()}" requires both whenCanBorrow and whenCanPreempt '
            f"to be {NEXT_FLAVOR}"
        )
        preference.error(why, FieldErrorType.INVALID)


def _check_totals(groups: Field) -> None:
    flavors = sum(len(group.at("flavors").items()) for group in groups.items())
    resources = sum(len(group.at("coveredResources").items()) for group in groups.items())
    for what, total, limit in (
        ("flavors", flavors, FLAVORS_MAX),
        ("covered resources", resources, RESOURCES_MAX),
    ):
        if total > limit:
            why = f"total number of {what} across all resourceGroups must be ≤ {limit}, got {total}"
            groups.error(why, FieldErrorType.INVALID, total)
    for group in groups.items():
        total = sum(len(flavor.at("resources").items()) for flavor in group.at("flavors").items())
        if total > COMBINATIONS_MAX:
            why = (
                "number of flavor-resource combinations in a resourceGroup must be "
                f"≤ {COMBINATIONS_MAX}, got {total}"
            )
            group.error(why, FieldErrorType.INVALID, total)


def _check_concurrent(spec: Field) -> None:
    """Validate concurrent admission: it needs a single resource group and BestEffortFIFO."""
    policy, groups = spec.at("concurrentAdmissionPolicy"), spec.at("resourceGroups")
    if not policy.present:
        return
    if len(groups.items()) != 1:
        why = "must have exactly one ResourceGroup when ConcurrentAdmissionPolicy is defined"
        groups.error(why, FieldErrorType.INVALID, len(groups.items()))
    elif len(flavor_names(groups)) > CONCURRENT_FLAVORS_MAX:
        why = (
            f"cannot have more than {CONCURRENT_FLAVORS_MAX} resource flavors in the ResourceGroup when "
            "ConcurrentAdmissionPolicy is defined"
        )
        flavors = groups.items()[0].at("flavors")
        flavors.error(why, FieldErrorType.INVALID, len(flavors.items()))
    _check_migration(policy.at("migration"), groups)
    if spec.at("queueingStrategy").text() == "StrictFIFO":
        why = "StrictFIFO queueing strategy cannot be used when ConcurrentAdmissionPolicy is defined"
        spec.at("queueingStrategy").error(why, FieldErrorType.INVALID)


def _check_migration(migration: Field, groups: Field) -> None:
    constraints, mode = migration.at("constraints"), migration.at("mode").text()
    last = constraints.at("lastAcceptableFlavorName")
    if constraints.present and mode not in ("", PREFERRED_FLAVORS):
        why = f'may only be set when migration.mode is "{PREFERRED_FLAVORS}" (got "{mode}")'
        constraints.error(why, FieldErrorType.FORBIDDEN)
    elif last.present and last.text() not in flavor_names(groups):
        listed = " ".join(flavor_names(groups))
        last.error(
            f"must be one of the flavors defined in the ClusterQueue: [{listed}]", FieldErrorType.INVALID
        )
