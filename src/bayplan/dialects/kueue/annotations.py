"""The names of the topology annotations, and what their presence alone says about a pod."""

from __future__ import annotations

from collections.abc import Mapping

from bayplan.dialects.kube.fields import Field

PREFIX = "kueue.x-k8s.io/"

REQUIRED = PREFIX + "podset-required-topology"
PREFERRED = PREFIX + "podset-preferred-topology"
UNCONSTRAINED = PREFIX + "podset-unconstrained-topology"
SEGMENT_LEVEL = PREFIX + "podset-slice-required-topology"
SEGMENT_SIZE = PREFIX + "podset-slice-size"
SEGMENT_LAYERS = PREFIX + "podset-slice-required-topology-constraints"
GROUP = PREFIX + "podset-group-name"

# The first draft of the API had these two; "auto" stands for the lowest level that holds the pods.
REQUIRE = PREFIX + "require-topology"
PREFER = PREFIX + "prefer-topology"

QUEUE = PREFIX + "queue-name"
MINIMUM = PREFIX + "job-min-parallelism"

_EXPLICIT = (REQUIRED, PREFERRED, SEGMENT_LEVEL, SEGMENT_LAYERS, REQUIRE, PREFER)


def read_annotations(metadata: Field) -> dict[str, str]:
    """All annotations as text. Numbers and booleans may stand unquoted, as people write them."""
    found: dict[str, str] = {}
    for key, field in metadata.at("annotations").entries():
        if isinstance(field.value, bool):
            found[key] = str(field.value).lower()
        elif isinstance(field.value, int):
            found[key] = str(field.value)
        else:
            found[key] = field.text()
    return found


def asks_for_topology(annotations: Mapping[str, object]) -> bool:
    """Whether a topology is asked for in so many words."""
    return any(name in annotations for name in _EXPLICIT)


def is_topology_aware(annotations: Mapping[str, object]) -> bool:
    """Whether pods with these annotations are placed by topology."""
    return asks_for_topology(annotations) or UNCONSTRAINED in annotations
