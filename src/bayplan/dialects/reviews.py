"""The webhook functions of all families: one table by resource.

The API server asks for a review of each write; functions validate an object, add defaults, or give advice.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any

from bayplan.dialects.dialect import Reviewed
from bayplan.dialects.jobs.kinds import KINDS
from bayplan.dialects.jobs.part import Find, find_nothing
from bayplan.dialects.kai.api.hints import advise as advise_on_group_keys
from bayplan.dialects.kai.decode import webhooks as groups
from bayplan.dialects.kai.decode.webhooks import FindOwner, no_owner
from bayplan.dialects.kueue.conversion.workload import GROUP, V1BETA2
from bayplan.dialects.kueue.fields import hints
from bayplan.dialects.kueue.fields.defaulting import DEFAULTED, default
from bayplan.dialects.kueue.webhooks.controlling_owners import FindController, no_lookup
from bayplan.dialects.kueue.webhooks.job_defaults import DEFAULTED_ON_UPDATE, default_on_write
from bayplan.dialects.kueue.webhooks.priority_class_rules import (
    WITH_PRIORITY_CLASS,
    HasClass,
    any_class,
    check_class,
)
from bayplan.dialects.kueue.webhooks.validate import QUEUED, VALIDATED, validate

REVIEWED_AS = {GROUP: V1BETA2}
"""The version in which webhook functions get the objects of a group; the API server converts to it."""


@dataclass(frozen=True, slots=True)
class LookUps:
    """How webhook functions look up other objects."""

    queue: Find = find_nothing  # the default LocalQueue of a namespace
    owner: FindOwner = no_owner  # the owner of a pod
    levels: Callable[[], Collection[str]] = tuple  # of all topologies; empty: unknown
    controller: FindController = no_lookup  # the controller that a job or pod names
    has_class: HasClass = any_class  # whether a priority class exists


NO_LOOK_UPS = LookUps()


def reviews(look_ups: LookUps = NO_LOOK_UPS) -> Iterator[Reviewed]:
    """The functions of each resource; those of one resource are called in this order."""
    find = look_ups.queue
    for group, resource in VALIDATED:
        yield Reviewed(group, resource, validate=(partial(validate, find=find),))
    known_class = partial(check_class, has_class=look_ups.has_class)
    for group, resource in WITH_PRIORITY_CLASS:
        yield Reviewed(group, resource, validate=(known_class,))
    for group, resource in (*QUEUED, (GROUP, "workloads")):
        advise = partial(_advise, look_ups.levels)
        yield Reviewed(group, resource, advise=(advise, advise_on_group_keys))
    for resource in DEFAULTED:
        yield Reviewed(GROUP, resource, ("CREATE",), mutate=(default,), fail_open=True)
    default_job = partial(default_on_write, find=find, owner=look_ups.controller)
    for name, kind in KINDS.items():
        operations = ("CREATE", "UPDATE") if name in DEFAULTED_ON_UPDATE else ("CREATE",)
        yield Reviewed(kind.group, kind.plural, operations, mutate=(default_job,))
    for group, resource in groups.VALIDATED:
        yield Reviewed(group, resource, validate=(groups.validate,), advise=(groups.advise,), fail_open=True)
    set_segment = partial(groups.set_segment_index, owner=look_ups.owner)
    yield Reviewed("", "pods", ("CREATE",), mutate=(set_segment,), fail_open=True)


def _advise(levels: Callable[[], Collection[str]], new: dict[str, Any]) -> list[str]:
    return hints.object_hints(new, levels())
