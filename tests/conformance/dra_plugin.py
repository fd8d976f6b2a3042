"""dra/plugin*: what becomes of a pod with claims, and what is written, as upstream's plugin table has it.

The scheduler runs on a cluster in memory with the objects of a case. Compared are the outcome (bound, or
the reasons why not) and the claims afterwards: devices, nodes, reservations and finalizers. The gates of a
case that are off make no difference here: an API server drops the fields of those.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterable, Iterator
from typing import Any

from bayplan.backends.embedded.api.options import Deletion
from bayplan.backends.embedded.cluster import new_store
from bayplan.backends.embedded.http.backend import EmbeddedBackend
from bayplan.backends.fake_controllers.device_claims import CLAIMS
from bayplan.runtime.controllers.scheduler.controller import SchedulerController
from bayplan.runtime.core.journal import MemoryJournal
from bayplan.runtime.core.loop import Loop
from tests.conformance.dra_objects import Object
from tests.conformance.registry import Check, ForFile, NothingToRun
from tests.support.device_site import CLASSES, READY, SLICES
from tests.support.pod_site import NODES, PODS, START, PodSite

SECONDS = 5.0
ON_DEVICE = re.compile(r"(?<=selector #\d) on device [^:]+")
"""Which device it is, as newer versions say."""
CONTAINER = {"name": "c", "image": "i"}
DONE = ("Success", "Skip")
OF_THE_FRAMEWORK = ("unreserveBeforePreBind", "unreserverAfterBindFailure")
"""Phases in which the framework takes back what another plugin refuses: there is no other plugin here."""
NOT_SUPPORTED = ("DRAExtendedResource", "DRADeviceBindingConditions")
SLICE, DEALLOCATED = "v1.ResourceSlice", "deallocation of ResourceClaim completed"


class Stage(PodSite):
    """The cluster of a case, with the scheduler alone."""

    def __init__(self, case: Object) -> None:
        self.now = START
        numbers, self.uid = itertools.count(1), ""
        self.store = new_store(
            lambda: self.now, lambda: self.uid or f"uid-{next(numbers)}", lambda: f"{next(numbers):05d}"
        )
        self.uid = case["pod"]["metadata"].get("uid", "")
        self._add_pod(case["pod"])
        self.uid = ""
        for node in case["nodes"] or ():
            self.store.create(NODES, {**node, "status": {**node["status"], "conditions": [READY]}})
        for one in case["classes"] or ():
            self.store.create(CLASSES, one)
        for one in case["objects"] or ():
            if one["type"] == SLICE:
                self.store.create(SLICES, one["object"])
        for claim in case["claims"] or ():
            self._add_claim(claim)
        self.loop = Loop(EmbeddedBackend(self.store), (SchedulerController(),), MemoryJournal())

    def _add_pod(self, pod: Object) -> None:
        meta = {key: value for key, value in pod["metadata"].items() if key != "uid"}
        containers = [_limited(one) for one in pod["spec"].get("containers") or [CONTAINER]]
        spec = {**pod["spec"], "containers": containers}
        self.store.create(PODS, {"metadata": meta, "spec": {**spec, "schedulerName": "bayplan"}}, "default")
        statuses = (pod.get("status") or {}).get("resourceClaimStatuses")
        if statuses:
            body = {"status": {"resourceClaimStatuses": statuses}}
            self.store.patch(PODS, "default", meta["name"], body, subresource="status")

    def _add_claim(self, claim: Object) -> None:
        meta = dict(claim["metadata"])
        deleted = meta.pop("deletionTimestamp", None)
        self.store.create(CLAIMS, {"metadata": meta, "spec": claim["spec"]}, "default")
        if claim.get("status"):
            body = {"status": claim["status"]}
            self.store.patch(CLAIMS, "default", meta["name"], body, subresource="status")
        if deleted:
            self.store.delete(CLAIMS, "default", meta["name"], Deletion())

    def message(self, name: str) -> str:
        conditions = self.get(name)["status"].get("conditions") or ()
        return next((one.get("message", "") for one in conditions if one["type"] == "PodScheduled"), "")


def _limited(container: Object) -> Object:
    """An API server demands limits that are equal to the requests for extended resources."""
    resources = container.get("resources") or {}
    wanted = {name: value for name, value in (resources.get("requests") or {}).items() if "/" in name}
    limits = {**wanted, **(resources.get("limits") or {})}
    return {**CONTAINER, **container, "resources": {**resources, "limits": limits}}


def check(case: Object) -> list[str]:
    """One pod, from its place in the queue to its binding."""
    phases = {one["phase"]: one for one in case["phases"]}
    if not phases.keys().isdisjoint(OF_THE_FRAMEWORK):
        raise NothingToRun
    stage, name = Stage(case), case["pod"]["metadata"]["name"]
    told: set[str] = set()
    for _ in range(int(SECONDS * 10)):
        stage.run(0.1)
        told.add(ON_DEVICE.sub("", stage.message(name)))
    found = list(_outcome(stage, name, phases, told))
    notes = [f"needs {gate}" for gate in NOT_SUPPORTED if gate in case["features"]]
    return [*found, *notes] if found else []


def _outcome(stage: Stage, name: str, phases: dict[str, Object], told: set[str]) -> Iterator[str]:
    bound = stage.on(name)[0]
    if "prebind" in phases and phases["prebind"]["code"] in DONE:
        if not bound:
            yield f"want it bound, got {stage.message(name)}"
        else:
            yield from _claims_differ(stage, phases["prebind"]["claimsAfter"] or ())
        return
    if bound:
        yield f"want it to wait, got it bound to {bound}"
        return
    failed = [one for one in phases.values() if one["code"] not in DONE and one["phase"] != "postfilter"]
    for reason in {text for one in failed for text in one["reasons"] or ()}:
        if not any(reason in text for text in told):
            yield f"want {reason}, got {stage.message(name)}"
    last = phases.get("postfilter")
    if last is not None:
        yield from _claims_differ(stage, last["claimsAfter"] or ())


def _claims_differ(stage: Stage, wanted: Iterable[Object]) -> Iterator[str]:
    for claim in wanted:
        name = claim["metadata"]["name"]
        want, got = _seen(claim), _seen(stage.store.get(CLAIMS, "default", name))
        if want != got:
            yield f"claim {name}: want {want}, got {got}"


def _seen(claim: Object) -> dict[str, Any]:
    """What is compared of a claim."""
    status = claim.get("status") or {}
    allocation = status.get("allocation") or {}
    return {
        "devices": (allocation.get("devices") or {}).get("results"),
        "config": (allocation.get("devices") or {}).get("config"),
        "nodes": allocation.get("nodeSelector"),
        "reserved": [(one["resource"], one["name"], one["uid"]) for one in status.get("reservedFor") or ()],
        "finalizers": sorted(claim["metadata"].get("finalizers") or ()) if allocation else [],
    }


FILES: dict[str, Check | ForFile] = {"dra/plugin*": check}
