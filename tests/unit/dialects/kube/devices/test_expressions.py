"""What a selector mentions, and how the CEL library is asked."""

from __future__ import annotations

import pytest

from bayplan.dialects.kube.devices.expressions import EVERYTHING, for_library, mentions, only_driver

GPU = "gpu.example.com"


@pytest.mark.parametrize(
    ("expression", "names"),
    [
        (f'device.attributes["{GPU}"].model == "a"', {("attributes", GPU, "model")}),
        (f'device.attributes["{GPU}"].?model.orValue("") == "a"', {("attributes", GPU, "model")}),
        (f'has(device.capacity["{GPU}"].memory)', {("capacity", GPU, "memory")}),
        (f'device.attributes["{GPU}"]["model"] == "a"', {("attributes", GPU, "model")}),
        (f'"numa" in device.attributes["{GPU}"]', {("attributes", GPU, "numa")}),
        (f'"nu" + "ma" in device.attributes["{GPU}"]', {("attributes", GPU, "")}),
        (f'device.attributes["{GPU}"].exists(a, a == "x")', {("attributes", GPU, "")}),
        (f'cel.bind(a, device.attributes["{GPU}"], a.model == "x")', {("attributes", GPU, "")}),
        ('"x" in device.attributes', {("attributes", "", "")}),
        ("device.attributes[device.driver].index == 1", {("attributes", "", "")}),
        ('"device.attributes" == "a"', set()),
    ],
)
def test_the_mentions_of_an_expression(expression: str, names: set[tuple[str, str, str]]) -> None:
    assert set(mentions(expression).names or ()) == names


def test_a_device_that_is_used_as_a_whole_is_mentioned_with_everything() -> None:
    assert mentions("cel.bind(d, device, d.driver == 'x')") == EVERYTHING


@pytest.mark.parametrize(
    ("expression", "asked"),
    [
        ('device.attributes["x"].a == 1', 'device.attributes[?"x"].orValue(dyn({})).a == 1'),
        (
            "device.attributes[device.driver].a == 1",
            "device.attributes[?device.driver].orValue(dyn({})).a == 1",
        ),
        ('device.attributes[?"x"].?a.hasValue()', 'device.attributes[?"x"].?a.hasValue()'),
        ('\'device.attributes["x"]\' == ""', '\'device.attributes["x"]\' == ""'),
        (
            'cel.bind(d, device.capacity, d["x"].a == 1)',
            'cel.bind(d, device.capacity, d[?"x"].orValue(dyn({})).a == 1)',
        ),
    ],
)
def test_an_unknown_domain_is_an_empty_map(expression: str, asked: str) -> None:
    assert for_library(expression) == asked


def test_an_expression_that_asks_for_the_driver_alone_is_known_without_the_library() -> None:
    assert only_driver(' device.driver == "x" ') == "x"
    assert only_driver('device.driver == "x" && true') is None
