"""Reads the configuration of a Kueue manager as settings of Bayplan.

Parts without an equivalent are listed, so that administrators know that they have no effect.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import compress
from typing import Any

from bayplan.configuration.fields import (
    COUNT,
    DURATION,
    PREFIXES,
    TRANSFORMATIONS,
    chosen,
    device_classes,
    fair_rules,
    is_by_capacity,
    unknown_keys,
)
from bayplan.configuration.settings import DEFAULTS, Settings, merged
from bayplan.dialects.kube.fields.reader import Field
from bayplan.model.profile import FairRule, Strategy

GROUP = "config.kueue.x-k8s.io"
OLDER, NEWER = f"{GROUP}/v1beta1", f"{GROUP}/v1beta2"
VERSIONS = (NEWER, OLDER)

Given = dict[str, dict[str, Any]]


@dataclass(frozen=True, slots=True)
class FeatureGate:
    """A feature gate with an equivalent setting: the values of fields if it is on, and if it is off."""

    part: str
    on: dict[str, Any]
    off: dict[str, Any]


def _flag(part: str, name: str) -> FeatureGate:
    return FeatureGate(part, {name: True}, {name: False})


def _everywhere(strategy: Strategy) -> FeatureGate:
    return FeatureGate("scheduling", dict.fromkeys(("required", "preferred", "unconstrained"), strategy), {})


GATES = {
    "TASProfileMixed": FeatureGate(
        "scheduling", {"unconstrained": Strategy.LEAST_FREE}, {"unconstrained": Strategy.BEST_FIT}
    ),
    "TASProfileBestFit": _everywhere(Strategy.BEST_FIT),
    "TASProfileLeastFreeCapacity": _everywhere(Strategy.LEAST_FREE),
    "TASProfileMostFreeCapacity": _everywhere(Strategy.MOST_FREE),
    "TASBalancedPlacement": FeatureGate(
        "scheduling", {"preferred": Strategy.BALANCED}, {"preferred": Strategy.BEST_FIT}
    ),
    "TASRespectNodeAffinityPreferred": _flag("scheduling", "preferred_affinity"),
    "TASRecomputeAssignmentWithinSchedulingCycle": _flag("scheduling", "recompute"),
    "UnadmittedWorkloadsObservability": _flag("scheduling", "detailed_reasons"),
    "TASFailedNodeReplacementFailFast": _flag("scheduling", "replace_fast"),
    "TASReplaceNodeDueToNotReadyOverFixedTime": _flag("nodes", "by_time"),
    "TASReplaceNodeOnPodTermination": _flag("nodes", "by_pods"),
    "TASReplaceNodeOnNodeTaints": _flag("nodes", "by_taints"),
}
"""Applied in this order; a later gate overrides an earlier one. Gates that a file omits keep our default."""
ALWAYS_ON = (
    "ElasticJobsViaWorkloadSlices", "ElasticJobsViaWorkloadSlicesWithTAS", "FlavorFungibility",
    "FlavorFungibilityPreserveScanProgress", "HierarchicalCohorts", "KueueDRAIntegration", "PartialAdmission",
    "PriorityBoost", "PrioritySortingWithinCohort", "QuotaCheckStrategy", "ReclaimablePods",
    "RecomputeAssignmentUponPreemptionTargetsOverlap", "SchedulingEquivalenceHashing",
    "SkipReassignmentForPodOwnedWorkloads", "TASAssignmentsEncodingByHostnamePrefix",
    "TASFailedNodeReplacement", "TASHandleOverlappingFlavors", "TASMultiLayerTopology",
    "TASValidateWorkloadSliceSize", "TopologyAwareScheduling",
)  # fmt: skip
"""Gates of features that are always on here: `true` has no effect, `false` is not supported."""
EXCLUSIVE = tuple(name for name in GATES if name.startswith("TASProfile"))
FAIR = {
    "LessThanOrEqualToFinalShare": FairRule.FINAL_SHARE,
    "LessThanInitialShare": FairRule.INITIAL_SHARE,
}
EVICTION, CREATION = "Eviction", "Creation"
WITHOUT_WAITING = "DisableWaitForPodsReady"
IGNORE, BLOCK = "IgnoreUndeclared", "BlockUndeclared"

_TIMEOUTS = {OLDER: 300.0, NEWER: 1800.0}
"""The default timeout of waitForPodsReady in seconds."""
_USED = ("fairSharing", "resources", "featureGates", "waitForPodsReady")
UNUSED = (
    "namespace", "webhook", "leaderElection", "metrics", "health", "pprofBindAddress", "controller", "tls",
    "manageJobsWithoutQueueName", "managedJobsNamespaceSelector", "internalCertManagement",
    "clientConnection", "integrations", "multiKueue", "admissionFairSharing",
    "objectRetentionPolicies", "visibilityServer", "queueVisibility",
)  # fmt: skip
"""Sections that are not used."""


def read_kueue(body: Field) -> tuple[Settings, list[str]]:
    """The settings, and the paths that are not used."""
    unknown_keys(body, ("apiVersion", "kind", "metadata", *_USED, *UNUSED))
    values_by_part: Given = {}
    unused = [key for key, value in body.entries() if key in UNUSED and value.present]
    _read_gates(body.at("featureGates"), values_by_part)
    unused += _unused_gates(body.at("featureGates"))
    version = body.at("apiVersion").text()
    _read_fair_sharing(body.at("fairSharing"), values_by_part, older=version == OLDER)
    unused += _read_waiting(body.at("waitForPodsReady"), values_by_part, version)
    if body.at("featureGates", WITHOUT_WAITING).flag():
        values_by_part.setdefault("jobs", {})["await_pods"] = False
    unused += _read_resources(body.at("resources"), values_by_part)
    return (DEFAULTS if body.errors else merged(DEFAULTS, values_by_part)), sorted(unused)


def _read_gates(field: Field, values_by_part: Given) -> None:
    chosen_profiles = [name for name in EXCLUSIVE if field.at(name).flag()]
    if len(chosen_profiles) > 1:
        field.error(f"only one of {', '.join(chosen_profiles)} can be on", value=None)
    for name, gate in GATES.items():
        if field.at(name).present:
            values = gate.on if field.at(name).flag() else gate.off
            values_by_part.setdefault(gate.part, {}).update(values)
    nodes = values_by_part.get("nodes", {})
    if nodes.get("by_pods") is False:
        nodes["by_time"] = True  # as in Kueue: one of the two detects failures


def _unused_gates(field: Field) -> Iterator[str]:
    """Gates that have no effect; those of features that are always on only if they are `false`."""
    for name, value in field.entries():
        on = value.flag()
        if name not in (*GATES, WITHOUT_WAITING) and not (on and name in ALWAYS_ON):
            yield f"featureGates.{name}"


def _read_fair_sharing(field: Field, values_by_part: Given, *, older: bool) -> None:
    """In the newer version the section itself enables fair sharing."""
    if not field.present:
        return
    unknown_keys(field, ("enable", "preemptionStrategies") if older else ("preemptionStrategies",))
    wanted = values_by_part.setdefault("scheduling", {})
    wanted["fair_sharing"] = field.at("enable").flag() if older else True
    strategies = field.at("preemptionStrategies")
    if strategies.present and (strategies.value != [] or not older):
        wanted["fair_rules"] = fair_rules(FAIR).read(strategies)
    elif not older:
        strategies.error("must be set")


def _read_waiting(field: Field, values_by_part: Given, version: str) -> Iterator[str]:
    """Enabled like fair sharing; the older version blocks admission by default."""
    if not field.present:
        return
    older = version == OLDER
    names = ("timeout", "recoveryTimeout", "blockAdmission", "requeuingStrategy")
    unknown_keys(field, ("enable", *names) if older else names)
    requeuing = field.at("requeuingStrategy")
    unknown_keys(requeuing, ("timestamp", "backoffLimitCount", "backoffBaseSeconds", "backoffMaxSeconds"))
    values_by_part.setdefault("jobs", {})["await_pods"] = awaited = (
        field.at("enable").flag() if older else True
    )
    timeout, recovery, wanted = field.at("timeout"), field.at("recoveryTimeout"), {}
    wanted["seconds"] = (DURATION.read(timeout) if timeout.present else 0.0) or _TIMEOUTS[version]
    wanted["recovery_seconds"] = (DURATION.read(recovery) or None) if recovery.present else wanted["seconds"]
    for key, name in (
        ("backoffLimitCount", "retries_max"),
        ("backoffBaseSeconds", "backoff_base_seconds"),
        ("backoffMaxSeconds", "backoff_max_seconds"),
    ):
        if requeuing.at(key).present:
            wanted[name] = COUNT.read(requeuing.at(key))
    values_by_part["pods_ready"] = wanted
    if awaited and field.at("blockAdmission").flag(default=older):
        yield "waitForPodsReady.blockAdmission"
    if chosen(requeuing.at("timestamp"), (EVICTION, CREATION)) == CREATION:
        yield "waitForPodsReady.requeuingStrategy.timestamp"


def _read_resources(field: Field, values_by_part: Given) -> Iterator[str]:
    names = ("quotaCheckStrategy", "excludeResourcePrefixes", "transformations", "deviceClassMappings")
    unknown_keys(field, names)
    for key, name, form in (
        ("excludeResourcePrefixes", "ignored", PREFIXES),
        ("transformations", "transformations", TRANSFORMATIONS),
    ):
        if field.at(key).present:
            values_by_part.setdefault("resources", {})[name] = form.read(field.at(key))
    if field.at("quotaCheckStrategy").present:
        strategy = chosen(field.at("quotaCheckStrategy"), (IGNORE, BLOCK))
        values_by_part.setdefault("scheduling", {})["ignore_uncovered"] = strategy == IGNORE
    yield from _read_device_classes(field.at("deviceClassMappings"), values_by_part)


def _read_device_classes(field: Field, values_by_part: Given) -> Iterator[str]:
    """Classes that are counted by capacities are not mapped: gangs that claim them are refused."""
    if not field.present:
        return
    for at, mapping in enumerate(field.items()):
        unknown_keys(mapping, ("name", "deviceClassNames", "sources"))
        if is_by_capacity(mapping):
            yield f"resources.deviceClassMappings[{at}].sources"
    found = device_classes(field)
    by_capacity = [is_by_capacity(mapping) for mapping in field.items()]
    resources = values_by_part.setdefault("resources", {})
    resources["device_classes"] = tuple(compress(found, (not one for one in by_capacity)))
    uncounted = (name for one in compress(found, by_capacity) for name in one.classes)
    resources["by_capacity"] = tuple(dict.fromkeys(uncounted))
