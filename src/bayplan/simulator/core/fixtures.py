"""Fixtures of every play: a store with all CRDs, and kinds that are read as plain dictionaries."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from random import Random

from bayplan.backends.crds import DEFINITIONS, define
from bayplan.backends.embedded.cluster import new_store
from bayplan.backends.embedded.kinds.gangs import FULL_GANG_API, GangApi
from bayplan.backends.embedded.storage.store import Store
from bayplan.backends.fake_controllers.crds import foreign_crds
from bayplan.dialects.jobs.batch_jobs import JOBS
from bayplan.dialects.kube.decode.wire import NODES, PODS_KIND
from bayplan.dialects.kueue.names import api_kinds

PLAIN_NODES = replace(NODES, wire=None)
PLAIN_PODS = replace(PODS_KIND, wire=None)
LISTED = {"nodes": PLAIN_NODES, "pods": PLAIN_PODS, "jobs": JOBS} | {
    kind.plural: kind
    for kind in (
        api_kinds.TOPOLOGIES,
        api_kinds.FLAVORS,
        api_kinds.COHORTS,
        api_kinds.CLUSTER_QUEUES,
        api_kinds.WORKLOADS,
    )
}


def new_simulated_store(clock: Callable[[], float], ids: Random, gang_api: GangApi = FULL_GANG_API) -> Store:
    """An empty store with all CRDs; uids and generated names come from `ids`."""
    store = new_store(
        clock,
        lambda: f"{ids.getrandbits(64):016x}",
        lambda: "".join(ids.choice("bcdfghjklm") for _ in range(5)),
        gang_api=gang_api,
    )
    define(store)
    for definition in foreign_crds():
        store.create(DEFINITIONS, definition)
    return store
