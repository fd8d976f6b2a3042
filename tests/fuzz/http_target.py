"""The HTTP API of the cluster in memory: any method, path, query, header and body."""

from __future__ import annotations

from itertools import count
from random import Random
from typing import Any
from urllib.parse import parse_qsl

import msgspec

from bayplan.assembly.in_process_webhooks import register_webhooks
from bayplan.backends.definitions import define
from bayplan.backends.embedded.api.status import StatusError
from bayplan.backends.embedded.cluster import new_store
from bayplan.backends.embedded.http import documents
from bayplan.backends.embedded.http.handlers import HttpResponse, Stream, serve
from bayplan.backends.embedded.http.request import Call, acceptable, place_of
from tests.fuzz.material import WORDS, everything
from tests.fuzz.mutator import Mutator, encoded
from tests.fuzz.sizes import sizes_of
from tests.fuzz.target import Case

Object = dict[str, Any]

START = 1_800_000_000.0
FORMS = (
    *("application/json",) * 5,
    "application/yaml",
    "application/merge-patch+json",
    "application/merge-patch+json",
    "application/strategic-merge-patch+json",
    "application/strategic-merge-patch+json",
    "application/json-patch+json",
    "application/apply-patch+yaml",
    "application/vnd.kubernetes.protobuf",
    "text/plain",
    "",
)
TABLE = "application/json;as=Table;v=v1;g=meta.k8s.io,application/json"
ACCEPTS = (
    "application/json",
    "*/*",
    TABLE,
    "application/yaml",
    "application/json;as=PartialObjectMetadata",
    "x",
)
PARTS = ("", "", "", "status", "scale", "binding", "eviction", "log", "finalize", "x")
QUERIES = ("limit", "continue", "labelSelector", "fieldSelector", "resourceVersion", "resourceVersionMatch")
FLAGS = ("watch", "dryRun", "fieldValidation", "timeoutSeconds", "sendInitialEvents", "fieldManager")
SELECTORS = (
    "a=b",
    "a in (b,c)",
    "!a",
    "a notin ()",
    "metadata.name=alpha",
    "spec.nodeName=n1",
    "a==",
    ",",
    "a=b,",
)
OPERATIONS = ("add", "remove", "replace", "test", "move", "copy", "x")
POINTERS = (
    "/spec",
    "/metadata/labels",
    "/metadata/name",
    "/spec/containers/0",
    "/spec/containers/-",
    "",
    "/",
    "x",
)


class HttpTarget:
    """A case is one or more calls: method, path with query, accepted and sent form, body."""

    name = "http"

    def __init__(self) -> None:
        self.mutator = Mutator(WORDS)
        self.material = everything()
        self.reset()

    def reset(self) -> None:
        """An empty cluster."""
        numbers = count(1)
        self.store = new_store(lambda: START, lambda: f"uid-{next(numbers)}", lambda: f"{next(numbers):05d}")
        register_webhooks(self.store)
        define(self.store)
        self.resources = sorted(self.store.resources.by_place)
        self.kinds = {
            (one.api_version, one.kind): place for place, one in self.store.resources.by_place.items()
        }
        for resource in self.store.resources.by_place.values():
            self.store.collection_of(resource)  # those are made when first asked for
        self.known = [one for one in self.material if (one["apiVersion"], one["kind"]) in self.kinds]

    def draw(self, rng: Random) -> Case:
        """Create an object, or nearly one, and do something with it."""
        obj = rng.choice(self.known)
        group, version, plural = self.kinds[obj["apiVersion"], obj["kind"]]
        root = f"/apis/{group}/{version}" if group else f"/api/{version}"
        resource = self.store.resources.by_place[group, version, plural]
        space = f"{root}/namespaces/default/{plural}" if resource.namespaced else f"{root}/{plural}"
        calls: list[list[Any]] = []
        if rng.random() < 0.8:
            body = obj if rng.random() < 0.5 else self.mutator.changed(rng, obj, typed=rng.random() < 0.7)
            calls.append(["POST", space, "application/json", "application/json", body])
        return [*calls, *(self._call(rng, space, obj) for _ in range(rng.randrange(1, 4)))]

    def _call(self, rng: Random, space: str, obj: Object) -> list[Any]:
        method = rng.choice(("GET", "GET", "PUT", "PATCH", "PATCH", "PATCH", "DELETE", "POST", "HEAD", "X"))
        path = space
        if rng.random() < 0.85:
            path += "/" + (obj["metadata"]["name"] if rng.random() < 0.9 else self.mutator.text(rng)[:90])
            part = rng.choice(PARTS)
            path += f"/{part}" if part else ""
        if rng.random() < 0.05:
            path = "/" + "/".join(
                rng.choice((*path.split("/"), self.mutator.text(rng)[:50])) for _ in range(4)
            )
        query = ""
        if rng.random() < 0.4:
            keys = [rng.choice((*QUERIES, *FLAGS)) for _ in range(rng.randrange(1, 4))]
            query = "?" + "&".join(f"{key}={self._query(rng)}" for key in keys)
        form = rng.choice(FORMS)
        return [method, path + query, rng.choice(ACCEPTS), form, self._body(rng, form, obj)]

    def _query(self, rng: Random) -> str:
        match rng.randrange(4):
            case 0:
                return rng.choice(SELECTORS)
            case 1:
                return rng.choice(("true", "false", "1", "0", "All", "Strict", "Exact", "NotOlderThan"))
        return self.mutator.text(rng)

    def _body(self, rng: Random, form: str, obj: Object) -> Any:
        """Values to be sent as JSON, or a text that is sent as it is."""
        if rng.random() < 0.1:
            text = msgspec.json.encode(obj).decode()
            at = rng.randrange(len(text))
            return text[:at] + self.mutator.text(rng) + text[at + rng.randrange(4) :]
        if form.endswith("json-patch+json"):
            return [
                {"op": rng.choice(OPERATIONS), "path": rng.choice(POINTERS), "value": self.mutator.any(rng)}
                | ({"from": rng.choice(POINTERS)} if rng.random() < 0.3 else {})
                for _ in range(rng.randrange(1, 4))
            ]
        if rng.random() < 0.3:
            changed = self.mutator.changed(rng, {"spec": obj.get("spec"), "status": {}}, typed=False)
            return {name: changed.get(name) for name in changed}
        return self.mutator.changed(rng, obj, typed=rng.random() < 0.6)

    def run(self, case: Case) -> int:
        """Every call has an answer or a refusal, and either can be sent."""
        for method, path, accept, form, body in case:
            raw = body.encode(errors="replace") if isinstance(body, str) else encoded(body)
            where, _, query = path.partition("?")
            pairs = dict(parse_qsl(query, keep_blank_values=True))
            self._answered(Call(method, where, pairs, accept, form, raw))
        self._empty()
        return len(case)

    def sizes(self) -> dict[str, int]:
        kept = sizes_of({"store": self.store})
        past = (".log.", "rendered")  # what happened is remembered for a while; documents are made once
        return {where: size for where, size in kept.items() if not any(one in where for one in past)}

    def _answered(self, call: Call) -> None:
        try:
            place = place_of(call.path)
            if place is None:
                documents.find(self.store, call, "127.0.0.1:1")
                return
            acceptable(call.accept)
            answer = documents.serve_place(self.store, call, place, serve)
        except StatusError as refusal:
            msgspec.json.encode(refusal.body)
            return
        if isinstance(answer, Stream):
            if answer.watch is not None:
                for _, item in answer.watch.take():
                    msgspec.json.encode(answer.show(item, True))
                answer.watch.close()
        elif isinstance(answer, HttpResponse):
            msgspec.json.encode(answer.body)

    def _empty(self) -> None:
        for place, resource in list(self.store.resources.by_place.items()):
            if place[0] == "apiextensions.k8s.io":
                continue
            shelf = self.store.collection_of(resource)
            if shelf.objects and resource.kind != "Namespace":
                for item in list(shelf.objects.values()):
                    self._remove(resource, item["metadata"])

    def _remove(self, resource: Any, meta: Object) -> None:
        where = (meta.get("namespace", ""), meta["name"])
        if meta.get("finalizers"):
            self.store.patch(resource, *where, {"metadata": {"finalizers": None}})
        if self.store.find(resource, *where) is not None:
            self.store.delete(resource, *where)
