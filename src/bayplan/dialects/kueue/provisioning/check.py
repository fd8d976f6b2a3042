"""The check `kueue.x-k8s.io/provisioning-request`: what an autoscaler is asked, and what its answers mean."""

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
    asked,
    attempt_of,
    bundles,
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
    "install its CustomResourceDefinition, or take the check from the queue"
)
CONSUME = "autoscaling.x-k8s.io/consume-provisioning-request"
CLASS = "autoscaling.x-k8s.io/provisioning-class-name"

ACCEPTED, PROVISIONED, FAILED = "Accepted", "Provisioned", "Failed"
EXPIRED, REVOKED = "BookingExpired", "CapacityRevoked"


@dataclass(frozen=True, slots=True)
class ProvisioningContext:
    """What requests depend on besides the Workload: objects by name."""

    checks: Mapping[str, Object]  # AdmissionChecks of ours
    configs: Mapping[str, Object]
    flavors: Mapping[str, Object]
    kind: Kind | None = None  # how requests are written; None if the cluster has none
    trouble: Mapping[str, str] = field(default_factory=dict)  # why a check's request could not be made
    may_ask: bool = True


@dataclass(frozen=True, slots=True)
class ProvisioningStep:
    """What is to be done for one Workload."""

    status: Object | None = None  # to be written
    spent: tuple[Object, ...] = ()  # requests and templates that nobody needs any more
    wanted: tuple[NewProvisioningRequest, ...] = ()  # to be made


def is_ours(check: Object) -> bool:
    """Whether an AdmissionCheck is one that we answer for."""
    return bool((check.get("spec") or {}).get("controllerName") == PROVISIONING)


def owner_of(obj: Object) -> tuple[str, str] | None:
    """Namespace and name of the Workload that a request or template is made for."""
    meta = obj.get("metadata") or {}
    for owner in meta.get("ownerReferences") or ():
        if owner.get("kind") == "Workload":
            return meta.get("namespace", "default"), str(owner.get("name", ""))
    return None


def course(
    workload: Object,
    requests: Iterable[Object],
    templates: Iterable[Object],
    around: ProvisioningContext,
    now: float,
) -> ProvisioningStep:
    """Bring checks up to date with the requests there are; drop what is spent, make what is lacking."""
    requests, templates = _owned(workload, requests), _owned(workload, templates)
    status, looks = None, []
    if holds_quota(workload):
        before = workload["status"].get("admissionChecks") or []
        looks = [_look(check, workload, requests, around, now) for check in before]
        after = [look.check for look in looks]
        status = None if after == before else {**workload["status"], "admissionChecks": after}
    if around.kind is None:
        return ProvisioningStep(status)
    kept = [look.request for look in looks if look.request is not None]
    names = {request["metadata"]["name"] for request in requests}  # free once their bearers are gone
    wanted = [look.lacks for look in looks if look.lacks is not None and look.lacks.name not in names]
    needed = {name for request in kept for name in template_names(request)}
    needed |= {template["metadata"]["name"] for one in wanted for template in one.templates}
    spent = [request for request in requests if request not in kept]
    spent += [template for template in templates if template["metadata"]["name"] not in needed]
    return ProvisioningStep(status, tuple(obj for obj in spent if not _is_leaving(obj)), tuple(wanted))


def holds_quota(workload: Object) -> bool:
    """Whether a Workload has quota and may keep it: then there is something to ask for."""
    leaving = is_true(workload, FINISHED) or is_true(workload, EVICTED)
    return is_true(workload, QUOTA_RESERVED) and not leaving and bool(workload["status"].get("admission"))


def announced(workload: Object, status: Object) -> list[WorkloadEvent]:
    """The events that go with another status: checks that changed their state."""
    before = {check["name"]: check for check in (workload.get("status") or {}).get("admissionChecks") or ()}
    found = []
    for check in status.get("admissionChecks") or ():
        was = before.get(check["name"], check)["state"]
        if was != check["state"]:
            told = f"Admission check {check['name']} updated state from {was} to {check['state']}"
            told += f" with message: {check['message']}" if check["message"] else ""
            found.append(notice(workload, "AdmissionCheckUpdated", told))
    return found


def notice(workload: Object, reason: str, message: str, *, bad: bool = False) -> WorkloadEvent:
    """An event about a Workload and what is asked for it."""
    meta = workload["metadata"]
    namespace, name, uid = (str(meta.get(key) or "") for key in ("namespace", "name", "uid"))
    return WorkloadEvent(namespace, name, uid, WARNING if bad else NORMAL, reason, for_event(message))


def _owned(workload: Object, objects: Iterable[Object]) -> list[Object]:
    """Those made for this very Workload, not for one of the same name before it."""
    uid = workload["metadata"].get("uid")
    return [
        obj
        for obj in objects
        if any(owner.get("uid") == uid for owner in obj["metadata"].get("ownerReferences") or ())
    ]


def _is_leaving(obj: Object) -> bool:
    return bool(obj["metadata"].get("deletionTimestamp"))


@dataclass(frozen=True, slots=True)
class _Look:
    """One check as it should stand, the request it has, and the one it lacks."""

    check: Object
    request: Object | None = None
    lacks: NewProvisioningRequest | None = None


def _look(
    check: Object, workload: Object, requests: list[Object], around: ProvisioningContext, now: float
) -> _Look:
    name = check["name"]
    if name not in around.checks:
        return _Look(check)
    config = _config(around.checks[name], around.configs)
    if config is None:
        return _Look(_told(check, PENDING, INACTIVE, now))
    needed = bundles(workload, config)
    if needed is None:
        return _Look(check)
    if not needed:
        ready = _without_updates(_told(check, READY, NOT_NEEDED, now))
        return _Look(check if check["state"] == READY else ready)
    request, attempt = _latest(workload, name, config, requests)
    if request is not None:
        check = _heeded(check, workload, request, attempt, config, now)
    if check["state"] != PENDING or not (request is None or _is_over(request, workload)):
        return _Look(check, request)
    lacks, trouble = None, around.trouble.get(name, "")
    if around.kind is not None and around.may_ask:
        attempt = attempt or int(check.get("retryCount") or 0)
        lacks = asked(workload, name, attempt + 1, config, around.flavors, around.kind)
        trouble = trouble or lacks.trouble
    check = _told(check, PENDING, trouble, now) if trouble else check
    return _Look(check, request, None if lacks is None or lacks.trouble else lacks)


def _config(check: Object, configs: Mapping[str, Object]) -> Config | None:
    reference = (check.get("spec") or {}).get("parameters") or {}
    fits = (reference.get("apiGroup"), reference.get("kind")) == (
        api_kinds.CONFIGS.group,
        api_kinds.CONFIGS.kind,
    )
    found = configs.get(str(reference.get("name"))) if fits else None
    return None if found is None else Config.of(found)


def _latest(
    workload: Object, check: str, config: Config, requests: Iterable[Object]
) -> tuple[Object | None, int]:
    """The last request made for a check that says what the configuration says, and which attempt it is."""
    latest: tuple[Object | None, int] = (None, 0)
    for request in requests:
        attempt = attempt_of(request["metadata"]["name"], workload["metadata"]["name"], check)
        up_to_date = not _is_leaving(request) and _says_the_same(request, workload, config)
        if attempt is not None and up_to_date and attempt > latest[1]:
            latest = request, attempt
    return latest


def _says_the_same(request: Object, workload: Object, config: Config) -> bool:
    spec = request.get("spec") or {}
    there, wanted = spec.get("parameters") or {}, parameters(workload, config)
    return spec.get("provisioningClassName") == config.provisioning_class and all(
        there.get(key) == wanted[key] for key in config.parameters
    )


def _conditions(request: Object) -> dict[str, Object]:
    found = (request.get("status") or {}).get("conditions") or ()
    return {str(condition.get("type")): condition for condition in found}


def _true_ones(request: Object) -> dict[str, str]:
    """The conditions that hold, with their messages."""
    return {
        kind: str(condition.get("message") or "")
        for kind, condition in _conditions(request).items()
        if condition.get("status") == "True"
    }


def _is_over(request: Object, workload: Object) -> bool:
    """Whether nothing more will come of a request. The end of a booking is nothing to an admitted gang."""
    holds = _true_ones(request)
    return FAILED in holds or (EXPIRED in holds and not is_true(workload, ADMITTED))


def _heeded(
    check: Object, workload: Object, request: Object, attempt: int, config: Config, now: float
) -> Object:
    """A check after what the autoscaler said."""
    holds = _true_ones(request)
    if FAILED in holds:
        return _again(check, "Retrying after failure", holds[FAILED], attempt, config, now)
    if REVOKED in holds:
        active = (workload.get("spec") or {}).get("active") is not False
        return _told(check, REJECTED, holds[REVOKED], now) if active else check
    if EXPIRED in holds:
        if is_true(workload, ADMITTED):
            return check
        return _again(check, "Retrying after booking expired", holds[EXPIRED], attempt, config, now)
    if PROVISIONED in holds:
        if check["state"] == READY:
            return check
        updates = _updates(workload, request, config)
        return {**_told(check, READY, holds[PROVISIONED], now), "podSetUpdates": updates}
    if ACCEPTED in holds:
        progress = _conditions(request).get(PROVISIONED)  # says when it is expected
        return check if progress is None else _told(check, PENDING, str(progress.get("message") or ""), now)
    return _told(check, PENDING, "", now)


def _again(check: Object, words: str, message: str, attempt: int, config: Config, now: float) -> Object:
    """An attempt came to nothing: another one later, unless there were enough."""
    if attempt > config.retries:
        return _told(check, REJECTED, message, now)
    before = int(check.get("retryCount") or 0)
    if attempt <= before:  # known already
        return _told(check, check["state"], f"{words}: {message}", now)
    later = _told(check, RETRY, f"{words}: {message}", now)
    return {**later, "requeueAfterSeconds": config.pause(before + 1)}


def _updates(workload: Object, request: Object, config: Config) -> list[Object]:
    """What the pods are given so that they go where room was made for them."""
    name, status = request["metadata"]["name"], request.get("status") or {}
    details = status.get("provisioningClassDetails") or {}
    notes = {CONSUME: name, CLASS: str((request.get("spec") or {}).get("provisioningClassName", ""))}
    selector = {label: str(details[key]) for label, key in config.selectors if key in details}
    more = {"annotations": notes} | ({"nodeSelector": selector} if selector else {})
    entries = set(template_names(request))
    return [
        {"name": pod_set, **more}
        for bundle in bundles(workload, config) or ()
        if any(template_name(name, pod_set) in entries for pod_set in bundle.names)
        for pod_set in bundle.names
    ]


def _told(check: Object, state: str, message: str, now: float) -> Object:
    """A check in a state; the time of transition changes only with it."""
    after = {**check, "state": state, "message": for_condition(message)}
    return after if check["state"] == state else {**after, "lastTransitionTime": timestamp(now)}


def _without_updates(check: Object) -> Object:
    return {key: value for key, value in check.items() if key != "podSetUpdates"}
