"""Objects that reviews look up: existing owners, and priority classes."""

from __future__ import annotations

import json
from typing import Any

import pytest

from bayplan.dialects.errors import Unreachable
from bayplan.dialects.kueue.webhooks.controlling_owners import is_part
from bayplan.dialects.kueue.webhooks.priority_class_rules import check_class
from bayplan.dialects.reviews import OwnerUnknown
from bayplan.runtime.webhooks.live_objects import CACHE_MAX, CACHE_SECONDS, PAUSE_SECONDS, LiveObjects
from tests.support.api_objects import workload

Object = dict[str, Any]
JOBS, SETS = "/apis/batch/v1/namespaces/a/jobs/", "/apis/apps/v1/namespaces/a/replicasets/"


class Clock:
    now = 0.0

    def monotonic(self) -> float:
        return self.now

    def wall(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.now += seconds


class Api:
    """Objects by path; no answer if it is down."""

    def __init__(self, **objects: Object) -> None:
        self.objects, self.asked, self.down = objects, 0, False

    def __call__(self, method: str, path: str, body: bytes, seconds: float) -> tuple[int, bytes]:
        self.asked += 1
        if self.down:
            raise Unreachable("no answer")
        found = self.objects.get(path)
        return (404, b"{}") if found is None else (200, json.dumps(found).encode())


def reference(kind: str, name: str, uid: str = "u", version: str = "batch/v1", **more: Any) -> Object:
    return {"apiVersion": version, "kind": kind, "name": name, "uid": uid, "controller": True, **more}


def owner(uid: str = "u", selector: Object | None = None, *owners: Object) -> Object:
    spec = {"selector": {"matchLabels": selector}} if selector else {}
    return {"metadata": {"uid": uid, "ownerReferences": list(owners)}, "spec": spec}


def owned_pod(*owners: Object, **labels: str) -> Object:
    return {"metadata": {"namespace": "a", "ownerReferences": list(owners), "labels": labels}}


def live(**objects: Object) -> tuple[LiveObjects, Api, Clock]:
    api, clock = Api(**objects), Clock()
    return LiveObjects(api, clock), api, clock


def test_an_owner_that_is_there_made_the_pod() -> None:
    objects, _, _ = live(**{f"{JOBS}j": owner()})
    assert is_part(owned_pod(reference("Job", "j")), objects.controller)


@pytest.mark.parametrize(
    "invented",
    [
        reference("Job", "gone"),
        reference("Job", "j", uid="other"),
        reference("Job", "j", controller=False),
        reference("Job", "j", version="example.com/v1"),
        reference("ConfigMap", "j", version="v1"),
        reference("Job", "../../secrets/x"),
        {"kind": "Job"},
        "text",
    ],
    ids=str,
)
def test_an_owner_that_is_invented_did_not(invented: Any) -> None:
    objects, _, _ = live(**{f"{JOBS}j": owner()})
    assert not is_part(owned_pod(invented), objects.controller)


def test_an_owner_that_does_not_select_the_pod_did_not_make_it() -> None:
    objects, _, _ = live(**{f"{JOBS}j": owner(selector={"controller-uid": "u"})})
    assert not is_part(owned_pod(reference("Job", "j")), objects.controller)
    assert is_part(owned_pod(reference("Job", "j"), **{"controller-uid": "u"}), objects.controller)


def test_a_replica_set_counts_only_as_part_of_a_deployment() -> None:
    of_deployment = reference("Deployment", "d", version="apps/v1")
    objects, _, _ = live(
        **{
            f"{SETS}bare": owner(),
            f"{SETS}made": owner("u", None, of_deployment),
            "/apis/apps/v1/namespaces/a/deployments/d": owner(),
        }
    )
    assert not is_part(owned_pod(reference("ReplicaSet", "bare", version="apps/v1")), objects.controller)
    assert is_part(owned_pod(reference("ReplicaSet", "made", version="apps/v1")), objects.controller)


def test_an_owner_that_is_nested_too_deeply_to_be_read_exempts_nothing() -> None:
    deep = b'{"metadata": {"uid": "u"}, "spec": ' + b"[" * 5000 + b"]" * 5000 + b"}"
    found = LiveObjects(lambda *_: (200, deep), Clock())
    assert not is_part(owned_pod(reference("Job", "boss")), found.controller)


def test_owners_in_a_circle_come_to_an_end() -> None:
    one = reference("ReplicaSet", "one", version="apps/v1")
    objects, api, _ = live(**{f"{SETS}one": owner("u", None, one)})
    assert not is_part(owned_pod(one), objects.controller) and api.asked == 1


def test_a_reference_that_cannot_be_checked_is_assumed_valid_and_not_checked_again_at_once() -> None:
    objects, api, clock = live()
    api.down = True
    for _ in range(3):
        assert is_part(owned_pod(reference("Job", "j")), objects.controller)
    assert api.asked == 1 and objects.has_class("WorkloadPriorityClass", "any")
    clock.now, api.down = PAUSE_SECONDS, False
    assert not is_part(owned_pod(reference("Job", "j")), objects.controller) and api.asked == 2


def test_what_was_found_is_kept_for_a_while_and_what_was_not_is_asked_again() -> None:
    objects, api, clock = live(**{f"{JOBS}j": owner()})
    for name in ("j", "j", "none", "none"):
        is_part(owned_pod(reference("Job", name)), objects.controller)
    assert api.asked == 3
    clock.now = CACHE_SECONDS
    is_part(owned_pod(reference("Job", "j")), objects.controller)
    assert api.asked == 4


def test_what_is_kept_is_bounded() -> None:
    objects, api, _ = live(**{f"{JOBS}j{number}": owner() for number in range(CACHE_MAX + 1)})
    for number in (*range(CACHE_MAX + 1), CACHE_MAX, 0):
        objects.controller("batch", "Job", "a", f"j{number}")
    assert api.asked == CACHE_MAX + 2


def test_an_answer_that_is_no_object_says_nothing() -> None:
    api, clock = Api(), Clock()
    api.objects[f"{JOBS}j"] = []  # type: ignore[assignment]
    with pytest.raises(OwnerUnknown):
        LiveObjects(api, clock).controller("batch", "Job", "a", "j")


# ── priority classes ───────────────────────────────────────────────────────────────────────────────

LABEL = "kueue.x-k8s.io/priority-class"


def prioritized_job(name: str) -> Object:
    return {"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": "j", "labels": {LABEL: name}}}


def prioritized_workload(name: str, kind: str = "WorkloadPriorityClass", *owners: Object) -> Object:
    reference = {"kind": kind, "name": name}
    return workload("w", metadata={"ownerReferences": list(owners)}, priorityClassRef=reference)


def none(kind: str, name: str) -> bool:
    return name == "known"


def test_a_class_that_does_not_exist_is_named_in_the_refusal() -> None:
    (error,) = check_class(prioritized_job("none"), None, none)
    assert str(error) == (
        'metadata.labels[kueue.x-k8s.io/priority-class]: Not found: "none": '
        "there is no WorkloadPriorityClass of this name"
    )
    assert not check_class(prioritized_job("known"), None, none) and not check_class(
        prioritized_job(""), None, none
    )


@pytest.mark.parametrize("kind", ["WorkloadPriorityClass", "PriorityClass"])
def test_a_workload_that_a_user_makes_names_a_class_that_exists(kind: str) -> None:
    (error,) = check_class(prioritized_workload("none", kind), None, none)
    assert error.path == "spec.priorityClassRef.name"
    assert not check_class(prioritized_workload("none", kind, reference("Job", "j")), None, none), (
        "its job was asked"
    )


def test_a_class_that_is_gone_by_now_does_not_keep_a_job_from_being_changed() -> None:
    assert not check_class(prioritized_job("none"), prioritized_job("none"), none) and check_class(
        prioritized_job("none"), prioritized_job("known"), none
    )
    assert not check_class(None, prioritized_job("none"), none)
