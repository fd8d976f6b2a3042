"""The webhook functions of jobs, queues and Workloads by resource, and what they look up."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from dataclasses import replace
from functools import partial
from typing import Any

from bayplan.dialects.api import Event, Happened
from bayplan.dialects.jobs.kinds import KINDS
from bayplan.dialects.kube.fields.reader import Field
from bayplan.dialects.kueue.fields import hints
from bayplan.dialects.kueue.fields.defaulting import DEFAULTED, default
from bayplan.dialects.kueue.names.annotations import DEFAULT_QUEUE
from bayplan.dialects.kueue.names.api_kinds import LOCAL_QUEUES, TOPOLOGIES
from bayplan.dialects.kueue.webhooks.job_defaults import DEFAULTED_ON_UPDATE, default_on_write
from bayplan.dialects.kueue.webhooks.priority_class_rules import WITH_PRIORITY_CLASS, check_class
from bayplan.dialects.kueue.webhooks.validate import FAMILY, QUEUED, VALIDATED, validate
from bayplan.dialects.reviews import LookUps, Reviewed, WatchedFacts

DEFAULT_QUEUES = replace(LOCAL_QUEUES, field_selector=f"metadata.name={DEFAULT_QUEUE}", optional=True)
"""Only queues of this name, so that no permission for others is needed."""
LEVELS = replace(TOPOLOGIES, optional=True)


def reviews(look_ups: LookUps) -> Iterator[Reviewed]:
    """The functions of each resource; those of one resource are called in this order."""
    find = look_ups.queue
    for group, resource in VALIDATED:
        yield Reviewed(group, resource, validate=(partial(validate, find=find),))
    known_class = partial(check_class, has_class=look_ups.has_class)
    for group, resource in WITH_PRIORITY_CLASS:
        yield Reviewed(group, resource, validate=(known_class,))
    for group, resource in (*QUEUED, (FAMILY, "workloads")):
        yield Reviewed(group, resource, advise=(partial(_advise, look_ups.levels),))
    for resource in DEFAULTED:
        yield Reviewed(FAMILY, resource, ("CREATE",), mutate=(default,), fail_open=True)
    default_job = partial(default_on_write, find=find, owner=look_ups.controller)
    for name, kind in KINDS.items():
        operations = ("CREATE", "UPDATE") if name in DEFAULTED_ON_UPDATE else ("CREATE",)
        yield Reviewed(kind.group, kind.plural, operations, mutate=(default_job,))


class QueueFacts(WatchedFacts):
    """Default queues by namespace, and the levels of topologies. Read by threads that serve reviews."""

    kinds = (DEFAULT_QUEUES, LEVELS)
    awaited = (DEFAULT_QUEUES,)

    def __init__(self) -> None:
        self._namespaces: frozenset[str] = frozenset()
        self._levels: dict[str, frozenset[str]] = {}  # by topology

    def queue(self, kind: str, namespace: str, name: str) -> object:
        """The default queue of a namespace, reduced to its name."""
        is_known = (kind, name) == (DEFAULT_QUEUES.kind, DEFAULT_QUEUE) and namespace in self._namespaces
        return {"metadata": {"namespace": namespace, "name": name}} if is_known else None

    def levels(self) -> frozenset[str]:
        """The levels of all topologies."""
        return frozenset().union(*list(self._levels.values()))

    def take(self, event: Event) -> None:
        """Take an event; what is known is replaced as a whole, since other threads read it."""
        if event.happened is Happened.SYNCED:
            return
        gone = event.happened is Happened.GONE
        if event.kind.kind == LEVELS.kind:
            topology = Field(event.object)
            name, listed = topology.at("metadata", "name").text(), topology.at("spec", "levels").items()
            known = {k: v for k, v in self._levels.items() if k != name}
            if not gone:
                known[name] = frozenset(level.at("nodeLabel").text() for level in listed)
            self._levels = known
            return
        where = {str(event.object["metadata"].get("namespace", "default"))}
        self._namespaces = self._namespaces - where if gone else self._namespaces | where


def _advise(levels: Callable[[], Collection[str]], new: dict[str, Any]) -> list[str]:
    return hints.object_hints(new, levels())
