"""The Helm chart: up to date, and the same objects as `bayplan install` makes."""

from __future__ import annotations

import hashlib
import json
import re
import shutil
import subprocess
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import yaml

from bayplan.backends.definitions import is_of_groups
from bayplan.cli import definitions, manifests
from bayplan.cli.chart import HEADER, IS_SEPARATE, LITERAL, chart, write_chart
from bayplan.cli.configured import EMPTY
from bayplan.cli.install_settings import DEFAULTS_ROLE, Settings
from bayplan.cli.rights import ROLES
from tests.lacking import lacking
from tools.controlplane.build import build, find
from tools.controlplane.plan import DEFAULT_KUBE, HELM

ROOT = Path(__file__).parents[2]
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
    assert found == made_chart(), "write it again: python -m bayplan.cli.install --chart deploy/chart"


def rendered(
    files: dict[str, str], namespace: str, more: tuple[str, ...] = (), config: str = "", **chosen: Any
) -> list[Object]:
    """What Helm would make of the few things that our templates use, with these roles besides the usual."""
    values = yaml.load(files["values.yaml"], Loader=yaml.CSafeLoader)
    values["roles"] += more
    values["config"] = config or values["config"]
    grouper = yaml.load(values["config"], Loader=yaml.CSafeLoader).get("grouper") or {}
    separate = chosen.get("separate", False)
    found = []
    for path, text in files.items():
        if path.startswith(("templates/", "crds/")):
            needed = set(re.findall(r'{{- if has "(\w+)" .Values.roles }}', text))
            assert needed <= set(ROLES)
            if not needed <= set(values["roles"]):
                continue
            if "{{- if $grouper.defaults }}" in text:
                if not grouper.get("defaults"):
                    continue
                for number, word in enumerate(grouper["defaults"].split("/")):
                    text = text.replace(f'{{{{ (split "/" $grouper.defaults)._{number} }}}}', word)
            if (asked := f"{{{{- if {IS_SEPARATE} }}}}\n") in text:
                before, _, rest = text.partition(asked)
                apart, other, shared = rest.partition("{{- else }}\n")
                text = before + (apart if separate else shared if other else "")
            text = re.sub(r"{{- (if|end|\$grouper).*?}}\n", "", text)
            if not yaml.load(re.sub("{{.*?}}", "", text.partition("kind:")[0]), Loader=yaml.CSafeLoader):
                continue
            text = text.replace("{{ .Release.Namespace }}", namespace)
            text = text.replace('{{ join "," .Values.roles }}', ",".join(values["roles"]))
            others = ",".join(role for role in values["roles"] if role != "webhooks")
            text = text.replace('{{ join "," (without .Values.roles "webhooks") }}', others)
            text = text.replace("{{ .Values.config | toJson }}", json.dumps(values["config"]))
            digest = hashlib.sha256(values["config"].encode()).hexdigest()
            text = text.replace("{{ .Values.config | sha256sum }}", digest)
            text = text.replace(LITERAL["'@metrics-peers@'"], json.dumps([{"namespaceSelector": {}}]))
            text = text.replace(LITERAL["@trusted@"], json.dumps(values["trustedGroups"]))
            for name in ("image", "replicas"):
                text = text.replace(f"{{{{ .Values.{name} }}}}", str(values[name]))
            assert "{{" not in text, path
            found.append(yaml.load(text, Loader=yaml.CSafeLoader))
    return found


def by_name(objects: list[Object]) -> dict[tuple[str, str], Object]:
    return {(one["kind"], one["metadata"]["name"]): one for one in objects}


def is_definition_of_groups(one: Object) -> bool:
    return one["kind"] == "CustomResourceDefinition" and is_of_groups(one)


CHOICES = [((), EMPTY), (("grouper",), EMPTY), ((), DEFAULTS), (("grouper",), DEFAULTS)]


@pytest.mark.parametrize("separate", [False, True])
@pytest.mark.parametrize(("more", "config"), CHOICES)
def test_the_chart_makes_what_install_makes(more: tuple[str, ...], config: str, separate: bool) -> None:
    roles = (*manifests.SERVED_ROLES, *more)
    chosen = Settings(namespace="here", roles=roles, config=config, separate=separate)
    ours = by_name(manifests.manifests(chosen))
    assert (("Deployment", "bayplan-webhooks") in ours) == separate
    assert (("Role", DEFAULTS_ROLE) in ours) == bool(more and config == DEFAULTS)
    del ours["Namespace", "here"]  # Helm has --create-namespace
    theirs = by_name(rendered(made_chart(), "here", more, config, separate=separate))
    groups = [one["metadata"]["name"] for one in theirs.values() if is_definition_of_groups(one)]
    assert len(groups) == (3 if more else 0), "kubectl get topologies means what it did, unless asked for"
    for name in (*definitions.converted(), *groups):
        annotations = theirs["CustomResourceDefinition", name]["metadata"].pop("annotations")
        assert annotations == {"helm.sh/resource-policy": "keep"}, "its objects outlive the release"
    assert theirs == ours


def test_writing_the_chart_removes_only_what_it_wrote(tmp_path: Path) -> None:
    write_chart(tmp_path)
    stale, foreign = tmp_path / "templates" / "old.yaml", tmp_path / "mine.yaml"
    stale.write_text(f"{HEADER}kind: Old\n")
    foreign.write_text("kind: Mine\n")
    write_chart(tmp_path)
    assert not stale.exists() and foreign.exists()
    assert {str(path.relative_to(tmp_path)) for path in tmp_path.rglob("*.yaml")} == {
        *made_chart(),
        "mine.yaml",
    }


@pytest.fixture(scope="session")
def helm() -> str:
    """The program that people install the chart with: the one pinned here, else any."""
    if find(HELM, DEFAULT_KUBE) or shutil.which("go"):
        return str(build(DEFAULT_KUBE, (HELM,))[HELM.name])
    return shutil.which("helm") or lacking("there is neither helm nor a go command to build it")


@pytest.mark.real
@pytest.mark.parametrize("separate", [False, True])
@pytest.mark.parametrize(
    ("more", "config"),
    [*CHOICES, (("grouper",), f"{EMPTY}grouper:\n"), (("grouper",), f"{EMPTY}grouper: {{}}")],
)
def test_helm_agrees(helm: str, tmp_path: Path, more: tuple[str, ...], config: str, separate: bool) -> None:
    folder = tmp_path / "bayplan"
    write_chart(folder)
    roles = yaml.load(made_chart()["values.yaml"], Loader=yaml.CSafeLoader)["roles"]
    file = tmp_path / "configuration.yaml"
    file.write_text(config)
    chosen = f"roles={{{','.join([*roles, *more])}}}"
    given = ["--namespace=here", "--set", chosen, f"--set-file=config={file}"]
    given += ["--set", "webhooks.deployment=separate"] if separate else []
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
    found = by_name(
        [document for document in yaml.load_all(made.stdout, Loader=yaml.CSafeLoader) if document]
    )
    assert found == by_name(rendered(made_chart(), "here", more, config, separate=separate))
