"""The pods that the stand-ins for controllers make from a template, and names for them that are free."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import count

from bayplan.backends.fake_controllers.objects import (
    Object,
    labels_of,
    name_of,
    notes_of,
    owner_reference,
    suffix,
    uid_of,
)
from bayplan.dialects.api import Kind


def free_endings(owner: Object, pods: Sequence[Object], *start: str) -> Iterator[str]:
    """Endings of pod names that no pod of the owner has; all begin in the same way."""
    taken = {name_of(pod)[1] for pod in pods}
    for number in count():
        ending = "".join(start) + suffix(uid_of(owner), *start, number)
        if (name := f"{name_of(owner)[1]}-{ending}") not in taken:
            taken.add(name)
            yield ending


def made_pod(owner: Object, kind: Kind, ending: str, labels: Mapping[str, str]) -> Object:
    """A pod of the owner's template, with these labels besides."""
    namespace, name = name_of(owner)
    template = owner["spec"]["template"]
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": f"{name}-{ending}",
            "namespace": namespace,
            "labels": {**labels_of(template), **labels},
            "annotations": dict(notes_of(template)),
            "ownerReferences": [owner_reference(owner, kind)],
        },
        "spec": dict(template["spec"]),
    }
