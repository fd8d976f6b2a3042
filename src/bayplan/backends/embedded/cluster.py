"""Builds a cluster in memory: the kinds it serves, their hooks, and the reactions to changes."""

from __future__ import annotations

from collections.abc import Callable

from bayplan.backends.embedded.api.resources import builtin
from bayplan.backends.embedded.kinds import (
    cluster_scoped,
    controllers,
    device_claims,
    disruption_budgets,
    gangs,
    pods,
)
from bayplan.backends.embedded.storage import custom_resources, namespaces, owner_gc
from bayplan.backends.embedded.storage.kind_hooks import KindHookRegistry
from bayplan.backends.embedded.storage.store import WINDOW, Store

BEHAVIOURS = {
    **pods.BEHAVIOURS,
    **controllers.BEHAVIOURS,
    **cluster_scoped.BEHAVIOURS,
    **device_claims.BEHAVIOURS,
    **custom_resources.BEHAVIOURS,
}
# To each change, in this order.
REACTIONS = (owner_gc.react, namespaces.react, custom_resources.react, disruption_budgets.react)


def new_store(
    now: Callable[[], float],
    uid: Callable[[], str],
    suffix: Callable[[], str],
    *,
    window: int = WINDOW,
    gang_api: gangs.GangApi = gangs.FULL_GANG_API,
) -> Store:
    """A store with the objects every cluster starts with, and as much of the gang API as is asked for."""
    return Store(
        now,
        uid,
        suffix,
        served=gangs.served(builtin(), gang_api),
        behaviours=KindHookRegistry({**BEHAVIOURS, **gangs.behaviours(gang_api)}),
        reactions=REACTIONS,
        window=window,
    )
