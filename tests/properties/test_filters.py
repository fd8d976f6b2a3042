"""A pod held against all nodes at once gets the answer that a look at each node by itself gives."""

from __future__ import annotations

from collections import Counter
from random import Random

from hypothesis import given
from hypothesis import strategies as st

from bayplan.dialects.kube.encode.filter_messages import bar, cause, unavailable
from bayplan.placement.filters.pipeline import judge
from bayplan.placement.filters.score import best, rank
from tests.properties import fit_oracle
from tests.properties.fit_oracle_scores import worth
from tests.properties.fit_scenes import index_of, key_of, put, scene_of, shape_of
from tests.properties.fit_world_volumes import Obj
from tests.properties.fit_worlds import pod, world

SEEDS = st.integers(0, 2**32)
CURABLE = (
    "Insufficient",
    "Too many pods",
    "node(s) didn't have free ports",
    "node(s) unavailable due to PersistentVolumeClaim with ReadWriteOncePod",
    "node(s) exceed max volume count",
    "node(s) had no available disk",
    "node(s) didn't match pod topology spread constraints",
    "node(s) didn't match pod anti-affinity rules",
    "node(s) didn't satisfy existing pods anti-affinity rules",
)


def cluster(seed: int) -> Obj:
    made = world(seed)
    random = Random(seed)
    for one in made["pods"]:
        if random.random() < 0.1:
            one["metadata"]["deletionTimestamp"] = "2030-01-01T00:00:00Z"
    return made


def newcomer(seed: int, made: Obj) -> Obj:
    found = pod(Random(seed + 1), made, "new")
    if seed % 17 == 0:
        found["spec"]["nodeName"] = made["nodes"][0]["metadata"]["name"]
    return found


@given(SEEDS)
def test_every_node_refuses_for_the_reasons_that_it_has(seed: int) -> None:
    made = cluster(seed)
    new = newcomer(seed, made)
    verdict = judge(scene_of(made), shape_of(made, new))
    told = fit_oracle.barred(made, new)
    assert bar(verdict.why) == told
    counts: Counter[str] = Counter()
    for row, node in enumerate(made["nodes"]):
        expected = [] if told else fit_oracle.reasons(made, new, node)
        assert sorted(map(cause, verdict.reasons(row))) == sorted(expected), node["metadata"]["name"]
        assert bool(verdict.fits[row]) == (not told and not expected)
        counts.update(expected)
    listed = told or ", ".join(sorted(f"{count} {reason}" for reason, count in counts.items()))
    if not verdict.fits.any():
        assert unavailable(verdict.why) == f"0/{len(made['nodes'])} nodes are available: {listed}."


@given(SEEDS)
def test_a_node_is_cured_by_others_leaving_unless_it_is_too_small_or_wrong(seed: int) -> None:
    made = cluster(seed)
    new = newcomer(seed, made)
    verdict = judge(scene_of(made), shape_of(made, new))
    if fit_oracle.barred(made, new):
        assert not verdict.curable.any()
        return
    asked = fit_oracle.requests(new)
    for row, node in enumerate(made["nodes"]):
        room = node["status"]["allocatable"]
        reasons = fit_oracle.reasons(made, new, node)
        small = any(
            asked[name] > fit_oracle.quantity(room.get(name, 0))
            for name in asked
            if f"Insufficient {name}" in reasons
        )
        may = [reason.startswith(CURABLE) and not reason.endswith("label)") for reason in reasons]
        assert bool(verdict.curable[row]) == (bool(may) and all(may) and not small), reasons


@given(SEEDS)
def test_every_node_is_worth_what_a_look_at_it_says(seed: int) -> None:
    made = cluster(seed)
    new = newcomer(seed, made)
    scene, shape = scene_of(made), shape_of(made, new)
    fits = judge(scene, shape).fits
    if not fits.any():
        return
    fitting = [node for row, node in enumerate(made["nodes"]) if fits[row]]
    expected = worth(made, new, fitting)
    found = rank(scene, shape, fits)
    assert [int(found[row]) for row in range(len(fits)) if fits[row]] == list(expected.values())
    assert all(found[row] == -1 for row in range(len(fits)) if not fits[row])
    assert best(found, fits).sum() == sum(v == max(expected.values()) for v in expected.values())


@given(SEEDS)
def test_pods_that_come_and_go_leave_no_trace(seed: int) -> None:
    made = cluster(seed)
    random = Random(seed)
    new = shape_of(made, newcomer(seed, made))
    fresh = judge(scene_of(made), new)
    index = index_of(made, ())
    scene = scene_of(made, index)
    strangers = [pod(random, made, f"s{number}", running=True) for number in range(8)]
    for stranger in strangers:
        stranger["spec"]["nodeName"] = random.choice(made["nodes"])["metadata"]["name"]
    steps = [(one, True) for one in strangers + made["pods"]]
    random.shuffle(steps)
    for one, _ in steps:
        put(index, made, one)
        judge(scene, new)  # asked in between, so that answers have to be kept up
        rank(scene, new, judge(scene, new).fits)
    random.shuffle(strangers)
    for stranger in strangers:
        index.remove(key_of(stranger))
        judge(scene, new)
    again = judge(scene, new)
    assert again.fits.tolist() == fresh.fits.tolist()
    assert again.why == fresh.why
    other = scene_of(made)
    assert rank(scene, new, again.fits).tolist() == rank(other, new, fresh.fits).tolist()


@given(SEEDS)
def test_labels_that_nobody_looks_at_change_nothing(seed: int) -> None:
    made = cluster(seed)
    scene, shape = scene_of(made), shape_of(made, newcomer(seed, made))
    bare = scene.index.signature(shape)
    one, other = judge(scene, shape), judge(scene, bare)
    assert one.why == other.why
    assert one.fits.tolist() == other.fits.tolist()
    assert rank(scene, shape, one.fits).tolist() == rank(scene, bare, other.fits).tolist()
