"""Whatever the spec of an object of the Kueue API says survives the other version, both ways."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bayplan.backends.conversion import convert
from bayplan.backends.definitions import definitions
from bayplan.backends.embedded.schema.structural import walker
from bayplan.dialects.kueue.conversion.versions import CONVERSIONS
from tests.properties.structural_objects import values

Object = dict[str, Any]

GROUP = "kueue.x-k8s.io"
SCHEMAS = {
    (one["spec"]["names"]["kind"], version["name"]): version["schema"]["openAPIV3Schema"]
    for one in definitions()
    for version in one["spec"]["versions"]
}
OTHER = {"v1beta1": "v1beta2", "v1beta2": "v1beta1"}


def objects(kind: str, version: str) -> st.SearchStrategy[Object]:
    properties = SCHEMAS[kind, version]["properties"]
    metadata = {"name": "x", "annotations": {"mine": "y"}}
    head = {"apiVersion": st.just(f"{GROUP}/{version}"), "kind": st.just(kind), "metadata": st.just(metadata)}
    sections = {key: values(properties[key]) for key in ("spec", "status")}
    return st.fixed_dictionaries(head | sections)


CASES = [(kind, version) for kind in CONVERSIONS for version in OTHER]


@pytest.mark.parametrize(("kind", "version"), CASES)
@settings(max_examples=settings().max_examples // 4)  # the objects are large
@given(data=st.data())
def test_there_and_back_is_where_it_was(kind: str, version: str, data: st.DataObject) -> None:
    obj = data.draw(objects(kind, version))
    there = convert(obj, f"{GROUP}/{OTHER[version]}")
    back = convert(there, obj["apiVersion"])
    assert back == {**obj, "status": in_both(obj)}
    assert convert(back, there["apiVersion"]) == there, "also when the way begins in the middle"
    assert unknown_fields(there) == []


def in_both(obj: Object) -> Object:
    """The status as far as both versions can say it: never kept in an annotation, which users can write."""
    kind, version = obj["kind"], obj["apiVersion"].partition("/")[2]
    status: Object = CONVERSIONS[kind](CONVERSIONS[kind](obj, OTHER[version]), version)["status"]
    return status


def unknown_fields(obj: Object) -> list[str]:
    """What the version of the object does not know."""
    found: list[str] = []
    schema = SCHEMAS[obj["kind"], obj["apiVersion"].partition("/")[2]]
    walker(schema)({"spec": obj["spec"], "status": obj["status"]}, (), found)
    return found
