"""`bayplan install`: everything that runs Bayplan in a cluster, applied to it or printed as YAML."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import click
import msgspec

from bayplan.assembly.admission_policies import ADMINISTRATORS
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
from bayplan.backends.remote.backend import RemoteBackend, connect
from bayplan.cli.config.options import configuration_text
from bayplan.cli.config.output import echo
from bayplan.configuration.settings import EMPTY
from bayplan.dialects.api import Ended, Kind, Verb, Write, WriteOutcome
from bayplan.dialects.errors import ApiError
from bayplan.runtime.core.api_object import SECRET
from bayplan.runtime.core.clock import SystemClock
from bayplan.runtime.webhooks.certificate_rotation import DEFINITION, MUTATING, VALIDATING

Object = dict[str, Any]

PATIENCE = 60.0
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
        MUTATING,
        VALIDATING,
        POLICY,
        replace(POLICY, kind=f"{POLICY.kind}Binding", plural="validatingadmissionpolicybindings"),
        DEFINITION,
    )
}
_DNS_LABEL = re.compile(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?")
_DNS_NAME = re.compile(rf"(?=.{{1,253}}$){_DNS_LABEL.pattern}(\.{_DNS_LABEL.pattern})*")


def _roles(_: click.Context, __: click.Parameter, value: str) -> tuple[str, ...]:
    found = tuple(dict.fromkeys(part.strip() for part in value.split(",") if part.strip()))
    if not found:
        raise click.BadParameter(f"name at least one of {', '.join(ALL_ROLES)}")
    for role in found:
        if role not in ROLES:
            raise click.BadParameter(f"{role} is no role; these are: {', '.join(ALL_ROLES)}")
    return found


def _namespace(_: click.Context, __: click.Parameter, value: str) -> str:
    if not _DNS_LABEL.fullmatch(value):
        raise click.BadParameter(f'"{value}" cannot be the name of a namespace: a-z, 0-9 and -, at most 63')
    return value


def _image(_: click.Context, __: click.Parameter, value: str) -> str:
    if not value or any(one.isspace() or not one.isprintable() for one in value):
        raise click.BadParameter(
            f'"{value}" cannot be the name of an image; give one such as registry.example.com/{IMAGE}, '
            f"or leave the option out for {IMAGE}"
        )
    return value


def _certificate(_: click.Context, __: click.Parameter, value: str) -> str:
    if value and not _DNS_NAME.fullmatch(value):
        raise click.BadParameter(f'"{value}" cannot be the name of a Secret: a-z, 0-9, - and ., at most 253')
    return value


def _config(_: click.Context, __: click.Parameter, name: str | None) -> str:
    return EMPTY if name is None else configuration_text(name)


@click.command()
@click.option(
    "-o", "--output", type=click.Choice(["apply", "yaml"]), default="apply", show_default=True,
    help="Apply it to the cluster, or print it.",
)  # fmt: skip
@click.option(
    "--dry-run", is_flag=True, help="Ask the cluster, say what would be applied, and change nothing."
)
@click.option("--namespace", default=NAMESPACE, show_default=True, callback=_namespace, help="Where it runs.")
@click.option(
    "--image", default=IMAGE, show_default=True, callback=_image, help="The image of every replica."
)
@click.option(
    "--roles", default=",".join(SERVED_ROLES), show_default=True, callback=_roles, metavar="A,B",
    help=f"What the replicas do, out of {', '.join(ALL_ROLES)}; each brings the rights it needs.",
)  # fmt: skip
@click.option("--replicas", default=2, show_default=True, type=click.IntRange(1), help="One of them leads.")
@click.option(
    "--config", metavar="FILE", callback=_config,
    help="A configuration for the replicas; see docs/reference/configuration.md.",
)  # fmt: skip
@click.option(
    "--webhooks-separate", "separate", is_flag=True,
    help="Run the webhooks in a Deployment of their own, under an account that can read and write less.",
)  # fmt: skip
@click.option(
    "--trusted-group", "trusted", multiple=True, default=(ADMINISTRATORS,), show_default=True,
    metavar="GROUP", help="Whose users may remove our gates from pods by hand; may be given several times.",
)  # fmt: skip
@click.option(
    "--network-policy/--no-network-policy", default=True, show_default=True,
    help="Whether to limit who may connect to the replicas.",
)  # fmt: skip
@click.option(
    "--metrics-from", multiple=True, metavar="NAMESPACE",
    help="Whose pods may read metrics; may be given several times (default: all namespaces).",
)  # fmt: skip
@click.option(
    "--metrics-secure", is_flag=True,
    help="Serve metrics over HTTPS, and only to tokens whose owner may get /metrics in the cluster.",
)  # fmt: skip
@click.option(
    "--metrics-certificate", default="", metavar="SECRET", callback=_certificate,
    help="A TLS Secret in the namespace of Bayplan, for --metrics-secure (default: self-signed).",
)  # fmt: skip
@click.option("--crds/--no-crds", default=True, show_default=True, help="Whether to bring our definitions.")
@click.option("--kubeconfig", type=click.Path(path_type=Path), help="Default: KUBECONFIG, or ~/.kube/config.")
@click.option("--context", help="A context of the kubeconfig (default: its current one).")
@click.option(
    "--chart", type=click.Path(file_okay=False, path_type=Path), hidden=True,
    help="Write the Helm chart to this folder instead.",
)  # fmt: skip
def install(
    output: str, dry_run: bool, crds: bool, kubeconfig: Path | None, context: str | None, chart: Path | None,
    **chosen: Any,
) -> None:  # fmt: skip
    """Install Bayplan in a cluster: definitions, RBAC, the replicas, and the webhooks if asked for.

    Needs the rights of a cluster administrator; what it installs has only those that its roles need.
    Installing again changes what differs. A CustomResourceDefinition that somebody else installed is left
    alone.
    """
    if chart is not None:
        echo("\n".join(str(path) for path in write_chart(chart)))
        return
    settings = InstallSettings(**chosen)
    if settings.metrics_certificate and not settings.metrics_secure:
        raise click.UsageError("--metrics-certificate is for --metrics-secure; give that too")
    objects = [one for one in manifests(settings) if crds or one["kind"] != DEFINITION.kind]
    if output == "yaml":
        echo(dumped(*objects), nl=False)
        return
    try:
        done = apply(objects, kubeconfig, context, dry_run=dry_run)
    except ApiError as trouble:
        raise click.ClickException(str(trouble)) from None
    sys.exit(0 if done else 1)


def apply(
    objects: Sequence[Object], kubeconfig: Path | None, context: str | None, *, dry_run: bool = False
) -> bool:
    """Apply everything, what others stand on first; whether all of it was taken.

    A dry run asks the cluster the same questions, and says of the same objects what would become of them.
    """
    backend = connect(kubeconfig, context)
    try:
        ours = [one for one in objects if _is_ours(backend, one)]
        first = [one for one in ours if one["kind"] in ("Namespace", DEFINITION.kind)]
        rest = [one for one in ours if one not in first]
        if dry_run:
            would_be = [_would_be_applied(backend, one) for one in (*first, *rest)]
            return all(would_be)
        outcomes = [outcome for wave in (first, rest) for outcome in _made(backend, wave)]
        return all(outcome.ended is Ended.DONE for outcome in outcomes)
    finally:
        backend.close()


def _would_be_applied(backend: RemoteBackend, obj: Object) -> bool:
    """Say whether an object would be created or changed, as far as the user may do that."""
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
            echo(f"{_called(obj)} would not be applied: you may not {verb} {kind.plural}", err=True)
            return False
    status, _ = backend.request("GET", kind.path(where, metadata["name"]), b"", CALL_SECONDS)
    change = "changed where it differs" if status == 200 else "created"
    echo(f"{_called(obj)} would be applied: {change}")
    return True


def _made(backend: RemoteBackend, objects: Iterable[Object]) -> Iterator[WriteOutcome]:
    writes = [_write(one) for one in objects]
    backend.submit(writes)
    clock = SystemClock()
    end, left = clock.monotonic() + PATIENCE, len(writes)
    while left and clock.monotonic() < end:
        for outcome in backend.outcomes():
            left -= 1
            _report(outcome)
            yield outcome
        backend.wait(0.2)
    if left:
        raise ApiError(f"{left} objects were not applied within {PATIENCE:.0f} s; run it again")


def _write(obj: Object) -> Write:
    metadata = obj["metadata"]
    kind = replace(KINDS[obj["kind"]], label_selector="")
    return Write(Verb.APPLY, kind, metadata.get("namespace", ""), metadata["name"], obj, tag=_called(obj))


def _is_ours(backend: RemoteBackend, obj: Object) -> bool:
    """Whether we may change it: a definition that is there without our label is somebody else's."""
    if obj["kind"] != DEFINITION.kind:
        return True
    status, body = backend.request("GET", DEFINITION.path(name=obj["metadata"]["name"]), b"", CALL_SECONDS)
    if status != 200:
        return True
    labels = msgspec.json.decode(body)["metadata"].get("labels") or {}
    if LABELS.items() <= labels.items():
        return True
    echo(f"{_called(obj)} is there already and not ours; left as it is")
    return False


def _report(outcome: WriteOutcome) -> None:
    if outcome.ended is Ended.DONE:
        echo(f"{outcome.write.tag} applied")
    else:
        echo(f"{outcome.write.tag} not applied: {outcome.message}", err=True)


def _called(obj: Object) -> str:
    return f"{obj['kind'].lower()}/{obj['metadata']['name']}"


if __name__ == "__main__":
    install()
