"""The RBAC rules of each role of Bayplan: one table, from which all RBAC objects are generated."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from bayplan.assembly.crds import converted
from bayplan.assembly.webhooks import AUTHORITY_NAME, CONFIGURATION, SECRET_NAME
from bayplan.dialects.api import Kind
from bayplan.dialects.jobs.kinds import KINDS
from bayplan.dialects.kai.api.names import POD_GROUP as KAI_GROUP
from bayplan.dialects.kube.devices.wire import GROUP as DEVICES
from bayplan.dialects.kube.gang_api.gates import GROUP as GANGS
from bayplan.dialects.kueue.decode.scheduled_jobs import JOB_KINDS
from bayplan.dialects.kueue.names.annotations import DEFAULT_QUEUE
from bayplan.dialects.kueue.provisioning.requests import REQUESTS, TEMPLATES
from bayplan.dialects.kueue.webhooks.reviews import DEFAULT_QUEUES, LEVELS
from bayplan.runtime.controllers.admission.controller import AdmissionController
from bayplan.runtime.controllers.jobs.cache import WATCHED
from bayplan.runtime.controllers.pod_grouper.controller import PodGrouperController
from bayplan.runtime.controllers.pod_grouper.defaults import CONFIG_MAPS
from bayplan.runtime.controllers.scheduler.controller import SchedulerController
from bayplan.runtime.webhooks.live_objects import LOOKED_UP
from bayplan.runtime.webhooks.metrics_server import PATH as METRICS_PATH

LEASE_NAME = "bayplan"
DASHBOARD_PATH = "/bayplan/dashboard"


@dataclass(frozen=True, slots=True)
class RbacRule:
    """Verbs on resources of one group; with names, on these objects only."""

    group: str
    resources: tuple[str, ...]
    verbs: tuple[str, ...]
    names: tuple[str, ...] = ()

    def rule(self) -> dict[str, Any]:
        """The rule as in the API."""
        rule: dict[str, Any] = {"apiGroups": [self.group], "resources": list(self.resources)}
        if self.names:
            rule["resourceNames"] = list(self.names)
        return {**rule, "verbs": list(self.verbs)}


@dataclass(frozen=True, slots=True)
class RbacRules:
    """The rules of a role: those of its ClusterRole, and those of its Role in the namespace of Bayplan."""

    clusterwide: tuple[RbacRule, ...]
    namespaced: tuple[RbacRule, ...] = ()


def _watching(kinds: Iterable[Kind]) -> tuple[RbacRule, ...]:
    """Rules to list and watch kinds, as the loop does."""
    groups: dict[str, list[str]] = {}
    for kind in kinds:
        groups.setdefault(kind.group, []).append(kind.plural)
    return tuple(
        RbacRule(group, tuple(sorted(set(groups[group]))), ("list", "watch")) for group in sorted(groups)
    )


def _patching(kinds: Iterable[Kind]) -> Iterator[RbacRule]:
    """Rules to stop and start jobs that are gangs without a queue."""
    for kind in kinds:
        yield RbacRule(kind.group, (kind.plural,), ("patch",))


def _getting(kinds: Iterable[Kind]) -> tuple[RbacRule, ...]:
    """Rules to get single objects that other objects refer to."""
    groups: dict[str, list[str]] = {}
    for kind in kinds:
        groups.setdefault(kind.group, []).append(kind.plural)
    return tuple(RbacRule(group, tuple(sorted(set(groups[group]))), ("get",)) for group in sorted(groups))


def _converted_crds(names: tuple[str, ...]) -> tuple[RbacRule, ...]:
    resources = ("customresourcedefinitions",)
    return (RbacRule("apiextensions.k8s.io", resources, ("get", "update"), names),) if names else ()


def _job_rules() -> Iterator[RbacRule]:
    """Rules to start and stop jobs, and to make them owners of Workloads."""
    by_verbs: dict[tuple[str, str, tuple[str, ...]], list[str]] = {}
    for kind in KINDS.values():
        for resource, verbs in kind.access:
            by_verbs.setdefault((kind.group, resource.partition("/")[2], verbs), []).append(resource)
    for (group, _, verbs), resources in sorted(by_verbs.items()):
        yield RbacRule(group, tuple(sorted(resources)), verbs)


_CREATE_EVENTS = RbacRule("", ("events",), ("create",))
_WITH_STATUS = (
    "admissionchecks",
    "clusterqueues",
    "cohorts",
    "localqueues",
    "workloads",
)  # admission writes their status
_WITH_FINALIZER = ("admissionchecks", "clusterqueues", "resourceflavors", "topologies")
_KUEUE = "kueue.x-k8s.io"

COMMON_RULES = RbacRules(
    clusterwide=(),
    namespaced=(
        RbacRule("coordination.k8s.io", ("leases",), ("create",)),  # RBAC cannot limit a create to a name
        RbacRule("coordination.k8s.io", ("leases",), ("get", "update"), (LEASE_NAME,)),
    ),
)

ROLES: dict[str, RbacRules] = {
    # Admits queued gangs, manages their jobs and pods, and writes statuses.
    "admission": RbacRules(
        clusterwide=(
            *_watching((*AdmissionController.kinds, *WATCHED, TEMPLATES, REQUESTS)),
            _CREATE_EVENTS,
            RbacRule(TEMPLATES.group, (TEMPLATES.plural,), ("create", "delete")),  # for ProvisioningRequests
            RbacRule(REQUESTS.group, (REQUESTS.plural,), ("create", "delete")),
            RbacRule("", ("pods",), ("delete", "patch")),  # ungate; evict pods without a job
            RbacRule("", ("pods/status",), ("patch",)),  # conditions
            *_job_rules(),
            RbacRule(_KUEUE, ("workloads",), ("create", "delete", "patch")),  # for jobs; deactivate
            RbacRule(_KUEUE, _WITH_FINALIZER, ("patch",)),  # finalizers while they are in use
            RbacRule(_KUEUE, tuple(f"{name}/status" for name in _WITH_STATUS), ("update",)),
        ),
    ),
    # Schedules gangs and pods.
    "scheduler": RbacRules(
        clusterwide=(
            *_watching(SchedulerController.kinds),
            RbacRule("", ("pods/binding",), ("create",)),
            RbacRule("", ("pods/status",), ("patch",)),  # conditions and nominatedNodeName
            RbacRule("", ("pods",), ("delete",)),  # preemption
            RbacRule(
                "", ("persistentvolumeclaims", "persistentvolumes"), ("patch",)
            ),  # volumes with WaitForFirstConsumer
            RbacRule(DEVICES, ("resourceclaims", "resourceclaims/status"), ("patch",)),  # finalizer; devices
            # asked for, from 1.36 on, by the API server where a status changes devices or reservations
            RbacRule(DEVICES, ("resourceclaims/binding",), ("patch", "update")),
            RbacRule(GANGS, ("podgroups/status",), ("patch",)),
            RbacRule(KAI_GROUP.group, ("podgroups/status", "queues/status"), ("patch",)),
            _CREATE_EVENTS,
        ),
    ),
    # Creates PodGroups for jobs and pods.
    "grouper": RbacRules(
        clusterwide=(
            *_watching(PodGrouperController.kinds),
            RbacRule(KAI_GROUP.group, (KAI_GROUP.plural,), ("create", "patch")),
            RbacRule("", ("pods",), ("patch",)),  # add pods to their group
            _CREATE_EVENTS,
        ),
    ),
    # Moves running gangs; what may be written is limited further by the policy bayplan-account-moves.
    "defragment": RbacRules(
        clusterwide=(
            *_watching(dict.fromkeys((*AdmissionController.kinds, *SchedulerController.kinds))),
            RbacRule("", ("nodes",), ("get", "patch")),  # keep pods off nodes that become free
            RbacRule("", ("pods",), ("create", "delete")),  # hold the new place of a gang
            RbacRule("", ("pods/eviction",), ("create",)),
            RbacRule(_KUEUE, ("workloads",), ("patch",)),  # stop a gang and start it again
            *_patching(JOB_KINDS.values()),
        ),
    ),
    # Serves admission and conversion webhooks, and writes the CA bundle into their configurations.
    "webhooks": RbacRules(
        clusterwide=(
            RbacRule(
                "admissionregistration.k8s.io",
                ("mutatingwebhookconfigurations", "validatingwebhookconfigurations"),
                ("get", "update"),
                (CONFIGURATION,),
            ),
            *_converted_crds(converted()),
            RbacRule(_KUEUE, (DEFAULT_QUEUES.plural,), ("list", "watch"), (DEFAULT_QUEUE,)),
            RbacRule(LEVELS.group, (LEVELS.plural,), ("list", "watch")),  # to warn of unknown levels
            *_getting(LOOKED_UP),  # owners of pods and jobs, and priority classes
        ),
        namespaced=(RbacRule("", ("secrets",), ("get", "update"), (SECRET_NAME, AUTHORITY_NAME)),),
    ),
}


AUTHORIZATION = (
    RbacRule("authentication.k8s.io", ("tokenreviews",), ("create",)),
    RbacRule("authorization.k8s.io", ("subjectaccessreviews",), ("create",)),
)
"""The rules of a replica that authorizes clients of its metrics, or of the dashboard."""
DASHBOARD_RULES = (
    *_watching((*AdmissionController.kinds, *SchedulerController.kinds)),
    *AUTHORIZATION,
)
"""The rules of the dashboard: it lists and watches, and asks who its users are and what they may see."""
DASHBOARD_USER_RULES = (
    {"nonResourceURLs": [DASHBOARD_PATH], "verbs": ["get"]},
    {"apiGroups": [""], "resources": ["nodes"], "verbs": ["list"]},
)
"""The rules of a user of the dashboard, besides those for the namespaces that the user may see."""
METRICS_READER_RULE = {"nonResourceURLs": [METRICS_PATH], "verbs": ["get"]}
"""The rule of a client that reads metrics, in a ClusterRole."""


def kind_defaults_rule(name: str) -> RbacRule:
    """The rule of the grouper for the ConfigMap with defaults by kind, in the namespace of that ConfigMap."""
    return RbacRule(CONFIG_MAPS.group, (CONFIG_MAPS.plural,), ("list", "watch"), (name,))


def rules(granted: Sequence[RbacRule]) -> list[dict[str, Any]]:
    """The rules of a Role or ClusterRole."""
    return [one.rule() for one in granted]
