"""Which queued gang a name refers to: that of a Workload, a job that has one, or a pod of one of them.

Gangs without a Workload are found by scheduled_explanation, which needs the scheduler's state.
"""

from __future__ import annotations

from dataclasses import dataclass

import click

from bayplan.cli.live.gangs import owner_of
from bayplan.cli.live.state import Live, Object, checked_namespace
from bayplan.dialects.jobs.kinds import KINDS
from bayplan.dialects.jobs.serving_jobs import REPLICA_SET
from bayplan.dialects.kai.api.names import POD_GROUP as KAI_GROUPS
from bayplan.dialects.kube.decode.wire import PODS_KIND, PodWire
from bayplan.dialects.kube.gang.objects import GANG_KINDS
from bayplan.dialects.kueue.decode.scheduled_jobs import membership
from bayplan.dialects.kueue.names.annotations import POD_GROUP, WORKLOAD_NAME
from bayplan.dialects.kueue.status.conditions import FINISHED, is_true
from bayplan.model.gang import Ref
from bayplan.model.pod import PodKey

WORKLOAD, POD = "Workload", "Pod"
OTHER_KINDS = (WORKLOAD, "PodGroup", "CompositePodGroup", REPLICA_SET.kind)
KIND_WORDS = {kind.lower(): kind for kind in (*KINDS, *OTHER_KINDS)}
"""Kinds in lower case, as in `job/train`."""


@dataclass(frozen=True, slots=True)
class GangQuery:
    """The name given on the command line."""

    namespace: str
    name: str
    kind: str = ""  # empty: any

    def accepts(self, kind: str) -> bool:
        return self.kind in ("", kind)

    def __str__(self) -> str:
        return f"{self.namespace}/{self.name}"


@dataclass(frozen=True, slots=True)
class FoundObject:
    """One object of the queried name, and the gang it belongs to."""

    kind: str
    name: str
    workload: Ref | None = None  # a queued gang
    gangs: tuple[Ref, ...] = ()  # gangs of the scheduler; the replicas of a group are several
    job: Object | None = None  # a job in no queue: suspended, finished, or of another scheduler
    pods: tuple[PodKey, ...] = ()  # pods without a gang, or of another scheduler


def parse_query(live: Live, text: str) -> GangQuery:
    """Parse NAME, NAMESPACE/NAME, KIND/NAME or NAMESPACE/KIND/NAME."""
    parts = text.strip().split("/")
    if not all(parts):
        raise click.ClickException(f"{text!r} names no gang; give NAME or NAMESPACE/NAME")
    namespace, kind = live.namespace, ""
    if len(parts) > 1:
        first = parts.pop(0)
        if live.has_namespace(first) or first.lower() not in KIND_WORDS:
            namespace = first
        else:
            kind = KIND_WORDS[first.lower()]
    checked_namespace(live, namespace)
    if len(parts) > 1 and parts[0].lower() in KIND_WORDS:
        kind = KIND_WORDS[parts.pop(0).lower()]
    return GangQuery(namespace, "/".join(parts), kind)


def find_workload(live: Live, query: GangQuery) -> Ref | None:
    """The one Workload that a name refers to, None if there is none; an error if the name is ambiguous."""
    matches = _workloads(live, query)
    if matches:
        if not any(one.kind == WORKLOAD and one.name == query.name for one in matches):
            matches += _groups_of_same_name(live, query)
        return only_match(query, matches).workload
    pod = _pod(live, query)
    return None if pod is None else workload_of(live, pod)


def only_match(query: GangQuery, matches: list[FoundObject]) -> FoundObject:
    """The first match; an error that lists the alternatives if objects of several kinds have the name."""
    kinds = sorted({one.kind for one in matches})
    if len(kinds) > 1:
        ways = " or ".join(f"{query.namespace}/{kind.lower()}/{query.name}" for kind in kinds)
        raise click.ClickException(
            f"{query} is the name of a {', a '.join(kinds)}; explain one of them: {ways}"
        )
    return matches[0]


def _workloads(live: Live, query: GangQuery) -> list[FoundObject]:
    """Workloads of that name and of jobs of that name; finished ones only if the job has no other."""
    here = {ref: one for ref, one in live.workloads.items() if ref.namespace == query.namespace}
    matches = [
        FoundObject(WORKLOAD, ref.name, ref)
        for ref in here
        if ref.name == query.name and query.accepts(WORKLOAD)
    ]
    jobs: dict[str, list[Ref]] = {}
    for ref, one in here.items():
        kind, _, name = owner_of(one).partition("/")
        if name == query.name and ref.name != query.name and query.accepts(kind):
            jobs.setdefault(kind, []).append(ref)
    for kind, refs in sorted(jobs.items()):
        unfinished = [ref for ref in refs if not is_true(here[ref], FINISHED)] or refs
        if len(unfinished) > 1:
            names = ", ".join(sorted(ref.name for ref in unfinished))
            raise click.ClickException(f"{query} has several Workloads, name one of them: {names}")
        matches.append(FoundObject(kind, query.name, unfinished[0]))
    return matches


def _groups_of_same_name(live: Live, query: GangQuery) -> list[FoundObject]:
    """Pod groups that have the same name as a queued job."""
    kinds = {kind.kind: kind for kind in (KAI_GROUPS, *GANG_KINDS) if query.accepts(kind.kind)}
    existing = [
        name for name, kind in kinds.items() if live.get(kind, query.namespace, query.name) is not None
    ]
    return [FoundObject(name, query.name) for name in sorted(existing)]


def _pod(live: Live, query: GangQuery) -> PodWire | None:
    if not query.accepts(POD):
        return None
    for one in live.listed(PODS_KIND):
        if (one.metadata.namespace or "default", one.metadata.name) == (query.namespace, query.name):
            assert isinstance(one, PodWire)
            return one
    return None


def workload_of(live: Live, pod: PodWire) -> Ref | None:
    """The Workload of a pod: named by its annotations, or that of its group or job."""
    meta = pod.metadata
    namespace, labels, annotations = meta.namespace or "default", meta.labels or {}, meta.annotations or {}
    named = (annotations.get(WORKLOAD_NAME), annotations.get(POD_GROUP), labels.get(POD_GROUP))
    for name in named:
        ref = Ref("kueue", WORKLOAD, namespace, name or "")
        if ref in live.workloads:
            return ref
    owners = {one.uid for one in meta.owner_references or () if one.uid} | {meta.uid}
    gang = membership(pod)
    job = None if gang is None else (gang[0].kind, gang[0].name)
    for ref, one in live.workloads.items():
        if ref.namespace != namespace or is_true(one, FINISHED):
            continue
        for owner in one.get("metadata", {}).get("ownerReferences") or []:
            if owner.get("uid") in owners or (owner.get("kind"), owner.get("name")) == job:
                return ref
    return None
