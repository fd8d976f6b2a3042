"""Messages about pods that fit on no node."""

from __future__ import annotations

import pytest

from bayplan.dialects.kube.encode.filter_messages import (
    NO_CLAIMS,
    NO_HELP,
    NO_VICTIMS,
    node_reason,
    preemption_message,
    unavailable,
)
from bayplan.model.filter_failure import FilterFailure, FilterReason, PodError
from bayplan.model.numa import AlignmentTarget as ZoneCause


def test_reasons_are_sorted_as_text_with_their_numbers() -> None:
    counts = {
        (FilterReason.TAINT, ""): 3,
        (FilterReason.INSUFFICIENT, "cpu"): 12,
        (FilterReason.INSUFFICIENT, "pods"): 2,
    }
    assert unavailable(FilterFailure(15, counts)) == (
        "0/15 nodes are available: 12 Insufficient cpu, 2 Too many pods, 3 node(s) had untolerated taint(s)."
    )


def test_the_result_of_preemption_comes_last() -> None:
    afterwards = f"{NO_CLAIMS}, {preemption_message(1, {NO_VICTIMS: 1})}"
    assert unavailable(FilterFailure(1, {(FilterReason.INSUFFICIENT, "cpu"): 1}), afterwards) == (
        "0/1 nodes are available: 1 Insufficient cpu. no new claims to deallocate, "
        "preemption: 0/1 nodes are available: 1 No preemption victims found for incoming pod."
    )
    assert preemption_message(5, {NO_VICTIMS: 2, NO_HELP: 3}) == (
        "preemption: 0/5 nodes are available: 2 No preemption victims found for incoming pod, "
        "3 Preemption is not helpful for scheduling."
    )


def test_a_cluster_without_nodes() -> None:
    assert unavailable(FilterFailure(0)) == "no nodes available to schedule pods"


@pytest.mark.parametrize(
    ("bar", "about", "told"),
    [
        (PodError.CLAIM_MISSING, ("data",), 'persistentvolumeclaim "data" not found'),
        (
            PodError.CLAIM_PENDING,
            ("p-data",),
            'waiting for ephemeral volume controller to create the persistentvolumeclaim "p-data"',
        ),
        (
            PodError.CLAIM_LOST,
            ("data", "pv"),
            'persistentvolumeclaim "data" bound to non-existent persistentvolume "pv"',
        ),
        (PodError.CLAIM_UNBOUND, (), "pod has unbound immediate PersistentVolumeClaims"),
        (PodError.CLAIM_FOREIGN, ("a/c", "a/p"), "PVC a/c was not created for pod a/p (pod is not owner)"),
    ],
)
def test_errors_of_the_pod_itself(bar: PodError, about: tuple[str, ...], told: str) -> None:
    assert unavailable(FilterFailure(4, {}, bar, about)) == f"0/4 nodes are available: {told}."


def test_there_is_a_message_for_every_reason_and_pod_error() -> None:
    assert all(node_reason((found, "cpu")) for found in FilterReason if found is not FilterReason.UNALIGNED)
    assert all(node_reason((FilterReason.UNALIGNED, part.value)) for part in ZoneCause)
    assert all(unavailable(FilterFailure(1, {}, bar, ("a", "b"))) for bar in PodError)
