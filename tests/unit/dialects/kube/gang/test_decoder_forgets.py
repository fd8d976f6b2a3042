"""What the decoder keeps about gangs and namespaces is removed with their pods."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from bayplan.dialects.api import Event, Happened
from bayplan.dialects.kube.decode.wire import PODS_KIND, PodWire
from bayplan.dialects.kube.gang.events import SchedulingDecoder
from bayplan.model.change import Change, GangSpecLost


def decoded(
    decoder: SchedulingDecoder, happened: Happened, namespace: str = "ns", **spec: Any
) -> list[Change]:
    meta = {"name": "p", "namespace": namespace, "uid": f"uid-{namespace}"}
    pod = {"metadata": meta, "spec": {"schedulerName": "ours", "containers": [], **spec}, "status": {}}
    return list(decoder.decode(Event(happened, PODS_KIND, msgspec.convert(pod, PodWire), "1")))


@pytest.fixture
def decoder() -> SchedulingDecoder:
    return SchedulingDecoder(("ours",), lambda _: None)


def test_the_replicas_of_a_group_are_removed_with_their_pods(decoder: SchedulingDecoder) -> None:
    for name in ("a", "b", "c"):
        decoded(decoder, Happened.SEEN, name, workloadRef={"name": name, "podGroup": "g"})
    assert len(decoder.replicas) == 3
    for name in ("a", "b", "c"):
        lost = decoded(decoder, Happened.GONE, name, workloadRef={"name": name, "podGroup": "g"})
        assert any(isinstance(change, GangSpecLost) for change in lost)
    assert decoder.replicas == {} and decoder.pending == {}


def test_a_pod_that_names_another_gang_leaves_its_replica(decoder: SchedulingDecoder) -> None:
    decoded(decoder, Happened.SEEN, workloadRef={"name": "a", "podGroup": "g"})
    moved = decoded(decoder, Happened.SEEN, workloadRef={"name": "b", "podGroup": "g"})
    assert [change.ref.name.split("/")[0] for change in moved if isinstance(change, GangSpecLost)] == ["a"]
    assert list(decoder.replicas) == [("ns", "b")]
