"""Pods that are not bound yet and use a node already: those that are being bound, and nominated ones."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from bayplan.dialects.api import Ended, Event, Happened
from bayplan.dialects.kube.decode.pod_identity import pod_key
from bayplan.dialects.kube.decode.wire import PodWire
from bayplan.model.change import Change, DevicesAssumed, PodLost
from bayplan.model.plan import Bind, Nominate, Plan, ReportUnschedulable
from bayplan.model.pod import Pod, PodKey
from bayplan.runtime.core.controller import Settled

OVER = ("Succeeded", "Failed")


class PromisedNodes:
    """What the scheduler of this process has decided counts at once; events from before do not undo it."""

    def __init__(self, assumed_pod: Callable[[Pod, str], Change]) -> None:
        self.assumed_pod = assumed_pod
        self.assumed: dict[PodKey, str] = {}  # decided by this process, not yet seen
        self.nominated: set[PodKey] = set()

    def decided(self, plan: Plan) -> Iterator[Change]:
        """Pods that are being bound or nominated use their nodes from now on."""
        for action in plan.actions:
            match action:
                case Bind(_, pod, node) | Nominate(_, pod, node) if node:
                    self.assumed[pod.key] = node
                    yield self.assumed_pod(pod, node)
                    if isinstance(action, Bind) and action.devices:
                        yield DevicesAssumed(pod.key, action.devices)
                case Nominate(_, pod):
                    yield from self._drop(pod.key)
                case ReportUnschedulable(pods=pods):  # also after a bind that timed out
                    for pod in pods:
                        yield from self._drop(pod.key)

    def ended(self, settled: Settled) -> Iterator[Change]:
        """A pod that was not bound or nominated uses nothing. After a timeout it may be."""
        action = settled.action
        if isinstance(action, Bind | Nominate) and settled.ended not in (Ended.DONE, Ended.TIMED_OUT):
            yield from self._drop(action.pod.key)

    def seen(self, event: Event) -> Iterator[Change] | None:
        """The changes that an event of a pod causes instead of its usual ones; None: the usual ones."""
        if event.happened is Happened.SYNCED or not (self.assumed or self.nominated or _nominated(event)):
            return None
        key, gone = event.once(pod_key), event.happened is Happened.GONE
        node = event.object.spec.node_name or _nominated(event)
        if key in self.assumed:
            if not gone and not event.object.spec.node_name and node != self.assumed[key]:
                # it predates the write, unless the pod is over and is not bound any more
                return self._drop(key) if event.object.status.phase in OVER else iter(())
            del self.assumed[key]
        if not gone and node and not event.object.spec.node_name:
            self.nominated.add(key)
        elif key in self.nominated:
            self.nominated.discard(key)
            return None if node else iter((PodLost(key),))
        return None

    def _drop(self, key: PodKey) -> Iterator[Change]:
        if self.assumed.pop(key, None) is not None:
            yield PodLost(key)  # and with it the devices that it was to get


def _nominated(event: Event) -> str:
    wire: PodWire = event.object
    return wire.status.nominated_node_name or ""
