"""PodGroups that the grouper generates are valid; what the API would reject becomes a flaw."""

from __future__ import annotations

import pytest

from bayplan.dialects.kai.api.names import PREFERRED, REQUIRED, SEGMENT_SIZE, TOPOLOGY_NAME
from bayplan.dialects.kai.api.pod_group import PodGroup, SubGroup, merged
from bayplan.dialects.kai.grouper.join import desired_group, group_write
from tests.support.kai_owners import Object, group, made, owned_pod, thing

TYPE, INDEX = "training.kubeflow.org/replica-type", "training.kubeflow.org/replica-index"


def pytorch(**types: Object) -> Object:
    return thing("kubeflow.org/v1", "PyTorchJob", {"pytorchReplicaSpecs": types})


@pytest.mark.parametrize(
    ("types", "words"),
    [
        (("Worker", "worker"), "duplicate subgroup name worker"),
        (("Worker", "Big One"), "subgroup name big one"),
        (("Worker", "W" * 64), "must be no more than 63 bytes"),
    ],
)
def test_replica_types_that_are_invalid_sub_groups_are_a_flaw_and_left_out(
    types: tuple[str, ...], words: str
) -> None:
    found = made(owned_pod({TYPE: "worker"}), pytorch(**{name: {"replicas": 2} for name in types}))
    assert found.group is not None and words in found.error == found.group.flaw
    assert found.group.sub_groups == () and found.sub_group == ""


def test_too_many_sub_groups_are_a_flaw_and_left_out() -> None:
    notes = {SEGMENT_SIZE: "1", TOPOLOGY_NAME: "hall"}
    job = pytorch(Worker={"replicas": 4096, "template": {"metadata": {"annotations": notes}}})
    found = made(owned_pod({TYPE: "worker", INDEX: "0"}), job)
    assert found.group is not None and "4097 subgroups are more than the 4096" in found.error
    assert found.group.sub_groups == ()


def test_two_worker_groups_of_one_name_are_a_flaw() -> None:
    workers = {"groupName": "w", "replicas": 1}
    ray = thing("ray.io/v1", "RayCluster", {"headGroupSpec": {}, "workerGroupSpecs": [workers, workers]})
    assert made(owned_pod({"ray.io/group": "w"}), ray).error == "duplicate subgroup name w"


@pytest.mark.parametrize("level", [REQUIRED, PREFERRED])
def test_a_level_without_a_topology_is_a_flaw_and_left_out(level: str) -> None:
    found = made(owned_pod(), thing("apps/v1", "StatefulSet", {"replicas": 1}, notes={level: "rack"}))
    assert found.group is not None and found.group.constraint is None
    why = f"topology annotation ({TOPOLOGY_NAME}) is required when topology placement annotations are set"
    assert found.error == why


def test_a_group_without_pods_has_a_minimum_of_one() -> None:
    gang = thing("scheduler.grove.io/v1alpha1", "PodGang", {"podgroups": []}, name="gang")
    owner = thing("grove.io/v1alpha1", "PodCliqueSet")
    assert group(owned_pod({"grove.io/podgang": "gang"}), owner, around=(gang,)).minimum == 1


def test_a_spark_pod_without_a_selector_has_a_group_of_its_own() -> None:
    assert group(owned_pod({"spark-app-name": "a", "spark-app-selector": ""})).name == "pg-pod-u-pod"


def test_sub_groups_that_pods_add_have_the_same_order_whichever_pod_comes_first() -> None:
    def by(*opened: str) -> PodGroup:
        optional = tuple(SubGroup(name, 0, name.rpartition("-")[0]) for name in opened)
        a, b = (tuple(one for one in optional if one.parent == parent) for parent in ("a", "b"))
        base = (SubGroup("a", 2), SubGroup("a-0", 2, "a")), (SubGroup("b", 2), SubGroup("b-0", 2, "b"))
        return PodGroup("g", "ns", sub_groups=(*base[0], *a, *base[1], *b))

    one = merged(merged(by("a-10"), by("b-3")), by("a-9"))
    two = merged(merged(by("a-9"), by("a-10")), by("b-3"))
    names = ["a", "a-0", "a-9", "a-10", "b", "b-0", "b-3"]
    assert [found.name for found in one.sub_groups] == [found.name for found in two.sub_groups] == names
    known = desired_group(None, one, "")
    for late in ("a-9", "a-10", "b-3"):
        assert group_write(known, desired_group(known, by(late), "")) is None
