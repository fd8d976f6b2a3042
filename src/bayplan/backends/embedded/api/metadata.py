"""Validation of object metadata: names, labels, owners, finalizers, and immutable fields."""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Any

from bayplan.backends.embedded.api.resource import Resource
from bayplan.backends.embedded.api.status import FieldProblem, required, too_long, unwanted, wrong

Object = dict[str, Any]

SUBDOMAIN = "[a-z0-9]([-a-z0-9]*[a-z0-9])?(\\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*"
LABEL = "[a-z0-9]([-a-z0-9]*[a-z0-9])?"
_QUALIFIED = "([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]"
_VALUE = f"({_QUALIFIED})?"

_ENDS = "and must start and end with an alphanumeric character"
_SUBDOMAIN_TOLD = (
    f"a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', {_ENDS} "
    f"(e.g. 'example.com', regex used for validation is '{SUBDOMAIN}')"
)
_LABEL_TOLD = (
    f"a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', {_ENDS} "
    f"(e.g. 'my-name',  or '123-abc', regex used for validation is '{LABEL}')"
)
_QUALIFIED_TOLD = (
    f"name part must consist of alphanumeric characters, '-', '_' or '.', {_ENDS} "
    f"(e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for validation is '{_QUALIFIED}')"
)
_VALUE_TOLD = (
    f"a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or '.', {_ENDS} "
    f"(e.g. 'MyValue',  or 'my_value',  or '12345', regex used for validation is '{_VALUE}')"
)
_SUBDOMAIN_RE, _LABEL_RE, _QUALIFIED_RE, _VALUE_RE = (
    re.compile(rule) for rule in (SUBDOMAIN, LABEL, _QUALIFIED, _VALUE)
)
_STANDARD_FINALIZERS = {"orphan", "foregroundDeletion", "kubernetes"}
_NAMES_AS_LABELS = {"namespaces", "services"}
_NAMES_AS_PATHS = {"roles", "rolebindings", "clusterroles", "clusterrolebindings"}

NAME_MAX = 253
_LABEL_MAX = 63
_GENERATED_MAX = 58  # of the part that was given
_ANNOTATIONS_MAX = 262144


def generated_name(prefix: str, suffix: str) -> str:
    """A name from generateName."""
    return prefix[:_GENERATED_MAX] + suffix


def check(item: Object, resource: Resource) -> list[FieldProblem]:
    """What is wrong with the metadata of an object."""
    metadata = item["metadata"]
    problems = []
    name = metadata.get("name", "")
    if not name:
        problems.append(required("metadata.name", "name or generateName is required"))
    else:
        problems += [wrong("metadata.name", name, why) for why in check_name(name, resource.plural)]
    if resource.namespaced and not metadata.get("namespace"):
        problems.append(required("metadata.namespace"))
    elif resource.namespaced:
        namespace = metadata["namespace"]
        problems += [wrong("metadata.namespace", namespace, why) for why in check_label(namespace)]
    problems += _labels(metadata.get("labels") or {})
    problems += _annotations(metadata.get("annotations") or {})
    problems += _owners(metadata.get("ownerReferences") or ())
    for place, finalizer in enumerate(metadata.get("finalizers") or ()):
        problems += _finalizer(place, finalizer, resource.custom)
    return problems


def check_name(name: str, plural: str) -> tuple[str, ...]:
    """What is wrong with a name, by the rules of its kind."""
    if plural in _NAMES_AS_PATHS:
        return tuple(f"may not contain '{sign}'" for sign in ("/", "%") if sign in name)
    if plural in _NAMES_AS_LABELS:
        return check_label(name)
    return _shape(name, NAME_MAX, _SUBDOMAIN_RE, _SUBDOMAIN_TOLD, "characters")


@lru_cache(maxsize=4096)
def check_label(name: str) -> tuple[str, ...]:
    """What keeps a text from being a DNS label."""
    return _shape(name, _LABEL_MAX, _LABEL_RE, _LABEL_TOLD, "characters")


@lru_cache(maxsize=4096)
def check_qualified(name: str) -> tuple[str, ...]:
    """What keeps a text from being a qualified name such as example.com/name."""
    prefix, slash, short = name.rpartition("/")
    found: list[str] = []
    if slash and not prefix:
        found.append("prefix part must be non-empty")
    elif prefix:
        found += [f"prefix part {why}" for why in _shape(prefix, NAME_MAX, _SUBDOMAIN_RE, _SUBDOMAIN_TOLD)]
    if not short:
        return (*found, "name part must be non-empty", _QUALIFIED_TOLD)
    if len(short) > _LABEL_MAX:
        found.append(f"name part must be no more than {_LABEL_MAX} bytes")
    return tuple(found) if _QUALIFIED_RE.fullmatch(short) else (*found, _QUALIFIED_TOLD)


@lru_cache(maxsize=4096)
def check_label_value(value: str) -> tuple[str, ...]:
    """What keeps a text from being a label's value."""
    return _shape(value, _LABEL_MAX, _VALUE_RE, _VALUE_TOLD)


def check_update(item: Object, old: Object) -> list[FieldProblem]:
    """What an update may not do to metadata."""
    metadata, before = item["metadata"], old["metadata"]
    problems = [
        wrong(f"metadata.{key}", metadata.get(key), "field is immutable")
        for key in ("name", "namespace", "uid", "creationTimestamp")
        if metadata.get(key) != before.get(key)
    ]
    if before.get("deletionTimestamp"):
        known = before.get("finalizers") or ()
        added = sorted(one for one in metadata.get("finalizers") or () if one not in known)
        if added:
            listed = ", ".join(f'"{one}"' for one in added)
            why = "no new finalizers can be added if the object is being deleted, found new finalizers "
            problems.append(unwanted("metadata.finalizers", f"{why}[]string{{{listed}}}"))
    return problems


def _shape(
    text: str, limit: int, rule: re.Pattern[str], message: str, unit: str = "bytes"
) -> tuple[str, ...]:
    """Newer checks count bytes, and older ones the same bytes as characters."""
    found = (f"must be no more than {limit} {unit}",) if len(text) > limit else ()
    return found if rule.fullmatch(text) else (*found, message)


def _labels(labels: dict[str, str]) -> list[FieldProblem]:
    problems = []
    for key, value in sorted(labels.items()):
        problems += [wrong("metadata.labels", key, why) for why in check_qualified(key)]
        problems += [wrong("metadata.labels", value, why) for why in check_label_value(value)]
    return problems


def _annotations(annotations: dict[str, str]) -> list[FieldProblem]:
    problems = [
        wrong("metadata.annotations", key, why)
        for key in sorted(annotations)
        for why in check_qualified(key.lower() if "/" in key else key)
    ]
    if sum(len(key) + len(value) for key, value in annotations.items()) > _ANNOTATIONS_MAX:
        problems.append(too_long("metadata.annotations", _ANNOTATIONS_MAX))
    return problems


def _owners(owners: Any) -> list[FieldProblem]:
    problems, controllers = [], []
    for owner in owners:
        if not owner.get("apiVersion"):
            problems.append(wrong("metadata.ownerReferences.apiVersion", "", "version must not be empty"))
        problems += [
            wrong(f"metadata.ownerReferences.{key}", "", "must not be empty")
            for key in ("kind", "name", "uid")
            if not owner.get(key)
        ]
        if owner.get("controller"):
            controllers.append(f"{owner.get('kind')}/{owner.get('name')}")
    if len(controllers) > 1:
        found = f'Found "true" in references for {controllers[0]} and {controllers[1]}'
        why = f"Only one reference can have Controller set to true. {found}"
        problems.append(wrong("metadata.ownerReferences", owners, why))
    return problems


def _finalizer(place: int, name: str, custom: bool) -> list[FieldProblem]:
    problems = [wrong("metadata.finalizers", name, why) for why in check_qualified(name)]
    if not custom and "/" not in name and name not in _STANDARD_FINALIZERS:
        why = "name is neither a standard finalizer name nor is it fully qualified"
        problems.append(wrong(f"metadata.finalizers[{place}]", name, why))
    return problems
