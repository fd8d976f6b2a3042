"""Which pods are ungated, and their domains."""

from __future__ import annotations

import pytest

from bayplan.dialects.api import Verb
from bayplan.dialects.kueue.names.annotations import ELASTIC
from bayplan.dialects.kueue.pods.ungating import SLOTS_MAX, admitted_placement, ungating_write, ungatings
from tests.support.gated_gangs import INDEX, RANKED, SUBGROUP, assigned_gang, gang_pod, groups, where, wire

OFFSET = "kueue.x-k8s.io/pod-index-offset"


def test_ranks_decide_in_any_order_of_the_pods() -> None:
    workload = assigned_gang(("x1", 2), ("x2", 1), request=RANKED)
    assert where(workload, gang_pod("c", 2), gang_pod("a", 1), gang_pod("b", 0)) == {
        "b": "x1",
        "a": "x1",
        "c": "x2",
    }
    assert where(workload, gang_pod("c", 2)) == {"c": "x2"}


def test_a_host_may_have_the_first_ranks_and_the_last() -> None:
    """The last, smaller segment may share a host with whole segments; its ranks still come last."""
    workload = assigned_gang(("x1", 2), ("x2", 2), ("x1", 1), request=RANKED)
    pods = [gang_pod(f"p{rank}", rank) for rank in range(5)]
    assert list(where(workload, *pods).values()) == ["x1", "x1", "x2", "x2", "x1"]
    assert where(workload, gang_pod("p4", 4, on="x1"), *pods[:2]) == {"p0": "x1", "p1": "x1"}


def test_all_pods_start_if_the_segment_size_does_not_divide_the_gang() -> None:
    request = {**RANKED, "podSetSliceRequiredTopology": "rack", "podSetSliceSize": 2}
    workload = assigned_gang(("x1", 2), ("x2", 2), ("x3", 1), request=request)
    assert len(where(workload, *(gang_pod(f"p{rank}", rank) for rank in range(5)))) == 5


def test_ranks_continue_across_subgroups() -> None:
    request = {**RANKED, "subGroupIndexLabel": SUBGROUP, "subGroupCount": 2}
    workload = assigned_gang(("x1", 2), ("x2", 2), request=request)
    pods = [
        gang_pod(f"{job}{index}", index, labels={SUBGROUP: str(job)}) for job in (1, 0) for index in (1, 0)
    ]
    assert where(workload, *pods) == {"00": "x1", "01": "x1", "10": "x2", "11": "x2"}


def test_an_offset_moves_the_first_rank() -> None:
    workload = assigned_gang(("x1", 1), ("x2", 1), request=RANKED)
    pods = [gang_pod("b", 2, notes={OFFSET: "1"}), gang_pod("a", 1, notes={OFFSET: "1"})]
    assert where(workload, *pods) == {"a": "x1", "b": "x2"}
    assert where(workload, pods[0]) == {"b": "x2"}


def test_indexes_of_a_group_start_with_its_leader() -> None:
    hosts = {"workers": [("x1", 1), ("x2", 2)], "leader": [("x1", 1)]}
    workload = groups(hosts, {**RANKED, "podSetGroupName": "g"})
    pods = [gang_pod(f"w{rank}", rank, part="workers") for rank in (3, 2, 1)]
    assert where(workload, gang_pod("l", 0, part="leader"), *pods) == {
        "l": "x1",
        "w1": "x1",
        "w2": "x2",
        "w3": "x2",
    }


@pytest.mark.parametrize("indices", [("0", "0"), ("0", "9"), ("0", "-1"), ("0", "many"), ("0", None)])
def test_invalid_ranks_are_not_used(indices: tuple[str | None, str | None]) -> None:
    workload = assigned_gang(("x1", 1), ("x2", 1), request=RANKED)
    pods = [gang_pod(f"p{number}", index) for number, index in enumerate(indices)]
    assert sorted(where(workload, *pods).values()) == ["x1", "x2"]


def test_a_duplicate_pod_gets_no_slot() -> None:
    workload = assigned_gang(("x1", 1), ("x2", 1), request=RANKED)
    first, double, other = (
        gang_pod("p0-a", 0, job="j"),
        gang_pod("p0-b", 0, job="j"),
        gang_pod("p1", 1, job="j"),
    )
    assert where(workload, double, other, first) == {"p0-a": "x1", "p1": "x2"}, "one of the two"
    stands = gang_pod("p0-a", 0, job="j", on="x1")
    assert where(workload, stands, double) == {}, "the second host is for rank 1"
    assert where(workload, stands, double, other) == {"p1": "x2"}
    over = gang_pod("p0-a", 0, job="j", on="x1", phase="Failed")
    assert where(workload, over, double) == {"p0-b": "x1"}
    assert where(workload, stands, gang_pod("p0-b", 0, job="k")) == {"p0-b": "x2"}, (
        "numbers that mean nothing"
    )


def test_finished_and_terminating_pods_hold_no_slot() -> None:
    workload = assigned_gang(("x1", 1), request=RANKED)
    assert where(workload, gang_pod("old", 0, on="x1"), gang_pod("new", 0)) == {}
    assert where(workload, gang_pod("old", 0, on="x1", phase="Failed"), gang_pod("new", 0)) == {"new": "x1"}
    assert where(workload, gang_pod("old", 0, on="x1", leaving=True), gang_pod("new", 0)) == {"new": "x1"}
    assert where(workload, gang_pod("old", 0, leaving=True)) == {}


def test_an_ungating_in_flight_holds_its_slot() -> None:
    workload = assigned_gang(("x1", 1), ("x2", 1))
    assert where(workload, gang_pod("a"), gang_pod("b"), expected={"uid-a": ("x1",)}) == {"b": "x2"}
    assert where(workload, gang_pod("a"), gang_pod("b"), expected={"uid-b": ("x1",)}) == {"a": "x2"}
    assert where(workload, gang_pod("a"), gang_pod("b"), expected={"uid-b": None}) == {}


def test_after_a_replacement_each_rank_has_its_own_new_slot() -> None:
    """Hosts x2 and x3 of ranks 1 and 2 were replaced; the others stay, though the order has changed."""
    workload = assigned_gang(("x1", 1), ("x4", 1), ("x5", 1), ("x6", 1), request=RANKED)
    standing = [gang_pod("p0", 0, on="x1"), gang_pod("p3", 3, on="x4")]
    assert where(workload, *standing, gang_pod("new1", 1), gang_pod("new2", 2)) == {
        "new1": "x5",
        "new2": "x6",
    }
    assert where(workload, *standing, gang_pod("new2", 2)) == {"new2": "x6"}
    still = gang_pod("p1", 1, on="x2")  # on a host that is no longer the gang's
    assert where(workload, *standing, still, gang_pod("new2", 2)) == {"new2": "x6"}


def test_no_pod_is_assigned_to_a_failed_host() -> None:
    ranked, greedy = assigned_gang(("x1", 1), ("x2", 1), request=RANKED), assigned_gang(("x1", 1), ("x2", 1))
    for workload in (ranked, greedy):
        workload["status"]["unhealthyNodes"] = [{"name": "x1"}]
    assert where(ranked, gang_pod("a", 0), gang_pod("b", 1)) == {"b": "x2"}
    assert where(greedy, gang_pod("a")) == {"a": "x2"}
    assert where(greedy, gang_pod("a"), gang_pod("b")) == {"a": "x2"}


def test_ranks_wait_for_a_replacement_that_changes_their_slots() -> None:
    """The hosts of ranks 0 and 1 failed one after the other; x5 already replaces the first of them."""
    workload = assigned_gang(("x2", 1), ("x3", 1), ("x4", 1), ("x5", 1), request=RANKED)
    standing = [gang_pod("p2", 2, on="x3"), gang_pod("p3", 3, on="x4")]
    pending = [gang_pod("new0", 0), gang_pod("new1", 1)]
    workload["status"]["unhealthyNodes"] = [{"name": "x2"}]
    assert where(workload, *standing, *pending) == {}, "rank 1 would get x5, and rank 0 the host after it"
    replaced = assigned_gang(("x3", 1), ("x4", 1), ("x5", 1), ("x6", 1), request=RANKED)
    assert where(replaced, *standing, *pending) == {"new0": "x5", "new1": "x6"}


def test_only_an_admitted_gang_that_is_not_evicted_has_slots() -> None:
    for kind, status in (("Admitted", "False"), ("Evicted", "True"), ("Finished", "True")):
        workload = assigned_gang(("x1", 1))
        known = {one["type"]: one for one in workload["status"]["conditions"]}
        known[kind] = {"type": kind, "status": status}
        workload["status"]["conditions"] = list(known.values())
        assert admitted_placement(workload) is None


@pytest.mark.parametrize("elastic", [False, True])
def test_a_gang_of_billions_of_pods_has_a_bounded_number_of_slots(elastic: bool) -> None:
    workload = assigned_gang(("a", 2**31 - 1))
    if elastic:
        workload["metadata"]["annotations"] = {ELASTIC: "true"}
        del workload["status"]["admission"]["podSetAssignments"][0]["topologyAssignment"]
    found = admitted_placement(workload)
    assert found is not None
    assert (found.parts[0].count, len(found.parts[0].slots)) == (2**31 - 1, SLOTS_MAX)


def test_an_invalid_offset_is_reported_and_blocks_all_pods() -> None:
    places = admitted_placement(assigned_gang(("x1", 2), request=RANKED))
    assert places is not None
    answer = ungatings(places, [wire(gang_pod("a", 0)), wire(gang_pod("b", 1, notes={OFFSET: "one"}))], {})
    assert answer.pods == ()
    assert 'Pod "b"' in answer.error and '"one"' in answer.error


def test_the_patch_keeps_other_gates_and_is_limited_to_the_uid() -> None:
    held = gang_pod("a", 0)
    held["spec"]["schedulingGates"].append({"name": "example.com/later"})
    places = admitted_placement(assigned_gang(("x1", 1), request={"podIndexLabel": INDEX}))
    assert places is not None
    (one,) = ungatings(places, [wire(held)], {}).pods
    write = ungating_write(one)
    assert (write.verb, write.uid, write.version) == (Verb.MERGE_PATCH, "uid-a", "")
    assert write.body["spec"] == {
        "schedulingGates": [{"name": "example.com/later"}],
        "nodeSelector": {"kubernetes.io/hostname": "x1"},
    }
