"""Assigned pods fit, pods that can be assigned are, and every overlay step can be undone."""

from __future__ import annotations

from dataclasses import replace
from random import Random
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bayplan.model.pod import PodKey
from bayplan.model.pod_spec import PodSignature
from bayplan.model.profile import NodeChoice, Profile
from bayplan.placement.cluster.pod_index import PodIndex
from bayplan.placement.filters.pipeline import FilterInput, run_filters
from bayplan.placement.filters.score import score_nodes
from bayplan.placement.overlay.node_overlay import NodeOverlay
from bayplan.placement.pods import exact_assign
from bayplan.placement.pods.assign import assign_pods
from bayplan.placement.pods.batches import PodBatch
from bayplan.placement.pods.one_domain import assign_in_domain
from tests.properties.assign_worlds import batches, faults, filter_input, key, most_assignable, shape

SEEDS = st.integers(0, 2**32)
PROFILES = (Profile(), Profile(gang_nodes=NodeChoice.SPREAD))


def answers(here: FilterInput, shapes: list[PodSignature]) -> list[Any]:
    """All results for a filter input, computed without caches."""
    index, node_snapshot = here.index, replace(here.node_snapshot, memory={})
    fresh = replace(here, node_snapshot=node_snapshot)
    found: list[Any] = [node_snapshot.free.tolist(), sorted(map(str, index.pods)), index.keys]
    found.append({str(one): (pod.node, pod.shape, pod.leaving) for one, pod in index.pods.items()})
    found += [{stance: dict(tally.sparse) for stance, tally in index.affinity_terms.items()}]
    found += [{port: dict(tally.sparse) for port, tally in index.ports.items()}]
    for one in shapes:
        filter_result = run_filters(fresh, one)
        found += [filter_result.fits.tolist(), filter_result.resolvable.tolist(), filter_result.why]
        found += [score_nodes(fresh, one, filter_result.fits).tolist()]
    return found


def rebuilt(index: PodIndex) -> PodIndex:
    """An index of the same pods, built from scratch."""
    names = {slot: name for name, slot in index.slots.numbers.items()}
    made = PodIndex()
    made.slots = index.slots
    for name, labels in index.namespaces.items():
        made.set_namespace(name, labels)
    for one, pod in index.pods.items():
        made.add(one, names[pod.node], pod.shape, leaving=pod.leaving)
    return made


@given(SEEDS)
def test_every_overlay_step_is_undone_exactly(seed: int) -> None:
    random = Random(seed)
    here = filter_input(random)
    shapes = [shape(random, interacting=True) for _ in range(3)]
    overlay = NodeOverlay(here)
    start = answers(here, shapes)
    checkpoints = [(overlay.checkpoint(), answers(overlay.filter_input, shapes))]
    for number in range(random.randint(1, 12)):
        known = [one for one in overlay.filter_input.index.pods if isinstance(one, PodKey)]
        match random.randrange(6):
            case 0 | 1:
                count = random.randint(1, 3)
                keys = [key(f"s{number}-{at}") for at in range(count)]
                rows = [random.randrange(len(overlay)) for _ in keys]
                mine = random.choice(shapes)
                own = [replace(mine, labels=(*mine.labels, ("n", str(at)))) for at in range(count)]
                overlay.add_pods(mine, keys, rows, own if random.random() < 0.3 else ())
            case 2 if known:
                overlay.remove_pods(random.sample(known, random.randint(1, len(known))))
            case 3:
                overlay.restore_pods([key(f"r{at}") for at in range(3)])
            case 4:
                checkpoints.append((overlay.checkpoint(), answers(overlay.filter_input, shapes)))
            case 5:
                checkpoint, before = random.choice(checkpoints)
                overlay.rollback(checkpoint)
                checkpoints = [one for one in checkpoints if one[0] <= checkpoint]
                assert answers(overlay.filter_input, shapes) == before
        same = replace(overlay.filter_input, index=rebuilt(here.index))
        assert answers(overlay.filter_input, shapes) == answers(same, shapes)
        for one in shapes:  # what is remembered is what would be found now
            anew = run_filters(
                replace(
                    overlay.filter_input, node_snapshot=replace(overlay.filter_input.node_snapshot, memory={})
                ),
                one,
            )
            assert overlay.run_filters(one).fits.tolist() == anew.fits.tolist()
    overlay.close()
    assert answers(here, shapes) == start
    assert answers(overlay.filter_input, shapes) == start


def check_assignment(
    overlay: NodeOverlay, gang: list[PodBatch], checkpoint: int, assigned: dict[Any, int]
) -> None:
    """Every pod fitted when it was assigned, and no constraint is violated at the end."""
    steps = overlay.log.steps[checkpoint:]
    assert {one: overlay.row_of(one) for batch in gang for one in batch.keys if one in assigned} == assigned
    assert sum(len(step.keys) for step in steps) == len(assigned)
    assert faults(overlay, gang, assigned) == []
    overlay.rollback(checkpoint)
    for step in steps:
        for one, row in zip(step.keys, step.rows.tolist(), strict=True):
            assert overlay.run_filters(step.shape).fits[row], (one, row)
            overlay.add_pod(one, step.shape, row)


def bounds(random: Random, overlay: NodeOverlay) -> Any:
    if random.random() < 0.7:
        return None
    return np.array([random.random() < 0.6 for _ in range(len(overlay))], dtype=bool)


@given(SEEDS)
def test_assigned_pods_fit_and_no_pod_that_could_fit_is_reported_as_proven_misfit(seed: int) -> None:
    random = Random(seed)
    here, gang = filter_input(random), batches(random, interacting=random.random() < 0.7, most=5)
    asked = sum(len(batch.keys) for batch in gang)
    need = asked if random.random() < 0.7 else random.randint(0, asked)
    with NodeOverlay(here) as overlay:
        allowed_nodes = bounds(random, overlay)
        found = assign_pods(
            overlay,
            gang,
            need=need,
            profile=random.choice(PROFILES),
            allowed_nodes=allowed_nodes,
            lone=seed % 2 == 0,
        )
        assert len(found.rows) + len(found.unassigned) == asked
        assert not (set(found.rows) & set(found.unassigned))
        assert allowed_nodes is None or all(allowed_nodes[row] for row in found.rows.values())
        check_assignment(overlay, gang, 0, dict(found.rows))
        overlay.rollback(0)
        assert not (found.unsure and len(found.rows) >= need)
        if len(found.rows) < need and not found.unsure:
            assert most_assignable(overlay, gang, allowed_nodes) < need


@given(SEEDS)
def test_pods_without_constraints_are_assigned_whenever_they_fit(seed: int) -> None:
    random = Random(seed)
    here, gang = filter_input(random), batches(random, interacting=False)
    asked = sum(len(batch.keys) for batch in gang)
    with NodeOverlay(here) as overlay:
        found = assign_pods(overlay, gang, need=asked, profile=random.choice(PROFILES))
        check_assignment(overlay, gang, 0, dict(found.rows))
        overlay.rollback(0)
        assert not found.unsure
        if found.unassigned:
            assert most_assignable(overlay, gang, None) < asked


@given(SEEDS)
def test_without_the_search_it_is_either_right_or_unsure(seed: int) -> None:
    random = Random(seed)
    here, gang = filter_input(random), batches(random, interacting=False)
    asked = sum(len(batch.keys) for batch in gang)
    with NodeOverlay(here) as overlay, pytest.MonkeyPatch.context() as patch:
        patch.setattr(exact_assign, "solver", lambda: None)
        found = assign_pods(overlay, gang, need=asked, profile=Profile())
        check_assignment(overlay, gang, 0, dict(found.rows))
        overlay.rollback(0)
        if found.unassigned and not found.unsure:
            assert most_assignable(overlay, gang, None) < asked


@given(SEEDS)
def test_pods_in_one_domain_share_its_value_and_the_best_domain_is_taken(seed: int) -> None:
    random = Random(seed)
    here, gang = filter_input(random), batches(random, interacting=random.random() < 0.4, most=4)
    asked = sum(len(batch.keys) for batch in gang)
    with NodeOverlay(here) as overlay:
        node_index = overlay.filter_input.node_snapshot.node_index
        values = [node.labels.get("zone") for node in node_index.table.nodes]
        bound = [row for row in range(len(overlay)) if random.random() < 0.15]
        need = random.randint(0, asked)
        found = assign_in_domain(overlay, gang, "zone", bound, need=need, profile=Profile())
        seated = found.assignment
        assert {values[row] for row in seated.rows.values()} <= {found.domain}
        check_assignment(overlay, gang, 0, dict(seated.rows))
        overlay.rollback(0)
        assert (found.misfit is None) == (len(seated.rows) >= need and bool(found.domain))
        bound_values = {values[row] for row in bound} - {None}
        open_to = sorted(bound_values or {value for value in values if value})
        assert (found.domain in open_to) if open_to else found.domain == ""
        if len(seated.rows) < need and not seated.unsure:
            for value in open_to:
                mask = np.array([mine == value for mine in values])
                assert most_assignable(overlay, gang, mask) < need
