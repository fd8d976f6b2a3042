"""Our side: time the engine on a scenario in a process of its own, so that memory is its own too."""

from __future__ import annotations

import argparse
import gc
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from bayplan.model.assignment import Placement
from bayplan.model.gang import Gang
from bayplan.model.node import PODS
from bayplan.placement.cluster.snapshot import CapacitySnapshot
from bayplan.placement.gang.place import place
from bayplan.state.cluster.topology_state import TopologyState
from tests.benchmarks import measure, scenario
from tests.benchmarks.measure import Line
from tests.benchmarks.scenario import Scenario, Shape

SLOT = {PODS: 1}


def main() -> None:
    """Print one line for each row."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--scenario", type=Path, required=True)
    parser.add_argument("--rounds", type=int, default=100)
    parser.add_argument("--budget", type=float, default=1.0, help="seconds for one row")
    options = parser.parse_args()
    for line in rows(scenario.read(options.scenario), options.rounds, options.budget):
        print(measure.encode(line), flush=True)


def rows(given: Scenario, rounds: int, budget: float) -> Iterator[Line]:
    """Everything that is measured, in the order of the table."""
    cluster, held = load(given)
    yield Line(measure.MEMORY, bytes=held)
    yield Line(measure.PROCESS, bytes=measure.resident())
    first = given.shapes[0]
    yield _cycle(measure.SNAPSHOT, first, rounds, budget, _usage_change(given, cluster))
    supply = cluster.snapshot()
    for shape in given.shapes:
        yield _further(supply, shape, rounds, budget)
    for row, change in _changes(given, cluster).items():
        yield _cycle(row, first, rounds, budget, change)


def load(given: Scenario) -> tuple[TopologyState, int]:
    """The cluster, and the memory that came to be in use while it was built."""
    gc.collect()
    before = measure.resident()
    cluster = TopologyState(scenario.TOPOLOGY)
    cluster.load(scenario.nodes(given))
    for index, count in enumerate(given.used):
        if count:
            cluster.use_domain((scenario.hostname(index),), scenario.occupied(count))
    place(cluster.snapshot(), scenario.gang_of(given.shapes[0]), scenario.profile(given.shapes[0]))
    gc.collect()
    return cluster, measure.resident() - before


@dataclass(frozen=True, slots=True)
class Change:
    """Something that happens to a cluster before a snapshot, and how to undo it unmeasured."""

    cluster: TopologyState
    do: Callable[[], object]
    undo: Callable[[], object]


def _usage_change(given: Scenario, cluster: TopologyState) -> Change:
    """One pod slot taken and given back: the least that makes a snapshot differ from the last."""
    host = (scenario.hostname(given.changed),)
    return Change(
        cluster, lambda: cluster.use_domain(host, SLOT), lambda: cluster.use_domain(host, SLOT, sign=-1)
    )


def _changes(given: Scenario, cluster: TopologyState) -> dict[str, Change]:
    was, now = scenario.node_at(given.changed), scenario.node_at(given.changed, scenario.REDUCED)
    added, gone = scenario.node_at(scenario.size_of(given)), scenario.node_at(given.removed)
    return {
        measure.CHANGED: Change(cluster, lambda: cluster.upsert(now), lambda: cluster.upsert(was)),
        measure.ADDED: Change(cluster, lambda: cluster.upsert(added), lambda: cluster.remove(added.name)),
        measure.REMOVED: Change(cluster, lambda: cluster.remove(gone.name), lambda: cluster.upsert(gone)),
    }


def _cycle(row: str, shape: Shape, rounds: int, budget: float, change: Change) -> Line:
    """A change, a snapshot and one placement of a request never seen before."""
    profile = scenario.profile(shape)

    def act(gang: Gang) -> Placement:
        change.do()
        return place(change.cluster.snapshot(), gang, profile)

    def restore(_: object) -> None:
        change.undo()
        change.cluster.snapshot()

    taken = measure.times(rounds, budget, lambda variant: scenario.gang_of(shape, variant + 1), act, restore)
    gang = scenario.gang_of(shape)
    peak, blocks = measure.allocations(lambda: act(gang))
    restore(None)
    placement = act(gang)
    restore(None)
    return _line(row, shape, taken, placement, (peak, blocks))


def _further(supply: CapacitySnapshot, shape: Shape, rounds: int, budget: float) -> Line:
    """Placements on a snapshot that has already served one: of new requests, and of one repeated."""
    profile = scenario.profile(shape)

    def act(gang: Gang) -> Placement:
        return place(supply, gang, profile)

    gang = scenario.gang_of(shape)
    placement = act(gang)
    taken = measure.times(rounds, budget, lambda variant: scenario.gang_of(shape, variant + 1), act)
    again = measure.times(rounds, budget / 2, lambda _: gang, act)
    fresh = scenario.gang_of(shape, rounds + 2)
    allocated = measure.allocations(lambda: act(fresh))
    return _line(measure.PLACE, shape, taken, placement, allocated, measure.quantile(again, 50))


def _line(
    row: str,
    shape: Shape,
    taken: list[float],
    placement: Placement,
    allocated: tuple[int, int],
    again: float = 0.0,
) -> Line:
    peak, blocks = allocated
    return Line(
        row,
        shape.name,
        rounds=len(taken),
        p50_ms=measure.quantile(taken, 50),
        p99_ms=measure.quantile(taken, 99),
        allocs=blocks,
        bytes=peak,
        placed=placement.ok,
        digest=measure.digest(placement),
        reason="" if placement.misfit is None else str(placement.misfit.code),
        again_ms=again,
    )


if __name__ == "__main__":
    main()
