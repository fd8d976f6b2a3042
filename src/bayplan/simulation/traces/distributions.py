"""Draws a workload from distributions: sizes and run times by cumulative shares, arrivals by load.

The file is YAML:

    sizes: {1: 54.0, 2: 65.4, 4: 67.9, 8: 96.7, 64: 100}     # GPUs → per cent of jobs of at most that size
    durations: {file: cdf_duration.csv, trace: Seren, what: gpu_jobs}
    jobs: 10000
    load: 0.9                                                # GPU-hours asked for / GPU-hours of the cluster

A distribution is written down, or named in a CSV file with the columns trace, what, a quantity, cdf_percent.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Any

from bayplan.dialects.kube.fields.bounded_yaml import UnreadableYAML, bounded_yaml
from bayplan.model.gang import Locality
from bayplan.simulation.traces.trace_file import NUMBER_MAX, TraceError, lines, table
from bayplan.simulation.traces.workload import GPU, Trace, TraceJob, equal_pods

FIELDS = {"sizes", "durations", "jobs", "load", "largest", "longest", "long_gangs", "required", "preferred"}
FIELDS_NEEDED = ("sizes", "durations", "jobs", "load")
JOBS_MAX = 2_000_000
COMPLETE = 100.0


@dataclass(frozen=True, slots=True)
class Distribution:
    """Values with the per cent of all draws that are at most that large; both ascending, ending at 100."""

    values: tuple[float, ...]
    percents: tuple[float, ...]

    def __post_init__(self) -> None:
        assert len(self.values) == len(self.percents) > 0, self

    def draw(self, random: Random, smooth: bool) -> float:
        """A value; if smooth, between the value drawn and the one below it, evenly on a logarithmic scale."""
        percent = random.random() * self.percents[-1]
        at = bisect_left(self.percents, percent)
        high = self.values[at]
        low, before = (self.values[at - 1], self.percents[at - 1]) if at else (high, 0.0)
        if not smooth or low <= 0 or low == high:
            return high
        return math.exp(
            math.log(low)
            + (math.log(high) - math.log(low)) * (percent - before) / (self.percents[at] - before)
        )


@dataclass(frozen=True, slots=True)
class DrawnWorkload:
    """What to draw."""

    source: str
    sizes: Distribution
    durations: Distribution
    jobs: int
    load: float
    largest: int = 0  # larger sizes are drawn again; 0: no bound
    longest: float = 0.0  # longer run times are cut; 0: no bound
    long_gangs: float = 1.0  # the run times of jobs of several pods are this many times longer
    locality: Locality = field(default_factory=Locality)  # of jobs of several pods


def read_spec(path: str) -> DrawnWorkload:
    """The description of a workload. Raises TraceError."""
    try:
        found = bounded_yaml("\n".join(line for _, line in lines(path)))
    except UnreadableYAML as error:
        raise TraceError(path, error.line or None, "it is not valid YAML") from None
    if not isinstance(found, dict):
        raise TraceError(path, None, f"give a mapping with {', '.join(FIELDS_NEEDED)}")
    if unknown := sorted(map(str, found.keys() - FIELDS)):
        raise TraceError(path, None, f"there is no field {unknown[0]}; fields: {', '.join(sorted(FIELDS))}")
    if missing := [name for name in FIELDS_NEEDED if name not in found]:
        raise TraceError(path, None, f"the field {missing[0]} is missing")
    if "required" in found and "preferred" in found:
        raise TraceError(path, None, "give required or preferred, not both")
    for level in ("required", "preferred"):
        if not isinstance(found.get(level, ""), str):
            raise TraceError(path, None, f"{level} is {found[level]!r}; give the node label of a level")
    return DrawnWorkload(
        source=path,
        sizes=_distribution(path, "sizes", found["sizes"]),
        durations=_distribution(path, "durations", found["durations"]),
        jobs=int(_number(path, found, "jobs", 1, JOBS_MAX)),
        load=_number(path, found, "load", 0.001, 100),
        largest=int(_number(path, found, "largest", 0, NUMBER_MAX)),
        longest=_number(path, found, "longest", 0, NUMBER_MAX),
        long_gangs=_number(path, found, "long_gangs", 0.001, 1000, 1.0),
        locality=Locality(found.get("required"), found.get("preferred")),
    )


def draw(spec: DrawnWorkload, capacity: int, gpus_per_pod: int, seed: int) -> Trace:
    """The jobs of one seed: arrivals at random, so that the jobs ask for `load` times the capacity."""
    assert capacity >= 1, capacity
    random = Random(seed)
    sizes = [_size(spec, random) for _ in range(spec.jobs)]
    times = [_seconds(spec, random, size > gpus_per_pod) for size in sizes]
    asked = sum(size * seconds for size, seconds in zip(sizes, times, strict=True))
    gap = asked / (spec.load * capacity) / spec.jobs
    jobs, now = [], 0.0
    for number, (size, seconds) in enumerate(zip(sizes, times, strict=True)):
        pods, each = equal_pods(size, gpus_per_pod)
        locality = spec.locality if pods > 1 else Locality()
        jobs.append(TraceJob(f"job-{number:06d}", now, seconds, {GPU: each}, pods, locality=locality))
        now += random.expovariate(1.0) * gap
    return Trace(f"{spec.source} (seed {seed})", tuple(jobs))


def _size(spec: DrawnWorkload, random: Random) -> int:
    smallest = max(int(spec.sizes.values[0]), 1)
    for _ in range(10_000):
        size = max(int(spec.sizes.draw(random, smooth=False)), 1)
        if not spec.largest or size <= max(spec.largest, smallest):
            return size
    return smallest


def _seconds(spec: DrawnWorkload, random: Random, gang: bool) -> float:
    seconds = spec.durations.draw(random, smooth=True)
    seconds = min(seconds, spec.longest) if spec.longest else seconds
    return round(max(seconds, 1.0) * (spec.long_gangs if gang else 1.0), 3)


def _number(
    path: str, found: Mapping[str, Any], name: str, least: float, most: float, absent: float = 0.0
) -> float:
    value = found.get(name, absent)
    if isinstance(value, bool) or not isinstance(value, int | float) or (
        name in found and not least <= value <= most
    ):  # fmt: skip
        raise TraceError(path, None, f"{name} is {value!r}; give a number from {least:g} to {most:g}")
    return float(value)


def _distribution(path: str, name: str, found: Any) -> Distribution:
    if not isinstance(found, dict) or not found:
        raise TraceError(path, None, f"{name} is no mapping of values to cumulative per cent")
    if "file" in found:
        return _named(path, name, found)
    numbers = [
        one
        for pair in found.items()
        for one in pair
        if isinstance(one, bool) or not isinstance(one, int | float)
    ]
    if numbers:
        raise TraceError(path, None, f"{name} has {numbers[0]!r}; give numbers")
    return _checked(path, None, name, sorted((float(value), float(share)) for value, share in found.items()))


def _named(path: str, name: str, found: Mapping[str, Any]) -> Distribution:
    if found.keys() != {"file", "trace", "what"}:
        raise TraceError(path, None, f"{name} needs file, trace and what, and nothing else")
    file = str(found["file"])
    file = file if Path(file).is_absolute() else str(Path(path).parent / file)
    quantity = "gpus" if name == "sizes" else "seconds"
    wanted = (str(found["trace"]), str(found["what"]))
    points, seen, line = [], set(), 0
    for row in table(file, ("trace", "what", quantity, "cdf_percent")):
        seen.add((row.text("trace"), row.text("what")))
        if (row.text("trace"), row.text("what")) == wanted:
            points.append((row.number(quantity), row.number("cdf_percent")))
            line = row.line
    if not points:
        known = ", ".join(" ".join(one) for one in sorted(seen)) or "nothing"
        raise TraceError(file, None, f"there is no {' '.join(wanted)}; found: {known}")
    return _checked(file, line, name, points)


def _checked(path: str, line: int | None, name: str, points: list[tuple[float, float]]) -> Distribution:
    kept: list[tuple[float, float]] = []
    for value, percent in points:
        if not (0 <= value <= NUMBER_MAX and 0 <= percent <= COMPLETE + 1):
            raise TraceError(path, line, f"{name} has the point {value:g}: {percent:g}; shares are 0 to 100")
        if kept and (value < kept[-1][0] or percent < kept[-1][1]):
            raise TraceError(path, line, f"{name} falls at {value:g}: {percent:g}; cumulative shares ascend")
        if not kept or percent > kept[-1][1]:
            kept.append((value, percent))
    if not kept or kept[-1][1] <= 0:
        raise TraceError(path, line, f"{name} has no share above 0")
    return Distribution(tuple(value for value, _ in kept), tuple(percent for _, percent in kept))
