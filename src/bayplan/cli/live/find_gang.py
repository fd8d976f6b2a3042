"""Which gang a name stands for: that of a Workload, a pod group, a job, or a pod of one of them."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING

import click

from bayplan.cli.live.gangs import owner_of
from bayplan.cli.live.state import Live, Object, checked_namespace
from bayplan.dialects.jobs.kinds import KINDS
from bayplan.dialects.kai.api.names import DIALECT as KAI
from bayplan.dialects.kai.api.names import POD_GROUP as KAI_GROUPS
from bayplan.dialects.kube.decode.wire import PODS_KIND, PodWire
from bayplan.dialects.kube.fields.closest_name import several_close
from bayplan.dialects.kube.gang.objects import GANG_KINDS
from bayplan.dialects.kueue.decode.scheduled_jobs import JOB_SET_NAME
from bayplan.dialects.kueue.names.annotations import POD_GROUP, WORKLOAD_NAME
from bayplan.dialects.kueue.status.conditions import FINISHED, is_true
from bayplan.explanation.text import shown_name
from bayplan.model.gang import GangSpec, Ref
from bayplan.model.pod import PodKey
from bayplan.state.scheduling.single_pod import lone_ref

if TYPE_CHECKING:
    from bayplan.cli.live.scheduled_state import Scheduled

WORKLOAD, POD = "Workload", "Pod"
OTHER_KINDS = (WORKLOAD, "PodGroup", "CompositePodGroup", "ReplicaSet")
KIND_WORDS = {kind.lower(): kind for kind in (*KINDS, *OTHER_KINDS)}
"""As people write them: `job/train`."""


@dataclass(frozen=True, slots=True)
class GangQuery:
    """What somebody typed."""

    namespace: str
    name: str
    kind: str = ""  # empty: any

    def takes(self, kind: str) -> bool:
        return self.kind in ("", kind)

    def __str__(self) -> str:
        return f"{self.namespace}/{self.name}"


@dataclass(frozen=True, slots=True)
class FoundObject:
    """One object, and what is known of it."""

    kind: str
    name: str
    workload: Ref | None = None  # a gang of a queue
    gangs: tuple[Ref, ...] = ()  # gangs of the scheduler; the copies of a group are several
    job: Object | None = None  # a job that is in no line: suspended, finished, or not ours to place
    pods: tuple[PodKey, ...] = ()  # pods that stand for themselves, or are not ours to place


@dataclass(frozen=True, slots=True)
class GangLookup:
    """What was found, and the scheduler's state if that had to be read."""

    found: FoundObject
    scheduled: Scheduled | None = None


def find(live: Live, text: str) -> GangLookup:
    """The one gang that a name stands for; one sentence if there is none, or several."""
    wanted = wanted_of(live, text)
    queued = _queued(live, wanted)
    if queued:
        if not any(one.kind == WORKLOAD and one.name == wanted.name for one in queued):
            queued += _namesakes(live, wanted)
        return GangLookup(_only(wanted, queued))
    pod = _pod(live, wanted)
    if pod is not None and (ref := workload_of(live, pod)) is not None:
        return GangLookup(FoundObject(POD, wanted.name, ref))
    from bayplan.cli.live.scheduled_state import read_scheduled  # noqa: PLC0415 — gangs of queues do without

    scheduled = read_scheduled(live)
    found = _scheduled(scheduled, wanted) or _parts(scheduled, wanted)
    if not found:
        raise click.ClickException(_nothing(live, scheduled, wanted))
    return GangLookup(_only(wanted, found), scheduled)


def wanted_of(live: Live, text: str) -> GangQuery:
    """NAME, NAMESPACE/NAME, KIND/NAME or NAMESPACE/KIND/NAME."""
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


def _queued(live: Live, wanted: GangQuery) -> list[FoundObject]:
    """Workloads of that name and of jobs of that name; finished ones only if the job has no other."""
    here = {ref: one for ref, one in live.workloads.items() if ref.namespace == wanted.namespace}
    found = [
        FoundObject(WORKLOAD, ref.name, ref)
        for ref in here
        if ref.name == wanted.name and wanted.takes(WORKLOAD)
    ]
    jobs: dict[str, list[Ref]] = {}
    for ref, one in here.items():
        kind, _, name = owner_of(one).partition("/")
        if name == wanted.name and ref.name != wanted.name and wanted.takes(kind):
            jobs.setdefault(kind, []).append(ref)
    for kind, refs in sorted(jobs.items()):
        alive = [ref for ref in refs if not is_true(here[ref], FINISHED)] or refs
        if len(alive) > 1:
            names = ", ".join(sorted(ref.name for ref in alive))
            raise click.ClickException(f"{wanted} has several Workloads, name one of them: {names}")
        found.append(FoundObject(kind, wanted.name, alive[0]))
    return found


def _namesakes(live: Live, wanted: GangQuery) -> list[FoundObject]:
    """Groups that have the name of a job in a queue."""
    kinds = {kind.kind: kind for kind in (KAI_GROUPS, *GANG_KINDS) if wanted.takes(kind.kind)}
    there = [
        name for name, kind in kinds.items() if live.get(kind, wanted.namespace, wanted.name) is not None
    ]
    return [FoundObject(name, wanted.name) for name in sorted(there)]


def _only(wanted: GangQuery, found: list[FoundObject]) -> FoundObject:
    kinds = sorted({one.kind for one in found})
    if len(kinds) > 1:
        ways = " or ".join(f"{wanted.namespace}/{kind.lower()}/{wanted.name}" for kind in kinds)
        raise click.ClickException(
            f"{wanted} is the name of a {', a '.join(kinds)}; explain one of them: {ways}"
        )
    return found[0]


def _pod(live: Live, wanted: GangQuery) -> PodWire | None:
    if not wanted.takes(POD):
        return None
    for one in live.listed(PODS_KIND):
        if (one.metadata.namespace or "default", one.metadata.name) == (wanted.namespace, wanted.name):
            assert isinstance(one, PodWire)
            return one
    return None


def workload_of(live: Live, pod: PodWire) -> Ref | None:
    """The Workload that accounts for a pod: named by it, or that of its group or job."""
    meta = pod.metadata
    namespace, labels, notes = meta.namespace or "default", meta.labels or {}, meta.annotations or {}
    named = (notes.get(WORKLOAD_NAME), notes.get(POD_GROUP), labels.get(POD_GROUP))
    for name in named:
        ref = Ref("kueue", WORKLOAD, namespace, name or "")
        if ref in live.workloads:
            return ref
    owners = {one.uid for one in meta.owner_references or () if one.uid} | {meta.uid}
    job_set = labels.get(JOB_SET_NAME)
    for ref, one in live.workloads.items():
        if ref.namespace != namespace or is_true(one, FINISHED):
            continue
        for owner in one.get("metadata", {}).get("ownerReferences") or []:
            if owner.get("uid") in owners or (owner.get("kind"), owner.get("name")) == ("JobSet", job_set):
                return ref
    return None


def _scheduled(found: Scheduled, wanted: GangQuery) -> list[FoundObject]:
    """Gangs and jobs of that name; a job whose pods were put into groups stands for those."""
    state = found.role.state
    known = {entry.ref: None for entry in state.entries()} | dict.fromkeys(state.store.charters)
    here = [ref for ref in known if ref.namespace == wanted.namespace and wanted.takes(ref.kind)]
    named: dict[str, list[Ref]] = {}
    for ref in here:
        if wanted.name in (ref.name, shown_name(ref), ref.name.partition("/")[0]):
            named.setdefault(ref.kind, []).append(ref)
    for ref in found.jobs:
        if (ref.namespace, ref.name) == (wanted.namespace, wanted.name) and wanted.takes(ref.kind):
            named.setdefault(ref.kind, [])
    groups = tuple(
        ref for ref in known if ref.namespace == wanted.namespace and _made_for(found, ref, wanted.name)
    )
    matches = []
    for kind, refs in named.items():
        job = found.jobs.get(Ref("kueue", kind, wanted.namespace, wanted.name))
        if job is not None and groups and not any(state.store.members.get(ref) for ref in refs):
            matches.append(FoundObject(kind, wanted.name, gangs=groups))
        else:
            matches.append(FoundObject(kind, wanted.name, gangs=tuple(refs), job=job))
    if not matches and groups:
        matches.append(FoundObject("PodGroup", wanted.name, gangs=groups))
    return matches or _pods_of(found, wanted)


def _made_for(found: Scheduled, ref: Ref, name: str) -> bool:
    known = found.role.groups.groups.get(ref) if ref.dialect == KAI else None
    return known is not None and known.group is not None and known.group.stands_for(name)


def _pods_of(found: Scheduled, wanted: GangQuery) -> list[FoundObject]:
    """Pods of a controller that has no gang, such as a ReplicaSet or the Deployment above it."""
    kinds: dict[str, list[PodKey]] = {}
    for key, wire in found.pods.items():
        owner = found.owner(key)
        if owner is None or key.namespace != wanted.namespace or wire.status.phase in ("Succeeded", "Failed"):
            continue
        above = owner.name.rpartition("-")[0] if owner.kind == "ReplicaSet" else ""
        if owner.name == wanted.name and wanted.takes(owner.kind):
            kinds.setdefault(owner.kind, []).append(key)
        elif above == wanted.name and wanted.takes("Deployment"):
            kinds.setdefault("Deployment", []).append(key)
    return [FoundObject(kind, wanted.name, pods=tuple(keys)) for kind, keys in kinds.items()]


def _parts(found: Scheduled, wanted: GangQuery) -> list[FoundObject]:
    """A group that is a part of another one stands for the whole, and so does a pod of a gang."""
    state = found.role.state
    whole = [
        ref
        for ref, charter in state.store.charters.items()
        if ref.namespace == wanted.namespace and _has_part(charter, wanted.name)
    ]
    if whole and wanted.kind != POD:
        return [FoundObject(whole[0].kind, wanted.name, gangs=tuple(whole))]
    pod = state.store.pods.get(PodKey(wanted.namespace, wanted.name)) if wanted.takes(POD) else None
    if pod is None:
        return []
    if pod.gang is not None:
        return [FoundObject(POD, wanted.name, gangs=(pod.gang,))]
    if pod.ours and not pod.over:
        return [FoundObject(POD, wanted.name, gangs=(lone_ref(pod.key),))]
    return [FoundObject(POD, wanted.name, pods=(pod.key,))]


def _has_part(charter: GangSpec, name: str) -> bool:
    """Whether it is a gang of groups, and one of them has that name."""
    if charter.tree is None or not charter.quorum:
        return False
    return any(part.name == name for part in charter.tree.pod_sets())


def _nothing(live: Live, found: Scheduled, wanted: GangQuery) -> str:
    what = wanted.kind or "Workload, pod group, job or pod"
    told = f"there is no {what} {wanted}"
    elsewhere = sorted({space for space, name in _names(live, found) if name == wanted.name})
    near = several_close(wanted.name, (n for space, n in _names(live, found) if space == wanted.namespace))
    if elsewhere:
        told += f"; there is one in namespace {', '.join(elsewhere[:3])}"
    elif near:
        told += f"; did you mean {' or '.join(near)}?"
    told += f"; see: bayplan list gangs -n {wanted.namespace}"
    return f"{told}; {live.no_queues}" if live.no_queues else told


def _names(live: Live, found: Scheduled) -> Iterable[tuple[str, str]]:
    """Namespace and name of everything that can be explained."""
    for ref, one in live.workloads.items():
        yield ref.namespace, ref.name
        yield ref.namespace, owner_of(one).partition("/")[2]
    for ref in (*found.jobs, *found.role.state.store.charters):
        yield ref.namespace, ref.name.partition("/")[0]
    for key in found.pods:
        yield key.namespace, key.name
