"""What `bayplan uninstall` changes on objects that it keeps."""

from __future__ import annotations

from typing import Any

import pytest

from bayplan.assembly.crds import unconverted
from bayplan.cli.commands.uninstall import is_held, released, without_finalizers

Object = dict[str, Any]


@pytest.mark.parametrize(
    ("there", "left"),
    [
        (["kueue.x-k8s.io/resource-in-use", "example.com/mine"], ["example.com/mine"]),
        (["kueue.x-k8s.io/managed"], []),
    ],
)
def test_only_our_finalizers_are_removed(there: list[str], left: list[str]) -> None:
    changed = without_finalizers({"metadata": {"name": "a", "finalizers": there}})
    assert changed == {"metadata": {"name": "a", "finalizers": left}}
    assert without_finalizers({"metadata": {"name": "a", "finalizers": left}}) is None


def test_only_our_gates_are_removed_from_a_pod() -> None:
    gates = [{"name": "kueue.x-k8s.io/topology"}, {"name": "example.com/mine"}]
    changed = released({"metadata": {"name": "a"}, "spec": {"schedulingGates": gates}})
    assert changed is not None and changed["spec"]["schedulingGates"] == gates[1:]
    assert released({"metadata": {"name": "a"}, "spec": {"schedulingGates": gates[1:]}}) is None
    assert released({"metadata": {"name": "a"}, "spec": {}}) is None


def test_a_definition_is_served_in_its_stored_version_only() -> None:
    old = {"name": "v1beta1", "served": True, "storage": False}
    new = {"name": "v1beta2", "served": True, "storage": True}
    changed = unconverted(
        {"spec": {"versions": [old, new], "conversion": {"strategy": "Webhook", "webhook": {}}}}
    )
    assert changed is not None
    assert changed["spec"] == {
        "versions": [{**old, "served": False}, new],
        "conversion": {"strategy": "None"},
    }
    assert unconverted(changed) is None


@pytest.mark.parametrize(
    ("conditions", "held"),
    [
        ([], True),
        ([{"type": "QuotaReserved", "status": "False"}], True),
        ([{"type": "Admitted", "status": "False"}], True),
        ([{"type": "Admitted", "status": "True"}], False),
        ([{"type": "Finished", "status": "True"}], False),
    ],
)
def test_the_job_of_a_workload_that_was_not_admitted_is_suspended(
    conditions: list[Object], held: bool
) -> None:
    assert is_held({"status": {"conditions": conditions}}) == held
