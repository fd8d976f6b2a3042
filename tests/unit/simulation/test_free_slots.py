"""Free slots: gangs of a size that would fit besides, within racks and anywhere."""

from __future__ import annotations

from bayplan.simulation.traces.cluster_shapes import parse_shape
from bayplan.simulation.traces.workload import WHOLE_GPU
from bayplan.simulation.virtual_time.capacity import counted
from bayplan.simulation.virtual_time.free_slots import NO_SLOTS, FreeSlots


def slots_of(shape: str) -> FreeSlots:
    return FreeSlots({node.name: node for node in counted(parse_shape(shape))})


def test_an_empty_cluster_has_a_slot_for_every_so_many_hosts_of_a_rack() -> None:
    found = slots_of("3x9 gpu=8").now()
    assert found.in_racks == (6, 3, 0, 0)
    assert found.anywhere == (6, 3, 1, 0)


def test_a_host_with_less_than_a_pod_free_is_in_no_slot() -> None:
    slots = slots_of("2x4 gpu=8")
    slots.use("b000-r001-h002", 1 * WHOLE_GPU)
    assert slots.now().in_racks == (1, 0, 0, 0)
    assert slots.now().anywhere == (1, 0, 0, 0)
    slots.use("b000-r001-h002", -1 * WHOLE_GPU)
    assert slots.now().in_racks == (2, 0, 0, 0)
    assert slots.now().anywhere == (2, 1, 0, 0)


def test_a_node_that_failed_is_in_no_slot_until_it_returns_with_what_is_free_then() -> None:
    slots = slots_of("1x4 gpu=8")
    slots.set_available("b000-r000-h000", False)
    slots.set_available("b000-r000-h000", False)
    slots.use("b000-r000-h000", 8 * WHOLE_GPU)
    slots.use("b000-r000-h000", -8 * WHOLE_GPU)
    assert slots.now().in_racks == (0, 0, 0, 0)
    slots.set_available("b000-r000-h000", True)
    assert slots.now().in_racks == (1, 0, 0, 0)


def test_pods_are_as_large_as_hosts_allow() -> None:
    assert slots_of("1x9 gpu=6").now().in_racks == (1, 0, 0, 0)  # pods of 4 GPUs
    assert slots_of("1x2 gpu=512").now().in_racks == (32, 16, 8, 4)
    assert slots_of("1x8").now() == NO_SLOTS
