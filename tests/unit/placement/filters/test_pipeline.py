"""What random clusters do not reach: memory, cures, disks, claims in odd states, room to make volumes in."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from bayplan.model.filter_failure import FilterReason, PodError
from bayplan.model.node import Node
from bayplan.model.node_rules import Requirement, Taint
from bayplan.model.pod_spec import (
    ClaimUse,
    Disk,
    PodAffinity,
    PodAffinityTerm,
    PodSignature,
    Selector,
    TopologySpread,
)
from bayplan.model.storage import Storage, StorageCapacity, StorageClass, Volume, VolumeClaim
from bayplan.placement.cluster.images import ImageIndex, fetched
from bayplan.placement.cluster.node_index import (
    NodeIndex,
    NodeSnapshot,
    allocatable_of,
    land_of,
    land_with,
    land_without,
    relaid,
)
from bayplan.placement.cluster.node_table import changed, inserted, removed, table_of
from bayplan.placement.cluster.pod_index import QUESTIONS_MAX, PodIndex, PodQuery
from bayplan.placement.filters.pipeline import FilterInput, FilterResult, judge

CPU = {"cpu": 0}
HOST = "kubernetes.io/hostname"
WEB = Selector((Requirement("app", "In", ("web",)),))


def machine(name: str, cpu: int = 4000, **more: Any) -> Node:
    return Node(name, {HOST: name} | more.pop("labels", {}), {"cpu": cpu}, **more)


def scene(nodes: list[Node], storage: Storage | None = None, used: tuple[int, ...] = ()) -> FilterInput:
    index = PodIndex()
    table = table_of(np.asarray([*nodes, None], dtype=object)[:-1])
    room = allocatable_of(table, CPU)
    free = room - np.asarray([used or [0] * len(nodes)], dtype=np.int64)
    return FilterInput(
        NodeSnapshot(land_of(table, index.slots), CPU, free, room), index, storage or Storage()
    )


def causes(verdict: FilterResult, row: int = 0) -> list[str]:
    return [str(cause) for cause, _ in verdict.reasons(row)]


def test_asked_again_before_anything_changed_the_very_same_answer_comes() -> None:
    here = scene([machine("a")])
    one = judge(here, PodSignature(amounts=(("cpu", 1),)))
    assert judge(here, PodSignature(amounts=(("cpu", 1),))) is one
    here.index.add("p", "a", PodSignature())
    assert judge(here, PodSignature(amounts=(("cpu", 1),))) is not one


def test_a_node_too_small_is_not_cured_by_others_leaving() -> None:
    repelling = (Taint("t", "", "NoExecute"),)
    nodes = [machine("full"), machine("small", 1000), machine("tainted", taints=repelling)]
    here = scene(nodes, used=(3500, 500, 4000))
    verdict = judge(here, PodSignature(amounts=(("cpu", 2000),)))
    assert not verdict.fits.any()
    assert verdict.curable.tolist() == [True, False, False]


def test_spread_and_neighbours_may_be_cured_but_not_a_missing_label() -> None:
    here = scene([machine("a"), machine("b")])
    here.index.add("p", "a", PodSignature(labels=(("app", "web"),)))
    apart = PodAffinity(apart=(PodAffinityTerm(HOST, WEB, ("",)),))
    assert judge(here, PodSignature(neighbours=apart)).curable.tolist() == [True, False]
    spread = judge(here, PodSignature(labels=(("app", "web"),), spread=(TopologySpread(HOST, 1, WEB),)))
    assert spread.fits.tolist() == [False, True]
    assert spread.curable.tolist() == [True, False]
    near = judge(here, PodSignature(neighbours=PodAffinity(near=(PodAffinityTerm(HOST, WEB, ("",)),))))
    assert near.fits.tolist() == [True, False]
    assert not near.curable.any()
    assert causes(judge(here, PodSignature(spread=(TopologySpread("rack", 1, WEB),)))) == [
        FilterReason.SPREAD_LABEL
    ]


def test_pods_that_leave_are_neighbours_still_but_spread_no_more() -> None:
    here = scene([machine("a"), machine("b")])
    here.index.add("p", "a", PodSignature(labels=(("app", "web"),)), leaving=True)
    spread = PodSignature(labels=(("app", "web"),), spread=(TopologySpread(HOST, 1, WEB),))
    assert judge(here, spread).fits.all()
    apart = PodSignature(neighbours=PodAffinity(apart=(PodAffinityTerm(HOST, WEB, ("",)),)))
    assert judge(here, apart).fits.tolist() == [False, True]
    here.index.add("p", "a", PodSignature(labels=(("app", "web"),)))
    assert judge(here, spread).fits.tolist() == [False, True]


def test_a_namespace_that_gets_a_label_is_heard_of() -> None:
    here = scene([machine("a")])
    here.index.name_space("red", {})
    here.index.add("p", "a", PodSignature(namespace="red", labels=(("app", "web"),)))
    blue = Selector((Requirement("team", "In", ("blue",)),))
    shape = PodSignature(neighbours=PodAffinity(apart=(PodAffinityTerm(HOST, WEB, (), blue),)))
    assert judge(here, shape).fits.all()
    here.index.name_space("red", {"team": "blue"})
    assert not judge(here, shape).fits.any()
    here.index.name_space("red", None)
    assert judge(here, shape).fits.all()


def test_more_questions_than_are_remembered_are_all_answered() -> None:
    index = PodIndex()
    for number in range(QUESTIONS_MAX + 50):
        index.add(number, "a", PodSignature(labels=(("job", str(number)),)))

    def ask(number: int) -> int:
        job = Selector((Requirement("job", "In", (str(number),)),))
        return int(index.count(PodQuery(((None, job),)))[0])

    for number in range(QUESTIONS_MAX + 50):
        assert ask(number) == 1
    assert len(index.questions) == QUESTIONS_MAX
    index.remove(0)
    index.remove(QUESTIONS_MAX)
    assert (ask(0), ask(1), ask(QUESTIONS_MAX)) == (0, 1, 0)
    assert len(index.asked.anchored) == QUESTIONS_MAX


def test_words_of_pods_long_gone_are_forgotten() -> None:
    index = PodIndex()
    exists = PodQuery(((None, Selector((Requirement("job", "Exists"),))),))
    for number in range(6000):
        index.add("p", "a", PodSignature(labels=(("job", str(number)),)))
        if number % 500 == 0:
            assert index.count(exists)[0] == 1
    assert sum(len(words.codes) for words in index.columns.words.values()) < 5000
    fresh = PodQuery(((None, Selector((Requirement("job", "In", ("5999",)),))),))
    assert index.count(fresh)[0] == 1


def test_what_pods_say_is_forgotten_with_them() -> None:
    index = PodIndex()
    shape = PodSignature(neighbours=PodAffinity(apart=(PodAffinityTerm(HOST, WEB, ("",)),)))
    index.add("p", "a", shape)
    assert index.signature(PodSignature(labels=(("app", "x"), ("b", "y")))).labels == (("app", "x"),)
    index.remove("p")
    assert not index.stances
    assert not index.keys
    assert not index.taken.anchored
    index.remove("p")


def test_a_node_that_changes_is_seen_changed() -> None:
    here = scene([machine("a"), machine("b")])
    land = here.ground.land
    nodes = land.table.nodes.copy()
    nodes[1] = machine("b", schedulable=False)
    after = relaid(land, changed(land.table, nodes, 1), 1)
    ground = NodeSnapshot(after, CPU, here.ground.free, here.ground.allocatable)
    assert judge(FilterInput(ground, here.index), PodSignature()).fits.tolist() == [True, False]
    assert judge(here, PodSignature()).fits.all()


def test_nodes_that_come_and_go_leave_the_others_theirs() -> None:
    here = scene([machine("a"), machine("c")])
    here.index.add("p", "c", PodSignature(labels=(("app", "web"),)))
    apart = PodSignature(neighbours=PodAffinity(apart=(PodAffinityTerm(HOST, WEB, ("",)),)))
    land = here.ground.land

    def fits(land: NodeIndex, shape: PodSignature) -> list[bool]:
        room = allocatable_of(land.table, CPU)
        found: list[bool] = judge(
            FilterInput(NodeSnapshot(land, CPU, room, room), here.index), shape
        ).fits.tolist()
        return found

    nodes = np.asarray([machine("a"), machine("b", schedulable=False), machine("c")], dtype=object)
    more = land_with(land, inserted(land.table, nodes, 1), 1)
    assert fits(more, apart) == [True, False, False]
    assert fits(more, PodSignature(node="c")) == [False, False, True]
    less = land_without(more, removed(more.table, nodes[1:], 0), 0)
    assert fits(less, apart) == [False, False]
    assert fits(less, PodSignature(node="c")) == [False, True]
    assert fits(less, PodSignature(node="a")) == [False, False]


@pytest.mark.parametrize(
    ("mine", "theirs", "clash"),
    [
        (Disk("gce", "d"), Disk("gce", "d"), True),
        (Disk("gce", "d", read_only=True), Disk("gce", "d"), True),
        (Disk("gce", "d"), Disk("gce", "d", read_only=True), True),
        (Disk("gce", "d", read_only=True), Disk("gce", "d", read_only=True), False),
        (Disk("aws", "d", read_only=True), Disk("aws", "d", read_only=True), True),
        (Disk("gce", "d"), Disk("gce", "e"), False),
        (Disk("gce", "d"), Disk("iscsi", "d"), False),
    ],
)
def test_disks_that_clash(mine: Disk, theirs: Disk, clash: bool) -> None:
    here = scene([machine("a"), machine("b")])
    here.index.add("p", "a", PodSignature(disks=(theirs,)))
    verdict = judge(here, PodSignature(disks=(mine,)))
    assert verdict.fits.tolist() == [not clash, True]
    assert causes(verdict) == ([FilterReason.DISK] if clash else [])


def claim(name: str = "c", **more: Any) -> VolumeClaim:
    return VolumeClaim("red", name, **more)


@pytest.mark.parametrize(
    ("use", "there", "bar", "about"),
    [
        (ClaimUse("c"), None, PodError.CLAIM_MISSING, ("c",)),
        (ClaimUse("p-c", "u", "p"), None, PodError.CLAIM_AWAITED, ("p-c",)),
        (ClaimUse("c"), claim(volume="v", lost=True), PodError.CLAIM_LOST, ("c", "v")),
        (ClaimUse("c"), claim(volume="v", bound=True, leaving=True), PodError.CLAIM_LEAVING, ("c",)),
        (ClaimUse("c"), claim(), PodError.CLAIM_UNBOUND, ()),
        (ClaimUse("c"), claim(storage_class="late", volume="v"), PodError.CLAIM_UNBOUND, ()),
        (ClaimUse("c", "u", "p"), claim(owner="other"), PodError.CLAIM_FOREIGN, ("red/c", "red/p")),
        (ClaimUse("c"), claim(volume="gone", bound=True), PodError.VOLUME_MISSING, ("gone",)),
    ],
)
def test_claims_that_no_node_can_help(
    use: ClaimUse, there: VolumeClaim | None, bar: PodError, about: tuple[str, ...]
) -> None:
    late = StorageClass("late", "driver", waits=True)
    storage = Storage({there.key: there} if there else {}, {}, {"late": late})
    verdict = judge(scene([machine("a")], storage), PodSignature(namespace="red", claims=(use,)))
    assert (verdict.why.bar, verdict.why.about) == (bar, about)
    assert not verdict.fits.any()
    assert not verdict.curable.any()


def test_a_volume_of_its_own_that_is_gone_is_missed_on_every_node() -> None:
    own = claim("c", volume="gone", bound=True, owner="u")
    here = scene([machine("a")], Storage({own.key: own}))
    verdict = judge(here, PodSignature(namespace="red", claims=(ClaimUse("c", "u", "p"),)))
    assert causes(verdict) == [FilterReason.VOLUME_GONE]


def test_a_volume_is_made_only_where_there_is_room() -> None:
    late = StorageClass("late", "driver", waits=True)
    wanted = claim(storage_class="late", size=10)
    rooms = (
        StorageCapacity("late", 20, Selector((Requirement(HOST, "In", ("a",)),))),
        StorageCapacity("late", 5, Selector((Requirement(HOST, "In", ("b",)),))),
        StorageCapacity("other", 50, Selector(())),
    )
    known = {wanted.key: wanted}
    shape = PodSignature(namespace="red", claims=(ClaimUse("c"),))
    measured = Storage(known, {}, {"late": late}, measured=frozenset({"driver"}), rooms=rooms)
    verdict = judge(scene([machine("a"), machine("b")], measured), shape)
    assert verdict.fits.tolist() == [True, False]
    assert causes(verdict, 1) == [FilterReason.NO_STORE_ROOM]
    unmeasured = Storage(known, {}, {"late": late}, rooms=rooms)
    assert judge(scene([machine("a"), machine("b")], unmeasured), shape).fits.all()


def test_a_volume_being_made_ties_its_claim_to_a_node() -> None:
    late = StorageClass("late", "driver", waits=True)
    wanted = claim(storage_class="late", selected_node="b")
    here = scene([machine("a"), machine("b")], Storage({wanted.key: wanted}, {}, {"late": late}))
    verdict = judge(here, PodSignature(namespace="red", claims=(ClaimUse("c"),)))
    assert verdict.fits.tolist() == [False, True]
    assert causes(verdict) == [FilterReason.NO_VOLUME]


def test_no_volume_is_given_twice_and_one_meant_for_a_claim_goes_to_nobody_else() -> None:
    late = StorageClass("late", "kubernetes.io/no-provisioner", waits=True)
    small, large = claim("s", storage_class="late", size=1), claim("l", storage_class="late", size=2)
    both = PodSignature(namespace="red", claims=(ClaimUse("l"), ClaimUse("s")))
    known = {small.key: small, large.key: large}
    one = Volume("one", 4, "late")

    def fits(*volumes: Volume) -> bool:
        storage = Storage(known, {volume.name: volume for volume in volumes}, {"late": late})
        return bool(judge(scene([machine("a")], storage), both).fits[0])

    assert not fits(one)
    assert fits(one, Volume("two", 4, "late"))
    assert not fits(one, Volume("two", 4, "late", available=False))
    assert fits(one, Volume("two", 4, "late", claim=large.key, available=False))
    assert not fits(one, Volume("two", 4, "late", claim=("red", "other")))


def test_volumes_left_attached_count_unless_the_pod_brings_them_itself() -> None:
    bound = claim(volume="v", bound=True)
    volume = Volume("v", claim=bound.key, driver="d", handle="h")

    def fits(limit: int, attached: frozenset[tuple[str, str]], running: bool = False) -> bool:
        storage = Storage(
            {bound.key: bound}, {"v": volume}, limits={"a": {"d": limit}}, attached={"a": attached}
        )
        here = scene([machine("a")], storage)
        shape = PodSignature(namespace="red", claims=(ClaimUse("c"),))
        if running:
            here.index.add("p", "a", shape)
        return bool(judge(here, shape).fits[0])

    assert fits(1, frozenset())
    assert not fits(0, frozenset())
    assert not fits(1, frozenset({("d", "other")}))
    assert fits(1, frozenset({("e", "other")}))
    assert fits(1, frozenset({("d", "h")}), running=True)
    assert fits(0, frozenset(), running=True)


def test_images_come_and_go() -> None:
    here = scene([machine("a"), machine("b")])
    images = ImageIndex(here.index.slots)
    land, shape = here.ground.land, PodSignature(images=("big:1",))
    assert fetched(land, images, shape).tolist() == [0, 0]
    images.note("b", {"big:1": 2000 << 20})
    assert fetched(land, images, shape).tolist() == [0, 100]
    images.note("a", {"big:1": 2000 << 20})
    images.note("b", {})
    assert fetched(land, images, shape).tolist() == [100, 0]
    images.note("a", {})
    assert not images.places
    assert not images.sizes
