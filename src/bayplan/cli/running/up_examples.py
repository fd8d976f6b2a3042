"""The example jobs of `bayplan up`: every kind of topology request, and some that stay pending."""

from __future__ import annotations

from dataclasses import dataclass

from bayplan.assembly.local_cluster import ClusterShape
from bayplan.backends.fake_controllers.manifests import BLOCK, RACK, Object, job
from bayplan.dialects.kueue.names.annotations import PREFERRED, REQUIRED, SEGMENT_LEVEL, SEGMENT_SIZE


@dataclass(frozen=True, slots=True)
class TimedJob:
    """A job, and how many seconds after the start it is submitted."""

    after: float
    job: Object


def example_mix(shape: ClusterShape) -> list[TimedJob]:
    """Jobs sized to the cluster: one fills a rack, some fill a block, the last two cannot start at once."""
    rack, block = shape.hosts, shape.hosts * shape.racks
    full = shape.gpus
    mix = [
        (0.5, "pretrain", rack, full, {REQUIRED: RACK}, 9),
        (1.0, "finetune", max(rack // 2, 1), full, {PREFERRED: RACK}, 7),
        (1.5, "sweep", 2 * rack, 1, {}, 6),
        (2.0, "pipeline", 2 * rack, full, {REQUIRED: BLOCK, SEGMENT_LEVEL: RACK, SEGMENT_SIZE: str(rack)}, 8),
        (2.5, "evaluate", 3, 2, {}, 5),
        (3.0, "flagship", block, full, {REQUIRED: BLOCK}, 6),
        (3.2, "second-fleet", block, full, {REQUIRED: BLOCK}, 8),
        (3.4, "third-fleet", block, full, {REQUIRED: BLOCK}, 8),
        (4.0, "patient", max(block - rack, 1), full, {REQUIRED: BLOCK}, 4),
        (4.5, "giant", block + 1, full, {REQUIRED: BLOCK}, 4),
    ]
    return [TimedJob(after, job(name, *rest)) for after, name, *rest in mix]  # type: ignore[arg-type]
