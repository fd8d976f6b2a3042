"""The values of the Helm chart, which `bayplan install --values` reads too: defaults and schema."""

from __future__ import annotations

from collections.abc import Mapping
from textwrap import indent
from typing import Any

from bayplan.assembly.install_settings import ALL_ROLES, SERVED_ROLES
from bayplan.configuration.settings import EMPTY
from bayplan.dialects.kube.fields.bounded_yaml import bounded_yaml

VALUES = f"""
# The image of every replica: REPOSITORY:TAG, or REPOSITORY@DIGEST if a digest is given. The default tag is
# the version of the chart.
image:
  repository: bayplan
  tag: ""
  digest: ""
  pullPolicy: IfNotPresent
  pullSecrets: []

# One replica is the leader, the others stand by.
replicas: 2

# Whether to install the CRDs that the role webhooks converts, and those of the role grouper; for the others,
# helm has --skip-crds.
crds: true

# The roles of the replicas; each adds the RBAC rules it needs. Known: {", ".join(ALL_ROLES)}.
roles:
{"".join(f"  - {role}{chr(10)}" for role in SERVED_ROLES)}
# Where the webhooks run: "shared" with the other roles, or "separate", in their own Deployment with a service
# account that has fewer RBAC rules. failurePolicy is what happens to jobs that name a queue and to Bayplan's
# own objects while no replica answers: with "Ignore" they are accepted unchecked, and jobs may start without
# quota. Objects in excludedNamespaces are never sent to the webhooks, nor those in kube-system and in the
# namespace of the release.
webhooks:
  deployment: shared
  failurePolicy: Fail
  excludedNamespaces: []
  # cert-manager makes the certificate instead of Bayplan's own authority: with this issuer, as issuerRef of a
  # Certificate has it (name, kind, group), or if that is empty with an Issuer that signs it with its own key.
  certManager:
    enabled: false
    issuer: {{}}

# The pods of the replicas.
resources:
  requests:
    cpu: 500m
    memory: 512Mi
  limits:
    memory: 2Gi
priorityClassName: system-cluster-critical
nodeSelector: {{}}
tolerations: []
affinity: {{}}
# Empty: spread over hosts, if possible.
topologySpreadConstraints: []
podLabels: {{}}
podAnnotations: {{}}
# More arguments of `bayplan run`, and environment variables as in a container.
extraArgs: []
extraEnv: []

serviceAccount:
  annotations: {{}}

podDisruptionBudget:
  enabled: true
  maxUnavailable: 1

# Groups whose users may remove scheduling gates and change labels of Bayplan, to repair a cluster by hand.
trustedGroups:
  - system:masters

# The NetworkPolicy of the replicas; pods of the namespaces metricsFrom (empty: all) can read metrics.
networkPolicy:
  enabled: true
  metricsFrom: []

# Metrics are served over HTTP to every client that reaches the port, or, if "secure", over HTTPS to clients
# that RBAC allows to get /metrics. The certificate is self-signed, or that of a TLS Secret in the namespace
# of the release. The ServiceMonitor is for the Prometheus operator.
metrics:
  secure: false
  certificateSecret: ""
  serviceMonitor:
    enabled: false
    interval: 30s
    labels: {{}}
  # Alert rules for the Prometheus operator, and dashboards in a ConfigMap for the sidecar of Grafana, which
  # finds it by its labels. What each alert means: docs/guide/monitoring.md.
  prometheusRule:
    enabled: false
    labels: {{}}
  grafanaDashboards:
    enabled: false
    labels:
      grafana_dashboard: "1"

# Pages that show the cluster. Where they run: "separate", in their own Deployment, whose account may only
# read, or "shared" with the other roles, where the view Time reads the journal of the replica; resources are
# then those of the replicas. Users sign in with a token of the cluster; bind them to the ClusterRole
# bayplan-dashboard-user, and they see the namespaces that they may list. Tokens travel in a header: let the
# Ingress (tls), or another proxy, serve it over HTTPS.
dashboard:
  enabled: false
  deployment: separate
  resources:
    requests:
      cpu: 250m
      memory: 512Mi
    limits:
      memory: 2Gi
  ingress:
    enabled: false
    className: ""
    host: ""
    tls: []
    annotations: {{}}

# The Bayplan configuration as text, see docs/reference/configuration.md; read it from a file with
# --set-file config=FILE. A change triggers a rolling update.
config: |
{indent(EMPTY, "  ")}"""
DEFAULTS: Mapping[str, Any] = bounded_yaml(VALUES)

_TEXT = {"type": "string"}
_FLAG = {"type": "boolean"}
_TEXTS = {"type": "array", "items": _TEXT}
_MAP = {"type": "object", "additionalProperties": _TEXT}
_OBJECTS = {"type": "array", "items": {"type": "object"}}
_AMOUNTS = {"type": "object", "additionalProperties": {"type": ["string", "number"]}}


def _object(**properties: Any) -> dict[str, Any]:
    return {"type": "object", "additionalProperties": False, "properties": properties}


SCHEMA: Mapping[str, Any] = {
    "$schema": "http://json-schema.org/draft-07/schema#",
    "title": "Values of the Bayplan chart",
    **_object(
        image=_object(
            repository={"type": "string", "minLength": 1},
            tag=_TEXT,
            digest={"type": "string", "pattern": "^(sha256:[0-9a-f]{64})?$"},
            pullPolicy={"enum": ["Always", "IfNotPresent", "Never"]},
            pullSecrets={"type": "array", "items": _object(name=_TEXT)},
        ),
        replicas={"type": "integer", "minimum": 1},
        crds=_FLAG,
        roles={"type": "array", "minItems": 1, "uniqueItems": True, "items": {"enum": list(ALL_ROLES)}},
        webhooks=_object(
            deployment={"enum": ["shared", "separate"]},
            failurePolicy={"enum": ["Fail", "Ignore"]},
            excludedNamespaces=_TEXTS,
            certManager=_object(enabled=_FLAG, issuer=_MAP),
        ),
        resources=_object(requests=_AMOUNTS, limits=_AMOUNTS, claims=_OBJECTS),
        priorityClassName=_TEXT,
        nodeSelector=_MAP,
        tolerations=_OBJECTS,
        affinity={"type": "object"},
        topologySpreadConstraints=_OBJECTS,
        podLabels=_MAP,
        podAnnotations=_MAP,
        extraArgs=_TEXTS,
        extraEnv=_OBJECTS,
        serviceAccount=_object(annotations=_MAP),
        podDisruptionBudget=_object(enabled=_FLAG, maxUnavailable={"type": ["integer", "string"]}),
        trustedGroups=_TEXTS,
        networkPolicy=_object(enabled=_FLAG, metricsFrom=_TEXTS),
        metrics=_object(
            secure=_FLAG,
            certificateSecret=_TEXT,
            serviceMonitor=_object(enabled=_FLAG, interval=_TEXT, labels=_MAP),
            prometheusRule=_object(enabled=_FLAG, labels=_MAP),
            grafanaDashboards=_object(enabled=_FLAG, labels=_MAP),
        ),
        dashboard=_object(
            enabled=_FLAG,
            deployment={"enum": ["separate", "shared"]},
            resources=_object(requests=_AMOUNTS, limits=_AMOUNTS),
            ingress=_object(enabled=_FLAG, className=_TEXT, host=_TEXT, tls=_OBJECTS, annotations=_MAP),
        ),
        config=_TEXT,
        **{"global": {"type": "object"}},  # helm adds it to the values of every chart
    ),
}
"""A JSON schema: helm refuses values that do not fit it, and so does `bayplan install --values`."""


def found(values: Mapping[str, Any], path: str) -> Any:
    """The value at a path such as `image.tag`; None if there is none."""
    at: Any = values
    for name in path.split("."):
        if not isinstance(at, Mapping) or name not in at:
            return None
        at = at[name]
    return at


def value(values: Mapping[str, Any], path: str) -> Any:
    """The value at a path, or its default. As in helm, an object replaces single keys of the default."""
    default, given = found(DEFAULTS, path), found(values, path)
    if isinstance(default, Mapping) and isinstance(given, Mapping):
        return _without_nulls({**default, **given})
    return default if given is None else given


def _without_nulls(values: Mapping[str, Any]) -> dict[str, Any]:
    return {name: one for name, one in values.items() if one is not None}
