"""Controllers of one process read the template of a pod once, and refer to the same values."""

from __future__ import annotations

import msgspec
import pytest

from bayplan.dialects.api import Event, Happened
from bayplan.dialects.kube.decode import pod_spec_cache
from bayplan.dialects.kube.decode.wire import PODS_KIND, PodWire
from bayplan.model.change import PodSeen
from bayplan.model.pod import Pod
from bayplan.runtime.controllers.admission.controller import AdmissionController
from bayplan.runtime.controllers.scheduler.controller import SchedulerController
from bayplan.state.cluster.shared_state import ClusterState


def bound(name: str) -> Event:
    meta = {"name": name, "namespace": "ns", "uid": name, "labels": {"app": "a"}}
    container = {"name": "c", "image": "i", "resources": {"requests": {"cpu": "2"}}}
    spec = {"schedulerName": "other", "nodeName": "n1", "containers": [container]}
    wire = msgspec.convert({"metadata": meta, "spec": spec, "status": {"phase": "Running"}}, PodWire)
    return Event(Happened.SEEN, PODS_KIND, wire, "1")


def pod_in(controller: AdmissionController | SchedulerController, event: Event) -> Pod:
    (pod,) = (change.pod for change in controller.decode(event) if isinstance(change, PodSeen))
    return pod


@pytest.mark.parametrize("admission_first", [True, False])
def test_both_roles_refer_to_the_same_spec_and_requests(
    admission_first: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    read: list[object] = []

    def encode(fields: object) -> bytes:
        read.append(fields)
        return msgspec.msgpack.encode(fields)

    monkeypatch.setattr(pod_spec_cache, "_encode", encode)
    cluster = ClusterState()
    roles: list[AdmissionController | SchedulerController] = [
        AdmissionController(cluster=cluster),
        SchedulerController(cluster=cluster),
    ]
    ordered = roles if admission_first else roles[::-1]
    pods = [pod_in(role, event) for event in (bound("a"), bound("b")) for role in ordered]
    assert len(read) == 2, "once for each event"
    assert len({id(pod.spec) for pod in pods}) == 1
    assert len({id(pod.amounts) for pod in pods}) == 1


def test_controllers_of_different_processes_share_nothing() -> None:
    event = bound("a")
    pods = [pod_in(role, event) for role in (AdmissionController(), SchedulerController())]
    assert pods[0].spec == pods[1].spec and pods[0].spec is not pods[1].spec
