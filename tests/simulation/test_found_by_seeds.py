"""Regressions that simulation seeds found: nodes assigned twice after they failed and came back."""

from __future__ import annotations

from bayplan.assembly.in_process_webhooks import register_webhooks
from bayplan.backends.embedded.api.options import Deletion
from bayplan.dialects.kube.decode.wire import Metadata, PodWire
from bayplan.dialects.kueue.fields.topology_request import UNNUMBERED
from bayplan.dialects.kueue.names import api_kinds
from bayplan.dialects.kueue.pods.node_health import HealthRules
from bayplan.dialects.kueue.pods.slots import SlottedPodSet
from bayplan.dialects.kueue.pods.ungating import AdmittedPlacement, PodUngating
from bayplan.dialects.kueue.status.conditions import ADMITTED, is_true
from bayplan.model.node import HOSTNAME
from bayplan.model.plan import Admit
from bayplan.runtime.controllers.ungating import GatedGang, UngateWriteTag, UngatingController
from tests.support.failing_nodes import LIMIT, PLAIN_PODS, World
from tests.support.kueue_workloads import conditions
from tests.support.queued_cluster import queued_workload, template


def start(world: World, *, bound: bool = True) -> str:
    """Start a gang of two pods on whole hosts; return the host of the first."""
    world.cluster.submit(queued_workload("train", 2, 4))
    world.pass_time()
    for rank, on in enumerate(world.places("train")):
        notes = {"kueue.x-k8s.io/workload": "train", "kueue.x-k8s.io/podset-unconstrained-topology": "true"}
        name = f"train-{rank}"
        meta = {"name": name, "namespace": "ml", "annotations": notes}
        spec = {**template(4)["spec"], **({"nodeName": on} if bound else {"nodeSelector": {HOSTNAME: on}})}
        world.store.create(
            PLAIN_PODS, {"apiVersion": "v1", "kind": "Pod", "metadata": meta, "spec": spec}, "ml"
        )
        status = {"status": {"phase": "Running" if bound else "Pending"}}
        world.store.patch(PLAIN_PODS, "ml", name, status, subresource="status")
    world.pass_time()
    return next(iter(world.places("train")))


def remove_pod(world: World) -> None:
    """Delete the first pod by force."""
    world.store.delete(PLAIN_PODS, "ml", "train-0", Deletion.from_body({"gracePeriodSeconds": 0}))
    world.pass_time(1.0)


def submit_for_host(world: World, host: str) -> None:
    """Submit a Workload that needs a whole host."""
    submitted = queued_workload("next", 1, 4)
    submitted["spec"]["podSets"][0]["template"]["spec"]["nodeSelector"] = {HOSTNAME: host}
    world.cluster.submit(submitted)
    world.pass_time(1.0)


def is_admitted(world: World) -> bool:
    return is_true(world.workload("next"), ADMITTED)


def test_a_node_that_comes_back_with_a_pod_of_a_moved_gang_is_not_free() -> None:  # seeds 56 and 263
    world = World()
    lost = start(world)
    world.fail(lost)
    world.pass_time(LIMIT)
    assert lost not in world.places("train")
    world.ready(lost, "True")
    submit_for_host(world, lost)
    assert not is_admitted(world), "the pod that was left there runs on"
    remove_pod(world)
    assert is_admitted(world)


def test_a_node_is_not_free_while_an_ungated_pod_of_a_moved_gang_may_be_bound_to_it() -> None:  # seed 0, calm
    world = World(rules=HealthRules(unbindable_seconds=1000.0))  # else it is failed first
    lost = start(world, bound=False)
    world.fail(lost)
    world.pass_time(LIMIT)
    assert lost not in world.places("train")
    world.ready(lost, "True")
    submit_for_host(world, lost)
    assert not is_admitted(world), "the pod may be bound there at any moment"
    remove_pod(world)
    assert is_admitted(world)


def test_a_node_is_replaced_under_a_gang_with_succeeded_pods() -> None:  # seed 189
    world = World()
    register_webhooks(world.store)
    lost = start(world)
    over = {"status": {"reclaimablePods": [{"name": "main", "count": 1}]}}
    world.store.patch(api_kinds.WORKLOADS, "ml", "train", over, subresource="status")
    world.pass_time(1.0)
    (before,) = world.workload("train")["status"]["admission"]["podSetAssignments"]
    world.fail(lost)
    world.pass_time(LIMIT)
    (after,) = world.workload("train")["status"]["admission"]["podSetAssignments"]
    assert lost not in world.places("train")
    assert {**before, "topologyAssignment": None} == {**after, "topologyAssignment": None}


def test_nodes_of_succeeded_pods_may_fail() -> None:  # seed 44
    world = World()
    lost = start(world)
    over = {"status": {"reclaimablePods": [{"name": "main", "count": 2}]}}
    world.store.patch(api_kinds.WORKLOADS, "ml", "train", over, subresource="status")
    world.pass_time(1.0)
    before = world.workload("train")
    world.fail(lost)
    world.pass_time(LIMIT)
    assert world.workload("train") == before


def test_an_ungating_patch_is_not_repeated_for_a_slot_of_another_pod_set() -> None:  # seed 44
    levels, here, there = (HOSTNAME,), ("n000",), ("n001",)
    parts = (
        SlottedPodSet("workers", 1, levels, (here,), UNNUMBERED),
        SlottedPodSet("drivers", 1, levels, (there,), UNNUMBERED),
    )
    meta = Metadata(name="train-drivers-0", uid="uid-0", labels={"kueue.x-k8s.io/podset": "drivers"})
    sent = UngateWriteTag(("ml", "train"), PodUngating(PodWire(metadata=meta), levels, here), "left", 0.0)
    gang = GatedGang(expected={"uid-0": sent}, doubtful={"uid-0"}, resend_at={"uid-0": 5.0})
    assert list(UngatingController()._resend(gang, AdmittedPlacement("left", 0.0, parts), 5.0)) == []
    assert not gang.expected


def test_a_recreated_workload_gets_the_reason_why_it_is_pending() -> None:  # seed 432
    world = World()
    for _ in range(2):
        world.cluster.submit(queued_workload("large", 100, 4))
        world.pass_time(10.0)
        status = conditions(world.workload("large")["status"])["QuotaReserved"]
        assert status[0] == "False"
        world.store.delete(api_kinds.WORKLOADS, "ml", "large")
        world.pass_time(10.0)


def test_a_node_is_given_up_only_once_that_is_written() -> None:  # seed 4
    world = World()
    lost = start(world)
    world.backend.lose = lambda write: isinstance(write.tag, Admit) and write.name == "train"
    world.fail(lost)
    world.pass_time(LIMIT)
    assert world.backend.lost and lost in world.places("train")
    remove_pod(world)  # another will be made, for the same place
    world.ready(lost, "True")
    world.pass_time(1.0)
    submit_for_host(world, lost)
    assert lost in world.places("train") and not is_admitted(world)


def test_capacity_that_a_gang_gives_up_is_freed_once() -> None:
    world = World()
    lost = start(world)
    world.fail(lost)
    world.pass_time(LIMIT)
    remove_pod(world)
    world.ready(lost, "True")
    submit_for_host(world, lost)
    assert is_admitted(world)
