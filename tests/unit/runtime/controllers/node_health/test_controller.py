"""Nodes of gangs fail, on a cluster in memory with admission: which pods are moved, and which are not."""

from __future__ import annotations

import pytest

from bayplan.dialects.api import Ended
from bayplan.dialects.kube.decode.wire import NODES
from bayplan.dialects.kube.fields.reader import Field
from bayplan.dialects.kueue.fields.assignment_decode import decode_assignment
from bayplan.dialects.kueue.names import api_kinds
from bayplan.dialects.kueue.pods.node_health import HealthRules
from bayplan.model.profile import Profile
from bayplan.runtime.controllers.admission.controller import AdmissionController
from bayplan.runtime.controllers.node_health.controller import RETRY_SECONDS, NodeHealthController
from bayplan.runtime.core.loop import Loop
from tests.support.api_objects import workload
from tests.support.failing_nodes import LIMIT, PLAIN_NODES, PLAIN_PODS, World
from tests.support.queued_cluster import BLOCK, RACK, queued_workload, quota, rack_node, template
from tests.unit.runtime.controllers.admission.test_controller import Flaky, Silent

NO_REPLACEMENT = "Workload was evicted as there was no replacement for unhealthy node(s): "
LIMIT_STEPS = 6
SEVERAL = "Workload eviction triggered due to multiple TAS assigned node failures, including: "


@pytest.fixture
def world() -> World:
    return World()


# ── replaced ───────────────────────────────────────────────────────────────────────────────────────


def test_a_node_that_stays_not_ready_is_replaced_in_its_rack_and_no_other_pod_moves(world: World) -> None:
    other = world.start("other", 3, 4)
    large = {"x1", "x2", "x3", "x4"}
    world.add(*large, rack="r9")
    before = world.start("train", 3, 4, required=RACK)
    failed, *rest = before
    world.fail(failed)
    world.pass_time(LIMIT - 1)
    assert world.listed("train") == [] and world.places("train") == before
    world.pass_time(1)
    after = world.places("train")
    assert set(after) == large - {failed} and set(rest) < set(after)
    assert world.places("other") == other and world.evicted("train") is None and world.listed("train") == []


def test_survivors_keep_their_places_and_their_ranks(world: World) -> None:
    before = world.start("train", 4, 4)
    hosts = list(before)
    world.fail(hosts[1])
    world.pass_time(LIMIT)
    after = world.places("train")
    assert len(after) == 4 and set(hosts) - set(after) == {hosts[1]}
    kept = [name for name in after if name in before]
    assert kept == [name for name in hosts if name != hosts[1]]


def test_two_nodes_that_fail_at_once_are_both_replaced(world: World) -> None:
    before = world.start("train", 4, 4)
    lost = list(before)[:2]
    world.fail(*lost)
    world.pass_time(LIMIT)
    after = world.places("train")
    assert len(after) == 4 and not set(lost) & set(after) and set(list(before)[2:]) < set(after)
    assert world.evicted("train") is None and world.listed("train") == []


@pytest.mark.parametrize("together", [True, False])
def test_nodes_that_are_deleted_one_after_the_other_are_replaced(world: World, together: bool) -> None:
    before = world.start("train", 4, 4)
    lost = list(before)[:2]
    if together:
        world.delete(*lost)
    else:  # the second fails during the search for a replacement of the first
        world.store.delete(PLAIN_NODES, "", lost[0])
        world.loop.step(world.now)
        world.store.delete(PLAIN_NODES, "", lost[1])
        world.pass_time()
    after = world.places("train")
    assert len(after) == 4 and not set(lost) & set(after) and world.evicted("train") is None


def test_a_gang_with_a_pod_on_a_cordoned_node_survives_the_loss_of_another(world: World) -> None:
    before = world.start("train", 4, 4)
    lost, cordoned, *_ = before
    world.change(cordoned, {"unschedulable": True})
    world.delete(lost)
    after = world.places("train")
    assert lost not in after and set(before) - {lost} < set(after), "who runs on a cordoned node stays"


def test_not_ready_and_no_pods_is_enough(world: World) -> None:
    before = world.start("train", 2, 4)
    lost = next(iter(before))
    world.ready(lost, "False")
    for pod in world.store.list(PLAIN_PODS, "ml").items:
        if pod["spec"]["nodeName"] == lost:
            world.store.patch(
                PLAIN_PODS,
                "ml",
                pod["metadata"]["name"],
                {"status": {"phase": "Failed"}},
                subresource="status",
            )
    world.pass_time()
    assert lost not in world.places("train")


def test_a_drained_node_is_replaced_once_its_pods_are_gone(world: World) -> None:
    before = world.start("train", 2, 4)
    drained, other = before
    world.change(drained, {"unschedulable": True})
    assert world.places("train") == before, "a cordon moves no running pod"
    world.remove_pods(drained)
    after = world.places("train")
    assert drained not in after and other in after


def test_a_node_deleted_and_made_again_is_free_for_others(world: World) -> None:
    before = world.start("train", 4, 4)
    lost = next(iter(before))
    made = world.store.get(PLAIN_NODES, "", lost)["metadata"]["labels"]
    world.delete(lost)
    after = world.places("train")
    assert lost not in after
    world.add(lost, rack=made[RACK])
    assert world.places("train") == after and world.listed("train") == []


def test_more_failures_than_can_be_listed_are_replaced_in_turns(world: World) -> None:
    spec = {"resourceGroups": [quota("a100", 999)], "cohortName": None}
    world.store.patch(api_kinds.CLUSTER_QUEUES, "", "left-queue", {"spec": spec})
    world.add(*(f"x{number:02d}" for number in range(20)), rack="r9")
    lost = list(world.start("train", 12, 4))[:10]
    world.fail(*lost)
    world.pass_time(LIMIT)
    after = world.places("train")
    assert sum(after.values()) == 12 and not set(lost) & set(after) and world.evicted("train") is None


@pytest.mark.parametrize("room", [True, False])
def test_the_replacement_stays_in_the_domain_of_the_other_pod_sets_of_its_group(
    world: World, room: bool
) -> None:
    """Also if the host of the other one is not ready any more (seed 300183 of `gangs`)."""
    request = {"required": RACK, "podSetGroupName": "all"}
    parts = [
        {"name": name, "count": 1, "template": template(4), "topologyRequest": request}
        for name in ("driver", "main")
    ]
    world.cluster.submit(workload("train", *parts, namespace="ml", queueName="left", active=True))
    world.pass_time()
    before = group_hosts(world)
    (rack,) = {rack_of(world, host) for host in before.values()}
    for name, host in before.items():
        world.pod(f"train-{name}", "train", host)
    if room:
        world.cluster.put(NODES, rack_node("h9", *rack, {"gpu": "yes"}))
    world.fail(before["driver"])
    world.delete(before["main"])
    world.pass_time(1.0)
    after = group_hosts(world)
    assert after["main"] != before["main"]
    assert len({rack_of(world, host) for host in after.values()}) == 1
    assert (after["driver"] == before["driver"]) == room, "without room the whole gang is placed elsewhere"


def group_hosts(world: World) -> dict[str, str]:
    """The host of each pod set of one pod."""
    found = {}
    for part in world.workload("train")["status"]["admission"]["podSetAssignments"]:
        assignment = decode_assignment(Field(part["topologyAssignment"]))
        assert assignment is not None
        found[part["name"]] = assignment.shares[0].values[-1]
    return found


def rack_of(world: World, host: str) -> tuple[str, str]:
    labels = world.store.get(PLAIN_NODES, "", host)["metadata"]["labels"]
    return labels[BLOCK], labels[RACK]


# ── not replaced ───────────────────────────────────────────────────────────────────────────────────


def test_without_a_replacement_the_gang_is_evicted_and_told_why(world: World) -> None:
    before = world.start("train", 2, 4, required=RACK)
    lost = next(iter(before))
    world.fail(lost)
    world.pass_time(LIMIT)
    told = f"{NO_REPLACEMENT}{lost}"
    assert ("EvictedDueToNodeFailures", told) in world.events("train")


def test_two_failed_nodes_without_replacement_are_both_named(world: World) -> None:
    world.add("h9", rack="r1")
    lost = sorted(world.start("train", 3, 4, required=RACK))[:2]
    world.fail(*lost)
    world.pass_time(LIMIT)
    assert ("EvictedDueToNodeFailures", NO_REPLACEMENT + ",".join(lost)) in world.events("train")


def test_a_gang_without_a_surviving_pod_is_placed_elsewhere_as_a_whole(world: World) -> None:
    before = world.start("train", 2, 4, required=RACK)
    world.fail(*before)
    world.pass_time(LIMIT)
    assert not set(before) & set(world.places("train")) and world.evicted("train") is None


def test_with_patience_a_replacement_is_sought_until_there_is_one() -> None:
    world = World(Profile(replace_fast=False))
    before = world.start("train", 2, 4, required=RACK)
    lost, other = before
    world.fail(lost)
    world.pass_time(LIMIT)
    assert world.listed("train") == [lost] and world.evicted("train") is None
    world.add("h9", rack="r1")
    assert set(world.places("train")) == {other, "h9"} and world.listed("train") == []


def test_with_patience_a_node_that_comes_back_is_taken_off_the_list() -> None:
    world = World(Profile(replace_fast=False))
    before = world.start("train", 2, 4, required=RACK)
    lost = next(iter(before))
    world.fail(lost)
    world.pass_time(LIMIT)
    assert world.listed("train") == [lost]
    world.ready(lost, "True")
    world.pass_time()
    assert world.listed("train") == [] and world.places("train") == before


def test_what_else_fails_is_sought_at_once_however_long_a_place_was_sought_in_vain() -> None:
    world = World(Profile(replace_fast=False))
    world.add("x1", "x2", "x3", rack="r9")
    first, *rest = world.start("train", 3, 4, required=RACK)
    world.add("y1", "y2", "y3", rack="r8")
    world.fail(first)
    for _ in range(12):
        world.pass_time(10)
    assert world.listed("train") == [first]
    world.fail(*rest)
    for _ in range(LIMIT_STEPS):
        world.pass_time(LIMIT / LIMIT_STEPS)
    assert set(world.places("train")) == {"y1", "y2", "y3"}


@pytest.mark.parametrize("dated", [True, False])
def test_a_gang_that_runs_on_a_flapping_node_is_not_moved(world: World, dated: bool) -> None:
    before = world.start("train", 2, 4)
    for _ in range(6):
        world.ready(next(iter(before)), "False", dated=dated)
        world.pass_time(LIMIT - 5)
        world.ready(next(iter(before)), "True", dated=dated)
        world.pass_time(10)
    assert world.places("train") == before and world.evicted("train") is None


def test_a_node_that_does_not_say_since_when_is_given_the_same_time(world: World) -> None:
    before = world.start("train", 2, 4)
    lost = next(iter(before))
    world.ready(lost, "False", dated=False)
    world.pass_time()
    assert world.loop.step(world.now) <= world.now + LIMIT
    world.pass_time(LIMIT - 1)
    assert world.places("train") == before
    world.pass_time(1)
    assert lost not in world.places("train")


@pytest.mark.parametrize("effect", ["NoExecute", "NoSchedule"])
def test_a_taint_moves_only_gangs_that_do_not_tolerate_it(world: World, effect: str) -> None:
    before = world.start("train", 2, 4)
    lost = next(iter(before))
    world.change(lost, {"taints": [{"key": "hot", "effect": effect}]})
    assert world.places("train") == before, "its pod runs"
    world.store.patch(
        api_kinds.FLAVORS, "", "a100", {"spec": {"tolerations": [{"key": "hot", "operator": "Exists"}]}}
    )
    world.remove_pods(lost)
    assert world.places("train") == before, "the flavor tolerates it"
    world.store.patch(api_kinds.FLAVORS, "", "a100", {"spec": {"tolerations": []}})
    world.pass_time()
    assert lost not in world.places("train")


def test_a_workload_of_a_single_pod_is_left_alone(world: World) -> None:
    one = queued_workload("single", 1, 4)
    world.pod("p", "single", "h1", bound=False)
    uid = world.store.get(PLAIN_PODS, "ml", "p")["metadata"]["uid"]
    one["metadata"]["ownerReferences"] = [{"apiVersion": "v1", "kind": "Pod", "name": "p", "uid": uid}]
    world.cluster.submit(one)
    world.pass_time()
    before = world.places("single")
    world.delete(*before)
    assert world.places("single") == before and world.listed("single") == []


# ── pods ───────────────────────────────────────────────────────────────────────────────────────────


def test_a_pod_that_waits_for_a_node_that_was_replaced_is_failed_with_an_event(world: World) -> None:
    before = world.start("train", 2, 4)
    lost = next(iter(before))
    world.pod("late", "train", lost, bound=False)
    world.drain(lost)
    world.pass_time(2)
    status = world.store.get(PLAIN_PODS, "ml", "late")["status"]
    (condition,) = status["conditions"]
    assert status["phase"] == "Failed" and condition["status"] == "True"
    assert (condition["type"], condition["reason"]) == ("TerminatedByKueue", "UnschedulableOnAssignedNode")
    told = ("PodTerminatedByKueue", "Pod terminated by Kueue NodeController due to node taint")
    assert world.events("late") == [told]


def test_a_pod_is_not_failed_while_its_node_has_no_replacement() -> None:
    world = World(Profile(replace_fast=False))
    before = world.start("train", 2, 4, required=RACK)
    lost = next(iter(before))
    world.pod("late", "train", lost, bound=False)
    world.drain(lost)
    assert world.listed("train") == [lost]
    assert world.store.get(PLAIN_PODS, "ml", "late")["status"]["phase"] == "Pending"


def test_other_conditions_of_a_failed_pod_are_kept(world: World) -> None:
    before = world.start("train", 2, 4)
    lost = next(iter(before))
    world.pod("late", "train", lost, bound=False)
    said = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable"}
    world.store.patch(PLAIN_PODS, "ml", "late", {"status": {"conditions": [said]}}, subresource="status")
    world.drain(lost)
    world.pass_time(2)
    found = world.store.get(PLAIN_PODS, "ml", "late")["status"]["conditions"]
    assert {one["type"] for one in found} == {"PodScheduled", "TerminatedByKueue"}


# ── writes that fail ───────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("ended", [Ended.CONFLICT, Ended.TIMED_OUT, Ended.REFUSED])
def test_what_could_not_be_listed_is_listed_later(world: World, ended: Ended) -> None:
    before = world.start("train", 4, 4)
    lost = next(iter(before))
    world.backend.lose = lambda write: bool((write.body.get("status") or {}).get("unhealthyNodes"))
    world.backend.ended = ended
    world.delete(lost)
    assert world.backend.lost == 1 and world.places("train") == before
    world.backend.lose = lambda write: False
    world.pass_time(RETRY_SECONDS)
    assert lost not in world.places("train")


def test_a_role_that_starts_late_finds_what_failed_before(world: World) -> None:
    before = world.start("train", 4, 4)
    lost = next(iter(before))
    world.store.delete(PLAIN_NODES, "", lost)
    late = Loop(Flaky(world.store), [AdmissionController(), NodeHealthController()], Silent())
    for _ in range(10):
        late.step(world.now)
    assert lost not in world.places("train")


def test_the_second_failure_evicts_if_they_are_not_to_be_replaced_together() -> None:
    world = World(Profile(replace_fast=False), HealthRules(replace_together=False))
    before = world.start("train", 2, 4, required=RACK)
    first, second = before
    world.fail(first)
    world.pass_time(LIMIT)
    world.delete(second)
    assert ("EvictedDueToNodeFailures", f"{SEVERAL}{first}, {second}") in world.events("train")
