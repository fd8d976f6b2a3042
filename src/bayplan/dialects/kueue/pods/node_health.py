"""Whether a node has failed for a gang that is placed on it, by the state of node, Workload and pods."""

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
SLICE = "kueue.x-k8s.io/workload-slice-name"  # shared by all Workload slices of an elastic job
CORDON = Taint("node.kubernetes.io/unschedulable", "", "NoSchedule")
EFFECTS = ("NoSchedule", "NoExecute")
OVER = ("Succeeded", "Failed")


@dataclass(frozen=True, slots=True)
class HealthRules:
    """When a node counts as failed, and what happens to its gangs and pods then."""

    not_ready_seconds: float = 30.0
    by_time: bool = True  # NotReady for that long is a failure, even with running pods
    by_pods: bool = True  # NotReady is a failure once no pod of the gang runs there; so are taints
    by_taints: bool = True  # untolerated taints are failures; a cordon counts as a taint
    replace_together: bool = True  # replace several failed nodes; otherwise the second evicts the gang
    fail_pods_at_once: bool = False  # fail pending pods of a failed node before it is replaced
    fail_pods_of_lost_nodes: bool = True  # also fail pending pods of a deleted or never ready node
    unbindable_seconds: float = 1.0  # a pod must be unbindable for this long before it is failed


@dataclass(frozen=True, slots=True)
class Host:
    """The health of a node, under its hostname, as in assignments."""

    name: str
    ready: bool | None  # None: no Ready condition
    since: float | None = None  # transition time of the Ready condition
    taints: tuple[Taint, ...] = ()  # NoSchedule and NoExecute taints; a cordon counts as one

    @property
    def is_healthy(self) -> bool:
        """Whether it is ready and has no taints."""
        return self.ready is True and not self.taints


@dataclass(frozen=True, slots=True)
class GangPod:
    """A pod of a gang, with the node it is bound to or the host it is assigned to."""

    key: Key
    uid: str
    version: str
    gang: Key
    node: str = ""
    host: str = ""  # assigned by its node selector
    is_running: bool = False  # bound, neither finished nor terminating
    is_pending: bool = False  # pending and ungated, to be bound to its host


@dataclass(frozen=True, slots=True)
class WorkloadHosts:
    """The hosts of an admitted Workload, each with its pod sets, and the failed hosts to replace."""

    gang: Key
    hosts: Mapping[str, tuple[str, ...]]
    failed: tuple[str, ...] = ()
    is_immovable: bool = False  # a single pod: never moved


@dataclass(frozen=True, slots=True)
class TaintTolerations:
    """The tolerations of a pod set: unlimited ones, and those with tolerationSeconds."""

    unlimited: tuple[Toleration, ...] = ()
    limited: tuple[Toleration, ...] = ()


@dataclass(frozen=True, slots=True)
class Finding:
    """Whether a host has failed for a gang; if not, when to check again."""

    failed: bool
    due: float = NEVER


FINE, FAILED = Finding(failed=False), Finding(failed=True)


def host_of(node: NodeWire) -> Host:
    """The health of a Node."""
    condition = next((c for c in node.status.conditions or () if c.type == "Ready"), None)
    taints = [Taint(t.key, t.value or "", t.effect) for t in node.spec.taints or () if t.effect in EFFECTS]
    if node.spec.unschedulable and CORDON not in taints:
        taints.append(CORDON)
    name = (node.metadata.labels or {}).get(HOSTNAME) or node.metadata.name
    if condition is None:
        return Host(name, None, None, tuple(taints))
    since = seconds(condition.last_transition_time) if condition.last_transition_time else None
    return Host(name, condition.status == "True", since, tuple(taints))


def gang_pod(pod: PodWire) -> GangPod | None:
    """A Pod as a member of its gang; None if it has no gang."""
    meta, spec, phase = pod.metadata, pod.spec, pod.status.phase or ""
    annotations = meta.annotations or {}
    name = annotations.get(SLICE) or annotations.get(WORKLOAD)
    if not name:
        return None
    namespace = meta.namespace or "default"
    active = meta.deletion_timestamp is None and phase not in OVER
    host = (spec.node_selector or {}).get(HOSTNAME, "") if is_topology_aware(annotations) else ""
    gated = any(gate.name == TOPOLOGY_GATE for gate in spec.scheduling_gates or ())
    return GangPod(
        key=(namespace, meta.name),
        uid=meta.uid,
        version=meta.resource_version,
        gang=(namespace, name),
        node=spec.node_name or "",
        host=host,
        is_running=bool(spec.node_name) and active,
        is_pending=bool(host) and not spec.node_name and active and phase == "Pending" and not gated,
    )


def workload_hosts(
    workload: Object, hosts: Mapping[str, tuple[str, ...]] | None = None
) -> WorkloadHosts | None:
    """The hosts of a Workload; None if it is finished or evicted.

    Assignments are long: a caller that knows the hosts passes them, so that they are not decoded again.
    """
    if is_true(workload, FINISHED) or is_true(workload, EVICTED):
        return None
    meta, status = workload["metadata"], workload.get("status") or {}
    return WorkloadHosts(
        gang=(meta.get("namespace", "default"), (meta.get("annotations") or {}).get(SLICE) or meta["name"]),
        hosts=_hosts(status) if hosts is None else hosts,
        failed=tuple(str(node.get("name", "")) for node in status.get("unhealthyNodes") or ()),
        is_immovable=is_of_one_pod(workload),
    )


def pod_set_tolerations(
    workload: Object, flavors: Mapping[str, Object], pod_sets: Iterable[str]
) -> list[TaintTolerations]:
    """The tolerations of pod sets: of their templates, their flavors and their checks."""
    pod_sets_by_name = {ps.get("name"): ps for ps in (workload.get("spec") or {}).get("podSets") or ()}
    status = workload.get("status") or {}
    assignments = {p.get("name"): p for p in (status.get("admission") or {}).get("podSetAssignments") or ()}
    return [
        _split_tolerations(
            list(
                _tolerations(
                    name, pod_sets_by_name.get(name) or {}, assignments.get(name) or {}, status, flavors
                )
            )
        )
        for name in pod_sets
        if name in pod_sets_by_name
    ]


def check_host(
    host: Host | None, tolerations: Sequence[TaintTolerations], runs: bool, rules: HealthRules, now: float
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
    untolerated = [taint for taint in host.taints if not _is_tolerated(taint, tolerations, lasting=False)]
    not_always_tolerated = [
        taint for taint in host.taints if not _is_tolerated(taint, tolerations, lasting=True)
    ]
    if untolerated and not rules.by_pods:
        return FAILED
    return FAILED if not_always_tolerated and not runs else FINE


def _hosts(status: Object) -> dict[str, tuple[str, ...]]:
    """The hosts of an assignment with their pod sets, except finished pod sets and levels above hosts."""
    hosts: dict[str, tuple[str, ...]] = {}
    finished = {one.get("name"): one.get("count", 0) for one in status.get("reclaimablePods") or ()}
    for part in (status.get("admission") or {}).get("podSetAssignments") or ():
        topology = part.get("topologyAssignment") or {}
        if (topology.get("levels") or [""])[-1] != HOSTNAME or finished.get(part.get("name"), 0) >= part.get(
            "count", 1
        ):
            continue
        assignment = decode_assignment(Field(topology))
        for share in assignment.shares if assignment is not None else ():
            hosts[share.values[-1]] = (*hosts.get(share.values[-1], ()), str(part.get("name", "")))
    return hosts


def _tolerations(
    name: str, pod_set: Object, part: Object, status: Object, flavors: Mapping[str, Object]
) -> Iterator[Object]:
    yield from ((pod_set.get("template") or {}).get("spec") or {}).get("tolerations") or ()
    for flavor in sorted(set((part.get("flavors") or {}).values())):
        yield from ((flavors.get(flavor) or {}).get("spec") or {}).get("tolerations") or ()
    for check in status.get("admissionChecks") or ():
        for update in check.get("podSetUpdates") or ():
            if update.get("name") == name:
                yield from update.get("tolerations") or ()


def _split_tolerations(items: list[Object]) -> TaintTolerations:
    unlimited = [one for one in items if one.get("tolerationSeconds") is None]
    limited = [one for one in items if one.get("tolerationSeconds") is not None]
    return TaintTolerations(tolerations(Field(unlimited)), tolerations(Field(limited)))


def _is_tolerated(taint: Taint, tolerations: Iterable[TaintTolerations], *, lasting: bool) -> bool:
    return all(
        any(one.accepts(taint) for one in (*pod_set.unlimited, *(() if lasting else pod_set.limited)))
        for pod_set in tolerations
    )
