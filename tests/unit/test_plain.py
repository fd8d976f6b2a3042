"""Values of the model as plain data, and back to equal values."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from types import MappingProxyType
from typing import Any

import msgspec
import pytest

from bayplan.model.change import Change, GangSeen, NodeLost, NodeSeen
from bayplan.model.gang import Gang, Group, PodSet, Ref, Segment
from bayplan.model.node import Node
from bayplan.runtime.plain import plain, restore


class Colour(StrEnum):
    RED = "red"


@dataclass(frozen=True)
class Leaf:
    colour: Colour
    names: frozenset[str] = frozenset()


@dataclass(frozen=True)
class Tree:
    members: tuple[Tree | Leaf, ...] = ()
    by_place: Mapping[tuple[str, int], Leaf] = field(default_factory=dict)
    note: str | None = None
    pair: tuple[str, int] = ("", 0)
    anything: Any = None


@dataclass(frozen=True)
class Empty:
    pass


LEAF = Leaf(Colour.RED, frozenset({"b", "a"}))


@pytest.mark.parametrize(
    ("value", "shape"),
    [
        (LEAF, Leaf),
        (Tree((Tree((LEAF,)), LEAF), {("x", 1): LEAF}, "n", ("p", 2), {"k": [1, 2.5, None]}), Tree),
        (Empty(), Leaf | Empty),
        (("done", LEAF), tuple[str, Leaf | None]),
        (("done", None), tuple[str, Leaf | None]),
        ([Colour.RED], list[Colour]),
        (NodeLost("x1"), Change),
        (NodeSeen(Node("x1", {"rack": "r1"}, {"cpu": 4000})), Change),
        (
            GangSeen(
                Gang(
                    Ref("kube", "Workload", "ns", "train"),
                    Group("", (PodSet("w", 4, 4, {"gpu": 1}, segments=(Segment(2, "rack"),)),), 1),
                )
            ),
            Change,
        ),
    ],
)
def test_a_value_survives_json(value: object, shape: Any) -> None:
    text = msgspec.json.encode(plain(value))
    assert restore(msgspec.json.decode(text), shape) == value


def test_enums_come_back_as_enums() -> None:
    assert restore(plain(LEAF), Leaf).colour is Colour.RED


def test_equal_values_have_equal_data() -> None:
    one = Tree(by_place={("b", 1): LEAF, ("a", 2): LEAF})
    other = Tree(by_place=MappingProxyType({("a", 2): LEAF, ("b", 1): LEAF}))
    assert plain(one) == plain(other)


def test_what_has_no_plain_form_says_so() -> None:
    with pytest.raises(TypeError, match="complex has no plain form"):
        plain({"x": 1j})
