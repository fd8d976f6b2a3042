"""Everything that runs Bayplan in a cluster, as API objects: source of `bayplan install` and of the chart."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from bayplan import __version__
from bayplan.backends.definitions import definitions, is_of_groups
from bayplan.cli.configured import EMPTY, kind_defaults
from bayplan.cli.definitions import conversion, converted
from bayplan.cli.rights import EVERYBODY, ROLES, Right, reading_defaults, rules
from bayplan.cli.webhooks import CONFIGURATION, REVIEWED_AS, SECRET_NAME, SERVICE, hook_name, registry
from bayplan.dialects.kai.grouper_serving import SET_NAME
from bayplan.dialects.kai.names import SEGMENT_SIZE
from bayplan.dialects.kueue.admission import QUEUED, STATUS
from bayplan.dialects.kueue.annotations import QUEUE, SUSPENDED_BY
from bayplan.dialects.kueue.scheduled import SCHEDULER
from bayplan.runtime.grouper_role import GrouperRole

Object = dict[str, Any]

NAME = "bayplan"
NAMESPACE = "bayplan-system"
IMAGE = f"bayplan:{__version__}"
ALL_ROLES = tuple(ROLES)
"""What replicas can do."""
SERVED_ROLES = tuple(role for role in ROLES if role != GrouperRole.name)
"""What they do by default: who has no pod groups sees nothing of them."""
HEALTH_PORT = 8081
WEBHOOK_PORT = 9443
JOURNAL = "/var/lib/bayplan"
CONFIG_MAP = f"{NAME}-configuration"
CONFIG_FOLDER, CONFIG_FILE = "/etc/bayplan", "configuration.yaml"
DEFAULTS_ROLE = f"{NAME}-{GrouperRole.name}-defaults"
CONFIG_DIGEST = "bayplan.dev/configuration-digest"
"""On the pods: another configuration makes other pods."""
USER = 65532
CHOSEN = {"app.kubernetes.io/name": NAME}
LABELS = {**CHOSEN, "app.kubernetes.io/part-of": NAME}

# A write that the API server sends us: only what names a queue, or us as its scheduler.
_QUEUED = (
    "[object, oldObject].exists(one, one != null && has(one.metadata.labels) && "
    f"'{QUEUE}' in one.metadata.labels)"
)
_HELD_BACK = (  # a pod whose owner names a queue
    f"object != null && has(object.metadata.annotations) && '{SUSPENDED_BY}' in object.metadata.annotations"
)
_UNQUEUED = f"!(has(object.metadata.labels) && '{QUEUE}' in object.metadata.labels)"
_UNOWNED = "!has(object.metadata.ownerReferences)"
_JOB = f"object.spec.template.spec.schedulerName == '{SCHEDULER}'"
_JOB_SET = (
    "object.spec.replicatedJobs.exists(job, has(job.template.spec.template.spec.schedulerName) && "
    f"job.template.spec.template.spec.schedulerName == '{SCHEDULER}')"
)
CONDITIONS = {
    **dict.fromkeys(QUEUED, _QUEUED),
    ("", "pods"): f"{_QUEUED} || {_HELD_BACK}",
    ("batch", "jobs"): f"{_QUEUED} || {_JOB}",
    ("jobset.x-k8s.io", "jobsets"): f"{_QUEUED} || {_JOB_SET}",
    STATUS: "!request.userInfo.username.startsWith('system:serviceaccount:NAMESPACE:')",
}


@dataclass(frozen=True, slots=True)
class Settings:
    """What can be chosen. The chart fills them with its own placeholders."""

    namespace: str = NAMESPACE
    image: str = IMAGE
    roles: tuple[str, ...] = SERVED_ROLES
    replicas: int | str = 2
    config: str = EMPTY  # the text of a configuration
    roles_text: str = ""  # for the command line, if not simply the roles
    digest_text: str = ""  # of the configuration, if not to be computed
    defaults_text: tuple[str, str] | None = None  # the ConfigMap it names, if not to be read out of it

    @property
    def role_list(self) -> str:
        return self.roles_text or ",".join(self.roles)

    @property
    def digest(self) -> str:
        return self.digest_text or hashlib.sha256(self.config.encode()).hexdigest()

    @property
    def kind_defaults(self) -> tuple[str, str] | None:
        """The ConfigMap with defaults by kind, which the grouper may read: its namespace and name."""
        return self.defaults_text or kind_defaults(self.config)


def manifests(settings: Settings) -> list[Object]:
    """Every object, in the order in which they can be created."""
    return [
        *custom_resources(settings),
        namespace(settings),
        *common(settings),
        *(one for role in settings.roles for one in of_role(role, settings)),
    ]


def custom_resources(settings: Settings) -> list[Object]:
    """The definitions. Those whose versions differ need our webhook to be served in more than one.

    Those of pod groups come with their role: others have kinds of these names too, and what
    `kubectl get topologies` means should change for nobody else.
    """
    found = []
    for one in definitions():
        spec = one["spec"]
        if is_of_groups(one) and GrouperRole.name not in settings.roles:
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


def namespace(settings: Settings) -> Object:
    """The namespace, in which nothing may run with more rights than we have."""
    labels = {**LABELS, "pod-security.kubernetes.io/enforce": "restricted"}
    return {
        "apiVersion": "v1",
        "kind": "Namespace",
        "metadata": {"name": settings.namespace, "labels": labels},
    }


def common(settings: Settings) -> list[Object]:
    """What is there whatever the roles are."""
    return [
        _object("v1", "ServiceAccount", NAME, settings),
        *_rbac(NAME, (), EVERYBODY.at_home, settings),
        _object("v1", "ConfigMap", CONFIG_MAP, settings, data={CONFIG_FILE: settings.config}),
        _deployment(settings),
        _object(
            "policy/v1",
            "PodDisruptionBudget",
            NAME,
            settings,
            spec={"maxUnavailable": 1, "selector": {"matchLabels": CHOSEN}},
        ),
        _service(f"{NAME}-metrics", HEALTH_PORT, "health", settings),
    ]


def of_role(role: str, settings: Settings) -> list[Object]:
    """What one role adds."""
    found = _rbac(f"{NAME}-{role}", ROLES[role].everywhere, ROLES[role].at_home, settings)
    if role == GrouperRole.name and settings.kind_defaults is not None:
        where, name = settings.kind_defaults
        found += _rbac(DEFAULTS_ROLE, (), (reading_defaults(name),), settings, where)
    if role == "webhooks":
        found += [
            _service(SERVICE, 443, "webhooks", settings),
            _object("v1", "Secret", SECRET_NAME, settings, type="Opaque"),  # filled by the first replica
            *webhook_configurations(settings),
        ]
    return found


def _rbac(
    name: str, everywhere: tuple[Right, ...], at_home: tuple[Right, ...], settings: Settings, home: str = ""
) -> list[Object]:
    subjects = [{"kind": "ServiceAccount", "name": NAME, "namespace": settings.namespace}]
    found = []
    for prefix, rights in (("Cluster", everywhere), ("", at_home)):
        if rights:
            role = {"apiGroup": "rbac.authorization.k8s.io", "kind": f"{prefix}Role", "name": name}
            for kind, fields in (
                (f"{prefix}Role", {"rules": rules(rights)}),
                (f"{prefix}RoleBinding", {"roleRef": role, "subjects": subjects}),
            ):
                made = _object("rbac.authorization.k8s.io/v1", kind, name, settings, **fields)
                if prefix:
                    del made["metadata"]["namespace"]
                elif home:
                    made["metadata"]["namespace"] = home
                found.append(made)
    return found


def arguments(settings: Settings) -> list[str]:
    """The command line of a replica."""
    return [
        "run",
        f"--roles={settings.role_list}",
        f"--namespace={settings.namespace}",
        f"--listen=0.0.0.0:{HEALTH_PORT}",
        f"--webhook-listen=0.0.0.0:{WEBHOOK_PORT}",
        f"--journal={JOURNAL}",
        f"--config={CONFIG_FOLDER}/{CONFIG_FILE}",
        "--log-format=json",
    ]


def _deployment(settings: Settings) -> Object:
    template = {
        "metadata": {
            "labels": {**LABELS, "app.kubernetes.io/version": __version__},
            "annotations": {CONFIG_DIGEST: settings.digest},
        },
        "spec": {
            "serviceAccountName": NAME,
            "priorityClassName": "system-cluster-critical",
            "terminationGracePeriodSeconds": 30,
            "securityContext": {
                "runAsNonRoot": True,
                "runAsUser": USER,
                "runAsGroup": USER,
                "fsGroup": USER,
                "seccompProfile": {"type": "RuntimeDefault"},
            },
            "topologySpreadConstraints": [_apart("kubernetes.io/hostname")],
            "containers": [_container(settings)],
            "volumes": [
                {"name": "journal", "emptyDir": {"sizeLimit": "1Gi"}},
                {"name": "tmp", "emptyDir": {"sizeLimit": "16Mi"}},
                {"name": "configuration", "configMap": {"name": CONFIG_MAP}},
            ],
        },
    }
    spec = {
        "replicas": settings.replicas,
        "selector": {"matchLabels": CHOSEN},
        "strategy": {"type": "RollingUpdate", "rollingUpdate": {"maxUnavailable": 1, "maxSurge": 1}},
        "template": template,
    }
    return _object("apps/v1", "Deployment", NAME, settings, spec=spec)


def _container(settings: Settings) -> Object:
    return {
        "name": NAME,
        "image": settings.image,
        "args": arguments(settings),
        "ports": [
            {"name": "health", "containerPort": HEALTH_PORT},
            {"name": "webhooks", "containerPort": WEBHOOK_PORT},
        ],
        "livenessProbe": _probe("/healthz", initialDelaySeconds=10, periodSeconds=20, failureThreshold=3),
        # A standby does not lead, and is ready all the same: a roll-out must not wait for it to lead.
        "readinessProbe": _probe("/readyz?exclude=leader", periodSeconds=5, failureThreshold=3),
        "resources": {"requests": {"cpu": "500m", "memory": "512Mi"}, "limits": {"memory": "2Gi"}},
        "securityContext": {
            "allowPrivilegeEscalation": False,
            "readOnlyRootFilesystem": True,
            "capabilities": {"drop": ["ALL"]},
        },
        "volumeMounts": [
            {"name": "journal", "mountPath": JOURNAL},
            {"name": "tmp", "mountPath": "/tmp"},
            {"name": "configuration", "mountPath": CONFIG_FOLDER, "readOnly": True},
        ],
    }


def _probe(path: str, **times: int) -> Object:
    return {"httpGet": {"path": path, "port": "health"}, "timeoutSeconds": 5, **times}


def _apart(key: str) -> Object:
    return {
        "maxSkew": 1,
        "topologyKey": key,
        "whenUnsatisfiable": "ScheduleAnyway",
        "labelSelector": {"matchLabels": CHOSEN},
    }


def _service(name: str, port: int, target: str, settings: Settings) -> Object:
    ports = [{"name": target, "port": port, "targetPort": target}]
    return _object("v1", "Service", name, settings, spec={"selector": CHOSEN, "ports": ports})


def webhook_configurations(settings: Settings) -> Iterable[Object]:
    """The webhook configurations, one webhook for each resource that somebody looks at."""
    looked_at = registry().admission
    for kind, path, attribute in (
        ("MutatingWebhookConfiguration", "/mutate", "mutate"),
        ("ValidatingWebhookConfiguration", "/validate", "validate"),
    ):
        asked: dict[tuple[str, str], list[str]] = {}
        for (group, resource, operation), handlers in looked_at.items():
            if getattr(handlers, attribute):
                asked.setdefault((group, resource), []).append(operation)
        hooks = [
            _hook(key, operations, path, settings)
            | {"failurePolicy": "Ignore" if looked_at[*key, operations[0]].fail_open else "Fail"}
            for key, operations in sorted(asked.items())
        ]
        if attribute == "mutate":
            hooks += [_default_queue_hook(key, path, settings) for key in sorted(QUEUED)]
            hooks.append(_segment_hook(path, settings))
        if hooks:
            made = _object("admissionregistration.k8s.io/v1", kind, CONFIGURATION, settings, webhooks=hooks)
            del made["metadata"]["namespace"]
            yield made


def _hook(key: tuple[str, str], operations: list[str], path: str, settings: Settings) -> Object:
    group, resource = key
    spared = {"key": "kubernetes.io/metadata.name", "operator": "NotIn"}
    hook: Object = {
        "name": hook_name(group, resource),
        "admissionReviewVersions": ["v1"],
        "sideEffects": "None",
        "timeoutSeconds": 5,
        "matchPolicy": "Equivalent",
        "rules": [
            {
                "apiGroups": [group],
                "apiVersions": [REVIEWED_AS.get(group, "*")],
                "operations": operations,
                "resources": [resource],
            }
        ],
        "namespaceSelector": {
            "matchExpressions": [{**spared, "values": ["kube-system", settings.namespace]}]
        },
        "clientConfig": {"service": {"name": SERVICE, "namespace": settings.namespace, "path": path}},
    }
    if condition := CONDITIONS.get(key):
        expression = condition.replace("NAMESPACE", settings.namespace)
        hook["matchConditions"] = [{"name": "names-bayplan", "expression": expression}]
    return hook


def _default_queue_hook(key: tuple[str, str], path: str, settings: Settings) -> Object:
    """Asked about everybody's jobs that name no queue; so nobody has to wait for us if we are not there."""
    expression = f"{_UNQUEUED} && {_UNOWNED}" if key == ("", "pods") else _UNQUEUED
    return _hook(key, ["CREATE"], path, settings) | {
        "name": f"default-queue.{hook_name(*key)}",
        "matchConditions": [{"name": "names-no-queue", "expression": expression}],
        "failurePolicy": "Ignore",
    }


def _segment_hook(path: str, settings: Settings) -> Object:
    """Asked about pods of segments, which are told the number of theirs; they start without it too.

    Others may number them only after we were asked (those of a LeaderWorkerSet), so we are asked again.
    """
    sized = f"has(object.metadata.annotations) && '{SEGMENT_SIZE}' in object.metadata.annotations"
    of_set = f"has(object.metadata.labels) && '{SET_NAME}' in object.metadata.labels"
    expression = f"{sized} || {of_set}"
    return _hook(("", "pods"), ["CREATE"], path, settings) | {
        "name": f"segments.{hook_name('', 'pods')}",
        "matchConditions": [{"name": "is-of-a-segment", "expression": expression}],
        "failurePolicy": "Ignore",
        "reinvocationPolicy": "IfNeeded",
    }


def _object(version: str, kind: str, name: str, settings: Settings, **fields: Any) -> Object:
    metadata = {"name": name, "namespace": settings.namespace, "labels": dict(LABELS)}
    return {"apiVersion": version, "kind": kind, "metadata": metadata, **fields}
