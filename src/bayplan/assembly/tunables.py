"""Parts of manifests that users choose: from the values of an installation, or as parts of the Helm chart.

In the chart they are markers, which `chart_parts` turns into the actions of a template. In both cases what is
empty is left out.
"""

from __future__ import annotations

import json
import re
from typing import Any

from bayplan.assembly.chart_values import value
from bayplan.assembly.install_settings import InstallSettings

Object = dict[str, Any]

_JSON = re.compile(r"^( *(?:- )?)([\w.-]+): '?@json:([\w.]+)@(?:(.*)@)?'?$", re.MULTILINE)
_EACH = re.compile(r"^( *)- '?@each:([\w.]+)@'?$", re.MULTILINE)
_PAIRS = re.compile(r"^( *)'?@pairs:([\w.]+)@'?: ''$", re.MULTILINE)


def optional(settings: InstallSettings, key: str, path: str, default: Any = None) -> Object:
    """A field with the value at a path; with the default if that is empty; no field if both are."""
    if settings.templated:
        told = "" if default is None else json.dumps(default, separators=(",", ":")) + "@"
        return {key: f"@json:{path}@{told}"}
    chosen = value(settings.values, path) or default
    return {key: chosen} if chosen else {}


def each(settings: InstallSettings, path: str) -> list[Any]:
    """The items of the list at a path, to be added to another list."""
    return [f"@each:{path}@"] if settings.templated else list(value(settings.values, path))


def pairs(settings: InstallSettings, path: str) -> Object:
    """The entries of the object at a path, to be added to another object."""
    return {f"@pairs:{path}@": ""} if settings.templated else dict(value(settings.values, path))


def single(settings: InstallSettings, path: str) -> Any:
    """One value that is always there."""
    return f"{{{{ .Values.{path} }}}}" if settings.templated else value(settings.values, path)


def enabled(settings: InstallSettings, path: str) -> bool:
    """Whether something is switched on; the chart has it, with a condition."""
    return settings.templated or bool(value(settings.values, path))


def chart_parts(text: str) -> str:
    """YAML with markers as a template."""
    text = _JSON.sub(_json_part, text)
    text = _EACH.sub(r"{{- range .Values.\2 }}\n\1- {{ toJson . }}\n{{- end }}", text)
    return _PAIRS.sub(
        r"{{- range $key, $value := .Values.\2 }}\n\1{{ $key }}: {{ toJson $value }}\n{{- end }}", text
    )


def _json_part(match: re.Match[str]) -> str:
    space, key, path, default = match.groups()
    other = f"{{{{- else }}}}\n{space}{key}: {default}\n" if default else ""
    return f"{{{{- with .Values.{path} }}}}\n{space}{key}: {{{{ toJson . }}}}\n{other}{{{{- end }}}}"
