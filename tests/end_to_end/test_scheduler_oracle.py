"""The real kube-scheduler and Bayplan agree on where a pod fits, where it fits best, and why it does not."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from tests.end_to_end.scheduler_oracle import pairs
from tests.end_to_end.scheduler_pairs import disagreement, keeping, kept
from tests.support.missing_parts import lacking
from tools.controlplane.build import unavailable
from tools.controlplane.plan import SCHEDULER

if TYPE_CHECKING:
    from tools.controlplane.cluster import Cluster

PAIRS = 100


def test_a_hundred_random_pods_fare_alike(cluster: Cluster, tmp_path: Path) -> None:
    if reason := unavailable(cluster.kube, (SCHEDULER,)):
        lacking(reason)
    asked = list(keeping(tmp_path / "pairs.xz", pairs(cluster, PAIRS)))
    told = [f"{pair.pod['metadata']['name']}: {disagreement(pair)}" for pair in asked if disagreement(pair)]
    assert told == []
    assert min(sum(bool(pair.node) for pair in asked), sum(bool(pair.told) for pair in asked)) >= PAIRS // 5
    assert list(kept(tmp_path / "pairs.xz")) == asked
