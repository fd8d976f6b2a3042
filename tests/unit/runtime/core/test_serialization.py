"""Values of the model as plain data, and back to equal values."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from types import MappingProxyType
from typing import Any

import msgspec
import pytest

from bayplan.model.assignment import Code, Misfit
from bayplan.model.change import (
    BudgetLost,
    BudgetSeen,
    Change,
    GangSpecLost,
    GangSpecSeen,
    ImagesSeen,
    NodeLost,
    NodeSeen,
    PodSeen,
    StorageLost,
    StorageSeen,
)
from bayplan.model.filter_failure import FilterFailure, FilterReason, PodError
from bayplan.model.gang import DisruptionBudget, GangSpec, Group, Locality, PodSet, Ref, Segment
from bayplan.model.node import Node
from bayplan.model.node_rules import NodeRules, NodeSelectorTerm, Requirement, Toleration
from bayplan.model.plan import Bind, MarkStarted, Nominate, Plan, PreemptPod, ReportUnschedulable
from bayplan.model.pod import Pod, PodKey
from bayplan.model.pod_spec import (
    EVERYTHING,
    NOTHING,
    ClaimUse,
    Disk,
    HostPort,
    PodAffinity,
    PodAffinityTerm,
    PodSignature,
    PodSpec,
    Selector,
    TopologySpread,
)
from bayplan.model.rejection import PreemptionSearchOutcome, Rejection, RejectionReason
from bayplan.model.storage import NodeVolumes, StorageCapacity, StorageClass, Volume, VolumeClaim
from bayplan.runtime.core.serialization import plain, restore


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


REF = Ref("gang", "Workload", "ns", "train/w/0")
SELECTOR = Selector((Requirement("app", "In", ("x",)),))
TERM = NodeSelectorTerm((Requirement("zone", "Exists"),))
NEAR = PodAffinityTerm("zone", SELECTOR, ("ns",), EVERYTHING)
SHAPE = PodSignature(
    "ns",
    (("app", "x"),),
    (("cpu", 1000), ("pods", 1)),
    (1000, 0),
    NodeRules((("a", "b"),), (TERM,), ((5, TERM),), (Toleration("t", "Exists"),)),
    ports=(HostPort(80),),
    affinity=PodAffinity((NEAR,), (NEAR,), ((3, NEAR),), ()),
    spread=(TopologySpread("zone", 1, SELECTOR),),
    default_spread=SELECTOR,
    images=("a:1",),
    claims=(ClaimUse("c"),),
    disks=(Disk("gce", "d"),),
)
POD = Pod(
    PodKey("ns", "p"), "u", {"cpu": 1000}, gang=REF, spec=PodSpec(SHAPE, 5, False, "n1", ("g",)), ours=True,
    created=1.5, message="no room", scheduler="bayplan",
)  # fmt: skip
WHY = Rejection(
    RejectionReason.NO_CAPACITY,
    3,
    3,
    1,
    POD.key,
    FilterFailure(5, {(FilterReason.INSUFFICIENT, "cpu"): 5}, PodError.CLAIM_LOST, ("c",)),
    Misfit(Code.NO_ROOM, ("w",)),
    PreemptionSearchOutcome.NO_CANDIDATES,
    2,
    incomplete=True,
)
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
            GangSpecSeen(
                GangSpec(
                    REF, tree=Group("", (PodSet("w", 4, 4, {"gpu": 1}, segments=(Segment(2, "rack"),)),), 1)
                )
            ),
            Change,
        ),
        (GangSpecSeen(GangSpec(REF, 3, 0, 7, False, True, Locality(required="rack"), started=True)), Change),
        (GangSpecLost(REF), Change),
        (BudgetSeen(DisruptionBudget("ns", "b", SELECTOR, 2, frozenset({"p"}))), Change),
        (BudgetSeen(DisruptionBudget("ns", "b", NOTHING)), Change),
        (BudgetLost("ns", "b"), Change),
        (StorageSeen(VolumeClaim("ns", "c", "fast", selector=EVERYTHING)), Change),
        (StorageSeen(Volume("v", claim=("ns", "c"), affinity=(TERM,), labels={"zone": "a"})), Change),
        (StorageSeen(StorageClass("fast", "d", True, (TERM,))), Change),
        (StorageSeen(StorageCapacity("fast", 5, SELECTOR), "ns/r"), Change),
        (StorageSeen(NodeVolumes("n1", {"d": 3})), Change),
        (StorageLost("VolumeClaim", "ns/c"), Change),
        (ImagesSeen("n1", {"a:1": 5}), Change),
        (PodSeen(POD), Change),
        (
            Plan(
                (
                    Bind(REF, POD, "n1"),
                    Nominate(REF, POD, ""),
                    PreemptPod(POD, REF, "u", with_gang=True),
                    MarkStarted(REF, "u"),
                    ReportUnschedulable(REF, WHY, (POD,), False, "u", ("n1",)),
                )
            ),
            Plan,
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
