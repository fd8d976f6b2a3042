"""Whatever happens in whatever order: the board agrees with itself, and with one that is made afresh."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest

from bayplan.model.plan import Plan, ReportUnschedulable
from bayplan.model.rejection import Rejection, RejectionReason
from bayplan.placement.cluster.node_index import allocatable_of
from bayplan.state.pending_queue import NEVER
from bayplan.state.scheduling.gang_state import MemberState, blocker_of, state_of
from bayplan.state.scheduling.queue import EntryState
from bayplan.state.scheduling.state import ASSUMED_SECONDS, SchedulingState, single_pod_ref
from bayplan.state.scheduling.state_machine import FLUSH_SECONDS
from tests.properties.scheduling_world import World

SEEDS = range(60)
ROUNDS = 60
NO_ROOM = Rejection(RejectionReason.NO_CAPACITY)


def agrees_with_itself(board: SchedulingState) -> None:
    """Ledger, index, rooms, gangs and line tell one story."""
    sums: dict[str, dict[str, int]] = {}
    for pod in board.store.placed.values():
        here = sums.setdefault(pod.node, {})
        for name, amount in pod.amounts.items():
            here[name] = here.get(name, 0) + amount
    assert board.store.nodes.ledger.by_node() == sums
    for cluster in board.store.nodes.topologies.values():
        used = {name: {r: a for r, a in held.items() if a} for name, held in cluster.used.items()}
        assert {name: held for name, held in used.items() if held} == sums
    names = {number: name for name, number in board.store.index.slots.numbers.items()}
    running = {key: (names[pod.node], pod.leaving) for key, pod in board.store.index.pods.items()}
    assert running == {key: (pod.node, pod.terminating) for key, pod in board.store.placed.items()}
    for key, (pod, _) in board.store.nominations.items():
        assert pod == board.store.pods[key] and pod.pending
    gangs_agree(board)
    everyone_is_in_one_place(board)
    rows_agree(board)
    queues_agree(board)


def gangs_agree(board: SchedulingState) -> None:
    for key, pod in board.store.pods.items():
        shown = board.store.placed.get(key, pod)
        crew = board.store.gang_states.get(pod.gang or single_pod_ref(key))
        if pod.gang is None and not (pod.ours and shown.pending):
            assert crew is None or key in crew.binding
        else:
            assert crew is not None and crew.states[key] is state_of(shown)
    for ref, crew in board.store.gang_states.items():
        assert all(key in board.store.pods for key in crew.states)
        by_part = {part: {key for key, has in crew.states.items() if has is part} for part in MemberState}
        assert set(crew.pending) == by_part[MemberState.PENDING] | by_part[MemberState.GATED]
        assert set(crew.gated) == by_part[MemberState.GATED] and set(crew.bound) == by_part[MemberState.BOUND]
        assert crew.single or crew.spec == board.store.specs.get(ref)
        assert all(key in board.store.preempting for key in crew.victims)
        assert (
            all(key in board.store.assumed for key in crew.binding if not board.store.pods[key].node)
            or not crew.binding
        )


def everyone_is_in_one_place(board: SchedulingState) -> None:
    line = board.gangs.queue
    assert set(line.entries) == set(board.store.gang_states)
    ready = {entry.ref for lane in line._ready.values() for entry in lane}
    parked = [entry.ref for kind in line.pending.classes.values() for entry in kind.line]
    assert len(parked) == len(set(parked))
    due = {entry.ref for at, _, stamp, entry in line.pending._due if (at, stamp) == (entry.due, entry.stamp)}
    for ref, entry in line.entries.items():
        crew, place = board.store.gang_states[ref], entry.state
        assert (place is EntryState.READY) == (ref in ready)
        assert (place in (EntryState.UNSCHEDULABLE, EntryState.PREEMPTING)) == (ref in parked)
        assert (place is EntryState.BINDING) == bool(crew.binding)
        assert (entry.due < NEVER) == (ref in due)
        if place in (EntryState.BACKOFF, EntryState.UNSCHEDULABLE, EntryState.PREEMPTING, EntryState.BINDING):
            assert entry.due < NEVER, "it would stand there for ever"
        if not crew.binding and ref not in board.gangs.partial:
            assert (place in (EntryState.RUNNING, EntryState.INCOMPLETE)) == (
                not crew.pending or blocker_of(crew) is not None
            )
    assert all(
        line.entries[ref].state in (EntryState.INCOMPLETE, EntryState.RUNNING) for ref in line.to_report
    )


def rows_agree(board: SchedulingState) -> None:
    supply, ground = board.store.nodes.flat.view()
    land, names = ground.node_index, [node.name for node in supply.tree.nodes]
    assert sorted(names) == sorted(board.store.nodes.by_name)
    assert [land.row(name) for name in names] == list(range(len(names)))
    assert land.cordoned.tolist() == [not board.store.nodes.by_name[name].schedulable for name in names]
    assert np.array_equal(ground.allocatable, allocatable_of(land.table, supply.resources))
    used: dict[str, Any] = board.store.nodes.ledger.by_node()
    for row, name in enumerate(names):
        for resource, at in supply.resources.items():
            left = board.store.nodes.by_name[name].allocatable.get(resource, 0) - used.get(name, {}).get(
                resource, 0
            )
            assert ground.free[at, row] == left


def queues_agree(board: SchedulingState) -> None:
    """What each queue has and wants is the sum of its pods."""
    view = board.store.fair.view()
    if view is None:
        return
    sums: dict[tuple[str, str], dict[str, int]] = {}
    capacity: dict[str, int] = {}
    for node in board.store.nodes.by_name.values():
        if node.ready:
            add(capacity, node.allocatable, 1)
    for key, known in board.store.pods.items():
        pod = board.store.placed.get(key, known)
        charter = board.store.specs.get(pod.gang) if pod.gang is not None else None
        queue = charter.queue if charter is not None else ""
        if state_of(pod) is MemberState.PENDING:
            add(sums.setdefault(("wants", queue), {}), pod.amounts, 1)
        if not pod.uses_capacity or pod.terminating:
            continue
        add(sums.setdefault(("has", queue), {}) if queue else capacity, pod.amounts, 1 if queue else -1)
        if charter is not None and queue and charter.non_preemptible:
            add(sums.setdefault(("lasting", queue), {}), pod.amounts, 1)
    kept = {"has": view.usage, "lasting": view.non_preemptible, "wants": view.requested}
    for what, queues in kept.items():
        assert all(name for name in queues)
        wanted = {name: amounts for (sort, name), amounts in sums.items() if sort == what and name}
        assert {name: some for name, all_ in queues.items() if (some := present(all_))} == wanted
    assert present(view.capacity) == present(capacity)


def add(sums: dict[str, int], amounts: Mapping[str, int], sign: int) -> None:
    for name, amount in amounts.items():
        sums[name] = sums.get(name, 0) + sign * amount


def present(amounts: Mapping[str, int]) -> dict[str, int]:
    return {name: amount for name, amount in amounts.items() if amount}


def story(board: SchedulingState) -> dict[str, Any]:
    """What two boards must agree on, whatever each of them lived through."""
    supply, _ = board.store.nodes.flat.view()
    return {
        "placed": board.store.placed,
        "members": {ref: set(keys) for ref, keys in board.store.members.items()},
        "parts": {ref: crew.states for ref, crew in board.store.gang_states.items()},
        "hindered": {ref: blocker_of(crew) for ref, crew in board.store.gang_states.items() if crew.pending},
        "room": board.store.nodes.ledger.by_node(),
        "rows": [node.name for node in supply.tree.nodes],
        "nominated": {key: node for key, (_, node) in board.store.nominations.items()},
    }


@pytest.mark.parametrize("seed", SEEDS)
def test_the_board_is_what_a_fresh_one_would_be(seed: int) -> None:
    world = World(seed)
    for _ in range(ROUNDS):
        for _ in range(world.rng.randrange(4)):
            world.happen()
        world.hear()
        world.write()
        world.decide()
        world.now += world.rng.choice((0.1, 1.0, 5.0, 20.0))
        world.board.heads(world.now)
        agrees_with_itself(world.board)
    world.write(everything=True)
    world.hear(everything=True)
    world.now += 2 * ASSUMED_SECONDS
    board, fresh = world.board, world.fresh()
    board.heads(world.now), fresh.heads(world.now)
    agrees_with_itself(fresh)
    ours, theirs = story(board), story(fresh)
    for said in (ours, theirs):
        said.pop("nominated")  # what we intend to do is not what everybody sees
    assert all(board.store.pods[key].terminating for key in board.store.preempting)
    assert ours == theirs


@pytest.mark.parametrize("seed", SEEDS)
def test_nobody_is_forgotten(seed: int) -> None:
    """Once nothing happens any more, whoever waits is tried again, or somebody who is just like it."""
    world = World(seed)
    for _ in range(ROUNDS):
        for turn in (world.happen, world.hear, world.write, world.decide):
            turn()
        world.now += 1.0
    world.write(everything=True)
    world.hear(everything=True)
    board, tried, rounds = world.board, set(), 0
    end = world.now + 2 * FLUSH_SECONDS
    while (due := board.next_due(world.now)) < end:
        world.now, rounds = max(due, world.now), rounds + 1
        assert rounds < 200, "it does not come to rest"
        heads = board.heads(world.now)
        tried |= {board.gangs.equivalence_key(board.store.gang_states[ref]) for ref in heads}
        look = board.snapshot(heads, world.now)
        refusals = [
            ReportUnschedulable(each.spec.source, NO_ROOM) for each in look.candidates if each.pending
        ]
        board.assume(Plan(tuple(refusals)), world.now)
    for ref, crew in board.store.gang_states.items():
        if crew.pending and blocker_of(crew) is None:
            assert board.gangs.equivalence_key(crew) in tried, ref
    assert not board.store.preempting or all(
        board.store.pods[key].terminating for key in board.store.preempting
    )
