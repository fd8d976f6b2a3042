"""The devices that the pods of Workloads claim: what quota counts, and what each pod needs of its node."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

from bayplan.dialects.api import Event, Happened
from bayplan.dialects.kube.devices import objects as device_objects
from bayplan.dialects.kube.devices.decode import claim_template_of
from bayplan.dialects.kube.devices.objects import DeviceObjects, asked_of
from bayplan.dialects.kube.devices.wire import CLAIMS, CLASSES, SLICES, TEMPLATES
from bayplan.dialects.kueue.decode.device_counters import CounterCharges
from bayplan.dialects.kueue.fields.claim_requests import (
    NAMED_CLAIMS,
    PodClaim,
    Refusal,
    check_classes,
    check_countable,
    counted_devices,
    failed_selector,
    pod_claims,
    refuses,
    template_of,
    too_few,
    uncharged,
)
from bayplan.dialects.kueue.fields.counting import CounterSource, Counting
from bayplan.model.change import Change, QueuedGangSeen
from bayplan.model.devices.claims import DeviceAsk, DeviceClaim, DeviceClaimKey, PodDevices
from bayplan.model.gang import Group, PodSet, Ref
from bayplan.model.node_rules import NodeSelectorTerm
from bayplan.model.pod_spec import PodSignature
from bayplan.model.queued_gang import QueuedGang

Object = dict[str, Any]
KINDS = (*device_objects.KINDS, TEMPLATES)
QUOTA_KINDS = (CLASSES, TEMPLATES)
COUNTER_KINDS = (*QUOTA_KINDS, SLICES)
"""The kinds that quota needs, where devices do not decide on nodes; with counters also slices."""
NO_SIGNATURE = PodSignature()


class WorkloadDevices:
    """Workloads with claims, and the objects that they depend on. All of it is read again after a change.

    With `places`, the pod sets of gangs have their devices, so that nodes are chosen by them.
    """

    def __init__(
        self, counting: Counting, objects: DeviceObjects | None = None, *, places: bool = True
    ) -> None:
        self.counting, self.places = counting, places
        self.objects = objects or DeviceObjects()
        self.templates: dict[DeviceClaimKey, DeviceClaim] = {}
        self.gangs: dict[Ref, tuple[QueuedGang, tuple[PodClaim, ...]]] = {}  # with claims, as decoded
        self._changed: set[tuple[str, DeviceClaimKey | None]] = (
            set()
        )  # kinds and objects, since the last flush
        self._due: dict[Ref, None] = {}  # to be read again
        self._matching: dict[tuple[Any, ...], tuple[int, str]] = {}
        self._charges = CounterCharges(self.objects)

    # ── events ─────────────────────────────────────────────────────────────────────────────────────

    def decode(self, event: Event) -> Iterator[Change]:
        """The changes that an event of a kind of devices means; those of Workloads follow with `flush`."""
        if event.happened is Happened.SYNCED:
            return
        self.note(event)
        if event.kind != TEMPLATES:
            yield from self.objects.changes(event)

    def note(self, event: Event) -> None:
        """Note an object that Workloads may depend on; of a template, also what it asks for."""
        if event.happened is Happened.SYNCED:
            return
        if event.kind == TEMPLATES:
            claim = claim_template_of(event.object)
            if event.happened is Happened.GONE:
                self.templates.pop(claim.key, None)
            else:
                self.templates[claim.key] = claim
            self._changed.add((TEMPLATES.kind, claim.key))
        elif event.kind == CLAIMS:
            meta = event.object.metadata
            self._changed.add((CLAIMS.kind, DeviceClaimKey(meta.namespace or "", meta.name)))
        elif event.kind == CLASSES:
            self._changed.add((CLASSES.kind, None))
        elif refuses(self.counting) or self.counting.counts_counters:
            self._changed.add((SLICES.kind, None))

    def seen(self, queued_gang: QueuedGang, workload: Mapping[str, Any]) -> QueuedGang:
        """A Workload was decoded: the same with the devices that its pods claim."""
        entries = tuple(pod_claims(workload))
        self._due.pop(queued_gang.gang.source, None)
        if not entries:
            self.gangs.pop(queued_gang.gang.source, None)
            return queued_gang
        self.gangs[queued_gang.gang.source] = queued_gang, entries
        return self._with_devices(queued_gang, entries)

    def forget(self, ref: Ref) -> None:
        """A Workload is finished or deleted."""
        self.gangs.pop(ref, None)
        self._due.pop(ref, None)

    def flush(self) -> Iterator[Change]:
        """The Workloads that depend on objects which changed since the last call."""
        if self._changed:
            self._matching.clear()
            self._charges.clear()
            for ref, (_, entries) in self.gangs.items():
                if any(self._is_concerned(entry, ref.namespace) for entry in entries):
                    self._due[ref] = None
            self._changed.clear()
        while self._due:
            ref = next(iter(self._due))
            del self._due[ref]  # first, so that an error concerns it only once
            yield QueuedGangSeen(self._with_devices(*self.gangs[ref]))

    def _is_concerned(self, entry: PodClaim, namespace: str) -> bool:
        changed, key = self._changed, DeviceClaimKey(namespace, entry.template)
        if (CLASSES.kind, None) in changed or (TEMPLATES.kind, key) in changed:
            return True
        if (CLAIMS.kind, DeviceClaimKey(namespace, entry.claim)) in changed:
            return True
        return (SLICES.kind, None) in changed and self._is_selective(key)

    def _is_selective(self, key: DeviceClaimKey) -> bool:
        """Whether devices decide on a template: it has selectors of its own, or quota counts counters."""
        requests = self.templates[key].requests if key in self.templates else ()
        asks = [ask for request in requests for ask in request.asks]
        return any(ask.selectors or self.counting.counters_of(ask.device_class) for ask in asks)

    # ── what a Workload asks for ───────────────────────────────────────────────────────────────────

    def _with_devices(self, queued_gang: QueuedGang, entries: tuple[PodClaim, ...]) -> QueuedGang:
        claims: dict[str, list[tuple[PodClaim, DeviceClaim]]] = {}
        refusal = ""
        try:
            if refuses(self.counting) and any(one.claim and not one.template for one in entries):
                raise Refusal(NAMED_CLAIMS)
            for entry in entries if self.places else (one for one in entries if one.template):
                claims.setdefault(entry.pod_set, []).append((entry, self._claim(entry, queued_gang)))
        except Refusal as reason:
            refusal = str(reason)
        counted = {
            name: counted_devices(
                (claim for entry, claim in mine if entry.template), self.counting, self._known_charge
            )
            for name, mine in claims.items()
        }
        requests = tuple(
            replace(one, per_pod=_sum(one.per_pod, counted[one.name])) if counted.get(one.name) else one
            for one in queued_gang.requests
        )
        devices = {name: devices_of(mine) for name, mine in claims.items()} if self.places else {}
        text = repr((counted, devices, refusal)).encode()
        return replace(
            queued_gang,
            gang=replace(queued_gang.gang, root=with_templates(queued_gang.gang.root, devices)),
            requests=requests,
            shape=f"{queued_gang.shape} {hashlib.sha256(text).hexdigest()}" if queued_gang.shape else "",
            refusal=refusal,
        )

    def _claim(self, entry: PodClaim, queued_gang: QueuedGang) -> DeviceClaim:
        """What a claim of a pod asks for, or why the Workload is refused."""
        namespace = queued_gang.gang.source.namespace
        if not entry.template:
            claim = self.objects.claims.get(DeviceClaimKey(namespace, entry.claim))
            if claim is None:
                raise Refusal(f'{entry.path}: resourceclaim.resource.k8s.io "{entry.claim}" not found')
            return claim
        claim = template_of(entry, namespace, self.templates)
        if refuses(self.counting):
            check_countable(entry, claim, self.counting, lambda at, ask: self._shortage(entry, at, ask))
        check_classes(entry, claim, self.objects.classes)
        if refuses(self.counting):
            self._check_charges(entry, claim)
        return claim

    def _check_charges(self, entry: PodClaim, claim: DeviceClaim) -> None:
        for at, request in enumerate(claim.requests):
            for _, source in self.counting.counters_of(request.asks[0].device_class):
                try:
                    self._charges.charge(source, request.asks[0])
                except ValueError as why:
                    raise uncharged(entry, at, str(why)) from None

    def _known_charge(self, source: CounterSource, ask: DeviceAsk) -> int:
        """What a request consumes of a counter; nothing where that is not known, and gangs are admitted."""
        try:
            return self._charges.charge(source, ask)
        except ValueError:
            return 0

    def _shortage(self, entry: PodClaim, at: int, ask: DeviceAsk) -> str:
        """Why the selectors of a request match too few devices of the whole cluster."""
        device_class = self.objects.classes.get(ask.device_class)
        if not self.places or device_class is None or not any(ask.selectors):
            return ""
        selectors = tuple(one for one in (*device_class.selectors, *ask.selectors) if one is not None)
        found = self._matching.get((selectors, ask.count))
        if found is None:
            found = self._matching[selectors, ask.count] = self._matches(selectors, ask.count)
        matching, error = found
        if error:
            return failed_selector(entry, at, ask, error)
        return "" if matching >= ask.count else too_few(entry, at, ask, matching)

    def _matches(self, selectors: tuple[str, ...], needed: int) -> tuple[int, str]:
        """How many devices all selectors match, as far as they are needed, or the error of one."""
        matching = 0
        for _, part in sorted(self.objects.slices.items()):
            verdicts = [self.objects.selectors.select(one, part) for one in selectors]
            if any(one.flaw for one in verdicts):
                return needed, ""  # without the library it is not known: binding says so
            for index in range(len(part.devices)):
                for verdict in verdicts:
                    if verdict.matches[index] > 1:
                        return matching, verdict.error(index)
                    if not verdict.matches[index]:
                        break
                else:
                    matching += 1
            if matching >= needed:
                break
        return matching, ""


def devices_of(claims: list[tuple[PodClaim, DeviceClaim]]) -> PodDevices:
    """What one pod needs. Claims from templates are its own; one that has devices decides on the nodes."""
    new: list[DeviceClaim] = []
    shared: list[DeviceClaimKey] = []
    reach: list[tuple[NodeSelectorTerm, ...]] = []
    for entry, claim in claims:
        if entry.template:
            new.append(asked_of(claim, entry.title))
        elif claim.allocation is None:
            new.append(asked_of(claim, None))
            shared.append(claim.key)
        elif claim.allocation.terms is not None:
            reach.append(claim.allocation.terms)
    return PodDevices(tuple(dict.fromkeys(new)), tuple(dict.fromkeys(shared)), tuple(dict.fromkeys(reach)))


def with_templates(root: Group, devices: Mapping[str, PodDevices]) -> Group:
    """The tree with the devices of its pod sets."""
    if not devices:
        return root

    def with_devices(member: Group | PodSet) -> Group | PodSet:
        if isinstance(member, Group):
            return with_templates(member, devices)
        if member.name not in devices:
            return member
        return replace(
            member, template=replace(member.template or NO_SIGNATURE, devices=devices[member.name])
        )

    return replace(root, members=tuple(with_devices(member) for member in root.members))


def _sum(first: Mapping[str, int], more: Mapping[str, int]) -> dict[str, int]:
    return {**first, **{name: first.get(name, 0) + amount for name, amount in more.items()}}
