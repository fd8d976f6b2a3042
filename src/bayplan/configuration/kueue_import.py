"""The configuration of a Kueue manager, read as settings of ours: what means the same here takes effect.

The rest of it is left alone and listed, so that nobody believes it does something.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from bayplan.configuration.fields import (
    COUNT,
    DURATION,
    PREFIXES,
    TRANSFORMATIONS,
    chosen,
    fair_rules,
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
    """A feature gate that is a setting of ours: the values that fields get if it is on, and if it is off."""

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
    "TASFailedNodeReplacementFailFast": _flag("scheduling", "replace_fast"),
    "TASReplaceNodeDueToNotReadyOverFixedTime": _flag("nodes", "by_time"),
    "TASReplaceNodeOnPodTermination": _flag("nodes", "by_pods"),
    "TASReplaceNodeOnNodeTaints": _flag("nodes", "by_taints"),
}
"""In this order; a later one has the last word. What a file does not name keeps our default."""
ALWAYS_ON = (
    "ElasticJobsViaWorkloadSlices", "ElasticJobsViaWorkloadSlicesWithTAS", "FlavorFungibility",
    "FlavorFungibilityPreserveScanProgress", "HierarchicalCohorts", "PartialAdmission", "PriorityBoost",
    "PrioritySortingWithinCohort", "QuotaCheckStrategy", "ReclaimablePods",
    "RecomputeAssignmentUponPreemptionTargetsOverlap", "SchedulingEquivalenceHashing",
    "SkipReassignmentForPodOwnedWorkloads", "TASAssignmentsEncodingByHostnamePrefix",
    "TASFailedNodeReplacement", "TASHandleOverlappingFlavors", "TASMultiLayerTopology",
    "TASValidateWorkloadSliceSize", "TopologyAwareScheduling", "UnadmittedWorkloadsObservability",
)  # fmt: skip
"""Gates of what is always there: on means nothing new, off is not to be had."""
EXCLUSIVE = tuple(name for name in GATES if name.startswith("TASProfile"))
FAIR = {
    "LessThanOrEqualToFinalShare": FairRule.FINAL_SHARE,
    "LessThanInitialShare": FairRule.INITIAL_SHARE,
}
EVICTION, CREATION = "Eviction", "Creation"
WITHOUT_WAITING = "DisableWaitForPodsReady"
IGNORE, BLOCK = "IgnoreUndeclared", "BlockUndeclared"

_TIMEOUTS = {OLDER: 300.0, NEWER: 1800.0}
"""Seconds, if a file has pods waited for and does not say how long."""
_USED = ("fairSharing", "resources", "featureGates", "waitForPodsReady")
UNUSED = (
    "namespace", "webhook", "leaderElection", "metrics", "health", "pprofBindAddress", "controller", "tls",
    "manageJobsWithoutQueueName", "managedJobsNamespaceSelector", "internalCertManagement",
    "clientConnection", "integrations", "multiKueue", "admissionFairSharing",
    "objectRetentionPolicies", "visibilityServer", "queueVisibility",
)  # fmt: skip
"""Sections that mean nothing here."""


def read_kueue(body: Field) -> tuple[Settings, list[str]]:
    """The settings that it comes to, and the paths of what is not used."""
    unknown_keys(body, ("apiVersion", "kind", "metadata", *_USED, *UNUSED))
    given: Given = {}
    unused = [key for key, value in body.entries() if key in UNUSED and value.present]
    _take_gates(body.at("featureGates"), given)
    unused += _unused_gates(body.at("featureGates"))
    version = body.at("apiVersion").text()
    _take_fair_sharing(body.at("fairSharing"), given, older=version == OLDER)
    unused += _take_waiting(body.at("waitForPodsReady"), given, version)
    if body.at("featureGates", WITHOUT_WAITING).flag():
        given.setdefault("jobs", {})["await_pods"] = False
    unused += _take_resources(body.at("resources"), given)
    return (DEFAULTS if body.errors else merged(DEFAULTS, given)), sorted(unused)


def _take_gates(field: Field, given: Given) -> None:
    chosen_profiles = [name for name in EXCLUSIVE if field.at(name).flag()]
    if len(chosen_profiles) > 1:
        field.error(f"only one of {', '.join(chosen_profiles)} can be on", value=None)
    for name, gate in GATES.items():
        if field.at(name).present:
            values = gate.on if field.at(name).flag() else gate.off
            given.setdefault(gate.part, {}).update(values)
    nodes = given.get("nodes", {})
    if nodes.get("by_pods") is False:
        nodes["by_time"] = True  # as there: something has to tell a failure


def _unused_gates(field: Field) -> Iterator[str]:
    """Gates without a meaning here; those of what is always there only if they would switch it off."""
    for name, value in field.entries():
        on = value.flag()
        if name not in (*GATES, WITHOUT_WAITING) and not (on and name in ALWAYS_ON):
            yield f"featureGates.{name}"


def _take_fair_sharing(field: Field, given: Given, *, older: bool) -> None:
    """The newer version has it switched on by being there."""
    if not field.present:
        return
    unknown_keys(field, ("enable", "preemptionStrategies") if older else ("preemptionStrategies",))
    wanted = given.setdefault("scheduling", {})
    wanted["fair_sharing"] = field.at("enable").flag() if older else True
    strategies = field.at("preemptionStrategies")
    if strategies.present and (strategies.value != [] or not older):
        wanted["fair_rules"] = fair_rules(FAIR).read(strategies)
    elif not older:
        strategies.error("must be set")


def _take_waiting(field: Field, given: Given, version: str) -> Iterator[str]:
    """As fair sharing is switched on; the older version then blocks admission unless told not to."""
    if not field.present:
        return
    older = version == OLDER
    names = ("timeout", "recoveryTimeout", "blockAdmission", "requeuingStrategy")
    unknown_keys(field, ("enable", *names) if older else names)
    requeuing = field.at("requeuingStrategy")
    unknown_keys(requeuing, ("timestamp", "backoffLimitCount", "backoffBaseSeconds", "backoffMaxSeconds"))
    given.setdefault("jobs", {})["await_pods"] = awaited = field.at("enable").flag() if older else True
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
    given["patience"] = wanted
    if awaited and field.at("blockAdmission").flag(default=older):
        yield "waitForPodsReady.blockAdmission"
    if chosen(requeuing.at("timestamp"), (EVICTION, CREATION)) == CREATION:
        yield "waitForPodsReady.requeuingStrategy.timestamp"


def _take_resources(field: Field, given: Given) -> Iterator[str]:
    names = ("quotaCheckStrategy", "excludeResourcePrefixes", "transformations", "deviceClassMappings")
    unknown_keys(field, names)
    for key, name, form in (
        ("excludeResourcePrefixes", "ignored", PREFIXES),
        ("transformations", "transformations", TRANSFORMATIONS),
    ):
        if field.at(key).present:
            given.setdefault("resources", {})[name] = form.read(field.at(key))
    if field.at("quotaCheckStrategy").present:
        strategy = chosen(field.at("quotaCheckStrategy"), (IGNORE, BLOCK))
        given.setdefault("scheduling", {})["ignore_uncovered"] = strategy == IGNORE
    if field.at("deviceClassMappings").present:
        yield "resources.deviceClassMappings"
