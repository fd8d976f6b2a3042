"""PodGroups as gangs: trees, constraints at every node, segments as in the other dialects, and flaws."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import msgspec
import pytest

from bayplan.dialects.kai.api.gang_tree import (
    DEPTH_MAX,
    TOO_DEEP,
    BadTree,
    Decoded,
    Pods,
    TreePosition,
    constraint_errors,
    decode,
    gang_spec,
    levels_to_try,
)
from bayplan.dialects.kai.api.members import known_pods, pod_positions
from bayplan.dialects.kai.api.pod_group import (
    Constraint,
    PodGroup,
    SubGroup,
    pod_group_object,
    read_pod_group,
)
from bayplan.dialects.kai.api.queues import queue
from bayplan.dialects.kai.api.validation import sub_group_problems
from bayplan.dialects.kai.api.wire import (
    KaiPodGroupWire,
    KaiTopologyWire,
    QueueWire,
    group_of,
    pod_group,
    topology,
)
from bayplan.dialects.kube.decode.numa_request import template_numa_request
from bayplan.dialects.kube.decode.wire import PodWire
from bayplan.dialects.kube.fields.reader import Field
from bayplan.dialects.kueue.fields.workload import workload_gang
from bayplan.model.gang import Group, Locality, PodSet, Ref, Segment
from bayplan.model.pod import Pod, PodKey
from bayplan.model.pod_spec import PodSignature, PodSpec
from bayplan.model.quota import Entitlement

Object = dict[str, Any]

RACK, ZONE = Constraint("hall", "rack"), Constraint("hall", "zone")
GPU = {"nvidia.com/gpu": 1}
SPEC = {"containers": [{"name": "c", "resources": {"requests": {"nvidia.com/gpu": "1"}}}]}
ZONES = template_numa_request(Field(SPEC))


def segmented(*minimums: int, parent: Constraint | None = None, of: Constraint = RACK) -> PodGroup:
    cut = tuple(SubGroup(f"worker-{at}", least, "worker", of) for at, least in enumerate(minimums))
    return PodGroup("train", "ns", sub_groups=(SubGroup("worker", sum(minimums), "", parent), *cut))


def known(counts: dict[str, int]) -> dict[str, Pods]:
    return {name: Pods(count, GPU, zones=ZONES) for name, count in counts.items()}


def only(found: Decoded) -> Group | PodSet:
    (member,) = found.root.members
    return member


def slices(count: int, size: int, *, minimum: int | None = None, required: str = "") -> Group:
    request = {"podSetSliceRequiredTopology": "rack", "podSetSliceSize": size}
    pod_set: Object = {"name": "worker", "count": count, "template": {"spec": SPEC}}
    pod_set["topologyRequest"] = request | ({"required": required} if required else {})
    if minimum is not None:
        pod_set["minCount"] = minimum
    workload = Field({"metadata": {"name": "w", "namespace": "ns"}, "spec": {"podSets": [pod_set]}})
    found = workload_gang(workload).root
    assert workload.errors == ()
    return found


@pytest.mark.parametrize(
    ("group", "counts", "same"),
    [
        (segmented(4, 4, 4, 4), [4, 4, 4, 4], slices(16, 4)),
        (segmented(4, 4, 4, 4, parent=ZONE), [4, 4, 4, 4], slices(16, 4, required="zone")),
        (segmented(4, 4, 2), [4, 4, 2], slices(10, 4)),
        (segmented(4, 4, 4, 0, 0), [4, 4, 4, 4, 4], slices(20, 4, minimum=12)),
        (segmented(4), [4], slices(4, 4)),
    ],
    ids=["even", "within a zone", "the last is smaller", "elastic", "one"],
)
def test_segments_are_equal_to_the_slices_of_kueue(group: PodGroup, counts: list[int], same: Group) -> None:
    found = decode(group, known({f"worker-{at}": count for at, count in enumerate(counts)}))
    assert found.root.members == same.members
    assert found.root.minimum == same.minimum
    assert found.position("worker-1") in (TreePosition("worker", 4), TreePosition("default"))


def test_unequal_sub_groups_stay_a_tree() -> None:
    uneven = segmented(4, 3, 4)
    assert isinstance(only(decode(uneven)), Group)
    preferred = segmented(4, 4, of=Constraint("hall", "zone", "rack"))
    worker = only(decode(preferred))
    assert isinstance(worker, Group)
    assert worker.members[0] == Group(
        "worker-0", (PodSet("worker-0", 4, 4, locality=Locality(preferred="rack")),), 1, Locality("zone")
    )
    half = decode(segmented(4, 0), known({"worker-0": 4, "worker-1": 6}))
    assert isinstance(only(half), Group), "more pods than a segment has"
    gap = decode(segmented(4, 0, 0), known({"worker-0": 4, "worker-2": 1}))
    assert isinstance(only(gap), Group)
    late = decode(segmented(4, 0, 0), known({"worker-0": 4}))
    assert only(late) == PodSet("worker", 4, 4, GPU, segments=(Segment(4, "rack"),), zones=ZONES)


def test_an_elastic_sub_group_does_not_count_for_the_minimum() -> None:
    found = decode(PodGroup("g", sub_groups=(SubGroup("a", 2), SubGroup("b", 0))))
    assert [(one.name, one.count, one.minimum) for one in found.root.pod_sets()] == [("a", 2, 2), ("b", 0, 0)]
    assert found.minimum == 2


def test_no_pod_is_lost() -> None:
    found = decode(PodGroup("g", sub_groups=(SubGroup("a", 2),)), known({"a": 3, "": 1, "zzz": 2}))
    assert [(one.name, one.count, one.minimum) for one in found.root.pod_sets()] == [
        ("a", 3, 2),
        ("default", 3, 0),
    ]
    assert found.position("zzz") == found.position("") == TreePosition("default")
    assert found.position("a") == TreePosition("a")
    plain = decode(PodGroup("g", minimum=3), known({"": 5}))
    assert [(one.count, one.minimum) for one in plain.root.pod_sets()] == [(5, 3)]


def test_constraints_at_every_level() -> None:
    group = PodGroup(
        "g",
        constraint=Constraint("hall", "zone", "row"),
        sub_groups=(SubGroup("a", 1, "", RACK), SubGroup("b", 2, "a", Constraint("hall", "", "host"))),
    )
    root = decode(group).root
    assert root.locality == Locality(required="zone")
    (inner,) = root.members
    assert isinstance(inner, Group) and inner.locality == Locality(preferred="row")
    (a,) = inner.members
    assert a == Group("a", (PodSet("b", 2, 2, locality=Locality(preferred="host")),), 1, Locality("rack"))


@pytest.mark.parametrize(
    ("sub_groups", "why"),
    [
        ((SubGroup("a"), SubGroup("a")), "already exists"),
        ((SubGroup("a", parent="b"),), "not found"),
        ((SubGroup("a", parent="b"), SubGroup("b", parent="a")), "cycle"),
    ],
)
def test_sub_groups_that_form_no_tree_are_rejected_with_a_reason(
    sub_groups: tuple[SubGroup, ...], why: str
) -> None:
    with pytest.raises(BadTree, match=why):
        decode(PodGroup("g", sub_groups=sub_groups))


def test_a_deep_tree_is_rejected_without_recursion() -> None:
    chain = tuple(SubGroup(f"s{at}", 1, f"s{at - 1}" if at else "") for at in range(4000))
    assert decode(PodGroup("g", sub_groups=chain[:DEPTH_MAX])).minimum == 1
    with pytest.raises(BadTree, match="deep"):
        decode(PodGroup("g", sub_groups=chain))
    assert sub_group_problems(chain[::-1]) == [TOO_DEEP]


# ── gang specs ─────────────────────────────────────────────────────────────────────────────────────


def test_the_spec_of_a_gang_and_its_flaws() -> None:
    group = segmented(4, 4)
    fine = gang_spec(group, decode(group), 7, topologies={"hall": ["zone", "rack"]})
    assert (fine.minimum, fine.priority, fine.flaw) == (8, 7, "")
    assert fine.source == Ref("kai", "PodGroup", "ns", "train")
    gone = gang_spec(group, decode(group), topologies={})
    assert gone.flaw == "Requested topology hall does not exist"
    unknown = gang_spec(group, decode(group), topologies={"hall": ["zone"]})
    assert "sub-group worker-0 specified 'rack' as the required topology" in unknown.flaw
    assert gang_spec(group, None).flaw
    two = PodGroup("g", sub_groups=(SubGroup("a", 1, "", RACK), SubGroup("b", 1, "", Constraint("x", "y"))))
    assert "more than one topology" in gang_spec(two, decode(two)).flaw


def test_levels_are_tried_from_the_narrowest() -> None:
    levels = ["zone", "row", "rack"]
    assert levels_to_try(Constraint("t", "zone", "rack"), levels) == ["rack", "row", "zone"]
    assert levels_to_try(Constraint("t"), levels) == []
    upside_down = PodGroup("g", constraint=Constraint("t", "rack", "zone"))
    assert "wider" in constraint_errors(upside_down, {"t": levels})[0]


# ── decoding ───────────────────────────────────────────────────────────────────────────────────────


def test_the_webhook_and_the_watch_decode_a_group_alike() -> None:
    group = PodGroup(
        "g", "ns", "q", "train", "preemptible", 3, ZONE, (SubGroup("a", 0, "", RACK), SubGroup("b", 3, "a")),
        {"l": "1"}, {"n": "2"}, flaw="oh",
    )  # fmt: skip
    obj = pod_group_object(group)
    by_field = read_pod_group(Field(obj))
    by_wire = pod_group(msgspec.json.decode(msgspec.json.encode(obj), type=KaiPodGroupWire))
    assert by_field == by_wire
    assert (by_field.sub_groups, by_field.constraint, by_field.flaw) == (group.sub_groups, ZONE, "oh")
    assert pod_group(KaiPodGroupWire()).minimum == 1


def test_the_group_and_sub_group_of_a_pod() -> None:
    text = {"metadata": {"name": "p", "namespace": "ns", "annotations": {"pod-group-name": "g"}}}
    text["metadata"]["labels"] = {"kai.scheduler/subgroup-name": "a"}
    pod = msgspec.convert(text, PodWire)
    assert group_of(pod) == (Ref("kai", "PodGroup", "ns", "g"), "a")
    assert group_of(PodWire()) is None


def test_which_groups_are_preemptible() -> None:
    assert PodGroup("g").is_preemptible(99) and not PodGroup("g").is_preemptible(100)
    assert PodGroup("g", preemptibility="preemptible").is_preemptible(1000)
    assert not PodGroup("g", preemptibility="non-preemptible").is_preemptible(0)


def test_topologies() -> None:
    def read(*levels: str) -> object:
        spec = {"levels": [{"nodeLabel": level} for level in levels]}
        return topology(msgspec.convert({"metadata": {"name": "t"}, "spec": spec}, KaiTopologyWire))

    found = read("zone", "rack", "kubernetes.io/hostname")
    assert found is not None and getattr(found, "levels", ()) == ("zone", "rack", "kubernetes.io/hostname")
    assert read() is None and read("a", "a") is None and read("kubernetes.io/hostname", "a") is None


def test_queues() -> None:
    spec = {
        "parentQueue": "all",
        "resources": {
            "cpu": {"quota": 2000, "limit": -1, "overQuotaWeight": 2},
            "memory": {"quota": -1, "limit": -1},
            "gpu": {"quota": 1.5},
        },
        "reclaimMinRuntime": "1h30m",
    }
    found = queue(msgspec.convert({"metadata": {"name": "q"}, "spec": spec}, QueueWire))
    assert (found.parent, found.priority, found.reclaim_after, found.preempt_after) == (
        "all",
        100,
        5400,
        None,
    )
    assert found.entitlements == {
        "cpu": Entitlement(Fraction(2000), None, Fraction(2)),
        "memory": Entitlement(None, None),
        "nvidia.com/gpu": Entitlement(Fraction(3, 2), Fraction(3, 2)),
    }
    assert queue(QueueWire()).entitlements["cpu"] == Entitlement(Fraction(0), Fraction(0))


def test_the_constraint_of_a_group_moves_to_its_only_pod_set() -> None:
    one = decode(PodGroup("g", minimum=2, constraint=ZONE)).root
    assert one == Group("g", (PodSet("default", 2, 2, locality=Locality("zone")),), 1)
    both = decode(PodGroup("g", minimum=2, constraint=Constraint("hall", "zone", "rack"))).root
    assert both.locality == Locality("zone")
    assert both.members == (PodSet("default", 2, 2, locality=Locality(preferred="rack")),)
    cut = segmented(4, 4)
    whole = PodGroup("g", constraint=ZONE, sub_groups=cut.sub_groups)
    found = decode(whole, known({"worker-0": 4, "worker-1": 4}))
    assert found.root.members == slices(8, 4, required="zone").members


def test_pods_have_a_pod_set_and_a_rank_in_the_tree() -> None:
    def pod(name: str, rank: int, gpus: int = 1) -> Pod:
        return Pod(PodKey("ns", name), name, {"nvidia.com/gpu": gpus, "pods": 1}, rank=rank)

    cut = {f"worker-{at}": [pod(f"p{at * 2 + of}", at * 2 + of) for of in (1, 0)] for at in (1, 0)}
    found = decode(segmented(2, 2), known_pods(cut))
    assert only(found) == PodSet("worker", 4, 4, GPU, segments=(Segment(2, "rack"),))
    assert pod_positions(found, cut) == {PodKey("ns", f"p{rank}"): ("worker", rank) for rank in range(4)}
    strays = {"a": [pod("x", 0, 1), pod("y", 1, 2)], "": [pod("s", 0)], "zzz": [pod("t", 0)]}
    plain = decode(PodGroup("g", sub_groups=(SubGroup("a", 2),)), known_pods(strays))
    assert known_pods(strays)["a"].requests == {"nvidia.com/gpu": 2}
    placed = pod_positions(plain, strays)
    assert placed[PodKey("ns", "y")] == ("a", 1)
    assert {placed[PodKey("ns", "s")], placed[PodKey("ns", "t")]} == {("default", 0), ("default", 1)}


def test_siblings_that_only_look_equal_stay_a_tree() -> None:
    named = (SubGroup("worker", 8), SubGroup("left", 4, "worker", RACK), SubGroup("right", 4, "worker", RACK))
    assert isinstance(only(decode(PodGroup("g", sub_groups=named))), Group)
    late = decode(segmented(0, 4), known({"worker-0": 4, "worker-1": 4}))
    assert isinstance(only(late), Group), "the optional one comes first"
    other = {"worker-0": Pods(4, GPU), "worker-1": Pods(4, {"nvidia.com/gpu": 2})}
    assert isinstance(only(decode(segmented(4, 4), other)), Group), "they ask for different things"


def test_sub_groups_take_the_numa_request_of_their_pods() -> None:
    wants = PodSpec(PodSignature(zones=ZONES))
    pods = [Pod(PodKey("ns", f"p{at}"), "", {"nvidia.com/gpu": 1, "pods": 1}, spec=wants) for at in (0, 1)]
    found = decode(segmented(1, 1), known_pods({"worker-0": pods[:1], "worker-1": pods[1:]}))
    assert found.root.members == slices(2, 1).members and ZONES is not None
    other = known_pods({"worker-0": pods[:1]}) | {"worker-1": Pods(1, GPU)}
    assert isinstance(only(decode(segmented(1, 1), other)), Group), "they ask for different zones"
