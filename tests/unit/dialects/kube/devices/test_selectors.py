"""Which devices a selector selects, and that it is evaluated once for equal values."""

from __future__ import annotations

from typing import Any

import pytest

from bayplan.dialects.kube.devices import selectors
from bayplan.dialects.kube.devices.selectors import NO_LIBRARY, DeviceSelectors
from bayplan.model.devices.inventory import AttributeValue, Device, DeviceSlice, PoolKey

GPU = "gpu.example.com"


def slice_with(*models: str, name: str = "s") -> DeviceSlice:
    devices = tuple(
        Device(
            f"gpu-{number}",
            (
                ("model", AttributeValue("string", model)),
                ("uuid", AttributeValue("string", f"{name}-{number}")),
            ),
        )
        for number, model in enumerate(models)
    )
    return DeviceSlice(name, PoolKey(GPU, name), devices=devices)


def test_a_selector_is_evaluated_once_for_each_distinct_value(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("cel_expr_python")
    asked: list[str] = []
    evaluate = selectors._evaluate

    def counted(program: Any, driver: str, device: Device) -> bool | str:
        asked.append(device.name)
        return evaluate(program, driver, device)

    monkeypatch.setattr(selectors, "_evaluate", counted)
    chooses = DeviceSelectors()
    expression = f'device.attributes["{GPU}"].model == "a"'
    parts = [slice_with("a", "b", "a", "b", name=f"s{number}") for number in range(50)]
    assert all(chooses.select(expression, part).matches == b"\1\0\1\0" for part in parts)
    assert asked == ["gpu-0", "gpu-1"]


def test_a_changed_slice_is_evaluated_anew() -> None:
    pytest.importorskip("cel_expr_python")
    chooses = DeviceSelectors()
    expression = f'device.attributes["{GPU}"].model == "a"'
    assert chooses.select(expression, slice_with("a")).matches == b"\1"
    assert chooses.select(expression, slice_with("b")).matches == b"\0"
    assert chooses.select(expression, slice_with("a", "a")).matches == b"\1\1"


def test_what_cannot_be_compiled_is_a_flaw_and_no_mismatch() -> None:
    pytest.importorskip("cel_expr_python")
    chooses = DeviceSelectors()
    assert chooses.select("no.such.thing(1)", slice_with("a")).flaw
    assert chooses.select(f"{'1 == 1 && ' * 2000} true", slice_with("a")).flaw


def test_a_result_that_is_no_truth_value_is_an_error() -> None:
    pytest.importorskip("cel_expr_python")
    found = DeviceSelectors().select(f'device.attributes["{GPU}"].model', slice_with("a"))
    assert (found.matches, found.error(0)) == (
        b"\2",
        "CEL result of type string could not be converted to bool",
    )


def test_quantities_are_equal_by_value_and_have_no_order_by_signs() -> None:
    pytest.importorskip("cel_expr_python")
    chooses = DeviceSelectors()
    assert chooses.select('quantity("1Gi") == quantity("1024Mi")', slice_with("a")).matches == b"\1"
    assert chooses.select('quantity("1Gi") < quantity("2Gi")', slice_with("a")).flaw


def test_without_the_library_only_selectors_on_the_driver_are_read(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(selectors, "_environment", lambda: None)
    chooses = DeviceSelectors()
    assert chooses.select(f'device.driver == "{GPU}"', slice_with("a")).matches == b"\1"
    assert chooses.select("true", slice_with("a")).flaw == NO_LIBRARY
