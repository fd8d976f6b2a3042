"""Computed columns of built-in kinds."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from bayplan.backends.embedded.tables import durations

Object = dict[str, Any]
Cell = Callable[[Object, float], Any]  # object, now

NONE = "<none>"
_UNSET = "<unset>"
_MODES = {"ReadWriteOnce": "RWO", "ReadOnlyMany": "ROX", "ReadWriteMany": "RWX", "ReadWriteOncePod": "RWOP"}


def _node_status(node: Object, _: float) -> str:
    conditions = {one["type"]: one["status"] for one in node["status"].get("conditions") or ()}
    ready = {"True": "Ready", None: "Unknown"}.get(conditions.get("Ready"), "NotReady")
    return f"{ready},SchedulingDisabled" if node["spec"].get("unschedulable") else ready


def _node_roles(node: Object, _: float) -> str:
    prefix = "node-role.kubernetes.io/"
    labels = node["metadata"].get("labels") or {}
    roles = {key.removeprefix(prefix) for key in labels if key.startswith(prefix)}
    if labels.get("kubernetes.io/role"):
        roles.add(labels["kubernetes.io/role"])
    return ",".join(sorted(role for role in roles if role)) or NONE


def _node_address(kind: str) -> Cell:
    def cell(node: Object, _: float) -> str:
        found = (one["address"] for one in node["status"].get("addresses") or () if one["type"] == kind)
        return next(found, NONE)

    return cell


def _node_info(key: str) -> Cell:
    return lambda node, _: node["status"].get("nodeInfo", {}).get(key) or "<unknown>"


def pod_reason(pod: Object) -> str:
    """The STATUS column of a pod."""
    status, spec = pod.get("status", {}), pod["spec"]
    reason = status.get("reason") or status.get("phase", "")
    for condition in status.get("conditions") or ():
        if condition["type"] == "PodScheduled" and condition.get("reason") == "SchedulingGated":
            reason = "SchedulingGated"
    starting = _init_reason(status, spec)
    if starting:
        reason = starting
    else:
        reason = _container_reason(status) or reason
    if pod["metadata"].get("deletionTimestamp"):
        if status.get("reason") == "NodeLost":
            return "Unknown"
        if status.get("phase") not in ("Succeeded", "Failed"):
            return "Terminating"
    return str(reason)


def _init_reason(status: Object, spec: Object) -> str:
    for place, container in enumerate(status.get("initContainerStatuses") or ()):
        state = container.get("state") or {}
        ended, waiting = state.get("terminated"), state.get("waiting")
        if ended and ended.get("exitCode") == 0:
            continue
        if ended:
            return "Init:" + (ended.get("reason") or f"ExitCode:{ended.get('exitCode')}")
        if waiting and waiting.get("reason") and waiting["reason"] != "PodInitializing":
            return f"Init:{waiting['reason']}"
        return f"Init:{place}/{len(spec.get('initContainers') or ())}"
    return ""


def _container_reason(status: Object) -> str:
    reason = ""
    running = False
    for container in reversed(status.get("containerStatuses") or ()):
        state = container.get("state") or {}
        waiting, ended = state.get("waiting"), state.get("terminated")
        if waiting and waiting.get("reason"):
            reason = waiting["reason"]
        elif ended:
            signal = ended.get("signal")
            plain = f"Signal:{signal}" if signal else f"ExitCode:{ended.get('exitCode')}"
            reason = ended.get("reason") or plain
        elif container.get("ready") and state.get("running"):
            running = True
    if reason == "Completed" and running:
        ready = any(
            one["type"] == "Ready" and one["status"] == "True" for one in status.get("conditions") or ()
        )
        return "Running" if ready else "NotReady"
    return str(reason)


def _pod_ready(pod: Object, _: float) -> str:
    statuses = pod["status"].get("containerStatuses") or ()
    ready = sum(bool(one.get("ready") and (one.get("state") or {}).get("running")) for one in statuses)
    return f"{ready}/{len(pod['spec'].get('containers') or ())}"


def _pod_restarts(pod: Object, now: float) -> str:
    statuses = pod["status"].get("containerStatuses") or ()
    count = sum(one.get("restartCount", 0) for one in statuses)
    ends = [(one.get("lastState") or {}).get("terminated", {}).get("finishedAt") for one in statuses]
    known = [end for end in ends if end]
    return f"{count} ({durations.since(max(known), now)} ago)" if count and known else str(count)


def _pod_gates(pod: Object, _: float) -> str:
    gates = [one["conditionType"] for one in pod["spec"].get("readinessGates") or ()]
    if not gates:
        return NONE
    true = {one["type"] for one in pod["status"].get("conditions") or () if one["status"] == "True"}
    return f"{sum(gate in true for gate in gates)}/{len(gates)}"


def _event_time(*keys: str) -> Cell:
    def cell(event: Object, now: float) -> str:
        series = (event.get("series") or {}).get("lastObservedTime") if keys[0] == "lastTimestamp" else None
        found = series or next((event[key] for key in keys if event.get(key)), None)
        return durations.since(found, now)

    return cell


def _event_object(event: Object, _: float) -> str:
    about = event.get("involvedObject") or event.get("regarding") or {}
    return f"{about.get('kind', '').lower()}/{about.get('name', '')}"


def _event_source(event: Object, _: float) -> str:
    source = event.get("source") or event.get("deprecatedSource") or {}
    parts = [source.get("component") or event.get("reportingComponent"), source.get("host")]
    return ", ".join(part for part in parts if part)


def _event_count(event: Object, _: float) -> str:
    series = event.get("series") or {}
    return str(series.get("count") or event.get("count") or event.get("deprecatedCount") or 1)


def _event_message(event: Object, _: float) -> str:
    return (event.get("message") or event.get("note") or "").strip()


def _or_none(*path: str) -> Cell:
    return lambda item, _: _at(item, *path) or NONE


def _number(*path: str) -> Cell:
    return lambda item, _: _at(item, *path) or 0


def _at(item: Any, *path: str) -> Any:
    for key in path:
        item = item.get(key) if isinstance(item, Mapping) else None
    return item


def _containers(key: str, *path: str) -> Cell:
    def cell(item: Object, _: float) -> str:
        found: Any = item
        for part in path:
            found = found.get(part, {})
        return ",".join(one.get(key, "") for one in found.get("spec", {}).get("containers") or ())

    return cell


def selector_text(selector: Mapping[str, Any] | None) -> str:
    """A LabelSelector as kubectl shows it."""
    if not selector:
        return NONE
    parts = [f"{key}={value}" for key, value in sorted((selector.get("matchLabels") or {}).items())]
    for one in selector.get("matchExpressions") or ():
        values = ",".join(sorted(one.get("values") or ()))
        known = {
            "In": f"{one['key']} in ({values})",
            "NotIn": f"{one['key']} notin ({values})",
            "Exists": one["key"],
        }
        parts.append(known.get(one["operator"], f"!{one['key']}"))
    return ",".join(parts) or NONE


def labels_text(labels: Mapping[str, str] | None) -> str:
    """Labels as kubectl shows them."""
    return ",".join(f"{key}={value}" for key, value in sorted((labels or {}).items())) or NONE


def _job_status(job: Object, _: float) -> str:
    true = {one["type"] for one in job["status"].get("conditions") or () if one["status"] == "True"}
    if "Complete" in true:
        return "Complete"
    if "Failed" in true:
        return "Failed"
    if job["metadata"].get("deletionTimestamp"):
        return "Terminating"
    if "Suspended" in true:
        return "Suspended"
    if "FailureTarget" in true:
        return "FailureTarget"
    if "SuccessCriteriaMet" in true:
        return "SuccessCriteriaMet"
    return "Running"


def _job_completions(job: Object, _: float) -> str:
    done, spec = job["status"].get("succeeded", 0), job["spec"]
    if "completions" in spec:
        return f"{done}/{spec['completions']}"
    parallel = spec.get("parallelism", 0)
    return f"{done}/1 of {parallel}" if parallel > 1 else f"{done}/1"


def _job_duration(job: Object, now: float) -> str:
    start, end = job["status"].get("startTime"), job["status"].get("completionTime")
    if not start:
        return ""
    return durations.shown((durations.seconds(end) if end else now) - durations.seconds(start))


def _deployment_ready(item: Object, _: float) -> str:
    return f"{item['status'].get('readyReplicas', 0)}/{item['spec'].get('replicas', 0)}"


def _cron_last(item: Object, now: float) -> str:
    last = item["status"].get("lastScheduleTime")
    return durations.since(last, now) if last else NONE


def _service_external(service: Object, _: float) -> str:
    spec = service["spec"]
    if spec["type"] == "ExternalName":
        return str(spec.get("externalName", NONE))
    given = list(spec.get("externalIPs") or ())
    if spec["type"] == "LoadBalancer":
        found = (service["status"].get("loadBalancer") or {}).get("ingress") or ()
        given = [one.get("ip") or one.get("hostname", "") for one in found] + given
        return ",".join(given) or "<pending>"
    return ",".join(given) or NONE


def _service_ports(service: Object, _: float) -> str:
    parts = []
    for port in service["spec"].get("ports") or ():
        node = f":{port['nodePort']}" if port.get("nodePort") else ""
        parts.append(f"{port['port']}{node}/{port['protocol']}")
    return ",".join(parts) or NONE


def _volume_status(item: Object, _: float) -> str:
    return "Terminating" if item["metadata"].get("deletionTimestamp") else item["status"].get("phase", "")


def _volume_claim(item: Object, _: float) -> str:
    claim = item["spec"].get("claimRef")
    return f"{claim.get('namespace', '')}/{claim.get('name', '')}" if claim else ""


def _access_modes(item: Object, _: float) -> str:
    modes = item["spec"].get("accessModes") or ()
    return ",".join(_MODES[one] for one in _MODES if one in modes)


def _quota(limits: bool) -> Cell:
    def cell(item: Object, _: float) -> str:
        hard, used = item["status"].get("hard") or {}, item["status"].get("used") or {}
        return ", ".join(
            f"{name}: {used.get(name, '0')}/{amount}"
            for name, amount in sorted(hard.items())
            if name.startswith("limits.") is limits
        )

    return cell


def _subjects(kind: str) -> Cell:
    def cell(item: Object, _: float) -> str:
        found = [one for one in item.get("subjects") or () if one.get("kind") == kind]
        if kind == "ServiceAccount":
            return ", ".join(f"{one.get('namespace', '')}/{one['name']}" for one in found)
        return ", ".join(one["name"] for one in found)

    return cell


def _budget(key: str) -> Cell:
    return lambda item, _: str(item["spec"][key]) if key in item["spec"] else "N/A"


def _gang_groups(workload: Object, _: float) -> str:
    spec = workload["spec"]
    kinds = ("podGroups", "podGroupTemplates", "compositePodGroupTemplates")
    return ",".join(group["name"] for key in kinds for group in spec.get(key) or ()) or NONE


def _gang_policy(group: Object, _: float) -> str:
    return "Gang" if group["spec"]["schedulingPolicy"].get("gang") is not None else "Basic"


def _gang_workload(group: Object, _: float) -> str:
    spec = group["spec"]
    reference = spec.get("workloadRef") or (spec.get("podGroupTemplateRef") or {}).get("workload") or {}
    return reference.get("workloadName") or NONE


def _gang_status(group: Object, _: float) -> str:
    conditions = {one["type"]: one for one in group.get("status", {}).get("conditions") or ()}
    if "DisruptionTarget" in conditions:
        return str(conditions["DisruptionTarget"]["reason"])
    found = conditions.get("PodGroupInitiallyScheduled") or conditions.get("PodGroupScheduled")
    if found is None:
        return "Pending"
    return "Scheduled" if found["status"] == "True" else "Unschedulable"


CELLS: dict[str, Cell] = {
    "node_status": _node_status,
    "node_roles": _node_roles,
    "node_internal": _node_address("InternalIP"),
    "node_external": _node_address("ExternalIP"),
    "node_image": _node_info("osImage"),
    "node_kernel": _node_info("kernelVersion"),
    "node_runtime": _node_info("containerRuntimeVersion"),
    "pod_ready": _pod_ready,
    "pod_status": lambda pod, _: pod_reason(pod),
    "pod_restarts": _pod_restarts,
    "pod_ip": _or_none("status", "podIP"),
    "pod_node": _or_none("spec", "nodeName"),
    "pod_nominated": _or_none("status", "nominatedNodeName"),
    "pod_gates": _pod_gates,
    "event_last": _event_time("lastTimestamp", "deprecatedLastTimestamp", "eventTime"),
    "event_first": _event_time("firstTimestamp", "deprecatedFirstTimestamp", "eventTime"),
    "event_object": _event_object,
    "event_source": _event_source,
    "event_count": _event_count,
    "event_message": _event_message,
    "data_count": lambda item, _: len(item.get("data") or {}) + len(item.get("binaryData") or {}),
    "priority_default": lambda item, _: bool(item.get("globalDefault")),
    "daemon_desired": _number("status", "desiredNumberScheduled"),
    "daemon_current": _number("status", "currentNumberScheduled"),
    "daemon_ready": _number("status", "numberReady"),
    "daemon_updated": _number("status", "updatedNumberScheduled"),
    "daemon_available": _number("status", "numberAvailable"),
    "replicas_wanted": _number("spec", "replicas"),
    "replicas_now": _number("status", "replicas"),
    "replicas_ready": _number("status", "readyReplicas"),
    "deployment_updated": _number("status", "updatedReplicas"),
    "deployment_available": _number("status", "availableReplicas"),
    "budget_allowed": _number("status", "disruptionsAllowed"),
    "cron_suspend": lambda item, _: bool(item["spec"].get("suspend")),
    "cron_active": lambda item, _: len(item["status"].get("active") or ()),
    "none": lambda _, __: NONE,
    "containers": _containers("name", "spec", "template"),
    "images": _containers("image", "spec", "template"),
    "cron_containers": _containers("name", "spec", "jobTemplate", "spec", "template"),
    "cron_images": _containers("image", "spec", "jobTemplate", "spec", "template"),
    "cron_zone": lambda item, _: item["spec"].get("timeZone") or NONE,
    "cron_last": _cron_last,
    "selector": lambda item, _: selector_text(item["spec"].get("selector")),
    "template_labels": lambda item, _: labels_text(item["template"].get("metadata", {}).get("labels")),
    "job_status": _job_status,
    "job_completions": _job_completions,
    "job_duration": _job_duration,
    "deployment_ready": _deployment_ready,
    "daemon_selector": lambda item, _: labels_text(item["spec"]["template"]["spec"].get("nodeSelector")),
    "service_address": lambda item, _: item["spec"].get("clusterIP") or NONE,
    "service_external": _service_external,
    "service_ports": _service_ports,
    "service_selector": lambda item, _: labels_text(item["spec"].get("selector")),
    "volume_status": _volume_status,
    "volume_claim": _volume_claim,
    "access_modes": _access_modes,
    "attributes_class": lambda item, _: item["spec"].get("volumeAttributesClassName") or _UNSET,
    "quota_requests": _quota(limits=False),
    "quota_limits": _quota(limits=True),
    "budget_available": _budget("minAvailable"),
    "budget_unavailable": _budget("maxUnavailable"),
    "binding_role": lambda item, _: f"{item['roleRef'].get('kind', '')}/{item['roleRef']['name']}",
    "binding_users": _subjects("User"),
    "binding_groups": _subjects("Group"),
    "binding_accounts": _subjects("ServiceAccount"),
    "gang_groups": _gang_groups,
    "gang_policy": _gang_policy,
    "gang_workload": _gang_workload,
    "gang_status": _gang_status,
}
