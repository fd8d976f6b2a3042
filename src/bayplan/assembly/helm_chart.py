"""The Helm chart, written from the same objects as `bayplan install`; a test looks that it is up to date."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from difflib import SequenceMatcher
from functools import partial
from pathlib import Path
from textwrap import indent
from typing import Any

import yaml

from bayplan import __version__
from bayplan.assembly import manifests
from bayplan.assembly.crds import converted
from bayplan.assembly.install_settings import ALL_ROLES, DEFAULTS_ROLE, IMAGE, SERVED_ROLES, InstallSettings
from bayplan.backends.definitions import is_of_groups
from bayplan.configuration.settings import EMPTY

PLACEHOLDERS = InstallSettings(
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
SEPARATE = {"separate": True, "roles_text": '{{ join "," (without .Values.roles "webhooks") }}'}
"""What differs if the webhooks have a Deployment of their own."""
SECURE = {"metrics_secure": True}
CERTIFIED = {**SECURE, "metrics_certificate": "{{ .Values.metrics.certificateSecret }}"}
IS_SECURE, IS_CERTIFIED = ".Values.metrics.secure", ".Values.metrics.certificateSecret"
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
HEADER = "# Written by `python -m bayplan.cli.commands.install --chart`; change src/bayplan/assembly/manifests.py instead.\n"

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

# How metrics are read: over HTTP by every client that reaches the port, or, if "secure", over HTTPS by those
# only who may get /metrics in the cluster. The certificate is self-signed, or that of a TLS Secret in the
# namespace of the release.
metrics:
  secure: false
  certificateSecret: ""

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
            asked = _block(".Values.crds", text)
            files[f"templates/{name}.yaml"] = HEADER + (_with_role("grouper", asked) if of_groups else asked)
        else:
            files[f"crds/{name}.yaml"] = HEADER + template(definition)
    for name, text in _templates(manifests.common).items():
        files[f"templates/{name}"] = HEADER + text
    for role in PLACEHOLDERS.roles:
        for name, text in _templates(partial(manifests.of_role, role)).items():
            asked = _with_defaults(text) if DEFAULTS_ROLE in name else text
            files[f"templates/{name}"] = HEADER + _with_role(role, asked)
    return files


def _templates(make: Callable[[InstallSettings], list[Object]]) -> dict[str, str]:
    """Each object by its file, as it is with every choice that the values leave open."""

    def chosen(**choice: Any) -> dict[str, list[str]]:
        objects = make(replace(PLACEHOLDERS, **choice))
        return {_file(one): template(one).splitlines() for one in objects}

    def with_metrics(**choice: Any) -> dict[str, list[str]]:
        secure = _merged(IS_CERTIFIED, chosen(**choice, **CERTIFIED), chosen(**choice, **SECURE))
        return _merged(IS_SECURE, secure, chosen(**choice))

    found = _merged(IS_SEPARATE, with_metrics(**SEPARATE), with_metrics())
    texts = {name: "".join(f"{part}\n" for part in parts) for name, parts in found.items()}
    return {
        name: _block(".Values.networkPolicy.enabled", text) if name.startswith("networkpolicy-") else text
        for name, text in texts.items()
    }


def _merged(condition: str, yes: dict[str, list[str]], no: dict[str, list[str]]) -> dict[str, list[str]]:
    """Templates that give the first if a condition holds and else the second.

    A template is a list of parts: lines, and blocks between an if and its end, which are never cut in two.
    Only the parts that differ depend on the condition.
    """
    found = {}
    for name in {**no, **yes}:
        there, here = yes.get(name, []), no.get(name, [])
        parts: list[str] = []
        for what, a, b, c, d in SequenceMatcher(None, there, here, autojunk=False).get_opcodes():
            if what == "equal":
                parts += there[a:b]
            else:
                texts = ["".join(f"{part}\n" for part in some) for some in (there[a:b], here[c:d])]
                parts.append(_block(condition, *texts).removesuffix("\n"))
        found[name] = parts
    return found


def _block(condition: str, yes: str, no: str = "") -> str:
    """Text that depends on a condition."""
    if not yes:
        return f"{{{{- if not {condition} }}}}\n{no}{{{{- end }}}}\n"
    other = f"{{{{- else }}}}\n{no}" if no else ""
    return f"{{{{- if {condition} }}}}\n{yes}{other}{{{{- end }}}}\n"


def _with_role(role: str, text: str) -> str:
    """A template that counts only if a role is chosen."""
    return _block(f'has "{role}" .Values.roles', text)


def _with_defaults(text: str) -> str:
    """A template that counts only if the configuration names a ConfigMap with defaults by kind."""
    named = "{{- $grouper := default dict (fromYaml .Values.config).grouper }}"
    return f"{named}\n{_block('$grouper.defaults', text)}"


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
