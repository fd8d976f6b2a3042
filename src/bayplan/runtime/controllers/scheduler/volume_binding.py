"""Binds volumes before the pods that use them, for claims that wait for the first consumer.

A claim gets its node, or a volume its claim; provisioner and volume controller do the rest. Until then the
bindings of the whole gang are held back. A gang that waits too long is decided on again, and its pods keep
the node that their claims name.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from bayplan.dialects.api import Write
from bayplan.dialects.kube.decode.volumes import claim_write, volume_write
from bayplan.dialects.kube.encode.binding import bind_write
from bayplan.model.gang import Ref
from bayplan.model.plan import Bind, Plan
from bayplan.model.storage import ClaimKey
from bayplan.state.scheduling.state import ASSUMED_SECONDS, SchedulingState
from bayplan.state.scheduling.volumes import volumes_for

HELD_SECONDS = ASSUMED_SECONDS - 1.0  # then the gang is decided on again


@dataclass(frozen=True, slots=True)
class WaitingBindings:
    """Bindings that wait for claims."""

    binds: tuple[Bind, ...]
    claims: frozenset[ClaimKey]
    until: float


class VolumeBinding:
    """Bindings held back, by gang. `uids` and `versions` are those of claims and volumes, as last seen.

    `notes` makes the annotations of a binding from the NUMA zones of the pod.
    """

    def __init__(
        self,
        state: SchedulingState,
        uids: Mapping[ClaimKey, str],
        versions: Mapping[str, str],
        notes: Callable[[Iterable[tuple[str, int]]], dict[str, str]],
    ) -> None:
        self.state, self.uids, self.versions, self.notes = state, uids, versions, notes
        self.waiting: dict[Ref, WaitingBindings] = {}

    @staticmethod
    def binds_of(plan: Plan) -> list[tuple[Ref, list[Bind]]]:
        """The bindings of a plan by gang."""
        binds: dict[Ref, list[Bind]] = {}
        for action in plan.actions:
            if isinstance(action, Bind):
                binds.setdefault(action.gang, []).append(action)
        return list(binds.items())

    def begin(self, gang: Ref, binds: Sequence[Bind], now: float) -> list[Write]:
        """The bindings of a gang, or the volume writes that must precede them."""
        self.waiting.pop(gang, None)
        claims: dict[ClaimKey, tuple[str, str]] = {}
        for action in binds:
            if action.pod.spec.signature.claims:
                claims.update(self._waits_for(action))
        if not claims:
            return [self._bind_write(action) for action in binds]
        writes = list(self._prepare(claims))
        self.waiting[gang] = WaitingBindings(tuple(binds), frozenset(claims), now + HELD_SECONDS)
        return writes

    def ready(self, now: float) -> Iterator[Write]:
        """Bindings whose claims are all bound by now."""
        claims = self.state.store.volumes.claims
        for gang, held in list(self.waiting.items()):
            if all(key in claims and claims[key].bound for key in held.claims):
                del self.waiting[gang]
                yield from map(self._bind_write, self._current(held.binds))
            elif now >= held.until:
                del self.waiting[gang]

    def _bind_write(self, action: Bind) -> Write:
        return bind_write(action, self.notes(action.zones))

    def _current(self, binds: Sequence[Bind]) -> list[Bind]:
        pods = self.state.store.pods
        return [one for one in binds if one.pod.key in pods and pods[one.pod.key].uid == one.pod.uid]

    def _waits_for(self, action: Bind) -> dict[ClaimKey, tuple[str, str]]:
        """Each unbound claim with its chosen volume, if any, and the node."""
        _, ground = self.state.store.nodes.flat.view()
        found = volumes_for(
            ground.node_index, self.state.store.volumes.snapshot(), action.pod.spec.signature, action.node
        )
        return {key: (volume, action.node) for key, volume in found.items()}

    def _prepare(self, claims: Mapping[ClaimKey, tuple[str, str]]) -> Iterator[Write]:
        for key, (volume, node) in claims.items():
            if volume:
                if self.state.store.volumes.volumes[volume].claim != key:
                    yield volume_write(volume, self.versions.get(volume, ""), key, self.uids.get(key, ""))
            elif self.state.store.volumes.claims[key].selected_node != node:
                yield claim_write(key, self.uids.get(key, ""), node)
