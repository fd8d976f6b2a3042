"""The cluster in memory of `make bench-cli`: `bayplan up` in a process of its own, its nodes in one pool.

A flavor with a topology has to name a label of its nodes, and the nodes of `bayplan up` have none in common.
"""

from __future__ import annotations

from bayplan.assembly import local_cluster
from bayplan.backends.fake_controllers.manifests import Object
from bayplan.cli.commands.main import main

POOL = {"pool": "gpu"}

_usual = local_cluster.nodes


def nodes(shape: local_cluster.ClusterShape) -> list[Object]:
    """The usual nodes, each with the label of the pool."""
    found = _usual(shape)
    for one in found:
        one["metadata"]["labels"] |= POOL
    return found


if __name__ == "__main__":
    local_cluster.nodes = nodes
    main()
