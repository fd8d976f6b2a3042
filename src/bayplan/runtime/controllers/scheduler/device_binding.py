"""Writes the devices of pods to their claims before the pods are bound.

All claims of the pods that are bound together are allocated and reserved first; until then the bindings are
held back. If a claim cannot be written, the others are released, and the gang is decided on again.

The API server does not compare claims with each other: another scheduler may have allocated the same device
between our last event and our write. Events of claims come in the order of the writes. Once an event shows
our write, all earlier allocations are known, and a pod is bound only if none of them has one of its devices.
Another scheduler may still be about to write what it decided on before it saw ours, and would not notice: so
bindings wait a moment longer, and longer still while another scheduler is seen to allocate devices.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import count
from uuid import NAMESPACE_OID, uuid5

from bayplan.dialects.api import Ended, Write, WriteOutcome
from bayplan.dialects.kube.devices.decode import claim_of
from bayplan.dialects.kube.devices.writes import (
    allocate_write,
    protect_write,
    release_write,
    reserve_write,
)
from bayplan.model.devices.claims import ClaimConsumer, DeviceAllocation, DeviceClaim, DeviceClaimKey
from bayplan.model.gang import Ref
from bayplan.model.plan import Bind
from bayplan.model.pod import Pod, PodKey
from bayplan.state.scheduling.state import ASSUMED_SECONDS, SchedulingState

HELD_SECONDS = ASSUMED_SECONDS - 2.0  # then the gang is decided on again
PAUSE_SECONDS = 0.1  # between the event that shows our writes and the bindings
PAUSE_BESIDE_OTHERS_SECONDS = 2.0  # the same while another scheduler allocates devices: it may be slow
OTHERS_SECONDS = 60.0  # it does so still if it did within this time
DOUBT_SECONDS = 60.0  # so long a release counts as written after its write has timed out
NEVER = float("inf")
Follow = Callable[[Ref, Sequence[Bind], float], list[Write]]


@dataclass(frozen=True, slots=True)
class ClaimWrite:
    """The tag of a write to a claim: the bindings that wait for it; 0 if none does."""

    batch: int
    claim: DeviceClaimKey


@dataclass(slots=True)
class ClaimTask:
    """What is to be written to one claim."""

    claim: DeviceClaim  # as last read
    allocation: DeviceAllocation | None  # None: it has devices, or another gang is giving it some
    consumers: list[ClaimConsumer] = field(default_factory=list)
    had_devices: bool = False  # when it was decided on
    writing: bool = False
    written: bool = False  # it may have been reserved by us
    done: bool = False  # reserved, as the answer to the last write or the last event shows


@dataclass(slots=True)
class HeldBindings:
    """Bindings that wait for claims."""

    gang: Ref
    binds: tuple[Bind, ...]
    tasks: dict[DeviceClaimKey, ClaimTask]
    until: float
    ready_at: float | None = None  # when the bindings may be written; None: a claim is not ready


@dataclass(slots=True)
class Release:
    """A write that ends the use of a claim: events before it show devices that the claim may not have."""

    version: str  # of the claim when it was written, or that the answer shows
    is_known: bool = False  # it was written with this version
    until: float = NEVER  # when its result is in doubt: how long it counts


class LostClaim(Exception):
    """A claim cannot be used as decided."""


class DeviceBinding:
    """Bindings held back for claims. `follow` makes the writes of bindings whose claims are ready."""

    def __init__(self, state: SchedulingState, follow: Follow) -> None:
        self.state, self.follow = state, follow
        self.held: dict[int, HeldBindings] = {}
        self.failed: list[Bind] = []  # to be settled
        self.releases: dict[DeviceClaimKey, Release] = {}
        self._numbers = count(1)
        self._signs_of_others, self._others_until = 0, -NEVER

    def begin(self, gang: Ref, binds: Sequence[Bind], now: float) -> list[Write]:
        """The bindings of a gang, or the writes to claims that must precede them."""
        self._supersede({action.pod.key for action in binds})
        if not any(action.pod.spec.device_claims for action in binds):
            return self.follow(gang, binds, now)
        batch = next(self._numbers)
        held = HeldBindings(gang, tuple(binds), {}, now + HELD_SECONDS)
        self.held[batch] = held
        try:
            for action in binds:
                self._add_tasks(held, action)
        except LostClaim:
            return self._fail(batch)
        return self._advance(batch, held, list(held.tasks), now)

    def on_outcome(self, outcome: WriteOutcome, now: float) -> list[Write]:
        """Go on after a write to a claim."""
        tag = outcome.write.tag
        if isinstance(tag, ClaimWrite) and not tag.batch:
            self._released(tag.claim, outcome, now)
        if not isinstance(tag, ClaimWrite) or tag.batch not in self.held:
            return []
        held = self.held[tag.batch]
        task = held.tasks[tag.claim]
        task.writing = False
        if outcome.ended is Ended.DONE and outcome.object is not None:
            task.claim = claim_of(outcome.object)
            return self._advance(tag.batch, held, [tag.claim], now)
        if outcome.ended in (Ended.GONE, Ended.REFUSED):
            return self._fail(tag.batch)
        return []  # another version of the claim, or what became of the write, is to be seen first

    def reconcile(self, now: float) -> list[Write]:
        """Go on with claims of which a newer version was seen; give up those that wait for too long."""
        writes: list[Write] = []
        self._look_at_others(now)
        for key in [key for key in self.releases if not self._is_releasing(key, now)]:
            del self.releases[key]
        for batch, held in list(self.held.items()):
            if now >= held.until:
                writes += self._fail(batch)
                continue
            newer = [key for key, task in held.tasks.items() if self._renew(key, task)]
            if newer or all(task.done for task in held.tasks.values()):
                writes += self._advance(batch, held, newer, now)
        return writes

    def next_due(self) -> float:
        """When the next bindings are written or given up."""
        return min(
            (held.until if held.ready_at is None else held.ready_at for held in self.held.values()),
            default=NEVER,
        )

    def release_unused(self, pods: Iterable[Pod]) -> Iterator[Write]:
        """End allocations of which only these pods make use, none of which can be bound."""
        pending = {pod.uid: pod for pod in pods if pod.spec.device_claims}
        busy = {key for held in self.held.values() for key in held.tasks}
        for key in dict.fromkeys(key for pod in pending.values() for key in pod.spec.device_claims):
            claim = self.state.store.devices.claims.get(key)
            if claim is None or claim.allocation is None or key in busy:
                continue
            uids = [one.uid for one in claim.reserved_for]
            if pending.keys() >= set(uids):
                yield self._release(claim, uids)

    # ── the steps of a claim ───────────────────────────────────────────────────────────────────────

    def _add_tasks(self, held: HeldBindings, action: Bind) -> None:
        pod, allocations = action.pod, dict(action.devices)
        for key in pod.spec.device_claims:
            claim = self.state.store.devices.claims.get(key)
            if claim is None:
                raise LostClaim
            task = held.tasks.get(key)
            if task is None:
                had_devices = claim.allocation is not None
                task = held.tasks[key] = ClaimTask(claim, allocations.get(key), had_devices=had_devices)
            task.consumers.append(ClaimConsumer(pod.uid, pod.key.name))

    def _renew(self, key: DeviceClaimKey, task: ClaimTask) -> bool:
        """Whether a claim has changed since it was read."""
        seen = self.state.store.devices.claims.get(key)
        if task.writing or seen is task.claim:
            return False
        if seen is not None and not _is_newer(seen.version, task.claim.version):
            return False
        if seen is None:
            task.done = False
            task.claim = _gone(task.claim)
        else:
            task.claim = seen
        return True

    def _advance(
        self, batch: int, held: HeldBindings, keys: Iterable[DeviceClaimKey], now: float
    ) -> list[Write]:
        if not any(self._is_current(one.pod.key, one.pod.uid) for one in held.binds):
            return self._fail(batch)  # or the claims of pods that are gone would be allocated again and again
        writes: list[Write] = []
        for key in keys:
            task = held.tasks[key]
            try:
                write = _next_write(task, ClaimWrite(batch, key))
            except LostClaim:
                return self._fail(batch)
            if write is not None:
                task.writing = True
                task.written = task.written or write.subresource == "status"
                writes.append(write)
        if not all(task.done and self._is_seen(key, task, now) for key, task in held.tasks.items()):
            held.ready_at = None
            return writes
        if held.ready_at is None:
            held.ready_at = now + self._pause(now)
        contested = [task for key, task in held.tasks.items() if self._is_contested(key, task)]
        if contested:
            for task in contested:
                task.written = True  # it is released, even if an earlier process allocated it
            return writes + self._fail(batch)
        if now < held.ready_at:
            return writes
        binds = [one for one in held.binds if self._is_current(one.pod.key, one.pod.uid)]
        if not all(map(self._still_fits, binds)):
            return writes + self._fail(batch)
        del self.held[batch]
        return writes + (self.follow(held.gang, binds, now) if binds else [])

    def _look_at_others(self, now: float) -> None:
        """Note whether another scheduler allocates devices."""
        signs = self.state.store.devices.signs_of_others
        if signs != self._signs_of_others:
            self._signs_of_others, self._others_until = signs, now + OTHERS_SECONDS

    def _pause(self, now: float) -> float:
        return PAUSE_BESIDE_OTHERS_SECONDS if now < self._others_until else PAUSE_SECONDS

    def _is_seen(self, key: DeviceClaimKey, task: ClaimTask, now: float) -> bool:
        """Whether an event showed the claim as it was written, or later."""
        if self._is_releasing(key, now):
            return False
        seen = self.state.store.devices.claims.get(key)
        return seen is not None and not _is_newer(task.claim.version, seen.version)

    def _is_contested(self, key: DeviceClaimKey, task: ClaimTask) -> bool:
        """Whether another claim has a device of this one, which no other pod uses yet."""
        ours = {one.uid for one in task.consumers}
        if any(one.uid not in ours for one in task.claim.reserved_for):
            return False
        return self.state.store.devices.is_contested(key)

    def _is_current(self, key: PodKey, uid: str) -> bool:
        pod = self.state.store.pods.get(key)
        return pod is not None and pod.uid == uid and not pod.terminating

    def _still_fits(self, action: Bind) -> bool:
        """Whether the node exists and has room, which another scheduler may have taken in the meantime."""
        nodes = self.state.store.nodes
        return action.node in nodes.by_name and not nodes.lacks(
            action.node, dict.fromkeys(action.pod.amounts, 0)
        )

    def _supersede(self, pods: set[PodKey]) -> None:
        """Bindings of pods that are decided on again are void."""
        for batch, held in list(self.held.items()):
            if any(action.pod.key in pods for action in held.binds):
                del self.held[batch]

    def _fail(self, batch: int) -> list[Write]:
        """Give up: release what was reserved."""
        held = self.held.pop(batch)
        self.failed += held.binds
        writes = []
        for key, task in held.tasks.items():
            seen = self.state.store.devices.claims.get(key)
            claim = task.claim if seen is None or _is_newer(task.claim.version, seen.version) else seen
            ours = {one.uid for one in task.consumers}
            mine = [one.uid for one in claim.reserved_for if one.uid in ours]
            if task.written and mine and not claim.terminating:
                writes.append(self._release(claim, mine))
        return writes

    # ── claims that are being released ─────────────────────────────────────────────────────────────

    def _release(self, claim: DeviceClaim, uids: Sequence[str]) -> Write:
        self.releases[claim.key] = Release(claim.version)
        return release_write(claim, uids, ClaimWrite(0, claim.key))

    def _released(self, key: DeviceClaimKey, outcome: WriteOutcome, now: float) -> None:
        """The result of a release; after a timeout it may have been written, or will be."""
        release = self.releases.get(key)
        if release is None:
            return
        if outcome.ended is Ended.DONE and outcome.object is not None:
            release.version, release.is_known = claim_of(outcome.object).version, True
        elif outcome.ended is Ended.TIMED_OUT:
            release.until = now + DOUBT_SECONDS
        else:
            del self.releases[key]

    def _is_releasing(self, key: DeviceClaimKey, now: float) -> bool:
        """Whether no event has shown yet what became of a release."""
        release, seen = self.releases.get(key), self.state.store.devices.claims.get(key)
        if release is None or seen is None or now >= release.until:
            return False
        if release.is_known:
            return _is_newer(release.version, seen.version)
        return not _is_newer(seen.version, release.version)


def _next_write(task: ClaimTask, tag: ClaimWrite) -> Write | None:
    """The next write to a claim; None if it is done, or waits for another gang to give it devices."""
    claim = task.claim
    if claim.terminating:
        raise LostClaim
    reserved = {one.uid for one in claim.reserved_for}
    missing = [one for one in task.consumers if one.uid not in reserved]
    if claim.allocation is not None:
        if task.allocation is not None and not _same_devices(claim.allocation, task.allocation):
            raise LostClaim  # another scheduler was faster
        task.done = not missing
        return reserve_write(claim, missing, tag) if missing else None
    if task.allocation is None:
        if task.written or task.had_devices:
            raise LostClaim  # it lost its devices
        return None
    shares = (str(uuid5(NAMESPACE_OID, f"{claim.uid}/{number}")) for number in count())
    return protect_write(claim, tag) or allocate_write(claim, task.allocation, missing, shares, tag)


def _same_devices(one: DeviceAllocation, other: DeviceAllocation) -> bool:
    return [(device.request, device.key) for device in one.devices] == [
        (device.request, device.key) for device in other.devices
    ]


def _is_newer(one: str, other: str) -> bool:
    """Whether a version is later than another; versions that are no numbers differ, that is all."""
    if one.isdecimal() and other.isdecimal():
        return int(one) > int(other)
    return one != other


def _gone(claim: DeviceClaim) -> DeviceClaim:
    return DeviceClaim(claim.key, claim.uid, terminating=True)
