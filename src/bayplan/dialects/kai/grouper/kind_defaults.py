"""Defaults by kind out of a ConfigMap: priority class and preemptibility where nothing else is said."""

from __future__ import annotations

import json
from collections.abc import Mapping
from functools import lru_cache

from bayplan.dialects.kai.api.names import NON_PREEMPTIBLE, PREEMPTIBLE
from bayplan.dialects.kube.fields.reader import Field, shorten

KEY = "types"
"""Where they stand in the ConfigMap: a list in JSON."""
TYPE_NAME, GROUP, PRIORITY_NAME, PREEMPTIBILITY = "typeName", "group", "priorityName", "preemptibility"
_KNOWN = (TYPE_NAME, GROUP, PRIORITY_NAME, PREEMPTIBILITY)

Defaults = Mapping[str, Mapping[str, str]]
"""By kind, or by kind and group as in Deployment.apps."""


def defaults_of(config_map: object) -> Defaults:
    """What a ConfigMap says, as far as it can be read."""
    return _read(Field(config_map).at("data", KEY).text("[]"))[0]


def problems_of(config_map: object) -> tuple[str, ...]:
    """What is wrong with it."""
    text = Field(config_map).at("data", KEY)
    return _read(text.text())[1] if text.present else (f"{KEY} is missing",)


def of_kind(defaults: Defaults, api_version: str, kind: str) -> Mapping[str, str]:
    """What is said of a kind: of its group, or else of the kind in any group."""
    group = api_version.rpartition("/")[0]
    return defaults.get(_kind_name(group, kind)) or defaults.get(kind) or {}


@lru_cache(maxsize=8)  # the same text for every pod that is grouped
def _read(text: str) -> tuple[Defaults, tuple[str, ...]]:
    """Of entries for the same kind the last; what is no entry is passed over."""
    try:
        listed = json.loads(text)
    except (ValueError, RecursionError) as wrong:
        return {}, (f"{KEY} is no JSON: {wrong}",)
    if not isinstance(listed, list):
        return {}, (f"{KEY} must be a list of entries",)
    found: dict[str, dict[str, str]] = {}
    problems: list[str] = []
    for number, entry in enumerate(listed):
        where = f"{KEY}[{number}]"
        if not isinstance(entry, dict):
            problems.append(f"{where} must be an object, not {shorten(entry)}")
            continue
        one = {str(key): value for key, value in entry.items() if isinstance(value, str)}
        problems += _entry_problems(where, entry, one)
        if kind := one.get(TYPE_NAME, ""):
            found[_kind_name(one.get(GROUP, ""), kind)] = one
    return found, tuple(problems)


def _entry_problems(where: str, entry: Mapping[str, object], texts: Mapping[str, str]) -> list[str]:
    found = [f"{where}.{key} is not known here" for key in entry if key not in _KNOWN]
    found += [f"{where}.{key} must be text" for key in entry if key in _KNOWN and key not in texts]
    if TYPE_NAME not in entry or texts.get(TYPE_NAME) == "":
        found.append(f"{where}.{TYPE_NAME} is missing")
    said = texts.get(PREEMPTIBILITY, "")
    if said and said.lower() not in (PREEMPTIBLE, NON_PREEMPTIBLE):
        found.append(
            f"{where}.{PREEMPTIBILITY} must be {PREEMPTIBLE} or {NON_PREEMPTIBLE}, not {shorten(said)}"
        )
    return found


def _kind_name(group: str, kind: str) -> str:
    """A kind with its group, as administrators may also write it in one: Deployment.apps."""
    return f"{kind}.{group}" if group else kind
