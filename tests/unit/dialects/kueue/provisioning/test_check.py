"""ProvisioningRequests, and the state of a check by their conditions."""

from __future__ import annotations

from typing import Any

import pytest

from bayplan.dialects.kueue.provisioning import check as provisioning
from bayplan.dialects.kueue.provisioning.check import ProvisioningContext, ProvisioningStep, next_step
from bayplan.dialects.kueue.provisioning.requests import (
    EQUAL_REQUIREMENTS,
    EQUAL_TEMPLATES,
    REQUESTS,
    Config,
    attempt_of,
    bundles,
    new_request,
    request_name,
    template_name,
)
from tests.support.api_objects import workload

Object = dict[str, Any]

NOW = 1_000_000.0
NOW_TEXT, EARLIER = "1970-01-12T13:46:40Z", "1970-01-12T13:45:00Z"


def pod_set(name: str, count: int = 1, image: str = "i", cpu: str = "1", **spec: Any) -> Object:
    container = {"name": "c", "image": image, "resources": {"requests": {"cpu": cpu}}}
    return {"name": name, "count": count, "template": {"spec": {"containers": [container], **spec}}}


def reserved_workload(*pod_sets: Object, checks: Any = (), conditions: Any = (), **admitted: int) -> Object:
    """A Workload with quota for these pod sets."""
    given = [
        {"name": one["name"], "count": admitted.get(one["name"], one["count"]), "flavors": {"cpu": "f"}}
        for one in pod_sets
    ]
    status = {
        "admission": {"clusterQueue": "q", "podSetAssignments": given},
        "conditions": [{"type": "QuotaReserved", "status": "True"}, *conditions],
        "admissionChecks": list(checks) or [check()],
    }
    return workload("wl", *pod_sets, namespace="ns", metadata={"uid": "u1"}, status=status)


def check(state: str = "Pending", message: str = "", **more: Any) -> Object:
    return {"name": "prov", "state": state, "message": message, "lastTransitionTime": EARLIER, **more}


def config(**spec: Any) -> Config:
    return Config.of({"spec": {"provisioningClassName": "c", **spec}})


def context(*, flavor: Object | None = None, **more: Any) -> ProvisioningContext:
    reference = {"apiGroup": "kueue.x-k8s.io", "kind": "ProvisioningRequestConfig", "name": "cfg"}
    spec = {"provisioningClassName": "c", "retryStrategy": {"backoffLimitCount": 2, "backoffBaseSeconds": 60}}
    told = {
        "checks": {"prov": {"spec": {"parameters": reference}}},
        "configs": {"cfg": {"spec": spec}},
        "flavors": {"f": {"spec": flavor or {}}},
        "kind": REQUESTS,
    }
    return ProvisioningContext(**{**told, **more})


def request(
    *holds: str, name: str = "wl-prov-1", message: str = "m", denied: str = "", **status: Any
) -> Object:
    conditions = [{"type": kind, "status": "True", "message": message} for kind in holds]
    conditions += [{"type": denied, "status": "False", "message": message}] if denied else []
    entry = {"count": 1, "podTemplateRef": {"name": template_name(name, "main")}}
    return {
        "kind": "ProvisioningRequest",
        "metadata": {"namespace": "ns", "name": name, "uid": f"uid-{name}", "ownerReferences": [OWNER]},
        "spec": {"provisioningClassName": "c", "podSets": [entry]},
        "status": {"conditions": conditions, **status},
    }


OWNER = {"kind": "Workload", "name": "wl", "uid": "u1"}


def check_after(before: Object, *requests: Object, **more: Any) -> Object:
    """The check after the conditions of the request."""
    found = next_step(
        reserved_workload(pod_set("main"), checks=[before], **more), requests, (), context(), NOW
    )
    if found.status is None:
        return before
    (after,) = found.status["admissionChecks"]
    return dict(after)


def names(found: ProvisioningStep) -> tuple[list[str], list[str]]:
    """The names of objects to create and to delete."""
    return [one.name for one in found.to_create], [one["metadata"]["name"] for one in found.obsolete]


# ── names ──────────────────────────────────────────────────────────────────────────────────────────


def test_names_are_those_of_kueue() -> None:
    assert request_name("wl", "prov", 3) == "wl-prov-3"
    assert template_name("wl-prov-3", "main") == "ppt-wl-prov-3-main"
    assert attempt_of("wl-prov-3", "wl", "prov") == 3
    for other in ("wl-prov-3-4", "wl-prov-", "wl-prov", "wl-prov-x", "other-prov-1"):
        assert attempt_of(other, "wl", "prov") is None


def test_the_attempt_of_a_truncated_name_is_found() -> None:
    long = "w" * 250
    first, twelfth = request_name(long, "prov", 1), request_name(long, "prov", 12)
    assert len(first) == 253 and first != twelfth and first[:248] == "w" * 247 + "-"
    assert attempt_of(first, long, "prov") == 1 and attempt_of(twelfth, long, "prov") == 12
    assert attempt_of(first, long, "other") is None
    assert len(request_name("w" * 240, "prov", 1)) == 247


# ── what is asked for ──────────────────────────────────────────────────────────────────────────────


def shared(found: list[Any] | None) -> list[tuple[tuple[str, ...], int]]:
    return [(one.names, one.count) for one in found or ()]


def test_equal_pod_sets_share_an_entry() -> None:
    gang = reserved_workload(
        pod_set("a", 1), pod_set("b", 2, image="j"), pod_set("c", 3), pod_set("d", 4, cpu="2")
    )
    alone = [(("a",), 1), (("b",), 2), (("c",), 3), (("d",), 4)]
    assert shared(bundles(gang, config())) == alone
    equal = config(podSetMergePolicy=EQUAL_TEMPLATES)
    assert shared(bundles(gang, equal)) == [(("a", "c"), 4), (("b",), 2), (("d",), 4)]
    similar = config(podSetMergePolicy=EQUAL_REQUIREMENTS)
    assert shared(bundles(gang, similar)) == [(("a", "b", "c"), 6), (("d",), 4)]


def test_pods_without_quota_or_managed_resources_are_not_requested() -> None:
    gang = reserved_workload(pod_set("none", 0), pod_set("cut", 2), pod_set("main", 3), cut=0, main=1)
    assert shared(bundles(gang, config())) == [(("main",), 1)]
    assert bundles(gang, config(managedResources=["gpu"])) == []
    del gang["status"]["admission"]["podSetAssignments"][2]
    assert bundles(gang, config()) is None


def test_a_template_contains_the_injections_of_its_flavor() -> None:
    one = pod_set("main", 2, nodeSelector={"zone": "a"}, tolerations=[{"key": "old"}])
    one["template"]["spec"]["containers"][0]["resources"]["limits"] = {"cpu": "4", "gpu": "1"}
    flavor = {"spec": {"nodeLabels": {"pool": "p"}, "tolerations": [{"key": "old"}, {"key": "new"}]}}
    gang = reserved_workload(one)
    gang["metadata"]["annotations"] = {"provreq.kueue.x-k8s.io/until": "9", "other": "x"}
    made = new_request(gang, "prov", 1, config(parameters={"p": "1"}), {"f": flavor}, REQUESTS)
    spec = made.templates[0]["template"]["spec"]
    assert spec["nodeSelector"] == {"zone": "a", "pool": "p"}
    assert spec["tolerations"] == [{"key": "old"}, {"key": "new"}]
    assert spec["containers"][0]["resources"]["requests"] == {"cpu": "1", "gpu": "1"}
    assert one["template"]["spec"]["nodeSelector"] == {"zone": "a"}, "the Workload stays as it is"
    assert made.request is not None
    assert made.request["spec"]["parameters"] == {"p": "1", "until": "9"}


def test_a_conflict_with_the_flavor_or_a_missing_flavor_is_reported() -> None:
    gang = reserved_workload(pod_set("main", nodeSelector={"pool": "mine"}))
    found = next_step(gang, (), (), context(flavor={"nodeLabels": {"pool": "p"}}), NOW)
    assert found.status is not None and not found.to_create
    assert found.status["admissionChecks"][0]["message"] == (
        'Error creating PodTemplate "ppt-wl-prov-1-main": invalid admission check PodSetUpdate: '
        "conflict for nodeSelector: conflict for key=pool, value1=mine, value2=p"
    )
    found = next_step(gang, (), (), context(flavors={}), NOW)
    assert found.status is not None
    assert found.status["admissionChecks"][0]["message"].endswith(
        'resourceflavors.kueue.x-k8s.io "f" not found'
    )


def test_the_backoff_doubles_up_to_its_maximum() -> None:
    retry = config(retryStrategy={"backoffBaseSeconds": 60, "backoffMaxSeconds": 200})
    assert [retry.backoff_seconds(attempt) for attempt in (1, 2, 3, 50)] == [60, 120, 200, 200]
    assert (config().retries, config().backoff_base_seconds, config().backoff_max_seconds) == (3, 60, 1800)


# ── what answers mean ──────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("before", "answer", "state", "message"),
    [
        (check(message="old"), request(), "Pending", ""),
        (check(message="old"), request("Accepted"), "Pending", "old"),
        (check(), request("Accepted", denied="Provisioned", message="ETA: 9"), "Pending", "ETA: 9"),
        (check(), request("Accepted", "Provisioned"), "Ready", "m"),
        (check("Ready", "old"), request("Provisioned"), "Ready", "old"),
        (check("Ready", "old"), request("Provisioned", "CapacityRevoked"), "Rejected", "m"),
        (check("Ready"), request("Provisioned", "BookingExpired"), "Retry",
         "Retrying after booking expired: m"),
        (check(), request("Failed"), "Retry", "Retrying after failure: m"),
        (check(retryCount=2), request("Failed", name="wl-prov-3"), "Rejected", "m"),
        (check(retryCount=2), request("BookingExpired", name="wl-prov-3"), "Rejected", "m"),
        (check(retryCount=1), request("Failed"), "Pending", "Retrying after failure: m"),
    ],
)  # fmt: skip
def test_conditions_of_the_request_decide_the_state_of_the_check(
    before: Object, answer: Object, state: str, message: str
) -> None:
    after = check_after(before, answer)
    assert (after["state"], after["message"]) == (state, message)
    assert after["lastTransitionTime"] == (EARLIER if state == before["state"] else NOW_TEXT)


def test_the_backoff_before_the_next_attempt_grows() -> None:
    assert check_after(check(), request("Failed"))["requeueAfterSeconds"] == 60
    later = check_after(check(retryCount=1), request("Failed", name="wl-prov-2"))
    assert later["state"] == "Retry" and later["requeueAfterSeconds"] == 120


def test_every_pod_set_that_shares_an_entry_gets_the_updates() -> None:
    gang = reserved_workload(pod_set("main"), pod_set("more"))
    label = {"key": "group", "valueFromProvisioningClassDetail": "Group"}
    absent = {"key": "zone", "valueFromProvisioningClassDetail": "Zone"}
    spec = {
        "provisioningClassName": "c",
        "podSetMergePolicy": EQUAL_TEMPLATES,
        "podSetUpdates": {"nodeSelector": [label, absent]},
    }
    told = request("Provisioned", provisioningClassDetails={"Group": "g1"})
    found = next_step(gang, [told], (), context(configs={"cfg": {"spec": spec}}), NOW)
    assert found.status is not None
    notes = {provisioning.CONSUME: "wl-prov-1", provisioning.CLASS: "c"}
    assert found.status["admissionChecks"][0]["podSetUpdates"] == [
        {"name": name, "annotations": notes, "nodeSelector": {"group": "g1"}} for name in ("main", "more")
    ]


# ── what is made, and what goes ────────────────────────────────────────────────────────────────────


def test_the_latest_attempt_counts_and_earlier_ones_are_deleted() -> None:
    gang = reserved_workload(pod_set("main"), checks=[check(retryCount=1)])
    both = [request("Failed"), request(name="wl-prov-2")]
    assert names(next_step(gang, both, (), context(), NOW)) == ([], ["wl-prov-1"])
    assert names(next_step(gang, both[::-1], (), context(), NOW)) == ([], ["wl-prov-1"])
    assert names(next_step(gang, both[:1], (), context(), NOW)) == (["wl-prov-2"], [])
    assert names(next_step(gang, (), (), context(), NOW)) == (["wl-prov-2"], [])


def test_an_outdated_request_is_deleted_before_its_name_is_reused() -> None:
    gang, other = reserved_workload(pod_set("main")), request()
    other["spec"]["provisioningClassName"] = "old"
    assert names(next_step(gang, [other], (), context(), NOW)) == ([], ["wl-prov-1"])
    other["metadata"]["deletionTimestamp"] = EARLIER
    assert names(next_step(gang, [other], (), context(), NOW)) == ([], [])


@pytest.mark.parametrize("over", ["Finished", "Evicted"])
def test_without_quota_nothing_is_requested(over: str) -> None:
    gang = reserved_workload(pod_set("main"), conditions=[{"type": over, "status": "True"}])
    template = {**request(name="ppt-x"), "kind": "PodTemplate"}
    assert names(next_step(gang, [request()], [template], context(), NOW)) == ([], ["wl-prov-1", "ppt-x"])
    gang["status"]["conditions"] = []
    assert names(next_step(gang, [request()], (), context(), NOW)) == ([], ["wl-prov-1"])


def test_objects_of_an_earlier_workload_of_the_name_are_left_to_garbage_collection() -> None:
    earlier = request("Failed")
    earlier["metadata"]["ownerReferences"] = [{**OWNER, "uid": "u0"}]
    assert names(next_step(reserved_workload(pod_set("main")), [earlier], (), context(), NOW)) == (
        ["wl-prov-1"],
        [],
    )


def test_a_ready_check_or_one_of_another_controller_requests_nothing() -> None:
    for settled in (check("Ready"), check("Rejected"), check("Retry"), check() | {"name": "theirs"}):
        gang = reserved_workload(pod_set("main"), checks=[settled])
        assert next_step(gang, (), (), context(), NOW) == ProvisioningStep()


def test_a_parameter_of_the_user_overrides_the_configuration() -> None:
    gang = reserved_workload(pod_set("main"))
    gang["metadata"]["annotations"] = {"provreq.kueue.x-k8s.io/p": "mine"}
    spec = {"provisioningClassName": "c", "parameters": {"p": "1"}}
    world = context(configs={"cfg": {"spec": spec}})
    (made,) = next_step(gang, (), (), world, NOW).to_create
    assert made.request is not None
    there = request()
    there["spec"] = made.request["spec"]
    assert names(next_step(gang, [there], (), world, NOW)) == ([], [])


def test_without_the_crd_nothing_is_created_or_deleted() -> None:
    template = {**request(name="ppt-x"), "kind": "PodTemplate"}
    world = context(kind=None, errors={"prov": provisioning.NOT_SERVED})
    found = next_step(reserved_workload(pod_set("main")), (), [template], world, NOW)
    assert names(found) == ([], []) and found.status is not None
    assert found.status["admissionChecks"][0]["message"] == provisioning.NOT_SERVED
