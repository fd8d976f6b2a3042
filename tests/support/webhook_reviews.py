"""Reviews as an API server sends them, and handlers that look at them."""

from __future__ import annotations

import base64
import json
from typing import Any

import jsonpatch

from bayplan.dialects.kube.fields.reader import FieldError
from bayplan.runtime.webhooks.admission_review import Handlers, Object, Registry

JOB = {"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": "j"}, "spec": {"parallelism": 2}}


def suspend(new: Object, old: Object | None) -> Object:
    return {**new, "spec": {**new["spec"], "suspend": True}}


def label(new: Object, old: Object | None) -> Object:
    new["metadata"].setdefault("labels", {})["was"] = "new" if old is None else "old"
    return new


def at_least_one(new: Object | None, old: Object | None) -> list[FieldError]:
    count = (new or {"spec": {}})["spec"].get("parallelism")
    return [FieldError("spec.parallelism", count, "must be at least 1")] if count == 0 else []


def unchanged_queue(new: Object | None, old: Object | None) -> list[FieldError]:
    if new is None or old is None or new["spec"].get("queue") == old["spec"].get("queue"):
        return []
    return [FieldError("spec.queue", new["spec"].get("queue"), "must not change")]


def kept(new: Object | None, old: Object | None) -> list[FieldError]:
    return [FieldError("metadata.name", None, "must stay")] if new is None else []


def broken(new: Object, old: Object | None) -> Object:
    raise RuntimeError("oh dear")


def registry() -> Registry:
    made = Registry()
    made.add("batch", "jobs", Handlers(mutate=(suspend,), validate=(at_least_one,)))
    made.add("batch", "jobs", Handlers(mutate=(label,), validate=(unchanged_queue,)))
    made.add("batch", "jobs", Handlers(mutate=(label,), validate=(kept,)), ["DELETE"])
    made.add("batch", "jobs/status", Handlers(mutate=(label,)), ["UPDATE"])
    made.add("", "pods", Handlers(mutate=(broken,)))
    made.add("", "nodes", Handlers(mutate=(broken,), fail_open=True))
    made.conversion["x.dev", "Thing"] = rename
    return made


def rename(obj: Object, version: str) -> Object:
    if obj["spec"].get("bad"):
        raise ValueError("spec.bad cannot be said in another version")
    note = {"metadata": {"name": "changed", "annotations": {"from": obj["apiVersion"]}}}
    return {**obj, "apiVersion": version, **note}


def deep(levels: int) -> Object:
    """An object with so many objects and as many lists inside each other."""
    found: Object = {}
    for _ in range(levels):
        found = {"a": [found]}
    return found


def review(
    operation: str = "CREATE", new: Object | None = JOB, old: Object | None = None, **more: Any
) -> bytes:
    request = {
        "uid": "u-1",
        "kind": {"group": "batch", "version": "v1", "kind": "Job"},
        "resource": {"group": "batch", "version": "v1", "resource": "jobs"},
        "operation": operation,
        "name": "j",
        "namespace": "ns",
        "userInfo": {"username": "someone"},
        "object": new,
        "oldObject": old,
        "options": {"kind": "CreateOptions"},
        **more,
    }
    return json.dumps(
        {"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": request}
    ).encode()


def patched(obj: Object, answer: Object) -> Object:
    response = answer["response"]
    assert response["allowed"]
    if "patch" not in response:
        return obj
    assert response["patchType"] == "JSONPatch"
    changed: Object = jsonpatch.apply_patch(obj, base64.b64decode(response["patch"]))
    return changed


def conversion(*objects: Object, version: str = "x.dev/v2") -> bytes:
    request = {"uid": "u-2", "desiredAPIVersion": version, "objects": list(objects)}
    return json.dumps(
        {"apiVersion": "apiextensions.k8s.io/v1", "kind": "ConversionReview", "request": request}
    ).encode()


def thing(version: str = "x.dev/v1", **spec: Any) -> Object:
    return {"apiVersion": version, "kind": "Thing", "metadata": {"name": "t", "uid": "1"}, "spec": spec}
