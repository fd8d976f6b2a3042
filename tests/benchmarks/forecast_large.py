"""The time that one forecast takes in a large cluster: 1,000 waiting gangs on 5,000 nodes."""

from __future__ import annotations

import time

import numpy as np

from bayplan.model.gang import Locality
from bayplan.model.profile import Profile
from bayplan.simulation.forecast.calibration import Calibration
from bayplan.simulation.forecast.expected_starts import ForecastInput, expected_starts
from bayplan.simulation.forecast.run_times import RunRequest, RunTimeHistory
from bayplan.simulation.forecast.scheduling_picture import scheduled_picture
from bayplan.simulation.traces.cluster_shapes import RACK, parse_shape
from bayplan.simulation.traces.workload import GPU, TraceJob
from bayplan.simulation.virtual_time.our_engine import OurEngine

CLUSTER = "10x25x20 gpu=8"
WAITING = 1000
GOAL = 5.0
"""Seconds of CPU."""
SIZES = (1, 1, 2, 4, 8, 16, 32, 64)
"""Hosts of a gang."""


def large_forecast() -> tuple[str, bool]:
    """One row, and whether the goal is met."""
    random, profile = np.random.default_rng(42), Profile()
    engine = OurEngine(parse_shape(CLUSTER), profile)
    hosts, number = len(engine.nodes), 0
    while hosts > 0:
        pods = min(int(random.choice(SIZES)), hosts)
        engine.submit(TraceJob(f"runs-{number}", 0.0, None, {GPU: 8}, pods), 0.0)
        hosts, number = hosts - pods, number + 1
    engine.decide(0.0)
    for at in range(WAITING):
        pods = int(random.choice(SIZES))
        level = RACK if pods <= 16 and at % 3 == 0 else None
        job = TraceJob(f"waits-{at}", 1.0, None, {GPU: 8}, pods, locality=Locality(required=level))
        engine.submit(job, 1.0 + at / WAITING)
    began = time.process_time()
    found = scheduled_picture(engine.state, profile.keep_after_seconds, lambda ref: ref.name)
    limits = random.integers(600, 36_000, (len(found.running) + len(found.waiting),)).tolist()
    requests = [RunRequest("ns", limit=float(limit)) for limit in limits]
    count = len(found.running)
    asked = ForecastInput(
        found.picture, tuple(requests[:count]), np.zeros(count, np.float64), tuple(requests[count:])
    )
    starts = expected_starts(asked, RunTimeHistory(), Calibration(), 600.0)
    spent = time.process_time() - began
    known = sum(one.known for one in starts.values())
    met = spent <= GOAL and len(starts) == known == WAITING
    return (
        f"{WAITING:,} waiting gangs on {len(engine.nodes):,} nodes: {spent:.1f} s CPU (goal {GOAL:.0f});"
        f" {count:,} running gangs, {known:,} expected starts: {'met' if met else 'MISSED'}",
        met,
    )
