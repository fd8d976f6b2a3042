"""A cluster in memory with devices: racks of nodes, their slices, claims, and pods that need them."""

from __future__ import annotations

import itertools
from typing import Any

from bayplan.backends.embedded.api.options import Deletion
from bayplan.backends.embedded.cluster import new_store
from bayplan.backends.embedded.http.backend import EmbeddedBackend
from bayplan.backends.embedded.kinds.gangs import GangApi
from bayplan.backends.embedded.storage.store import Store
from bayplan.backends.fake_controllers.controller_manager import FakeControllerManager
from bayplan.backends.fake_controllers.device_claims import CLAIMS, TEMPLATES
from bayplan.dialects.api import Backend, Kind
from bayplan.dialects.kube.gang_api.gates import GROUP, V1ALPHA2
from bayplan.runtime.controllers.scheduler.controller import SchedulerController
from bayplan.runtime.core.journal import MemoryJournal
from bayplan.runtime.core.loop import Loop
from tests.support.pod_site import NODES, PODS, START, Object, PodSite

DRIVER = "gpu.example.com"
CLASSES = Kind("resource.k8s.io", "v1", "DeviceClass", "deviceclasses", namespaced=False)
SLICES = Kind("resource.k8s.io", "v1", "ResourceSlice", "resourceslices", namespaced=False)
READY = {"type": "Ready", "status": "True"}
PRIORITIES = Kind(GROUP, "v1", "PriorityClass", "priorityclasses", namespaced=False)
GROUPS = Kind(GROUP, V1ALPHA2, "PodGroup", "podgroups")


class DeviceSite(PodSite):
    """Racks of nodes with devices of one driver, and the class `gpu` that selects them all."""

    def __init__(self, racks: int = 1, nodes: int = 2, devices: int = 4) -> None:
        self.now = START
        numbers = itertools.count(1)
        self.store = new_store(
            lambda: self.now, lambda: f"uid-{next(numbers)}", lambda: f"{next(numbers):05d}",
            gang_api=GangApi((V1ALPHA2,)),
        )  # fmt: skip
        self.actors = FakeControllerManager(EmbeddedBackend(self.store))
        for rack in range(1, racks + 1):
            for number in range(1, nodes + 1):
                self.node(f"r{rack}-n{number}", f"r{rack}")
                if devices:
                    self.slice(f"r{rack}-n{number}", devices)
        for number, importance in enumerate(("low", "middle", "high")):
            body = {"metadata": {"name": importance}, "value": 10 * number}
            self.store.create(PRIORITIES, body)
        selector = {"cel": {"expression": f'device.driver == "{DRIVER}"'}}
        self.store.create(CLASSES, {"metadata": {"name": "gpu"}, "spec": {"selectors": [selector]}})
        self.start()

    def start(self) -> None:
        """Start the scheduler anew, as after a crash."""
        self.role = SchedulerController()
        self.loop = Loop(self.backend(), (self.role,), MemoryJournal())

    def backend(self) -> Backend:
        return EmbeddedBackend(self.store)

    def run(self, seconds: float = 2.0) -> None:
        end = self.now + seconds
        while self.now < end:
            self.actors.step(self.now)
            self.loop.step(self.now)
            self.now += 0.1

    # ── what is there ──────────────────────────────────────────────────────────────────────────────

    def node(self, name: str, rack: str) -> None:
        amounts = {"cpu": "64", "memory": "64Gi", "pods": "110"}
        labels = {"kubernetes.io/hostname": name, "rack": rack}
        body = {
            "metadata": {"name": name, "labels": labels},
            "status": {"allocatable": amounts, "capacity": amounts, "conditions": [READY]},
        }
        self.store.create(NODES, body)

    def slice(self, node: str, devices: int, **spec: Any) -> None:
        whole = {
            "driver": DRIVER,
            "pool": {"name": node, "generation": 1, "resourceSliceCount": 1},
            "nodeName": node,
            "devices": [{"name": f"gpu-{number}"} for number in range(devices)],
            **spec,
        }
        self.store.create(SLICES, {"metadata": {"name": f"{node}-gpus"}, "spec": whole})

    def template(self, name: str, count: int = 1, **exactly: Any) -> None:
        self.store.create(
            TEMPLATES, {"metadata": {"name": name}, "spec": {"spec": asked(count, **exactly)}}, "default"
        )

    def claim(self, name: str, count: int = 1, **exactly: Any) -> None:
        self.store.create(CLAIMS, {"metadata": {"name": name}, "spec": asked(count, **exactly)}, "default")

    def pod(
        self, name: str, template: str = "", claim: str = "", importance: str = "low", **spec: Any
    ) -> None:
        """A pod with a claim from a template, or with one that has this name, or with both."""
        container = {"name": "c", "image": "i", "resources": {"requests": {"cpu": "1"}}}
        entries = [{"name": "own", "resourceClaimTemplateName": template}] if template else []
        entries += [{"name": "named", "resourceClaimName": claim}] if claim else []
        whole = {"schedulerName": "bayplan", "containers": [container], "resourceClaims": entries, **spec}
        whole["priorityClassName"] = importance
        self.store.create(PODS, {"metadata": {"name": name}, "spec": whole}, "default")

    def gang(self, name: str, size: int, rack: bool = False, minimum: int = 0, **pod: Any) -> list[str]:
        """A gang of pods, in one rack if asked for; their names."""
        spec: Object = {"schedulingPolicy": {"gang": {"minCount": minimum or size}}}
        if rack:
            spec["schedulingConstraints"] = {"topology": [{"key": "rack"}]}
        if "importance" in pod:
            spec["priorityClassName"] = pod["importance"]
        self.store.create(GROUPS, {"metadata": {"name": name}, "spec": spec}, "default")
        names = [f"{name}-{number}" for number in range(size)]
        for one in names:
            self.pod(one, schedulingGroup={"podGroupName": name}, **pod)
        return names

    def end(self, name: str) -> None:
        """Delete a pod at once."""
        self.store.delete(PODS, "default", name, Deletion(grace=0))

    # ── what came of it ────────────────────────────────────────────────────────────────────────────

    def message(self, name: str) -> str:
        """The message of the PodScheduled condition."""
        conditions = self.get(name)["status"].get("conditions") or ()
        return next((one.get("message", "") for one in conditions if one["type"] == "PodScheduled"), "")

    def claims(self) -> list[Object]:
        return self.store.list(CLAIMS).items

    def devices(self, claim: Object) -> list[tuple[str, str]]:
        """The pool and name of the devices of a claim."""
        allocation = (claim.get("status") or {}).get("allocation") or {}
        return [(one["pool"], one["device"]) for one in (allocation.get("devices") or {}).get("results", ())]

    def check(self) -> None:
        """No device is allocated twice; a bound pod has its claims, with devices of its node."""
        held = [one for claim in self.claims() for one in self.devices(claim)]
        assert len(held) == len(set(held)), "a device is allocated twice"
        by_name = {claim["metadata"]["name"]: claim for claim in self.claims()}
        for pod in self.store.list(PODS).items:
            if not pod["spec"].get("nodeName"):
                continue
            entries = [
                *pod["spec"].get("resourceClaims", ()),
                *(pod["status"].get("resourceClaimStatuses") or ()),
            ]
            for entry in entries:
                if entry.get("resourceClaimName"):
                    claim = by_name[entry["resourceClaimName"]]
                    assert self.devices(claim), "a bound pod has no devices"
                    reserved = claim["status"].get("reservedFor") or ()
                    assert pod["metadata"]["uid"] in {one["uid"] for one in reserved}


def asked(count: int, **exactly: Any) -> Object:
    """The spec of a claim with one request."""
    ask = {"deviceClassName": "gpu", "count": count, **exactly}
    return {"devices": {"requests": [{"name": "gpus", "exactly": ask}]}}


class DeviceApi:
    """The API group of devices in a cluster in memory, to be switched off and on. Its objects are kept."""

    def __init__(self, store: Store) -> None:
        self.store = store
        self.resources = [store.resources.of(kind) for kind in (CLAIMS, TEMPLATES, CLASSES, SLICES)]
        self.kept: dict[str, dict[str, Object]] = {}

    def switch_off(self) -> None:
        """Stop serving the group: watches end, and requests are answered with 404."""
        for resource in self.resources:
            self.kept[resource.plural] = dict(self.store.collection_of(resource).objects)
            self.store.resources.remove(resource.group, resource.plural)
            self.store.forget_collection(resource.storage)

    def switch_on(self, *plurals: str) -> None:
        """Serve the group again, or only these kinds of it."""
        for resource in self.resources:
            if plurals and resource.plural not in plurals:
                continue
            self.store.resources.add([resource])
            for key, item in self.kept.pop(resource.plural, {}).items():
                self.store.put(resource, key, item)
