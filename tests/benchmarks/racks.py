"""`python -m tests.benchmarks.racks`: how many slots stay whole within racks, by the order of hosts.

Gangs are drawn from the sizes and run times of two sites (Helios, and Seren of Acme), on the 119 racks of
Lingjun with 8 GPUs a host. Of the gangs that fit a rack one third requires one, one third prefers one, and
the rest names none, as larger gangs do. Gangs are capped at 256 GPUs, run times at 20,000 s, and gangs of
several hosts run four times as long, so that the cluster fills. The policies `bayplan*` are the scheduler
with one order of nodes each; `best-fit` and `spread` look at hosts only, except for required racks.

Traces are looked for in `../shared/traces`, or where BAYPLAN_TRACES says; without them nothing is measured.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from bayplan.model.gang import Locality
from bayplan.model.node import Node
from bayplan.model.profile import Profile
from bayplan.runtime.process.gc_tuning import collect_rarely
from bayplan.simulation.reports.figures import figures
from bayplan.simulation.traces.cluster_shapes import RACK
from bayplan.simulation.traces.workload import GPU, Trace, TraceJob
from bayplan.simulation.virtual_time.policies import known_policies
from bayplan.simulation.virtual_time.virtual_run import RunSettings, VirtualRun
from tests.benchmarks.acme_load import drawn_gangs, lingjun_hosts, traces_folder

WORKLOADS = (("Helios", 0.95), ("Helios", 1.5), ("Seren", 0.95), ("Seren", 1.5))
POLICIES = ("bayplan", "bayplan-pack", "bayplan-spread", "best-fit", "spread")


def drawn(folder: Path, nodes: tuple[Node, ...], mix: str, load: float, jobs: int, seed: int) -> Trace:
    """The workload, with required and preferred racks."""
    bounds = ("largest: 256", "longest: 20000", "long_gangs: 4")
    trace = drawn_gangs(folder, nodes, jobs, load, seed, *bounds, site=mix)
    largest = max(_rack_sizes(nodes).values())
    kinds = np.random.default_rng([seed, 3]).integers(0, 3, len(trace.jobs)).tolist()
    found = [_with_rack(job, kind, largest) for job, kind in zip(trace.jobs, kinds, strict=True)]
    return replace(trace, jobs=tuple(found))


def _rack_sizes(nodes: Sequence[Node]) -> dict[str, int]:
    sizes: dict[str, int] = {}
    for node in nodes:
        sizes[node.labels[RACK]] = sizes.get(node.labels[RACK], 0) + node.allocatable[GPU]
    return sizes


def _with_rack(job: TraceJob, kind: int, largest: int) -> TraceJob:
    if job.pods == 1 or job.gpus > largest:
        return job
    return replace(job, locality=(Locality(), Locality(preferred=RACK), Locality(required=RACK))[kind])


def measured(nodes: tuple[Node, ...], trace: Trace, policy: str, seed: int) -> tuple[dict[str, Any], float]:
    """The figures of one policy, and the seconds of CPU that the run took."""
    began = time.process_time()
    scheduler = known_policies(Profile())[policy].scheduler(nodes, seed, trace.jobs)
    outcome = VirtualRun(policy, nodes, trace, scheduler, RunSettings()).run(lambda arrived, total: None)
    return figures(outcome), time.process_time() - began


def line(found: dict[str, Any], seconds: float) -> str:
    """One row: slots within racks and anywhere, gangs across racks, mean waits by size."""
    slots = "  ".join(
        f"{size}: {each['inRacks']:.1f}/{each['anywhere']:.1f}" for size, each in found["freeSlots"].items()
    )
    waits = "  ".join(f"{size}: {each['mean'] or 0:.0f}" for size, each in found["bySize"].items())
    return (
        f"  {found['policy']:<15} {found['allocatedMean']:>6.1%}  {slots}"
        f"  across {found['gangsAcrossRacks']:.0%}  wait {waits}  ({seconds:.0f} s)"
    )


def main() -> int:
    """Measure what was asked for."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--policy", action="append", choices=list(known_policies(Profile())))
    parser.add_argument("--mix", action="append", choices=sorted({mix for mix, _ in WORKLOADS}))
    parser.add_argument("--load", action="append", type=float, help="GPU-hours asked for / those there are")
    parser.add_argument("--jobs", type=int, default=20_000)
    parser.add_argument("--seed", type=int, default=42)
    asked = parser.parse_args()
    folder = traces_folder()
    if folder is None:
        return 2
    collect_rarely()
    nodes = lingjun_hosts(folder)
    good = True
    for mix, load in WORKLOADS:
        if (asked.mix and mix not in asked.mix) or (asked.load and load not in asked.load):
            continue
        trace = drawn(folder, nodes, mix, load, asked.jobs, asked.seed)
        print(f"{mix}, load {load}, {asked.jobs:,} gangs", flush=True)
        slots: dict[str, float] = {}
        for policy in asked.policy or POLICIES:
            found, seconds = measured(nodes, trace, policy, asked.seed)
            slots[policy] = found["freeSlots"]["64"]["inRacks"]
            print(line(found, seconds), flush=True)
        if "bayplan" in slots:
            good &= slots["bayplan"] == max(slots.values())
            others = [
                f"{slots['bayplan'] / max(count, 0.05):.1f} x {policy}"
                for policy, count in slots.items()
                if policy != "bayplan"
            ]
            print(f"  64-GPU slots within racks: {', '.join(others)}", flush=True)
    print(
        "allocated; gangs of so many GPUs that would fit besides, each within a rack/anywhere; gangs across"
        "\nracks; mean wait in seconds by GPUs; CPU seconds. Exit status 1 unless the order of"
        "\n`bayplan` leaves the most 64-GPU slots within racks."
    )
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
