"""What the API server asks our webhooks, and whether it waits for the answer.

| webhook | asked about | on a failure | waits at most |
|---|---|---|---|
| validating, `kueue.x-k8s.io` and jobs that name a queue | create, update | refused | 5 s |
| validating, `scheduling.run.ai` and `kai.scheduler` | create, update | accepted | 1 s |
| mutating, jobs and pods that name a queue | create, some updates | refused | 5 s |
| mutating, `kueue.x-k8s.io` (defaults) | create | accepted | 1 s |
| mutating, `default-queue.*`: jobs and pods that name no queue | create | accepted | 1 s |
| mutating, `segments.pods`: pods of segments | create | accepted | 1 s |

Those that never block are asked under a path of their own, at which an internal error is answered with
`allowed` too: `failurePolicy: Ignore` alone covers only a server that does not answer.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from bayplan.assembly.install_settings import made_clusterwide
from bayplan.assembly.webhooks import CONFIGURATION, REVIEWED_AS, SERVICE, hook_name, registry
from bayplan.dialects.kai.api.names import SEGMENT_SIZE
from bayplan.dialects.kai.grouper.serving import SET_NAME
from bayplan.dialects.kueue.decode.scheduled_jobs import SCHEDULER
from bayplan.dialects.kueue.names.annotations import QUEUE, SUSPENDED_BY
from bayplan.dialects.kueue.webhooks.validate import QUEUED, STATUS
from bayplan.runtime.webhooks.server import OPTIONAL

Object = dict[str, Any]


@dataclass(frozen=True, slots=True)
class FailureMode:
    """What becomes of a write if our webhook fails or does not answer in time."""

    failure: str
    seconds: int
    path: str = ""  # added to the path of the webhook


BLOCKING = FailureMode("Fail", 5)
"""What would be admitted past its quota without an answer: jobs that name a queue, and our own objects."""
NEVER_BLOCKING = FailureMode("Ignore", 1, OPTIONAL)
"""What works without an answer, or is not ours: all other users' jobs and pods."""

# A write that the API server sends us: only what names a queue, or us as its scheduler.
_QUEUED = (
    "[object, oldObject].exists(one, one != null && has(one.metadata.labels) && "
    f"'{QUEUE}' in one.metadata.labels)"
)
_HELD_BACK = (  # a pod whose owner names a queue
    f"object != null && has(object.metadata.annotations) && '{SUSPENDED_BY}' in object.metadata.annotations"
)
_UNQUEUED = f"!(has(object.metadata.labels) && '{QUEUE}' in object.metadata.labels)"
_MAKERS = json.dumps(
    ["batch/v1/Job", *(f"apps/v1/{kind}" for kind in ("DaemonSet", "ReplicaSet", "StatefulSet"))]
)
_BY_KUBERNETES = (
    "(request.userInfo.username == 'system:kube-controller-manager' || "
    "request.userInfo.username.startsWith('system:serviceaccount:kube-system:'))"
)
_UNOWNED = (
    f"!({_BY_KUBERNETES} && has(object.metadata.ownerReferences) && "
    "object.metadata.ownerReferences.exists(one, has(one.controller) && one.controller && "
    f"one.apiVersion + '/' + one.kind in {_MAKERS}))"
)
"""Not made by a controller of Kubernetes for a job: we need not be asked about each pod of a cluster. The
references of all others may be invented; whether their owners exist is for the webhook to find out."""
_JOB = f"object.spec.template.spec.schedulerName == '{SCHEDULER}'"
_JOB_SET = (
    "object.spec.replicatedJobs.exists(job, has(job.template.spec.template.spec.schedulerName) && "
    f"job.template.spec.template.spec.schedulerName == '{SCHEDULER}')"
)
CONDITIONS = {
    **dict.fromkeys(QUEUED, _QUEUED),
    ("", "pods"): f"{_QUEUED} || {_HELD_BACK}",
    ("batch", "jobs"): f"{_QUEUED} || {_JOB}",
    ("jobset.x-k8s.io", "jobsets"): f"{_QUEUED} || {_JOB_SET}",
    STATUS: "!request.userInfo.username.startsWith('system:serviceaccount:NAMESPACE:')",
}


def configurations(namespace: str) -> Iterable[Object]:
    """The webhook configurations, one webhook for each resource that is looked at."""
    looked_at = registry().admission
    for kind, path, attribute in (
        ("MutatingWebhookConfiguration", "/mutate", "mutate"),
        ("ValidatingWebhookConfiguration", "/validate", "validate"),
    ):
        asked: dict[tuple[str, str], list[str]] = {}
        for (group, resource, operation), handlers in looked_at.items():
            if getattr(handlers, attribute):
                asked.setdefault((group, resource), []).append(operation)
        hooks = [
            _hook(
                key,
                operations,
                path,
                NEVER_BLOCKING if looked_at[*key, operations[0]].fail_open else BLOCKING,
                namespace,
            )
            for key, operations in sorted(asked.items())
        ]
        if attribute == "mutate":
            hooks += [_default_queue_hook(key, path, namespace) for key in sorted(QUEUED)]
            hooks.append(_segment_hook(path, namespace))
        if hooks:
            yield made_clusterwide("admissionregistration.k8s.io/v1", kind, CONFIGURATION, webhooks=hooks)


def _hook(
    key: tuple[str, str], operations: list[str], path: str, manner: FailureMode, namespace: str
) -> Object:
    group, resource = key
    spared = {"key": "kubernetes.io/metadata.name", "operator": "NotIn"}
    hook: Object = {
        "name": hook_name(group, resource),
        "admissionReviewVersions": ["v1"],
        "sideEffects": "None",
        "timeoutSeconds": manner.seconds,
        "failurePolicy": manner.failure,
        "matchPolicy": "Equivalent",
        "rules": [
            {
                "apiGroups": [group],
                "apiVersions": [REVIEWED_AS.get(group, "*")],
                "operations": operations,
                "resources": [resource],
            }
        ],
        "namespaceSelector": {"matchExpressions": [{**spared, "values": ["kube-system", namespace]}]},
        "clientConfig": {"service": {"name": SERVICE, "namespace": namespace, "path": path + manner.path}},
    }
    if condition := CONDITIONS.get(key):
        expression = condition.replace("NAMESPACE", namespace)
        hook["matchConditions"] = [{"name": "names-bayplan", "expression": expression}]
    return hook


def _default_queue_hook(key: tuple[str, str], path: str, namespace: str) -> Object:
    """Asked about all jobs that name no queue, so no user has to wait for us if we are not there."""
    expression = f"{_UNQUEUED} && {_UNOWNED}" if key == ("", "pods") else _UNQUEUED
    return _hook(key, ["CREATE"], path, NEVER_BLOCKING, namespace) | {
        "name": f"default-queue.{hook_name(*key)}",
        "matchConditions": [{"name": "names-no-queue", "expression": expression}],
    }


def _segment_hook(path: str, namespace: str) -> Object:
    """Asked about pods of segments, which are told the number of theirs; they start without it too.

    Others may number them only after we were asked (those of a LeaderWorkerSet), so we are asked again.
    """
    sized = f"has(object.metadata.annotations) && '{SEGMENT_SIZE}' in object.metadata.annotations"
    of_set = f"has(object.metadata.labels) && '{SET_NAME}' in object.metadata.labels"
    expression = f"{sized} || {of_set}"
    return _hook(("", "pods"), ["CREATE"], path, NEVER_BLOCKING, namespace) | {
        "name": f"segments.{hook_name('', 'pods')}",
        "matchConditions": [{"name": "is-of-a-segment", "expression": expression}],
        "reinvocationPolicy": "IfNeeded",
    }
