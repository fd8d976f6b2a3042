"""Bayplan agrees with the recorded answers of the real kube-scheduler for 2,000 random pods.

All of them: python -m tests.end_to_end.scheduler_oracle --again tests/end_to_end/scheduler_pairs_1.35.4.xz
"""

from __future__ import annotations

from dataclasses import replace
from itertools import islice
from pathlib import Path

from tests.end_to_end.scheduler_pairs import disagreement, kept

RECORDED = Path(__file__).parents[1] / "end_to_end" / "scheduler_pairs_1.35.4.xz"


def test_every_fifth_recorded_answer_is_that_of_bayplan() -> None:
    pairs = list(islice(kept(RECORDED), 0, None, 5))
    assert len(pairs) == 400
    differences = {pair.pod["metadata"]["name"]: disagreement(pair) for pair in pairs}
    assert {name: difference for name, difference in differences.items() if difference} == {}


def test_a_different_answer_would_be_noticed() -> None:
    for pair in islice(kept(RECORDED), 0, None, 50):
        nodes = [node["metadata"]["name"] for node in pair.world["nodes"]]
        if pair.told:
            assert disagreement(replace(pair, told=pair.told.replace("0/", "1/")))
            assert all(disagreement(replace(pair, told="", node=node)) for node in nodes)
        else:
            assert disagreement(replace(pair, node="", told="0/1 nodes are available: 1 Too many pods."))
