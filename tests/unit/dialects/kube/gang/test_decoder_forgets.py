"""What the reading of pods remembers of gangs and namespaces goes with the pods."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from bayplan.dialects.api import Event, Happened
from bayplan.dialects.kube.decode.wire import PODS_KIND, PodWire
from bayplan.dialects.kube.gang.events import SchedulingDecoder
from bayplan.model.change import Change, GangSpecLost


def heard(reading: SchedulingDecoder, happened: Happened, namespace: str = "ns", **spec: Any) -> list[Change]:
    meta = {"name": "p", "namespace": namespace, "uid": f"uid-{namespace}"}
    pod = {"metadata": meta, "spec": {"schedulerName": "ours", "containers": [], **spec}, "status": {}}
    return list(reading.decode(Event(happened, PODS_KIND, msgspec.convert(pod, PodWire), "1")))


@pytest.fixture
def reading() -> SchedulingDecoder:
    return SchedulingDecoder(("ours",), lambda _: None)


def test_the_copies_of_a_group_go_with_their_pods(reading: SchedulingDecoder) -> None:
    for name in ("a", "b", "c"):
        heard(reading, Happened.SEEN, name, workloadRef={"name": name, "podGroup": "g"})
    assert len(reading.copies) == 3
    for name in ("a", "b", "c"):
        lost = heard(reading, Happened.GONE, name, workloadRef={"name": name, "podGroup": "g"})
        assert any(isinstance(change, GangSpecLost) for change in lost)
    assert reading.copies == {} and reading.waiting == {}


def test_a_pod_that_names_another_gang_leaves_the_copy_it_named(reading: SchedulingDecoder) -> None:
    heard(reading, Happened.SEEN, workloadRef={"name": "a", "podGroup": "g"})
    moved = heard(reading, Happened.SEEN, workloadRef={"name": "b", "podGroup": "g"})
    assert [change.ref.name.split("/")[0] for change in moved if isinstance(change, GangSpecLost)] == ["a"]
    assert list(reading.copies) == [("ns", "b")]
