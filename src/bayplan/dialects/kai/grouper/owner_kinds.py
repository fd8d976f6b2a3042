"""The API resources of the kinds that own pods, or that PodGroups are derived from."""

from __future__ import annotations

from bayplan.dialects.jobs.kinds import TABLE

_WATCHED = tuple(entry for entry in TABLE if entry.grouping is not None and not entry.is_pod)
OWNER_KINDS = tuple(kind for entry in _WATCHED for kind in entry.versions)
BY_NAME = {(kind.group, kind.kind): kind for kind in OWNER_KINDS}
"""By group and kind; of several versions of a kind the last."""
LOOKED_UP = tuple(entry.kind for entry in TABLE if entry.looked_up)
"""Kinds that are also looked up by name, without being an owner of the pod."""
NAMING_PODS = tuple(entry.kind for entry in TABLE if entry.names_pods)
"""Kinds whose objects name their pods."""
