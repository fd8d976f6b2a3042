"""Admission in random worlds: quota and room hold, nothing is lost or stuck, and nobody leaves in vain."""

from __future__ import annotations

import re
from dataclasses import replace
from fractions import Fraction
from random import Random

from hypothesis import example, given, settings
from hypothesis import strategies as st

from bayplan.model.change import (
    FlavorLost,
    NamespaceQueueLost,
    NodeLost,
    QueuedGangSeen,
    QueueLost,
    QuotaNodeLost,
    TopologyLost,
)
from bayplan.model.plan import Action, Admit, EvictGang, Plan, ReportNotAdmitted
from bayplan.model.profile import Profile
from tests.admission.world import World, named
from tests.properties.admission_worlds import (
    crowded_nodes,
    gangs,
    ledger,
    queues_of,
    quota_breaches,
    random_world,
    usage_by_queue,
    victims_of,
)

RANDOM = st.integers(0, 2**32 - 1).map(Random)
"""Worlds by a seed: what else is imported, and so which numbers are thought telling, does not change them."""
Kind = dict[str, bool | int]
KINDS: st.SearchStrategy[Kind] = st.sampled_from(
    [
        {},
        {"fair": True},
        {"topology": True},
        {"topology": True, "fair": True},
        {"flavors": 2},
        {"flavors": 2, "fair": True},
        {"topology": True, "flavors": 2},
    ]
)
FEW = settings(max_examples=settings().max_examples // 3)


class Watched(World):
    """A world in which every round is looked at."""

    def round(self) -> Plan:
        plan = super().round()
        victims = victims_of(plan)
        assert len(victims) == len(set(victims)), "a victim was taken twice"
        assert quota_breaches(self) == []
        assert crowded_nodes(self) == []
        return plan


def watched(random: Random, **kind: bool | int) -> Watched:
    made = random_world(random, **kind)
    world = Watched("", made.profile)
    for change in made.objects.values():
        world.see(change)
    return world


@FEW
@given(RANDOM, KINDS)
def test_quota_and_room_hold_and_nothing_is_overlooked(random: Random, kind: Kind) -> None:
    world = watched(random, **kind)
    for start in (100, 200):
        world.settle()
        if (
            not world.state.pending.contended
        ):  # nobody waits for what is set aside for somebody more important
            assert world.overlooked() == []
        for name in sorted(world.running())[:2]:
            world.finish(name)
        topology = bool(kind.get("topology"))
        world.draw(gangs(random, queues_of(world), random.randint(0, 3), start, topology=topology))
    world.settle()


@FEW
@given(RANDOM, KINDS)
def test_whoever_makes_others_leave_is_admitted(random: Random, kind: Kind) -> None:
    world = watched(random, **kind)
    world.settle()
    for at, plan in enumerate(world.plans):
        later = {
            named(a.queued_gang) for p in world.plans[at + 1 :] for a in p.actions if isinstance(a, Admit)
        }
        for action in plan.actions:
            if isinstance(action, EvictGang):
                assert action.by is not None and named(action.by) in later


@FEW
@given(RANDOM, KINDS)
@example(Random(228), {"flavors": 2})  # those alike were told in the order in which they had been heard of
@example(Random(2092), {"topology": True, "flavors": 2})
@example(Random(10994), {"flavors": 2})  # two were admitted on quota that a third had not left yet
def test_the_order_in_which_things_are_heard_of_does_not_matter(random: Random, kind: Kind) -> None:
    world = watched(random, **kind)
    other = Watched("", world.profile)
    changes = list(world.objects.values())
    random.shuffle(changes)
    for change in changes:
        other.see(change)
    world.settle()
    other.settle()
    assert world.plans == other.plans


def disturb(world: World, random: Random) -> None:
    """Something is deleted, made again, or changes under the gangs that run."""
    objects = list(world.objects.values())
    running = sorted(world.running())
    match random.randint(0, 8):
        case 0 if running:
            world.finish(random.choice(running))
        case 1:
            world.see(TopologyLost("t"))
        case 2:
            world.draw(random.choice(("topology t rack host", "topology t rack", "topology u host")))
        case 3:
            world.see(FlavorLost(random.choice("fg")))
        case 4:
            world.draw(f"flavor {random.choice('fg')} topology={random.choice('tu')}")
        case 5:
            name = f"n{random.randint(0, 5)}"  # at times with a host label of its own
            host = random.choice((name, f"h{name}"))
            world.draw(f"node {name} rack=r{random.randint(0, 2)} host={host} : cpu=4")
        case 6:
            world.see(NodeLost(f"n{random.randint(0, 5)}"))
        case 7:
            lost = (QueueLost("q0"), QuotaNodeLost("c1"), NamespaceQueueLost("", "q0"), FlavorLost("g"))
            world.see(random.choice(lost))
        case _:
            demands = [change.queued_gang for change in objects if isinstance(change, QueuedGangSeen)]
            if demands:
                world.see(QueuedGangSeen(replace(random.choice(demands), active=random.random() < 0.5)))


@FEW
@given(RANDOM, st.booleans())
def test_the_ledger_is_what_a_fresh_count_finds_whatever_happens(random: Random, two: bool) -> None:
    world = random_world(random, topology=True, flavors=1 + two)
    for _ in range(12):
        if random.random() < 0.5:
            world.round()
        disturb(world, random)
        assert ledger(world.state) == ledger(world.fresh())
    for demand in world.demands():
        world.finish(named(demand))
    assert ledger(world.state) == ledger(world.fresh())


class Unreliable(Watched):
    """An API that refuses some writes."""

    random = Random(0)

    def refuses(self, action: Action) -> bool:
        if isinstance(action, ReportNotAdmitted) or self.random.random() < 0.7:
            return False
        if isinstance(action, Admit):
            self.state.admission_failed(action.gang, self.now)
        else:
            self.state.eviction_failed(action.gang)
        return True


@FEW
@given(RANDOM, KINDS)
def test_writes_that_fail_change_nothing_in_the_end(random: Random, kind: Kind) -> None:
    made = random_world(random, **kind)
    world = Unreliable("", made.profile)
    world.random = random
    for change in made.objects.values():
        world.see(change)
    world.settle()
    assert ledger(world.state) == ledger(world.fresh())
    if not world.state.pending.contended:
        assert world.overlooked() == []


@FEW
@given(RANDOM)
def test_no_victim_could_have_stayed(random: Random) -> None:
    """One queue, where nothing but room and quota counts: without any one of the evictions it fails."""
    world = World("topology t rack host\nflavor f topology=t\nqueue q0 within=lower : f/cpu=9")
    world.draw("\n".join(f"node n{n} rack=r{n % 2} : cpu={random.randint(1, 3)}" for n in range(4)))
    world.draw(re.sub(r"min=\d+", "", gangs(random, ["q0"], 6, topology=True)))
    world.settle()
    world.draw(re.sub(r"min=\d+|prio=\S+", "prio=9", gangs(random, ["q0"], 1, 100, topology=True)))
    holding = {demand.gang.source: demand for demand in world.demands()}
    victims = [action.gang for action in world.round().actions if isinstance(action, EvictGang)]
    for stays in victims:
        rules = [change for change in world.objects.values() if not isinstance(change, QueuedGangSeen)]
        others = [QueuedGangSeen(d) for ref, d in holding.items() if ref not in victims or ref == stays]
        other = World()
        for change in [*rules, *others]:
            other.see(change)
        assert not [a for a in other.round().actions if isinstance(a, Admit) and a.gang.name == "g100"]


@FEW
@given(RANDOM, st.booleans())
def test_what_was_lent_comes_back_to_whoever_reclaims_it(random: Random, fair: bool) -> None:
    count = random.randint(2, 4)
    nominal = [random.randint(0, 5) for _ in range(count)]
    world = Watched("flavor f", Profile(fair_sharing=fair))
    for number, own in enumerate(nominal):
        world.draw(f"queue q{number} in all reclaim=any : f/cpu={own}")
    for number in random.sample(range(count), count):  # whoever comes first borrows all there is
        world.draw("\n".join(f"gang g{number}-{n} in q{number} at={n} : cpu=1" for n in range(8)))
        world.settle()
    used = usage_by_queue(world)
    for number, own in enumerate(nominal):
        assert used.get(f"q{number}", 0) >= own * 1000
    assert sum(used.values()) == sum(nominal) * 1000


@FEW
@given(RANDOM)
def test_fair_shares_follow_the_weights(random: Random) -> None:
    """Queues with nothing of their own and plenty to do share a pool, to within one gang."""
    weights = [random.randint(1, 4) for _ in range(random.randint(2, 4))]
    world = Watched(f"flavor f\ncohort all : f/cpu={random.randint(4, 24)}", Profile(fair_sharing=True))
    for number, weight in enumerate(weights):
        world.draw(f"queue q{number} in all weight={weight} reclaim=any : f/cpu=0")
    for number in random.sample(range(len(weights)), len(weights)):
        world.draw("\n".join(f"gang g{number}-{n:02} in q{number} : cpu=1" for n in range(25)))
        world.settle()
    used = usage_by_queue(world)
    for number, weight in enumerate(weights):
        for other, theirs in enumerate(weights):
            mine = Fraction(used.get(f"q{number}", 0), 1000)
            rest = Fraction(used.get(f"q{other}", 0), 1000)
            assert (mine - 1) / weight <= (rest + 1) / theirs
