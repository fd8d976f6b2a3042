"""Hosts whose devices pods of others use before the pods of an admitted gang get what was promised to them.

Only devices of pods that run count as taken: claims of pods that are over or leave will be free again.
Devices that are missing because a driver withdrew them, or tainted them, are waited for.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from bayplan.model.devices.claims import DeviceClaimKey, PodDevices
from bayplan.model.devices.inventory import PoolKey
from bayplan.model.gang import Ref
from bayplan.model.node import HOSTNAME, Node
from bayplan.model.pod import PodKey
from bayplan.placement.cluster.topology_tree import objects
from bayplan.placement.devices.in_use import NOTHING_IN_USE, DevicesInUse
from bayplan.placement.devices.supply import DeviceHoldings, DeviceSupply
from bayplan.state.admission.domain_usage import DomainUsage
from bayplan.state.admission.other_pods import GangVersions, UnmanagedPods
from bayplan.state.admission.usage import AdmittedUsage
from bayplan.state.cluster.device_state import DeviceState

Counted = Callable[[DeviceClaimKey], bool]


@dataclass(frozen=True, slots=True, eq=False)
class DevicesMissing:
    """Pods of a gang that are to get devices on a host: what one of them claims, and how many."""

    family: GangVersions
    pods: tuple[tuple[PodDevices, int], ...]


class DeviceLosses:
    """Finds the gangs that have lost devices of a host to other pods."""

    def __init__(
        self, usage: AdmittedUsage, unmanaged: UnmanagedPods, domains: DomainUsage, devices: DeviceState
    ) -> None:
        self.usage, self.unmanaged, self.domains, self.devices = usage, unmanaged, domains, devices
        self._seen = devices.mark()
        self._hosts: dict[Ref, frozenset[str]] = {}  # by gang: the hosts where its pods are to get devices
        self._claimants: dict[str, dict[Ref, None]] = {}  # the same, by host

    def gang_moved(self, ref: Ref) -> None:
        """A gang has other slots than before."""
        family = self.unmanaged.families.get(ref)
        after = frozenset(
            path[-1]
            for pod_set, levels, path in (family.slots if family is not None else ())
            if levels == (HOSTNAME,) and family is not None and self._devices_of(family, pod_set) is not None
        )
        before = self._hosts.pop(ref, frozenset())
        if after:
            self._hosts[ref] = after
        for host in after - before:
            self._claimants.setdefault(host, {})[ref] = None
        for host in before - after:
            del self._claimants[host][ref]
            if not self._claimants[host]:
                del self._claimants[host]

    def changed(self) -> set[str]:
        """The nodes and hosts whose devices are others, or are used by others, since the last call."""
        pools, self._seen = self.devices.changed_since(self._seen), self.devices.mark()
        nodes: set[str] = set()
        for pool in pools or ():
            parts = self.devices.index.by_pool.get(pool, ())
            nodes.update(part.reach.node for part in parts)
        return set(self._claimants) if pools is None or "" in nodes else nodes

    def losers(self, host: str, node: Node) -> Iterator[Ref]:
        """The gangs that have to leave the host, those that are last in their queues first."""
        waiting = [one for one in self._missing(host) if self._would_fit(node, one)]
        waiting.sort(key=lambda one: self.domains.rank(one.family), reverse=True)
        while waiting and not self._fits(node, waiting, self._is_held):
            loser = waiting.pop(0)
            yield from (ref for ref in loser.family.versions if ref in self.usage.by_gang)

    def _missing(self, host: str) -> list[DevicesMissing]:
        found = []
        for ref in self._claimants.get(host, ()):
            family = self.unmanaged.families[ref]
            pods = []
            for pod_set in family.levels:
                devices = self._devices_of(family, pod_set)
                count = 0 if devices is None else self._count_missing(family, pod_set, host)
                if devices is not None and count > 0:
                    pods.append((devices, count))
            if pods:
                found.append(DevicesMissing(family, tuple(pods)))
        return found

    def _count_missing(self, family: GangVersions, pod_set: str, host: str) -> int:
        """The pods of a pod set that have yet to get devices on a host."""
        slot = (pod_set, (HOSTNAME,), (host,))
        if slot not in family.slots:
            return 0
        inside = family.inside.get(slot, ())
        unbound = [key for key in inside if self._is_unbound(key)]
        still = family.slots[slot] - (len(inside) - len(unbound))
        return min(still, self.domains.missing(family, pod_set)) - sum(map(self.devices.serves, unbound))

    def _is_unbound(self, key: PodKey) -> bool:
        pod = self.unmanaged.pod(key)
        return pod is None or pod.unbound

    def _devices_of(self, family: GangVersions, pod_set: str) -> PodDevices | None:
        for ref in family.versions:
            usage = self.usage.by_gang.get(ref)
            for placed in usage.placements if usage is not None else ():
                if (
                    placed.pod_set == pod_set
                    and placed.shape is not None
                    and placed.shape.template is not None
                ):
                    return placed.shape.template.devices
        return None

    def _would_fit(self, node: Node, one: DevicesMissing) -> bool:
        """Whether the devices of a node suffice for a gang if no other pod used any."""
        own = one.family.pods
        return self._fits(node, [one], lambda claim: not own.keys().isdisjoint(self.devices.pods_of(claim)))

    def _is_held(self, claim: DeviceClaimKey) -> bool:
        """Whether a pod that runs, or is in a slot of its gang, uses the devices of a claim."""
        for key in self.devices.pods_of(claim):
            pod = self.unmanaged.pod(key)
            runs = pod is not None and pod.uses_capacity and not pod.terminating
            if pod is not None and runs and not (pod.unbound and pod.gang is None):
                return True
        return False

    def _fits(self, node: Node, waiting: Iterable[DevicesMissing], counted: Counted) -> bool:
        """Whether a node has devices for all these pods, beside the claims that count."""
        pools = [pool.key for pool in self.devices.counter.pools(node)]
        usage = {pool: self._usage(pool, counted) for pool in pools}
        layer = DeviceSupply(self.devices.counter, DeviceHoldings(usage)).trial()
        nodes, number = objects([node]), 0
        for one in waiting:
            for devices, count in one.pods:
                keys = [PodKey("", f"{number}/{at}") for at in range(count)]
                number += 1
                layer.step(devices, keys, np.zeros(count, dtype=np.int64), nodes, added=True)
        return not layer.lacking

    def _usage(self, pool: PoolKey, counted: Counted) -> DevicesInUse:
        held: Sequence[DeviceClaimKey] = [key for key in self.devices.holders_of(pool) if counted(key)]
        return NOTHING_IN_USE.plus(device for key in held for device in self.devices.devices_in(pool, key))
