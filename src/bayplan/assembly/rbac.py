"""What each role of Bayplan may do in a cluster: one table, from which all RBAC objects are made."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from bayplan.assembly.crds import converted
from bayplan.assembly.webhooks import AUTHORITY_NAME, CONFIGURATION, SECRET_NAME
from bayplan.dialects.api import Kind
from bayplan.dialects.jobs.kinds import KINDS
from bayplan.dialects.kai.api.names import POD_GROUP as KAI_GROUP
from bayplan.dialects.kube.gang_api.gates import GROUP as GANGS
from bayplan.dialects.kueue.names.annotations import DEFAULT_QUEUE
from bayplan.dialects.kueue.provisioning.requests import REQUESTS, TEMPLATES
from bayplan.runtime.controllers.admission.controller import AdmissionController
from bayplan.runtime.controllers.jobs.cache import FLAGGED, WATCHED
from bayplan.runtime.controllers.pod_grouper.controller import PodGrouperController
from bayplan.runtime.controllers.pod_grouper.defaults import CONFIG_MAPS
from bayplan.runtime.controllers.scheduler.controller import SchedulerController
from bayplan.runtime.webhooks.default_queues import LEVELS
from bayplan.runtime.webhooks.default_queues import WATCHED as DEFAULT_QUEUES
from bayplan.runtime.webhooks.live_objects import LOOKED_UP
from bayplan.runtime.webhooks.metrics_server import PATH as METRICS_PATH

LEASE_NAME = "bayplan"


@dataclass(frozen=True, slots=True)
class RbacRule:
    """Verbs on resources of one group; with names, on these objects only."""

    group: str
    resources: tuple[str, ...]
    verbs: tuple[str, ...]
    names: tuple[str, ...] = ()

    def rule(self) -> dict[str, Any]:
        """As RBAC has it."""
        found: dict[str, Any] = {"apiGroups": [self.group], "resources": list(self.resources)}
        if self.names:
            found["resourceNames"] = list(self.names)
        return {**found, "verbs": list(self.verbs)}


@dataclass(frozen=True, slots=True)
class RbacRules:
    """What a role may do everywhere, and what only in the namespace that Bayplan runs in."""

    everywhere: tuple[RbacRule, ...]
    at_home: tuple[RbacRule, ...] = ()


def _watching(kinds: Iterable[Kind]) -> tuple[RbacRule, ...]:
    """List and watch, exactly what the loop does with its kinds."""
    groups: dict[str, list[str]] = {}
    for kind in kinds:
        groups.setdefault(kind.group, []).append(kind.plural)
    return tuple(
        RbacRule(group, tuple(sorted(set(groups[group]))), ("list", "watch")) for group in sorted(groups)
    )


def _looking_up(kinds: Iterable[Kind]) -> tuple[RbacRule, ...]:
    """Get, for single objects that are named by others."""
    groups: dict[str, list[str]] = {}
    for kind in kinds:
        groups.setdefault(kind.group, []).append(kind.plural)
    return tuple(RbacRule(group, tuple(sorted(set(groups[group]))), ("get",)) for group in sorted(groups))


def _trusted_definitions(names: tuple[str, ...]) -> tuple[RbacRule, ...]:
    resources = ("customresourcedefinitions",)
    return (RbacRule("apiextensions.k8s.io", resources, ("get", "update"), names),) if names else ()


def _starting() -> Iterator[RbacRule]:
    """What jobs that are held back by a flag need to be started and stopped, and to own a Workload."""
    for group in sorted({KINDS[name].group for name in FLAGGED}):
        names = tuple(sorted(KINDS[name].plural for name in FLAGGED if KINDS[name].group == group))
        yield RbacRule(group, names, ("patch",))
        yield RbacRule(group, tuple(f"{name}/finalizers" for name in names), ("update",))
    yield RbacRule("batch", ("jobs/status",), ("patch",))  # a job that was stopped begins anew


_CREATE_EVENTS = RbacRule("", ("events",), ("create",))
_TOLD = ("admissionchecks", "clusterqueues", "cohorts", "localqueues", "workloads")  # have a status of ours
_USED = ("admissionchecks", "clusterqueues", "resourceflavors", "topologies")
_KUEUE = "kueue.x-k8s.io"

EVERYBODY = RbacRules(
    everywhere=(),
    at_home=(
        RbacRule("coordination.k8s.io", ("leases",), ("create",)),  # RBAC cannot limit a create to a name
        RbacRule("coordination.k8s.io", ("leases",), ("get", "update"), (LEASE_NAME,)),
    ),
)

ROLES: dict[str, RbacRules] = {
    # Gives gangs quota and places, and keeps the statuses that show it.
    "admission": RbacRules(
        everywhere=(
            *_watching((*AdmissionController.kinds, *WATCHED, TEMPLATES, REQUESTS)),
            _CREATE_EVENTS,
            RbacRule(TEMPLATES.group, (TEMPLATES.plural,), ("create", "delete")),  # of pods to make nodes for
            RbacRule(REQUESTS.group, (REQUESTS.plural,), ("create", "delete")),
            RbacRule("", ("pods",), ("delete", "patch")),  # ungate; send away, where they are their own job
            RbacRule("", ("pods/status",), ("patch",)),  # tell them why
            *_starting(),
            RbacRule(_KUEUE, ("workloads",), ("create", "delete", "patch")),  # of jobs; deactivate
            RbacRule(_KUEUE, _USED, ("patch",)),  # finalizers, while in use
            RbacRule(_KUEUE, tuple(f"{name}/status" for name in _TOLD), ("update",)),
        ),
    ),
    # Places gangs and binds their pods.
    "scheduler": RbacRules(
        everywhere=(
            *_watching(SchedulerController.kinds),
            RbacRule("", ("pods/binding",), ("create",)),
            RbacRule("", ("pods/status",), ("patch",)),  # tell them why they wait, and where room is made
            RbacRule("", ("pods",), ("delete",)),  # those that have to make room
            RbacRule(
                "", ("persistentvolumeclaims", "persistentvolumes"), ("patch",)
            ),  # what waits for a node
            RbacRule(GANGS, ("podgroups/status",), ("patch",)),
            RbacRule(KAI_GROUP.group, ("podgroups/status", "queues/status"), ("patch",)),
            _CREATE_EVENTS,
        ),
    ),
    # Puts pods into groups.
    "grouper": RbacRules(
        everywhere=(
            *_watching(PodGrouperController.kinds),
            RbacRule(KAI_GROUP.group, (KAI_GROUP.plural,), ("create", "patch")),
            RbacRule("", ("pods",), ("patch",)),  # join them
            _CREATE_EVENTS,
        ),
    ),
    # Answers the API server's questions, and has it trust the certificate that they are answered with.
    "webhooks": RbacRules(
        everywhere=(
            RbacRule(
                "admissionregistration.k8s.io",
                ("mutatingwebhookconfigurations", "validatingwebhookconfigurations"),
                ("get", "update"),
                (CONFIGURATION,),
            ),
            *_trusted_definitions(converted()),
            RbacRule(_KUEUE, (DEFAULT_QUEUES.plural,), ("list", "watch"), (DEFAULT_QUEUE,)),
            RbacRule(LEVELS.group, (LEVELS.plural,), ("list", "watch")),  # to warn of levels that none has
            *_looking_up(LOOKED_UP),  # owners that pods and jobs name, and priority classes
        ),
        at_home=(RbacRule("", ("secrets",), ("get", "update"), (SECRET_NAME, AUTHORITY_NAME)),),
    ),
}


ASKING_WHO_MAY = (
    RbacRule("authentication.k8s.io", ("tokenreviews",), ("create",)),
    RbacRule("authorization.k8s.io", ("subjectaccessreviews",), ("create",)),
)
"""What a replica needs that serves metrics only to those who may read them."""
READING_METRICS = {"nonResourceURLs": [METRICS_PATH], "verbs": ["get"]}
"""What those need who read them, as a rule of a ClusterRole."""


def reading_defaults(name: str) -> RbacRule:
    """What the grouper may do in the namespace of the ConfigMap that has its defaults by kind."""
    return RbacRule(CONFIG_MAPS.group, (CONFIG_MAPS.plural,), ("list", "watch"), (name,))


def rules(rights: Sequence[RbacRule]) -> list[dict[str, Any]]:
    """The rules of a Role or ClusterRole."""
    return [right.rule() for right in rights]
