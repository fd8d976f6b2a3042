"""Devices by claim in a world of pods: classes, slices, templates, and arrivals that need devices."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from dataclasses import dataclass, replace
from random import Random

from bayplan.backends.fake_controllers.device_claims import CLAIMS, CLASSES, TEMPLATES
from bayplan.backends.fake_controllers.manifests import DRIVER, NAMESPACE, RACK, Object
from bayplan.dialects.api import Kind
from bayplan.simulator.core.arrivals import TimedObject
from bayplan.simulator.core.fixtures import PLAIN_PODS
from bayplan.simulator.pods.world import GANG, OTHER, PodsWorld

FABRIC = "fabric.example.com"
"""The driver of channels that nodes of a rack, or all nodes, can reach."""
GPU_CLASS, FAST_CLASS, CHANNEL_CLASS = "gpu", "fast", "channel"
SIMPLE = ("one", "two")
"""Templates that another scheduler understands: so many devices of one node, whichever."""
OWN, SHARED = "own", "ours"


@dataclass(frozen=True, slots=True)
class DevicesWorld:
    """A world of pods in which some pods need devices, and the slices at the start."""

    pods: PodsWorld
    slices: list[Object]


def with_devices(world: PodsWorld, rng: Random) -> DevicesWorld:
    """The world with devices on its nodes; some gangs have claims from templates, some share one."""
    slices = [slice_of(node["metadata"]["name"], rng) for node in world.nodes]
    racks = sorted({rack for node in world.nodes if (rack := node["metadata"]["labels"].get(RACK))})
    slices += [_channels(rng, racks)] if rng.random() < 0.5 else []
    rules = [*world.rules, *_classes(), *_templates(rng)]
    arrivals = list(_claiming(world.arrivals, rng))
    arrivals.sort(key=lambda arrival: arrival.when)
    return DevicesWorld(replace(world, rules=rules, arrivals=arrivals), slices)


def slice_of(node: str, rng: Random) -> Object:
    """The devices of a node: none to four, of two models, in two halves of the node."""
    devices = [
        {
            "name": f"gpu-{number}",
            "attributes": {"model": {"string": rng.choice(("a", "a", "b"))}, "half": {"int": number % 2}},
        }
        for number in range(rng.choice((0, 2, 2, 4, 4, 6)))
    ]
    pool = {"name": node, "generation": 1, "resourceSliceCount": 1}
    spec = {"driver": DRIVER, "nodeName": node, "pool": pool, "devices": devices}
    return {"metadata": {"name": f"{node}-gpus"}, "spec": spec}


def _channels(rng: Random, racks: list[str]) -> Object:
    reach: Object = {"allNodes": True}
    if racks and rng.random() < 0.6:
        rack = {"key": RACK, "operator": "In", "values": [rng.choice(racks)]}
        reach = {"nodeSelector": {"nodeSelectorTerms": [{"matchExpressions": [rack]}]}}
    pool = {"name": "channels", "generation": 1, "resourceSliceCount": 1}
    devices = [{"name": f"channel-{number}"} for number in range(rng.randint(1, 3))]
    return {
        "metadata": {"name": "channels"},
        "spec": {"driver": FABRIC, "pool": pool, "devices": devices, **reach},
    }


def _classes() -> Iterator[tuple[Kind, Object]]:
    fast = f'device.driver == "{DRIVER}" && device.attributes["{DRIVER}"].model == "a"'
    selectors = {
        GPU_CLASS: f'device.driver == "{DRIVER}"',
        FAST_CLASS: fast,
        CHANNEL_CLASS: f'device.driver == "{FABRIC}"',
    }
    for name, expression in selectors.items():
        spec = {"selectors": [{"cel": {"expression": expression}}]}
        yield CLASSES, {"metadata": {"name": name}, "spec": spec}


def _templates(rng: Random) -> Iterator[tuple[Kind, Object]]:
    for name, spec in claim_specs().items():
        if name in SIMPLE or rng.random() < 0.9:  # pods of a template that does not exist wait
            body = {"metadata": {"name": name, "namespace": NAMESPACE}, "spec": {"spec": spec}}
            yield TEMPLATES, body


def claim_specs() -> dict[str, Object]:
    """What claims ask for, by name."""
    same_half = {"constraints": [{"requests": ["gpus"], "matchAttribute": f"{DRIVER}/half"}]}
    best = [
        {"name": "best", "deviceClassName": FAST_CLASS, "count": 2},
        {"name": "good", "deviceClassName": GPU_CLASS, "count": 1},
    ]
    channel = {"name": "channel", "exactly": {"deviceClassName": CHANNEL_CLASS}}
    return {
        "one": _asked(1),
        "two": _asked(2),
        "fast": _asked(1, FAST_CLASS),
        "pair": {"devices": {**_asked(2)["devices"], **same_half}},
        "best": {"devices": {"requests": [{"name": "gpus", "firstAvailable": best}]}},
        "all": {"devices": {"requests": [{"name": "gpus", "exactly": _ask(GPU_CLASS, "All")}]}},
        "channel": {"devices": {"requests": [channel]}},
        "linked": {"devices": {"requests": [*_asked(1)["devices"]["requests"], channel]}},
    }


def _asked(count: int, name: str = GPU_CLASS) -> Object:
    return {"devices": {"requests": [{"name": "gpus", "exactly": {"deviceClassName": name, "count": count}}]}}


def _ask(name: str, mode: str) -> Object:
    return {"deviceClassName": name, "allocationMode": mode}


def _claiming(arrivals: list[TimedObject], rng: Random) -> Iterator[TimedObject]:
    """The arrivals with claims. All pods of one arrival have the same."""
    entries: dict[str, list[Object]] = {}
    for arrival in arrivals:
        obj = copy.deepcopy(arrival.obj)
        spec = _pod_spec(arrival.kind, obj)
        if spec is None:
            yield arrival
            continue
        name = obj["metadata"].get("labels", {}).get(GANG) or obj["metadata"]["name"]
        if name not in entries:
            foreign = spec.get("schedulerName") == OTHER
            entries[name] = _entries(name, rng, foreign)
            for entry in entries[name]:
                if "resourceClaimName" in entry:
                    yield _shared_claim(name, rng, arrival.when)
        if entries[name]:
            spec["resourceClaims"] = entries[name]
            spec["containers"][0]["resources"]["claims"] = [{"name": one["name"]} for one in entries[name]]
        yield replace(arrival, obj=obj)


def _pod_spec(kind: Kind, obj: Object) -> Object | None:
    """The spec of the pods that an object is, or makes."""
    found: Object
    if kind is PLAIN_PODS:
        found = obj["spec"]
    elif kind.kind == "Job":
        found = obj["spec"]["template"]["spec"]
    elif kind.kind == "JobSet":
        found = obj["spec"]["replicatedJobs"][0]["template"]["spec"]["template"]["spec"]
    else:
        return None
    return found


def _entries(name: str, rng: Random, foreign: bool) -> list[Object]:
    if foreign:
        template = rng.choice(("", *SIMPLE))
    else:
        template = rng.choice(
            ("", "", "one", "one", "two", "fast", "pair", "best", "all", "channel", "linked")
        )
    found: list[Object] = [{"name": OWN, "resourceClaimTemplateName": template}] if template else []
    if not foreign and rng.random() < 0.2:
        found.append({"name": SHARED, "resourceClaimName": f"{name}-{SHARED}"})
    return found


def _shared_claim(name: str, rng: Random, when: float) -> TimedObject:
    spec = claim_specs()[rng.choice(("one", "two", "fast", "best", "channel"))]
    late = rng.choice((0.0, 0.0, rng.uniform(0, 10)))
    body = {"metadata": {"name": f"{name}-{SHARED}", "namespace": NAMESPACE}, "spec": spec}
    return TimedObject(when + late, CLAIMS, body)
