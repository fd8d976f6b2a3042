"""Gangs whose pod sets have minimums: backtracking between siblings, growth, segments, and misfits."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import replace

from bayplan.model.assignment import Code
from bayplan.model.gang import Group, Locality, PodSet, Segment
from bayplan.model.node import HOSTNAME, Node
from bayplan.model.pod import PodKey
from bayplan.model.profile import Profile
from bayplan.placement.pods.batches import NodeAssignment
from bayplan.placement.subgroups.explain import TreeMisfit
from bayplan.placement.subgroups.minimums import assign_minimums
from tests.properties.minima_worlds import World, open_overlay, pods_of

RACK, ZONE = Locality(required="rack"), Locality(required="zone")
GPU = {"gpu": 1}


def racks(*gpus: int, zone: str = "A", hosts: int = 1) -> list[Node]:
    """A rack for each number of devices, spread evenly over its hosts."""
    return [
        Node(
            f"{zone}{at}-{host}",
            {"zone": zone, "rack": f"r{at}", HOSTNAME: f"{zone}{at}-{host}"},
            {"gpu": count // hosts, "cpu": 99, "pods": 99},
        )
        for at, count in enumerate(gpus)
        for host in range(hosts)
    ]


def root_group(*members: Group | PodSet, locality: Locality | None = None) -> Group:
    return Group("gang", members, len(members), locality or Locality())


def leaf(name: str, count: int, minimum: int | None = None, locality: Locality = RACK) -> PodSet:
    return PodSet(name, count, count if minimum is None else minimum, GPU, locality)


def cut(count: int, minimum: int, size: int, locality: Locality | None = None) -> PodSet:
    return PodSet("worker", count, minimum, GPU, locality or Locality(), segments=(Segment(size, "rack"),))


def tried(
    nodes: list[Node], tree: Group, extra: int | None = None, bound: dict[str, str] | None = None,
    profile: Profile | None = None,
) -> NodeAssignment | TreeMisfit | dict[str, str]:  # fmt: skip
    """The node of each pod that got one, or why the gang got none."""
    on = {PodKey("ns", name): node for name, node in (bound or {}).items()}
    world = World(nodes, tree, pods_of(tree), on, extra)
    overlay, snapshot = open_overlay(world)
    found = assign_minimums(overlay, snapshot, world.wanted(), profile=profile or Profile())
    if isinstance(found, TreeMisfit) or found.unsure:
        return found
    return {key.name: overlay.node(row) for key, row in found.rows.items()}


def placed(*given: object, **more: object) -> dict[str, str]:
    found = tried(*given, **more)  # type: ignore[arg-type]
    assert isinstance(found, dict), found
    return found


def short(*given: object, **more: object) -> TreeMisfit:
    found = tried(*given, **more)  # type: ignore[arg-type]
    assert isinstance(found, TreeMisfit), found
    return found


def by_rack(assigned: dict[str, str], names: Iterable[str]) -> set[str]:
    return {assigned[name].split("-")[0] for name in names}


# ── siblings ───────────────────────────────────────────────────────────────────────────────────────


def test_siblings_backtrack_for_each_other() -> None:
    assigned = placed(racks(6, 4), root_group(leaf("a", 3), leaf("b", 4), leaf("c", 3)))
    assert set(Counter(assigned.values()).items()) == {("A0-0", 6), ("A1-0", 4)}
    assert len(by_rack(assigned, (f"b{at}" for at in range(4)))) == 1


def test_many_siblings_that_only_fit_one_way() -> None:
    sizes = (5, 5, 4, 4, 3, 3, 3, 3)  # 10 + 10 + 10, without a device to spare
    tree = root_group(*(leaf(chr(ord("a") + at), size) for at, size in enumerate(reversed(sizes))))
    assigned = placed(racks(10, 10, 10), tree)
    assert set(Counter(assigned.values()).values()) == {10}
    assert short(racks(10, 10, 9), tree).unsure is False


def test_groups_backtrack_as_well() -> None:
    """Both fit the roomy zone, only one of them the other."""
    nodes = [*racks(4, 4, zone="A"), *racks(3, 3, zone="B")]
    small = Group("small", (leaf("a", 3), leaf("b", 3)), 2, ZONE)
    large = Group("large", (leaf("c", 4), leaf("d", 4)), 2, ZONE)
    for order in ((small, large), (large, small)):
        assigned = placed(nodes, root_group(*order))
        assert {name for name, node in assigned.items() if node[0] == "A"} == {
            f"{p}{r}" for p in "cd" for r in range(4)
        }


def test_pod_sets_without_locality_leave_capacity_for_those_with_one() -> None:
    assigned = placed(racks(2, 4), root_group(leaf("any", 2, locality=Locality()), leaf("b", 4)))
    assert by_rack(assigned, ("any0", "any1")) == {"A0"}


def test_pods_that_differ_are_tried_in_every_way() -> None:
    """Two of three and three of two on nodes of six: only threes together and twos together fit."""
    threes = PodSet("a", 2, 2, {"gpu": 3})
    twos = PodSet("b", 3, 3, {"gpu": 2})
    assigned = placed(racks(6, 6), root_group(twos, threes))
    assert by_rack(assigned, ("a0", "a1")) != by_rack(assigned, ("b0", "b1", "b2"))
    assert short(racks(5, 6), root_group(twos, threes)).unsure is False


def test_a_search_that_ends_too_early_says_so() -> None:
    """By count there is room, yet even numbers never fill odd racks: that takes many steps to see."""
    tree = root_group(*(leaf(f"p{size}-", size) for size in range(2, 35, 2)))
    found = short(racks(77, 77, 77, 77), tree, profile=Profile(exact_seconds=0.0))
    assert found.unsure and found.misfit is not None and found.misfit.code is Code.NOT_DECIDED


def test_what_is_only_preferred_is_given_up_first() -> None:
    rather = leaf("a", 3, locality=Locality(preferred="rack"))
    assert by_rack(placed(racks(2, 3), root_group(rather)), ("a0", "a1", "a2")) == {"A1"}
    assert by_rack(placed(racks(2, 2), root_group(rather)), ("a0", "a1", "a2")) == {"A0", "A1"}
    zones = [*racks(2, 2, zone="A"), *racks(2, 2, 2, zone="B")]
    both = Group("g", (leaf("a", 6, locality=Locality(preferred="rack")),), 1, ZONE)
    assert {node[0] for node in placed(zones, root_group(both)).values()} == {"B"}
    near = leaf("a", 3, locality=Locality(preferred="rack"))
    assert {node[0] for node in placed(zones, root_group(near)).values()} in ({"A"}, {"B"}), (
        "the next wider level"
    )


def test_a_preference_that_one_domain_cannot_satisfy_fills_few_domains() -> None:
    rather = leaf("a", 7, locality=Locality(preferred="rack"))
    assigned = placed(racks(2, 4, 1, 4, 3), root_group(rather))
    assert [assigned[f"a{rank}"][:2] for rank in range(7)] == ["A3"] * 4 + ["A4"] * 3, (
        "of equals the last one"
    )
    zones = [*racks(4, 1, zone="A"), *racks(2, 2, 2, zone="B")]
    assigned = placed(zones, root_group(leaf("a", 8, locality=Locality(preferred="rack"))))
    order = ["B2", "B2", "B1", "B1", "B0", "B0", "A0", "A0"]
    assert [assigned[f"a{rank}"][:2] for rank in range(8)] == order, "the wider level counts first"
    hosts = placed(racks(4, 4, hosts=2), root_group(leaf("a", 6, locality=Locality(preferred="rack"))))
    assert [hosts[f"a{rank}"] for rank in range(6)] == ["A1-0", "A1-0", "A1-1", "A1-1", "A0-0", "A0-0"]


def test_a_preference_that_one_domain_cannot_satisfy_joins_the_bound_pods() -> None:
    rather = leaf("a", 6, locality=Locality(preferred="rack"))
    bound = {"a0": "A0-0", "a1": "A2-0", "a2": "A2-0"}
    assigned = placed(racks(5, 9, 4), root_group(rather), bound=bound)
    assert [assigned[f"a{rank}"] for rank in range(3, 6)] == ["A2-0", "A2-0", "A0-0"]


def test_every_preference_follows_its_own_bound_pods_and_the_narrowest_counts() -> None:
    near = Locality(preferred="rack")
    two = root_group(leaf("a", 3, locality=near), leaf("b", 3, locality=near))
    bound = {"a0": "A0-0", "a1": "A1-0", "b0": "A2-0", "b1": "A3-0"}
    found = placed(racks(2, 1, 3, 1, 1), two, bound=bound)
    assert found == {"a2": "A0-0", "b2": "A2-0"}
    inner = leaf("a", 8, locality=near)
    zones = [*racks(3, 3, zone="A", hosts=3), *racks(2, 1, zone="B")]
    assigned = placed(zones, root_group(inner, locality=Locality(preferred="zone")))
    assert [assigned[f"a{rank}"][:2] for rank in range(8)] == ["A1"] * 3 + ["A0"] * 3 + ["B0"] * 2


def test_equal_preferences_in_several_domains_are_each_satisfied_as_far_as_possible() -> None:
    host = Locality(preferred=HOSTNAME)
    four = (Group(f"g{name}", (leaf(name, 3, locality=host),), 1, RACK) for name in "abcd")
    assigned = placed(racks(6, 6, hosts=3), root_group(*four))
    for name in "abcd":
        hosts = [assigned[f"{name}{rank}"] for rank in range(3)]
        assert len({host[:2] for host in hosts}) == 1 and len(set(hosts)) == 2 and hosts[0] == hosts[1], hosts


def test_a_preferred_locality_uses_nodes_of_the_topology_first() -> None:
    outside = Node("cpu", {HOSTNAME: "cpu"}, {"gpu": 3, "cpu": 9, "pods": 9})
    assigned = placed([*racks(2, 2), outside], root_group(leaf("a", 5, locality=Locality(preferred="rack"))))
    assert [assigned[f"a{rank}"] for rank in range(5)] == ["A1-0", "A1-0", "A0-0", "A0-0", "cpu"]


def test_pods_without_locality_use_nodes_outside_of_the_topology_first() -> None:
    outside = Node("cpu", {HOSTNAME: "cpu"}, {"gpu": 1, "cpu": 9, "pods": 9})
    assigned = placed([*racks(4), outside], root_group(leaf("m", 1, locality=Locality()), leaf("w", 4)))
    assert assigned["m0"] == "cpu"


# ── minima and growth ──────────────────────────────────────────────────────────────────────────────


def test_all_minimums_or_nothing() -> None:
    tree = root_group(leaf("a", 4, 2, Locality()), leaf("b", 4, 2, Locality()))
    assert Counter(name[0] for name in placed(racks(5), tree)) == {"a": 3, "b": 2}
    assert Counter(name[0] for name in placed(racks(4), tree)) == {"a": 2, "b": 2}
    assert short(racks(3), tree).misfit is None


def test_the_pod_set_with_the_lowest_ratio_grows_first() -> None:
    tree = root_group(leaf("a", 9, 3, Locality()), leaf("b", 9, 1, Locality()))
    grown = Counter(name[0] for name in placed(racks(10), tree))
    assert grown == {"a": 7, "b": 3}, "3/3 and 1/1, then always the one that has least of its minimum"
    assert Counter(name[0] for name in placed(racks(10), tree, extra=2)) == {"a": 4, "b": 2}
    assert Counter(name[0] for name in placed(racks(10), tree, extra=0)) == {"a": 3, "b": 1}


def test_elastic_pods_stay_in_the_domain() -> None:
    assert placed(racks(2, 3), root_group(leaf("a", 4, 2))) == {f"a{at}": "A0-0" for at in range(2)}
    assert len(placed(racks(2, 4), root_group(leaf("a", 4, 2)))) == 4, "a domain for all is better"


def test_an_outer_preference_is_not_a_requirement() -> None:
    tree = root_group(
        leaf("a", 2, locality=Locality()), leaf("c", 2, 1), locality=Locality(preferred=HOSTNAME)
    )
    bound = {"a0": "A0-0", "a1": "A1-0", "c0": "A1-0"}
    assert placed(racks(9, 9), tree, bound=bound) == {"c1": "A1-0"}, "a wish never leads elsewhere"
    rather = Group("g", (leaf("a", 4, 2, ZONE),), 1, Locality(preferred="rack"))
    assert len(placed(racks(2, 1), root_group(rather))) == 3, "nor does it keep anybody from a place"


def test_elastic_segments_never_block() -> None:
    tree = root_group(cut(16, 8, 4))
    assert len(placed(racks(4, 4), tree)) == 8
    grown = placed(racks(4, 4, 2, 4), tree)
    assert len(grown) == 14
    for segment in range(3):
        assert len(by_rack(grown, (f"worker{segment * 4 + at}" for at in range(4)))) == 1
    assert by_rack(grown, ("worker12", "worker13")) == {"A2"}, "part of a segment is better than none of it"
    assert short(racks(4, 3), tree).misfit is not None
    assert len(placed(racks(4, 4, 4), root_group(cut(8, 0, 4)), extra=3)) == 3


def test_the_last_segment_is_smaller() -> None:
    assigned = placed(racks(4, 2, 4), root_group(cut(10, 10, 4)))
    assert by_rack(assigned, ("worker8", "worker9")) == {"A1"}


def test_segments_stay_within_what_the_whole_requires() -> None:
    nodes = [*racks(4, 4, zone="A"), *racks(4, 4, 4, zone="B")]
    assert {node[0] for node in placed(nodes, root_group(cut(12, 12, 4, ZONE))).values()} == {"B"}
    assert {node[0] for node in placed(nodes, root_group(cut(12, 4, 4, ZONE))).values()} == {"B"}
    elastic = placed(nodes, root_group(cut(20, 8, 4, ZONE)))
    assert len({node[0] for node in elastic.values()}) == 1 and len(elastic) >= 8


def test_ranks_follow_the_topology() -> None:
    assigned = placed(racks(4, 4, 4, hosts=2), root_group(cut(12, 12, 4)))
    assert [assigned[f"worker{rank}"] for rank in range(12)] == sorted(assigned.values())


# ── bound pods ─────────────────────────────────────────────────────────────────────────────────────


def test_a_replaced_pod_joins_its_segment() -> None:
    bound = {f"worker{rank}": f"A{rank // 4}-0" for rank in range(12) if rank != 5}
    assert placed(racks(9, 5, 4), root_group(cut(12, 12, 4)), bound=bound) == {"worker5": "A1-0"}
    assert placed(racks(9, 4, 4), root_group(cut(12, 12, 4)), bound=bound) == {"worker5": "A1-0"}
    lost_nodes = {name: node for name, node in bound.items() if node != "A1-0"}
    again = placed(racks(9, 1, 4, 4), root_group(cut(12, 12, 4)), bound=lost_nodes)
    assert len(again) == 4 and len(set(again.values())) == 1


def test_a_full_domain_is_waited_for() -> None:
    found = short(racks(3, 9), root_group(leaf("a", 4)), bound={"a0": "A0-0", "a1": "A0-0"})
    assert found.misfit is not None and found.misfit.nearest is not None
    assert (found.misfit.nearest.domain, found.misfit.nearest.fit) == (("A", "r0"), 1)
    assert short(racks(9, 9), root_group(leaf("a", 3)), bound={"a0": "A0-0", "a1": "A1-0"}).misfit is not None


def test_no_pod_joins_bound_pods_that_are_in_several_domains() -> None:
    tree = root_group(leaf("a", 3, 0), leaf("b", 1))
    apart = {"a0": "A0-0", "a1": "A1-0", "b0": "A0-0"}
    assert short(racks(9, 9), tree, bound=apart).misfit is None
    assert placed(racks(9, 9), tree, bound={"a0": "A0-0", "a1": "A0-0", "b0": "A1-0"}) == {"a2": "A0-0"}


# ── misfits ────────────────────────────────────────────────────────────────────────────────────────


def test_the_misfit_names_the_part_and_the_nearest_domain() -> None:
    found = short(racks(4, 2), root_group(leaf("a", 2), leaf("b", 5)))
    assert (found.part, found.minimum, found.fit) == ("b", 5, 6)
    misfit = found.misfit
    assert misfit is not None and misfit.nearest is not None
    assert (misfit.code, misfit.topology, misfit.level, misfit.pod_sets) == (
        Code.NO_ROOM,
        "hall",
        "rack",
        ("b",),
    )
    near = misfit.nearest
    assert (near.domain, near.fit, near.short, near.resource) == (("A", "r0"), 4, 1, "gpu")
    assert short(racks(4), root_group(leaf("a", 5))).part == "", "the only one is all of it"
    segments = short(racks(4, 5, 2), root_group(leaf("m", 1), cut(12, 12, 4))).misfit
    assert segments is not None and (segments.fit, segments.asked, segments.unit) == (2, 3, 4)
    none = short(racks(3, 2), root_group(leaf("m", 1), cut(12, 12, 4))).misfit
    assert none is not None and none.nearest is not None
    assert (none.nearest.domain, none.nearest.fit, none.nearest.short) == (("A", "r0"), 3, 1)
    assert short(racks(3, 2), root_group(leaf("a", 6, locality=Locality()))).resource == "gpu"
    unknown = short(racks(4), root_group(leaf("a", 1, locality=Locality(required="row")))).misfit
    assert unknown is not None and (unknown.code, unknown.level) == (Code.UNKNOWN_LEVEL, "row")


def test_the_tighter_zone_is_filled_first_whatever_its_racks() -> None:
    nodes = [*racks(1, 1, 1, zone="A"), *racks(2, zone="B")]
    for locality in (RACK, Locality(preferred="rack")):
        assert placed(nodes, root_group(leaf("a", 1, locality=locality))) == {"a0": "B0-0"}


def test_one_overlay_is_used_again_with_another_limit() -> None:
    tree = root_group(leaf("a", 4, 2, Locality()))
    world = World(racks(9), tree, pods_of(tree), {})
    overlay, snapshot = open_overlay(world)
    first = world.wanted()
    for extra, assigned in ((0, 2), (1, 3), (None, 4), (0, 2)):
        checkpoint = overlay.checkpoint()
        found = assign_minimums(overlay, snapshot, replace(first, extra=extra), profile=Profile())
        assert isinstance(found, NodeAssignment) and len(found.rows) == assigned
        overlay.rollback(checkpoint)


def test_a_gang_that_fits_no_domain_is_reported_before_a_part_of_it() -> None:
    found = short(racks(3, 3), root_group(leaf("a", 4), leaf("b", 1), locality=RACK))
    assert found.part == "" and found.misfit is not None
    assert (found.misfit.fit, found.misfit.asked) == (3, 5)
    loose = short(racks(3, 3), root_group(leaf("a", 4), leaf("b", 1)))
    assert (loose.part, loose.minimum, loose.fit) == ("a", 4, 3)
