"""Filter cases beyond random clusters: caching, resolvable failures, disks, claims, storage capacity."""

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
from bayplan.placement.cluster.images import ImageIndex, image_locality
from bayplan.placement.cluster.node_index import (
    NodeIndex,
    NodeSnapshot,
    allocatable_of,
    node_index_of,
    with_added_node,
    with_changed_node,
    with_removed_node,
)
from bayplan.placement.cluster.node_table import changed, inserted, removed, table_of
from bayplan.placement.cluster.pod_index import QUERIES_MAX, PodIndex, PodQuery
from bayplan.placement.filters.pipeline import FilterInput, FilterResult, run_filters

CPU = {"cpu": 0}
HOST = "kubernetes.io/hostname"
WEB = Selector((Requirement("app", "In", ("web",)),))


def machine(name: str, cpu: int = 4000, **more: Any) -> Node:
    return Node(name, {HOST: name} | more.pop("labels", {}), {"cpu": cpu}, **more)


def filter_input_of(
    nodes: list[Node], storage: Storage | None = None, used: tuple[int, ...] = ()
) -> FilterInput:
    index = PodIndex()
    table = table_of(np.asarray([*nodes, None], dtype=object)[:-1])
    allocatable = allocatable_of(table, CPU)
    free = allocatable - np.asarray([used or [0] * len(nodes)], dtype=np.int64)
    return FilterInput(
        NodeSnapshot(node_index_of(table, index.slots), CPU, free, allocatable), index, storage or Storage()
    )


def reasons_of(result: FilterResult, row: int = 0) -> list[str]:
    return [str(cause) for cause, _ in result.reasons(row)]


def test_the_result_is_cached_until_anything_changes() -> None:
    filter_input = filter_input_of([machine("a")])
    one = run_filters(filter_input, PodSignature(amounts=(("cpu", 1),)))
    assert run_filters(filter_input, PodSignature(amounts=(("cpu", 1),))) is one
    filter_input.index.add("p", "a", PodSignature())
    assert run_filters(filter_input, PodSignature(amounts=(("cpu", 1),))) is not one


def test_preemption_cannot_help_on_a_node_that_is_too_small() -> None:
    repelling = (Taint("t", "", "NoExecute"),)
    nodes = [machine("full"), machine("small", 1000), machine("tainted", taints=repelling)]
    filter_input = filter_input_of(nodes, used=(3500, 500, 4000))
    result = run_filters(filter_input, PodSignature(amounts=(("cpu", 2000),)))
    assert not result.fits.any()
    assert result.resolvable.tolist() == [True, False, False]


def test_preemption_may_help_with_spread_and_anti_affinity_but_not_with_a_missing_label() -> None:
    filter_input = filter_input_of([machine("a"), machine("b")])
    filter_input.index.add("p", "a", PodSignature(labels=(("app", "web"),)))
    apart = PodAffinity(required_anti=(PodAffinityTerm(HOST, WEB, ("",)),))
    assert run_filters(filter_input, PodSignature(affinity=apart)).resolvable.tolist() == [True, False]
    spread = run_filters(
        filter_input, PodSignature(labels=(("app", "web"),), spread=(TopologySpread(HOST, 1, WEB),))
    )
    assert spread.fits.tolist() == [False, True]
    assert spread.resolvable.tolist() == [True, False]
    near = run_filters(
        filter_input, PodSignature(affinity=PodAffinity(required=(PodAffinityTerm(HOST, WEB, ("",)),)))
    )
    assert near.fits.tolist() == [True, False]
    assert not near.resolvable.any()
    assert reasons_of(run_filters(filter_input, PodSignature(spread=(TopologySpread("rack", 1, WEB),)))) == [
        FilterReason.SPREAD_LABEL
    ]


def test_terminating_pods_count_for_affinity_but_not_for_spread() -> None:
    filter_input = filter_input_of([machine("a"), machine("b")])
    filter_input.index.add("p", "a", PodSignature(labels=(("app", "web"),)), leaving=True)
    spread = PodSignature(labels=(("app", "web"),), spread=(TopologySpread(HOST, 1, WEB),))
    assert run_filters(filter_input, spread).fits.all()
    apart = PodSignature(affinity=PodAffinity(required_anti=(PodAffinityTerm(HOST, WEB, ("",)),)))
    assert run_filters(filter_input, apart).fits.tolist() == [False, True]
    filter_input.index.add("p", "a", PodSignature(labels=(("app", "web"),)))
    assert run_filters(filter_input, spread).fits.tolist() == [False, True]


def test_a_label_change_of_a_namespace_takes_effect() -> None:
    filter_input = filter_input_of([machine("a")])
    filter_input.index.set_namespace("red", {})
    filter_input.index.add("p", "a", PodSignature(namespace="red", labels=(("app", "web"),)))
    blue = Selector((Requirement("team", "In", ("blue",)),))
    shape = PodSignature(affinity=PodAffinity(required_anti=(PodAffinityTerm(HOST, WEB, (), blue),)))
    assert run_filters(filter_input, shape).fits.all()
    filter_input.index.set_namespace("red", {"team": "blue"})
    assert not run_filters(filter_input, shape).fits.any()
    filter_input.index.set_namespace("red", None)
    assert run_filters(filter_input, shape).fits.all()


def test_more_queries_than_are_cached_are_all_answered() -> None:
    index = PodIndex()
    for number in range(QUERIES_MAX + 50):
        index.add(number, "a", PodSignature(labels=(("job", str(number)),)))

    def ask(number: int) -> int:
        job = Selector((Requirement("job", "In", (str(number),)),))
        return int(index.count(PodQuery(((None, job),)))[0])

    for number in range(QUERIES_MAX + 50):
        assert ask(number) == 1
    assert len(index.queries) == QUERIES_MAX
    index.remove(0)
    index.remove(QUERIES_MAX)
    assert (ask(0), ask(1), ask(QUERIES_MAX)) == (0, 1, 0)
    assert len(index.queries_by_label.by_label) == QUERIES_MAX


def test_label_values_of_deleted_pods_are_dropped() -> None:
    index = PodIndex()
    exists = PodQuery(((None, Selector((Requirement("job", "Exists"),))),))
    for number in range(6000):
        index.add("p", "a", PodSignature(labels=(("job", str(number)),)))
        if number % 500 == 0:
            assert index.count(exists)[0] == 1
    assert sum(len(vocabulary.codes) for vocabulary in index.columns.vocabularies.values()) < 5000
    fresh = PodQuery(((None, Selector((Requirement("job", "In", ("5999",)),))),))
    assert index.count(fresh)[0] == 1


def test_affinity_terms_are_dropped_with_their_pods() -> None:
    index = PodIndex()
    shape = PodSignature(affinity=PodAffinity(required_anti=(PodAffinityTerm(HOST, WEB, ("",)),)))
    index.add("p", "a", shape)
    assert index.signature(PodSignature(labels=(("app", "x"), ("b", "y")))).labels == (("app", "x"),)
    index.remove("p")
    assert not index.affinity_terms
    assert not index.keys
    assert not index.terms_by_label.by_label
    index.remove("p")


def test_a_changed_node_is_filtered_by_its_new_state() -> None:
    filter_input = filter_input_of([machine("a"), machine("b")])
    node_index = filter_input.node_snapshot.node_index
    nodes = node_index.table.nodes.copy()
    nodes[1] = machine("b", schedulable=False)
    after = with_changed_node(node_index, changed(node_index.table, nodes, 1), 1)
    ground = NodeSnapshot(after, CPU, filter_input.node_snapshot.free, filter_input.node_snapshot.allocatable)
    assert run_filters(FilterInput(ground, filter_input.index), PodSignature()).fits.tolist() == [True, False]
    assert run_filters(filter_input, PodSignature()).fits.all()


def test_added_and_removed_nodes_do_not_shift_the_pods_of_others() -> None:
    filter_input = filter_input_of([machine("a"), machine("c")])
    filter_input.index.add("p", "c", PodSignature(labels=(("app", "web"),)))
    apart = PodSignature(affinity=PodAffinity(required_anti=(PodAffinityTerm(HOST, WEB, ("",)),)))
    node_index = filter_input.node_snapshot.node_index

    def fits(node_index: NodeIndex, shape: PodSignature) -> list[bool]:
        allocatable = allocatable_of(node_index.table, CPU)
        found: list[bool] = run_filters(
            FilterInput(NodeSnapshot(node_index, CPU, allocatable, allocatable), filter_input.index), shape
        ).fits.tolist()
        return found

    nodes = np.asarray([machine("a"), machine("b", schedulable=False), machine("c")], dtype=object)
    more = with_added_node(node_index, inserted(node_index.table, nodes, 1), 1)
    assert fits(more, apart) == [True, False, False]
    assert fits(more, PodSignature(node="c")) == [False, False, True]
    less = with_removed_node(more, removed(more.table, nodes[1:], 0), 0)
    assert fits(less, apart) == [False, False]
    assert fits(less, PodSignature(node="c")) == [False, True]
    assert fits(less, PodSignature(node="a")) == [False, False]


@pytest.mark.parametrize(
    ("mine", "theirs", "conflicts"),
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
def test_disk_conflicts(mine: Disk, theirs: Disk, conflicts: bool) -> None:
    filter_input = filter_input_of([machine("a"), machine("b")])
    filter_input.index.add("p", "a", PodSignature(disks=(theirs,)))
    result = run_filters(filter_input, PodSignature(disks=(mine,)))
    assert result.fits.tolist() == [not conflicts, True]
    assert reasons_of(result) == ([FilterReason.DISK] if conflicts else [])


def claim(name: str = "c", **more: Any) -> VolumeClaim:
    return VolumeClaim("red", name, **more)


@pytest.mark.parametrize(
    ("use", "claim_object", "error", "about"),
    [
        (ClaimUse("c"), None, PodError.CLAIM_MISSING, ("c",)),
        (ClaimUse("p-c", "u", "p"), None, PodError.CLAIM_PENDING, ("p-c",)),
        (ClaimUse("c"), claim(volume="v", lost=True), PodError.CLAIM_LOST, ("c", "v")),
        (ClaimUse("c"), claim(volume="v", bound=True, terminating=True), PodError.CLAIM_TERMINATING, ("c",)),
        (ClaimUse("c"), claim(), PodError.CLAIM_UNBOUND, ()),
        (ClaimUse("c"), claim(storage_class="late", volume="v"), PodError.CLAIM_UNBOUND, ()),
        (ClaimUse("c", "u", "p"), claim(owner="other"), PodError.CLAIM_FOREIGN, ("red/c", "red/p")),
        (ClaimUse("c"), claim(volume="gone", bound=True), PodError.VOLUME_MISSING, ("gone",)),
    ],
)
def test_claim_errors_that_no_node_can_resolve(
    use: ClaimUse, claim_object: VolumeClaim | None, error: PodError, about: tuple[str, ...]
) -> None:
    late = StorageClass("late", "driver", wait_for_consumer=True)
    storage = Storage({claim_object.key: claim_object} if claim_object else {}, {}, {"late": late})
    result = run_filters(
        filter_input_of([machine("a")], storage), PodSignature(namespace="red", claims=(use,))
    )
    assert (result.why.error, result.why.about) == (error, about)
    assert not result.fits.any()
    assert not result.resolvable.any()


def test_a_missing_ephemeral_volume_is_reported_on_every_node() -> None:
    own = claim("c", volume="gone", bound=True, owner="u")
    filter_input = filter_input_of([machine("a")], Storage({own.key: own}))
    result = run_filters(filter_input, PodSignature(namespace="red", claims=(ClaimUse("c", "u", "p"),)))
    assert reasons_of(result) == [FilterReason.VOLUME_GONE]


def test_a_volume_is_provisioned_only_where_there_is_storage_capacity() -> None:
    late = StorageClass("late", "driver", wait_for_consumer=True)
    wanted = claim(storage_class="late", size=10)
    rooms = (
        StorageCapacity("late", 20, Selector((Requirement(HOST, "In", ("a",)),))),
        StorageCapacity("late", 5, Selector((Requirement(HOST, "In", ("b",)),))),
        StorageCapacity("other", 50, Selector(())),
    )
    known = {wanted.key: wanted}
    shape = PodSignature(namespace="red", claims=(ClaimUse("c"),))
    measured = Storage(known, {}, {"late": late}, measured=frozenset({"driver"}), capacities=rooms)
    result = run_filters(filter_input_of([machine("a"), machine("b")], measured), shape)
    assert result.fits.tolist() == [True, False]
    assert reasons_of(result, 1) == [FilterReason.NO_STORAGE_CAPACITY]
    unmeasured = Storage(known, {}, {"late": late}, capacities=rooms)
    assert run_filters(filter_input_of([machine("a"), machine("b")], unmeasured), shape).fits.all()


def test_a_volume_being_provisioned_ties_its_claim_to_the_selected_node() -> None:
    late = StorageClass("late", "driver", wait_for_consumer=True)
    wanted = claim(storage_class="late", selected_node="b")
    filter_input = filter_input_of(
        [machine("a"), machine("b")], Storage({wanted.key: wanted}, {}, {"late": late})
    )
    result = run_filters(filter_input, PodSignature(namespace="red", claims=(ClaimUse("c"),)))
    assert result.fits.tolist() == [False, True]
    assert reasons_of(result) == [FilterReason.NO_VOLUME]


def test_no_volume_is_bound_twice_and_a_reserved_volume_only_to_its_claim() -> None:
    late = StorageClass("late", "kubernetes.io/no-provisioner", wait_for_consumer=True)
    small, large = claim("s", storage_class="late", size=1), claim("l", storage_class="late", size=2)
    both = PodSignature(namespace="red", claims=(ClaimUse("l"), ClaimUse("s")))
    known = {small.key: small, large.key: large}
    one = Volume("one", 4, "late")

    def fits(*volumes: Volume) -> bool:
        storage = Storage(known, {volume.name: volume for volume in volumes}, {"late": late})
        return bool(run_filters(filter_input_of([machine("a")], storage), both).fits[0])

    assert not fits(one)
    assert fits(one, Volume("two", 4, "late"))
    assert not fits(one, Volume("two", 4, "late", available=False))
    assert fits(one, Volume("two", 4, "late", claim=large.key, available=False))
    assert not fits(one, Volume("two", 4, "late", claim=("red", "other")))


def test_attached_volumes_count_once_even_if_the_pod_uses_them() -> None:
    bound = claim(volume="v", bound=True)
    volume = Volume("v", claim=bound.key, driver="d", handle="h")

    def fits(limit: int, attached: frozenset[tuple[str, str]], running: bool = False) -> bool:
        storage = Storage(
            {bound.key: bound}, {"v": volume}, limits={"a": {"d": limit}}, attached={"a": attached}
        )
        filter_input = filter_input_of([machine("a")], storage)
        shape = PodSignature(namespace="red", claims=(ClaimUse("c"),))
        if running:
            filter_input.index.add("p", "a", shape)
        return bool(run_filters(filter_input, shape).fits[0])

    assert fits(1, frozenset())
    assert not fits(0, frozenset())
    assert not fits(1, frozenset({("d", "other")}))
    assert fits(1, frozenset({("e", "other")}))
    assert fits(1, frozenset({("d", "h")}), running=True)
    assert fits(0, frozenset(), running=True)


def test_image_locality_follows_the_images_of_nodes() -> None:
    filter_input = filter_input_of([machine("a"), machine("b")])
    images = ImageIndex(filter_input.index.slots)
    node_index, shape = filter_input.node_snapshot.node_index, PodSignature(images=("big:1",))
    assert image_locality(node_index, images, shape).tolist() == [0, 0]
    images.note("b", {"big:1": 2000 << 20})
    assert image_locality(node_index, images, shape).tolist() == [0, 100]
    images.note("a", {"big:1": 2000 << 20})
    images.note("b", {})
    assert image_locality(node_index, images, shape).tolist() == [100, 0]
    images.note("a", {})
    assert not images.places
    assert not images.sizes
