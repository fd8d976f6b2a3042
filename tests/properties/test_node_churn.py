"""Nodes come, go and come back without end: answers are those of a fresh state, which does not grow."""

from __future__ import annotations

import os
from dataclasses import replace
from random import Random
from typing import Any

import pytest

from bayplan.model.change import (
    Change,
    ImagesSeen,
    NamespaceSeen,
    NodeLost,
    NodeSeen,
    NumaReportLost,
    NumaReportSeen,
    PodLost,
    PodSeen,
    TopologySeen,
)
from bayplan.model.node import HOSTNAME, Node, Topology
from bayplan.model.numa import NodeZones
from bayplan.model.pod import Pod, PodKey
from bayplan.model.pod_spec import PodSignature, PodSpec
from bayplan.placement.filters.pipeline import run_filters
from bayplan.placement.filters.score import score_nodes
from bayplan.placement.overlay.node_overlay import NodeOverlay
from bayplan.state.admission.state import AdmissionState
from bayplan.state.scheduling.state import SchedulingState
from tests.fuzz.sizes import sizes_of
from tests.properties.amounts import seeds
from tests.properties.assign_worlds import key, shape

RACKS = Topology("racks", ("rack", HOSTNAME))
IMAGES = {"small": 40 << 20, "large": 900 << 20}
NODES_MAX, PODS_MAX = 6, 8
NAMES = int(os.environ.get("CHURN_NAMES", "3000"))
"""How many nodes come and go; `make test-long` has 100,000 of them."""


class World:
    """What is there, and a board that heard of everything that happened."""

    def __init__(self, seed: int) -> None:
        self.random, self.made, self.now = Random(seed), 0, 1000.0
        self.nodes: dict[str, Node] = {}
        self.images: dict[str, dict[str, int]] = {}
        self.pods: dict[PodKey, Pod] = {}
        self.gone: list[str] = []  # names that nodes had
        self.board = SchedulingState()
        self.board.apply_all([TopologySeen(RACKS), NamespaceSeen("ns", {"team": "a"})])
        self.shapes = [
            replace(shape(self.random, interacting=True), images=(self.random.choice(list(IMAGES)),))
            for _ in range(4)
        ]

    def happen(self) -> None:
        """One thing changes, and the board hears of it."""
        {0: self.come, 1: self.come, 2: self.go, 3: self.run, 4: self.run, 5: self.end, 6: self.fetch}[
            self.random.randrange(7)
        ]()

    def come(self) -> None:
        """A node: a new one, one that was there before, or another state of one that is there."""
        back = bool(self.gone) and self.random.random() < 0.3
        self.made += 1
        name = self.random.choice(self.gone[-20:]) if back else f"node-{self.made}"
        if len(self.nodes) >= NODES_MAX:
            name = self.random.choice(list(self.nodes))
        labels = {
            HOSTNAME: name,
            "disk": self.random.choice(("ssd", "hdd")),
            "rack": self.random.choice("xy"),
        }
        if self.random.random() < 0.8:
            labels["zone"] = self.random.choice("ab")
        room = {"cpu": self.random.randint(1, 6), "gpu": self.random.choice((0, 2, 4)), "pods": 9}
        self.nodes[name] = Node(name, labels, room, schedulable=self.random.random() < 0.95)
        self.board.apply(NodeSeen(self.nodes[name]))

    def go(self) -> None:
        """A node is gone; what runs there stays for now, or goes with it."""
        if not self.nodes:
            return
        name = self.random.choice(list(self.nodes))
        del self.nodes[name]
        self.images.pop(name, None)
        self.gone.append(name)
        lost: list[Any] = [NodeLost(name)]
        if self.random.random() < 0.7:
            here = [one for one, pod in self.pods.items() if pod.node == name]
            lost += [PodLost(one) for one in here if self.pods.pop(one)]
            self.random.shuffle(lost)
        for change in lost:
            self.board.apply(change)

    def run(self) -> None:
        """A pod runs: on a node that is there, one that was, or one that never will be."""
        self.made += 1
        names = [*self.nodes, *self.gone[-2:], f"unknown-{self.made}"]
        name = self.random.choice(names if self.random.random() < 0.3 else [*self.nodes, names[-1]])
        one = key(f"p{self.random.randrange(PODS_MAX)}")
        wants = self.random.choice(self.shapes)
        leaving = self.random.random() < 0.1
        pod = Pod(
            one,
            f"uid-{self.made}",
            dict(wants.amounts),
            name,
            terminating=leaving,
            spec=PodSpec(wants),
            ours=True,
        )
        self.pods.pop(one, None)
        self.pods[one] = pod
        self.board.apply(PodSeen(pod))

    def end(self) -> None:
        if self.pods:
            one = self.random.choice(list(self.pods))
            del self.pods[one]
            self.board.apply(PodLost(one))

    def fetch(self) -> None:
        if self.nodes:
            name = self.random.choice(list(self.nodes))
            some = {image: IMAGES[image] for image in IMAGES if self.random.random() < 0.5}
            self.images[name] = some
            self.board.apply(ImagesSeen(name, some))

    def fresh(self) -> SchedulingState:
        """A board that hears only of what is there now."""
        board = SchedulingState()
        board.apply_all([TopologySeen(RACKS), NamespaceSeen("ns", {"team": "a"})])
        board.apply_all([NodeSeen(node) for node in self.nodes.values()])
        board.apply_all([ImagesSeen(name, some) for name, some in self.images.items()])
        board.apply_all([PodSeen(pod) for pod in self.pods.values()])
        return board


def answers(board: SchedulingState, shapes: list[PodSignature], now: float) -> list[Any]:
    """What is answered about every node, and still is after everything was lifted and put back."""
    scene = board.snapshot([], now).filter_input
    names = [node.name for node in scene.node_snapshot.node_index.table.nodes]
    free = {name: scene.node_snapshot.free[at].tolist() for name, at in scene.node_snapshot.resources.items()}
    found: list[Any] = [names, free if names else {}]
    with NodeOverlay(scene) as floor:
        for _ in range(2):
            places = {one: floor.row_of(one) for one in board.store.placed}
            found.append({one: names[row] if row >= 0 else "" for one, row in places.items()})
            for wanted in shapes:
                verdict = run_filters(floor.filter_input, wanted)
                found += [verdict.fits.tolist(), verdict.resolvable.tolist(), verdict.why]
                found.append(score_nodes(floor.filter_input, wanted, verdict.fits).tolist())
            floor.remove_pods(list(board.store.placed))
            found += [run_filters(floor.filter_input, wanted).fits.tolist() for wanted in shapes]
            floor.restore_pods(list(board.store.placed))
    return found


@pytest.mark.parametrize("seed", range(seeds(4, 40)))
def test_nodes_that_come_go_and_come_back_leave_the_answers_of_a_fresh_state(seed: int) -> None:
    world = World(seed)
    for step in range(200):
        world.happen()
        if step % 4 == 0:
            asked = answers(world.board, world.shapes, world.now)
            assert asked == answers(world.fresh(), world.shapes, world.now), step
    known = {*world.nodes, *(pod.node for pod in world.pods.values())}
    assert set(world.board.store.index.slots.numbers) <= known


def churned(state: SchedulingState | AdmissionState, numbers: range) -> None:
    """Nodes come with a pod and images, zones are told of, and all of it goes again, in either order."""
    wants = shape(Random(1), interacting=True)
    for number in numbers:
        name = f"node-{number}"
        labels = {HOSTNAME: name, "rack": f"rack-{number}", "zone": f"zone-{number}", "disk": "ssd"}
        one = key(f"pod-{number}")
        state.apply(NodeSeen(Node(name, labels, {"cpu": 4, "gpu": 2, "pods": 9})))
        state.apply(ImagesSeen(name, {f"image-{number}": 40 << 20}))
        state.apply(NumaReportSeen(NodeZones(name, ())))
        state.apply(PodSeen(Pod(one, f"uid-{number}", {"cpu": 1}, name, spec=PodSpec(wants), ours=True)))
        if isinstance(state, SchedulingState) and number % 100 == 0:
            answers(state, [shape(Random(seed), interacting=True) for seed in range(8)], float(number))
        gone: list[Change] = [NodeLost(name), NumaReportLost(name), PodLost(one)]
        for change in gone if number % 2 else reversed(gone):
            state.apply(change)
        if isinstance(state, SchedulingState):
            state.heads(float(number))


@pytest.mark.parametrize("made", [SchedulingState, AdmissionState])
def test_names_of_nodes_that_are_gone_leave_nothing_behind(
    made: type[SchedulingState | AdmissionState],
) -> None:
    state = made()
    stays = {HOSTNAME: "stays", "rack": "r", "zone": "z", "disk": "ssd"}
    state.apply_all([TopologySeen(RACKS), NodeSeen(Node("stays", stays, {"cpu": 4, "pods": 9}))])
    churned(state, range(500))
    before = sizes_of({"state": state})
    churned(state, range(500, NAMES))
    grown = {
        where: (before.get(where, 0), size)
        for where, size in sizes_of({"state": state}).items()
        if size > before.get(where, 0) + 8
    }
    assert grown == {}
