"""Warnings about misspelt labels and annotations of the KAI dialect."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice
from typing import Any

from bayplan.dialects.jobs.kinds import is_known, parts
from bayplan.dialects.kai.api import names
from bayplan.dialects.kube.fields.key_hints import HINTS_MAX, Keys, key_hints
from bayplan.dialects.kube.fields.reader import Field

Object = dict[str, Any]
_BOTH = (names.PREEMPTIBILITY,)
KEYS = Keys(
    "kai.scheduler",
    labels=(names.QUEUE_LABEL, names.SUB_GROUP_NAME, names.NODE_POOL_LABEL, *_BOTH),
    notes=(
        *names.TOPOLOGY_ANNOTATIONS, names.SEGMENT_SIZE, names.SEGMENT_REQUIRED, names.SEGMENT_PREFERRED,
        names.POD_INDEX_LABEL, *_BOTH,
    ),
    others=(names.SEGMENT_INDEX,),
)  # fmt: skip


def advise(new: Object) -> list[str]:
    """Suggestions for misspelt keys of a job, a pod or a PodGroup."""
    return list(islice(dict.fromkeys(_hints(Field(new))), HINTS_MAX))


def _hints(obj: Field) -> Iterator[str]:
    yield from key_hints(obj.at("metadata"), KEYS)
    if is_known(obj):
        for part in parts(obj):
            if part.metadata.path != obj.at("metadata").path:
                yield from key_hints(part.metadata, KEYS)
