"""What can be chosen when Bayplan is installed, and the names and ports that are always the same."""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass
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
"""What replicas can do."""
SERVED_ROLES = tuple(role for role in ROLES if role != PodGrouperController.name)
"""What they do by default: who has no pod groups sees nothing of them."""
HEALTH_PORT = 8081
WEBHOOK_PORT = 9443
METRICS_PORT = 8443
"""Of metrics over HTTPS, if they are asked for."""
JOURNAL = "/var/lib/bayplan"
CONFIG_MAP = f"{NAME}-configuration"
CONFIG_FOLDER, CONFIG_FILE = "/etc/bayplan", "configuration.yaml"
CERTIFICATE_FOLDER = "/etc/bayplan-metrics"
"""Where the Secret with the certificate for metrics is mounted."""
METRICS_READER = f"{NAME}-metrics-reader"
DEFAULTS_ROLE = f"{NAME}-{PodGrouperController.name}-defaults"
CONFIG_DIGEST = "bayplan.dev/configuration-digest"
"""On the pods: another configuration makes other pods."""
USER = 65532
WEBHOOKS = "webhooks"
WEBHOOK_ACCOUNT = f"{NAME}-{WEBHOOKS}"
"""Of replicas that do nothing but answer the API server's questions."""
CHOSEN = {"app.kubernetes.io/name": NAME}
LABELS = {**CHOSEN, "app.kubernetes.io/part-of": NAME}


@dataclass(frozen=True, slots=True)
class InstallSettings:
    """What can be chosen. The chart fills them with its own placeholders."""

    namespace: str = NAMESPACE
    image: str = IMAGE
    roles: tuple[str, ...] = SERVED_ROLES
    replicas: int | str = 2
    config: str = EMPTY  # the text of a configuration
    roles_text: str = ""  # for the command line, if not simply the roles
    digest_text: str = ""  # of the configuration, if not to be computed
    defaults_text: tuple[str, str] | None = None  # the ConfigMap it names, if not to be read out of it
    separate: bool = False  # the webhooks run in a Deployment of their own, under an account of their own
    trusted: tuple[str, ...] = (ADMINISTRATORS,)  # groups that may change pods by hand
    network_policy: bool = True
    metrics_from: tuple[str, ...] = ()  # namespaces whose pods may read metrics; none: all namespaces
    metrics_secure: bool = False  # metrics over HTTPS, to tokens that may read them
    metrics_certificate: str = ""  # a Secret with the certificate for that; none: a self-signed one
    trusted_text: str = ""  # the groups as a CEL list, if not simply these
    metrics_peers: str | None = None  # the peers of the metrics port, if not simply these namespaces

    @property
    def role_list(self) -> str:
        """What the replicas of the first Deployment do, as the command line has it."""
        return self.roles_text or ",".join(role for role in self.roles if role not in self.apart)

    @property
    def apart(self) -> tuple[str, ...]:
        """The roles that have a Deployment of their own."""
        return (WEBHOOKS,) if self.separate and set(self.roles) > {WEBHOOKS} else ()

    @property
    def trusted_list(self) -> str:
        """The trusted groups as a CEL list."""
        return self.trusted_text or json.dumps(self.trusted)

    def account(self, role: str = "") -> str:
        """The service account that a role runs under."""
        return WEBHOOK_ACCOUNT if role in self.apart else NAME

    @property
    def digest(self) -> str:
        return self.digest_text or hashlib.sha256(self.config.encode()).hexdigest()

    @property
    def kind_defaults(self) -> tuple[str, str] | None:
        """The ConfigMap with defaults by kind, which the grouper may read: its namespace and name."""
        return self.defaults_text or kind_defaults(self.config)


def made(version: str, kind: str, name: str, settings: InstallSettings, **fields: Any) -> Object:
    """An object of ours in our namespace."""
    metadata = {"name": name, "namespace": settings.namespace, "labels": dict(LABELS)}
    return {"apiVersion": version, "kind": kind, "metadata": metadata, **fields}


def made_clusterwide(version: str, kind: str, name: str, **fields: Any) -> Object:
    """An object of ours that belongs to no namespace."""
    return {"apiVersion": version, "kind": kind, "metadata": {"name": name, "labels": dict(LABELS)}, **fields}
