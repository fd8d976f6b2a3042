"""ValidatingAdmissionPolicies: fields of pods that users may not change, and limits of our own account.

Webhooks are called only for objects that name a queue; policies apply to all. That for pods protects the
gates, labels and annotations that admission relies on from changes by users. All limit our account to what
our roles write, so that a stolen token cannot change the workloads of other users, nor run anything.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from bayplan.assembly.account_fields import HOLDING_POD, JOB_STATUS, JOBS, NODE, POD, POD_STATUS, VARIABLES
from bayplan.dialects.jobs.change_rules import every
from bayplan.dialects.jobs.kinds import KINDS, SUSPENDED
from bayplan.dialects.kube.encode.move_marks import PLAN, UNTIL
from bayplan.dialects.kueue.fields.job_rules import SCHEDULING_GATE
from bayplan.dialects.kueue.names.annotations import (
    CLUSTER_QUEUE,
    ELASTIC_GATE,
    GROUP_INDEX,
    INDEX_FROM,
    LOCAL_QUEUE,
    MANAGED,
    OFFSET,
    POD_GROUP,
    POD_GROUP_COUNT,
    POD_SET,
    PREBUILT,
    ROLE_HASH,
    SERVING,
    SLICE_NAME,
    SUSPENDED_BY,
    TOPOLOGY_GATE,
    WORKLOAD_NAME,
)

Object = dict[str, Any]

API = "admissionregistration.k8s.io/v1"
PODS, OWN_JOBS, OWN_MOVES = "bayplan-pods", "bayplan-account-jobs", "bayplan-account-moves"
ADMINISTRATORS = "system:masters"
"""A group that is exempt from the policy for users, to repair a cluster by hand."""

PART = "(has(request.subResource) ? request.subResource : '')"
"""CEL: the subresource that is written; empty for the object itself."""
GATES = (SCHEDULING_GATE, TOPOLOGY_GATE, ELASTIC_GATE)
LABELS = (MANAGED, POD_SET, LOCAL_QUEUE, CLUSTER_QUEUE, POD_GROUP, PREBUILT, GROUP_INDEX)
ANNOTATIONS = (
    *(WORKLOAD_NAME, SLICE_NAME, ROLE_HASH, SUSPENDED_BY, SERVING),
    *(POD_GROUP, POD_GROUP_COUNT, PREBUILT, OFFSET, INDEX_FROM),
)
"""Keys that admission reads from existing pods. Users may set them in a new pod; webhooks check that."""


def account_name(namespace: str, account: str) -> str:
    """The user name of a service account."""
    return f"system:serviceaccount:{namespace}:{account}"


def policies(account: str, trusted: str, admission: bool) -> list[Object]:
    """Each policy with its binding; `account` is our user name, `trusted` the exempt groups as a CEL list.

    With the role `admission`, users may not change what it relies on.
    """
    ours = f"request.userInfo.username == '{account}'"
    others = f"!({ours})"
    exempt = f"{PART} != '' || {ours} || request.userInfo.groups.exists(one, one in {trusted})"
    return [
        *_policy(
            PODS,
            [_rule("", "v1", ["pods", "pods/status", "pods/ephemeralcontainers", "pods/resize"])],
            {others: _own_pods()} | ({exempt: _protected()} if admission else {}),
            frequent=True,
        ),
        *_policy(OWN_JOBS, [*_job_resources()], {others: _own_jobs()}),
        *_policy(
            OWN_MOVES,
            [_rule("", "v1", ["nodes"]), _rule("", "v1", ["pods"], "CREATE")],
            {others: _moves()},
        ),
    ]


def _own_pods() -> list[Object]:
    """The checks for what our account writes to pods."""
    return [
        _check(
            f"{PART} != '' || ({POD})",
            "bayplan may change only schedulingGates, nodeSelector, tolerations, labels and "
            "annotations of a pod, and remove its own finalizer",
        ),
        _check(
            f"{PART} != 'status' || ({POD_STATUS})",
            "bayplan may change only conditions and nominatedNodeName of a pod's status, and have "
            "the pod fail",
        ),
        _check(
            f"{PART} in ['', 'status']",
            "bayplan may change a pod and its status, but none of its other subresources",
        ),
    ]


def _own_jobs() -> list[Object]:
    """The checks for what our account writes to jobs."""
    return [
        *(
            _check(
                f"{PART} != '' || request.resource.resource != '{KINDS[name].plural}' || ({JOBS[name]})",
                f"bayplan may change only the suspend flag of a {name} and where its pods may run",
            )
            for name in sorted(SUSPENDED)
        ),
        _check(
            f"{PART} != 'status' || ({JOB_STATUS})",
            "bayplan may change only startTime in the status of a Job, so that it can start again",
        ),
    ]


def _moves() -> list[Object]:
    """The checks for what our account writes to move gangs."""
    return [
        _check(
            f"request.resource.resource != 'nodes' || ({NODE})",
            f"bayplan may change only the taint {PLAN} of a node and the annotation {UNTIL}",
        ),
        _check(
            f"request.resource.resource != 'pods' || ({HOLDING_POD})",
            "bayplan may create only pods that hold a place and run nothing",
        ),
    ]


def _job_resources() -> Iterable[Object]:
    """The resources of jobs that our account writes."""
    for name in sorted(SUSPENDED):
        yield _rule(KINDS[name].group, KINDS[name].version, [KINDS[name].plural])
    for kind in KINDS.values():
        if kind.clears_start_time:
            yield _rule(kind.group, kind.version, [f"{kind.plural}/status"])


def _protected() -> list[Object]:
    """The checks for fields of pods that users may not change."""
    gates = (
        "!has(oldObject.spec.schedulingGates) || oldObject.spec.schedulingGates.all(gate, "
        f"!(gate.name in {every(GATES)}) || (has(object.spec.schedulingGates) && "
        "object.spec.schedulingGates.exists(one, one.name == gate.name)))"
    )
    return [
        _check(
            gates,
            "a gate kueue.x-k8s.io/* of a pod can only be removed by bayplan, when the pod's Workload is "
            "admitted; to give up the pod, delete it",
        ),
        *(
            _check(
                f"{every(keys)}.all(key, {_value('object', part)} == {_value('oldObject', part)})",
                f"these {part} of a pod cannot be changed once it exists: {', '.join(keys)}",
            )
            for part, keys in (("labels", LABELS), ("annotations", ANNOTATIONS))
        ),
    ]


def _value(obj: str, part: str) -> str:
    """CEL for the value of `key` among labels or annotations, in a list; an empty list if there is none."""
    found = f"{obj}.metadata.{part}"
    return f"(has({found}) && key in {found} ? [{found}[key]] : [])"


def _policy(
    name: str, rules: Sequence[Object], checks: Mapping[str, Sequence[Object]], *, frequent: bool = False
) -> Iterable[Object]:
    """A policy and its binding. Checks do not concern the requests for which their key holds, in CEL.

    The API server copies the old and the new object for the validations of a policy, again for their
    messages, and again for annotations of the audit log, which takes longer than to evaluate them; for match
    conditions it copies them once. So with `frequent` requests the condition is that a check fails: only
    requests that are refused are validated, to say which check it was.
    """
    validations = [
        {**one, "expression": f"{exempt} || ({one['expression']})"}
        for exempt, concerned in checks.items()
        for one in concerned
    ]
    spec: Object = {
        "failurePolicy": "Fail",
        "matchConstraints": {"matchPolicy": "Equivalent", "resourceRules": list(rules)},
        "validations": validations,
    }
    if frequent:
        spec["matchConditions"] = [{"name": "a-check-fails", "expression": _fails(checks)}]
    if any("variables." in one["expression"] for one in validations):
        spec["variables"] = [{"name": key, "expression": text} for key, text in VARIABLES.items()]
    yield {"apiVersion": API, "kind": "ValidatingAdmissionPolicy", "metadata": {"name": name}, "spec": spec}
    bound = {"policyName": name, "validationActions": ["Deny"]}
    kind = "ValidatingAdmissionPolicyBinding"
    yield {"apiVersion": API, "kind": kind, "metadata": {"name": name}, "spec": bound}


def _fails(checks: Mapping[str, Sequence[Object]]) -> str:
    """CEL: one of the checks does not hold. Match conditions know no variables."""
    passed = (
        f"({exempt} || {' && '.join('(' + one['expression'] + ')' for one in concerned)})"
        for exempt, concerned in checks.items()
    )
    condition = f"!({' && '.join(passed)})"
    for key, text in VARIABLES.items():
        condition = condition.replace(f"variables.{key}", text)
    return condition


def _rule(group: str, version: str, resources: list[str], operation: str = "UPDATE") -> Object:
    return {
        "apiGroups": [group],
        "apiVersions": [version],
        "operations": [operation],
        "resources": resources,
    }


def _check(expression: str, message: str) -> Object:
    return {"expression": expression, "message": message, "reason": "Forbidden"}
