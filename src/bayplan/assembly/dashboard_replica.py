"""The dashboard in a cluster: a Deployment with its Service, NetworkPolicy and Ingress.

It may run in the main Deployment instead, where it reads the journal of the replica. Then only the Service
and the Ingress are its own.
"""

from __future__ import annotations

from typing import Any

from bayplan.assembly.install_settings import (
    CONFIG_FILE,
    CONFIG_FOLDER,
    CONFIG_MAP,
    DASHBOARD,
    DASHBOARD_ACCOUNT,
    DASHBOARD_PORT,
    HEALTH_PORT,
    NAME,
    InstallSettings,
    new_object,
)
from bayplan.assembly.replicas import (
    RESTRICTED,
    UNPRIVILEGED,
    placed,
    pod_metadata,
    probe,
    selector,
    service,
    service_account,
)
from bayplan.assembly.tunables import enabled, optional, single

Object = dict[str, Any]
_INGRESS = "dashboard.ingress"
_PORT = DASHBOARD


def dashboard_replica(settings: InstallSettings) -> list[Object]:
    """The service account, its Deployment and Service, and on demand a NetworkPolicy and an Ingress."""
    ingress = [_ingress(settings)] if enabled(settings, f"{_INGRESS}.enabled") else []
    if settings.dashboard_shared:
        return [_shared_service(settings), *ingress]
    chosen = selector(DASHBOARD_ACCOUNT)
    return [
        service_account(settings, DASHBOARD_ACCOUNT),
        _deployment(settings, chosen),
        service(DASHBOARD_ACCOUNT, 80, _PORT, settings, chosen),
        *([_network_policy(settings, chosen)] if settings.network_policy else []),
        *ingress,
    ]


def _shared_service(settings: InstallSettings) -> Object:
    """Leads a client to the same replica each time: versions of what pages show belong to one server."""
    made = service(DASHBOARD_ACCOUNT, 80, _PORT, settings, selector(NAME))
    made["spec"]["sessionAffinity"] = "ClientIP"
    return made


def _deployment(settings: InstallSettings, chosen: Object) -> Object:
    """One replica: versions of what pages show belong to one server. A new pod reads the cluster again."""
    pod = {
        "serviceAccountName": DASHBOARD_ACCOUNT,
        **placed(settings),
        "terminationGracePeriodSeconds": 30,
        "securityContext": UNPRIVILEGED,
        "containers": [_container(settings)],
        "volumes": [
            {"name": "tmp", "emptyDir": {"sizeLimit": "16Mi"}},
            {"name": "configuration", "configMap": {"name": CONFIG_MAP}},
        ],
    }
    spec = {
        "replicas": 1,
        "selector": {"matchLabels": chosen},
        "template": {"metadata": pod_metadata(settings, DASHBOARD_ACCOUNT), "spec": pod},
    }
    return new_object("apps/v1", "Deployment", DASHBOARD_ACCOUNT, settings, spec=spec)


def _container(settings: InstallSettings) -> Object:
    return {
        "name": NAME,
        "image": settings.image,
        **optional(settings, "imagePullPolicy", "image.pullPolicy"),
        "args": [
            "run",
            "--roles=dashboard",
            f"--listen=0.0.0.0:{HEALTH_PORT}",
            f"--dashboard-listen=0.0.0.0:{DASHBOARD_PORT}",
            f"--config={CONFIG_FOLDER}/{CONFIG_FILE}",
            "--log-format=json",
        ],
        "ports": [
            {"name": "health", "containerPort": HEALTH_PORT},
            {"name": _PORT, "containerPort": DASHBOARD_PORT},
        ],
        "livenessProbe": probe("/healthz", initialDelaySeconds=10, periodSeconds=20, failureThreshold=3),
        "readinessProbe": probe("/readyz", periodSeconds=5, failureThreshold=3),
        **optional(settings, "resources", "dashboard.resources"),
        "securityContext": RESTRICTED,
        "volumeMounts": [
            {"name": "tmp", "mountPath": "/tmp"},
            {"name": "configuration", "mountPath": CONFIG_FOLDER, "readOnly": True},
        ],
    }


def _network_policy(settings: InstallSettings, chosen: Object) -> Object:
    """Users come through an Ingress or from anywhere: who may see what is decided by their token."""
    spec = {
        "podSelector": {"matchLabels": chosen},
        "policyTypes": ["Ingress"],
        "ingress": [{"ports": [{"port": _PORT, "protocol": "TCP"}]}],
    }
    return new_object("networking.k8s.io/v1", "NetworkPolicy", DASHBOARD_ACCOUNT, settings, spec=spec)


def _ingress(settings: InstallSettings) -> Object:
    backend = {"service": {"name": DASHBOARD_ACCOUNT, "port": {"name": _PORT}}}
    paths = [{"path": "/", "pathType": "Prefix", "backend": backend}]
    spec = {
        **optional(settings, "ingressClassName", f"{_INGRESS}.className"),
        **optional(settings, "tls", f"{_INGRESS}.tls"),
        "rules": [{"host": single(settings, f"{_INGRESS}.host"), "http": {"paths": paths}}],
    }
    made = new_object("networking.k8s.io/v1", "Ingress", DASHBOARD_ACCOUNT, settings, spec=spec)
    made["metadata"] |= optional(settings, "annotations", f"{_INGRESS}.annotations")
    return made
