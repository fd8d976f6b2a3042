"""The admission check `kueue.x-k8s.io/provisioning-request`: its requests and the resulting check states."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from bayplan.dialects.api import Kind
from bayplan.dialects.kube.fields.times import timestamp
from bayplan.dialects.kueue.fields.queues import PROVISIONING
from bayplan.dialects.kueue.names import api_kinds
from bayplan.dialects.kueue.provisioning.requests import (
    OLDER_REQUESTS,
    REQUESTS,
    TEMPLATES,
    Config,
    NewProvisioningRequest,
    attempt_of,
    bundles,
    new_request,
    parameters,
    template_name,
    template_names,
)
from bayplan.dialects.kueue.status.conditions import (
    ADMITTED,
    EVICTED,
    FINISHED,
    PENDING,
    QUOTA_RESERVED,
    READY,
    REJECTED,
    RETRY,
    Object,
    is_true,
)
from bayplan.dialects.kueue.status.events import NORMAL, WARNING, WorkloadEvent
from bayplan.dialects.kueue.status.rejection_messages import for_condition, for_event

KINDS = (
    api_kinds.WORKLOADS,
    api_kinds.CHECKS,
    api_kinds.FLAVORS,
    api_kinds.CONFIGS,
    TEMPLATES,
    REQUESTS,
    OLDER_REQUESTS,
)

INACTIVE = "the check is not active"
NOT_NEEDED = "the provisioning request is not needed"
NOT_SERVED = (
    "ProvisioningRequest (autoscaling.x-k8s.io) is not served by this cluster; "
    "install its CustomResourceDefinition, or remove the check from the queue"
)
CONSUME = "autoscaling.x-k8s.io/consume-provisioning-request"
CLASS = "autoscaling.x-k8s.io/provisioning-class-name"

ACCEPTED, PROVISIONED, FAILED = "Accepted", "Provisioned", "Failed"
EXPIRED, REVOKED = "BookingExpired", "CapacityRevoked"


@dataclass(frozen=True, slots=True)
class ProvisioningContext:
    """What requests depend on besides the Workload: objects by name."""

    checks: Mapping[str, Object]  # provisioning AdmissionChecks
    configs: Mapping[str, Object]
    flavors: Mapping[str, Object]
    kind: Kind | None = None  # the served version of ProvisioningRequest; None if not served
    errors: Mapping[str, str] = field(default_factory=dict)  # errors of failed requests, by check
    may_create: bool = True


@dataclass(frozen=True, slots=True)
class ProvisioningStep:
    """The next writes for one Workload."""

    status: Object | None = None  # to be written
    obsolete: tuple[Object, ...] = ()  # requests and templates to delete
    to_create: tuple[NewProvisioningRequest, ...] = ()  # to create


def is_provisioning_check(check: Object) -> bool:
    """Whether an AdmissionCheck is a provisioning check."""
    return bool((check.get("spec") or {}).get("controllerName") == PROVISIONING)


def owner_of(obj: Object) -> tuple[str, str] | None:
    """Namespace and name of the Workload that owns a request or template."""
    meta = obj.get("metadata") or {}
    for owner in meta.get("ownerReferences") or ():
        if owner.get("kind") == "Workload":
            return meta.get("namespace", "default"), str(owner.get("name", ""))
    return None


def next_step(
    workload: Object,
    requests: Iterable[Object],
    templates: Iterable[Object],
    context: ProvisioningContext,
    now: float,
) -> ProvisioningStep:
    """Update the checks by their requests; delete obsolete requests, create missing ones."""
    requests, templates = _owned(workload, requests), _owned(workload, templates)
    status, results = None, []
    if holds_quota(workload):
        before = workload["status"].get("admissionChecks") or []
        results = [_check_result(check, workload, requests, context, now) for check in before]
        after = [result.check for result in results]
        status = None if after == before else {**workload["status"], "admissionChecks": after}
    if context.kind is None:
        return ProvisioningStep(status)
    current = [result.request for result in results if result.request is not None]
    names = {request["metadata"]["name"] for request in requests}  # taken until the objects are deleted
    wanted = [
        result.missing
        for result in results
        if result.missing is not None and result.missing.name not in names
    ]
    needed = {name for request in current for name in template_names(request)}
    needed |= {template["metadata"]["name"] for one in wanted for template in one.templates}
    spent = [request for request in requests if request not in current]
    spent += [template for template in templates if template["metadata"]["name"] not in needed]
    return ProvisioningStep(status, tuple(obj for obj in spent if not _is_terminating(obj)), tuple(wanted))


def holds_quota(workload: Object) -> bool:
    """Whether a Workload holds quota and is neither finished nor evicted, so that it needs requests."""
    ending = is_true(workload, FINISHED) or is_true(workload, EVICTED)
    return is_true(workload, QUOTA_RESERVED) and not ending and bool(workload["status"].get("admission"))


def check_events(workload: Object, status: Object) -> list[WorkloadEvent]:
    """The events of a new status: checks that changed their state."""
    before = {check["name"]: check for check in (workload.get("status") or {}).get("admissionChecks") or ()}
    events = []
    for check in status.get("admissionChecks") or ():
        old_state = before.get(check["name"], check)["state"]
        if old_state != check["state"]:
            message = f"Admission check {check['name']} updated state from {old_state} to {check['state']}"
            message += f" with message: {check['message']}" if check["message"] else ""
            events.append(workload_event(workload, "AdmissionCheckUpdated", message))
    return events


def workload_event(workload: Object, reason: str, message: str, *, bad: bool = False) -> WorkloadEvent:
    """An event about a Workload."""
    meta = workload["metadata"]
    namespace, name, uid = (str(meta.get(key) or "") for key in ("namespace", "name", "uid"))
    return WorkloadEvent(namespace, name, uid, WARNING if bad else NORMAL, reason, for_event(message))


def _owned(workload: Object, objects: Iterable[Object]) -> list[Object]:
    """The objects owned by this Workload (by uid), not by an earlier one of the same name."""
    uid = workload["metadata"].get("uid")
    return [
        obj
        for obj in objects
        if any(owner.get("uid") == uid for owner in obj["metadata"].get("ownerReferences") or ())
    ]


def _is_terminating(obj: Object) -> bool:
    return bool(obj["metadata"].get("deletionTimestamp"))


@dataclass(frozen=True, slots=True)
class _CheckResult:
    """The new state of a check, its current request, and the request to create."""

    check: Object
    request: Object | None = None
    missing: NewProvisioningRequest | None = None


def _check_result(
    check: Object, workload: Object, requests: list[Object], context: ProvisioningContext, now: float
) -> _CheckResult:
    name = check["name"]
    if name not in context.checks:
        return _CheckResult(check)
    config = _config(context.checks[name], context.configs)
    if config is None:
        return _CheckResult(_with_state(check, PENDING, INACTIVE, now))
    pod_set_bundles = bundles(workload, config)
    if pod_set_bundles is None:
        return _CheckResult(check)
    if not pod_set_bundles:
        ready = _without_updates(_with_state(check, READY, NOT_NEEDED, now))
        return _CheckResult(check if check["state"] == READY else ready)
    request, attempt = _latest(workload, name, config, requests)
    if request is not None:
        check = _after_request(check, workload, request, attempt, config, now)
    if check["state"] != PENDING or not (request is None or _has_failed(request, workload)):
        return _CheckResult(check, request)
    missing, error = None, context.errors.get(name, "")
    if context.kind is not None and context.may_create:
        attempt = attempt or int(check.get("retryCount") or 0)
        missing = new_request(workload, name, attempt + 1, config, context.flavors, context.kind)
        error = error or missing.error
    check = _with_state(check, PENDING, error, now) if error else check
    return _CheckResult(check, request, None if missing is None or missing.error else missing)


def _config(check: Object, configs: Mapping[str, Object]) -> Config | None:
    reference = (check.get("spec") or {}).get("parameters") or {}
    fits = (reference.get("apiGroup"), reference.get("kind")) == (
        api_kinds.CONFIGS.group,
        api_kinds.CONFIGS.kind,
    )
    config = configs.get(str(reference.get("name"))) if fits else None
    return None if config is None else Config.of(config)


def _latest(
    workload: Object, check: str, config: Config, requests: Iterable[Object]
) -> tuple[Object | None, int]:
    """The latest request of a check that matches the configuration, and the number of its attempt."""
    latest: tuple[Object | None, int] = (None, 0)
    for request in requests:
        attempt = attempt_of(request["metadata"]["name"], workload["metadata"]["name"], check)
        up_to_date = not _is_terminating(request) and _matches_config(request, workload, config)
        if attempt is not None and up_to_date and attempt > latest[1]:
            latest = request, attempt
    return latest


def _matches_config(request: Object, workload: Object, config: Config) -> bool:
    spec = request.get("spec") or {}
    actual, wanted = spec.get("parameters") or {}, parameters(workload, config)
    return spec.get("provisioningClassName") == config.provisioning_class and all(
        actual.get(key) == wanted[key] for key in config.parameters
    )


def _conditions(request: Object) -> dict[str, Object]:
    conditions = (request.get("status") or {}).get("conditions") or ()
    return {str(condition.get("type")): condition for condition in conditions}


def _true_conditions(request: Object) -> dict[str, str]:
    """The messages of the conditions that are True, by type."""
    return {
        kind: str(condition.get("message") or "")
        for kind, condition in _conditions(request).items()
        if condition.get("status") == "True"
    }


def _has_failed(request: Object, workload: Object) -> bool:
    """Whether a request failed, or its booking expired before the gang was admitted."""
    true_conditions = _true_conditions(request)
    return FAILED in true_conditions or (EXPIRED in true_conditions and not is_true(workload, ADMITTED))


def _after_request(
    check: Object, workload: Object, request: Object, attempt: int, config: Config, now: float
) -> Object:
    """The check after the conditions of its request."""
    true_conditions = _true_conditions(request)
    if FAILED in true_conditions:
        return _after_failure(check, "Retrying after failure", true_conditions[FAILED], attempt, config, now)
    if REVOKED in true_conditions:
        active = (workload.get("spec") or {}).get("active") is not False
        return _with_state(check, REJECTED, true_conditions[REVOKED], now) if active else check
    if EXPIRED in true_conditions:
        if is_true(workload, ADMITTED):
            return check
        return _after_failure(
            check, "Retrying after booking expired", true_conditions[EXPIRED], attempt, config, now
        )
    if PROVISIONED in true_conditions:
        if check["state"] == READY:
            return check
        updates = _updates(workload, request, config)
        return {**_with_state(check, READY, true_conditions[PROVISIONED], now), "podSetUpdates": updates}
    if ACCEPTED in true_conditions:
        progress = _conditions(request).get(PROVISIONED)  # its message says when it is expected
        return (
            check
            if progress is None
            else _with_state(check, PENDING, str(progress.get("message") or ""), now)
        )
    return _with_state(check, PENDING, "", now)


def _after_failure(
    check: Object, prefix: str, message: str, attempt: int, config: Config, now: float
) -> Object:
    """The check after a failed attempt: retried later, or rejected after too many attempts."""
    if attempt > config.retries:
        return _with_state(check, REJECTED, message, now)
    before = int(check.get("retryCount") or 0)
    if attempt <= before:  # counted already
        return _with_state(check, check["state"], f"{prefix}: {message}", now)
    retried = _with_state(check, RETRY, f"{prefix}: {message}", now)
    return {**retried, "requeueAfterSeconds": config.backoff_seconds(before + 1)}


def _updates(workload: Object, request: Object, config: Config) -> list[Object]:
    """The pod set updates that let pods use the provisioned nodes."""
    name, status = request["metadata"]["name"], request.get("status") or {}
    details = status.get("provisioningClassDetails") or {}
    annotations = {CONSUME: name, CLASS: str((request.get("spec") or {}).get("provisioningClassName", ""))}
    selector = {label: str(details[key]) for label, key in config.selectors if key in details}
    update = {"annotations": annotations} | ({"nodeSelector": selector} if selector else {})
    entries = set(template_names(request))
    return [
        {"name": pod_set, **update}
        for bundle in bundles(workload, config) or ()
        if any(template_name(name, pod_set) in entries for pod_set in bundle.names)
        for pod_set in bundle.names
    ]


def _with_state(check: Object, state: str, message: str, now: float) -> Object:
    """The check with a state and message; its transition time changes only with the state."""
    after = {**check, "state": state, "message": for_condition(message)}
    return after if check["state"] == state else {**after, "lastTransitionTime": timestamp(now)}


def _without_updates(check: Object) -> Object:
    return {key: value for key, value in check.items() if key != "podSetUpdates"}
