"""Claims of a Workload's pods: what quota counts, what is refused, and when a Workload is read again."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from bayplan.dialects.api import Event, Happened, Kind
from bayplan.dialects.kube.devices.wire import CLAIMS, CLASSES, SLICES, TEMPLATES
from bayplan.dialects.kube.fields.reader import Field
from bayplan.dialects.kueue.decode.workload_devices import WorkloadDevices
from bayplan.dialects.kueue.decode.workloads import decode_workload
from bayplan.dialects.kueue.fields.counting import Counting, DeviceClassMapping, UncountedDevices
from bayplan.model.change import QueuedGangSeen
from bayplan.model.queued_gang import QueuedGang

Object = dict[str, Any]
PATH = "spec.podSets[0].template.spec.resourceClaims[0]"
COUNTING = Counting(
    device_classes=(
        DeviceClassMapping("example.com/gpus", ("gpu", "big")),
        DeviceClassMapping("nics", ("nic",)),
    )
)
ADMIT = Counting(device_classes=COUNTING.device_classes, uncounted_devices=UncountedDevices.ADMIT)


class Reader:
    """Reads Workloads, and the objects that they depend on."""

    def __init__(self, counting: Counting = COUNTING, **options: Any) -> None:
        self.devices = WorkloadDevices(counting, **options)
        for name in ("gpu", "big", "nic", "unmapped"):
            self.see(CLASSES, name, {"selectors": []})

    def see(self, kind: Kind, name: str, spec: Object, *, gone: bool = False) -> None:
        meta = {"name": name, **({"namespace": "team"} if kind.namespaced else {})}
        assert kind.wire is not None
        wire = msgspec.convert({"metadata": meta, "spec": spec}, kind.wire)
        list(self.devices.decode(Event(Happened.GONE if gone else Happened.SEEN, kind, wire)))

    def template(self, name: str, *requests: Object) -> None:
        self.see(TEMPLATES, name, {"spec": {"devices": {"requests": list(requests)}}})

    def workload(self, *claims: Object, count: int = 2) -> QueuedGang:
        spec = {"containers": [{"name": "c", "image": "i"}], "resourceClaims": list(claims)}
        pod_set = {"name": "main", "count": count, "template": {"spec": spec}}
        body = {"metadata": {"name": "w", "namespace": "team"}, "spec": {"podSets": [pod_set]}}
        return self.devices.seen(decode_workload(Field(body)), body)

    def again(self) -> list[QueuedGang]:
        return [one.queued_gang for one in self.devices.flush() if isinstance(one, QueuedGangSeen)]


def exactly(name: str = "r", device_class: str = "gpu", **more: Any) -> Object:
    return {"name": name, "exactly": {"deviceClassName": device_class, **more}}


def of(template: str, name: str = "own") -> Object:
    return {"name": name, "resourceClaimTemplateName": template}


def per_pod(gang: QueuedGang) -> dict[str, int]:
    (request,) = gang.requests
    return dict(request.per_pod)


def test_requests_of_all_templates_of_a_pod_are_added_up_by_resource() -> None:
    reader = Reader()
    reader.template("two", exactly(count=2), exactly("s", "big"))
    reader.template("net", exactly("n", "nic", count=4))
    gang = reader.workload(of("two"), of("two", "more"), of("net", "net"))
    assert gang.refusal == ""
    assert per_pod(gang) == {"example.com/gpus": 6, "nics": 4}
    (pod_set,) = gang.gang.root.pod_sets()
    assert pod_set.template is not None and pod_set.template.devices is not None
    assert [claim.key.name for claim in pod_set.template.devices.claims] == ["own", "more", "net"]
    assert pod_set.requests == {}, "nodes have no such resource"


REFUSED = [
    (
        {"name": "r", "firstAvailable": [{"name": "a", "deviceClassName": "gpu"}]},
        f"{PATH}.devices.requests[0]: Invalid value: null: ResourceClaimTemplate t: "
        "FirstAvailable device selection is not supported",
    ),
    (
        exactly(adminAccess=True),
        f"{PATH}.devices.requests[0].exactly.adminAccess: Invalid value: null: ResourceClaimTemplate t: "
        "AdminAccess is not supported",
    ),
    (
        exactly(allocationMode="All"),
        f'{PATH}.devices.requests[0].exactly.allocationMode: Invalid value: "All": ResourceClaimTemplate t: '
        "AllocationMode 'All' is not supported",
    ),
    (
        exactly(allocationMode="Some"),
        f'{PATH}.devices.requests[0].exactly.allocationMode: Invalid value: "Some": ResourceClaimTemplate t: '
        "unsupported allocation mode: Some",
    ),
    (
        exactly(device_class="unmapped"),
        f'{PATH}.resourceClaimTemplateName: Not found: "DeviceClass unmapped is not mapped in DRA '
        'configuration for podset main"',
    ),
    (
        exactly(count=3, selectors=[{"cel": {"expression": 'device.driver == "none"'}}]),
        f"{PATH}.devices.requests[0].exactly.selectors: Internal error: ResourceClaimTemplate t: "
        "insufficient matching devices for CEL selector in DeviceClass gpu: 0 device(s) match in the cluster "
        "but 3 requested",
    ),
]


@pytest.mark.parametrize(("request_", "words"), REFUSED)
def test_what_kueue_refuses_is_refused_in_its_words(request_: Object, words: str) -> None:
    reader = Reader()
    reader.template("t", request_)
    gang = reader.workload(of("t"))
    assert gang.refusal == words
    assert per_pod(gang) == {}


def test_what_does_not_exist_is_refused_in_the_words_of_kueue() -> None:
    reader = Reader()
    assert reader.workload(of("none")).refusal == (
        f"{PATH}: Internal error: failed to get claim spec for ResourceClaimTemplate none in podset main: "
        'ResourceClaimTemplate.resource.k8s.io "none" not found'
    )
    reader.template("t", exactly())
    reader.see(CLASSES, "gpu", {}, gone=True)
    assert reader.workload(of("t")).refusal == (
        f"{PATH}.devices.requests[0]: Internal error: ResourceClaimTemplate t: failed to get DeviceClass "
        'gpu: DeviceClass.resource.k8s.io "gpu" not found'
    )


def test_claims_that_pods_name_are_refused_before_anything_else() -> None:
    reader = Reader()
    named = {"name": "shared", "resourceClaimName": "c"}
    words = "KueueDRAIntegration feature does not support use of resource claims"
    assert reader.workload(of("none"), named).refusal == words


def test_a_configuration_that_admits_counts_the_largest_alternative() -> None:
    reader = Reader(ADMIT)
    alternatives = [
        {"name": "a", "deviceClassName": "big", "count": 1},
        {"name": "b", "deviceClassName": "gpu", "count": 4},
    ]
    reader.template(
        "t", {"name": "r", "firstAvailable": alternatives}, exactly("s", "nic", allocationMode="All")
    )
    reader.see(CLAIMS, "c", {"devices": {"requests": [exactly(count=8)]}})
    gang = reader.workload(of("t"), {"name": "shared", "resourceClaimName": "c"})
    assert gang.refusal == ""
    assert per_pod(gang) == {"example.com/gpus": 4}
    (pod_set,) = gang.gang.root.pod_sets()
    assert pod_set.template is not None and pod_set.template.devices is not None
    assert [key.name for key in pod_set.template.devices.shared] == ["c"]


def test_a_workload_is_read_again_when_what_it_names_changes_and_only_then() -> None:
    reader = Reader()
    list(reader.devices.flush())
    before = reader.workload(of("late"))
    assert before.refusal
    reader.template("other", exactly())
    assert reader.again() == []
    reader.template("late", exactly(count=2))
    (gang,) = reader.again()
    assert gang.refusal == "" and per_pod(gang) == {"example.com/gpus": 2}
    assert gang.shape != before.shape, "it is another gang for the queue"
    reader.see(SLICES, "s", {"driver": "d", "pool": {"name": "p"}, "nodeName": "n"})
    assert reader.again() == [], "it has no selectors"
    reader.see(CLASSES, "gpu", {}, gone=True)
    (gang,) = reader.again()
    assert "failed to get DeviceClass gpu" in gang.refusal
    reader.devices.forget(gang.gang.source)
    reader.see(CLASSES, "gpu", {})
    assert reader.again() == []


def test_a_refusal_by_selectors_ends_with_the_devices_that_match() -> None:
    reader = Reader()
    list(reader.devices.flush())
    reader.template("t", exactly(count=2, selectors=[{"cel": {"expression": 'device.driver == "d"'}}]))
    assert "0 device(s) match in the cluster but 2 requested" in reader.workload(of("t")).refusal
    devices = [{"name": "a"}, {"name": "b"}]
    reader.see(SLICES, "s", {"driver": "d", "pool": {"name": "p"}, "nodeName": "n", "devices": devices})
    (gang,) = reader.again()
    assert gang.refusal == ""


def test_where_devices_do_not_decide_on_nodes_only_quota_counts_them() -> None:
    reader = Reader(places=False)
    reader.template("t", exactly(count=2))
    gang = reader.workload(of("t"))
    assert per_pod(gang) == {"example.com/gpus": 2}
    assert [pod_set.template for pod_set in gang.gang.root.pod_sets()] == [None]
