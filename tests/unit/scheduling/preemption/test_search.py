"""Victims for a gang or a pod: none unless it helps, the lowest priority first, no more than needed."""

from __future__ import annotations

from dataclasses import replace

import pytest

from bayplan.model.gang import DisruptionBudget, Group, Locality, PodSet
from bayplan.model.node import HOSTNAME
from bayplan.model.node_rules import Requirement
from bayplan.model.plan import PreemptPod
from bayplan.model.pod_spec import HostPort, PodAffinity, PodAffinityTerm, Selector
from bayplan.model.profile import Profile
from bayplan.model.rejection import PreemptionSearchOutcome, Rejection, RejectionReason
from tests.support.gang_snapshots import (
    Decided,
    candidate,
    charter,
    cpu_node,
    cpu_pod,
    decide,
    lone,
    look,
    pods,
    shape,
)

FOO = Selector((Requirement("app", "In", ("foo",)),))


def sent(found: Decided) -> list[PreemptPod]:
    return [action for action in found.plan.actions if isinstance(action, PreemptPod)]


def test_a_gang_preempts_no_more_than_it_needs() -> None:
    low = [cpu_pod("low-1", 2, on="a"), cpu_pod("low-2", 1, on="b")]
    found = decide(
        look(
            [cpu_node("a", 2), cpu_node("b", 2)], low, candidate(charter("g", 3, 100), pods("p", 3, gang="g"))
        )
    )
    assert found.displaced == ("low-1",)
    assert sorted(found.nominates.values()) == ["a", "a", "b"]
    assert not found.binds
    why = found.refused["g"].rejection
    assert (why.reason, why.preemption, why.victims, why.fit) == (
        RejectionReason.PREEMPTING, PreemptionSearchOutcome.FOUND, 1, 3,
    )  # fmt: skip
    (action,) = sent(found)
    assert action.by.name == "g"
    assert action.by_uid == "uid-g"
    assert action.with_gang


def test_no_pod_is_preempted_if_the_gang_would_not_fit_even_then() -> None:
    running = [cpu_pod("mid", on="a", priority=500), cpu_pod("low-1", on="a"), cpu_pod("low-2", on="a")]
    found = decide(look([cpu_node("a", 3)], running, candidate(charter("g", 3, 100), pods("p", 3, gang="g"))))
    assert not found.displaced
    assert not found.nominates
    assert found.refused["g"].rejection.preemption is PreemptionSearchOutcome.INSUFFICIENT


def test_equal_priority_is_never_preempted() -> None:
    running = [cpu_pod("same", on="a", priority=100)]
    found = decide(look([cpu_node("a", 1)], running, candidate(charter("g", 1, 100), pods("p", 1, gang="g"))))
    assert not found.displaced
    assert found.refused["g"].rejection.preemption is PreemptionSearchOutcome.NO_CANDIDATES


def test_the_lowest_priority_is_preempted_first() -> None:
    running = [cpu_pod("mid", on="a", priority=50), cpu_pod("low-1", on="a"), cpu_pod("low-2", on="a")]
    found = decide(look([cpu_node("a", 3)], running, candidate(charter("g", 2, 100), pods("p", 2, gang="g"))))
    assert found.displaced == ("low-1", "low-2")


def test_of_equal_priority_the_youngest_is_preempted() -> None:
    running = [
        cpu_pod("old", on="a", started=10.0),
        cpu_pod("young", on="b", started=20.0),
        cpu_pod("middle", on="c", started=15.0),
    ]
    nodes = [cpu_node("a", 1), cpu_node("b", 1), cpu_node("c", 1)]
    found = decide(look(nodes, running, candidate(charter("g", 1, 100), pods("p", 1, gang="g"))))
    assert found.displaced == ("young",)
    assert decide(look(nodes, running, lone(cpu_pod("p", priority=1)))).displaced == ("young",)


def test_as_many_as_possible_are_placed_beyond_the_minimum() -> None:
    nodes = [cpu_node(name, 1) for name in "abcd"]
    running = [cpu_pod(f"r-{name}", on=name, priority=10 if name in "ab" else 200) for name in "abcd"]
    for minimum in (1, 0):
        found = decide(look(nodes, running, candidate(charter("g", minimum, 100), pods("p", 3, gang="g"))))
        assert found.displaced == ("r-a", "r-b")
        assert sorted(found.nominates) == ["p-0", "p-1"]


def test_a_gang_that_cannot_run_below_its_minimum_is_preempted_as_a_whole() -> None:
    victims = [cpu_pod(f"v-{n}", on="a", gang="v") for n in range(3)]
    nodes = [cpu_node("a", 2), cpu_node("b", 1)]
    victims[2] = replace(victims[2], node="b")
    whole = charter("v", 3, 10, disrupt_together=True)
    found = decide(
        look(nodes, victims, candidate(charter("g", 1, 100), pods("p", 1, gang="g")), charters=[whole])
    )
    assert found.displaced == ("v-0", "v-1", "v-2")
    single = lone(cpu_pod("p", priority=100))
    found = decide(look(nodes, victims, single, charters=[whole]))
    assert found.displaced == ("v-0", "v-1", "v-2")
    assert all(action.with_gang for action in sent(found))
    assert decide(look(nodes, victims, single, charters=[charter("v", 3, 10)])).displaced == ("v-1",)


def test_a_gang_has_the_priority_of_its_spec() -> None:
    victims = [cpu_pod("v", on="a", gang="v", priority=1000)]
    whole = charter("v", 1, 10, disrupt_together=True)
    preemptor = candidate(charter("g", 1, 100), pods("p", 1, gang="g"))
    assert decide(look([cpu_node("a", 1)], victims, preemptor, charters=[whole])).displaced == ("v",)
    important = replace(whole, priority=100)
    assert not decide(look([cpu_node("a", 1)], victims, preemptor, charters=[important])).displaced


def test_a_strict_gang_has_the_priority_of_its_spec_and_leaves_as_a_whole_below_its_minimum() -> None:
    nodes = [cpu_node("a", 2), cpu_node("b", 1)]
    victims = [cpu_pod(f"v-{number}", on="a" if number < 2 else "b", gang="v") for number in range(3)]
    single = lone(cpu_pod("p", 1, priority=50))
    important = charter("v", 2, 75, strict=True)
    assert not decide(look(nodes, victims, single, charters=[important])).displaced
    lesser = charter("v", 2, 10, strict=True)
    assert decide(look(nodes, victims, single, charters=[lesser])).displaced == ("v-2",)
    pair = candidate(charter("g", 2, 50), pods("p", 2, gang="g"))
    assert decide(look(nodes, victims, pair, charters=[lesser])).displaced == ("v-0", "v-1", "v-2")


def test_a_gang_that_can_no_longer_be_tried_loses_its_nominations() -> None:
    waiting = pods("p", 1, gang="g")
    held = candidate(charter("g", 2, 9), waiting, nominated={waiting[0].key: "a"})
    held = replace(held, blocker=Rejection(RejectionReason.TOO_FEW, 2, 1))
    assert decide(look([cpu_node("a", 2)], [], held)).nominates == {"p-0": ""}


def test_pods_with_a_budget_are_spared_if_others_will_do() -> None:
    foo = shape(1, (("app", "foo"),))
    running = [
        cpu_pod("foo-1", on="a", like=foo),
        cpu_pod("foo-2", on="a", like=foo),
        cpu_pod("bar", on="a", priority=5),
    ]
    group = candidate(charter("g", 2, 100), pods("p", 2, 0.5, gang="g"))
    for budgets, goes in (
        ((DisruptionBudget("ns", "b", FOO),), "bar"),
        ((DisruptionBudget("ns", "b", FOO, 2),), "foo-2"),
    ):
        assert decide(look([cpu_node("a", 3)], running, group, budgets=budgets)).displaced == (goes,)


def test_a_budget_is_violated_rather_than_a_gang_rejected() -> None:
    running = [cpu_pod("foo", on="a", like=shape(1, (("app", "foo"),)))]
    group = candidate(charter("g", 1, 100), pods("p", 1, gang="g"))
    assert decide(
        look([cpu_node("a", 1)], running, group, budgets=[DisruptionBudget("ns", "b", FOO)])
    ).displaced == ("foo",)


def test_victims_for_a_single_pod_are_chosen_by_node() -> None:
    nodes = [cpu_node("a", 2), cpu_node("b", 2), cpu_node("c", 2)]
    running = [
        *(cpu_pod(f"a-{n}", 1, on="a") for n in range(2)),
        cpu_pod("b", 2, on="b"),
        cpu_pod("c", 2, on="c", priority=1),
    ]
    found = decide(look(nodes, running, lone(cpu_pod("p", 2, priority=9))))
    assert found.displaced == ("b",)
    assert found.nominates == {"p": "b"}
    (action,) = sent(found)
    assert not action.with_gang


def test_single_pods_each_preempt_their_own_victims() -> None:
    nodes = [cpu_node("a", 2), cpu_node("b", 2)]
    running = [cpu_pod("a", 2, on="a"), cpu_pod("b", 2, on="b")]
    waiting = [lone(one) for one in pods("p", 3, 2, priority=9)]
    found = decide(look(nodes, running, *waiting))
    assert found.displaced == ("a", "b")
    assert sorted(found.nominates.values()) == ["a", "b"]
    assert found.refused["p-2"].rejection.preemption in (
        PreemptionSearchOutcome.NO_CANDIDATES,
        PreemptionSearchOutcome.INSUFFICIENT,
    )


def test_capacity_of_one_victim_may_fit_two_pods() -> None:
    found = decide(
        look([cpu_node("a", 2)], [cpu_pod("r", 2, on="a")], *(lone(p) for p in pods("p", 2, priority=9)))
    )
    assert found.displaced == ("r",)
    assert found.nominates == {"p-0": "a", "p-1": "a"}


def test_two_gangs_share_neither_victims_nor_their_capacity() -> None:
    nodes = [cpu_node("a", 2), cpu_node("b", 2)]
    running = [cpu_pod("a", 2, on="a"), cpu_pod("b", 2, on="b")]
    groups = [candidate(charter(name, 2, 9), pods(name, 2, gang=name)) for name in ("f", "g", "h")]
    found = decide(look(nodes, running, *groups))
    assert found.displaced == ("a", "b")
    assert len({found.nominates["f-0"], found.nominates["g-0"]}) == 2
    assert len(sent(found)) == 2
    assert found.refused["h"].rejection.reason is RejectionReason.NO_CAPACITY


def test_terminating_pods_are_waited_for() -> None:
    running = [cpu_pod("going", 2, on="a", priority=50, terminating=True), cpu_pod("low", 2, on="b")]
    found = decide(
        look(
            [cpu_node("a", 2), cpu_node("b", 2)],
            running,
            candidate(charter("g", 2, 9), pods("p", 2, gang="g")),
        )
    )
    assert not found.displaced
    assert set(found.nominates.values()) == {"a"}
    assert found.refused["g"].rejection.reason is RejectionReason.PREEMPTING


def test_while_victims_terminate_no_other_pod_is_preempted() -> None:
    victim = cpu_pod("v", 2, on="a", terminating=True)
    waiting = pods("p", 2, gang="g")
    group = candidate(
        charter("g", 2, 9),
        waiting,
        nominated={one.key: "a" for one in waiting},
        victims=frozenset({victim.key}),
    )
    nodes = [cpu_node("a", 2), cpu_node("b", 2)]
    running = [victim, cpu_pod("other", 2, on="b")]
    found = decide(look(nodes, running, group))
    assert not found.displaced
    assert not found.nominates
    why = found.refused["g"].rejection
    assert (why.reason, why.victims) == (RejectionReason.PREEMPTING, 1)
    assert not decide(look(nodes, running, replace(group, reported=why))).refused["g"].changed
    found = decide(look(nodes, [victim], group))  # capacity was freed elsewhere
    assert set(found.binds.values()) == {"b"}
    found = decide(
        look(nodes, [victim, cpu_pod("new", 1, priority=50, on="a"), cpu_pod("other", 2, on="b")], group)
    )
    assert found.displaced == ("other",)  # the nominated node cannot be used any more
    assert set(found.nominates.values()) == {"b"}


def test_nominations_that_no_longer_fit_are_cleared() -> None:
    one = cpu_pod("p", 2, priority=9)
    found = decide(
        look([cpu_node("a", 2)], [cpu_pod("r", 1, on="a", priority=9)], lone(one, nominated={one.key: "a"}))
    )
    assert found.nominates == {"p": ""}
    assert found.refused["p"].rejection.reason is RejectionReason.NO_CAPACITY


def test_the_remaining_pods_preempt_for_themselves() -> None:
    nodes = [cpu_node("a", 2), cpu_node("b", 2)]
    found = decide(
        look(nodes, [cpu_pod("r", 2, on="b")], candidate(charter("g", 0, 9), pods("p", 3, gang="g")))
    )
    assert len(found.binds) == 2
    assert found.displaced == ("r",)
    assert list(found.nominates.values()) == ["b"]


@pytest.mark.parametrize("minimum", [2, 0])
def test_the_domain_of_the_lowest_cost_is_preempted(minimum: int) -> None:
    nodes = [
        cpu_node("a", 1, zone="x"),
        cpu_node("b", 1, zone="x"),
        cpu_node("c", 1, zone="y"),
        cpu_node("d", 1, zone="y"),
    ]
    group = candidate(charter("g", minimum, 100, "zone"), pods("p", 2, gang="g"))
    high = [cpu_pod(f"h-{name}", on=name, priority=200) for name in "cd"]
    low = [cpu_pod(f"l-{name}", on=name, priority=10) for name in "ab"]
    assert decide(look(nodes, [*high, *low], group)).displaced == ("l-a", "l-b")
    mid = [cpu_pod(f"m-{name}", on=name, priority=20) for name in "ab"]
    less = [cpu_pod(f"l-{name}", on=name, priority=10) for name in "cd"]
    assert decide(look(nodes, [*mid, *less], group)).displaced == ("l-c", "l-d")


def test_of_domains_of_equal_cost_the_fullest_is_chosen() -> None:
    nodes = [
        *(cpu_node(f"a{n}", 2, rack="r1") for n in range(2)),
        *(cpu_node(f"b{n}", 2, rack="r2") for n in range(3)),
        *(cpu_node(f"c{n}", 2, rack="r3") for n in range(3)),
    ]
    running = [
        cpu_pod("e1", 2, 200, "b0"), cpu_pod("e2", 1, 200, "c2"), cpu_pod("l1", 2, 10, "a0"),
        cpu_pod("l2", 2, 10, "b1"), cpu_pod("l3", 2, 10, "c0"), cpu_pod("l4", 1, 10, "c2"),
    ]  # fmt: skip
    found = decide(look(nodes, running, candidate(charter("g", 3, 200, "rack"), pods("p", 3, gang="g"))))
    assert found.displaced == ("l2",)
    assert set(found.nominates.values()) == {"b1", "b2"}


def test_pods_with_pod_affinity_preempt() -> None:
    apart = PodAffinity(
        required_anti=(PodAffinityTerm(HOSTNAME, Selector((Requirement("app", "Exists"),)), ("ns",)),)
    )
    like = shape(1.5, affinity=apart)
    running = [cpu_pod("initial", 0.25, on="a", priority=10, like=shape(0.25, (("app", "initial"),)))]
    nodes = [cpu_node("a", 2), cpu_node("b", 2)]
    waiting = [cpu_pod(f"p-{n}", gang="g", like=like) for n in range(2)]
    found = decide(look(nodes, running, candidate(charter("g", 2, 100), waiting)))
    assert found.displaced == ("initial",)
    single = lone(cpu_pod("p", priority=100, like=replace(like, node="a")))
    assert decide(look(nodes, running, single)).displaced == ("initial",)


def test_pods_with_host_ports_preempt() -> None:
    port = shape(1, ports=(HostPort(80),))
    running = [
        cpu_pod("r-a", on="a", like=port),
        cpu_pod("x-a", on="a", priority=-5),
        cpu_pod("r-b", on="b", priority=9, like=port),
    ]
    nodes = [cpu_node("a", 4), cpu_node("b", 4)]
    assert decide(look(nodes, running, lone(cpu_pod("p", priority=9, like=port)))).displaced == ("r-a",)
    group = candidate(charter("g", 1, 9), [cpu_pod("p", gang="g", like=port)])
    assert decide(look(nodes, running, group)).displaced == ("r-a",)


def test_gangs_of_several_signatures_preempt_too() -> None:
    running = [cpu_pod(f"r-{n}", 1, on="ab"[n // 4], priority=n) for n in range(8)]
    waiting = [*pods("big", 1, 3, gang="g"), *pods("small", 2, 1, gang="g")]
    found = decide(
        look([cpu_node("a", 4), cpu_node("b", 4)], running, candidate(charter("g", 3, 100), waiting))
    )
    assert len(found.nominates) == 3
    assert found.displaced == ("r-0", "r-1", "r-2", "r-3", "r-4")


def test_gangs_with_subgroups_preempt_too() -> None:
    tree = Group("", (PodSet("main", 2, 2, {"cpu": 2000}, Locality(required=HOSTNAME)),), 1)
    waiting = [replace(one, pod_set="main") for one in pods("p", 2, 2, gang="g")]
    rules = replace(charter("g", 2, 100), tree=tree, disrupt_together=True)
    running = [cpu_pod(f"r-{n}", 1, on="ab"[n // 4], priority=n) for n in range(8)]
    found = decide(look([cpu_node("a", 4), cpu_node("b", 4)], running, candidate(rules, waiting)))
    assert found.displaced == ("r-0", "r-1", "r-2", "r-3")
    assert set(found.nominates.values()) == {"a"}


def test_no_pod_is_preempted_where_preemption_is_disabled() -> None:
    found = decide(
        look([cpu_node("a", 1)], [cpu_pod("r", on="a")], lone(cpu_pod("p", priority=9))),
        Profile(preemption=False),
    )
    assert not found.displaced
    assert found.refused["p"].rejection.preemption is PreemptionSearchOutcome.NOT_ALLOWED
