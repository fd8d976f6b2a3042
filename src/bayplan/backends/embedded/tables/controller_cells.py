"""Columns of the kinds that make pods, and of services, volumes, budgets and roles."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from bayplan.backends.embedded.tables import durations
from bayplan.backends.embedded.tables.cells import NONE, Cell

Object = dict[str, Any]

_UNSET = "<unset>"
_MODES = {"ReadWriteOnce": "RWO", "ReadOnlyMany": "ROX", "ReadWriteMany": "RWX", "ReadWriteOncePod": "RWOP"}


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


CELLS: dict[str, Cell] = {
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
}
