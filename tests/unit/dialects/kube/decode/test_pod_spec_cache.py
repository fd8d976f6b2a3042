"""Pods of one template share what was decoded, whatever differs between them that decides nothing."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from bayplan.dialects.kube.decode.pod_spec_cache import PodSpecCache, PodSpecTemplate
from bayplan.dialects.kube.decode.wire import PodWire

CONTAINER = {"name": "c", "image": "i", "resources": {"requests": {"cpu": "2"}}}


def template(cache: PodSpecCache, name: str, *volumes: dict[str, Any]) -> PodSpecTemplate:
    meta = {"name": name, "namespace": "ns", "uid": f"uid of {name}"}
    spec = {"containers": [CONTAINER], "volumes": list(volumes)}
    return cache.template_of(msgspec.convert({"metadata": meta, "spec": spec}, PodWire))


def token(suffix: str) -> dict[str, Any]:
    """The volume that the API server adds to a pod for its service account."""
    return {"name": f"kube-api-access-{suffix}", "projected": {"sources": []}}


def test_pods_share_a_template_though_their_tokens_have_other_names() -> None:
    cache = PodSpecCache()
    assert template(cache, "a", token("b7x2k")) is template(cache, "b", token("q9d4f"))
    assert len(cache.templates) == 1


@pytest.mark.parametrize(
    "source",
    [
        {"persistentVolumeClaim": {"claimName": "other"}},
        {"gcePersistentDisk": {"pdName": "other"}},
        {"iscsi": {"iqn": "other"}},
    ],
)
def test_pods_with_other_storage_have_other_templates(source: dict[str, Any]) -> None:
    cache = PodSpecCache()
    data = {"name": "data", "persistentVolumeClaim": {"claimName": "data"}}
    assert template(cache, "a", data) is template(cache, "b", data)
    assert template(cache, "c", {"name": "data", **source}) is not template(cache, "a", data)


def test_ephemeral_claims_are_of_one_pod() -> None:
    cache, volume = PodSpecCache(), {"name": "scratch", "ephemeral": {"volumeClaimTemplate": {}}}
    assert template(cache, "a", volume) is not template(cache, "b", volume)
