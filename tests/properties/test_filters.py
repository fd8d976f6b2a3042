"""Filters and scores over all nodes at once equal an oracle that checks node by node."""

from __future__ import annotations

from collections import Counter
from random import Random

from hypothesis import given
from hypothesis import strategies as st

from bayplan.dialects.kube.encode.filter_messages import node_reason, pod_error, unavailable
from bayplan.placement.filters.pipeline import run_filters
from bayplan.placement.filters.score import best, score_nodes
from tests.properties import fit_oracle
from tests.properties.filter_inputs import index_of, key_of, put, scene_of, shape_of
from tests.properties.fit_oracle_scores import oracle_scores
from tests.properties.fit_world_volumes import Obj
from tests.properties.fit_worlds import random_pod, world

SEEDS = st.integers(0, 2**32)
RESOLVABLE = (
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
    objects = world(seed)
    random = Random(seed)
    for one in objects["pods"]:
        if random.random() < 0.1:
            one["metadata"]["deletionTimestamp"] = "2030-01-01T00:00:00Z"
    return objects


def new_pod(seed: int, objects: Obj) -> Obj:
    api_pod = random_pod(Random(seed + 1), objects, "new")
    if seed % 17 == 0:
        api_pod["spec"]["nodeName"] = objects["nodes"][0]["metadata"]["name"]
    return api_pod


@given(SEEDS)
def test_every_node_rejects_for_the_reasons_of_the_oracle(seed: int) -> None:
    objects = cluster(seed)
    new = new_pod(seed, objects)
    result = run_filters(scene_of(objects), shape_of(objects, new))
    error = fit_oracle.claim_error(objects, new)
    assert pod_error(result.why) == error
    counts: Counter[str] = Counter()
    for row, node in enumerate(objects["nodes"]):
        expected = [] if error else fit_oracle.reasons(objects, new, node)
        assert sorted(map(node_reason, result.reasons(row))) == sorted(expected), node["metadata"]["name"]
        assert bool(result.fits[row]) == (not error and not expected)
        counts.update(expected)
    listed = error or ", ".join(sorted(f"{count} {reason}" for reason, count in counts.items()))
    if not result.fits.any():
        assert unavailable(result.why) == f"0/{len(objects['nodes'])} nodes are available: {listed}."


@given(SEEDS)
def test_preemption_may_help_unless_the_node_is_too_small_or_unresolvable(seed: int) -> None:
    objects = cluster(seed)
    new = new_pod(seed, objects)
    result = run_filters(scene_of(objects), shape_of(objects, new))
    if fit_oracle.claim_error(objects, new):
        assert not result.resolvable.any()
        return
    requests = fit_oracle.requests(new)
    for row, node in enumerate(objects["nodes"]):
        allocatable = node["status"]["allocatable"]
        reasons = fit_oracle.reasons(objects, new, node)
        small = any(
            requests[name] > fit_oracle.quantity(allocatable.get(name, 0))
            for name in requests
            if f"Insufficient {name}" in reasons
        )
        resolvable = [reason.startswith(RESOLVABLE) and not reason.endswith("label)") for reason in reasons]
        assert bool(result.resolvable[row]) == (bool(resolvable) and all(resolvable) and not small), reasons


@given(SEEDS)
def test_every_node_has_the_score_of_the_oracle(seed: int) -> None:
    objects = cluster(seed)
    new = new_pod(seed, objects)
    filter_input, shape = scene_of(objects), shape_of(objects, new)
    fits = run_filters(filter_input, shape).fits
    if not fits.any():
        return
    fitting = [node for row, node in enumerate(objects["nodes"]) if fits[row]]
    expected = oracle_scores(objects, new, fitting)
    scores = score_nodes(filter_input, shape, fits)
    assert [int(scores[row]) for row in range(len(fits)) if fits[row]] == list(expected.values())
    assert all(scores[row] == -1 for row in range(len(fits)) if not fits[row])
    assert best(scores, fits).sum() == sum(v == max(expected.values()) for v in expected.values())


@given(SEEDS)
def test_added_and_removed_pods_leave_no_trace(seed: int) -> None:
    objects = cluster(seed)
    random = Random(seed)
    new = shape_of(objects, new_pod(seed, objects))
    fresh = run_filters(scene_of(objects), new)
    index = index_of(objects, ())
    filter_input = scene_of(objects, index)
    extra_pods = [random_pod(random, objects, f"s{number}", running=True) for number in range(8)]
    for extra in extra_pods:
        extra["spec"]["nodeName"] = random.choice(objects["nodes"])["metadata"]["name"]
    steps = [(one, True) for one in extra_pods + objects["pods"]]
    random.shuffle(steps)
    for one, _ in steps:
        put(index, objects, one)
        run_filters(filter_input, new)  # evaluated in between, so that cached counters must be updated
        score_nodes(filter_input, new, run_filters(filter_input, new).fits)
    random.shuffle(extra_pods)
    for extra in extra_pods:
        index.remove(key_of(extra))
        run_filters(filter_input, new)
    again = run_filters(filter_input, new)
    assert again.fits.tolist() == fresh.fits.tolist()
    assert again.why == fresh.why
    other = scene_of(objects)
    assert score_nodes(filter_input, new, again.fits).tolist() == score_nodes(other, new, fresh.fits).tolist()


@given(SEEDS)
def test_labels_that_no_term_selects_change_nothing(seed: int) -> None:
    objects = cluster(seed)
    filter_input, shape = scene_of(objects), shape_of(objects, new_pod(seed, objects))
    bare = filter_input.index.signature(shape)
    one, other = run_filters(filter_input, shape), run_filters(filter_input, bare)
    assert one.why == other.why
    assert one.fits.tolist() == other.fits.tolist()
    assert (
        score_nodes(filter_input, shape, one.fits).tolist()
        == score_nodes(filter_input, bare, other.fits).tolist()
    )
