"""Validation of created and updated objects: all errors at once."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from bayplan.dialects.jobs.kinds import KINDS, TABLE, is_known, kind_of
from bayplan.dialects.jobs.part import Find, find_nothing
from bayplan.dialects.jobs.validation import note_flaws
from bayplan.dialects.kube.fields.reader import Field, FieldError
from bayplan.dialects.kueue.fields.job_gang import job_gang
from bayplan.dialects.kueue.fields.job_rules import check_job, check_job_update
from bayplan.dialects.kueue.fields.workload_rules import check_workload, check_workload_status
from bayplan.dialects.kueue.names.feature_switches import RULES, FeatureSwitches
from bayplan.dialects.kueue.webhooks.flavor_rules import (
    check_flavor,
    check_flavor_update,
    check_topology,
    check_topology_update,
)
from bayplan.dialects.kueue.webhooks.job_kind_rules import check_kind, check_kind_update, check_partial
from bayplan.dialects.kueue.webhooks.queue_rules import (
    check_cluster_queue,
    check_cluster_queue_update,
    check_cohort,
    check_local_queue_update,
)
from bayplan.dialects.kueue.webhooks.workload_update_rules import (
    check_workload_update,
    is_stale_reclaimable_count,
)

FAMILY = "kueue.x-k8s.io"
WORKLOAD = "Workload"

Object = dict[str, Any]
Check = Callable[[Field, FeatureSwitches], None]
CheckUpdate = Callable[[Field, Field, FeatureSwitches], None]


@dataclass(frozen=True, slots=True)
class Checked:
    """A validated kind: its plural, and the checks on create, update and status."""

    plural: str
    check: Check | None = None
    check_update: CheckUpdate | None = None
    check_status: Check | None = None


CHECKED: Mapping[str, Checked] = {
    "Topology": Checked("topologies", check_topology, check_topology_update),
    "ResourceFlavor": Checked("resourceflavors", check_flavor, check_flavor_update),
    "ClusterQueue": Checked("clusterqueues", check_cluster_queue, check_cluster_queue_update),
    "Cohort": Checked("cohorts", check_cohort),
    "LocalQueue": Checked("localqueues", None, check_local_queue_update),
    WORKLOAD: Checked("workloads", check_workload, check_workload_update, check_workload_status),
}

QUEUED = tuple((kind.group, kind.plural) for kind in KINDS.values())
"""Group and resource of jobs; the webhook should select those that name a queue."""

OWNERS = {*KINDS, *(kind.kind for kind in TABLE if kind.between)}
"""Kinds whose pods or child jobs belong to a larger job."""

STATUS = (FAMILY, "workloads/status")
"""The status of Workloads; the scheduler's own frequent writes need no validation."""

STATUS_FIELDS = ("admission", "admissionChecks", "reclaimablePods", "clusterName", "nominatedClusterNames")
"""What is validated there beside conditions, whose form the schema checks, too."""

VALIDATED = (*((FAMILY, checked.plural) for checked in CHECKED.values()), STATUS, *QUEUED)
"""Group and resource of all validated objects."""


def validate(new: Object | None, old: Object | None, find: Find = find_nothing) -> Sequence[FieldError]:
    """The errors of an object; errors that the old object had do not block an update."""
    return errors(new, old, find=find)


def errors(
    new: Object | None, old: Object | None = None, rules: FeatureSwitches = RULES, find: Find = find_nothing
) -> list[FieldError]:
    """The errors of an object under other feature switches; `find` looks up objects that it refers to."""
    if new is None:
        return []
    field = Field(new)
    if old is None or not _is_spec_unchanged(new, old):
        _check(field, rules, find)
    _check_status(field, rules)
    if old is None:
        _check_new(field, rules)
        return list(field.errors)
    before, changed = Field(old), Field(new)
    _check_update(changed, before, rules, find)
    new_errors = _new_errors(field, before, rules, find) if field.errors else []
    return new_errors + [error for error in changed.errors if error not in new_errors]


def _is_spec_unchanged(new: Object, old: Object) -> bool:
    """Whether spec, labels, annotations and name are unchanged."""
    metadata, before = new.get("metadata") or {}, old.get("metadata") or {}
    same = all(metadata.get(key) == before.get(key) for key in ("labels", "annotations", "name"))
    return same and new.get("spec") == old.get("spec")


def _new_errors(field: Field, before: Field, rules: FeatureSwitches, find: Find) -> list[FieldError]:
    """The errors that the object did not have before."""
    _check(before, rules, find)
    _check_status(before, rules)
    known = {str(error) for error in before.errors}
    new_errors = [error for error in field.errors if str(error) not in known]
    if field.at("kind").text() == WORKLOAD:
        new_errors = [
            error for error in new_errors if not is_stale_reclaimable_count(error, field, before, rules)
        ]
    return new_errors


def _check(obj: Field, rules: FeatureSwitches, find: Find) -> None:
    """Validate the spec of an object, independent of its old version."""
    checked = _checked(obj)
    if checked is not None:
        if checked.check is not None:
            checked.check(obj, rules)
    elif is_known(obj):
        note_flaws(obj, find)
        check_job(obj, rules)
        check_kind(obj, rules)
        if not _is_part(obj):
            job_gang(obj, find, rules)


def _is_part(obj: Field) -> bool:
    """Whether a job controls the object: its annotations were validated with that job."""
    owners = obj.at("metadata", "ownerReferences").items()
    return any(one.at("controller").flag() and one.at("kind").text() in OWNERS for one in owners)


def _check_status(obj: Field, rules: FeatureSwitches) -> None:
    checked = _checked(obj)
    if checked is not None and checked.check_status is not None:
        checked.check_status(obj, rules)


def _check_new(obj: Field, rules: FeatureSwitches) -> None:
    if is_known(obj) and kind_of(obj).partial:
        check_partial(obj, rules)


def _check_update(new: Field, old: Field, rules: FeatureSwitches, find: Find) -> None:
    checked = _checked(new)
    if checked is not None:
        if checked.check_update is not None:
            checked.check_update(new, old, rules)
    elif is_known(new):
        check_job_update(new, old, rules, find)
        check_kind_update(new, old, rules)


def _checked(obj: Field) -> Checked | None:
    version = obj.at("apiVersion").text()
    if version and version.partition("/")[0] != FAMILY:
        return None
    return CHECKED.get(obj.at("kind").text())
