"""Which versions of the Kubernetes gang API a cluster serves, and what that means."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from bayplan.dialects.kube.gang_api.gates import GROUP, V1ALPHA1, VERSIONS
from bayplan.runtime.core.api_object import ApiCall

SECONDS = 10.0
NONE = (
    f"this cluster does not serve the gang API ({GROUP} {', '.join(VERSIONS)}): there are no Workloads and "
    "PodGroups of it. Plain pods, Jobs and JobSets are scheduled. The gang API needs Kubernetes 1.35 or "
    "newer, the feature gate GenericWorkload, and --runtime-config of the API server"
)


def gang_versions(request: ApiCall) -> tuple[str, ...]:
    """The served versions, oldest first; empty if discovery fails."""
    status, body = request("GET", f"/apis/{GROUP}", b"", SECONDS)
    if status != 200:
        return ()
    try:
        served = {one["version"] for one in msgspec.json.decode(body)["versions"]}
    except (msgspec.DecodeError, KeyError, TypeError):
        return ()
    return tuple(version for version in VERSIONS if version in served)


def gang_api_words(versions: Sequence[str]) -> str:
    """A sentence about the gang API of the cluster."""
    if not versions:
        return NONE
    kind = "Workloads" if versions[-1] == V1ALPHA1 else "PodGroups"
    return f"gangs are {kind} of {GROUP}/{versions[-1]}, and Jobs and JobSets"
