"""CompositePodGroup on the in-memory cluster: versions, defaults, and validation."""

from __future__ import annotations

from typing import Any

import pytest

from bayplan.backends.embedded.api.status import StatusError
from bayplan.dialects.api import Kind
from bayplan.dialects.kube.gang_api.gates import ALL_GATES, GROUP, V1ALPHA2, V1BETA1
from tests.unit.dialects.kube.gang_api.test_gang_api import CLASSES, Object, rejection, store_of

COMPOSITES = Kind(GROUP, "v1alpha3", "CompositePodGroup", "compositepodgroups")
FROM = {"workloadName": "w", "templateName": "t"}


def composite(**spec: Any) -> Object:
    policy = {"gang": {"minGroupCount": 2}}
    return {"metadata": {"name": "c"}, "spec": {"schedulingPolicy": policy, "workloadRef": FROM, **spec}}


def test_composite_groups_are_served_together_with_v1beta1() -> None:
    store = store_of(V1BETA1)
    store.create(CLASSES, {"metadata": {"name": "high"}, "value": 7, "preemptionPolicy": "Never"})
    made = store.create(COMPOSITES, {**composite(priorityClassName="high"), "status": {"x": 1}}, "default")
    assert (made["spec"]["priority"], made["spec"]["preemptionPolicy"]) == (7, "Never")
    assert (made["spec"]["disruptionMode"], made["status"]) == ({"single": {}}, {})
    told = rejection(store, COMPOSITES, composite(priority=8))
    assert "priority set in the composite pod group (8) must match the priority computed (0)" in told
    assert "spec.workloadRef: Required value" in rejection(store, COMPOSITES, composite(workloadRef=None))
    none_of_two = rejection(store, COMPOSITES, composite(schedulingPolicy={"gang": {"minGroupCount": 0}}))
    assert "spec.schedulingPolicy.gang.minGroupCount: Required value" in none_of_two


def test_composite_groups_are_immutable() -> None:
    store = store_of(V1BETA1)
    made = store.create(COMPOSITES, composite(), "default")
    made = {**made, "spec": {**made["spec"], "schedulingPolicy": {"gang": {"minGroupCount": 3}}}}
    with pytest.raises(StatusError) as caught:
        store.update(COMPOSITES, "default", "c", made)
    assert "field is immutable" in str(caught.value.message)


@pytest.mark.parametrize("settings", [((V1ALPHA2,), ALL_GATES), ((V1BETA1,), frozenset())])
def test_composite_groups_are_not_served_with_other_versions(
    settings: tuple[tuple[str, ...], frozenset[str]],
) -> None:
    store = store_of(*settings[0], gates=settings[1])
    assert not any(one.plural == COMPOSITES.plural for one in store.resources.by_place.values())
