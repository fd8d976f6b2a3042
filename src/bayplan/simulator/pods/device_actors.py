"""Actors of devices: drivers that publish slices, restart and taint devices, and another scheduler."""

from __future__ import annotations

import copy
from collections import Counter
from collections.abc import Callable, Sequence
from functools import partial
from random import Random

from bayplan.backends.embedded.storage.store import Store
from bayplan.backends.fake_controllers.device_claims import CLAIMS, FINALIZER, SLICES
from bayplan.backends.fake_controllers.manifests import DRIVER, NAMESPACE, Object
from bayplan.backends.fake_controllers.objects import OVER, is_terminating, phase_of
from bayplan.dialects.api import Kind
from bayplan.model.node import HOSTNAME
from bayplan.simulator.core.checkers import pods_on_nodes, use_of, used_by
from bayplan.simulator.core.documents import once_per_listing
from bayplan.simulator.core.fixtures import PLAIN_NODES, PLAIN_PODS
from bayplan.simulator.pods.device_checker import allocated, claims_of
from bayplan.simulator.pods.device_world import slice_of
from bayplan.simulator.pods.gang_view import is_ours

NEVER = float("inf")


class DeviceActors:
    """Acts on the store at random times, without injected faults."""

    def __init__(
        self, store: Store, rng: Random, slices: Sequence[Object], start: float, fault_seconds: float
    ) -> None:
        self.store, self.rng, self.now = store, rng, start
        self.slices = {one["metadata"]["name"]: one for one in slices}  # as they should be
        self.agenda: list[tuple[float, int, Callable[[], None]]] = []
        self.withdrawn: set[str] = set()  # slices whose driver restarts
        self.injected: Counter[str] = Counter()
        self.disturbed_at = start
        for one in slices:
            store.create(SLICES, one)
        for _ in range(rng.choice((0, 1, 3, 5))):
            action = rng.choice((self._restart_driver, self._taint_device))
            self._plan(start + rng.uniform(0, fault_seconds), action)

    def step(self, now: float) -> float:
        """Run the actions that are due; return when the next one is."""
        self.now = now
        for entry in sorted((one for one in self.agenda if one[0] <= now), key=lambda one: one[:2]):
            self.agenda.remove(entry)
            entry[2]()
        self._follow_nodes()
        for pod in _foreign_pending(self.store.everything(PLAIN_PODS)):
            if self.rng.random() < 0.3:
                self._bind_foreign(pod)
        return min([when for when, _, _ in self.agenda], default=NEVER)

    def recover_all(self) -> None:
        """End the faulty phase: all slices are published as at the start."""
        self.agenda.clear()
        self.withdrawn.clear()
        for one in self.store.list(SLICES).items:
            if any(device.get("taints") for device in one["spec"].get("devices") or ()):
                self._untaint(one["metadata"]["name"])
        self._follow_nodes()

    # ── drivers ──

    def _follow_nodes(self) -> None:
        """Publish the slices of nodes that exist, and withdraw those of nodes that do not."""
        nodes = {node["metadata"]["name"] for node in self.store.list(PLAIN_NODES).items}
        published = {one["metadata"]["name"] for one in self.store.list(SLICES).items}
        for name in sorted(nodes):
            self.slices.setdefault(f"{name}-gpus", slice_of(name, self.rng))
        for title, body in self.slices.items():
            wanted = body["spec"].get("nodeName", "") in ("", *nodes) and title not in self.withdrawn
            if wanted and title not in published:
                self._disturb("slice_published")
                self.store.create(SLICES, body)
            elif not wanted and title in published:
                self._disturb("slice_withdrawn")
                self.store.delete(SLICES, "", title)

    def _restart_driver(self) -> None:
        """Withdraw a slice for a while; the next one has a new generation."""
        title = self.rng.choice(sorted(self.slices))
        fresh = copy.deepcopy(self.slices[title])
        fresh["spec"]["pool"]["generation"] += 1
        self.slices[title] = fresh
        self.withdrawn.add(title)
        self._plan(self.now + self.rng.uniform(0.5, 20), partial(self.withdrawn.discard, title))

    def _taint_device(self) -> None:
        for one in self.rng.sample(found := self.store.list(SLICES).items, min(len(found), 1)):
            devices = copy.deepcopy(one["spec"].get("devices"))
            if devices:
                self._disturb("device_tainted")
                taint = {"key": "example.com/faulty", "effect": "NoSchedule"}
                self.rng.choice(devices)["taints"] = [taint]
                name = one["metadata"]["name"]
                self.store.patch(SLICES, "", name, {"spec": {"devices": devices}})
                self._plan(self.now + self.rng.uniform(2, 40), partial(self._untaint, name))

    def _untaint(self, name: str) -> None:
        if self.store.find(SLICES, "", name) is not None:
            self._disturb("device_untainted")
            devices = self.slices[name]["spec"]["devices"]
            self.store.patch(SLICES, "", name, {"spec": {"devices": devices}})

    # ── another scheduler ──

    def _bind_foreign(self, pod: Object) -> None:
        """Allocate free devices of a random node for a pod of another scheduler, and bind the pod."""
        claims = claims_of(pod, self.store.list(CLAIMS).items)
        if claims is None or any(is_terminating(claim) for claim in claims):
            return
        node = self.rng.choice(self.store.list(PLAIN_NODES).items)
        name = node["metadata"]["name"]
        placed = [one for one in pods_on_nodes(self._pods()) if one["spec"]["nodeName"] == name]
        placed.append({**pod, "spec": {**pod["spec"], "nodeName": name}})
        if any(amount > limit for _, _, amount, limit in use_of([node], used_by(placed))):
            return
        chosen = self._free_devices(name, sum(_count(claim) for claim in claims))
        if chosen is None:
            return
        self._disturb("allocated_by_another")
        for claim in claims:
            mine, chosen = chosen[: _count(claim)], chosen[_count(claim) :]
            self._allocate(claim, pod, name, mine)
        meta = pod["metadata"]
        body = {"metadata": {"name": meta["name"]}, "target": {"kind": "Node", "name": name}}
        self.store.connect(PLAIN_PODS, NAMESPACE, meta["name"], "binding", body)

    def _free_devices(self, node: str, count: int) -> list[str] | None:
        published = self.store.find(SLICES, "", f"{node}-gpus")
        if published is None:
            return None
        held = {device for claim in self.store.list(CLAIMS).items for device in allocated(claim)}
        free = [
            device["name"]
            for device in published["spec"].get("devices") or ()
            if not device.get("taints") and (DRIVER, node, device["name"]) not in held
        ]
        return free[:count] if len(free) >= count else None  # in the order of our scheduler: they collide

    def _allocate(self, claim: Object, pod: Object, node: str, devices: Sequence[str]) -> None:
        meta = pod["metadata"]
        result = {"request": "gpus", "driver": DRIVER, "pool": node}
        host = {"key": HOSTNAME, "operator": "In", "values": [node]}
        allocation = {
            "devices": {"results": [{**result, "device": device} for device in devices]},
            "nodeSelector": {"nodeSelectorTerms": [{"matchExpressions": [host]}]},
        }
        reserved = [{"resource": "pods", "name": meta["name"], "uid": meta["uid"]}]
        title = claim["metadata"]["name"]
        self._patch(CLAIMS, title, {"metadata": {"finalizers": [FINALIZER]}})
        status = {"allocation": allocation, "reservedFor": reserved}
        self._patch(CLAIMS, title, {"status": status}, "status")

    # ── the store ──

    def _pods(self) -> list[Object]:
        return [pod for pod in self.store.list(PLAIN_PODS).items if phase_of(pod) not in OVER]

    def _patch(self, kind: Kind, name: str, body: Object, subresource: str = "") -> None:
        self.store.patch(kind, NAMESPACE, name, body, subresource=subresource)

    def _plan(self, when: float, action: Callable[[], None]) -> None:
        self.agenda.append((when, len(self.agenda), action))

    def _disturb(self, what: str) -> None:
        self.injected[what] += 1
        self.disturbed_at = self.now


@once_per_listing
def _foreign_pending(pods: Sequence[Object]) -> tuple[Object, ...]:
    return tuple([pod for pod in pods if _is_foreign(pod)])


def _is_foreign(pod: Object) -> bool:
    """Whether a pending pod with claims belongs to another scheduler."""
    spec = pod["spec"]
    if is_ours(pod) or is_terminating(pod) or phase_of(pod) in OVER:
        return False
    return bool(spec.get("resourceClaims")) and not (spec.get("nodeName") or spec.get("schedulingGates"))


def _count(claim: Object) -> int:
    return int(claim["spec"]["devices"]["requests"][0]["exactly"]["count"])
