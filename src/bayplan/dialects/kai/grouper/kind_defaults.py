"""Defaults by kind from a ConfigMap: priority class and preemptibility."""

from __future__ import annotations

import json
from collections.abc import Mapping
from functools import lru_cache

from bayplan.dialects.kai.api.names import NON_PREEMPTIBLE, PREEMPTIBLE
from bayplan.dialects.kube.fields.reader import Field, shorten

KEY = "types"
"""The key in the ConfigMap; its value is a JSON list."""
TYPE_NAME, GROUP, PRIORITY_NAME, PREEMPTIBILITY = "typeName", "group", "priorityName", "preemptibility"
_KNOWN = (TYPE_NAME, GROUP, PRIORITY_NAME, PREEMPTIBILITY)

Defaults = Mapping[str, Mapping[str, str]]
"""By kind, or by kind and group as in Deployment.apps."""


def defaults_of(config_map: object) -> Defaults:
    """The valid entries of a ConfigMap."""
    return _read(Field(config_map).at("data", KEY).text("[]"))[0]


def problems_of(config_map: object) -> tuple[str, ...]:
    """The errors in a ConfigMap."""
    text = Field(config_map).at("data", KEY)
    return _read(text.text())[1] if text.present else (f"{KEY} is missing",)


def of_kind(defaults: Defaults, api_version: str, kind: str) -> Mapping[str, str]:
    """The defaults of a kind: with its group, else of the kind in any group."""
    group = api_version.rpartition("/")[0]
    return defaults.get(_kind_name(group, kind)) or defaults.get(kind) or {}


@lru_cache(maxsize=8)  # the same text for every grouped pod
def _read(text: str) -> tuple[Defaults, tuple[str, ...]]:
    """The entries and the errors. The last entry for a kind wins; invalid entries are skipped."""
    try:
        entries = json.loads(text)
    except (ValueError, RecursionError) as error:
        return {}, (f"{KEY} is no JSON: {error}",)
    if not isinstance(entries, list):
        return {}, (f"{KEY} must be a list of entries",)
    defaults: dict[str, dict[str, str]] = {}
    problems: list[str] = []
    for number, entry in enumerate(entries):
        where = f"{KEY}[{number}]"
        if not isinstance(entry, dict):
            problems.append(f"{where} must be an object, not {shorten(entry)}")
            continue
        one = {str(key): value for key, value in entry.items() if isinstance(value, str)}
        problems += _entry_problems(where, entry, one)
        if kind := one.get(TYPE_NAME, ""):
            defaults[_kind_name(one.get(GROUP, ""), kind)] = one
    return defaults, tuple(problems)


def _entry_problems(where: str, entry: Mapping[str, object], texts: Mapping[str, str]) -> list[str]:
    problems = [f"{where}.{key} is not known here" for key in entry if key not in _KNOWN]
    problems += [f"{where}.{key} must be text" for key in entry if key in _KNOWN and key not in texts]
    if TYPE_NAME not in entry or texts.get(TYPE_NAME) == "":
        problems.append(f"{where}.{TYPE_NAME} is missing")
    value = texts.get(PREEMPTIBILITY, "")
    if value and value.lower() not in (PREEMPTIBLE, NON_PREEMPTIBLE):
        problems.append(
            f"{where}.{PREEMPTIBILITY} must be {PREEMPTIBLE} or {NON_PREEMPTIBLE}, not {shorten(value)}"
        )
    return problems


def _kind_name(group: str, kind: str) -> str:
    """A kind with its group in one name, as in Deployment.apps."""
    return f"{kind}.{group}" if group else kind
