"""The jobs that `bayplan up` submits: every kind of wish, and one that has to wait."""

from __future__ import annotations

from dataclasses import dataclass

from bayplan.assembly.local_cluster import ClusterShape
from bayplan.backends.fake_controllers.manifests import BLOCK, RACK, Object, job
from bayplan.dialects.kueue.names.annotations import PREFERRED, REQUIRED, SEGMENT_LEVEL, SEGMENT_SIZE


@dataclass(frozen=True, slots=True)
class TimedJob:
    """A job and the moment, in seconds after the start, when it comes."""

    after: float
    job: Object


def example_mix(shape: ClusterShape) -> list[TimedJob]:
    """Sized to the cluster: a rack is filled, a block is filled, and the last job needs what is in use."""
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
