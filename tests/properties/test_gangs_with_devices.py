"""Gangs with claims through the whole scheduler, against a search that tries all nodes and all devices."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import combinations
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from bayplan.backends.fake_controllers.device_claims import CLAIMS, TEMPLATES
from tests.support.device_site import CLASSES, DRIVER, SLICES, DeviceSite

FABRIC = "fabric.example.com"
Reach = frozenset[str] | None
"""The nodes that reach the devices of the shared claim; None: it has none yet."""


@dataclass(frozen=True)
class Gadget:
    """A device, and the nodes that reach it."""

    nodes: frozenset[str]
    name: str
    tier: str = ""
    root: int = 0


@dataclass(frozen=True)
class Ask:
    """So many devices of a class, of one root if `match`."""

    device_class: str = "gpu"
    count: int = 1
    match: bool = False

    def choices(self, free: frozenset[Gadget], node: str) -> Iterator[tuple[Gadget, ...]]:
        fitting = sorted((one for one in free if self._selects(one, node)), key=lambda one: one.name)
        for chosen in combinations(fitting, self.count):
            if not self.match or len({one.root for one in chosen}) == 1:
                yield chosen

    def _selects(self, one: Gadget, node: str) -> bool:
        if node not in one.nodes or (self.device_class == "channel") == bool(one.tier):
            return False
        return self.device_class != "fast" or one.tier == "fast"

    def spec(self) -> dict[str, Any]:
        request = {"name": "r", "exactly": {"deviceClassName": self.device_class, "count": self.count}}
        constraint = [{"requests": ["r"], "matchAttribute": f"{DRIVER}/root"}] if self.match else []
        return {"devices": {"requests": [request], "constraints": constraint}}


@dataclass(frozen=True)
class Scene:
    """Racks of nodes with devices, and a gang."""

    nodes: dict[str, str]  # the rack of each node
    gadgets: frozenset[Gadget]
    size: int
    rack: bool  # the gang has to be in one rack
    channels_of: str  # the rack that reaches the channels; empty: all nodes do
    own: Ask | None
    shared: Ask | None

    def is_feasible(self) -> bool:
        """Whether some choice of nodes and devices serves the whole gang."""
        if not self.rack:
            return self._serves(sorted(self.nodes), 0, self.gadgets, None)
        return any(
            self._serves(
                [node for node in sorted(self.nodes) if self.nodes[node] == rack], 0, self.gadgets, None
            )
            for rack in set(self.nodes.values())
        )

    def _serves(self, nodes: list[str], placed: int, free: frozenset[Gadget], ours: Reach) -> bool:
        """`nodes`: where the next pods may go; pods are alike. `ours`: what reaches the shared claim."""
        if placed == self.size:
            return True
        for at, node in enumerate(nodes):
            if ours is not None and node not in ours:
                continue
            for reached, left in self._shared_choices(free, node, ours):
                for chosen in self.own.choices(left, node) if self.own is not None else [()]:
                    if self._serves(nodes[at:], placed + 1, left.difference(chosen), reached):
                        return True
        return False

    def _shared_choices(
        self, free: frozenset[Gadget], node: str, ours: Reach
    ) -> Iterator[tuple[Reach, frozenset[Gadget]]]:
        if self.shared is None or ours is not None:
            yield ours, free
            return
        for chosen in self.shared.choices(free, node):
            yield chosen[0].nodes, free.difference(chosen)


@st.composite
def scenes(draw: st.DrawFn) -> Scene:
    nodes: dict[str, str] = {}
    gadgets = set()
    for rack in range(1, draw(st.integers(1, 2)) + 1):
        for number in range(1, draw(st.integers(1, 2)) + 1):
            name = f"r{rack}-n{number}"
            nodes[name] = f"r{rack}"
            for index in range(draw(st.integers(0, 4))):
                tier, root = draw(st.sampled_from(["fast", "slow"])), draw(st.integers(0, 1))
                gadgets.add(Gadget(frozenset([name]), f"gpu-{index}", tier, root))
    channels_of = draw(st.sampled_from(["", "r1"]))
    linked = frozenset(node for node, rack in nodes.items() if channels_of in ("", rack))
    gadgets |= {Gadget(linked, f"channel-{number}") for number in range(draw(st.integers(0, 3)))}
    asks = st.one_of(
        st.builds(Ask, st.sampled_from(["gpu", "fast"]), st.integers(1, 2), st.booleans()),
        st.just(Ask("channel")),
    )
    own, shared = draw(st.none() | asks), draw(st.none() | asks)
    return Scene(
        nodes, frozenset(gadgets), draw(st.integers(1, 4)), draw(st.booleans()), channels_of, own, shared
    )


def published(name: str, driver: str, devices: list[Any], **reach: Any) -> dict[str, Any]:
    """The slice of a pool."""
    pool = {"name": name, "generation": 1, "resourceSliceCount": 1}
    spec = {"driver": driver, "pool": pool, "devices": devices, **reach}
    return {"metadata": {"name": name}, "spec": spec}


def site_of(scene: Scene) -> DeviceSite:
    """The scene in a cluster in memory."""
    site = DeviceSite(racks=0)
    for node, rack in scene.nodes.items():
        site.node(node, rack)
        devices = [
            {"name": one.name, "attributes": {"tier": {"string": one.tier}, "root": {"int": one.root}}}
            for one in sorted(scene.gadgets, key=lambda one: one.name)
            if one.tier and node in one.nodes
        ]
        site.store.create(SLICES, published(node, DRIVER, devices, nodeName=node))
    channels = [{"name": name} for name in sorted(one.name for one in scene.gadgets if not one.tier)]
    rule = {"key": "rack", "operator": "In", "values": [scene.channels_of]}
    some: dict[str, Any] = {"nodeSelector": {"nodeSelectorTerms": [{"matchExpressions": [rule]}]}}
    reach = some if scene.channels_of else {"allNodes": True}
    site.store.create(SLICES, published("channels", FABRIC, channels, **reach))
    fast = f'device.driver == "{DRIVER}" && device.attributes["{DRIVER}"].tier == "fast"'
    for name, expression in (("fast", fast), ("channel", f'device.driver == "{FABRIC}"')):
        site.store.create(
            CLASSES,
            {"metadata": {"name": name}, "spec": {"selectors": [{"cel": {"expression": expression}}]}},
        )
    if scene.own is not None:
        body = {"metadata": {"name": "own"}, "spec": {"spec": scene.own.spec()}}
        site.store.create(TEMPLATES, body, "default")
    if scene.shared is not None:
        site.store.create(CLAIMS, {"metadata": {"name": "ours"}, "spec": scene.shared.spec()}, "default")
    return site


@given(scenes())
def test_a_gang_starts_if_and_only_if_some_choice_of_nodes_and_devices_serves_it(scene: Scene) -> None:
    site = site_of(scene)
    names = site.gang(
        "g", scene.size, rack=scene.rack,
        template="own" if scene.own else "", claim="ours" if scene.shared else "",
    )  # fmt: skip
    site.run(2)
    bound = site.on(*names)
    site.check()
    assert all(bound) or not any(bound)
    assert all(bound) == scene.is_feasible()
    if not any(bound):
        assert not any(site.devices(claim) for claim in site.claims())
    elif scene.rack:
        assert len({scene.nodes[node] for node in bound}) == 1
