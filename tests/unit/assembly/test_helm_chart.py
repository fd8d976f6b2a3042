"""The Helm chart: up to date, and the same objects as `bayplan install` makes."""

from __future__ import annotations

import copy
import hashlib
import json
import shutil
import subprocess
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from types import MappingProxyType
from typing import Any

import jsonschema_rs
import pytest
import yaml

from bayplan import __version__
from bayplan.assembly import crds, helm_chart, manifests
from bayplan.assembly.chart_values import DEFAULTS as DEFAULT_VALUES
from bayplan.assembly.chart_values import SCHEMA
from bayplan.assembly.helm_chart import (
    HEADER,
    IS_CERT_MANAGED,
    IS_CERTIFIED,
    IS_DASHBOARD_SHARED,
    IS_SECURE,
    IS_SEPARATE,
    LITERAL,
    chart,
    write_chart,
)
from bayplan.assembly.install_settings import DEFAULTS_ROLE, InstallSettings
from bayplan.assembly.rbac import ROLES
from bayplan.backends.crds import is_of_groups
from bayplan.configuration.settings import EMPTY
from tests.support.chart_rendering import at, chosen_lines, shares_dashboard
from tests.support.missing_parts import lacking
from tools.controlplane.build import build, find
from tools.controlplane.plan import DEFAULT_KUBE, HELM

ROOT = Path(__file__).parents[3]
Object = dict[str, Any]
made_chart = cache(chart)
DEFAULTS = f"{EMPTY}grouper: {{defaults: settings/by.kind}}\n"


def test_the_chart_in_the_repository_is_up_to_date() -> None:
    folder = ROOT / "deploy" / "chart"
    found = {
        str(path.relative_to(folder)): path.read_text(encoding="utf-8")
        for path in folder.rglob("*")
        if path.is_file()
    }
    assert found == made_chart(), (
        "write it again: python -m bayplan.cli.commands.install --chart deploy/chart"
    )


SINGLE = ("webhooks.failurePolicy", "metrics.serviceMonitor.interval", "dashboard.ingress.host")


def rendered(
    files: dict[str, str],
    namespace: str,
    more: tuple[str, ...] = (),
    config: str = "",
    given: Mapping[str, Any] = MappingProxyType({}),
    **chosen: Any,
) -> list[Object]:
    """What Helm would make of the few things that our templates use, with these roles besides the usual."""
    values = copy.deepcopy(yaml.safe_load(files["values.yaml"]))
    for path, one in given.items():
        *folders, name = path.split(".")
        inside = values
        for folder in folders:
            inside = inside[folder]
        inside[name] = {**inside[name], **one} if isinstance(one, dict) else one
    values["roles"] += more
    values["config"] = config or values["config"]
    defaults = (yaml.safe_load(values["config"]).get("grouper") or {}).get("defaults", "")
    secret = chosen.get("metrics_certificate", "")
    image = f"bayplan:{__version__}"
    holds = {
        **{f'has "{role}" .Values.roles': role in values["roles"] for role in ROLES},
        "$grouper.defaults": bool(defaults),
        ".Values.crds": values["crds"],
        IS_SEPARATE: chosen.get("separate", False),
        IS_SECURE: chosen.get("metrics_secure", False),
        IS_CERTIFIED: bool(secret),
        IS_DASHBOARD_SHARED: shares_dashboard(values),
        IS_CERT_MANAGED: values["webhooks"]["certManager"]["enabled"] and "webhooks" in values["roles"],
    }
    others = ",".join(role for role in values["roles"] if role != "webhooks")
    filled = {
        **{f'(split "/" $grouper.defaults)._{n}': word for n, word in enumerate(defaults.split("/"))},
        ".Release.Namespace": namespace,
        'join "," .Values.roles': ",".join(values["roles"]),
        'join "," (without .Values.roles "webhooks")': others,
        ".Values.config | toJson": json.dumps(values["config"]),
        ".Values.config | sha256sum": hashlib.sha256(values["config"].encode()).hexdigest(),
        ".Values.replicas": str(values["replicas"]),
        IS_CERTIFIED: secret,
    }
    found = []
    for path, text in files.items():
        if path.startswith(("templates/", "crds/")):
            left = chosen_lines(text, holds, values)
            left = left.replace(LITERAL["'@image@'"], f"'{image}'")
            for value in SINGLE:
                left = left.replace(f"{{{{ .Values.{value} }}}}", str(at(values, value)))
            left = left.replace(LITERAL["'@metrics-peers@'"], json.dumps([{"namespaceSelector": {}}]))
            left = left.replace(LITERAL["@trusted@"], json.dumps(values["trustedGroups"]))
            for asked, answer in filled.items():
                left = left.replace(f"{{{{ {asked} }}}}", answer)
            assert "{{" not in left, path
            found.append(copy.deepcopy(loaded(left)))
    return [one for one in found if one]


@cache
def loaded(text: str) -> Object:
    """Definitions are long, and the same whatever is chosen."""
    found: Object = yaml.load(text, yaml.CSafeLoader)
    return found


def by_name(objects: list[Object]) -> dict[tuple[str, str], Object]:
    return {(one["kind"], one["metadata"]["name"]): one for one in objects}


def is_definition_of_groups(one: Object) -> bool:
    return one["kind"] == "CustomResourceDefinition" and is_of_groups(one)


CHOICES = [((), EMPTY), (("grouper",), EMPTY), ((), DEFAULTS), (("grouper",), DEFAULTS)]


TUNED: Object = {
    "image.pullPolicy": "Always",
    "image.pullSecrets": [{"name": "registry"}],
    "resources": {"requests": {"cpu": 2, "memory": "4Gi"}},
    "priorityClassName": "",
    "nodeSelector": {"node-role.kubernetes.io/control-plane": ""},
    "tolerations": [{"key": "node-role.kubernetes.io/control-plane", "operator": "Exists"}],
    "affinity": {"nodeAffinity": {}},
    "topologySpreadConstraints": [
        {"maxSkew": 1, "topologyKey": "zone", "whenUnsatisfiable": "DoNotSchedule"}
    ],
    "podLabels": {"team": "batch", "tier": "1"},
    "podAnnotations": {"example.com/note": 'a "quoted" word'},
    "extraArgs": ["--log-level=debug"],
    "extraEnv": [{"name": "A", "value": "b"}],
    "serviceAccount.annotations": {"example.com/role": "scheduler"},
    "podDisruptionBudget.maxUnavailable": "50%",
    "webhooks.failurePolicy": "Ignore",
    "webhooks.excludedNamespaces": ["one", "two"],
    "metrics.serviceMonitor.enabled": True,
    "metrics.serviceMonitor.interval": "10s",
    "metrics.serviceMonitor.labels": {"release": "prometheus"},
    "metrics.prometheusRule.enabled": True,
    "metrics.prometheusRule.labels": {"release": "prometheus"},
    "metrics.grafanaDashboards.enabled": True,
    "metrics.grafanaDashboards.labels": {"team": "batch"},
    "dashboard.enabled": True,
    "dashboard.deployment": "separate",
    "dashboard.resources": {"requests": {"cpu": "1", "memory": "1Gi"}},
    "dashboard.ingress.enabled": True,
    "dashboard.ingress.className": "internal",
    "dashboard.ingress.host": "bayplan.example.com",
    "dashboard.ingress.tls": [{"hosts": ["bayplan.example.com"], "secretName": "bayplan-tls"}],
    "dashboard.ingress.annotations": {"example.com/timeout": "0"},
}
"""Every value that has no option of `bayplan install` of its own."""
WITH_PAGES: Object = {"dashboard.enabled": True, "dashboard.deployment": "shared"}


def nested(values: Object) -> Object:
    """Values by path as in a file."""
    made: Object = {}
    for path, one in values.items():
        *folders, name = path.split(".")
        inside = made
        for folder in folders:
            inside = inside.setdefault(folder, {})
        inside[name] = one
    return made


SECURE: list[tuple[tuple[str, ...], str, Object]] = [
    ((), EMPTY, {"metrics_secure": True}),
    ((), EMPTY, {"metrics_secure": True, "metrics_certificate": "metrics.tls"}),
]


@pytest.mark.parametrize("separate", [False, True])
@pytest.mark.parametrize(("more", "config", "metrics"), [*((*one, {}) for one in CHOICES), *SECURE])
def test_the_chart_makes_what_install_makes(
    more: tuple[str, ...], config: str, separate: bool, metrics: Object
) -> None:
    roles = (*manifests.SERVED_ROLES, *more)
    chosen = InstallSettings(namespace="here", roles=roles, config=config, separate=separate, **metrics)
    ours = by_name(manifests.manifests(chosen))
    assert (("Deployment", "bayplan-webhooks") in ours) == separate
    assert (("ClusterRole", "bayplan-metrics") in ours) == bool(metrics)
    assert (("Role", DEFAULTS_ROLE) in ours) == bool(more and config == DEFAULTS)
    del ours["Namespace", "here"]  # Helm has --create-namespace
    theirs = by_name(rendered(made_chart(), "here", more, config, separate=separate, **metrics))
    groups = [one["metadata"]["name"] for one in theirs.values() if is_definition_of_groups(one)]
    assert len(groups) == (3 if more else 0), "kubectl get topologies means what it did, unless asked for"
    for name in (*crds.converted(), *groups):
        annotations = theirs["CustomResourceDefinition", name]["metadata"].pop("annotations")
        assert annotations == {"helm.sh/resource-policy": "keep"}, "its objects outlive the release"
    assert theirs == ours


@pytest.mark.parametrize("metrics", [{}, {"metrics_secure": True}])
@pytest.mark.parametrize("values", [TUNED, {"podDisruptionBudget.enabled": False}, WITH_PAGES])
@pytest.mark.parametrize("separate", [False, True])
def test_the_chart_and_install_make_the_same_of_values(
    values: Object, separate: bool, metrics: Object
) -> None:
    given = nested(values)
    chosen = InstallSettings(
        namespace="here", separate=separate, values=given, dashboard_shared=shares_dashboard(given), **metrics
    )
    ours = by_name(manifests.manifests(chosen))
    theirs = by_name(rendered(made_chart(), "here", given=values, separate=separate, **metrics))
    kinds = {"Deployment", "ServiceAccount", "PodDisruptionBudget", "ServiceMonitor", "Service"}
    kinds |= {"Ingress", "ClusterRole", "ClusterRoleBinding", "NetworkPolicy"}
    kinds |= {"MutatingWebhookConfiguration", "ValidatingWebhookConfiguration"}
    assert {name for name in ours if name[0] in kinds} == {name for name in theirs if name[0] in kinds}
    for name, one in ours.items():
        if name[0] in kinds:
            assert theirs[name] == one
    if values is TUNED:
        assert "priorityClassName" not in ours["Deployment", "bayplan"]["spec"]["template"]["spec"]
        assert (("ServiceMonitor", "bayplan-webhooks") in ours) == separate
        assert ("Ingress", "bayplan-dashboard") in ours
    elif values is WITH_PAGES:
        assert ("Deployment", "bayplan-dashboard") not in ours and ("Service", "bayplan-dashboard") in ours
    else:
        assert not [name for name in ours if name[0] == "PodDisruptionBudget"]


def test_every_value_is_in_the_schema_and_every_default_fits_it() -> None:
    def keys(inside: Any, prefix: str = "") -> set[str]:
        below = inside.get("properties", {})
        return {f"{prefix}{name}" for name in below} | {
            path for name, one in below.items() for path in keys(one, f"{prefix}{name}.")
        }

    def paths(inside: Any, prefix: str = "") -> set[str]:
        return {f"{prefix}{name}" for name in inside} | {
            path
            for name, one in inside.items()
            if isinstance(one, dict)
            and name not in ("requests", "limits", "labels", "issuer")  # keys that users choose
            for path in paths(one, f"{prefix}{name}.")
        }

    validator = jsonschema_rs.Draft7Validator(dict(SCHEMA))
    assert list(validator.iter_errors(DEFAULT_VALUES)) == []
    assert keys(SCHEMA) - {"global", "resources.claims"} == paths(DEFAULT_VALUES)
    assert list(validator.iter_errors(nested(TUNED))) == []


@pytest.mark.parametrize(
    "wrong",
    [
        {"replicas": 0},
        {"image": "bayplan:1"},
        {"roles": ["cook"]},
        {"webhooks": {"failurePolicy": "Perhaps"}},
        {"nodeSelektor": {}},
        {"image": {"digest": "sha256:1"}},
    ],
)
def test_values_that_are_wrong_do_not_fit_the_schema(wrong: Object) -> None:
    assert not jsonschema_rs.Draft7Validator(dict(SCHEMA)).is_valid(wrong)


def test_writing_the_chart_removes_only_what_it_wrote(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(helm_chart, "chart", made_chart)  # it takes a second each time
    write_chart(tmp_path)
    stale, foreign = tmp_path / "templates" / "old.yaml", tmp_path / "mine.yaml"
    stale.write_text(f"{HEADER}kind: Old\n")
    foreign.write_text("kind: Mine\n")
    write_chart(tmp_path)
    assert not stale.exists() and foreign.exists()
    assert {str(path.relative_to(tmp_path)) for path in tmp_path.rglob("*.*") if path.is_file()} == {
        *made_chart(),
        "mine.yaml",
    }


@pytest.fixture(scope="session")
def helm() -> str:
    """The program that people install the chart with: the one pinned here, else any."""
    if find(HELM, DEFAULT_KUBE) or shutil.which("go"):
        return str(build(DEFAULT_KUBE, (HELM,))[HELM.name])
    return shutil.which("helm") or lacking("there is neither helm nor a go command to build it")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The chart as files."""
    found = tmp_path_factory.mktemp("chart") / "bayplan"
    write_chart(found)
    return found


@pytest.mark.real
@pytest.mark.parametrize("separate", [False, True])
@pytest.mark.parametrize(
    ("more", "config", "metrics"),
    [
        *((*one, {}) for one in CHOICES),
        (("grouper",), f"{EMPTY}grouper:\n", {}),
        (("grouper",), f"{EMPTY}grouper: {{}}", {}),
        *SECURE,
    ],
)
def test_helm_agrees(
    helm: str,
    folder: Path,
    tmp_path: Path,
    more: tuple[str, ...],
    config: str,
    separate: bool,
    metrics: Object,
) -> None:
    roles = yaml.safe_load(made_chart()["values.yaml"])["roles"]
    file = tmp_path / "configuration.yaml"
    file.write_text(config)
    chosen = f"roles={{{','.join([*roles, *more])}}}"
    given = ["--namespace=here", "--set", chosen, f"--set-file=config={file}"]
    given += ["--set", "webhooks.deployment=separate"] if separate else []
    given += ["--set", "metrics.secure=true"] if metrics else []
    if secret := metrics.get("metrics_certificate"):
        given += ["--set", f"metrics.certificateSecret={secret}"]
    linted = subprocess.run(
        [helm, "lint", "--strict", str(folder), *given], check=False, capture_output=True, text=True
    )
    assert not linted.returncode, linted.stdout
    made = subprocess.run(
        [helm, "template", "release", str(folder), "--include-crds", "--kube-version=1.35.4", *given],
        check=True,
        capture_output=True,
        text=True,
    )
    found = by_name([document for document in yaml.load_all(made.stdout, yaml.CSafeLoader) if document])
    assert found == by_name(rendered(made_chart(), "here", more, config, separate=separate, **metrics))


@pytest.mark.real
@pytest.mark.parametrize("separate", [False, True])
def test_helm_makes_the_same_of_values(helm: str, folder: Path, tmp_path: Path, separate: bool) -> None:
    chosen = nested(TUNED)
    chosen["webhooks"] |= {"deployment": "separate"} if separate else {}
    file = tmp_path / "values.yaml"
    file.write_text(yaml.safe_dump(chosen))
    made = subprocess.run(
        [
            helm,
            "template",
            "release",
            str(folder),
            "--kube-version=1.35.4",
            "--namespace=here",
            "-f",
            str(file),
        ],
        check=True,
        capture_output=True,
        text=True,
    )
    found = by_name([one for one in yaml.load_all(made.stdout, yaml.CSafeLoader) if one])
    ours = by_name(
        manifests.manifests(InstallSettings(namespace="here", separate=separate, values=nested(TUNED)))
    )
    assert {name: one for name, one in found.items() if name[0] != "CustomResourceDefinition"} == {
        name: one for name, one in ours.items() if name[0] not in ("CustomResourceDefinition", "Namespace")
    }


@pytest.mark.real
def test_helm_refuses_a_value_that_is_not_in_the_schema(helm: str, folder: Path) -> None:
    command = [helm, "template", "release", str(folder), "--kube-version=1.35.4", "--set", "nodeSelektor.a=b"]
    ran = subprocess.run(command, check=False, capture_output=True, text=True)
    assert ran.returncode and "nodeSelektor" in ran.stderr
