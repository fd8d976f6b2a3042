"""Claims, classes and slices as last seen, and what pods need by them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

from bayplan.dialects.api import Event, Happened
from bayplan.dialects.kube.decode.wire import PodWire
from bayplan.dialects.kube.devices.decode import claim_of, class_of, slice_of
from bayplan.dialects.kube.devices.resolution import ClaimingPod, resolve_claims
from bayplan.dialects.kube.devices.selectors import DeviceSelectors
from bayplan.dialects.kube.devices.taint_rules import TaintRules
from bayplan.dialects.kube.devices.wire import CLAIMS, CLASSES, SLICES, TAINT_RULES
from bayplan.model.change import Change, DeviceObjectLost, DeviceObjectSeen
from bayplan.model.devices.claims import DeviceClaim, DeviceClaimKey, PodDevices
from bayplan.model.devices.inventory import DeviceClass, DeviceSlice
from bayplan.model.node_rules import NodeSelectorTerm
from bayplan.model.pod import PodKey

KINDS = (CLAIMS, CLASSES, SLICES, *TAINT_RULES)
NOT_READABLE = (
    f"ResourceClaims of {CLAIMS.api_version} cannot be read: either the cluster does not serve them "
    "(Kubernetes 1.34 and later do), or the scheduler may not list them"
)
NEEDS_MAX = 4096


@dataclass(frozen=True, slots=True)
class DeviceNeed:
    """What a pod needs of devices and by which claims, or why that is not known yet."""

    devices: PodDevices | None = None
    claims: tuple[DeviceClaimKey, ...] = ()  # all, in their order
    new: tuple[DeviceClaimKey, ...] = ()  # those without devices
    reason: str = ""


NO_NEED = DeviceNeed()


class DeviceObjects:
    """Decodes the objects of devices; knows which pending pods depend on each of them."""

    def __init__(self) -> None:
        self.selectors = DeviceSelectors()
        self.readable = True  # whether the cluster lets us read claims
        self.claims: dict[DeviceClaimKey, DeviceClaim] = {}
        self.classes: dict[str, DeviceClass] = {}
        self.slices: dict[str, DeviceSlice] = {}  # with the taints of rules
        self.taint_rules = TaintRules()
        self.waiting: dict[PodKey, frozenset[DeviceClaimKey]] = {}  # pending pods with claims
        self.pods: dict[DeviceClaimKey, set[PodKey]] = {}
        self.named: dict[PodKey, frozenset[DeviceClaimKey]] = {}  # claims that pods name themselves
        self.users: dict[DeviceClaimKey, set[PodKey]] = {}  # the same by claim
        self._needs: dict[PodDevices, PodDevices] = {}

    def changes(self, event: Event) -> Iterator[Change]:
        """The changes that an event of one of these kinds means."""
        kind, wire, gone = event.kind.kind, event.object, event.happened is Happened.GONE
        item: DeviceClaim | DeviceClass | DeviceSlice
        if event.kind in TAINT_RULES:
            for item in self.taint_rules.rule_changed(event.kind.version, wire, gone):
                yield from self._slice(item, gone=False)
            return
        if kind == CLAIMS.kind:
            item = claim_of(wire)
            _keep(self.claims, item.key, item, gone)
        elif kind == CLASSES.kind:
            item = class_of(wire)
            _keep(self.classes, item.name, item, gone)
        else:
            yield from self._slice(self.taint_rules.slice_changed(slice_of(wire), gone), gone)
            return
        yield DeviceObjectLost(item) if gone else DeviceObjectSeen(item)

    def synced(self, event: Event) -> bool:
        """All objects of a kind were reported. Returns whether that concerns every pod with claims."""
        readable = bool(event.version)
        if event.kind != CLAIMS or readable == self.readable:
            return False
        self.readable = readable
        return True

    def _slice(self, item: DeviceSlice, gone: bool) -> Iterator[Change]:
        before = self.slices.get(item.name)
        if before is not None and (gone or before != item):
            self.selectors.forget(before)
        _keep(self.slices, item.name, item, gone)
        yield DeviceObjectLost(item) if gone else DeviceObjectSeen(item)

    def dependents(self, kind: str, wire: Any) -> list[PodKey]:
        """The pending pods whose claims may have become usable, or unusable, with an object."""
        if kind == CLAIMS.kind:
            key = DeviceClaimKey(wire.metadata.namespace or "", wire.metadata.name)
            return sorted(self.pods.get(key, ()), key=str)
        return sorted(self.waiting, key=str) if kind == CLASSES.kind else []

    def need(self, key: PodKey, wire: PodWire, *, shares: bool = False) -> DeviceNeed:
        """What a pending pod needs. `shares`: claims that it names may be promised to further pods."""
        entries = wire.spec.resource_claims or ()
        if not entries:
            return NO_NEED
        if not self.readable:
            return DeviceNeed(reason=NOT_READABLE)
        statuses = wire.status.resource_claim_statuses or ()
        pod = ClaimingPod(key.namespace, key.name, wire.metadata.uid, entries, statuses)
        found = resolve_claims(pod, self.claims, self.classes)
        if found.reason:
            return DeviceNeed(reason=found.reason)
        titles: dict[str, str] = {
            one["resourceClaimName"]: one.get("name", "") for one in statuses if one.get("resourceClaimName")
        }
        for entry in entries:
            name = entry.get("resourceClaimName") or ""
            if not shares and self.users.get(DeviceClaimKey(key.namespace, name)) == {key}:
                titles.setdefault(name, entry.get("name", ""))  # as good as its own
            else:
                titles.pop(name, None)
        return self._need(found.claims, titles)

    def name(self, key: PodKey, wire: PodWire | None) -> list[PodKey]:
        """Note which claims a pod names itself; None: it is gone or over.

        Returns the pods that had such a claim to themselves until now, or have from now on.
        """
        entries = () if wire is None else wire.spec.resource_claims or ()
        names = (one.get("resourceClaimName") for one in entries)
        now = frozenset(DeviceClaimKey(key.namespace, name) for name in names if name)
        before = self.named.get(key, frozenset())
        if now == before:
            return []
        concerned: set[PodKey] = set()
        for claim in before ^ now:
            others = self.users.get(claim, set()) - {key}
            if len(others) == 1:
                concerned |= others
            users = others | {key} if claim in now else others
            if users:
                self.users[claim] = users
            else:
                del self.users[claim]
        if now:
            self.named[key] = now
        else:
            del self.named[key]
        return sorted((pod for pod in concerned if pod in self.waiting), key=str)

    def forget(self, key: PodKey) -> None:
        """A pod is gone, or pending no more."""
        for claim in self.waiting.pop(key, ()):
            pods = self.pods[claim]
            pods.discard(key)
            if not pods:
                del self.pods[claim]

    def watch(self, key: PodKey, wire: PodWire) -> None:
        """A pod is pending: it depends on its claims."""
        self.forget(key)
        entries = (*(wire.spec.resource_claims or ()), *(wire.status.resource_claim_statuses or ()))
        names = {one.get("resourceClaimName") for one in entries}
        claims = frozenset(DeviceClaimKey(key.namespace, name) for name in names if name)
        self.waiting[key] = claims
        for claim in claims:
            self.pods.setdefault(claim, set()).add(key)

    def _need(self, claims: tuple[DeviceClaim, ...], titles: Mapping[str, str]) -> DeviceNeed:
        """`titles`: what the pod calls the claims that no other pod uses; others may be shared."""
        new: list[DeviceClaim] = []
        names: list[DeviceClaimKey] = []
        reach: list[tuple[NodeSelectorTerm, ...]] = []
        for claim in dict.fromkeys(claims):
            if claim.allocation is None:
                names.append(claim.key)
                new.append(asked_of(claim, titles.get(claim.key.name)))
            elif claim.allocation.terms is not None:
                reach.append(claim.allocation.terms)
        shared = tuple(key for key in names if key.name not in titles)
        devices = PodDevices(tuple(new), shared, tuple(dict.fromkeys(reach)))
        if len(self._needs) >= NEEDS_MAX:
            self._needs.clear()
        devices = self._needs.setdefault(devices, devices)  # one object for all pods of a template
        return DeviceNeed(devices, tuple(dict.fromkeys(claim.key for claim in claims)), tuple(names))


def asked_of(claim: DeviceClaim, title: str | None) -> DeviceClaim:
    """What of a claim decides on its devices. The pod's own has the same name in all pods of a template."""
    key = claim.key if title is None else DeviceClaimKey(claim.key.namespace, title)
    return replace(claim, key=key, uid="", reserved_for=(), owner="", finalizers=(), version="")


def _keep(items: dict[Any, Any], key: Any, item: Any, gone: bool) -> None:
    if gone:
        items.pop(key, None)
    else:
        items[key] = item
