"""Naming rules of Kubernetes: label keys, label values and DNS names; and short hashes for name suffixes."""

from __future__ import annotations

import hashlib
import re

from bayplan.dialects.kube.fields.text_cache import cached_by_text

LABEL_MAX = 63
SUBDOMAIN_MAX = 253

_NAME = "([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]"
_LABEL_VALUE = "(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?"
_DNS_LABEL = "[a-z0-9]([-a-z0-9]*[a-z0-9])?"
_SUBDOMAIN = rf"{_DNS_LABEL}(\.{_DNS_LABEL})*"

_NAME_IS = (
    "must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric "
    f"character (e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for validation is '{_NAME}')"
)
_SUBDOMAIN_IS = (
    "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', and must "
    "start and end with an alphanumeric character (e.g. 'example.com', "
    f"regex used for validation is '{_SUBDOMAIN}')"
)
_DNS_LABEL_IS = (
    "a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', and must start "
    "and end with an alphanumeric character (e.g. 'my-name',  or '123-abc', "
    f"regex used for validation is '{_DNS_LABEL}')"
)
_LABEL_VALUE_IS = (
    "a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or '.', and must "
    "start and end with an alphanumeric character (e.g. 'MyValue',  or 'my_value',  or '12345', "
    f"regex used for validation is '{_LABEL_VALUE}')"
)


@cached_by_text(4096)  # few keys occur on many objects
def label_key_problems(key: str) -> tuple[str, ...]:
    """The errors of a label key: a name, optionally with a DNS subdomain and a slash before it."""
    prefix, slash, name = key.rpartition("/")
    if key.count("/") > 1:
        prefixed = "with an optional DNS subdomain prefix and '/' (e.g. 'example.com/MyName')"
        return (f"a valid label key {_NAME_IS} {prefixed}",)
    problems: list[str] = []
    if slash and not prefix:
        problems.append("prefix part must be non-empty")
    elif slash:
        problems += [f"prefix part {problem}" for problem in subdomain_problems(prefix)]
    if not name:
        problems.append("name part must be non-empty")
    elif len(name) > LABEL_MAX:
        problems.append(f"name part must be no more than {LABEL_MAX} bytes")
    if not re.fullmatch(_NAME, name):
        problems.append(f"name part {_NAME_IS}")
    return tuple(problems)


def label_value_problems(value: str) -> list[str]:
    """The errors of a label value: a name, or empty."""
    problems = [f"must be no more than {LABEL_MAX} bytes"] if len(value) > LABEL_MAX else []
    return problems if re.fullmatch(_LABEL_VALUE, value) else [*problems, _LABEL_VALUE_IS]


def subdomain_problems(name: str, unit: str = "bytes") -> list[str]:
    """The errors of a DNS subdomain, as most object names are; older checks say characters for bytes."""
    problems = [f"must be no more than {SUBDOMAIN_MAX} {unit}"] if len(name) > SUBDOMAIN_MAX else []
    return problems if re.fullmatch(_SUBDOMAIN, name) else [*problems, _SUBDOMAIN_IS]


def dns_label_problems(name: str, unit: str = "bytes") -> list[str]:
    """The errors of a DNS label."""
    problems = [f"must be no more than {LABEL_MAX} {unit}"] if len(name) > LABEL_MAX else []
    return problems if re.fullmatch(_DNS_LABEL, name) else [*problems, _DNS_LABEL_IS]


def path_segment_problems(name: str) -> list[str]:
    """The errors of a name that is a URL path segment."""
    if name in (".", ".."):
        return [f"may not be '{name}'"]
    return [f"may not contain '{sign}'" for sign in ("/", "%") if sign in name]


def digest(text: str, length: int) -> str:
    """A short hash of a text."""
    return hashlib.sha1(text.encode(), usedforsecurity=False).hexdigest()[:length]
