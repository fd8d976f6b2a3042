"""The checker of storms finds what may never be: each violation in objects made by hand, and none without."""

from __future__ import annotations

import copy
from typing import Any

import pytest

from tests.end_to_end.objects import kwok_node
from tests.end_to_end.storm_checker import (
    GATE,
    GPU,
    HOST,
    INDEX,
    KUEUE,
    REQUIRED,
    SEGMENT,
    SEGMENT_SIZE,
    Checker,
    Object,
    Seen,
    forgotten,
    left,
)
from tests.support.api_objects import cluster_queue, pod, workload

RACK = "example.com/rack"
NODES = [kwok_node(name, 2, **{RACK: rack}) for name, rack in (("x1", "r1"), ("x2", "r1"), ("x3", "r2"))]


def gpu_queue(name: str, gpus: int, cohort: str = "", **status: Any) -> Object:
    spec = {"cohortName": cohort} if cohort else {}
    return cluster_queue(name, [{"name": GPU, "nominalQuota": str(gpus)}], ["any"], status=status, **spec)


def pod_spec(gpus: int) -> Object:
    return {"containers": [{"name": "main", "resources": {"requests": {GPU: str(gpus)}}}]}


def placed_workload(
    name: str, *hosts: str, count: int = 0, gpus: int = 1, of: str = "q", **changed: str
) -> Object:
    """A Workload of one pod set; admitted if it has hosts, one for each rank. `changed` are conditions."""
    states = {"QuotaReserved": "True", "Admitted": "True"} if hosts else {}
    conditions = [
        {"type": kind, "status": status, "reason": ""} for kind, status in (states | changed).items()
    ]
    status: Object = {"conditions": conditions}
    if hosts:
        places = {
            "levels": [HOST],
            "slices": [
                {
                    "domainCount": len(hosts),
                    "valuesPerLevel": [
                        {"individual": {"prefix": "x", "roots": [host[1:] for host in hosts]}}
                    ],
                    "podCounts": {"universal": 1},
                }
            ],
        }
        part = {"name": "main", "count": len(hosts), "topologyAssignment": places}
        status["admission"] = {"clusterQueue": of, "podSetAssignments": [part]}
    pod_set = {"name": "main", "count": count or len(hosts), "template": {"spec": pod_spec(gpus)}}
    return workload(name, pod_set, status=status)


def ranked_pod(
    gang: str,
    rank: int,
    host: str = "",
    *,
    gpus: int = 1,
    phase: str = "Pending",
    notes: dict[str, str] | None = None,
) -> Object:
    """A pod of a gang, gated unless it has a host."""
    name = f"{gang}-{rank}"
    labels = {INDEX: str(rank), f"{KUEUE}podset": "main"}
    annotations = {f"{KUEUE}workload": gang, **(notes or {})}
    sent: Object = {"nodeSelector": {HOST: host}} if host else {"schedulingGates": [{"name": GATE}]}
    spec = pod_spec(gpus) | sent
    known = {"uid": name, "labels": labels, "annotations": annotations}
    return pod(name, metadata=known, status={"phase": phase}, **spec)


def judged(*states: Object | Seen, quota: int = 100, patience: float = 30.0) -> list[str]:
    """What the checker says without the moments; states follow each other, a second apart."""
    history = [
        one if isinstance(one, Seen) else Seen(number, float(number), one)
        for number, one in enumerate(states, 1)
    ]
    found = Checker(NODES, [gpu_queue("q", quota)], patience).judge(reversed(history))
    return [sentence.rpartition(" (version")[0] for sentence in found]


def leaving(one: Object) -> Object:
    changed = copy.deepcopy(one)
    changed["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z"
    return changed


def test_a_gang_that_comes_and_goes_as_it_should_is_no_violation() -> None:
    first, second = ranked_pod("a", 0, "x1"), ranked_pod("a", 1, "x2")
    assert not judged(
        placed_workload("a", count=2),
        placed_workload("a", "x1", "x2"),
        ranked_pod("a", 0),
        ranked_pod("a", 1),
        first,
        second,
        leaving(first),
        Seen(8, 8.0, first, gone=True),
        ranked_pod("a", 0) | {"metadata": {**ranked_pod("a", 0)["metadata"], "uid": "again"}},
        ranked_pod("a", 0, "x1") | {"metadata": {**first["metadata"], "uid": "again"}},
        second | {"status": {"phase": "Succeeded"}},
        ranked_pod("a", 0, "x1", phase="Succeeded") | {"metadata": {**first["metadata"], "uid": "again"}},
        placed_workload("a", "x1", "x2", Finished="True"),
        placed_workload("b", "x1", "x1"),
        quota=2,
    )


@pytest.mark.parametrize(
    ("states", "told"),
    [
        (
            (placed_workload("a", count=1), ranked_pod("a", 0, "x1")),
            "a-0: stands, but its Workload a is not admitted",
        ),
        ((ranked_pod("a", 0, "x1"),), "a-0: stands, but its Workload a is not admitted"),
        (
            (placed_workload("a", "x1", Admitted="False"), ranked_pod("a", 0, "x1")),
            "a-0: stands, but its Workload a is not admitted",
        ),
        (
            (placed_workload("a", "x1"), ranked_pod("a", 0, "x1"), placed_workload("a", count=1)),
            "a-0: stands, but its Workload a is not admitted",
        ),
        (
            (
                placed_workload("a", "x1"),
                ranked_pod("a", 0, "x1"),
                placed_workload("a", "x1", Finished="True"),
            ),
            "a-0: stands, but its Workload a is not admitted",
        ),
        ((placed_workload("a", "x1"), ranked_pod("a", 0, "x2")), "a: has 1 pods on x2, which is given to 0"),
        (
            (placed_workload("a", "x1", "x2"), ranked_pod("a", 1, "x1")),
            "a-1: has rank 1 and stands on x1; the ranks are x1 x2",
        ),
        (
            (placed_workload("a", "x1", "x2"), ranked_pod("a", 0, "x1"), ranked_pod("a", 1, "x1")),
            "a: has 2 pods on x1, which is given to 1",
        ),
        (
            (
                placed_workload("a", "x1"),
                ranked_pod("a", 0, "x1") | {"spec": {**ranked_pod("a", 0, "x1")["spec"], "nodeName": "x2"}},
            ),
            "a-0: was sent to x1 and is on x2",
        ),
        ((placed_workload("a", "x1", "x2", count=3),), "a: holds 2 places for 3 pods of main"),
        ((placed_workload("a", "x1"), placed_workload("a", "x2")), "a: was moved while it held its place"),
        ((placed_workload("a", "x1", "x2"), placed_workload("b", "x3")), "q: gave 3 of 2 nvidia.com/gpu"),
        (
            (placed_workload("a", "x1", gpus=1), placed_workload("b", "x1", "x1", gpus=1)),
            "x1: 3 of 2 nvidia.com/gpu are promised",
        ),
        (
            (placed_workload("a", "x1", gpus=1), ranked_pod("a", 0, "x1", gpus=3)),
            "x1: pods of 3 stand on 2 nvidia.com/gpu",
        ),
        (
            (placed_workload("a", "x1", "x3"), ranked_pod("a", 0, "x1", notes={REQUIRED: RACK})),
            "a-0: ranks 0 to 1 are in ['r1', 'r2']",
        ),
        (
            (
                placed_workload("a", "x3", "x1", "x2"),
                ranked_pod("a", 0, "x3", notes={SEGMENT: RACK, SEGMENT_SIZE: "2"}),
            ),
            "a-0: ranks 0 to 1 are in ['r1', 'r2']",
        ),
    ],
)
def test_what_may_never_be_is_found(states: tuple[Object, ...], told: str) -> None:
    assert told in judged(*states, quota=2)


def test_an_eviction_is_a_violation_unless_somebody_more_important_came() -> None:
    evicted = placed_workload("a", "x1", Evicted="True")
    for reason, expected in (("Preempted", []), ("NodeFailures", ["a: was evicted: NodeFailures, "])):
        evicted["status"]["conditions"][-1] |= {"reason": reason, "message": ""}
        assert judged(evicted) == expected


def test_a_gang_may_not_stay_partial() -> None:
    started_at = (
        placed_workload("a", "x1", "x2"),
        ranked_pod("a", 0),
        ranked_pod("a", 1),
        ranked_pod("a", 0, "x1"),
    )
    assert not judged(*started_at, Seen(9, 30.0, ranked_pod("a", 1)))
    assert judged(*started_at, Seen(9, 40.0, ranked_pod("a", 1, "x2"))) == ["a: was partial for 36 s"]


def test_quota_of_pods_that_are_over_may_be_given_to_others_but_not_their_places() -> None:
    partly = placed_workload("a", "x1", "x2")
    partly["status"]["reclaimablePods"] = [{"name": "main", "count": 1}]
    assert not judged(partly, placed_workload("b", "x3"), quota=2)
    assert judged(partly, placed_workload("b", "x1", "x1"), quota=3) == [
        "x1: 3 of 2 nvidia.com/gpu are promised"
    ]


def test_a_gang_that_comes_back_needs_places_only_for_those_that_are_not_over() -> None:
    back = placed_workload("a", "x1", count=2)
    back["status"]["reclaimablePods"] = [{"name": "main", "count": 1}]
    assert not judged(back, ranked_pod("a", 1, "x1"))


def test_what_changed_while_nobody_watched_holds_nothing_until_it_is_seen_again() -> None:
    known, standing = placed_workload("a", "x1", "x1"), ranked_pod("a", 0, "x1")
    unseen = (Seen(3, 3.0, known, unsure=True), Seen(3, 3.0, standing, unsure=True))
    after = (Seen(4, 4.0, placed_workload("b", "x1", "x1")), Seen(9, 9.0, placed_workload("a", "x2", "x2")))
    assert not judged(known, standing, *unseen, *after)
    assert judged(known, standing, *unseen, *after, Seen(10, 10.0, placed_workload("c", "x2")))


def test_queues_of_a_cohort_have_one_purse() -> None:
    queues = [gpu_queue("q", 1, "all"), gpu_queue("r", 1, "all")]
    states = [
        Seen(1, 1.0, placed_workload("a", "x1", "x2")),
        Seen(2, 2.0, placed_workload("b", "x3", of="r")),
    ]
    assert not Checker(NODES, queues, 30.0).judge(states[:1])
    assert Checker(NODES, queues, 30.0).judge(states) == [
        "all: gave 3 of 2 nvidia.com/gpu (version 2, 2.0 s)"
    ]


def test_hosts_are_read_from_every_compact_form() -> None:
    several = placed_workload("a", "x1", "x2")
    part = several["status"]["admission"]["podSetAssignments"][0]
    values = [{"universal": "r1"}, {"universal": "x1"}]
    part["topologyAssignment"]["slices"] = [
        {"domainCount": 1, "valuesPerLevel": values, "podCounts": {"universal": 1}},
        {
            "domainCount": 1,
            "valuesPerLevel": [{"universal": "r1"}, {"individual": {"suffix": "2", "roots": ["x"]}}],
            "podCounts": {"individual": [1]},
        },
    ]
    assert not judged(several, ranked_pod("a", 0, "x1"), ranked_pod("a", 1, "x2"))


def test_what_is_left_at_the_end_is_told() -> None:
    done = [{"type": "Complete", "status": "True"}]
    zero = [{"name": "any", "resources": [{"name": GPU, "total": "0"}]}]
    some = [{"name": "any", "resources": [{"name": GPU, "total": "3"}]}]
    jobs = [{"kind": "Job", "metadata": {"name": "done"}, "status": {"conditions": done}}]
    calm = gpu_queue("q", 1, flavorsReservation=zero, flavorsUsage=zero, pendingWorkloads=0)
    over = ranked_pod("a", 0, "x1", phase="Succeeded")
    assert not [*left(jobs, [placed_workload("a", "x1", Finished="True")], [over], [calm])]
    stirred = gpu_queue("q", 1, flavorsReservation=some, flavorsUsage=zero, pendingWorkloads=2)
    jobs += [{"kind": "Job", "metadata": {"name": "open"}}]
    assert [
        *left(jobs, [placed_workload("b", "x1")], [ranked_pod("b", 0), ranked_pod("b", 1, "x1")], [stirred])
    ] == [
        "Job open is not complete",
        "Workload b is not finished",
        "Pod b-0 is gated",
        "Pod b-1 is Pending",
        "q: flavorsReservation is 3",
        "q: pendingWorkloads is 2",
    ]


def test_jobs_that_may_run_and_lack_pods_are_told() -> None:
    def owned(rank: int, phase: str = "Running") -> Object:
        made = ranked_pod("a", rank, "x1", phase=phase)
        made["metadata"]["ownerReferences"] = [{"uid": "uid-a"}]
        return made

    def told(*pods: Object, suspend: bool = False, **conditions: str) -> list[str]:
        states = [{"type": kind, "status": status} for kind, status in conditions.items()]
        job: Object = {"metadata": {"name": "a", "uid": "uid-a"}, "status": {"conditions": states}}
        job["spec"] = {"completions": 2, "suspend": suspend}
        return forgotten([job], pods)

    assert told(owned(0)) == ["a"]
    assert told(owned(0), leaving(owned(1))) == told(owned(0), owned(1, "Failed")) == ["a"]
    assert told(owned(0), owned(1, "Succeeded")) == []
    assert told(suspend=True) == told(Complete="True") == []
