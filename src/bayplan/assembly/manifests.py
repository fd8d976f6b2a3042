"""Everything that runs Bayplan in a cluster, as API objects: source of `bayplan install` and of the chart."""

from __future__ import annotations

from typing import Any

from bayplan.assembly.admission_policies import OWN_JOBS, OWN_PODS, PROTECTED, account_name, policies
from bayplan.assembly.crds import conversion, converted
from bayplan.assembly.install_settings import (
    ALL_ROLES,
    CHOSEN,
    CONFIG_FILE,
    CONFIG_MAP,
    DEFAULTS_ROLE,
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
    made,
    made_clusterwide,
)
from bayplan.assembly.rbac import (
    ASKING_WHO_MAY,
    EVERYBODY,
    READING_METRICS,
    ROLES,
    RbacRule,
    reading_defaults,
    rules,
)
from bayplan.assembly.replicas import of_account, selector, service
from bayplan.assembly.webhook_configurations import CONDITIONS, configurations
from bayplan.assembly.webhooks import AUTHORITY_NAME, SECRET_NAME, SERVICE
from bayplan.backends.definitions import definitions, is_of_groups
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
    "common",
    "custom_resources",
    "manifests",
    "namespace",
    "of_role",
    "webhook_configurations",
]

Object = dict[str, Any]
_RBAC = "rbac.authorization.k8s.io"


def manifests(settings: InstallSettings) -> list[Object]:
    """Every object, in the order in which they can be created."""
    return [
        *custom_resources(settings),
        namespace(settings),
        *common(settings),
        *(one for role in settings.roles for one in of_role(role, settings)),
    ]


def custom_resources(settings: InstallSettings) -> list[Object]:
    """The definitions. Those whose versions differ need our webhook to be served in more than one.

    Those of pod groups come with their role: others have kinds of these names too, and what
    `kubectl get topologies` means should change for nobody else.
    """
    found = []
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
        found.append({**one, "metadata": {**one["metadata"], "labels": labels}, "spec": spec})
    return found


def _only_stored(version: Object) -> Object:
    return version if version.get("storage") else {**version, "served": False}


def namespace(settings: InstallSettings) -> Object:
    """The namespace, in which nothing may run with more rights than we have."""
    labels = {**LABELS, "pod-security.kubernetes.io/enforce": "restricted"}
    return {
        "apiVersion": "v1",
        "kind": "Namespace",
        "metadata": {"name": settings.namespace, "labels": labels},
    }


def common(settings: InstallSettings) -> list[Object]:
    """What is there whatever the roles are."""
    return [
        *of_account(settings),
        *_metrics_access(settings, NAME),
        *([_metrics_reader()] if settings.metrics_secure else []),
        *_rbac(NAME, (), EVERYBODY.at_home, settings),
        made("v1", "ConfigMap", CONFIG_MAP, settings, data={CONFIG_FILE: settings.config}),
        *_policies(settings, OWN_PODS),
    ]


def of_role(role: str, settings: InstallSettings) -> list[Object]:
    """What one role adds."""
    account = settings.account(role)
    found: list[Object] = []
    if role in settings.apart:
        found += [*of_account(settings, account), *_metrics_access(settings, account)]
    found += _rbac(f"{NAME}-{role}", ROLES[role].everywhere, ROLES[role].at_home, settings, account=account)
    if role == PodGrouperController.name and settings.kind_defaults is not None:
        where, name = settings.kind_defaults
        found += _rbac(DEFAULTS_ROLE, (), (reading_defaults(name),), settings, where)
    if role == "admission":
        found += _policies(settings, PROTECTED, OWN_JOBS)
    if role == WEBHOOKS:
        found += [
            service(SERVICE, 443, "webhooks", settings, selector(account)),
            made("v1", "Secret", SECRET_NAME, settings, type="Opaque"),  # filled by the first replica
            made("v1", "Secret", AUTHORITY_NAME, settings, type="Opaque"),
            *webhook_configurations(settings),
        ]
    return found


def _metrics_access(settings: InstallSettings, account: str) -> list[Object]:
    """The right of the replicas under an account to ask the cluster who may read their metrics."""
    if not settings.metrics_secure:
        return []
    return _rbac(f"{account}-metrics", ASKING_WHO_MAY, (), settings, account=account)


def _metrics_reader() -> Object:
    """A role for those who read metrics; an administrator binds it to the account that scrapes."""
    return made_clusterwide(f"{_RBAC}/v1", "ClusterRole", METRICS_READER, rules=[READING_METRICS])


def webhook_configurations(settings: InstallSettings) -> list[Object]:
    """What the API server asks our webhooks."""
    return list(configurations(settings.namespace))


def _policies(settings: InstallSettings, *names: str) -> list[Object]:
    account = account_name(settings.namespace, NAME)
    return [
        made_clusterwide(one["apiVersion"], one["kind"], one["metadata"]["name"], spec=one["spec"])
        for one in policies(account, settings.trusted_list)
        if one["metadata"]["name"] in names
    ]


def _rbac(
    name: str, everywhere: tuple[RbacRule, ...], at_home: tuple[RbacRule, ...], settings: InstallSettings, home: str = "",
    account: str = NAME,
) -> list[Object]:  # fmt: skip
    subjects = [{"kind": "ServiceAccount", "name": account, "namespace": settings.namespace}]
    found = []
    for prefix, rights in (("Cluster", everywhere), ("", at_home)):
        if rights:
            role = {"apiGroup": _RBAC, "kind": f"{prefix}Role", "name": name}
            for kind, fields in (
                (f"{prefix}Role", {"rules": rules(rights)}),
                (f"{prefix}RoleBinding", {"roleRef": role, "subjects": subjects}),
            ):
                one = made(f"{_RBAC}/v1", kind, name, settings, **fields)
                if prefix:
                    del one["metadata"]["namespace"]
                elif home:
                    one["metadata"]["namespace"] = home
                found.append(one)
    return found
