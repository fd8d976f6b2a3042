"""kueue/topology_request: annotations of a pod template → the topology request of a pod set."""

from __future__ import annotations

from typing import Any

from bayplan.dialects.kueue.fields.topology_request import Numbering, topology_request
from bayplan.dialects.kueue.names.annotations import SEGMENT_LAYERS

LAYERS_GATE = "TASMultiLayerTopology"


def check_request(case: dict[str, Any]) -> list[str]:
    """The request must be equal; an error must contain the peer's error text."""
    given = case["case"]
    numbering = Numbering(
        given.get("podIndexLabel"), given.get("subGroupIndexLabel"), given.get("subGroupCount")
    )
    annotations = dict(given["meta"].get("annotations", {}))
    got: dict[str, object] | None = None
    if not given.get("featureGates", {}).get(LAYERS_GATE, True) and annotations.pop(SEGMENT_LAYERS, None):
        got = {}  # the annotation is passed over, yet its presence makes a request
    error = ""
    try:
        got = topology_request(annotations, numbering, forgiving=False) or got
    except ValueError as wrong:
        error = str(wrong)
    want_error = (given.get("wantErr") or {}).get("error", "")
    if want_error not in error or (error and not want_error):
        return [f"want error {want_error!r}, got {error!r}"]
    want = given.get("wantReq")
    return [] if got == want else [f"want {want}, got {got}"]


FILES = {"kueue/topology_request*": check_request}
