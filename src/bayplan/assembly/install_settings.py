"""The options of an installation, and its fixed names and ports."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from bayplan import __version__
from bayplan.assembly.admission_policies import ADMINISTRATORS
from bayplan.assembly.rbac import ROLES
from bayplan.configuration.settings import EMPTY, kind_defaults
from bayplan.runtime.controllers.pod_grouper.controller import PodGrouperController

Object = dict[str, Any]

NAME = "bayplan"
NAMESPACE = "bayplan-system"
IMAGE = f"bayplan:{__version__}"
ALL_ROLES = tuple(ROLES)
"""All roles of replicas."""
ADMISSION, DEFRAGMENT = "admission", "defragment"
SERVED_ROLES = tuple(role for role in ROLES if role not in (PodGrouperController.name, DEFRAGMENT))
"""The default roles: the grouper is only needed for the KAI API, and gangs are moved only on demand."""
HEALTH_PORT = 8081
WEBHOOK_PORT = 9443
METRICS_PORT = 8443
"""The port of metrics over HTTPS."""
JOURNAL = "/var/lib/bayplan"
CONFIG_MAP = f"{NAME}-configuration"
CONFIG_FOLDER, CONFIG_FILE = "/etc/bayplan", "configuration.yaml"
CERTIFICATE_FOLDER = "/etc/bayplan-metrics"
"""The mount path of the Secret with the certificate of metrics."""
METRICS_READER = f"{NAME}-metrics-reader"
DEFAULTS_ROLE = f"{NAME}-{PodGrouperController.name}-defaults"
CONFIG_DIGEST = "bayplan.dev/configuration-digest"
"""An annotation of the pods, so that a changed configuration triggers a rolling update."""
USER = 65532
WEBHOOKS = "webhooks"
WEBHOOK_ACCOUNT = f"{NAME}-{WEBHOOKS}"
"""The service account of replicas with the role webhooks only."""
DASHBOARD = "dashboard"
"""A role, and the name of its port."""
DASHBOARD_ACCOUNT = f"{NAME}-{DASHBOARD}"
"""The service account of the dashboard."""
DASHBOARD_USER = f"{NAME}-dashboard-user"
DASHBOARD_PORT = 7080
CHOSEN = {"app.kubernetes.io/name": NAME}
LABELS = {**CHOSEN, "app.kubernetes.io/part-of": NAME}


@dataclass(frozen=True, slots=True)
class InstallSettings:
    """The options of an installation. The Helm chart uses placeholders as values."""

    namespace: str = NAMESPACE
    image: str = IMAGE
    roles: tuple[str, ...] = SERVED_ROLES
    replicas: int | str = 2
    config: str = EMPTY  # the text of a configuration
    roles_text: str = ""  # overrides --roles of the command line
    digest_text: str = ""  # overrides the digest of the configuration
    defaults_text: tuple[str, str] | None = None  # overrides the ConfigMap that the configuration names
    separate: bool = False  # the webhooks have their own Deployment and service account
    trusted: tuple[str, ...] = (ADMINISTRATORS,)  # groups that may change protected fields of pods
    network_policy: bool = True
    metrics_from: tuple[str, ...] = ()  # namespaces whose pods may read metrics; empty: all
    metrics_secure: bool = False  # metrics over HTTPS, with authorization
    metrics_certificate: str = ""  # the Secret with its certificate; empty: self-signed
    cert_manager: bool = False  # cert-manager makes the certificate of the webhooks
    dashboard_shared: bool = False  # the dashboard runs in the main Deployment, which has the journal
    trusted_text: str = ""  # overrides `trusted`, as a CEL list
    metrics_peers: str | None = None  # overrides `metrics_from`, as NetworkPolicy peers
    values: Mapping[str, Any] = field(default_factory=dict)  # values of the chart that have no field here
    templated: bool = False  # made for the chart: values are actions of a template

    @property
    def role_list(self) -> str:
        """The roles of the main Deployment, as in --roles."""
        roles = self.roles_text or ",".join(role for role in self.roles if role not in self.separate_roles)
        return f"{roles},{DASHBOARD}" if self.dashboard_shared else roles

    @property
    def separate_roles(self) -> tuple[str, ...]:
        """The roles that have their own Deployment."""
        return (WEBHOOKS,) if self.separate and set(self.roles) > {WEBHOOKS} else ()

    @property
    def trusted_list(self) -> str:
        """The trusted groups as a CEL list."""
        return self.trusted_text or json.dumps(self.trusted)

    def account(self, role: str = "") -> str:
        """The service account of a role."""
        return WEBHOOK_ACCOUNT if role in self.separate_roles else NAME

    @property
    def digest(self) -> str:
        return self.digest_text or hashlib.sha256(self.config.encode()).hexdigest()

    @property
    def kind_defaults(self) -> tuple[str, str] | None:
        """The namespace and name of the ConfigMap with defaults by kind, which the grouper reads."""
        return self.defaults_text or kind_defaults(self.config)


def new_object(version: str, kind: str, name: str, settings: InstallSettings, **fields: Any) -> Object:
    """An object in the namespace of Bayplan, with its labels."""
    metadata = {"name": name, "namespace": settings.namespace, "labels": dict(LABELS)}
    return {"apiVersion": version, "kind": kind, "metadata": metadata, **fields}


def new_cluster_object(version: str, kind: str, name: str, **fields: Any) -> Object:
    """A cluster-scoped object with the labels of Bayplan."""
    return {"apiVersion": version, "kind": kind, "metadata": {"name": name, "labels": dict(LABELS)}, **fields}
