"""The ungating controller: removes the scheduling gate of pods of admitted gangs, one slot per pod."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from bayplan.dialects.api import Ended, Event, Happened, Kind, Write, WriteOutcome
from bayplan.dialects.kube.decode.wire import PODS_KIND, PodWire
from bayplan.dialects.kueue.jobs.writes import status_write
from bayplan.dialects.kueue.names import api_kinds
from bayplan.dialects.kueue.pods import ungating
from bayplan.dialects.kueue.pods.release_slots import without_surplus_slots
from bayplan.dialects.kueue.pods.ungating import AdmittedPlacement, Key, PodUngating
from bayplan.dialects.kueue.status.events import WARNING, WorkloadEvent, workload_event_write
from bayplan.model.change import Change
from bayplan.runtime.core.controller import StatelessController
from bayplan.runtime.core.object_cache import Object
from bayplan.runtime.core.reconciler import Reconciler

BATCH_SECONDS = 1.0
"""How long pods of one gang are batched before they are ungated, unless all of them exist."""
RETRY_SECONDS = 5.0
NEVER = float("inf")
Removed = Callable[[str, bool, float], None]
"""Called with the queue, whether it was a pod group, and the seconds since admission."""


@dataclass(frozen=True, slots=True)
class UngateWriteTag:
    """The tag of a patch that ungates a pod."""

    key: Key
    ungating: PodUngating
    queue: str
    since: float  # time of the admission

    @property
    def uid(self) -> str:
        return self.ungating.pod.metadata.uid


@dataclass(frozen=True, slots=True)
class ReleaseWriteTag:
    """The tag of a write that releases slots."""

    key: Key


@dataclass(slots=True)
class GatedGang:
    """A gang and its gated pods: its Workloads (several while it is resized) and its pods."""

    workloads: dict[str, Object] = field(default_factory=dict)  # by name
    placements: dict[str, AdmittedPlacement | None] = field(
        default_factory=dict
    )  # decoded placement, on first use
    pods: dict[str, PodWire] = field(default_factory=dict)  # by name
    gated: set[str] = field(default_factory=set)  # uids of gated pods
    # by uid, until the pod is seen without its gate
    expected: dict[str, UngateWriteTag] = field(default_factory=dict)
    doubtful: set[str] = field(default_factory=set)  # uids of pods whose patch had no answer
    resend_at: dict[str, float] = field(default_factory=dict)  # by uid: when a doubtful patch is sent again
    put_off: dict[str, float] = field(default_factory=dict)  # by uid: when a refused patch is tried again
    reported: str = ""  # the last problem that was published

    def admitted(self) -> tuple[Object, AdmittedPlacement] | None:
        """The current Workload: the newest of those that are admitted."""
        for name, workload in self.workloads.items():
            if name not in self.placements:
                self.placements[name] = ungating.admitted_placement(workload)
        found = [
            (self.workloads[name], placement)
            for name, placement in self.placements.items()
            if placement is not None
        ]
        past = {ungating.replaces(workload)[1] for workload, _ in found}
        heirs = [one for one in found if one[0]["metadata"]["name"] not in past]
        return max(heirs or found, key=lambda one: _age(one[0]), default=None)

    def forget(self, uid: str) -> None:
        """Forget a pod: it holds no slot, and no write of it is in flight."""
        self.expected.pop(uid, None)
        self.doubtful.discard(uid)
        self.resend_at.pop(uid, None)
        self.put_off.pop(uid, None)

    def next_due(self) -> float:
        return min((*self.resend_at.values(), *self.put_off.values()), default=NEVER)


class UngatingController(StatelessController):
    """Reconciles a gang when its Workload changes or all pods exist, else shortly after its pods change.

    All state is in the API: a new leader reads from the pods which slots are taken.
    """

    name = "ungating"
    kinds: tuple[Kind, ...] = (PODS_KIND, api_kinds.WORKLOADS)

    def __init__(self, batch_seconds: float = BATCH_SECONDS, removed: Removed | None = None) -> None:
        self.batch_seconds = batch_seconds
        self.removed = removed or (lambda queue, is_group, seconds: None)
        self.gangs: dict[Key, GatedGang] = {}
        self.gang_of: dict[Key, Key] = {}  # pod → its gang
        self.gang_of_workload: dict[Key, Key] = {}  # Workload → the gang it admits
        self.changed: dict[Key, bool] = {}  # changed since the last step; value: whether to reconcile at once
        self.with_gated_pods: set[Key] = set()  # those of them with a gated pod
        self.reconciler: Reconciler[Key, None] = Reconciler(_titled)

    def decode(self, event: Event) -> Iterator[Change]:
        if event.happened is not Happened.SYNCED:
            gone = event.happened is Happened.GONE
            if event.kind == PODS_KIND:
                self._note_pod(event.object, gone)
            else:
                self._note_workload(event.object, gone)
        return iter(())

    def reconcile(self, now: float) -> Iterator[Write]:
        """Ungate the pods of the gangs that are due."""
        for key, at_once in self.changed.items():
            complete = at_once
            with self.containment.unit("reconcile", *_titled(key)):
                complete = at_once or self._is_complete(key)
            self.reconciler.queue.put_early(key, now if complete else now + self.batch_seconds)
        self.changed.clear()
        self.with_gated_pods.clear()
        yield from self.reconciler.run(self._round, now, self.containment)

    def on_outcome(self, outcome: WriteOutcome, now: float) -> Iterator[Write]:
        """Handle the outcome of a patch; a pod counts as ungated until its update is seen."""
        sent = outcome.write.tag
        if isinstance(sent, ReleaseWriteTag) and outcome.ended not in (Ended.DONE, Ended.GONE):
            self.reconciler.queue.put_early(sent.key, now + RETRY_SECONDS)
        if not isinstance(sent, UngateWriteTag):
            return
        if outcome.ended is Ended.DONE:
            self.removed(sent.queue, ungating.is_of_pod_group(sent.ungating.pod), max(0.0, now - sent.since))
        gang = self.gangs.get(sent.key)
        if gang is None or gang.expected.get(sent.uid) is not sent or outcome.ended is Ended.DONE:
            return
        if outcome.ended is Ended.GONE:
            self._drop(sent.key, gang, sent.ungating.pod)
        elif outcome.ended is Ended.TIMED_OUT or sent.uid in gang.doubtful:
            gang.doubtful.add(sent.uid)
            gang.resend_at[sent.uid] = now + RETRY_SECONDS
        else:
            gang.forget(sent.uid)
            gang.put_off[sent.uid] = now + (RETRY_SECONDS if outcome.ended is Ended.REFUSED else 0.0)
        self.reconciler.queue.put_early(sent.key, min(now + self.batch_seconds, gang.next_due()))
        yield from ()

    def next_due(self, now: float) -> float:
        return self.reconciler.next_due()

    # ── events ─────────────────────────────────────────────────────────────────────────────────────

    def _note_pod(self, pod: PodWire, gone: bool) -> None:
        key, name, uid = ungating.gang_of_pod(pod), pod.metadata.name, pod.metadata.uid
        which = (pod.metadata.namespace or "default", name)
        gang_key = self.gang_of.get(which)
        if (
            gang_key is not None and gang_key != key and gang_key in self.gangs
        ):  # the pod moved to another gang
            self._drop(gang_key, self.gangs[gang_key], self.gangs[gang_key].pods.get(name, pod))
            self.changed.setdefault(gang_key, False)
        if key is None:
            self.gang_of.pop(which, None)
            return
        gang, self.gang_of[which] = self.gangs.setdefault(key, GatedGang()), key
        before = gang.pods.get(name)
        if before is not None and before.metadata.uid != uid:
            if gone:  # the deletion of a pod that was replaced already
                gang.forget(uid)
                return
            gang.forget(before.metadata.uid)
            gang.gated.discard(before.metadata.uid)
        if gone:
            self._drop(key, gang, pod)
            del self.gang_of[which]
        else:
            gang.pods[name] = pod
            self._update_pod(gang, pod)
            if uid in gang.gated and uid not in gang.expected:
                self.with_gated_pods.add(key)
        self.changed.setdefault(key, False)

    def _update_pod(self, gang: GatedGang, pod: PodWire) -> None:
        uid = pod.metadata.uid
        gang.put_off.pop(uid, None)
        if ungating.is_gated(pod):
            gang.gated.add(uid)
        else:
            gang.gated.discard(uid)
            gang.forget(uid)

    def _note_workload(self, workload: Object, gone: bool) -> None:
        key, name = ungating.gang_of_workload(workload), workload["metadata"]["name"]
        which = key[0], name
        before = self.gang_of_workload.pop(which, None)
        if before is not None and (gone or before != key):  # its annotations name another gang now
            old = self.gangs[before]
            old.placements.pop(name, None)
            old.workloads.pop(name, None)
            self._remove_if_empty(before, old)
        if gone:
            return
        gang, self.gang_of_workload[which] = self.gangs.setdefault(key, GatedGang()), key
        gang.placements.pop(name, None)
        gang.workloads[name] = workload
        self.changed[key] = True

    def _is_complete(self, key: Key) -> bool:
        """Whether all pods exist and some are gated: then there is nothing to wait for."""
        if key not in self.with_gated_pods or key not in self.gangs:
            return False
        found = self.gangs[key].admitted()
        return found is not None and ungating.is_complete(found[1], self.gangs[key].pods.values())

    def _drop(self, key: Key, gang: GatedGang, pod: PodWire) -> None:
        """A pod was deleted."""
        name, uid = pod.metadata.name, pod.metadata.uid
        gang.forget(uid)
        gang.gated.discard(uid)
        if name in gang.pods and gang.pods[name].metadata.uid == uid:
            del gang.pods[name]
        self._remove_if_empty(key, gang)

    def _remove_if_empty(self, key: Key, gang: GatedGang) -> None:
        if not gang.pods and not gang.workloads:
            self.gangs.pop(key, None)

    # ── writes ─────────────────────────────────────────────────────────────────────────────────────

    def _round(self, key: Key, now: float) -> Iterator[Write]:
        gang = self.gangs.get(key)
        if gang is None:
            return
        for uid in [uid for uid, when in gang.put_off.items() if when <= now]:
            del gang.put_off[uid]
        yield from self._release_slots(key, gang)
        if gang.gated:
            found = gang.admitted()
            yield from self._resend(gang, found[1] if found else None, now)
            if found is not None and gang.gated - gang.expected.keys():
                yield from self._ungate(key, gang, *found, now)
        self.reconciler.queue.put_early(key, gang.next_due())

    def _release_slots(self, key: Key, gang: GatedGang) -> Iterator[Write]:
        """Release slots that a gang no longer needs, once the slot of every pod is known."""
        found = gang.admitted() if not gang.expected else None
        status = without_surplus_slots(found[0], list(gang.pods.values())) if found is not None else None
        if found is not None and status is not None:
            yield status_write(found[0], status, ReleaseWriteTag(key))

    def _ungate(
        self, key: Key, gang: GatedGang, workload: Object, placement: AdmittedPlacement, now: float
    ) -> Iterator[Write]:
        under_way = {uid: sent.ungating.domain for uid, sent in gang.expected.items()}
        answer = ungating.ungatings(placement, gang.pods.values(), under_way, gang.put_off)
        yield from _announced(gang, workload, answer.error, now)
        for one in answer.pods:
            sent = UngateWriteTag(key, one, placement.queue, placement.since)
            gang.expected[sent.uid] = sent
            yield ungating.ungating_write(one, sent)

    def _resend(self, gang: GatedGang, placement: AdmittedPlacement | None, now: float) -> Iterator[Write]:
        """Send doubtful patches again, to the same slot: applying one twice changes nothing."""
        late = [uid for uid, when in gang.resend_at.items() if when <= now]
        slots = (
            {(part.name, slot) for part in placement.parts for slot in part.slots}
            if late and placement
            else set()
        )
        for uid in late:
            del gang.resend_at[uid]
            sent = gang.expected[uid]
            if (ungating.pod_set_of(sent.ungating.pod), sent.ungating.domain) in slots:
                yield ungating.ungating_write(sent.ungating, sent)
            else:  # the gang was admitted again since
                gang.forget(uid)


def _titled(key: Key) -> tuple[str, str]:
    return api_kinds.WORKLOADS.kind, "/".join(map(str, key))


def _announced(gang: GatedGang, workload: Object, problem: str, now: float) -> Iterator[Write]:
    """Publish a problem, once."""
    if problem and problem != gang.reported:
        meta = workload["metadata"]
        named = (meta.get("namespace", "default"), meta["name"], meta.get("uid", ""))
        yield workload_event_write(WorkloadEvent(*named, WARNING, "UngatingFailed", problem), now)
    gang.reported = problem


def _age(workload: Object) -> tuple[str, str]:
    meta = workload["metadata"]
    return str(meta.get("creationTimestamp") or ""), meta["name"]
