"""Validation of plain pods and pod groups; every violation is recorded."""

from __future__ import annotations

from bayplan.dialects.kube.fields.metadata_rules import check_unchanged
from bayplan.dialects.kube.fields.reader import Field, FieldErrorType
from bayplan.dialects.kueue.fields.job_rules import check_name, prebuilt_name, whole_number
from bayplan.dialects.kueue.names.annotations import MANAGED, POD_GROUP, POD_GROUP_COUNT, RETRIABLE
from bayplan.dialects.kueue.names.feature_switches import FeatureSwitches


def check_pod(pod: Field, rules: FeatureSwitches) -> None:
    """Validate the labels and annotations of a managed pod and of its group."""
    managed = pod.at("metadata", "labels", MANAGED)
    if managed.present and managed.text() != "true":
        managed.error("managed label value can only be 'true'", FieldErrorType.FORBIDDEN)
    _check_group(pod, rules)
    group, prebuilt = group_name(pod, rules).text(), prebuilt_name(pod, rules)
    if group and prebuilt.text() and prebuilt.text() != group:
        prebuilt.error("prebuilt workload and pod group should be equal", FieldErrorType.INVALID)


def check_pod_update(new: Field, old: Field, rules: FeatureSwitches) -> None:
    """Validate an update of a pod: its group is immutable, and an unretriable group stays so."""
    group, before = group_name(new, rules), group_name(old, rules)
    retriable = new.at("metadata", "annotations", RETRIABLE)
    was_unretriable = old.at("metadata", "annotations", RETRIABLE).text() == "false"
    if group.text() and was_unretriable and retriable.text() != "false":
        retriable.error("unretriable pod group can't be converted to retriable", FieldErrorType.FORBIDDEN)
    if before.text():
        check_unchanged(group, before)


def group_name(pod: Field, rules: FeatureSwitches) -> Field:
    """The field in which a pod names its group."""
    annotation = pod.at("metadata", "annotations", POD_GROUP)
    return annotation if rules.identifiers and annotation.text() else pod.at("metadata", "labels", POD_GROUP)


def _check_group(pod: Field, rules: FeatureSwitches) -> None:
    name, count = group_name(pod, rules), pod.at("metadata", "annotations", POD_GROUP_COUNT)
    word = "annotation" if "annotations" in name.path else "label"
    both = f"both the '{POD_GROUP_COUNT}' annotation and the '{POD_GROUP}' {word} should be set"
    if not name.text():
        if count.present:
            name.error(both, FieldErrorType.REQUIRED)
        return
    check_name(name)
    if not count.present:
        count.error(both, FieldErrorType.REQUIRED)
        return
    try:
        number = whole_number(count.text())
    except ValueError as wrong:
        count.error(str(wrong), FieldErrorType.INVALID)
        return
    if number < 1:
        why = (
            f"incorrect annotation value '{POD_GROUP_COUNT}={count.text()}': "
            "group total count should be greater than zero"
        )
        count.error(why, FieldErrorType.INVALID)
