"""Provisioned nodes: the provisioning controller and the admission controller, on a cluster in memory."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from bayplan.backends.crds import DEFINITIONS
from bayplan.backends.embedded.api.options import Deletion
from bayplan.backends.fake_controllers.crds import provisioning_requests
from bayplan.dialects.api import Ended, Kind, WriteOutcome
from bayplan.dialects.kube.fields.reader import Field
from bayplan.dialects.kueue.fields.assignment_decode import decode_assignment
from bayplan.dialects.kueue.names import api_kinds
from bayplan.dialects.kueue.names.api_kinds import CONFIGS
from bayplan.dialects.kueue.provisioning import check
from bayplan.dialects.kueue.provisioning.requests import OLDER_REQUESTS, REQUESTS, TEMPLATES
from bayplan.model.profile import Profile
from bayplan.runtime.controllers.provisioning.controller import PATIENCE_SECONDS, Owned
from tests.support.provisioning_world import GROUP_LABEL, NAME, World, condition
from tests.support.queued_cluster import NOW

ONE, OTHER = ("ml", "one"), ("ml", "other")


@pytest.fixture
def world() -> World:
    return World(provisioning_requests())


def test_nodes_are_asked_for_and_the_gang_stands_on_exactly_those(world: World) -> None:
    world.submit(**{"provreq.kueue.x-k8s.io/ValidUntilSeconds": "0"})
    assert world.told("QuotaReserved") == ("True", "QuotaReserved")
    assert world.told("Admitted") == ("False", "UnsatisfiedAdmissionChecks")
    assert world.given()["delayedTopologyRequest"] == "Pending"

    request = world.store.get(REQUESTS, "ml", NAME)
    assert request["spec"] == {
        "provisioningClassName": "queued.example.com",
        "parameters": {"maxRunDurationSeconds": "3600", "ValidUntilSeconds": "0"},
        "podSets": [{"count": 2, "podTemplateRef": {"name": f"ppt-{NAME}-main"}}],
    }
    template = world.store.get(TEMPLATES, "ml", f"ppt-{NAME}-main")
    assert template["template"]["spec"]["nodeSelector"] == {"pool": "made"}
    assert template["template"]["spec"]["tolerations"][0]["key"] == "made"
    uid = world.workload()["metadata"]["uid"]
    for one in (request, template):
        (owner,) = one["metadata"]["ownerReferences"]
        assert (owner["kind"], owner["name"], owner["uid"]) == ("Workload", "train", uid)
        assert one["metadata"]["labels"] == {"kueue.x-k8s.io/managed": "true"}
    assert ("ProvisioningRequestCreated", f'Created ProvisioningRequest: "{NAME}"') in world.events()

    eta = condition("Provisioned", "ETA: 09:15", "False")
    world.answer("Accepted", conditions=[condition("Accepted"), eta])
    assert (world.check()["state"], world.check()["message"]) == ("Pending", "ETA: 09:15")

    world.node("old-1")  # of the same flavor, but not provisioned for this gang
    world.node("old-2")
    world.answer("Provisioned", "there you are", provisioningClassDetails={"NodeGroup": "g7"})
    assert world.check()["state"] == "Ready" and world.check()["message"] == "there you are"
    assert world.check()["podSetUpdates"] == [
        {
            "name": "main",
            "annotations": {
                "autoscaling.x-k8s.io/consume-provisioning-request": NAME,
                "autoscaling.x-k8s.io/provisioning-class-name": "queued.example.com",
            },
            "nodeSelector": {GROUP_LABEL: "g7"},
        }
    ]
    told = "Admission check prov updated state from Pending to Ready with message: there you are"
    assert ("AdmissionCheckUpdated", told) in world.events()
    assert world.told("Admitted") == ("False", "PendingDelayedTopologyRequests")

    for name in ("new-1", "new-2"):
        world.node(name, **{GROUP_LABEL: "g7"})
    world.pass_time(30)
    placed = decode_assignment(Field(world.given()["topologyAssignment"]))
    assert placed is not None
    assert [(share.values[-1], share.count) for share in placed.shares] == [("new-1", 1), ("new-2", 1)]
    assert world.given()["delayedTopologyRequest"] == "Ready"
    assert world.told("Admitted") == ("True", "Admitted")
    assert world.requests() == [NAME], "it is kept as long as the gang runs"


def test_without_its_nodes_a_gang_keeps_its_quota_and_is_tried_again_until_it_is_too_late(
    world: World,
) -> None:
    world.submit()
    world.answer("Provisioned", provisioningClassDetails={"NodeGroup": "g7"})
    first = world.store.get(REQUESTS, "ml", NAME)["metadata"]["uid"]
    tries = []
    while "EvictedDueToTopologyPlacementFailed" not in world.reasons():
        assert world.told("QuotaReserved")[0] == "True" and world.told("Admitted")[0] == "False"
        tries.append(world.reasons().count("SecondPassFailed"))
        world.pass_time(5)
        assert world.now - NOW < 1000
    patience = Profile().place_limit
    assert patience < world.now - NOW < 2 * patience
    assert sorted(set(tries)) == list(range(1, max(tries) + 1)) and max(tries) >= 5
    assert tries.count(3) < tries.count(4) < tries.count(5), "at longer and longer intervals"
    assert world.told("QuotaReserved")[0] == "True", "it came back to the line, and it was its turn"
    assert world.check()["state"] == "Pending" and world.check().get("retryCount", 0) == 0
    assert world.requests() == [NAME]
    assert world.store.get(REQUESTS, "ml", NAME)["metadata"]["uid"] != first


def test_a_request_that_fails_is_made_again_later_and_not_more_often_than_allowed(world: World) -> None:
    world.submit()
    world.answer("Failed", "no such machines")
    assert "EvictedDueToAdmissionCheck" in world.reasons()
    told = "Admission check prov updated state from Pending to Retry"
    told += " with message: Retrying after failure: no such machines"
    assert ("AdmissionCheckUpdated", told) in world.events()
    assert world.told("QuotaReserved")[0] == "False"
    assert world.check()["retryCount"] == 1 and world.check()["requeueAfterSeconds"] == 60
    assert world.requests() == [] and world.templates() == []

    world.pass_time(30)
    assert world.told("QuotaReserved")[0] == "False"
    world.pass_time(31)
    assert world.told("QuotaReserved")[0] == "True"
    assert world.requests() == ["train-prov-2"] and world.templates() == ["ppt-train-prov-2-main"]

    world.answer("Failed", "still none", "train-prov-2")
    assert any(
        message == "Admission check prov updated state from Pending to Rejected with message: still none"
        for _, message in world.events()
    )
    assert world.workload()["spec"]["active"] is False
    assert world.told("Evicted") == ("True", "DeactivatedDueToAdmissionCheck")
    assert world.requests() == []


@pytest.mark.parametrize(("kind", "state"), [("BookingExpired", "Retry"), ("CapacityRevoked", "Rejected")])
def test_room_that_is_taken_back_before_the_gang_is_in(world: World, kind: str, state: str) -> None:
    world.submit()
    world.answer("Provisioned", "here")
    world.answer(kind, "gone again")
    assert any(f"updated state from Ready to {state}" in message for _, message in world.events())
    assert world.told("QuotaReserved")[0] == "False"


def test_an_admitted_gang_does_not_mind_the_end_of_its_booking_but_minds_its_nodes(world: World) -> None:
    for name in ("new-1", "new-2"):
        world.node(name)
    world.submit()
    world.answer("Provisioned", "here")
    assert world.told("Admitted")[0] == "True"
    world.answer("BookingExpired", "over")
    assert world.told("Admitted")[0] == "True" and world.check()["state"] == "Ready"
    world.answer("CapacityRevoked", "nodes are gone")
    assert world.told("Evicted") == ("True", "DeactivatedDueToAdmissionCheck")


def test_a_gang_that_finished_needs_no_request(world: World) -> None:
    world.submit()
    assert world.requests() == [NAME]
    done = condition("Finished", "done")
    there = world.workload()["status"]["conditions"]
    patch = {"status": {"conditions": [*there, done]}}
    world.store.patch(api_kinds.WORKLOADS, "ml", "train", patch, subresource="status")
    world.pass_time()
    assert world.requests() == [] and world.templates() == []


def test_what_was_asked_is_known_after_a_restart_and_changed_with_the_configuration(world: World) -> None:
    world.submit()
    uid = world.store.get(REQUESTS, "ml", NAME)["metadata"]["uid"]
    world.begin()
    world.pass_time()
    assert world.store.get(REQUESTS, "ml", NAME)["metadata"]["uid"] == uid
    patch = {"spec": {"provisioningClassName": "other.example.com"}}
    world.store.patch(CONFIGS, "", "slow", patch)
    world.pass_time()
    again = world.store.get(REQUESTS, "ml", NAME)
    assert again["metadata"]["uid"] != uid
    assert again["spec"]["provisioningClassName"] == "other.example.com"
    assert world.templates() == [f"ppt-{NAME}-main"]


def test_a_gang_without_managed_resources_needs_nothing(world: World) -> None:
    world.store.patch(CONFIGS, "", "slow", {"spec": {"managedResources": ["example.com/tpu"]}})
    world.submit()
    assert (world.check()["state"], world.check()["message"]) == ("Ready", check.NOT_NEEDED)
    assert world.requests() == []


def test_a_configuration_that_goes_away_makes_the_check_inactive(world: World) -> None:
    world.submit()
    world.store.delete(CONFIGS, "", "slow", Deletion())
    world.pass_time()
    assert (world.check()["state"], world.check()["message"]) == ("Pending", check.INACTIVE)
    assert world.requests() == []


def test_a_cluster_without_the_kind_is_told_once_and_works_when_it_comes() -> None:
    world = World()
    world.submit()
    assert world.check()["message"] == ""
    world.pass_time(PATIENCE_SECONDS)
    assert world.check()["message"] == check.NOT_SERVED
    version = world.workload()["metadata"]["resourceVersion"]
    world.pass_time(60)
    assert world.workload()["metadata"]["resourceVersion"] == version
    assert world.templates() == []
    world.store.create(DEFINITIONS, provisioning_requests())
    world.pass_time()
    assert world.requests() == [NAME] and world.check()["message"] == ""


def test_an_older_version_will_do() -> None:
    definition = provisioning_requests()
    _, older = definition["spec"]["versions"]
    definition["spec"]["versions"] = [{**older, "storage": True}]
    world = World(definition)
    world.submit()
    (request,) = world.store.list(OLDER_REQUESTS, "ml").items
    assert request["apiVersion"] == "autoscaling.x-k8s.io/v1beta1"
    assert world.check()["state"] == "Pending"


def test_what_the_api_refuses_is_told_and_tried_again(world: World) -> None:
    world.store.patch(CONFIGS, "", "slow", {"spec": {"parameters": {"good": "x"}}})
    world.submit(**{"provreq.kueue.x-k8s.io/long": "x" * 256})
    assert world.check()["state"] == "Pending"
    assert world.check()["message"].startswith(f'Error creating ProvisioningRequest "{NAME}": ')
    tries = world.reasons().count("FailedCreate")
    assert tries == 1
    world.pass_time(2)
    assert world.reasons().count("FailedCreate") == 2
    world.store.patch(
        api_kinds.WORKLOADS,
        "ml",
        "train",
        {"metadata": {"annotations": {"provreq.kueue.x-k8s.io/long": None}}},
    )
    world.pass_time(5)
    assert world.requests() == [NAME] and world.check()["message"] == ""


@pytest.mark.parametrize("happens", [False, True])
@pytest.mark.parametrize("kind", [TEMPLATES, REQUESTS])
def test_an_answer_that_never_came_is_found_out(world: World, kind: Kind, happens: bool) -> None:
    world.backend.kind, world.backend.happens = kind, happens
    world.submit()
    world.backend.kind = None
    world.pass_time(5)
    assert world.requests() == [NAME] and world.templates() == [f"ppt-{NAME}-main"]
    assert world.reasons().count("FailedCreate") == 0


def test_a_state_overwritten_by_another_client_is_written_again(world: World) -> None:
    world.submit()
    world.backend.kind, world.backend.ended = api_kinds.WORKLOADS, Ended.CONFLICT
    world.answer("Provisioned", "here")
    assert world.check()["state"] == "Pending"
    world.backend.kind = None
    world.pass_time(5)
    assert world.check()["state"] == "Ready"


def test_what_is_spent_is_deleted_even_if_the_first_try_is_lost(world: World) -> None:
    world.submit()
    world.backend.kind = REQUESTS
    world.answer("Failed", "no")
    assert world.requests() == [NAME]
    world.backend.kind = None
    world.pass_time(5)
    assert world.requests() == []


def test_nothing_is_due_when_nothing_is_to_be_done(world: World) -> None:
    assert world.role.next_due(world.now) == float("inf")
    world.submit()
    assert world.role.next_due(world.now) == float("inf")
    assert not world.role.reconciler.in_flight and not list(world.role.reconciler.queue)


def test_requests_of_others_are_left_alone(world: World) -> None:
    theirs = {"metadata": {"name": "theirs", "namespace": "ml"}, "spec": {"provisioningClassName": "c"}}
    theirs["spec"]["podSets"] = [{"count": 1, "podTemplateRef": {"name": "t"}}]  # type: ignore[assignment]
    world.cluster.put(replace(REQUESTS, optional=False), theirs)
    world.submit()
    world.store.delete(api_kinds.WORKLOADS, "ml", "train", Deletion())
    world.pass_time()
    assert "theirs" in world.requests()


def test_a_request_that_is_deleted_before_we_hear_of_its_creation_is_made_again(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    held: list[WriteOutcome] = []
    heard = world.backend.outcomes

    def late() -> list[WriteOutcome]:
        found = list(heard())
        held.extend(one for one in found if one.write.kind == REQUESTS)
        return [one for one in found if one.write.kind != REQUESTS]

    monkeypatch.setattr(world.backend, "outcomes", late)
    world.submit()
    assert world.requests() == [NAME] and len(held) == 1
    world.store.delete(REQUESTS, "ml", NAME)
    world.pass_time(1)
    assert world.requests() == []

    monkeypatch.setattr(world.backend, "outcomes", heard)
    world.backend._outcomes.extend(held)
    world.pass_time(60)
    assert world.requests() == [NAME]


def owned_request(uid: str = "u1") -> dict[str, Any]:
    return {"metadata": {"namespace": "ml", "name": "request", "uid": uid}}


def test_an_object_that_changes_its_owner_leaves_the_former_one() -> None:
    owned = Owned()
    owned.put(ONE, owned_request())
    owned.put(OTHER, owned_request())
    assert (owned.of(ONE), owned.of(OTHER)) == ([], [owned_request()])
    assert ONE not in owned.by_owner
    owned.put(None, owned_request())
    assert not owned.by_owner
    assert not owned.owners


def test_the_deletion_of_an_object_that_was_replaced_keeps_the_new_one() -> None:
    owned = Owned()
    owned.put(ONE, owned_request("u2"))
    owned.drop(owned_request("u1"))
    assert owned.of(ONE) == [owned_request("u2")]
    owned.drop(owned_request("u2"))
    assert not owned.by_owner
    owned.drop(owned_request("u2"))
