"""The bare loop of `make bench-cli`: what no command can do without, and nothing else.

The client, the lists of nodes, pods and Workloads page by page, and their JSON read.
"""

from __future__ import annotations

import sys
from pathlib import Path

from bayplan.backends.remote.backend import connect
from bayplan.backends.remote.decoding import Wire
from bayplan.backends.remote.request import collection
from bayplan.dialects.api import Kind
from bayplan.dialects.kube.decode.wire import NODES, PODS_KIND

WORKLOADS = Kind("kueue.x-k8s.io", "v1beta2", "Workload", "workloads")
PAGE = 500

if __name__ == "__main__":
    backend = connect(Path(sys.argv[1]), "bayplan")
    for kind in (NODES, PODS_KIND, WORKLOADS):
        wire, token, more = Wire(kind), "", True
        while more:
            path = collection(kind, limit=PAGE, **{"continue": token})
            status, body = backend.request("GET", path, b"", 60.0)
            assert status == 200, body
            token = wire.page(body).metadata.next_page
            more = bool(token)
    backend.close(0)
