"""The rows of the live view: one for each gang, Deployment and single pod, running or pending.

Pods are counted as the scheduler sees them; a gang without pods is read from its Workload.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from bayplan.assembly.local_cluster import LocalCluster
from bayplan.backends.fake_controllers.manifests import Object
from bayplan.dialects.jobs.kinds import SCHEDULED
from bayplan.dialects.jobs.serving_jobs import DEPLOYMENT, REPLICA_SET
from bayplan.dialects.kube.decode.wire import PODS_KIND
from bayplan.dialects.kube.fields.times import seconds
from bayplan.dialects.kueue.names.api_kinds import WORKLOADS
from bayplan.explanation.text import counted, shown_name
from bayplan.model.gang import Ref
from bayplan.model.pod import Pod, PodKey
from bayplan.state.scheduling.queue import EntryState
from bayplan.state.scheduling.single_pod import single_pod_ref

FINISHED, FAILED = "finished", "failed"
STATE_TEXTS = {
    EntryState.INCOMPLETE: "creating pods",
    EntryState.READY: "next",
    EntryState.BACKOFF: "backing off",
    EntryState.UNSCHEDULABLE: "unschedulable",
    EntryState.PREEMPTING: "waiting for victims to terminate",
    EntryState.BINDING: "binding",
    EntryState.RUNNING: "running",
}
_UNSCHEDULABLE = (EntryState.UNSCHEDULABLE, EntryState.PREEMPTING)
Owner = tuple[str, str, str]  # kind, namespace, name


@dataclass(frozen=True, slots=True)
class ViewRow:
    """One row: the owner of pods, their number and state, and why they are pending."""

    kind: str
    name: str
    pods: int
    state: str
    why: str = ""
    finished: bool = False
    priority: int = 0
    since: float = 0.0

    @property
    def order(self) -> tuple[bool, int, float, str]:
        """Finished rows last; before them higher priority first, then older ones."""
        return self.finished, -self.priority, self.since, self.name


@dataclass(slots=True)
class _Group:
    """The pods of one row."""

    pods: list[Pod] = field(default_factory=list)
    gang: Ref | None = None


def rows(cluster: LocalCluster) -> list[ViewRow]:
    """All rows in order."""
    with cluster.lock:
        state = cluster.scheduler.state
        groups: dict[Owner, _Group] = {}
        for entry in state.entries():  # includes gangs that have no pods yet
            if not entry.single:
                owner = entry.ref.kind, entry.ref.namespace, entry.ref.name
                groups.setdefault(owner, _Group()).gang = entry.ref
        for key, pod in state.store.pods.items():
            if pod.ours:
                group = groups.setdefault(_owner_of_pod(cluster, key, pod), _Group())
                group.pods.append(pod)
                group.gang = pod.gang
        by_owner = {owner: _row(cluster, owner, group) for owner, group in groups.items()}
        for workload in cluster.store.list(WORKLOADS).items:
            owner = _owner(workload)
            if owner not in by_owner or (by_owner[owner].finished and _is_pending(workload)):
                by_owner[owner] = _queued(owner, workload)
    return sorted(by_owner.values(), key=lambda row: row.order)


def _row(cluster: LocalCluster, owner: Owner, group: _Group) -> ViewRow:
    state, pods = cluster.scheduler.state, group.pods
    refs = (
        [group.gang]
        if group.gang is not None
        else [single_pod_ref(pod.key) for pod in pods if not pod.finished]
    )
    entries = [entry for ref in refs if (entry := state.gangs.queue.entries.get(ref)) is not None]
    entry = next((one for one in entries if one.state is not EntryState.RUNNING), None)
    rejection = state.reported(entry.ref) if entry is not None and entry.state in _UNSCHEDULABLE else None
    since = entry.since if entry is not None else min((pod.created for pod in pods), default=0.0)
    text, finished = _state(pods, entry.state if entry is not None else None)
    return ViewRow(
        owner[0],
        shown_name(group.gang) if group.gang is not None else owner[2],
        len(pods),
        text,
        cluster.reason_text(rejection, entry.ref) if rejection and entry and not finished else "",
        finished,
        max((pod.spec.priority for pod in pods), default=entry.priority if entry is not None else 0),
        since,
    )


def _state(pods: Iterable[Pod], place: EntryState | None) -> tuple[str, bool]:
    """The state of a group as text, and whether it is finished."""
    pods = list(pods)
    live = [pod for pod in pods if not pod.finished]
    if pods and not live:
        return (FINISHED if all(pod.succeeded for pod in pods) else FAILED), True
    if pods and all(pod.terminating for pod in live):
        return "terminating", False
    placed = sum(bool(pod.node) for pod in live)
    if place is None or place is EntryState.RUNNING or placed == len(live) > 0:
        return STATE_TEXTS[EntryState.RUNNING], False
    text = STATE_TEXTS[place]
    return (f"{placed} of {counted(len(live), 'pod')} running; {text}" if placed else text), False


def _queued(owner: Owner, workload: Object) -> ViewRow:
    """The row of a Workload without pods."""
    spec, conditions = workload["spec"], (workload.get("status") or {}).get("conditions") or ()
    count = sum(int(one.get("count", 1)) for one in spec.get("podSets") or ())
    created = seconds(workload["metadata"].get("creationTimestamp", ""))
    why = next((str(one.get("message", "")) for one in conditions if one["type"] == "QuotaReserved"), "")
    if _has(workload, "Finished"):
        text, why = FINISHED, ""
    elif not spec.get("active", True):
        text = "deactivated"
    elif _has(workload, "Admitted"):
        text, why = STATE_TEXTS[EntryState.INCOMPLETE], ""
    else:
        text = f"pending in queue {spec.get('queueName') or '(none)'}"
    priority = int(spec.get("priority") or 0)
    return ViewRow(owner[0], owner[2], count, text, why, text == FINISHED, priority, created)


def _owner(workload: Object) -> Owner:
    """The owner of a Workload, or the Workload itself."""
    meta = workload["metadata"]
    for reference in meta.get("ownerReferences") or ():
        if reference.get("controller"):
            return str(reference["kind"]), str(meta["namespace"]), str(reference["name"])
    return "Workload", str(meta["namespace"]), str(meta["name"])


def _owner_of_pod(cluster: LocalCluster, key: PodKey, pod: Pod) -> Owner:
    """The gang of a pod, or its owner: for a ReplicaSet, its Deployment."""
    if pod.gang is not None:
        return pod.gang.kind, pod.gang.namespace, pod.gang.name
    stored = cluster.store.find(PODS_KIND, key.namespace, key.name)
    meta = stored["metadata"] if stored is not None else {}
    for kind in SCHEDULED:
        if kind.ranks is not None and (name := (meta.get("labels") or {}).get(kind.ranks.owner)):
            return kind.kind, key.namespace, str(name)
    for reference in meta.get("ownerReferences") or ():
        if reference.get("controller"):
            name, ending = str(reference["name"]), (meta.get("labels") or {}).get("pod-template-hash")
            if reference["kind"] == REPLICA_SET.kind and ending and name.endswith(f"-{ending}"):
                return DEPLOYMENT.kind, key.namespace, name.removesuffix(f"-{ending}")
            return str(reference["kind"]), key.namespace, name
    return "Pod", key.namespace, key.name


def _is_pending(workload: Object) -> bool:
    return not _has(workload, "Finished") and not _has(workload, "Admitted")


def _has(workload: Object, kind: str) -> bool:
    conditions = (workload.get("status") or {}).get("conditions") or ()
    return any(one["type"] == kind and one["status"] == "True" for one in conditions)
