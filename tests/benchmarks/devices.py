"""Decisions on a gang of 1,000 pods with a claim of eight devices each, on 5,000 nodes, without any API."""

from __future__ import annotations

import statistics
import sys
import time

from bayplan.dialects.kube.devices.selectors import DeviceSelectors
from bayplan.model.change import DeviceObjectSeen, GangSpecSeen, NodeSeen, PodSeen
from bayplan.model.devices.claims import (
    DeviceAsk,
    DeviceClaim,
    DeviceClaimKey,
    DeviceRequest,
    PodDevices,
)
from bayplan.model.devices.inventory import (
    AttributeValue,
    Device,
    DeviceClass,
    DeviceSlice,
    NodeReach,
    PoolKey,
)
from bayplan.model.gang import GangSpec, Locality, Ref
from bayplan.model.node import HOSTNAME, Node
from bayplan.model.plan import Bind
from bayplan.model.pod import Pod, PodKey
from bayplan.model.pod_spec import PodSignature, PodSpec
from bayplan.model.profile import Profile
from bayplan.scheduling.binding.cycle import decide_gangs
from bayplan.state.scheduling.state import SchedulingState

NODES, DEVICES, PODS, BLOCK_SIZE = 5_000, 8, 1_000, 1_250
LIMIT_MS = 300
ROUNDS = 5
DRIVER = "gpu.example.com"
SELECTOR = f'device.attributes["{DRIVER}"].model == "big" && device.attributes["{DRIVER}"].index < 64'


def state_of() -> SchedulingState:
    """Nodes in blocks, each with a pool of its own."""
    state = SchedulingState(select_devices=DeviceSelectors().select)
    amounts = {"cpu": 96_000, "memory": 1 << 40, "pods": 110}
    state.apply_all(
        NodeSeen(Node(name_of(at), {HOSTNAME: name_of(at), "block": f"b{at // BLOCK_SIZE}"}, amounts))
        for at in range(NODES)
    )
    state.apply_all(DeviceObjectSeen(slice_of(at)) for at in range(NODES))
    state.apply(DeviceObjectSeen(DeviceClass("gpu", (f'device.driver == "{DRIVER}"',))))
    return state


def name_of(at: int) -> str:
    return f"n{at:05}"


def slice_of(at: int) -> DeviceSlice:
    """Devices that differ in what no selector mentions."""
    name = name_of(at)
    devices = tuple(
        Device(
            f"gpu-{number}",
            (
                ("index", AttributeValue("int", number)),
                ("model", AttributeValue("string", "big")),
                ("uuid", AttributeValue("string", f"{name}-{number}")),
            ),
        )
        for number in range(DEVICES)
    )
    return DeviceSlice(f"{name}-gpus", PoolKey(DRIVER, name), reach=NodeReach(name), devices=devices)


def gang_of(state: SchedulingState, number: int) -> Ref:
    """A gang in one block, whose pods have a claim each."""
    gang = Ref("bench", "Gang", "default", f"gang-{number}")
    ask = DeviceAsk("gpus", "gpu", (SELECTOR,), count=DEVICES)
    asked = DeviceClaim(DeviceClaimKey("default", "gpus"), requests=(DeviceRequest("gpus", (ask,)),))
    shape = PodSignature("default", amounts=(("cpu", 4_000), ("pods", 1)), devices=PodDevices((asked,)))
    state.apply(
        GangSpecSeen(GangSpec(gang, minimum=PODS, uid=gang.name, locality=Locality(required="block")))
    )
    for at in range(PODS):
        claim = DeviceClaimKey("default", f"{gang.name}-{at}")
        state.apply(DeviceObjectSeen(DeviceClaim(claim, claim.name, asked.requests)))
        spec = PodSpec(shape, device_claims=(claim,), new_claims=(claim,))
        key = PodKey("default", f"{gang.name}-{at}")
        state.apply(PodSeen(Pod(key, f"{at}", dict(shape.amounts), gang=gang, spec=spec, ours=True)))
    return gang


def main() -> int:
    """Measure, and fail if a decision takes too long."""
    state, taken = state_of(), []
    for number in range(ROUNDS):
        gang = gang_of(state, number)
        started = time.process_time()
        plan = decide_gangs(state.snapshot([gang], 1.0), Profile(), 1.0)
        taken.append(1000 * (time.process_time() - started))
        binds = [action for action in plan.actions if isinstance(action, Bind)]
        assert len(binds) == PODS, len(binds)
        assert len({device.key for bind in binds for _, one in bind.devices for device in one.devices}) == (
            PODS * DEVICES
        )
        if number % 2:
            state.assume(plan, 1.0)  # later decisions see devices in use
    first, rest = taken[0], statistics.median(taken[1:])
    print(f"{NODES} nodes x {DEVICES} devices, gang of {PODS} pods with {DEVICES} devices each, one block")
    print(f"  first decision {first:.0f} ms of CPU time, then {rest:.0f} ms (limit {LIMIT_MS})")
    return int(rest > LIMIT_MS)


if __name__ == "__main__":
    sys.exit(main())
