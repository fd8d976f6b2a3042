"""Encoding of assignments: they decode to the same, in any slicing."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bayplan.dialects.kube.fields.reader import Field, FieldError
from bayplan.dialects.kueue.fields.assignment_decode import decode_assignment
from bayplan.dialects.kueue.fields.assignment_encode import (
    ROOTS_MAX,
    SLICES_MAX,
    encode_domains,
    encode_slices,
    hosts_only,
    node_of,
    pods_inside,
    pods_on_node,
)
from bayplan.dialects.kueue.fields.name_prefixes import fewer_parts, runs_that_save_most, shared_prefixes
from bayplan.model.assignment import Assignment, DomainAssignment
from bayplan.model.node import HOSTNAME

STORE_MAX = 1536 * 1024


def read(wire: object) -> tuple[Assignment | None, tuple[FieldError, ...]]:
    field = Field(wire)
    return decode_assignment(field), field.errors


def on_nodes(*names: str) -> Assignment:
    return Assignment((HOSTNAME,), tuple(DomainAssignment((name,), 1) for name in names))


def size(wire: dict[str, Any]) -> int:
    return len(json.dumps(wire, separators=(",", ":")))


# ── written ────────────────────────────────────────────────────────────────────────────────────────


def test_the_example_of_the_proposal() -> None:
    racks = Assignment(
        ("block", "rack"),
        (DomainAssignment(("block-1", "rack-1"), 4), DomainAssignment(("block-1", "rack-2"), 2)),
    )
    assert encode_slices(racks) == {
        "levels": ["block", "rack"],
        "slices": [
            {
                "domainCount": 2,
                "valuesPerLevel": [
                    {"universal": "block-1"},
                    {"individual": {"prefix": "rack-", "roots": ["1", "2"]}},
                ],
                "podCounts": {"individual": [4, 2]},
            }
        ],
    }
    assert encode_domains(racks) == {
        "levels": ["block", "rack"],
        "domains": [
            {"values": ["block-1", "rack-1"], "count": 4},
            {"values": ["block-1", "rack-2"], "count": 2},
        ],
    }


def test_pools_have_a_slice_each_when_that_is_smaller() -> None:
    names = [f"pool-{pool}-node-{i}" for pool, count in ((1, 15), (2, 17)) for i in range(count)]
    sizes = [
        (part["domainCount"], part["valuesPerLevel"][0]["individual"]["prefix"]) for part in slices_of(names)
    ]
    assert sizes == [(15, "pool-1-node-"), (17, "pool-2-node-")]
    assert len(slices_of(["pool-1-a", "pool-1-b", "pool-2-a", "pool-2-b"])) == 1
    assert len(encode_slices(on_nodes(*names), by_node_prefix=False)["slices"]) == 1


def slices_of(names: list[str]) -> list[dict[str, Any]]:
    slices: list[dict[str, Any]] = encode_slices(on_nodes(*names))["slices"]
    return slices


def test_only_node_names_are_split_by_prefix() -> None:
    names = [f"pool-{pool}-node-{i}" for pool in range(2) for i in range(50)]
    racks = Assignment(("rack",), tuple(DomainAssignment((name,), 1) for name in names))
    assert len(encode_slices(racks)["slices"]) == 1


def test_prefix_and_suffix_do_not_overlap() -> None:
    (part,) = slices_of(["aba", "ababa"])
    assert part["valuesPerLevel"] == [{"individual": {"suffix": "aba", "roots": ["", "ab"]}}]


@pytest.mark.parametrize(
    ("names", "prefixes"),
    [
        ([], []),
        (["a-1"], [""]),
        (["a-b-1", "c-2", "a-b-3", "a-d"], ["a-b-", "", "a-b-", "a-"]),
        (["a-", "a-b"], ["", ""]),  # a dash at the end has nothing after it
        (["a-b-", "a-b-c", "a-b-d"], ["a-", "a-b-", "a-b-"]),
        (["a-b", "a-b"], ["a-", "a-"]),
        (["ab", "ac"], ["", ""]),
    ],
)
def test_prefixes_that_names_share(names: list[str], prefixes: list[str]) -> None:
    assert shared_prefixes(names) == prefixes


def test_long_prefixes_are_shortened_if_they_make_too_many_parts() -> None:
    keys = ["a-1-", "a-1-", "a-2-", "b-"]
    assert fewer_parts(keys, 3, 9) == keys
    assert fewer_parts(keys, 2, 9) == ["a-", "a-", "a-", "b-"]
    assert fewer_parts(keys, 2, 2) == ["", "", "", ""]  # a part may hold two names only


def test_with_too_few_parts_the_prefixes_that_save_most_have_one_each() -> None:
    keys = ["p-"] * 2 + ["q-"] * 9 + ["r-"] * 2 + ["s-"] * 2 + ["a-long-one-"] * 4
    assert runs_that_save_most(keys, 5, 99) == [2, 9, 2, 2, 4]
    assert runs_that_save_most(keys, 4, 99) == [2, 9, 4, 4]
    assert runs_that_save_most(keys, 2, 99) == [15, 4]
    assert runs_that_save_most(keys, 1, 99) == [19]
    assert runs_that_save_most(keys, 4, 6) == [6, 6, 3, 4]


def test_an_empty_assignment_is_encoded() -> None:
    nothing = Assignment(("rack",), ())
    assert encode_slices(nothing) == {"levels": ["rack"], "slices": []}
    assert read({"levels": ["rack"]}) == read({"levels": ["rack"], "slices": []}) == (nothing, ())
    assert read(encode_domains(nothing)) == (nothing, ())


def test_upper_levels_are_dropped_if_the_lowest_is_the_node() -> None:
    full = Assignment(
        ("block", "rack", HOSTNAME),
        (DomainAssignment(("b", "r", "x1"), 2), DomainAssignment(("b", "r", "x2"), 1)),
    )
    assert hosts_only(full) == Assignment(
        (HOSTNAME,), (DomainAssignment(("x1",), 2), DomainAssignment(("x2",), 1))
    )
    racks = Assignment(("block", "rack"), (DomainAssignment(("b", "r"), 2),))
    assert hosts_only(racks) is racks


def test_pods_are_counted_by_node_and_domain() -> None:
    full = Assignment(
        ("rack", HOSTNAME),
        (
            DomainAssignment(("r1", "x1"), 2),
            DomainAssignment(("r1", "x2"), 1),
            DomainAssignment(("r11", "x3"), 4),
        ),
    )
    assert [pods_on_node(full, name) for name in ("x1", "x3", "r1", "x")] == [2, 4, 0, 0]
    assert [pods_inside(full, path) for path in ((), ("r1",), ("r11",), ("r1", "x2"), ("x1",))] == [
        7,
        3,
        4,
        1,
        0,
    ]
    assert node_of(("rack", HOSTNAME), ("r1", "x1")) == "x1"
    assert node_of(("rack",), ("r1",)) is None
    assert node_of((), ()) is None


# ── big ones ───────────────────────────────────────────────────────────────────────────────────────

CLOUDS = {
    "gke": lambda i, pools: f"gke-cluster-pool-{i % pools:04d}-{i % pools:08x}-{i // pools:04x}",
    "eks": lambda i, pools: f"ip-10-{i >> 16}-{i >> 8 & 255}-{i & 255}.us-west-2.compute.internal",
    "aks": lambda i, pools: f"aks-pool{i % pools}-{i % pools * 7919:08d}-vmss{i // pools:06x}",
    "vke": lambda i, pools: f"node-{i * 2654435761 % 2**32:08x}-cluster-1",
}


@pytest.mark.parametrize("cloud", CLOUDS)
def test_sixty_thousand_nodes_in_one_slice_fit_one_object(cloud: str) -> None:
    nodes = on_nodes(*sorted(CLOUDS[cloud](i, 40) for i in range(60_000)))
    wire = encode_slices(nodes, by_node_prefix=False)
    assert len(wire["slices"]) == 1
    assert size(wire) < STORE_MAX
    assert read(wire) == (nodes, ())


@pytest.mark.parametrize(("cloud", "pools"), [("gke", 2000), ("eks", 1), ("aks", 1000), ("vke", 1)])
def test_a_hundred_thousand_nodes_in_several_slices_fit_one_object(cloud: str, pools: int) -> None:
    nodes = on_nodes(*sorted(CLOUDS[cloud](i, pools) for i in range(100_000)))
    wire = encode_slices(nodes)
    assert len(wire["slices"]) <= SLICES_MAX
    assert max(part["domainCount"] for part in wire["slices"]) <= ROOTS_MAX
    assert size(wire) < STORE_MAX
    assert read(wire) == (nodes, ())


@pytest.mark.parametrize("by_node_prefix", [True, False])
def test_a_slice_never_holds_more_than_it_may(by_node_prefix: bool) -> None:
    nodes = on_nodes(*(f"n{i}" for i in range(ROOTS_MAX + 1)))
    wire = encode_slices(nodes, by_node_prefix=by_node_prefix)
    assert [part["domainCount"] for part in wire["slices"]] == [ROOTS_MAX, 1]
    assert read(wire) == (nodes, ())


def test_more_prefixes_than_slices_in_no_order_at_all() -> None:
    nodes = on_nodes(*(f"pool-{i % 1500}-node-{i}" for i in range(3000)))
    wire = encode_slices(nodes)
    assert len(wire["slices"]) <= SLICES_MAX
    assert read(wire) == (nodes, ())


# ── properties ─────────────────────────────────────────────────────────────────────────────────────

VALUES = st.one_of(
    st.text("ab-.", max_size=8),
    st.text(max_size=4),
    st.builds("pool-{}-node-{}".format, st.sampled_from("abc"), st.integers(0, 30)),
)


@st.composite
def assignments(draw: st.DrawFn) -> Assignment:
    upper = draw(st.lists(st.sampled_from(["zone", "block", "rack"]), unique=True))
    levels = (*upper, draw(st.sampled_from([HOSTNAME, "leaf"])))
    values = st.tuples(*(VALUES for _ in levels))
    shares = draw(st.lists(st.builds(DomainAssignment, values, st.integers(1, 2**31 - 1)), max_size=30))
    return Assignment(
        levels, tuple(sorted(shares, key=lambda s: s.values) if draw(st.booleans()) else shares)
    )


@given(assignments(), st.booleans())
def test_encoded_assignments_decode_to_the_same(assignment: Assignment, by_node_prefix: bool) -> None:
    assert read(json.loads(json.dumps(encode_slices(assignment, by_node_prefix=by_node_prefix)))) == (
        assignment,
        (),
    )
    assert read(json.loads(json.dumps(encode_domains(assignment)))) == (assignment, ())


@given(assignments())
def test_several_slices_are_never_larger_than_one(assignment: Assignment) -> None:
    assert size(encode_slices(assignment)) <= size(encode_slices(assignment, by_node_prefix=False))


@given(assignments(), st.data())
def test_any_slicing_decodes_to_the_same(assignment: Assignment, data: st.DataObject) -> None:
    wire: dict[str, Any] = {"levels": list(assignment.levels), "slices": []}
    rest = assignment.shares
    while rest:
        take = data.draw(st.integers(1, len(rest)))
        wire["slices"].append(sliced(rest[:take], data))
        rest = rest[take:]
    assert read(wire) == (assignment, ())


def sliced(shares: tuple[DomainAssignment, ...], data: st.DataObject) -> dict[str, Any]:
    """One slice, with a random choice of universal and individual values."""
    counts = [share.count for share in shares]
    alike = len(set(counts)) == 1 and data.draw(st.booleans())
    columns = [list(column) for column in zip(*(share.values for share in shares), strict=True)]
    return {
        "domainCount": len(shares),
        "valuesPerLevel": [level_values(column, data) for column in columns],
        "podCounts": {"universal": counts[0]} if alike else {"individual": counts},
    }


def level_values(column: list[str], data: st.DataObject) -> dict[str, Any]:
    if len(set(column)) == 1 and data.draw(st.booleans()):
        return {"universal": column[0]}
    shortest = min(map(len, column))
    start = data.draw(st.integers(0, shortest))
    end = data.draw(st.integers(0, shortest - start))
    heads, tails = {value[:start] for value in column}, {value[len(value) - end :] for value in column}
    start, end = start if len(heads) == 1 else 0, end if len(tails) == 1 else 0
    individual: dict[str, Any] = {"roots": [value[start : len(value) - end] for value in column]}
    if start or data.draw(st.booleans()):
        individual["prefix"] = column[0][:start]
    if end or data.draw(st.booleans()):
        individual["suffix"] = column[0][len(column[0]) - end :]
    return {"individual": individual}
