"""What one applier wants no more goes, and what others want stays: on a server and in memory alike."""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import pytest

from bayplan.backends.embedded.api.options import Options
from bayplan.backends.embedded.cluster import new_store
from bayplan.dialects.api import Kind

if TYPE_CHECKING:
    from tools.controlplane.cluster import Cluster

Object = dict[str, Any]
Step = tuple[str, Object]
"""Who applies what; "" stands for somebody who patches."""

CONFIGS = Kind("", "v1", "ConfigMap", "configmaps")
ACCOUNTS = Kind("", "v1", "ServiceAccount", "serviceaccounts")


def data(**values: str) -> Object:
    return {"data": values}


def secrets(*names: str) -> Object:
    return {"secrets": [{"name": name} for name in names]}


STORIES: dict[str, tuple[Kind, list[Step]]] = {
    "a field that is dropped goes": (CONFIGS, [("us", data(k="1", l="2")), ("us", data(k="9"))]),
    "all of them": (CONFIGS, [("us", data(k="1", l="2")), ("us", {})]),
    "another's stays": (CONFIGS, [("us", data(k="1", l="2")), ("them", data(m="3")), ("us", data(k="1"))]),
    "what both want stays until both let go": (
        CONFIGS,
        [("us", data(k="1", l="2")), ("them", data(k="1")), ("us", {}), ("them", {})],
    ),
    "what was taken over stays": (CONFIGS, [("us", data(k="1")), ("them", data(k="2")), ("us", {})]),
    "what somebody changed since stays": (
        CONFIGS,
        [("us", data(k="1", l="2")), ("", data(k="5")), ("us", {})],
    ),
    "items of a list by their key": (
        ACCOUNTS,
        [("us", secrets("a", "b")), ("them", secrets("b", "c")), ("us", secrets("a")), ("us", {})],
    ),
}


def told(kind: Kind, steps: list[Step], do: Callable[[str, Object], Object]) -> list[object]:
    """The part in question after every step."""
    part = "data" if kind is CONFIGS else "secrets"
    return [do(who, wanted).get(part) or None for who, wanted in steps]


def in_memory(kind: Kind) -> Callable[[str, Object], Object]:
    numbers = itertools.count()
    store = new_store(lambda: 1_800_000_000.0, lambda: f"uid-{next(numbers)}", lambda: str(next(numbers)))

    def do(who: str, wanted: Object) -> Object:
        if who:
            return store.apply(kind, "default", "story", wanted, options=Options(manager=who))
        return store.patch(kind, "default", "story", wanted)

    return do


def on(cluster: Cluster, namespace: str, kind: Kind) -> Callable[[str, Object], Object]:
    def do(who: str, wanted: Object) -> Object:
        if who:
            metadata = {"name": "story", "namespace": namespace}
            whole = {"apiVersion": "v1", "kind": kind.kind, "metadata": metadata, **wanted}
            forced = ("--server-side", "--force-conflicts", f"--field-manager={who}")
            cluster.kubectl("apply", *forced, "-f", "-", stdin=json.dumps(whole))
        else:
            merge = ("--type=merge", "-p", json.dumps(wanted))
            cluster.kubectl("patch", "-n", namespace, kind.plural, "story", *merge)
        found: Object = cluster.get(kind.plural, "-n", namespace, "story")
        return found

    return do


@pytest.mark.parametrize("name", STORIES)
def test_applies_end_the_same_in_memory_and_on_a_server(cluster: Cluster, name: str) -> None:
    kind, steps = STORIES[name]
    namespace = "alike-" + name.translate(str.maketrans(" ", "-", "'"))
    cluster.kubectl("create", "namespace", namespace)
    try:
        assert told(kind, steps, in_memory(kind)) == told(kind, steps, on(cluster, namespace, kind))
    finally:
        cluster.kubectl("delete", "namespace", namespace, "--wait=false")
