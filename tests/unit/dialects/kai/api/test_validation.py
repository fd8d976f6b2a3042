"""Validation of PodGroups, Queues and Topologies, and the messages of pending PodGroups."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from bayplan.backends.crds import define, definitions
from bayplan.backends.embedded.api.status import StatusError
from bayplan.backends.embedded.storage.store import Store
from bayplan.backends.embedded.tables.rendering import table
from bayplan.dialects.api import Kind
from bayplan.dialects.kai.api.names import POD_GROUP, QUEUE, TOPOLOGY
from bayplan.dialects.kai.api.pod_group import PodGroup
from bayplan.dialects.kai.api.validation import (
    check_pod_group,
    check_queue,
    check_topology,
    check_topology_update,
)
from bayplan.dialects.kai.status import messages
from bayplan.dialects.kube.fields.reader import Field
from bayplan.model.assignment import Code, DomainFit, Lack, Misfit, NearMiss
from bayplan.model.filter_failure import FilterFailure, FilterReason
from bayplan.model.pod import PodKey
from bayplan.model.rejection import Rejection, RejectionReason
from tests.support.kai_api import BAD, obj
from tests.support.reasons import BINDING_REASONS
from tests.unit.assembly.test_kueue_crds import described
from tests.unit.backends.embedded.storage.test_store import store_at

Object = dict[str, Any]

GROUP = PodGroup("train", "ns")
OURS = [one for one in definitions() if one["spec"]["group"] in (POD_GROUP.group, TOPOLOGY.group)]


@pytest.fixture
def store() -> Store:
    made = store_at()
    define(made)
    return made


def sub_groups(*given: Object, minimum: int = 1) -> Field:
    return Field(obj(POD_GROUP, {"minMember": minimum, "subGroups": list(given)}))


# ── CRDs ───────────────────────────────────────────────────────────────────────────────────────────


def test_the_api_is_complete_and_every_field_is_explained() -> None:
    named = {(one["spec"]["group"], one["spec"]["names"]["plural"]) for one in OURS}
    assert named == {(kind.group, kind.plural) for kind in (POD_GROUP, QUEUE, TOPOLOGY)}
    for one in OURS:
        (version,) = one["spec"]["versions"]
        assert described(version["schema"]["openAPIV3Schema"]) == []


def test_missing_fields_have_defaults(store: Store) -> None:
    made = store.create(
        POD_GROUP, obj(POD_GROUP, {"subGroups": [{"name": "a"}, {"name": "b", "minMember": 0}]})
    )
    assert made["spec"]["minMember"] == 1
    assert [one["minMember"] for one in made["spec"]["subGroups"]] == [1, 0]
    assert store.create(QUEUE, obj(QUEUE, {}))["spec"]["priority"] == 100


@pytest.mark.parametrize(("kind", "spec", "why"), BAD)
def test_the_schema_refuses(store: Store, kind: Kind, spec: Object, why: str) -> None:
    with pytest.raises(StatusError) as refused:
        store.create(kind, obj(kind, spec))
    assert why in str(refused.value)


def test_a_topology_is_immutable(store: Store) -> None:
    made = store.create(TOPOLOGY, obj(TOPOLOGY, {"levels": [{"nodeLabel": "zone"}]}))
    changed = {**made, "spec": {"levels": [{"nodeLabel": "rack"}]}}
    with pytest.raises(StatusError, match="immutable"):
        store.update(TOPOLOGY, "", "x", changed)
    field = Field(changed)
    check_topology_update(field, Field(made))
    assert [error.why for error in field.errors] == ["field is immutable"]


def test_printer_columns(store: Store) -> None:
    made = store.create(POD_GROUP, obj(POD_GROUP, {"queue": "q", "minMember": 4}))
    resource = store.resources.of(POD_GROUP)
    shown = table(resource, [made], store.now(), "None", True)
    columns = [column["name"] for column in shown["columnDefinitions"]]
    assert columns[1:] == ["Queue", "Minimum", "Running", "Pending", "Age"]


# ── the webhook ────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ([{"name": "a"}, {"name": "a"}], ["duplicate subgroup name a"]),
        (
            [{"name": "a"}, {"name": "b"}, {"name": "b"}, {"name": "a"}],
            ["duplicate subgroup name b", "duplicate subgroup name a"],
        ),
        (
            [{"name": "Worker"}, {"name": "w", "parent": "worker"}],
            ["parent worker of w was not found: did you mean Worker? Capitals count"],
        ),
        ([{"name": "a", "parent": "b"}, {"name": "b", "parent": "a"}], ["cycle detected in subgroups"]),
        ([{"name": "a"}, {"name": "A"}], ["subgroup names a and A differ only in capitals"]),
        (
            [{"name": "a", "minMember": 5}, {"name": "b", "parent": "a", "minMember": 3}],
            ["subgroup a needs 5 pods, but those below it only 3"],
        ),
        ([{"name": "a" * 64}], None),
        ([{"name": "a b"}], None),
        ([{"name": ""}], None),
    ],
)
def test_invalid_sub_groups_are_rejected(given: list[Object], told: list[str] | None) -> None:
    field = sub_groups(*given)
    assert check_pod_group(field) == []
    found = [error.why for error in field.errors]
    assert found == told if told is not None else found


def test_a_minimum_that_differs_from_the_sub_groups_is_a_warning() -> None:
    odd = sub_groups({"name": "a", "minMember": 2}, {"name": "b", "minMember": 0}, minimum=3)
    assert check_pod_group(odd) == [
        "minMember is 3, but its sub-groups need 2 pods: what the sub-groups say counts"
    ]
    assert odd.errors == ()
    assert check_pod_group(sub_groups({"name": "a", "minMember": 2}, minimum=2)) == []


def test_invalid_queues_and_topologies_are_rejected() -> None:
    queue = Field(obj(QUEUE, {"parentQueue": "x", "resources": {"gpu": {"quota": 4, "limit": 2}}}))
    check_queue(queue)
    assert [error.path for error in queue.errors] == ["spec.parentQueue", "spec.resources.gpu.limit"]
    fine = Field(
        obj(QUEUE, {"resources": {"gpu": {"quota": 4, "limit": -1}, "cpu": {"quota": 4, "limit": 0}}})
    )
    check_queue(fine)
    assert fine.errors == ()
    times = Field(obj(QUEUE, {"preemptMinRuntime": "soon", "reclaimMinRuntime": "1h30m"}))
    check_queue(times)
    assert [error.path for error in times.errors] == ["spec.preemptMinRuntime"]
    topology = Field(obj(TOPOLOGY, {"levels": [{"nodeLabel": "kubernetes.io/hostname"}, {"nodeLabel": "!"}]}))
    check_topology(topology)
    assert len(topology.errors) >= 2


# ── messages ───────────────────────────────────────────────────────────────────────────────────────


def test_messages_for_pending_groups() -> None:
    unfit = FilterFailure(3, {(FilterReason.INSUFFICIENT, "nvidia.com/gpu"): 3})
    lacks = "0/3 nodes are available: 3 Insufficient nvidia.com/gpu."
    few = Rejection(RejectionReason.NO_CAPACITY, minimum=4, fit=2, filter_failure=unfit)
    assert messages.group_message(few, GROUP) == (
        "Resources were found for 2 pods while 4 are required for gang scheduling. "
        f"Additional pods cannot be scheduled due to: {lacks}"
    )
    assert messages.group_message(few, GROUP, "workers") == (
        "Resources were found for 2 pods from all sub-groups while sub-group workers requires 4 pods for "
        f"gang scheduling. Additional pods cannot be scheduled in this sub-group due to: {lacks}"
    )
    lone = Rejection(RejectionReason.NO_CAPACITY, minimum=1, pod=PodKey("ns", "p"), filter_failure=unfit)
    assert messages.group_message(lone, GROUP) == f"Resources were not found for pod ns/p due to: {lacks}"
    assert messages.reason(few) == "PodSchedulingErrors"
    for hindrance in BINDING_REASONS:
        assert messages.group_message(Rejection(hindrance), GROUP)


def test_domains_that_are_each_too_small_are_listed() -> None:
    near = NearMiss(("r1",), "rack", fit=3, short=1)
    found = Misfit(Code.NO_ROOM, ("a",), "hall", "rack", fit=3, asked=4, nearest=near, total_fit=4)
    found = replace(found, domains=(DomainFit(("r1",), 3), DomainFit(("r2",), 1)))
    assert messages.group_message(
        Rejection(RejectionReason.NO_CAPACITY, minimum=4, fit=3, misfit=found), GROUP
    ) == (
        "Unable to schedule podgroup.\n"
        "<r1>: node-group r1 can allocate only 3 of 4 required pods.\n"
        "<r2>: node-group r2 can allocate only 1 of 4 required pods.\n"
        "topology hall, requirement rack couldn't be satisfied for job <ns/train>."
    )
    small = replace(found, total_fit=3)
    said = messages.group_message(
        Rejection(RejectionReason.NO_CAPACITY, minimum=4, fit=3, misfit=small), GROUP
    )
    assert (
        "not enough resources in the cluster to allocate the job. node-group r1 can allocate only 3" in said
    )
    large = replace(
        found, domains=(DomainFit(("r1",), 4),)
    )  # alone it would fit: others of the gang are in the way
    said = messages.group_message(
        Rejection(RejectionReason.NO_CAPACITY, minimum=4, fit=3, misfit=large), GROUP
    )
    assert said.startswith("Resources were found for 3 pods while 4 are required")


def test_messages_for_groups_without_a_domain() -> None:
    near = NearMiss(("z1", "r1"), "rack", fit=1, short=3)
    found = Misfit(Code.NO_ROOM, ("a",), "hall", "rack", fit=1, asked=4, nearest=near)
    assert messages.misfit(found, GROUP, "a") == (
        "topology hall, requirement rack couldn't be satisfied for job <ns/train>, subgroup a: not enough "
        "resources in z1.r1 to allocate the job. node-group z1.r1 can allocate only 1 of 4 required pods"
    )
    nowhere = Misfit(Code.NO_DOMAINS, ("a",), "hall", "rack")
    assert "no node has the labels of all levels of topology hall at once" in messages.misfit(nowhere, GROUP)
    unlabelled = replace(nowhere, unlabelled=("row", "rack"))
    assert messages.misfit(unlabelled, GROUP, "a") == (
        "topology hall, requirement rack couldn't be satisfied for job <ns/train>, subgroup a: no node has "
        "the labels row, rack, and only nodes with the labels of all levels are in topology hall. Label the "
        "nodes (kubectl label node), or name another topology"
    )
    unknown = Misfit(Code.UNKNOWN_LEVEL, ("a",), "hall", "row")
    assert messages.misfit(unknown, GROUP) == (
        "topology constraint error: workload train specified 'row' as the required topology constraint "
        "level, but the topology tree 'hall' does not contain a level with this name"
    )
    for code in Code:
        assert messages.misfit(Misfit(code, ("a",)), GROUP)


@pytest.mark.parametrize(
    ("lack", "told"),
    [
        (Lack("nvidia.com/gpu", 2, 1), "resource: GPUs, requested: 2, available: 1"),
        (Lack("cpu", 1500, 1000), "resources: CPU cores, requested: 1.5, available: 1"),
        (Lack("memory", 3 * 10**6, 2 * 10**6), "resources: memory, requested: 0.003, available: 0.002"),
        (Lack("nvidia.com/mig-1g.5gb", 2, 1), "resource: nvidia.com/mig-1g.5gb, requested: 2, available: 1"),
        (Lack("custom.io/res", 5, 3), "resource: custom.io/res, requested: 5, available: 3"),
    ],
)
def test_what_a_domain_lacks(lack: Lack, told: str) -> None:
    assert messages.lacking("z1", lack) == f"z1 didn't have enough {told}"


def test_many_domains_are_counted_by_missing_resource() -> None:
    lacks = (("nvidia.com/gpu", 12), ("cpu", 1), ("nvidia.com/mig-1g.5gb", 3))
    found = Misfit(Code.NO_ROOM, ("a",), "hall", "rack", fit=3, asked=4, total_fit=4, lacking=lacks)
    assert messages.group_message(
        Rejection(RejectionReason.NO_CAPACITY, minimum=4, fit=3, misfit=found), GROUP, "a"
    ) == (
        "Unable to schedule podgroup: 12 node-group(s) didn't have enough resources: GPUs. \n"
        "3 node-group(s) didn't have enough of mig profile: nvidia.com/mig-1g.5gb. \n"
        "node-group(s) didn't have enough resources: CPU cores. \n"
        "topology hall, requirement rack couldn't be satisfied for job <ns/train>, subgroup a."
    )
