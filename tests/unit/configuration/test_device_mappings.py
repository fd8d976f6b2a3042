"""Which resource devices of a class count as in quota, and what becomes of devices that do not count."""

from __future__ import annotations

from typing import Any

import pytest

from bayplan.configuration.settings import read_settings
from bayplan.dialects.kube.fields.reader import Field
from bayplan.dialects.kueue.fields.counting import Counting, DeviceClassMapping, UncountedDevices

MAPPING = {"name": "example.com/gpus", "deviceClassNames": ["gpu.example.com", "big.example.com"]}


def counting(**resources: Any) -> tuple[Counting, list[str]]:
    body = Field({"apiVersion": "bayplan.dev/v1", "kind": "Configuration", "resources": resources})
    return read_settings(body).resources, [str(error) for error in body.errors]


def test_classes_are_mapped_to_a_resource() -> None:
    found, problems = counting(deviceClassMappings=[MAPPING], uncountedDevices="admit")
    assert problems == []
    assert found.device_classes == (
        DeviceClassMapping("example.com/gpus", ("gpu.example.com", "big.example.com")),
    )
    assert found.uncounted_devices is UncountedDevices.ADMIT
    assert found.resource_of("big.example.com") == "example.com/gpus"
    assert found.resource_of("other.example.com") == ""


@pytest.mark.parametrize(
    ("resources", "problem"),
    [
        (
            {"deviceClassMappings": [{"name": "a", "deviceClassNames": []}]},
            "deviceClassMappings[0].deviceClassNames: must list at least one device class",
        ),
        (
            {"deviceClassMappings": [{"deviceClassNames": ["x"]}]},
            "deviceClassMappings[0].name: must name a resource",
        ),
        (
            {"deviceClassMappings": [MAPPING, {"name": "b", "deviceClassNames": ["big.example.com"]}]},
            'deviceClassMappings[1].deviceClassNames[0]: "big.example.com": is already mapped to the '
            "resource example.com/gpus",
        ),
        (
            {"deviceClassMappings": [MAPPING, {**MAPPING, "deviceClassNames": ["y"]}]},
            'deviceClassMappings[1].name: "example.com/gpus": is mapped more than once',
        ),
        (
            {"deviceClassMappings": [{"name": "a", "deviceClassNames": [f"c{n}" for n in range(9)]}]},
            "deviceClassMappings[0].deviceClassNames: must have at most 8 entries",
        ),
        (
            {"deviceClassMappings": [{**MAPPING, "sources": [{"capacity": {}}]}]},
            "deviceClassMappings[0].sources[0].capacity: is not supported: quota counts devices or counters",
        ),
        (
            {"deviceClassMappings": [{**MAPPING, "sources": [{}]}]},
            "deviceClassMappings[0].sources[0]: must have a counter",
        ),
        (
            {"deviceClassMappings": [{**MAPPING, "sources": [{"counter": {"name": "n", "driver": "d"}}]}]},
            "deviceClassMappings[0].sources[0].counter.deviceSelector.cel.expression: must be set",
        ),
        ({"uncountedDevices": "ignore"}, 'uncountedDevices: "ignore": must be refuse or admit'),
    ],
)
def test_what_is_wrong_is_told_with_its_path(resources: dict[str, Any], problem: str) -> None:
    _, (found,) = counting(**resources)
    assert found.startswith(f"resources.{problem}")
