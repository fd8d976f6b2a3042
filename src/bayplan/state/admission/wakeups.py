"""Which rejected gangs are tried again after quota or capacity was freed."""

from __future__ import annotations

from collections.abc import Iterable

from bayplan.state.admission.config import AdmissionConfig
from bayplan.state.admission.queues import AdmissionQueues
from bayplan.state.admission.usage import AdmittedUsage, GangUsage
from bayplan.state.pending_queue import WakeupEvent


class AdmissionWakeups:
    """Wakes the pending queues that a change may help."""

    def __init__(self, config: AdmissionConfig, usage: AdmittedUsage, pending: AdmissionQueues) -> None:
        self._config, self._usage, self._pending = config, usage, pending

    def wake_all(self) -> None:
        """Anything may have changed: wake every queue."""
        for queue in self._config.queues:
            self._pending.wake(queue)

    def capacity_freed(self, topologies: Iterable[str]) -> None:
        """Wake the queues with a flavor of these topologies, and gangs that wait for a placement there."""
        freed = frozenset(topologies)
        if freed:
            self._pending.retry_placements(
                lambda entry: not freed.isdisjoint(self._config.topologies_of(entry.queued_gang))
            )
        for name in (name for topology in freed for name in self._config.queues_on(topology)):
            self._pending.wake(name, WakeupEvent.CAPACITY_FREED)

    def ended(self, usage: GangUsage | None) -> None:
        """A gang is over. Unless it was evicted, others may end soon, too."""
        if usage is not None and not usage.queued_gang.evicted:
            account = self._usage.quota_tree().queues.get(usage.queue)
            self._pending.end(queue.name for queue in (account.root().queues() if account else ()))

    def usage_released(self, usage: GangUsage) -> None:
        """A gang released its quota in one quota tree, and its capacity in its topologies."""
        account = self._usage.quota_tree().queues.get(usage.queue)
        if account is not None:
            for queue in account.root().queues():
                self._pending.wake(queue.name)
        self.capacity_freed(self._usage.topologies_of(usage))
