"""Which changes of a running gang make it preemptible for gangs that could not preempt it before."""

from __future__ import annotations

from dataclasses import replace

import pytest

from bayplan.model.gang import GangSpec, Group, Locality, PodSet, Segment
from bayplan.model.pod import PodKey
from bayplan.state.scheduling.diffs import more_preemptible
from bayplan.state.scheduling.gang_state import GangState, MemberState
from tests.support.scheduling_scene import ref

ANYWHERE = Locality()
MAIN = PodSet("main", 4, 2)
TREE = Group("", (Group("inner", (MAIN,), 1),), 1)
RULES = GangSpec(ref("g"), 2, tree=TREE, strict=True)


def tree(main: PodSet = MAIN, inner: Locality = ANYWHERE) -> Group:
    return Group("", (Group("inner", (main,), 1, inner),), 1)


@pytest.mark.parametrize(
    "after",
    [
        replace(RULES, tree=tree(inner=Locality(required="rack"))),
        replace(RULES, tree=tree(replace(MAIN, segments=(Segment(2, "rack"),)))),
        replace(RULES, tree=tree(replace(MAIN, minimum=1))),
        replace(RULES, disrupted_with={"main": "inner"}),
        replace(RULES, priority=-1),
    ],
)
def test_other_constraints_may_make_a_gang_preemptible_or_movable(after: GangSpec) -> None:
    assert more_preemptible(RULES, after) and more_preemptible(after, replace(RULES, priority=-2))


def test_more_pods_make_no_gang_preemptible() -> None:
    assert not more_preemptible(RULES, replace(RULES, tree=tree(replace(MAIN, count=9))))


def test_a_gang_that_does_with_a_quorum_from_now_on_is_counted_anew() -> None:
    sets = (PodSet("a", 1, 1), PodSet("b", 1, 1))
    rules = GangSpec(ref("g"), 1, tree=Group("", sets, 1), strict=True)
    gang = GangState(ref("g"))
    gang.set_spec(rules)
    gang.set_pod(PodKey("ns", "a-0"), MemberState.BOUND, ("a", 0))
    assert not gang.has_minimum
    gang.set_spec(replace(rules, quorum=True))
    assert gang.has_minimum
