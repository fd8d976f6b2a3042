"""A cluster in memory, put together: the kinds it serves, what each does, what follows from changes."""

from __future__ import annotations

from collections.abc import Callable

from bayplan.backends.embedded import (
    budgets,
    clusterwide,
    controllers,
    definitions,
    gangs,
    garbage,
    namespaces,
    pods,
)
from bayplan.backends.embedded.behaviours import Behaviours
from bayplan.backends.embedded.resources import builtin
from bayplan.backends.embedded.store import WINDOW, Store

BEHAVIOURS = {
    **pods.BEHAVIOURS,
    **controllers.BEHAVIOURS,
    **clusterwide.BEHAVIOURS,
    **definitions.BEHAVIOURS,
}
# To each change, in this order.
REACTIONS = (garbage.react, namespaces.react, definitions.react, budgets.react)


def new_store(
    now: Callable[[], float],
    uid: Callable[[], str],
    suffix: Callable[[], str],
    *,
    window: int = WINDOW,
    gang_api: gangs.GangApi = gangs.ALL_OF_IT,
) -> Store:
    """A store with the objects every cluster starts with, and as much of the gang API as is asked for."""
    return Store(
        now,
        uid,
        suffix,
        served=gangs.served(builtin(), gang_api),
        behaviours=Behaviours({**BEHAVIOURS, **gangs.behaviours(gang_api)}),
        reactions=REACTIONS,
        window=window,
    )
