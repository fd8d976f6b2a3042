"""The manifests of Bayplan: the API objects of `bayplan install` and of the Helm chart."""

from __future__ import annotations

from typing import Any

from bayplan.assembly.admission_policies import (
    OWN_JOBS,
    OWN_MOVES,
    PODS,
    account_name,
    policies,
)
from bayplan.assembly.cert_manager import certificate_objects, injected
from bayplan.assembly.crds import conversion, converted
from bayplan.assembly.dashboard_replica import dashboard_replica
from bayplan.assembly.install_settings import (
    ADMISSION,
    ALL_ROLES,
    CHOSEN,
    CONFIG_FILE,
    CONFIG_MAP,
    DASHBOARD_ACCOUNT,
    DASHBOARD_USER,
    DEFAULTS_ROLE,
    DEFRAGMENT,
    HEALTH_PORT,
    IMAGE,
    LABELS,
    METRICS_READER,
    NAME,
    NAMESPACE,
    SERVED_ROLES,
    WEBHOOK_PORT,
    WEBHOOKS,
    InstallSettings,
    new_cluster_object,
    new_object,
)
from bayplan.assembly.monitoring.objects import monitoring_objects
from bayplan.assembly.rbac import (
    AUTHORIZATION,
    COMMON_RULES,
    DASHBOARD_RULES,
    DASHBOARD_USER_RULES,
    METRICS_READER_RULE,
    ROLES,
    RbacRule,
    kind_defaults_rule,
    rules,
)
from bayplan.assembly.replicas import account_objects, selector, service
from bayplan.assembly.tunables import each, enabled, single
from bayplan.assembly.webhook_configurations import CONDITIONS, configurations
from bayplan.assembly.webhooks import AUTHORITY_NAME, SECRET_NAME, SERVICE
from bayplan.backends.crds import definitions, is_of_groups
from bayplan.runtime.controllers.pod_grouper.controller import PodGrouperController

__all__ = [
    "ALL_ROLES",
    "CHOSEN",
    "CONDITIONS",
    "CONFIG_MAP",
    "HEALTH_PORT",
    "IMAGE",
    "LABELS",
    "NAMESPACE",
    "SERVED_ROLES",
    "WEBHOOK_PORT",
    "InstallSettings",
    "common_objects",
    "custom_resources",
    "dashboard_objects",
    "manifests",
    "namespace",
    "role_objects",
    "webhook_configurations",
]

Object = dict[str, Any]
_RBAC = "rbac.authorization.k8s.io"


def manifests(settings: InstallSettings) -> list[Object]:
    """Every object, in the order in which they can be created."""
    return [
        *custom_resources(settings),
        namespace(settings),
        *common_objects(settings),
        *(one for role in settings.roles for one in role_objects(role, settings)),
        *(dashboard_objects(settings) if enabled(settings, "dashboard.enabled") else []),
    ]


def custom_resources(settings: InstallSettings) -> list[Object]:
    """The CRDs. Kinds whose versions differ are served in several versions only with the conversion webhook.

    The CRDs of the KAI API come with the role grouper: the Kueue API has a kind Topology too, and
    `kubectl get topologies` must not become ambiguous for other users.
    """
    crds = []
    for one in definitions():
        spec = one["spec"]
        if is_of_groups(one) and PodGrouperController.name not in settings.roles:
            continue
        if one["metadata"]["name"] in converted():
            if "webhooks" in settings.roles:
                spec = {**spec, "conversion": conversion(settings.namespace)}
            else:
                spec = {**spec, "versions": [_only_stored(version) for version in spec["versions"]]}
        labels = {**one["metadata"].get("labels", {}), **LABELS}
        made = {**one, "metadata": {**one["metadata"], "labels": labels}, "spec": spec}
        is_converted = (spec.get("conversion") or {}).get("strategy") == "Webhook"
        crds.append(injected(settings, made) if is_converted else made)
    return crds


def _only_stored(version: Object) -> Object:
    return version if version.get("storage") else {**version, "served": False}


def namespace(settings: InstallSettings) -> Object:
    """The namespace, with the restricted Pod Security Standard."""
    labels = {**LABELS, "pod-security.kubernetes.io/enforce": "restricted"}
    return {
        "apiVersion": "v1",
        "kind": "Namespace",
        "metadata": {"name": settings.namespace, "labels": labels},
    }


def common_objects(settings: InstallSettings) -> list[Object]:
    """The objects that do not depend on the roles."""
    return [
        *account_objects(settings),
        *_metrics_access(settings, NAME),
        *([_metrics_reader()] if settings.metrics_secure else []),
        *_rbac(NAME, (), COMMON_RULES.namespaced, settings),
        new_object("v1", "ConfigMap", CONFIG_MAP, settings, data={CONFIG_FILE: settings.config}),
        *_policies(settings, PODS, OWN_JOBS),
        *monitoring_objects(settings),
    ]


def role_objects(role: str, settings: InstallSettings) -> list[Object]:
    """The objects of one role."""
    account = settings.account(role)
    objects: list[Object] = []
    if role in settings.separate_roles:
        objects += [*account_objects(settings, account), *_metrics_access(settings, account)]
    objects += _rbac(
        f"{NAME}-{role}", ROLES[role].clusterwide, ROLES[role].namespaced, settings, account=account
    )
    if role == PodGrouperController.name and settings.kind_defaults is not None:
        where, name = settings.kind_defaults
        objects += _rbac(DEFAULTS_ROLE, (), (kind_defaults_rule(name),), settings, where)
    if role == DEFRAGMENT:
        objects += _policies(settings, OWN_MOVES)
    if role == WEBHOOKS:
        objects += [
            service(SERVICE, 443, "webhooks", settings, selector(account)),
            *(certificate_objects(settings) if settings.cert_manager else _own_secrets(settings)),
            *webhook_configurations(settings),
        ]
    return objects


def _own_secrets(settings: InstallSettings) -> list[Object]:
    """The Secrets of our own authority; the first replica writes their data."""
    names = (SECRET_NAME, AUTHORITY_NAME)
    return [new_object("v1", "Secret", name, settings, type="Opaque") for name in names]


def dashboard_objects(settings: InstallSettings) -> list[Object]:
    """The dashboard, the ClusterRole of its users, and an account that may only read.

    In the main Deployment it has the account of the replicas.
    """
    user = list(DASHBOARD_USER_RULES)
    account = NAME if settings.dashboard_shared else DASHBOARD_ACCOUNT
    return [
        *dashboard_replica(settings),
        *_rbac(DASHBOARD_ACCOUNT, DASHBOARD_RULES, (), settings, account=account),
        new_cluster_object(f"{_RBAC}/v1", "ClusterRole", DASHBOARD_USER, rules=user),
    ]


def _metrics_access(settings: InstallSettings, account: str) -> list[Object]:
    """RBAC for the replicas of an account to authorize clients of their metrics."""
    if not settings.metrics_secure:
        return []
    return _rbac(f"{account}-metrics", AUTHORIZATION, (), settings, account=account)


def _metrics_reader() -> Object:
    """The ClusterRole of metrics clients; an administrator binds it to the account of Prometheus."""
    return new_cluster_object(f"{_RBAC}/v1", "ClusterRole", METRICS_READER, rules=[METRICS_READER_RULE])


def webhook_configurations(settings: InstallSettings) -> list[Object]:
    """The webhook configurations."""
    made = configurations(
        settings.namespace,
        single(settings, "webhooks.failurePolicy"),
        each(settings, "webhooks.excludedNamespaces"),
    )
    return [injected(settings, one) for one in made]


def _policies(settings: InstallSettings, *names: str) -> list[Object]:
    account = account_name(settings.namespace, NAME)
    return [
        new_cluster_object(one["apiVersion"], one["kind"], one["metadata"]["name"], spec=one["spec"])
        for one in policies(account, settings.trusted_list, ADMISSION in settings.roles)
        if one["metadata"]["name"] in names
    ]


def _rbac(
    name: str, cluster_rules: tuple[RbacRule, ...], namespace_rules: tuple[RbacRule, ...],
    settings: InstallSettings, namespace: str = "", account: str = NAME,
) -> list[Object]:  # fmt: skip
    subjects = [{"kind": "ServiceAccount", "name": account, "namespace": settings.namespace}]
    objects = []
    for prefix, granted in (("Cluster", cluster_rules), ("", namespace_rules)):
        if granted:
            role = {"apiGroup": _RBAC, "kind": f"{prefix}Role", "name": name}
            for kind, fields in (
                (f"{prefix}Role", {"rules": rules(granted)}),
                (f"{prefix}RoleBinding", {"roleRef": role, "subjects": subjects}),
            ):
                one = new_object(f"{_RBAC}/v1", kind, name, settings, **fields)
                if prefix:
                    del one["metadata"]["namespace"]
                elif namespace:
                    one["metadata"]["namespace"] = namespace
                objects.append(one)
    return objects
