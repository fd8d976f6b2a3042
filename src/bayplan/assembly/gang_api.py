"""Which of the gang API a cluster has, and what is missing without it."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from bayplan.dialects.kube.gang_api.gates import FIRST, GROUP, VERSIONS
from bayplan.runtime.core.api_object import ApiCall

SECONDS = 10.0
NONE = (
    f"this cluster does not serve the gang API ({GROUP} {', '.join(VERSIONS)}): Workloads and PodGroups are "
    "not known, and pods cannot name one. Plain pods, Jobs and JobSets are scheduled. It comes with "
    "Kubernetes 1.35 or newer, the feature gate GenericWorkload and --runtime-config of the API server"
)


def gang_versions(request: ApiCall) -> tuple[str, ...]:
    """The versions that are served, the oldest first; none if nobody says."""
    status, body = request("GET", f"/apis/{GROUP}", b"", SECONDS)
    if status != 200:
        return ()
    try:
        served = {one["version"] for one in msgspec.json.decode(body)["versions"]}
    except (msgspec.DecodeError, KeyError, TypeError):
        return ()
    return tuple(version for version in VERSIONS if version in served)


def gang_api_words(versions: Sequence[str]) -> str:
    """What that means, in a sentence."""
    if not versions:
        return NONE
    kind = "Workloads" if versions[-1] == FIRST else "PodGroups"
    return f"gangs are {kind} of {GROUP}/{versions[-1]}, and Jobs and JobSets"
