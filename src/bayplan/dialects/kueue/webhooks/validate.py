"""What is wrong with an object before it is kept, or with a change to it: all errors at once."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from bayplan.dialects.jobs.kinds import KINDS, Find, is_known
from bayplan.dialects.jobs.part import nothing
from bayplan.dialects.jobs.soundness import note_flaws
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
from bayplan.dialects.kueue.webhooks.workload_update_rules import check_workload_update, is_excused

FAMILY = "kueue.x-k8s.io"
WORKLOAD = "Workload"

Object = dict[str, Any]
Check = Callable[[Field, FeatureSwitches], None]
CheckUpdate = Callable[[Field, Field, FeatureSwitches], None]


@dataclass(frozen=True, slots=True)
class Checked:
    """A kind of ours: how it is addressed, what must hold for it, and what for a change to it."""

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
"""Group and resource of jobs: a cluster should ask about those that name a queue, not about everybody's."""

OWNERS = {*KINDS, "ReplicaSet"}
"""Kinds whose pods, or jobs, are parts of a larger job."""

STATUS = (FAMILY, "workloads/status")
"""Whoever schedules writes this all the time; what it writes itself need not be looked at."""

VALIDATED = (*((FAMILY, checked.plural) for checked in CHECKED.values()), STATUS, *QUEUED)
"""Group and resource of what we look at."""


def validate(new: Object | None, old: Object | None, find: Find = nothing) -> Sequence[FieldError]:
    """Everything wrong with an object; what was wrong already does not keep it from being changed."""
    return errors(new, old, find=find)


def errors(
    new: Object | None, old: Object | None = None, rules: FeatureSwitches = RULES, find: Find = nothing
) -> list[FieldError]:
    """The same under other rules, and with a way to look up objects that the object refers to."""
    if new is None:
        return []
    found = Field(new)
    if old is None or not _asks_the_same(new, old):
        _check(found, rules, find)
    _check_status(found, rules)
    if old is None:
        _check_new(found, rules)
        return list(found.errors)
    before, changed = Field(old), Field(new)
    _check_update(changed, before, rules, find)
    kept = _new_ones(found, before, rules, find) if found.errors else []
    return kept + [error for error in changed.errors if error not in kept]


def _asks_the_same(new: Object, old: Object) -> bool:
    """Whether only the status changed, or something that no rule is about."""
    metadata, before = new.get("metadata") or {}, old.get("metadata") or {}
    same = all(metadata.get(key) == before.get(key) for key in ("labels", "annotations", "name"))
    return same and new.get("spec") == old.get("spec")


def _new_ones(found: Field, before: Field, rules: FeatureSwitches, find: Find) -> list[FieldError]:
    """The errors that the object did not have before."""
    _check(before, rules, find)
    _check_status(before, rules)
    known = {str(error) for error in before.errors}
    kept = [error for error in found.errors if str(error) not in known]
    if found.at("kind").text() == WORKLOAD:
        kept = [error for error in kept if not is_excused(error, found, before, rules)]
    return kept


def _check(obj: Field, rules: FeatureSwitches, find: Find) -> None:
    """Note what is wrong with what an object asks for, whatever it was before."""
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
    """Whether a job made it: its annotations are about the whole of that job, and were looked at there."""
    owners = obj.at("metadata", "ownerReferences").items()
    return any(one.at("controller").flag() and one.at("kind").text() in OWNERS for one in owners)


def _check_status(obj: Field, rules: FeatureSwitches) -> None:
    checked = _checked(obj)
    if checked is not None and checked.check_status is not None:
        checked.check_status(obj, rules)


def _check_new(obj: Field, rules: FeatureSwitches) -> None:
    if is_known(obj) and obj.at("kind").text() == "Job":
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
