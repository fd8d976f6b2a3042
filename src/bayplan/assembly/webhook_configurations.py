"""The webhook configurations: which writes are sent to the webhooks, and what a failure means.

| webhook | operations | on failure | timeout |
|---|---|---|---|
| validating, `kueue.x-k8s.io` and jobs that name a queue | create, update | rejected | 5 s |
| validating, `scheduling.run.ai` and `kai.scheduler` | create, update | accepted | 1 s |
| mutating, jobs and pods that name a queue | create, some updates | rejected | 5 s |
| mutating, `kueue.x-k8s.io` (defaults) | create | accepted | 1 s |
| mutating, `default-queue.*`: jobs and pods that name no queue, pods of segments | create | accepted | 1 s |

Webhooks that never block have their own path, where an internal error is answered with `allowed`, too:
`failurePolicy: Ignore` alone covers only a server that does not answer.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from bayplan.assembly.install_settings import new_cluster_object
from bayplan.assembly.webhooks import CONFIGURATION, SERVICE, hook_name, registry
from bayplan.dialects.jobs.kinds import SCHEDULED, TABLE
from bayplan.dialects.jobs.serving_jobs import SET_NAME
from bayplan.dialects.kai.api.names import SEGMENT_SIZE
from bayplan.dialects.kueue.decode.scheduled_jobs import SCHEDULER
from bayplan.dialects.kueue.fields.defaulting import DEFAULTED_CONTAINERS
from bayplan.dialects.kueue.fields.workload_rules import RESERVED
from bayplan.dialects.kueue.names.annotations import QUEUE, SUSPENDED_BY
from bayplan.dialects.kueue.webhooks.validate import FAMILY, QUEUED, STATUS, STATUS_FIELDS
from bayplan.dialects.registry import REVIEWED_AS
from bayplan.runtime.webhooks.admission_review import Handlers
from bayplan.runtime.webhooks.server import OPTIONAL

Object = dict[str, Any]


@dataclass(frozen=True, slots=True)
class FailureMode:
    """What happens to a write if the webhook fails or times out."""

    failure: str
    seconds: int
    path: str = ""  # added to the path of the webhook


BLOCKING = FailureMode("Fail", 5)
"""For objects that would bypass quota without an answer: jobs that name a queue, and our own kinds."""
NEVER_BLOCKING = FailureMode("Ignore", 1, OPTIONAL)
"""For objects that work without an answer, and for jobs and pods that do not use Bayplan."""

# Only writes of objects that name a queue, or bayplan as their scheduler, are sent to the webhooks. Selectors
# of labels cost the API server next to nothing, a condition in CEL a copy of the object.
_QUEUED = (
    "[object, oldObject].exists(one, one != null && has(one.metadata.labels) && "
    f"'{QUEUE}' in one.metadata.labels)"
)
_SUSPENDED_BY_OWNER = (  # a pod whose owner names a queue
    f"object != null && has(object.metadata.annotations) && '{SUSPENDED_BY}' in object.metadata.annotations"
)
_UNQUEUED = f"!(has(object.metadata.labels) && '{QUEUE}' in object.metadata.labels)"
_POD_OWNERS = json.dumps(sorted(f"{one.api_version}/{one.kind}" for one in TABLE if one.creates_pods))
_BY_KUBERNETES = (
    "(request.userInfo.username == 'system:kube-controller-manager' || "
    "request.userInfo.username.startsWith('system:serviceaccount:kube-system:'))"
)
_NOT_CREATED_BY_CONTROLLER = (
    f"!({_BY_KUBERNETES} && has(object.metadata.ownerReferences) && "
    "object.metadata.ownerReferences.exists(one, has(one.controller) && one.controller && "
    f"one.apiVersion + '/' + one.kind in {_POD_OWNERS}))"
)
"""Not created by a controller of Kubernetes: the webhook is not called for every pod of a cluster. Owner
references by other clients may be forged; the webhook checks whether these owners exist."""
_OF_SEGMENT = (
    f"has(object.metadata.annotations) && '{SEGMENT_SIZE}' in object.metadata.annotations || "
    f"has(object.metadata.labels) && '{SET_NAME}' in object.metadata.labels"
)
_FROM_OTHERS = "!request.userInfo.username.startsWith('system:serviceaccount:NAMESPACE:')"
_CHECKED_CHANGES = " || ".join(
    (
        "!has(oldObject.status)",
        "!has(object.status)",
        *(
            f"has(object.status.{name}) != has(oldObject.status.{name})"
            f" || has(object.status.{name}) && object.status.{name} != oldObject.status.{name}"
            for name in STATUS_FIELDS
        ),
        " != ".join(
            f"(has({one}.status.conditions) && {one}.status.conditions"
            f".exists(c, c.type == '{RESERVED}' && c.status == 'True'))"
            for one in ("object", "oldObject")
        ),
    )
)
"""Something in the status of a Workload changes that the webhook checks; the schema checks conditions."""
CONDITIONS = {
    **{
        (kind.group, kind.plural): f"{_QUEUED} || {kind.ranks.names.replace('SCHEDULER', SCHEDULER)}"
        for kind in SCHEDULED
        if kind.ranks is not None
    },
    STATUS: f"{_FROM_OTHERS} && ({_CHECKED_CHANGES})",
}
_HAS_PORTS = " || ".join(
    f"has(one.template.spec.{name}) && one.template.spec.{name}.exists(c, has(c.ports))"
    for name in DEFAULTED_CONTAINERS
)
MUTATING_CONDITIONS = {
    ("", "pods"): f"{_QUEUED} || {_SUSPENDED_BY_OWNER}",
    (FAMILY, "workloads"): (
        "has(object.spec.podSets) && object.spec.podSets.exists(one, "
        f"has(one.template) && has(one.template.spec) && ({_HAS_PORTS}))"
    ),
}
"""The schema of Workloads has all other defaults. A pod that names no queue is gated if its owner names one;
what its annotations ask for was validated with the owner."""
_NAMES_QUEUE: Object = {"matchExpressions": [{"key": QUEUE, "operator": "Exists"}]}
_NAMES_NO_QUEUE: Object = {"matchExpressions": [{"key": QUEUE, "operator": "DoesNotExist"}]}


def configurations(
    namespace: str, failure: str = BLOCKING.failure, excluded: Sequence[str] = ()
) -> Iterable[Object]:
    """The webhook configurations, with one webhook for each resource.

    `failure` is the policy of those that block by default; no webhook sees the `excluded` namespaces.
    """
    handlers_by_key = registry().admission
    for kind, path, attribute in (
        ("MutatingWebhookConfiguration", "/mutate", "mutate"),
        ("ValidatingWebhookConfiguration", "/validate", "validate"),
    ):
        operations_by_key: dict[tuple[str, str], list[str]] = {}
        for (group, resource, operation), handlers in handlers_by_key.items():
            if getattr(handlers, attribute):
                operations_by_key.setdefault((group, resource), []).append(operation)
        hooks = [
            _hook(
                key,
                operations,
                path,
                _failure_mode(handlers_by_key[*key, operations[0]], attribute),
                namespace,
                CONDITIONS | (MUTATING_CONDITIONS if attribute == "mutate" else {}),
            )
            for key, operations in sorted(operations_by_key.items())
        ]
        if attribute == "mutate":
            hooks += [_default_queue_hook(key, path, namespace) for key in sorted(QUEUED)]
        for hook in hooks:
            hook["namespaceSelector"]["matchExpressions"][0]["values"] += excluded
            if hook["failurePolicy"] == BLOCKING.failure:
                hook["failurePolicy"] = failure
        if hooks:
            yield new_cluster_object("admissionregistration.k8s.io/v1", kind, CONFIGURATION, webhooks=hooks)


def _failure_mode(handlers: Handlers, attribute: str) -> FailureMode:
    """A webhook blocks writes unless none of its functions is one that a write depends on."""
    never = handlers.fail_open or handlers.optional.issuperset(getattr(handlers, attribute))
    return NEVER_BLOCKING if never else BLOCKING


def _hook(
    key: tuple[str, str],
    operations: list[str],
    path: str,
    failure_mode: FailureMode,
    namespace: str,
    conditions: Mapping[tuple[str, str], str] = CONDITIONS,
) -> Object:
    group, resource = key
    excluded = {"key": "kubernetes.io/metadata.name", "operator": "NotIn"}
    hook: Object = {
        "name": hook_name(group, resource),
        "admissionReviewVersions": ["v1"],
        "sideEffects": "None",
        "timeoutSeconds": failure_mode.seconds,
        "failurePolicy": failure_mode.failure,
        "matchPolicy": "Equivalent",
        "rules": [
            {
                "apiGroups": [group],
                "apiVersions": [REVIEWED_AS.get(group, "*")],
                "operations": operations,
                "resources": [resource],
            }
        ],
        "namespaceSelector": {"matchExpressions": [{**excluded, "values": ["kube-system", namespace]}]},
        "clientConfig": {
            "service": {"name": SERVICE, "namespace": namespace, "path": path + failure_mode.path}
        },
    }
    if condition := conditions.get(key):
        expression = condition.replace("NAMESPACE", namespace)
        hook["matchConditions"] = [{"name": "names-bayplan", "expression": expression}]
    elif key in QUEUED:  # before or after the write
        hook["objectSelector"] = _NAMES_QUEUE
    return hook


def _default_queue_hook(key: tuple[str, str], path: str, namespace: str) -> Object:
    """The webhook for jobs that name no queue. It never blocks: such jobs need not use Bayplan.

    That for pods also labels pods of segments with the index of their segment; they start without it, too.
    One webhook does both, since the API server copies the pod for the condition of each. Another webhook may
    set the pod index only afterwards (that of LeaderWorkerSet), so it is reinvoked.
    """
    hook = _hook(key, ["CREATE"], path, NEVER_BLOCKING, namespace)
    hook["name"] = f"default-queue.{hook_name(*key)}"
    hook.pop("matchConditions", None)
    if key != ("", "pods"):
        return hook | {"objectSelector": _NAMES_NO_QUEUE}
    hook.pop("objectSelector")
    expression = f"{_OF_SEGMENT} || {_UNQUEUED} && {_NOT_CREATED_BY_CONTROLLER}"
    condition = {"name": "names-no-queue-or-is-of-a-segment", "expression": expression}
    return hook | {"matchConditions": [condition], "reinvocationPolicy": "IfNeeded"}
