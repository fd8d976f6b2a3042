"""Pods that simulated controllers create from a template, and free names for them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import count

from bayplan.backends.fake_controllers.objects import (
    Object,
    annotations_of,
    labels_of,
    name_of,
    owner_reference,
    suffix,
    uid_of,
)
from bayplan.dialects.api import Kind


def free_endings(owner: Object, pods: Sequence[Object], *start: str) -> Iterator[str]:
    """Name suffixes that no pod of the owner uses; all begin with `start`."""
    taken = {name_of(pod)[1] for pod in pods}
    for number in count():
        ending = "".join(start) + suffix(uid_of(owner), *start, number)
        if (name := f"{name_of(owner)[1]}-{ending}") not in taken:
            taken.add(name)
            yield ending


def pod_from_template(owner: Object, kind: Kind, ending: str, labels: Mapping[str, str]) -> Object:
    """A pod from the template of its owner, with additional labels."""
    namespace, name = name_of(owner)
    template = owner["spec"]["template"]
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": f"{name}-{ending}",
            "namespace": namespace,
            "labels": {**labels_of(template), **labels},
            "annotations": dict(annotations_of(template)),
            "ownerReferences": [owner_reference(owner, kind)],
        },
        "spec": dict(template["spec"]),
    }
