"""Validation of labels, annotations, selectors, taints and conditions."""

from __future__ import annotations

import re

from bayplan.dialects.kube.fields.name_rules import label_key_problems, label_value_problems
from bayplan.dialects.kube.fields.reader import Field, FieldErrorType

IMMUTABLE = "field is immutable"
NEGATIVE = "must be greater than or equal to 0"

_ANNOTATIONS_MAX = 256 * 1024
_REASON = "[A-Za-z]([A-Za-z0-9_,:]*[A-Za-z0-9_])?"
_REASON_MAX = 1024
_MESSAGE_MAX = 32 * 1024
_STATUSES = ("False", "True", "Unknown")


def check_unchanged(new: Field, old: Field) -> None:
    """An immutable field."""
    if new.value != old.value:
        new.error(IMMUTABLE, FieldErrorType.INVALID)


def check_key(field: Field) -> None:
    """A label key."""
    for problem in label_key_problems(field.text()):
        field.error(problem, FieldErrorType.INVALID)


def check_labels(labels: Field) -> None:
    """A map of labels; errors are on the map and show the invalid key or value."""
    for key, value in labels.texts().items():
        for problem in label_key_problems(key):
            labels.error(problem, FieldErrorType.INVALID, key)
        for problem in label_value_problems(value):
            labels.error(problem, FieldErrorType.INVALID, value)


def check_annotation_keys(annotations: Field) -> None:
    """A map of annotations: keys as for labels, in any case; the total size is limited."""
    texts = annotations.texts()
    for key in texts:
        for problem in label_key_problems(key.lower()):
            annotations.error(problem, FieldErrorType.INVALID, key)
    if sum(len(key.encode()) + len(value.encode()) for key, value in texts.items()) > _ANNOTATIONS_MAX:
        annotations.error(f"may not be more than {_ANNOTATIONS_MAX} bytes", FieldErrorType.TOO_LONG)


def check_selector(selector: Field) -> None:
    """A label selector."""
    check_labels(selector.at("matchLabels"))
    for expression in selector.at("matchExpressions").items():
        operator, values = expression.at("operator"), expression.at("values")
        if operator.text() in ("In", "NotIn"):
            if not values.items():
                values.error("must be specified when `operator` is 'In' or 'NotIn'", FieldErrorType.REQUIRED)
        elif operator.text() in ("Exists", "DoesNotExist"):
            if values.items():
                why = "may not be specified when `operator` is 'Exists' or 'DoesNotExist'"
                values.error(why, FieldErrorType.FORBIDDEN)
        else:
            operator.error("not a valid selector operator", FieldErrorType.INVALID)
        check_key(expression.at("key"))
        for value in values.items():
            for problem in label_value_problems(value.text()):
                value.error(problem, FieldErrorType.INVALID)


def check_toleration_keys(tolerations: Field) -> None:
    """A list of tolerations; an empty key tolerates all taints."""
    for toleration in tolerations.items():
        if toleration.at("key").text():
            check_key(toleration.at("key"))


def check_taints(taints: Field) -> None:
    """A list of taints, no two with the same key and effect."""
    seen: set[tuple[str, str]] = set()
    for taint in taints.items():
        key, value = taint.at("key"), taint.at("value")
        check_key(key)
        if problems := label_value_problems(value.text()):
            value.error(";".join(problems), FieldErrorType.INVALID)
        pair = key.text(), taint.at("effect").text()
        if pair in seen:
            taint.error("taints must be unique by key and effect pair", FieldErrorType.DUPLICATE)
        seen.add(pair)


def check_conditions(conditions: Field) -> None:
    """A list of conditions, no two of one type."""
    seen: set[str] = set()
    for condition in conditions.items():
        kind, status, reason = (condition.at(key) for key in ("type", "status", "reason"))
        if kind.text() in seen:
            kind.error("", FieldErrorType.DUPLICATE)
        seen.add(kind.text())
        check_key(kind)
        if status.text() not in _STATUSES:
            check_supported(status, _STATUSES)
        if not condition.at("lastTransitionTime").text():
            condition.at("lastTransitionTime").error("", FieldErrorType.REQUIRED)
        if not reason.text():
            reason.error("", FieldErrorType.REQUIRED)
        elif not re.fullmatch(_REASON, reason.text()) or len(reason.text()) > _REASON_MAX:
            reason.error(
                f"must be at most {_REASON_MAX} characters of the form '{_REASON}'", FieldErrorType.INVALID
            )
        if len(condition.at("message").text()) > _MESSAGE_MAX:
            condition.at("message").error(
                f"may not be more than {_MESSAGE_MAX} bytes", FieldErrorType.TOO_LONG
            )


def check_supported(field: Field, choices: tuple[str, ...] | list[str]) -> None:
    """A value that must be one of the choices."""
    if field.value not in choices:
        listed = ", ".join(f'"{choice}"' for choice in choices)
        field.error(f"supported values: {listed}", FieldErrorType.UNSUPPORTED)
