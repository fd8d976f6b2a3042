"""Objects that are nested too deep to be read: they are left out, and others are read all the same."""

from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest

from bayplan.backends.remote.decoding import DEPTH_MAX, Wire, cut, key_of, line, version_of
from bayplan.dialects.api import Kind
from bayplan.dialects.kube.wire import PODS_KIND

FREE = Kind("ray.io", "v1", "RayCluster", "rayclusters")


def deep(name: str, levels: int) -> str:
    """An object whose specification is so deep, as text: Python cannot print it either."""
    meta = json.dumps({"name": name, "namespace": "default", "uid": name, "resourceVersion": "7"})
    odd = json.dumps('a "quoted\\" {[ bracket')
    spec = '{"a":[' * levels + "1" + "]}" * levels
    return f'{{"metadata":{meta},"odd":{odd},"spec":{spec}}}'


@pytest.mark.parametrize("levels", [600, 2000, 9000])
@pytest.mark.parametrize("kind", [FREE, PODS_KIND])
def test_a_list_with_a_deep_object_is_read_without_it(kind: Kind, levels: int) -> None:
    items = ",".join((deep("sound", 1), deep("deep", levels), deep("last", 2)))
    page = Wire(kind).page(f'{{"metadata":{{"resourceVersion":"9"}},"items":[{items}]}}'.encode())
    assert page.metadata.resource_version == "9"
    names = [Wire(kind).identify(one)[1] for one in page.items]
    assert names == ["sound", "last"]
    ((key, why),) = page.unreadable
    assert key == ("default", "deep") and f"more than {DEPTH_MAX} levels" in why


@pytest.mark.parametrize("levels", [600, 9000])
def test_a_watch_goes_on_behind_a_deep_object(levels: int) -> None:
    happened = line(f'{{"type":"ADDED","object":{deep("deep", levels)}}}'.encode())
    assert happened.type == "ADDED"
    assert key_of(happened.object) == ("default", "deep") and version_of(happened.object) == "7"
    with pytest.raises(msgspec.ValidationError, match="levels deep"):
        Wire(FREE).object(happened.object)


def test_an_answer_that_is_too_deep_is_no_object() -> None:
    with pytest.raises(msgspec.ValidationError, match="levels deep"):
        Wire(FREE).object(deep("deep", 2000).encode())


def test_only_what_is_too_deep_is_cut() -> None:
    value: Any = {"a": {"b": [1, {"c": [2]}], "text": '[{"\\\\'}, "d": [[3]]}
    text = json.dumps(value).encode()
    assert cut(text, 9) == text
    assert json.loads(cut(text, 3)) == {
        "a": {"b": [1, "bayplan.dev/too-deep"], "text": value["a"]["text"]},
        "d": [[3]],
    }
