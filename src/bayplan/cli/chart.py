"""The Helm chart, written from the same objects as `bayplan install`; a test looks that it is up to date."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from textwrap import indent
from typing import Any

import yaml

from bayplan import __version__
from bayplan.backends.definitions import is_of_groups
from bayplan.cli import manifests
from bayplan.cli.configured import EMPTY
from bayplan.cli.definitions import converted
from bayplan.cli.install_settings import ALL_ROLES, DEFAULTS_ROLE, IMAGE, SERVED_ROLES, Settings

PLACEHOLDERS = Settings(
    namespace="{{ .Release.Namespace }}",
    image="{{ .Values.image }}",
    roles=ALL_ROLES,
    replicas="{{ .Values.replicas }}",
    config="{{ .Values.config | toJson }}",
    roles_text='{{ join "," .Values.roles }}',
    digest_text="{{ .Values.config | sha256sum }}",
    defaults_text=(
        '{{ (split "/" $grouper.defaults)._0 }}',
        '{{ (split "/" $grouper.defaults)._1 }}',
    ),
    trusted_text="@trusted@",
    metrics_peers="@metrics-peers@",
)
SEPARATE = replace(
    PLACEHOLDERS, separate=True, roles_text='{{ join "," (without .Values.roles "webhooks") }}'
)
"""The same with the webhooks in a Deployment of their own."""
IS_SEPARATE = (
    '(and (eq .Values.webhooks.deployment "separate") (has "webhooks" .Values.roles) '
    "(gt (len .Values.roles) 1))"
)
LITERAL = {
    "'{{ .Values.replicas }}'": "{{ .Values.replicas }}",
    "'{{ .Values.config | toJson }}'": "{{ .Values.config | toJson }}",
    "@trusted@": "{{ .Values.trustedGroups | toJson }}",
    "'@metrics-peers@'": (
        '[{"namespaceSelector": {{ if .Values.networkPolicy.metricsFrom }}{"matchExpressions": [{"key": '
        '"kubernetes.io/metadata.name", "operator": "In", "values": '
        "{{ .Values.networkPolicy.metricsFrom | toJson }}}]}{{ else }}{}{{ end }}}]"
    ),
}
"""What is put into a template once it is YAML, with quotes and in lines of its own making."""
Object = dict[str, Any]
HEADER = (
    "# Written by `python -m bayplan.cli.install --chart`; change src/bayplan/cli/manifests.py instead.\n"
)

CHART = {
    "apiVersion": "v2",
    "name": "bayplan",
    "description": "Topology-aware gang scheduling for Kubernetes",
    "type": "application",
    "version": __version__,
    "appVersion": __version__,
    "kubeVersion": ">=1.30.0-0",
}
VALUES = f"""{HEADER}
# The image of every replica.
image: {IMAGE}

# One leads, the others stand by.
replicas: 2

# Whether to bring the definitions that the role webhooks converts, or that come with the role grouper;
# helm has --skip-crds for the others.
crds: true

# What the replicas do; each role brings the rights that it needs. Known: {", ".join(ALL_ROLES)}.
roles:
{"".join(f"  - {role}{chr(10)}" for role in SERVED_ROLES)}
# Where the webhooks run: "shared" with the other roles, or "separate", in a Deployment of their own under an
# account that can read and write less.
webhooks:
  deployment: shared

# Groups whose users may remove our gates from pods and change our labels, to repair a cluster by hand.
trustedGroups:
  - system:masters

# Who may connect to the replicas; metrics are read from pods of these namespaces, of all if there is none.
networkPolicy:
  enabled: true
  metricsFrom: []

# A configuration as text, see docs/reference/configuration.md; helm reads it out of a file with
# --set-file config=FILE. The replicas are replaced when it changes.
config: |
{indent(EMPTY, "  ")}"""


def chart() -> dict[str, str]:
    """Every file of the chart, by its path below the chart's folder."""
    files = {"Chart.yaml": HEADER + dumped(CHART), "values.yaml": VALUES}
    for definition in manifests.custom_resources(PLACEHOLDERS):
        name = definition["metadata"]["name"]
        of_groups = is_of_groups(definition)
        if name in converted() or of_groups:
            # Helm fills in templates only, and would delete what it made from them.
            kept = {**definition["metadata"], "annotations": {"helm.sh/resource-policy": "keep"}}
            text = template({**definition, "metadata": kept})
            asked = f"{{{{- if .Values.crds }}}}\n{text}{{{{- end }}}}\n"
            files[f"templates/{name}.yaml"] = HEADER + (_with_role("grouper", asked) if of_groups else asked)
        else:
            files[f"crds/{name}.yaml"] = HEADER + template(definition)
    for shared, apart in _pairs(manifests.common):
        files[f"templates/{_file(shared or apart)}"] = HEADER + _either(shared, apart)
    for role in PLACEHOLDERS.roles:
        for shared, apart in _pairs(partial(manifests.of_role, role)):
            one = shared or apart
            text = _either(shared, apart)
            asked = _with_defaults(text) if one["metadata"]["name"] == DEFAULTS_ROLE else text
            files[f"templates/{_file(one)}"] = HEADER + _with_role(role, asked)
    return files


def _pairs(make: Callable[[Settings], list[Object]]) -> list[tuple[Object, Object]]:
    """Each object as it is where the webhooks are shared and where they are separate; empty if it is not."""
    shared, apart = ({_file(one): one for one in make(chosen)} for chosen in (PLACEHOLDERS, SEPARATE))
    return [(shared.get(name, {}), apart.get(name, {})) for name in {**shared, **apart}]


def _either(shared: Object, apart: Object) -> str:
    """A template for an object that depends on where the webhooks run."""
    kind = (shared or apart)["kind"]
    here, there = (template(one) if one else "" for one in (shared, apart))
    if here == there:
        text = here
    else:
        other = f"{{{{- else }}}}\n{here}" if here else ""
        text = f"{{{{- if {IS_SEPARATE} }}}}\n{there}{other}{{{{- end }}}}\n"
    if kind == "NetworkPolicy":
        return f"{{{{- if .Values.networkPolicy.enabled }}}}\n{text}{{{{- end }}}}\n"
    return text


def _with_role(role: str, text: str) -> str:
    """A template that counts only if a role is chosen."""
    return f'{{{{- if has "{role}" .Values.roles }}}}\n{text}{{{{- end }}}}\n'


def _with_defaults(text: str) -> str:
    """A template that counts only if the configuration names a ConfigMap with defaults by kind."""
    named = "{{- $grouper := default dict (fromYaml .Values.config).grouper }}"
    return f"{named}\n{{{{- if $grouper.defaults }}}}\n{text}{{{{- end }}}}\n"


def write_chart(folder: Path) -> list[Path]:
    """Write the chart, and remove what an earlier writing left that is no longer part of it."""
    wanted = {folder / name: text for name, text in chart().items()}
    for path in sorted(folder.rglob("*.yaml")):
        if path not in wanted and path.read_text(encoding="utf-8").startswith(HEADER):
            path.unlink()
    for path, text in wanted.items():
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    return sorted(wanted)


def template(obj: dict[str, Any]) -> str:
    """An object with Helm's placeholders in it; those without quotes that bring their own, or need none."""
    text = dumped(obj)
    for written, meant in LITERAL.items():
        text = text.replace(written, meant)
    return text


def dumped(*objects: dict[str, Any]) -> str:
    """Objects as YAML that reads like written by hand."""
    return yaml.dump_all(objects, Dumper=_Dumper, sort_keys=False, width=110, allow_unicode=True)


class _Dumper(yaml.SafeDumper):
    """Repeats what occurs twice, and indents lists."""

    def ignore_aliases(self, data: Any) -> bool:
        return True

    def increase_indent(self, flow: bool = False, indentless: bool = False) -> None:
        super().increase_indent(flow, False)


def _file(obj: dict[str, Any]) -> str:
    return f"{obj['kind'].lower()}-{obj['metadata']['name']}.yaml"
