"""Limits of preemption: only on nodes that a pod may use, and not where the gang is not placed."""

from __future__ import annotations

import pytest

from bayplan.model.change import Change
from bayplan.model.gang import Group, PodSet
from bayplan.model.profile import PreemptionMeans, Profile
from bayplan.placement.overlay.node_overlay import NodeOverlay
from bayplan.scheduling.attempt.gang import request_for
from bayplan.scheduling.fair_share.accounts import Accounts
from bayplan.scheduling.fair_share.order import turn_of
from bayplan.scheduling.fair_share.preemption import FairPreemptionSearch
from bayplan.scheduling.preemption import trial
from bayplan.scheduling.preemption.context import PreemptionContext
from bayplan.scheduling.preemption.search import PreemptionSearch
from tests.support.scheduling_scene import NOW, board, displaced, gang, node, pod, queue, runs, step, waits


def test_equivalent_pods_with_different_allowed_nodes_do_not_share_a_result() -> None:
    low = [pod(f"low{at}", 0, on=f"n{at}", gpus=4, gang=None) for at in (1, 2)]
    high = [pod(f"high{at}", 0, gpus=4, gang=None, priority=9) for at in (1, 2)]
    found = board(node("n1"), node("n2"), *low, *high)
    look = found.snapshot(found.heads(NOW), NOW)
    with NodeOverlay(look.filter_input) as floor:
        rooms = PreemptionSearch(PreemptionContext(look, Profile(), floor))
        for candidate, may_use in zip(look.candidates, ("n1", "n2"), strict=True):
            room = rooms.find(request_for(candidate), 9, floor.mask_of({may_use}))
            assert [floor.node(row) for row in room.rows.values()] == [may_use]
            assert [one.node for one, _ in room.pods] == [may_use]


def test_nor_do_equivalent_gangs_of_a_queue() -> None:
    low = runs("low", "q", 4, on="n2")
    high = [*waits("high1", "q", 4, priority=9), *waits("high2", "q", 4, priority=9)]
    found = board(queue("q", 8), node("n1", gpus=0), node("n2"), *low, *high)
    look = found.snapshot(found.heads(NOW), NOW)
    assert look.fair is not None
    with NodeOverlay(look.filter_input) as floor:
        rooms = FairPreemptionSearch(PreemptionContext(look, Profile(), floor), Accounts(look.fair), NOW)
        waiting = [candidate for candidate in look.candidates if candidate.pending]
        first, second = (turn_of(candidate, at) for at, candidate in enumerate(waiting))
        for turn, may_use, helps in ((first, "n1", False), (second, "n2", True)):
            room = rooms.find(
                PreemptionMeans.PREEMPT, turn, request_for(turn.candidate), floor.mask_of({may_use})
            )
            assert (room is not None) == helps


def test_no_pod_is_preempted_on_an_overcommitted_node_that_the_gang_does_not_use(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """There are too many units to reprieve one by one."""
    monkeypatch.setattr(trial, "TRIES_MAX", 1)
    low: list[Change] = [pod("big", 0, on="n1", gpus=4, gang=None)]
    low += [pod(f"low{at}", 0, on="n2", gpus=1, gang=None) for at in (1, 2)]
    main = Group("", (PodSet("main", 1, 1, {"gpu": 4}),), 1)
    high: list[Change] = [
        gang("high", 1, tree=main, strict=True, priority=9),
        pod("high", 0, gpus=4, priority=9),
    ]
    full = node("n2", gpus=1)
    assert displaced(step(board(node("n1"), full, *low, *high))) == {"big-0": ""}


def test_a_large_overcommitted_node_is_still_emptied_for_the_gang(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(trial, "TRIES_MAX", 1)
    low = [pod(f"low{at}", 0, on="n1", gpus=2, gang=None) for at in (1, 2, 3)]
    main = Group("", (PodSet("main", 1, 1, {"gpu": 4}),), 1)
    high: list[Change] = [
        gang("high", 1, tree=main, strict=True, priority=9),
        pod("high", 0, gpus=4, priority=9),
    ]
    assert len(displaced(step(board(node("n1"), *low, *high)))) == 3
