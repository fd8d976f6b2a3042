"""Messages of failed placements, in the exact words of Kueue."""

from __future__ import annotations

import pytest

from bayplan.dialects.kueue.status.misfit_messages import misfit_message, quoted
from bayplan.model.assignment import Code, Exclusions, LayerFit, Misfit

PODS = ("main",)


@pytest.mark.parametrize(
    ("misfit", "want"),
    [
        (
            Misfit(Code.NO_ROOM, PODS, topology="default", asked=4),
            'topology "default" doesn\'t allow to fit any of 4 pod(s)',
        ),
        (
            Misfit(Code.NO_ROOM, PODS, topology="default", fit=3, asked=4),
            'topology "default" allows to fit only 3 out of 4 pod(s)',
        ),
        (
            Misfit(Code.NO_ROOM, PODS, topology="default", fit=1, asked=2, unit=4),
            'topology "default" allows to fit only 1 out of 2 slice(s)',
        ),
        (
            Misfit(
                Code.NO_ROOM,
                PODS,
                topology="default",
                asked=4,
                excluded=Exclusions(
                    nodes=9,
                    selector=1,
                    affinity=2,
                    outside=1,
                    taints={"gpu=yes:NoSchedule": 2},
                    resources={"cpu": 2, "memory": 0},
                ),
            ),
            'topology "default" doesn\'t allow to fit any of 4 pod(s). Total nodes: 9; excluded: '
            'affinity: 2, nodeSelector: 1, resource "cpu": 2, '
            'taint "gpu=yes:NoSchedule": 2, topologyDomain: 1',
        ),
        (
            Misfit(
                Code.NO_ROOM,
                PODS,
                topology="default",
                asked=4,
                layers=(LayerFit("block", 1, 2), LayerFit("rack", 3, 4)),
                excluded=Exclusions(nodes=2, resources={"cpu": 1}),
            ),
            'topology "default" doesn\'t allow to fit; 1/2 slice(s) fit on level block; '
            '3/4 slice(s) fit on level rack. Total nodes: 2; excluded: resource "cpu": 1',
        ),
        (Misfit(Code.NO_DOMAINS, PODS, level="rack"), "no topology domains at level: rack"),
        (Misfit(Code.UNKNOWN_LEVEL, PODS, level="rack"), "no requested topology level: rack"),
        (Misfit(Code.UNKNOWN_LEVEL, PODS), "topology level not specified"),
        (
            Misfit(Code.UNKNOWN_SEGMENT_LEVEL, PODS, level="rack"),
            "no requested topology level for slices: rack",
        ),
        (
            Misfit(Code.UNKNOWN_INNER_LEVEL, PODS, level="rack"),
            "no requested topology level for additional slice layer: rack",
        ),
        (
            Misfit(Code.SEGMENT_ABOVE_LOCALITY, PODS, level="block", other_level="rack"),
            "podset slice topology block is above the podset topology rack",
        ),
        (
            Misfit(Code.SEGMENT_SIZE_MISSING, PODS),
            "slice topology requested, but slice size not provided",
        ),
        (
            Misfit(Code.INNER_LEVEL_NOT_LOWER, PODS, level="block", other_level="rack"),
            "additional slice layer topology block must be at a lower level than rack",
        ),
        (
            Misfit(Code.INNER_SIZE_NOT_DIVISOR, PODS, sizes=(3, 4)),
            "additional slice layer size 3 must evenly divide parent layer size 4",
        ),
        (
            Misfit(Code.STALE_ASSIGNMENT, PODS, domain="x1"),
            "Cannot replace the node, because the existing topologyAssignment is invalid, "
            "as it contains the stale domain x1",
        ),
        (
            Misfit(Code.NO_REPLACEMENT, PODS, domain="x1"),
            "cannot find replacement assignment for unhealthy node: x1",
        ),
    ],
)
def test_sentences(misfit: Misfit, want: str) -> None:
    assert misfit_message(misfit) == want


def test_every_code_has_a_sentence() -> None:
    for code in Code:
        assert misfit_message(Misfit(code, PODS))


@pytest.mark.parametrize(
    ("text", "want"),
    [
        ("plain", '"plain"'),
        ('say "hi"\\', '"say \\"hi\\"\\\\"'),
        ("a\n\t\x00\x7f", '"a\\n\\t\\x00\\x7f"'),
        ("é\u00a0\u2028", '"é\\u00a0\\u2028"'),
        ("\U0001f600\U000e0001", '"\U0001f600\\U000e0001"'),
    ],
)
def test_quotes_and_escapes(text: str, want: str) -> None:
    assert quoted(text) == want
