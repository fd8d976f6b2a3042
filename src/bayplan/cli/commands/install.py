"""`bayplan install`: applies the manifests of Bayplan to a cluster, or prints them as YAML."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import click
import jsonschema_rs
import msgspec

from bayplan import __version__
from bayplan.assembly.admission_policies import ADMINISTRATORS
from bayplan.assembly.chart_values import SCHEMA, found, value
from bayplan.assembly.helm_chart import dumped, write_chart
from bayplan.assembly.manifests import (
    ALL_ROLES,
    IMAGE,
    LABELS,
    NAMESPACE,
    SERVED_ROLES,
    InstallSettings,
    manifests,
)
from bayplan.assembly.rbac import ROLES
from bayplan.backends.bounded_file import read_bounded
from bayplan.backends.remote.backend import RemoteBackend, connect
from bayplan.cli.config.options import configuration_text
from bayplan.cli.config.output import echo
from bayplan.cli.migration.conversions import stop_conversions
from bayplan.configuration.settings import EMPTY
from bayplan.dialects.api import Ended, Kind, Verb, Write, WriteOutcome
from bayplan.dialects.errors import ApiError
from bayplan.dialects.kube.fields.bounded_yaml import bounded_yaml
from bayplan.runtime.core.api_object import SECRET
from bayplan.runtime.core.clock import SystemClock
from bayplan.runtime.webhooks.certificate_rotation import DEFINITION, MUTATING, VALIDATING

VALUES_BYTES_MAX = 1024 * 1024  # of a file of values
Object = dict[str, Any]

TIMEOUT = 60.0
CALL_SECONDS = 10.0
_RBAC = "rbac.authorization.k8s.io"
POLICY = Kind(
    "admissionregistration.k8s.io",
    "v1",
    "ValidatingAdmissionPolicy",
    "validatingadmissionpolicies",
    namespaced=False,
)
REVIEW = SimpleNamespace(
    path="/apis/authorization.k8s.io/v1/selfsubjectaccessreviews",
    identity={"apiVersion": "authorization.k8s.io/v1", "kind": "SelfSubjectAccessReview"},
)
KINDS = {
    kind.kind: kind
    for kind in (
        Kind("", "v1", "Namespace", "namespaces", namespaced=False),
        Kind("", "v1", "ServiceAccount", "serviceaccounts"),
        Kind("", "v1", "Service", "services"),
        Kind("", "v1", "ConfigMap", "configmaps"),
        SECRET,
        Kind(_RBAC, "v1", "ClusterRole", "clusterroles", namespaced=False),
        Kind(_RBAC, "v1", "ClusterRoleBinding", "clusterrolebindings", namespaced=False),
        Kind(_RBAC, "v1", "Role", "roles"),
        Kind(_RBAC, "v1", "RoleBinding", "rolebindings"),
        Kind("apps", "v1", "Deployment", "deployments"),
        Kind("policy", "v1", "PodDisruptionBudget", "poddisruptionbudgets"),
        Kind("networking.k8s.io", "v1", "NetworkPolicy", "networkpolicies"),
        Kind("networking.k8s.io", "v1", "Ingress", "ingresses"),
        MUTATING,
        VALIDATING,
        POLICY,
        replace(POLICY, kind=f"{POLICY.kind}Binding", plural="validatingadmissionpolicybindings"),
        DEFINITION,
        Kind("monitoring.coreos.com", "v1", "ServiceMonitor", "servicemonitors"),
        Kind("monitoring.coreos.com", "v1", "PrometheusRule", "prometheusrules"),
        Kind("cert-manager.io", "v1", "Issuer", "issuers"),
        Kind("cert-manager.io", "v1", "Certificate", "certificates"),
    )
}
_DNS_LABEL = re.compile(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?")
_DNS_NAME = re.compile(rf"(?=.{{1,253}}$){_DNS_LABEL.pattern}(\.{_DNS_LABEL.pattern})*")


def _roles(_: click.Context, __: click.Parameter, value: str) -> tuple[str, ...]:
    roles = tuple(dict.fromkeys(part.strip() for part in value.split(",") if part.strip()))
    if not roles:
        raise click.BadParameter(f"name at least one of {', '.join(ALL_ROLES)}")
    for role in roles:
        if role not in ROLES:
            raise click.BadParameter(f"{role} is not a role; the roles are: {', '.join(ALL_ROLES)}")
    return roles


def _namespace(_: click.Context, __: click.Parameter, value: str) -> str:
    if not _DNS_LABEL.fullmatch(value):
        raise click.BadParameter(f'"{value}" is not a valid namespace: a-z, 0-9 and -, at most 63')
    return value


def _image(_: click.Context, __: click.Parameter, value: str) -> str:
    if not value or any(one.isspace() or not one.isprintable() for one in value):
        raise click.BadParameter(
            f'"{value}" is not a valid image; give one such as registry.example.com/{IMAGE}, '
            f"or leave the option out for {IMAGE}"
        )
    return value


def _certificate(_: click.Context, __: click.Parameter, value: str) -> str:
    if value and not _DNS_NAME.fullmatch(value):
        raise click.BadParameter(f'"{value}" is not a valid name of a Secret: a-z, 0-9, - and ., at most 253')
    return value


def _config(_: click.Context, __: click.Parameter, name: str | None) -> str:
    return EMPTY if name is None else configuration_text(name)


def _values(_: click.Context, __: click.Parameter, names: tuple[str, ...]) -> Object:
    """The values of all files, the last one first; as helm reads them."""
    merged: Object = {}
    for name in names:
        try:
            read = bounded_yaml(read_bounded(Path(name), VALUES_BYTES_MAX)) or {}
        except (OSError, ValueError) as error:
            raise click.BadParameter(f"cannot read {name}: {error}") from None
        errors = [*jsonschema_rs.Draft7Validator(dict(SCHEMA)).iter_errors(read)]
        if errors:
            told = (f"{'.'.join(map(str, one.instance_path)) or 'the file'}: {one.message}" for one in errors)
            raise click.BadParameter(f"{name}: " + "; ".join(told))
        merged = _overridden(merged, read)
    return merged


def _overridden(below: Object, above: Object) -> Object:
    """Values with others on top; objects are merged, anything else is replaced."""
    both = {
        name: _overridden(below[name], one)
        if isinstance(one, dict) and isinstance(below[name], dict)
        else one
        for name, one in above.items()
        if name in below
    }
    return {**below, **above, **both}


FIELDS = {
    "replicas": "replicas",
    "config": "config",
    "trusted": "trustedGroups",
    "network_policy": "networkPolicy.enabled",
    "metrics_from": "networkPolicy.metricsFrom",
    "metrics_secure": "metrics.secure",
    "metrics_certificate": "metrics.certificateSecret",
    "cert_manager": "webhooks.certManager.enabled",
    "roles": "roles",
}
"""Options that have a value of their own in the chart."""


def _settings(crds: bool, chosen: Object) -> tuple[bool, InstallSettings]:
    """The settings: options of the command line, then values, then defaults."""
    context = click.get_current_context()
    values = chosen["values"]

    def is_free(option: str) -> bool:
        return context.get_parameter_source(option) is not click.core.ParameterSource.COMMANDLINE

    for option, path in FIELDS.items():
        given = found(values, path)
        if given is not None and is_free(option):
            chosen[option] = tuple(given) if isinstance(given, list) else given
    if found(values, "webhooks.deployment") is not None and is_free("separate"):
        chosen["separate"] = value(values, "webhooks.deployment") == "separate"
    pages = value(values, "dashboard.enabled"), value(values, "dashboard.deployment")
    chosen["dashboard_shared"] = pages == (True, "shared")
    if "image" in values and is_free("image"):
        repository, tag, digest = (value(values, f"image.{one}") for one in ("repository", "tag", "digest"))
        chosen["image"] = f"{repository}@{digest}" if digest else f"{repository}:{tag or __version__}"
    if "crds" in values and is_free("crds"):
        crds = values["crds"]
    return crds, InstallSettings(**chosen)


@click.command()
@click.option(
    "-o", "--output", type=click.Choice(["apply", "yaml"]), default="apply", show_default=True,
    help="Apply the manifests to the cluster, or print them.",
)  # fmt: skip
@click.option(
    "--dry-run", is_flag=True, help="Show what would be applied to the cluster, and change nothing."
)
@click.option(
    "--namespace", default=NAMESPACE, show_default=True, callback=_namespace, help="The namespace of Bayplan."
)
@click.option(
    "--image", default=IMAGE, show_default=True, callback=_image, help="The image of every replica."
)
@click.option(
    "--roles", default=",".join(SERVED_ROLES), show_default=True, callback=_roles, metavar="A,B",
    help=f"The roles of the replicas: {', '.join(ALL_ROLES)}. Each adds the RBAC rules it needs.",
)  # fmt: skip
@click.option(
    "--replicas",
    default=2,
    show_default=True,
    type=click.IntRange(1),
    help="Number of replicas; one of them is the leader.",
)
@click.option(
    "--config", metavar="FILE", callback=_config,
    help="The Bayplan configuration of the replicas; see docs/reference/configuration.md.",
)  # fmt: skip
@click.option(
    "--webhooks-separate", "separate", is_flag=True,
    help="Run the webhooks in their own Deployment, with a service account that has fewer RBAC rules.",
)  # fmt: skip
@click.option(
    "--trusted-group", "trusted", multiple=True, default=(ADMINISTRATORS,), show_default=True,
    metavar="GROUP", help="Group whose users may remove Bayplan's scheduling gates by hand. May be repeated.",
)  # fmt: skip
@click.option(
    "--network-policy/--no-network-policy", default=True, show_default=True,
    help="Install a NetworkPolicy for the replicas.",
)  # fmt: skip
@click.option(
    "--metrics-from", multiple=True, metavar="NAMESPACE",
    help="Namespace whose pods may read metrics. May be repeated (default: all namespaces).",
)  # fmt: skip
@click.option(
    "--metrics-secure", is_flag=True,
    help="Serve metrics over HTTPS, to tokens that RBAC allows to get /metrics.",
)  # fmt: skip
@click.option(
    "--metrics-certificate", default="", metavar="SECRET", callback=_certificate,
    help="A TLS Secret in the namespace of Bayplan, for --metrics-secure (default: self-signed).",
)  # fmt: skip
@click.option(
    "--values", "values", metavar="FILE", callback=_values, multiple=True,
    help="Values as for the Helm chart; other options override them. May be repeated.",
)  # fmt: skip
@click.option("--crds/--no-crds", default=True, show_default=True, help="Install the CRDs.")
@click.option(
    "--take-over-crds", is_flag=True,
    help="Replace CRDs of Bayplan's kinds that another product installed, and stop its conversion of others.",
)  # fmt: skip
@click.option("--kubeconfig", type=click.Path(path_type=Path), help="Default: KUBECONFIG, or ~/.kube/config.")
@click.option("--context", help="A context of the kubeconfig (default: its current one).")
@click.option(
    "--chart", type=click.Path(file_okay=False, path_type=Path), hidden=True,
    help="Write the Helm chart to this folder instead.",
)  # fmt: skip
def install(
    output: str, dry_run: bool, crds: bool, take_over_crds: bool, kubeconfig: Path | None,
    context: str | None, chart: Path | None, **chosen: Any,
) -> None:  # fmt: skip
    """Install Bayplan in a cluster: CRDs, RBAC, Deployments and webhooks.

    You need to be a cluster administrator; the installed service accounts get only the RBAC rules of their
    roles. Installing again updates what differs. A CustomResourceDefinition without Bayplan's labels is not
    changed, except with --take-over-crds.
    """
    if chart is not None:
        echo("\n".join(str(path) for path in write_chart(chart)))
        return
    crds, settings = _settings(crds, chosen)
    if settings.metrics_certificate and not settings.metrics_secure:
        raise click.UsageError("--metrics-certificate is for --metrics-secure; give that too")
    objects = [one for one in manifests(settings) if crds or one["kind"] != DEFINITION.kind]
    if output == "yaml":
        echo(dumped(*objects), nl=False)
        return
    try:
        done = apply(objects, kubeconfig, context, dry_run=dry_run, take_over=take_over_crds)
    except ApiError as error:
        raise click.ClickException(str(error)) from None
    sys.exit(0 if done else 1)


def apply(
    objects: Sequence[Object], kubeconfig: Path | None, context: str | None, *, dry_run: bool = False,
    take_over: bool = False,
) -> bool:  # fmt: skip
    """Apply all objects, the namespace and the CRDs first; whether all of them were applied.

    A dry run sends the same reads to the cluster, and reports which objects would be created or changed.
    """
    backend = connect(kubeconfig, context)
    try:
        owned = [one for one in objects if take_over or _is_ours(backend, one)]
        first = [one for one in owned if one["kind"] in ("Namespace", DEFINITION.kind)]
        rest = [one for one in owned if one not in first]
        if dry_run:
            would_be = [_would_be_applied(backend, one) for one in (*first, *rest)]
            return all(would_be) and (not take_over or stop_conversions(backend, dry_run=True))
        outcomes = [outcome for wave in (first, rest) for outcome in _apply_all(backend, wave)]
        stopped = not take_over or stop_conversions(backend)
        return stopped and all(outcome.ended is Ended.DONE for outcome in outcomes)
    finally:
        backend.close()


def _would_be_applied(backend: RemoteBackend, obj: Object) -> bool:
    """Report whether an object would be created or changed, if the user may do that."""
    kind, metadata = KINDS[obj["kind"]], obj["metadata"]
    where = metadata.get("namespace", "")
    for verb in ("create", "patch"):
        asked = {
            "verb": verb, "group": kind.group, "resource": kind.plural, "namespace": where,
            "name": metadata["name"],
        }  # fmt: skip
        body = msgspec.json.encode({**REVIEW.identity, "spec": {"resourceAttributes": asked}})
        status, answer = backend.request("POST", REVIEW.path, body, CALL_SECONDS)
        if status == 201 and not msgspec.json.decode(answer)["status"]["allowed"]:
            echo(f"{_title(obj)} would not be applied: you may not {verb} {kind.plural}", err=True)
            return False
    status, _ = backend.request("GET", kind.path(where, metadata["name"]), b"", CALL_SECONDS)
    change = "changed where it differs" if status == 200 else "created"
    echo(f"{_title(obj)} would be applied: {change}")
    return True


def _apply_all(backend: RemoteBackend, objects: Iterable[Object]) -> Iterator[WriteOutcome]:
    writes = [_write(one) for one in objects]
    backend.submit(writes)
    clock = SystemClock()
    end, left = clock.monotonic() + TIMEOUT, len(writes)
    while left and clock.monotonic() < end:
        for outcome in backend.outcomes():
            left -= 1
            _report(outcome)
            yield outcome
        backend.wait(0.2)
    if left:
        raise ApiError(f"{left} objects were not applied within {TIMEOUT:.0f} s; run the command again")


def _write(obj: Object) -> Write:
    metadata = obj["metadata"]
    kind = replace(KINDS[obj["kind"]], label_selector="")
    return Write(Verb.APPLY, kind, metadata.get("namespace", ""), metadata["name"], obj, tag=_title(obj))


def _is_ours(backend: RemoteBackend, obj: Object) -> bool:
    """Whether an object may be changed: another program installed a CRD without our labels."""
    if obj["kind"] != DEFINITION.kind:
        return True
    status, body = backend.request("GET", DEFINITION.path(name=obj["metadata"]["name"]), b"", CALL_SECONDS)
    if status != 200:
        return True
    labels = msgspec.json.decode(body)["metadata"].get("labels") or {}
    if LABELS.items() <= labels.items():
        return True
    echo(f"{_title(obj)} exists without the labels of Bayplan; not changed (see --take-over-crds)")
    return False


def _report(outcome: WriteOutcome) -> None:
    if outcome.ended is Ended.DONE:
        echo(f"{outcome.write.tag} applied")
    else:
        echo(f"{outcome.write.tag} not applied: {outcome.message}", err=True)


def _title(obj: Object) -> str:
    return f"{obj['kind'].lower()}/{obj['metadata']['name']}"


if __name__ == "__main__":
    install()
