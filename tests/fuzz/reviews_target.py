"""Webhooks and conversion: reviews of objects as people write them, and bytes that are no review."""

from __future__ import annotations

import base64
from random import Random
from typing import Any

import jsonpatch
import msgspec

from bayplan.assembly.webhooks import registry
from bayplan.runtime.webhooks.admission_review import Malformed, ReviewResponse, admit, convert
from tests.fuzz.material import KEYS, KUEUE
from tests.fuzz.mutator import copied, encoded, expanded
from tests.fuzz.roles_target import Drawn
from tests.fuzz.target import Broken, Case

Object = dict[str, Any]

OLD = "kueue.x-k8s.io/v1beta1"
ADMISSION = {"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview"}
CONVERSION = {"apiVersion": "apiextensions.k8s.io/v1", "kind": "ConversionReview"}
KEPT = "bayplan.dev/v1beta2"  # what an older version has no field for


class ReviewsTarget:
    """A case is the path, and a review or a text."""

    name = "reviews"

    def __init__(self) -> None:
        self.drawn = Drawn()
        self.registry = registry()
        asked = {(group, plural) for group, plural, _ in self.registry.admission}
        self.resources = sorted(asked)
        self.operations = {
            where: sorted(one for *rest, one in self.registry.admission if tuple(rest) == where)
            for where in asked
        }
        self.by_group: dict[tuple[str, str], list[Object]] = {}
        for one in self.drawn.material:
            where = one["apiVersion"].rpartition("/")[0], _plural(one["kind"])
            self.by_group.setdefault(where, []).append(one)
        self.resources = [
            (group, plural)
            for group, plural in self.resources
            if (group, plural.partition("/")[0]) in self.by_group
        ]
        converted = {kind for _, kind in self.registry.conversion}
        self.families = [
            one for one in self.drawn.material if one["apiVersion"] == KUEUE and one["kind"] in converted
        ]

    def reset(self) -> None:
        """Reviews leave nothing behind."""

    def sizes(self) -> dict[str, int]:
        return {}

    def draw(self, rng: Random) -> Case:
        """Mostly a review of an object of the right kind."""
        if rng.random() < 0.2:
            return self._conversion(rng)
        where = rng.choice(self.resources)
        plural = where[1].partition("/")[0]
        known = self.by_group[where[0], plural]
        new = self._object(rng, rng.choice(known))
        old = (
            self._object(rng, new if rng.random() < 0.7 else rng.choice(known))
            if rng.random() < 0.5
            else None
        )
        resource, _, part = where[1].partition("/")
        request = {
            "uid": "u",
            "kind": {"group": where[0], "version": "v1", "kind": new["kind"]},
            "resource": {"group": where[0], "version": "v1", "resource": resource},
            "operation": rng.choice(self.operations[where]),
            "name": "alpha",
            "namespace": "default",
            "object": new if rng.random() < 0.95 else None,
            "oldObject": old,
        }
        if part:
            request["subResource"] = part
        return self._finish(rng, rng.choice(("mutate", "validate")), {**ADMISSION, "request": request})

    def _conversion(self, rng: Random) -> Case:
        known = rng.choice(self.families)
        new = self._object(rng, known)
        if rng.random() < 0.5:
            new = {**new, "apiVersion": OLD}
            if rng.random() < 0.7:
                kept = self.drawn.mutator.changed(
                    rng, {"spec": known.get("spec"), "status": known.get("status")}, typed=False
                )
                text = encoded(kept).decode() if rng.random() < 0.8 else self.drawn.mutator.text(rng)
                new["metadata"].setdefault("annotations", {})[KEPT] = text
        target = OLD if new["apiVersion"] == KUEUE else KUEUE
        request = {"uid": "u", "desiredAPIVersion": target, "objects": [new]}
        return self._finish(rng, "convert", {**CONVERSION, "request": request})

    def _object(self, rng: Random, known: Object) -> Object:
        """What an API server has read, but its schema has not checked: mutating webhooks come before that."""
        found: Object = copied(known)
        parts = {
            name: value for name, value in found.items() if name not in ("apiVersion", "kind", "metadata")
        }
        changed = self.drawn.mutator.changed(rng, parts, typed=rng.random() < 0.5)
        found = {name: found[name] for name in ("apiVersion", "kind", "metadata")} | changed
        for _ in range(rng.randrange(3)):
            where = found["metadata"].setdefault(rng.choice(("labels", "annotations")), {})
            where[rng.choice(KEYS)] = self.drawn.mutator.text(rng)
        return found

    def _finish(self, rng: Random, path: str, review: Object) -> Case:
        """The review, perhaps damaged as no API server would."""
        if rng.random() < 0.05:
            return [path, self.drawn.mutator.changed(rng, review, typed=False), "damaged"]
        if rng.random() < 0.03:
            text = encoded(review).decode()
            at = rng.randrange(len(text))
            return [path, text[:at] + self.drawn.mutator.text(rng) + text[at + rng.randrange(5) :], "damaged"]
        return [path, review, "whole"]

    def run(self, case: Case) -> int:
        """Answered, or refused as no review; if it is one, no failure of ours, and a patch that applies."""
        path, review, state = case
        body = review.encode(errors="replace") if isinstance(review, str) else encoded(review)
        try:
            if path == "convert":
                answer = convert(body, self.registry)
            else:
                answer = admit(body, self.registry, mutating=path == "mutate")
        except Malformed:
            return 1
        msgspec.json.encode(answer.body)
        if state == "damaged" or (path == "convert" and isinstance(answer.failure, ValueError)):
            return 1  # it was told what is wrong
        if answer.failure is not None:
            raise answer.failure
        if path == "mutate":
            _check_patch(answer, expanded(review))
        return 1


def _plural(kind: str) -> str:
    name = kind.lower()
    return name[:-1] + "ies" if name.endswith("y") else name + ("es" if name.endswith("s") else "s")


def _check_patch(answer: ReviewResponse, review: Object) -> None:
    patch = answer.body["response"].get("patch")
    if patch is None:
        return
    new = review["request"]["object"]
    found = jsonpatch.apply_patch(new, msgspec.json.decode(base64.b64decode(patch)))
    for name in ("name", "namespace", "uid"):
        if found["metadata"].get(name) != new["metadata"].get(name):
            raise Broken(f"a webhook changed metadata.{name}")
