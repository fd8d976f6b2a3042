"""The writes that the API server has counted, by resource and verb."""

from __future__ import annotations

import re
from collections import Counter

from tools.controlplane.cluster import Cluster

READS = ("GET", "LIST", "WATCH", "CONNECT")
_LINE = re.compile(r"^apiserver_request_total\{(.*)\} (\S+)$", re.MULTILINE)
_LABEL = re.compile(r'(\w+)="([^"]*)"')


def writes_so_far(cluster: Cluster) -> Counter[str]:
    """How many writes of each kind were answered since the API server started, refused ones apart."""
    found = Counter[str]()
    for labels, number in _LINE.findall(cluster.kubectl("get", "--raw", "/metrics")):
        of = dict(_LABEL.findall(labels))
        if of["verb"] in READS or of["resource"] in ("leases", "subjectaccessreviews", "tokenreviews"):
            continue
        what = f"{of['resource']}/{of['subresource']}" if of["subresource"] else of["resource"]
        refused = "" if of["code"].startswith("2") else f" {of['code']}"
        found[f"{of['verb']} {what}{refused}"] += int(float(number))
    return found


def without(writes: Counter[str], others: Counter[str]) -> dict[str, int]:
    """What is left of the writes, most of them first."""
    left = Counter(writes)
    left.subtract(others)
    return {name: number for name, number in left.most_common() if number > 0}
