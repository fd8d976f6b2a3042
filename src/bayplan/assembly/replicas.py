"""The Deployments of the replicas, with their Services, NetworkPolicies and PodDisruptionBudgets."""

from __future__ import annotations

from typing import Any

from bayplan import __version__
from bayplan.assembly import cert_manager
from bayplan.assembly.install_settings import (
    CERTIFICATE_FOLDER,
    CHOSEN,
    CONFIG_DIGEST,
    CONFIG_FILE,
    CONFIG_FOLDER,
    CONFIG_MAP,
    DASHBOARD,
    DASHBOARD_PORT,
    HEALTH_PORT,
    JOURNAL,
    LABELS,
    METRICS_PORT,
    NAME,
    USER,
    WEBHOOK_PORT,
    WEBHOOKS,
    InstallSettings,
    new_object,
)
from bayplan.assembly.tunables import each, enabled, optional, pairs, single

Object = dict[str, Any]

METRICS_LABEL = "app.kubernetes.io/component"
UNPRIVILEGED = {
    "runAsNonRoot": True,
    "runAsUser": USER,
    "runAsGroup": USER,
    "fsGroup": USER,
    "seccompProfile": {"type": "RuntimeDefault"},
}
"""The security context of pods."""
RESTRICTED = {
    "allowPrivilegeEscalation": False,
    "readOnlyRootFilesystem": True,
    "capabilities": {"drop": ["ALL"]},
}
"""The security context of containers."""
_MONITOR = "metrics.serviceMonitor"


def selector(account: str) -> Object:
    """The labels that select the replicas of a service account."""
    return CHOSEN if account == NAME else {"app.kubernetes.io/name": account}


def account_objects(settings: InstallSettings, account: str = NAME) -> list[Object]:
    """A service account with its Deployment, PodDisruptionBudget, metrics Service and NetworkPolicy."""
    chosen = selector(account)
    return [
        service_account(settings, account),
        deployment(settings, account),
        *(
            [_disruption_budget(settings, account)]
            if enabled(settings, "podDisruptionBudget.enabled")
            else []
        ),
        service(f"{account}-metrics", *metrics_port(settings), settings, chosen, metrics=True),
        *([network_policy(settings, account)] if settings.network_policy else []),
        *([_service_monitor(settings, account)] if enabled(settings, f"{_MONITOR}.enabled") else []),
    ]


def service_account(settings: InstallSettings, account: str) -> Object:
    """The service account of replicas."""
    made = new_object("v1", "ServiceAccount", account, settings)
    made["metadata"] |= optional(settings, "annotations", "serviceAccount.annotations")
    return made


def _disruption_budget(settings: InstallSettings, account: str) -> Object:
    spec = {
        **optional(settings, "maxUnavailable", "podDisruptionBudget.maxUnavailable"),
        "selector": {"matchLabels": selector(account)},
    }
    return new_object("policy/v1", "PodDisruptionBudget", account, settings, spec=spec)


def _service_monitor(settings: InstallSettings, account: str) -> Object:
    """Tells the Prometheus operator to read the metrics of the replicas."""
    _, port = metrics_port(settings)
    endpoint: Object = {
        "port": port,
        "path": "/metrics",
        "interval": single(settings, f"{_MONITOR}.interval"),
    }
    if settings.metrics_secure:
        endpoint |= {
            "scheme": "https",
            "bearerTokenFile": "/var/run/secrets/kubernetes.io/serviceaccount/token",
            "tlsConfig": {"insecureSkipVerify": True},
        }
    labels = {**selector(account), METRICS_LABEL: "metrics"}
    spec = {"selector": {"matchLabels": labels}, "endpoints": [endpoint]}
    made = new_object("monitoring.coreos.com/v1", "ServiceMonitor", account, settings, spec=spec)
    made["metadata"]["labels"] |= pairs(settings, f"{_MONITOR}.labels")
    return made


def metrics_port(settings: InstallSettings) -> tuple[int, str]:
    """The number and name of the metrics port."""
    return (METRICS_PORT, "metrics") if settings.metrics_secure else (HEALTH_PORT, "health")


def service(
    name: str, port: int, target: str, settings: InstallSettings, chosen: Object, *, metrics: bool = False
) -> Object:
    """A Service for one port of the replicas; that of the metrics has labels to find it by."""
    ports = [{"name": target, "port": port, "targetPort": target}]
    made = new_object("v1", "Service", name, settings, spec={"selector": chosen, "ports": ports})
    if metrics:
        made["metadata"]["labels"] |= {**chosen, METRICS_LABEL: "metrics"}
    return made


def network_policy(settings: InstallSettings, account: str) -> Object:
    """Allows the API server to connect to the webhooks, and pods of some namespaces to the metrics.

    An API server often runs in the host network, so the webhook port is open to every peer. Probes come from
    the node of the pod, which a NetworkPolicy does not restrict.
    """
    peers: Any = settings.metrics_peers or [{"namespaceSelector": _namespaces(settings.metrics_from)}]
    _, metrics = metrics_port(settings)
    ingress: list[Object] = [{"ports": [{"port": metrics, "protocol": "TCP"}], "from": peers}]
    if account == settings.account(WEBHOOKS):
        ingress.append({"ports": [{"port": "webhooks", "protocol": "TCP"}]})
    if _serves_dashboard(settings, account):
        ingress.append({"ports": [{"port": DASHBOARD, "protocol": "TCP"}]})
    spec = {
        "podSelector": {"matchLabels": selector(account)},
        "policyTypes": ["Ingress"],
        "ingress": ingress,
    }
    return new_object("networking.k8s.io/v1", "NetworkPolicy", account, settings, spec=spec)


def _namespaces(names: tuple[str, ...]) -> Object:
    if not names:
        return {}
    listed = {"key": "kubernetes.io/metadata.name", "operator": "In", "values": list(names)}
    return {"matchExpressions": [listed]}


def arguments(settings: InstallSettings, account: str) -> list[str]:
    """The command line of a replica."""
    roles = settings.role_list if account == NAME else ",".join(settings.separate_roles)
    serves_webhooks = _serves_webhooks(settings, account)
    pages = [f"--dashboard-listen=0.0.0.0:{DASHBOARD_PORT}"] if _serves_dashboard(settings, account) else []
    return [
        "run",
        f"--roles={roles}",
        f"--namespace={settings.namespace}",
        f"--listen=0.0.0.0:{HEALTH_PORT}",
        f"--webhook-listen=0.0.0.0:{WEBHOOK_PORT}",
        f"--journal={JOURNAL}",
        f"--config={CONFIG_FOLDER}/{CONFIG_FILE}",
        "--log-format=json",
        *(cert_manager.arguments(settings) if serves_webhooks else ()),
        *_metrics_arguments(settings),
        *pages,
        *each(settings, "extraArgs"),
    ]


def _metrics_arguments(settings: InstallSettings) -> list[str]:
    if not settings.metrics_secure:
        return []
    files = (
        f"--metrics-cert-file={CERTIFICATE_FOLDER}/tls.crt",
        f"--metrics-key-file={CERTIFICATE_FOLDER}/tls.key",
    )
    return [f"--metrics-listen=0.0.0.0:{METRICS_PORT}", *(files if settings.metrics_certificate else ())]


def deployment(settings: InstallSettings, account: str = NAME) -> Object:
    """The Deployment of a service account, which has the same name."""
    chosen = selector(account)
    template = {
        "metadata": pod_metadata(settings, account),
        "spec": {
            "serviceAccountName": account,
            **optional(settings, "priorityClassName", "priorityClassName"),
            **placed(settings),
            "terminationGracePeriodSeconds": 30,
            "securityContext": UNPRIVILEGED,
            **optional(
                settings,
                "topologySpreadConstraints",
                "topologySpreadConstraints",
                [_spread("kubernetes.io/hostname", chosen)],
            ),
            "containers": [_container(settings, account)],
            "volumes": [
                {"name": "journal", "emptyDir": {"sizeLimit": "1Gi"}},
                {"name": "tmp", "emptyDir": {"sizeLimit": "16Mi"}},
                {"name": "configuration", "configMap": {"name": CONFIG_MAP}},
                *_certificate_volume(settings),
                *_webhook_volumes(settings, account),
            ],
        },
    }
    spec = {
        "replicas": settings.replicas,
        "selector": {"matchLabels": chosen},
        "strategy": {"type": "RollingUpdate", "rollingUpdate": {"maxUnavailable": 1, "maxSurge": 1}},
        "template": template,
    }
    return new_object("apps/v1", "Deployment", account, settings, spec=spec)


def pod_metadata(settings: InstallSettings, account: str) -> Object:
    """Labels and annotations of the pods of an account."""
    version = {"app.kubernetes.io/version": __version__}
    return {
        "labels": {**pairs(settings, "podLabels"), **LABELS, **selector(account), **version},
        "annotations": {**pairs(settings, "podAnnotations"), CONFIG_DIGEST: settings.digest},
    }


def placed(settings: InstallSettings) -> Object:
    """Where pods may run, and with which secrets their image is pulled."""
    return {
        **optional(settings, "imagePullSecrets", "image.pullSecrets"),
        **optional(settings, "nodeSelector", "nodeSelector"),
        **optional(settings, "tolerations", "tolerations"),
        **optional(settings, "affinity", "affinity"),
    }


def _certificate_volume(settings: InstallSettings) -> list[Object]:
    if not (settings.metrics_secure and settings.metrics_certificate):
        return []
    return [{"name": "metrics-certificate", "secret": {"secretName": settings.metrics_certificate}}]


def _serves_webhooks(settings: InstallSettings, account: str) -> bool:
    return WEBHOOKS in settings.roles and account == settings.account(WEBHOOKS)


def _serves_dashboard(settings: InstallSettings, account: str) -> bool:
    return settings.dashboard_shared and account == NAME


def _webhook_volumes(settings: InstallSettings, account: str) -> list[Object]:
    return cert_manager.volumes(settings) if _serves_webhooks(settings, account) else []


def _container(settings: InstallSettings, account: str) -> Object:
    pages = [{"name": DASHBOARD, "containerPort": DASHBOARD_PORT}]
    return {
        "name": NAME,
        "image": settings.image,
        **optional(settings, "imagePullPolicy", "image.pullPolicy"),
        "args": arguments(settings, account),
        "ports": [
            {"name": "health", "containerPort": HEALTH_PORT},
            {"name": "webhooks", "containerPort": WEBHOOK_PORT},
            *([{"name": "metrics", "containerPort": METRICS_PORT}] if settings.metrics_secure else []),
            *(pages if _serves_dashboard(settings, account) else []),
        ],
        "livenessProbe": probe("/healthz", initialDelaySeconds=10, periodSeconds=20, failureThreshold=3),
        # A standby replica counts as ready: a rolling update must not wait until it is the leader.
        "readinessProbe": probe("/readyz?exclude=leader", periodSeconds=5, failureThreshold=3),
        **optional(settings, "resources", "resources"),
        **optional(settings, "env", "extraEnv"),
        "securityContext": RESTRICTED,
        "volumeMounts": [
            {"name": "journal", "mountPath": JOURNAL},
            {"name": "tmp", "mountPath": "/tmp"},
            {"name": "configuration", "mountPath": CONFIG_FOLDER, "readOnly": True},
            *(
                {"name": volume["name"], "mountPath": CERTIFICATE_FOLDER, "readOnly": True}
                for volume in _certificate_volume(settings)
            ),
            *(
                {"name": volume["name"], "mountPath": cert_manager.FOLDER, "readOnly": True}
                for volume in _webhook_volumes(settings, account)
            ),
        ],
    }


def probe(path: str, **times: int) -> Object:
    """A probe of the health port."""
    return {"httpGet": {"path": path, "port": "health"}, "timeoutSeconds": 5, **times}


def _spread(key: str, chosen: Object) -> Object:
    return {
        "maxSkew": 1,
        "topologyKey": key,
        "whenUnsatisfiable": "ScheduleAnyway",
        "labelSelector": {"matchLabels": chosen},
    }
