"""Why a gang is not admitted: messages and reasons that tools parse, and details for users."""

from __future__ import annotations

import pytest

from bayplan.dialects.kube.fields.quantity import formatted
from bayplan.dialects.kueue.status.rejection_messages import (
    details,
    flavors_considered,
    for_condition,
    for_event,
    reason,
    rejection_message,
)
from bayplan.model.assignment import Code, Exclusions, LayerFit, Misfit, NearMiss, Oversized
from bayplan.model.node_rules import Taint
from bayplan.model.rejection import (
    AdmissionRemark,
    FlavorAttempt,
    FlavorMode,
    Obstacle,
    ObstacleKind,
    PodSetAttempts,
    Rejection,
    RejectionReason,
)
from tests.support.reasons import ADMISSION_REASONS

NO_FIT = Misfit(
    Code.NO_ROOM, ("one",), "tas-single-level", asked=1, excluded=Exclusions(1, resources={"cpu": 1})
)
NO_FIT_TEXT = (
    "couldn't assign flavors to pod set one: topology \"tas-single-level\" doesn't allow to fit any of 1 "
    'pod(s). Total nodes: 1; excluded: resource "cpu": 1'
)
HALF = Misfit(Code.NO_ROOM, ("one",), "tas-single-level", fit=1, asked=2)
LAYERS = Misfit(
    Code.NO_ROOM,
    ("one",),
    "tas-three-level",
    layers=(LayerFit("cloud.provider.com/rack", 0, 1), LayerFit("kubernetes.io/hostname", 2, 3)),
)


def one(*obstacles: Obstacle | Misfit, fatal: Obstacle | None = None) -> tuple[PodSetAttempts, ...]:
    return (PodSetAttempts("one", obstacles, fatal),)


def short(resource: str, amount: int, flavor: str = "tas-default") -> Obstacle:
    return Obstacle(ObstacleKind.SHORT, flavor, resource, amounts=(amount,))


@pytest.mark.parametrize(
    ("refusal", "want"),
    [
        (Rejection(RejectionReason.NO_PLACE, tried=one(NO_FIT)), NO_FIT_TEXT),
        (
            Rejection(
                RejectionReason.VICTIMS_LEAVING,
                remark=AdmissionRemark.PREEMPTING,
                tried=one(NO_FIT),
                victims=1,
            ),
            f"{NO_FIT_TEXT}. Pending the preemption of 1 workload(s)",
        ),
        (
            Rejection(
                RejectionReason.VICTIMS_LEAVING, remark=AdmissionRemark.PREEMPTING, tried=one(HALF), victims=1
            ),
            'couldn\'t assign flavors to pod set one: topology "tas-single-level" allows to fit only 1 out '
            "of 2 pod(s). Pending the preemption of 1 workload(s)",
        ),
        (
            Rejection(RejectionReason.NO_PLACE, tried=one(LAYERS)),
            "couldn't assign flavors to pod set one: topology \"tas-three-level\" doesn't allow to fit; "
            "0/1 slice(s) fit on level cloud.provider.com/rack; "
            "2/3 slice(s) fit on level kubernetes.io/hostname",
        ),
        (
            Rejection(
                RejectionReason.NO_QUOTA_NOW,
                remark=AdmissionRemark.PREEMPTION_FAILED,
                tried=one(short("cpu", 3000)),
                victims=2,
            ),
            "couldn't assign flavors to pod set one: insufficient unused quota for cpu in flavor "
            "tas-default, 3 more needed. Preempting 2 workload(s) failed, will retry.",
        ),
        (
            Rejection(
                RejectionReason.VICTIMS_LEAVING,
                remark=AdmissionRemark.PREEMPTING,
                tried=one(short("memory", 5 << 30)),
                victims=2,
            ),
            "couldn't assign flavors to pod set one: insufficient unused quota for memory in flavor "
            "tas-default, 5Gi more needed. Pending the preemption of 2 workload(s)",
        ),
        (
            Rejection(
                RejectionReason.NEVER_ENOUGH_QUOTA,
                tried=one(Obstacle(ObstacleKind.TOO_MUCH, "credits", "cpu_credits", amounts=(0, 2, 1))),
            ),
            "couldn't assign flavors to pod set one: insufficient quota for cpu_credits in flavor credits, "
            "previously considered podsets requests (0) + current podset request (2) > maximum capacity (1)",
        ),
        (
            Rejection(
                RejectionReason.NO_FLAVOR, tried=one(Obstacle(ObstacleKind.LEVEL_MISSING, "tas-default"))
            ),
            "couldn't assign flavors to pod set one: "
            'Flavor "tas-default" does not contain the requested level',
        ),
        (
            Rejection(
                RejectionReason.NO_FLAVOR,
                tried=(
                    PodSetAttempts("a", (short("memory", 1 << 20), short("cpu", 500))),
                    PodSetAttempts("fits"),
                    PodSetAttempts("b", (Obstacle(ObstacleKind.NOT_COVERED, resource="gpu"),)),
                ),
            ),
            "couldn't assign flavors to pod set a: insufficient unused quota for cpu in flavor tas-default, "
            "500m more needed, insufficient unused quota for memory in flavor tas-default, 1Mi more needed; "
            "couldn't assign flavors to pod set b: resource gpu unavailable in ClusterQueue",
        ),
        (
            Rejection(
                RejectionReason.NO_FLAVOR,
                tried=(
                    PodSetAttempts("a", (short("cpu", 1),)),
                    PodSetAttempts(
                        "b", fatal=Obstacle(ObstacleKind.SEVERAL_TOPOLOGY_FLAVORS, flavors=("x", "y"))
                    ),
                ),
            ),
            "failed to assign flavors to pod set b: more than one TAS flavor assigned: x, y",
        ),
        (
            Rejection(RejectionReason.NO_QUOTA_NOW, remark=AdmissionRemark.OVERTAKEN, tried=one(NO_FIT)),
            "Workload no longer fits after processing another workload",
        ),
        (
            Rejection(RejectionReason.NO_QUOTA_NOW, remark=AdmissionRemark.SAME_VICTIMS),
            "Workload has overlapping preemption targets with another workload",
        ),
        (
            Rejection(RejectionReason.VICTIMS_LEAVING, remark=AdmissionRemark.SAME_VICTIMS_WILL_FIT),
            "Workload has overlapping preemption targets with another workload, but will fit after these "
            "preemptions complete",
        ),
        (
            Rejection(RejectionReason.CLOSED, remark=AdmissionRemark.QUEUE_INACTIVE, queue="cq"),
            "ClusterQueue cq is inactive",
        ),
        (
            Rejection(RejectionReason.MISCONFIGURED, remark=AdmissionRemark.QUEUE_MISSING, queue="cq"),
            "ClusterQueue cq not found",
        ),
        (
            Rejection(RejectionReason.MISCONFIGURED, remark=AdmissionRemark.NAMESPACE),
            "workload namespace doesn't match ClusterQueue selector",
        ),
        (
            Rejection(
                RejectionReason.MISCONFIGURED, remark=AdmissionRemark.NAMESPACE_QUEUE_MISSING, queue="lq"
            ),
            "LocalQueue lq doesn't exist",
        ),
        (
            Rejection(RejectionReason.CLOSED, remark=AdmissionRemark.NAMESPACE_QUEUE_STOPPED, queue="lq"),
            "LocalQueue lq is inactive",
        ),
    ],
)
def test_rejections_have_the_exact_words(refusal: Rejection, want: str) -> None:
    assert rejection_message(refusal) == want


@pytest.mark.parametrize(
    ("obstacle", "want"),
    [
        (
            Obstacle(ObstacleKind.TAINT, "flavor-a", taint=Taint("example.com/flavor", "a", "NoSchedule")),
            "untolerated taint {example.com/flavor a NoSchedule <nil>} in flavor flavor-a",
        ),
        (Obstacle(ObstacleKind.AFFINITY, "spot"), "flavor spot doesn't match node affinity"),
        (Obstacle(ObstacleKind.FLAVOR_UNKNOWN, "spot"), "flavor spot not found"),
        (
            Obstacle(ObstacleKind.WITHOUT_TOPOLOGY, "a"),
            'Flavor "a" does not support TopologyAwareScheduling',
        ),
        (Obstacle(ObstacleKind.ONLY_TOPOLOGY, "a"), 'Flavor "a" supports only TopologyAwareScheduling'),
        (Obstacle(ObstacleKind.TOPOLOGY_UNKNOWN, "a"), 'Flavor "a" information missing in TAS cache'),
        (
            Obstacle(ObstacleKind.NOT_NOMINATED, "a", "cpu"),
            "skipping flavor a as it is not found in the nomination mapping for resource cpu",
        ),
        (
            Obstacle(ObstacleKind.OTHER_FLAVOR_BEFORE, "a", "cpu", flavors=("b",)),
            "could not assign a flavor since the original workload is assigned: b",
        ),
        (Obstacle(ObstacleKind.NO_TOPOLOGY_FLAVOR), "no TAS flavor assigned"),
        (
            Obstacle(ObstacleKind.NO_TOPOLOGY_AT_ALL),
            "workload requires Topology, but there is no TAS cache information",
        ),
        (
            Obstacle(ObstacleKind.GROWS_AND_REQUIRES),
            "required topology is not supported with ElasticJobsViaWorkloadSlices",
        ),
        (
            Obstacle(ObstacleKind.GROWS_AND_PREFERS),
            "preferred topology is not supported with ElasticJobsViaWorkloadSlices",
        ),
    ],
)
def test_every_obstacle_has_its_message(obstacle: Obstacle, want: str) -> None:
    assert rejection_message(Rejection(RejectionReason.NO_FLAVOR, tried=one(obstacle))).endswith(f": {want}")


@pytest.mark.parametrize("token", ADMISSION_REASONS)
def test_every_token_has_a_reason(token: RejectionReason) -> None:
    assert reason(token).isalpha()


@pytest.mark.parametrize("remark", AdmissionRemark)
def test_every_remark_has_a_message(remark: AdmissionRemark) -> None:
    assert rejection_message(
        Rejection(
            RejectionReason.NO_QUOTA_NOW, remark=remark, tried=one(NO_FIT), victims=1, queue="cq", about="why"
        )
    )


def test_flavors_that_fit_without_borrowing_are_not_reported() -> None:
    assert flavors_considered((PodSetAttempts("one", attempts=(FlavorAttempt("a", FlavorMode.FIT),)),)) == ""


def test_flavors_considered_are_reported_with_mode_borrowing_and_obstacles() -> None:
    spent = (short("memory", 100 << 20, "a"), short("cpu", 100, "a"))
    attempts = (
        FlavorAttempt("a", FlavorMode.NO_VICTIMS, 0, spent, preemption_mode=FlavorMode.NO_VICTIMS),
        FlavorAttempt("b", FlavorMode.FIT, 1),
        FlavorAttempt(
            "c", FlavorMode.NONE, 0, (Obstacle(ObstacleKind.LEVEL_MISSING, "c"),), RejectionReason.NO_FLAVOR
        ),
    )
    told = flavors_considered(
        (PodSetAttempts("one", attempts=attempts), PodSetAttempts("two", attempts=attempts[1:2]))
    )
    assert told == (
        "one: a(preemptionMode=NoCandidates;insufficient unused quota for cpu in flavor a, 100m more needed;"
        "insufficient unused quota for memory in flavor a, 100Mi more needed), b(Fit;borrow=1), "
        'c(NoFit;Flavor "c" does not contain the requested level) | two: b(Fit;borrow=1)'
    )


@pytest.mark.parametrize(
    ("amount", "cpu", "memory", "device"),
    [
        (0, "0", "0", "0"),
        (1, "1m", "1", "1"),
        (1000, "1", "1k", "1k"),
        (1024, "1024m", "1Ki", "1024"),
        (1500, "1500m", "1500", "1500"),
        (2000, "2", "2000", "2k"),
        (2500000, "2500", "2500000", "2500k"),
        (10468982784, "10468982784m", "9984Mi", "10468982784"),
        (5368709120, "5368709120m", "5Gi", "5368709120"),
        (-2048, "-2048m", "-2Ki", "-2048"),
        (5 * 10**18, "5P", "4882812500000000Ki", "5E"),
    ],
)
def test_amounts_are_spelled_as_the_api_spells_them(amount: int, cpu: str, memory: str, device: str) -> None:
    assert formatted("cpu", amount) == cpu
    assert formatted("memory", amount) == formatted("hugepages-2Mi", amount) == memory
    assert formatted("nvidia.com/gpu", amount) == device


NONE_EXCLUDED = Exclusions()
NEAR = NearMiss(("block-1", "rack-2"), "example.com/rack", 3, 2, "nvidia.com/gpu", 16)


def refused(near: NearMiss | None, excluded: Exclusions = NONE_EXCLUDED, unit: int = 1) -> Rejection:
    misfit = Misfit(
        Code.NO_ROOM, ("one",), "default", fit=3, asked=5, unit=unit, excluded=excluded, nearest=near
    )
    return Rejection(RejectionReason.NO_PLACE, tried=one(misfit))


def test_details_name_the_nearest_domain_its_shortage_its_gangs_and_a_fix() -> None:
    assert details(refused(NEAR), ["team/c", "team/a", "team/b", "team/d", "team/a"]) == (
        "Closest is example.com/rack block-1/rack-2: 3 of 5 pod(s) fit, limited by nvidia.com/gpu: 16 "
        "more needed. Held there by team/a, team/b, team/c and 1 more. To be admitted: free or add 16 "
        "nvidia.com/gpu there, or ask for 3 pod(s)."
    )


def test_details_of_a_pod_larger_than_any_node_name_the_largest() -> None:
    near = NearMiss((), "", 0, 4, "cpu", 20000)
    misfit = Misfit(
        Code.NO_ROOM, ("one",), "default", asked=4, nearest=near,
        oversized=Oversized("one", "n7", (("cpu", 5000, 4000), ("nvidia.com/gpu", 8, 0))),
    )  # fmt: skip
    assert details(Rejection(RejectionReason.NO_PLACE, tried=one(misfit)), ["team/a"]) == (
        "No node that it may use is large enough for one pod of one: the largest, n7, has 4 of 5 cpu and "
        "0 of 8 nvidia.com/gpu. To be admitted: ask for less in each pod, or add larger nodes."
    )


def test_details_report_taints_and_selectors_that_exclude_nodes() -> None:
    near = NearMiss((), "", 0, 4, "cpu", 4000)
    tainted = details(refused(near, Exclusions(9, taints={"gpu:NoSchedule": 4, "x:NoSchedule": 1})))
    assert tainted.startswith("Closest is the whole topology: 0 of 4 pod(s) fit, limited by cpu: 4 more")
    assert tainted.endswith("free or add 4 cpu there, or tolerate the taint gpu:NoSchedule of 4 node(s).")
    selected = details(refused(near, Exclusions(9, selector=2, affinity=1)))
    assert selected.endswith("or loosen the node selector or affinity that 3 node(s) miss.")


def test_details_do_not_blame_a_resource_where_no_node_is_eligible() -> None:
    near = NearMiss((), "", 0, 1, "cpu", 1000)
    assert details(refused(near, Exclusions(2, affinity=1, selector=1))) == (
        "Closest is the whole topology: 0 of 1 pod(s) fit. "
        "To be admitted: loosen the node selector or affinity that 2 node(s) miss."
    )


def test_details_are_given_only_if_the_placement_is_the_only_obstacle() -> None:
    no_quota = Obstacle(ObstacleKind.SHORT, "default", "cpu", amounts=(1000,))
    waiting = Rejection(RejectionReason.NO_QUOTA_NOW, tried=(*refused(NEAR).tried, *one(no_quota)))
    assert details(waiting) == details(refused(None)) == details(Rejection(RejectionReason.NO_PLACE)) == ""


def test_details_are_given_if_a_gang_would_fit_after_preemption() -> None:
    held = Rejection(RejectionReason.NO_QUOTA_NOW, tried=refused(NEAR).tried)
    assert details(held, ["team/a"]) == details(refused(NEAR), ["team/a"])


def test_details_count_slices_if_pods_are_placed_in_slices() -> None:
    assert "3 of 5 pod(s) fit, in whole slices of 4," in details(refused(NEAR, unit=4))


def test_long_messages_are_cut_to_the_limits_of_the_api() -> None:
    assert for_event("x" * 1024) == "x" * 1024
    assert for_event("x" * 1025) == "x" * 1020 + " ..."
    assert for_condition("x" * 40_000) == "x" * (32 * 1024 - 4) + " ..."
    assert len(for_event("é" * 1000).encode()) <= 1024
