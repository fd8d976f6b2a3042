"""Defaults of pod specs, for pods and pod templates."""

from __future__ import annotations

from typing import Any

Object = dict[str, Any]

_MODE = 420  # 0644
_WAIT = 300
_TOLERATED = ("node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable")


def default_template(template: Object) -> None:
    """Fill in a pod template."""
    default_spec(template["spec"])


def default_spec(spec: Object) -> None:
    """Fill in a pod's specification."""
    spec.setdefault("restartPolicy", "Always")
    spec.setdefault("dnsPolicy", "ClusterFirst")
    if spec.setdefault("terminationGracePeriodSeconds", 30) < 0:
        spec["terminationGracePeriodSeconds"] = 1
    spec.setdefault("schedulerName", "default-scheduler")
    spec.setdefault("securityContext", {})
    account = spec.get("serviceAccountName") or spec.get("serviceAccount")
    if account:
        spec["serviceAccountName"] = spec["serviceAccount"] = account
    for container in (*(spec.get("containers") or ()), *spec.get("initContainers", ())):
        _container(container, bool(spec.get("hostNetwork")))
    for volume in spec.get("volumes", ()):
        _volume(volume)


def default_pod(pod: Object) -> None:
    """Fill in a single pod."""
    spec = pod["spec"]
    spec.setdefault("enableServiceLinks", True)
    default_spec(spec)
    for container in (*(spec.get("containers") or ()), *spec.get("initContainers", ())):
        limits = container["resources"].get("limits")
        if limits:
            container["resources"]["requests"] = {**limits, **container["resources"].get("requests", {})}


def admit_pod(spec: Object) -> None:
    """Add what admission plugins add to a new pod: service account, tolerations of failed nodes."""
    account = spec.get("serviceAccountName") or "default"
    spec["serviceAccountName"] = spec["serviceAccount"] = account
    tolerations = spec.setdefault("tolerations", [])
    for key in _TOLERATED:
        if not any(_tolerates(one, key) for one in tolerations):
            tolerations.append(
                {"key": key, "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": _WAIT}
            )


def qos_class(spec: Object) -> str:
    """Guaranteed, Burstable or BestEffort, from the CPU and memory asked for."""
    requests: set[str] = set()
    guaranteed = True
    for container in (*(spec.get("containers") or ()), *spec.get("initContainers", ())):
        resources = container.get("resources", {})
        asked, limits = resources.get("requests", {}), resources.get("limits", {})
        counted = {name for name in ("cpu", "memory") if asked.get(name, "0") != "0"}
        limited = {name for name in ("cpu", "memory") if limits.get(name, "0") != "0"}
        requests |= counted | limited
        if len(limited) < 2 or any(asked.get(name, limits[name]) != limits[name] for name in limited):
            guaranteed = False
    if not requests:
        return "BestEffort"
    return "Guaranteed" if guaranteed else "Burstable"


def _tolerates(toleration: Object, key: str) -> bool:
    return (toleration.get("key", key), toleration.get("effect", "NoExecute")) == (key, "NoExecute")


def _container(container: Object, host_network: bool) -> None:
    container.setdefault("terminationMessagePath", "/dev/termination-log")
    container.setdefault("terminationMessagePolicy", "File")
    if "imagePullPolicy" not in container:
        container["imagePullPolicy"] = _pull_policy(container.get("image", ""))
    for port in container.get("ports", ()):
        port.setdefault("protocol", "TCP")
        if host_network and "containerPort" in port:
            port.setdefault("hostPort", port["containerPort"])
    for name in ("livenessProbe", "readinessProbe", "startupProbe"):
        if name in container:
            _probe(container[name])
    for env in container.get("env", ()):
        reference = env.get("valueFrom", {}).get("fieldRef")
        if reference is not None:
            reference.setdefault("apiVersion", "v1")


def _pull_policy(image: str) -> str:
    name, _, digest = image.partition("@")
    if digest:
        return "IfNotPresent"
    tag = name.rpartition("/")[2].partition(":")[2]
    return "Always" if tag in ("", "latest") else "IfNotPresent"


def _probe(probe: Object) -> None:
    for key, value in (
        ("timeoutSeconds", 1),
        ("periodSeconds", 10),
        ("successThreshold", 1),
        ("failureThreshold", 3),
    ):
        probe.setdefault(key, value)
    if "httpGet" in probe:
        probe["httpGet"].setdefault("path", "/")
        probe["httpGet"].setdefault("scheme", "HTTP")


def _volume(volume: Object) -> None:
    if len(volume) == 1:
        volume["emptyDir"] = {}
    for name in ("secret", "configMap", "downwardAPI", "projected"):
        if name in volume:
            volume[name].setdefault("defaultMode", _MODE)
    if "hostPath" in volume:
        volume["hostPath"].setdefault("type", "")
    for source in volume.get("projected", {}).get("sources") or ():
        if "serviceAccountToken" in source:
            source["serviceAccountToken"].setdefault("expirationSeconds", 3600)
