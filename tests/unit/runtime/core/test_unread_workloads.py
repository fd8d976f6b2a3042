"""A Workload that cannot be read, and what it holds, after a restart."""

from __future__ import annotations

from typing import Any

import pytest

from bayplan.backends.embedded.http.backend import EmbeddedBackend
from bayplan.dialects.kube.fields.reader import Field
from bayplan.dialects.kueue.decode import events as kueue_events
from bayplan.dialects.kueue.decode.workloads import decode_workload
from bayplan.dialects.kueue.names import api_kinds
from bayplan.runtime.controllers.admission.controller import AdmissionController
from bayplan.runtime.core.containment import Containment
from bayplan.runtime.core.loop import Loop
from tests.support.queued_cluster import queued_workload
from tests.unit.runtime.controllers.admission.test_controller import Silent, World


@pytest.mark.parametrize("broken", ["error", "invalid"])
@pytest.mark.parametrize(("queue", "pods"), [("small", 1), ("left", 4)], ids=["quota", "quota and nodes"])
def test_an_admitted_workload_that_cannot_be_read_after_a_restart_holds_its_quota(
    monkeypatch: pytest.MonkeyPatch, broken: str, queue: str, pods: int
) -> None:
    world = World()
    world.submit(queued_workload("first", pods, 4, queue))
    assert world.says("first", "Admitted") == ("True", "Admitted")

    def unreadable(field: Field, *rest: Any) -> Any:
        if field.at("metadata", "name").value == "first":
            if broken == "error":
                raise ZeroDivisionError("an unexpected error")
            field.at("spec").error("is wrong")
        return decode_workload(field, *rest)

    monkeypatch.setattr(kueue_events, "decode_workload", unreadable)
    backend = EmbeddedBackend(world.cluster.store)
    role = AdmissionController()
    world.loop = Loop(backend, [role], Silent(), containment=Containment())
    world.pass_time()
    held = [path for cluster in role.state.usage.topologies.values() for path in cluster.held]
    assert len(held) == (4 if queue == "left" else 0)
    world.change(api_kinds.CLUSTER_QUEUES, "left-queue", {"cohortName": None})
    world.submit(queued_workload("second", pods, 4, queue))
    assert world.says("second", "QuotaReserved")[0] == "False"
    world.cluster.store.delete(api_kinds.WORKLOADS, "ml", "first")
    world.pass_time(2.0)
    assert world.says("second", "Admitted") == ("True", "Admitted")
