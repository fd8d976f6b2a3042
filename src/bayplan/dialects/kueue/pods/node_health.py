"""Whether a node has failed for a gang that stands on it: what nodes, Workloads and pods say about that."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from bayplan.dialects.kube.decode.node_rule_fields import tolerations
from bayplan.dialects.kube.decode.wire import NodeWire, PodWire
from bayplan.dialects.kube.fields.reader import Field
from bayplan.dialects.kube.fields.times import seconds
from bayplan.dialects.kueue.fields.assignment_decode import decode_assignment
from bayplan.dialects.kueue.names.annotations import TOPOLOGY_GATE, is_topology_aware
from bayplan.dialects.kueue.status.conditions import EVICTED, FINISHED, is_true
from bayplan.dialects.kueue.status.reconcile import is_of_one_pod
from bayplan.model.node import HOSTNAME
from bayplan.model.node_rules import Taint, Toleration

Key = tuple[str, str]
Object = dict[str, Any]

NEVER = float("inf")
WORKLOAD = "kueue.x-k8s.io/workload"
SLICE = "kueue.x-k8s.io/workload-slice-name"  # one name for all versions of a gang that may grow
CORDON = Taint("node.kubernetes.io/unschedulable", "", "NoSchedule")
EFFECTS = ("NoSchedule", "NoExecute")
OVER = ("Succeeded", "Failed")


@dataclass(frozen=True, slots=True)
class HealthRules:
    """When a node has failed, and what becomes of gangs and pods then."""

    not_ready_seconds: float = 30.0
    by_time: bool = True  # NotReady that long is a failure, even if pods are said to run there
    by_pods: bool = True  # NotReady is a failure once no pod of the gang runs there; taints wait for that
    by_taints: bool = True  # and cordons
    together: bool = True  # several failed nodes are replaced together; else the second evicts the gang
    at_once: bool = False  # pods that wait for a failed node are failed before another took its place
    on_lost: bool = True  # pods that wait for a node that is no more, or never reported, are failed too
    stray_seconds: float = 1.0  # for which a pod has to wait in vain; news of its gang may be on the way


@dataclass(frozen=True, slots=True)
class Host:
    """A node as far as its health goes, under the name that assignments call it by."""

    name: str
    ready: bool | None  # None: it does not say
    since: float | None = None  # it is so, if it says
    taints: tuple[Taint, ...] = ()  # that keep pods away; a cordon counts as one

    @property
    def fine(self) -> bool:
        """Whether it suits everybody."""
        return self.ready is True and not self.taints


@dataclass(frozen=True, slots=True)
class GangPod:
    """A pod of a gang: where it is, or where it has to go."""

    key: Key
    uid: str
    version: str
    gang: Key
    node: str = ""
    host: str = ""  # that it was told to go to
    runs: bool = False  # on its node, as far as anybody knows
    waits: bool = False  # to be bound to its host, which nothing else keeps it from


@dataclass(frozen=True, slots=True)
class WorkloadHosts:
    """An admitted Workload: the hosts it stands on, each with the pod sets that do, and those to replace."""

    gang: Key
    hosts: Mapping[str, tuple[str, ...]]
    failed: tuple[str, ...] = ()
    fixed: bool = False  # it ends with its only pod, so it is never moved


@dataclass(frozen=True, slots=True)
class TaintTolerations:
    """Taints that the pods of a pod set put up with, for ever or for a while."""

    lasting: tuple[Toleration, ...] = ()
    passing: tuple[Toleration, ...] = ()


@dataclass(frozen=True, slots=True)
class Finding:
    """Whether a host has failed for a gang; if not, when time alone may change that."""

    failed: bool
    due: float = NEVER


FINE, FAILED = Finding(failed=False), Finding(failed=True)


def host_of(node: NodeWire) -> Host:
    """What a Node says of its health."""
    said = next((c for c in node.status.conditions or () if c.type == "Ready"), None)
    taints = [Taint(t.key, t.value or "", t.effect) for t in node.spec.taints or () if t.effect in EFFECTS]
    if node.spec.unschedulable and CORDON not in taints:
        taints.append(CORDON)
    name = (node.metadata.labels or {}).get(HOSTNAME) or node.metadata.name
    if said is None:
        return Host(name, None, None, tuple(taints))
    since = seconds(said.last_transition_time) if said.last_transition_time else None
    return Host(name, said.status == "True", since, tuple(taints))


def member_of(pod: PodWire) -> GangPod | None:
    """A Pod as a member of its gang, if it is of one."""
    meta, spec, phase = pod.metadata, pod.spec, pod.status.phase or ""
    notes = meta.annotations or {}
    name = notes.get(SLICE) or notes.get(WORKLOAD)
    if not name:
        return None
    namespace = meta.namespace or "default"
    stays = meta.deletion_timestamp is None and phase not in OVER
    host = (spec.node_selector or {}).get(HOSTNAME, "") if is_topology_aware(notes) else ""
    gated = any(gate.name == TOPOLOGY_GATE for gate in spec.scheduling_gates or ())
    return GangPod(
        key=(namespace, meta.name),
        uid=meta.uid,
        version=meta.resource_version,
        gang=(namespace, name),
        node=spec.node_name or "",
        host=host,
        runs=bool(spec.node_name) and stays,
        waits=bool(host) and not spec.node_name and stays and phase == "Pending" and not gated,
    )


def stance_of(workload: Object, hosts: Mapping[str, tuple[str, ...]] | None = None) -> WorkloadHosts | None:
    """Where a Workload stands; None if it has ended or has to leave, and nothing is to be mended.

    Assignments are long: who knows the hosts already need not have them read again.
    """
    if is_true(workload, FINISHED) or is_true(workload, EVICTED):
        return None
    meta, status = workload["metadata"], workload.get("status") or {}
    return WorkloadHosts(
        gang=(meta.get("namespace", "default"), (meta.get("annotations") or {}).get(SLICE) or meta["name"]),
        hosts=_hosts(status) if hosts is None else hosts,
        failed=tuple(str(node.get("name", "")) for node in status.get("unhealthyNodes") or ()),
        fixed=is_of_one_pod(workload),
    )


def consents_of(
    workload: Object, flavors: Mapping[str, Object], pod_sets: Iterable[str]
) -> list[TaintTolerations]:
    """What the pods of these pod sets put up with: by themselves, by their flavors and by their checks."""
    given = {ps.get("name"): ps for ps in (workload.get("spec") or {}).get("podSets") or ()}
    status = workload.get("status") or {}
    parts = {p.get("name"): p for p in (status.get("admission") or {}).get("podSetAssignments") or ()}
    return [
        _consent(list(_tolerated(name, given.get(name) or {}, parts.get(name) or {}, status, flavors)))
        for name in pod_sets
        if name in given
    ]


def judged(
    host: Host | None, consents: Sequence[TaintTolerations], runs: bool, rules: HealthRules, now: float
) -> Finding:
    """Whether a host has failed for a gang. `runs` says whether a pod of the gang still runs there."""
    if host is None or host.ready is None:
        return FAILED
    if not host.ready:
        if rules.by_pods and not runs:
            return FAILED
        due = (now if host.since is None else host.since) + rules.not_ready_seconds
        if rules.by_time and due <= now:
            return FAILED
        return Finding(failed=False, due=due if rules.by_time else NEVER)
    if not rules.by_taints:
        return FINE
    refused = [taint for taint in host.taints if not _all_accept(taint, consents, lasting=False)]
    borne = [taint for taint in host.taints if not _all_accept(taint, consents, lasting=True)]
    if refused and not rules.by_pods:
        return FAILED
    return FAILED if borne and not runs else FINE


def _hosts(status: Object) -> dict[str, tuple[str, ...]]:
    """The hosts of an assignment with their pod sets; none of those that are over, or placed by racks."""
    hosts: dict[str, tuple[str, ...]] = {}
    over = {one.get("name"): one.get("count", 0) for one in status.get("reclaimablePods") or ()}
    for part in (status.get("admission") or {}).get("podSetAssignments") or ():
        told = part.get("topologyAssignment") or {}
        if (told.get("levels") or [""])[-1] != HOSTNAME or over.get(part.get("name"), 0) >= part.get(
            "count", 1
        ):
            continue
        found = decode_assignment(Field(told))
        for share in found.shares if found is not None else ():
            hosts[share.values[-1]] = (*hosts.get(share.values[-1], ()), str(part.get("name", "")))
    return hosts


def _tolerated(
    name: str, pod_set: Object, part: Object, status: Object, flavors: Mapping[str, Object]
) -> Iterator[Object]:
    yield from ((pod_set.get("template") or {}).get("spec") or {}).get("tolerations") or ()
    for flavor in sorted(set((part.get("flavors") or {}).values())):
        yield from ((flavors.get(flavor) or {}).get("spec") or {}).get("tolerations") or ()
    for check in status.get("admissionChecks") or ():
        for update in check.get("podSetUpdates") or ():
            if update.get("name") == name:
                yield from update.get("tolerations") or ()


def _consent(found: list[Object]) -> TaintTolerations:
    lasting = [one for one in found if one.get("tolerationSeconds") is None]
    passing = [one for one in found if one.get("tolerationSeconds") is not None]
    return TaintTolerations(tolerations(Field(lasting)), tolerations(Field(passing)))


def _all_accept(taint: Taint, consents: Iterable[TaintTolerations], *, lasting: bool) -> bool:
    return all(
        any(one.accepts(taint) for one in (*consent.lasting, *(() if lasting else consent.passing)))
        for consent in consents
    )
