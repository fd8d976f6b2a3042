"""Pods on nodes as the filters of binding read them, changed tentatively as gangs are tried."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager

from bayplan.model.assignment import Path
from bayplan.model.gang import PodSet, Ref
from bayplan.model.pod import PodKey
from bayplan.model.pod_spec import PodSignature
from bayplan.model.quota import Flavor
from bayplan.model.watchdog import Watchdog
from bayplan.placement.cluster.node_table import ABSENT
from bayplan.placement.cluster.snapshot import CapacitySnapshot
from bayplan.placement.overlay.moves import TentativeMoves
from bayplan.placement.overlay.node_overlay import NodeOverlay
from bayplan.placement.pods.bind_check import bind_all, rows_in_domain
from bayplan.placement.pods.bindable import NO_TEMPLATE, BindingTrial, pods_by_node
from bayplan.state.admission.binding_view import BindingView
from bayplan.state.admission.usage import PlacedPods


class PodTrials:
    """The pods of the cluster, those that admitted gangs lack, and those of gangs that are tried.

    The pod index is that of the state, so everything is undone by `close`.
    """

    def __init__(self, view: BindingView, flavors: Mapping[str, Flavor], watchdog: Watchdog) -> None:
        self.view, self.flavors, self.watchdog = view, flavors, watchdog
        self._overlay: NodeOverlay | None = None
        self._missing: dict[Ref, dict[str, list[PodKey]]] = {}  # of admitted gangs, by pod set
        self._moves: TentativeMoves[PlacedPods] = TentativeMoves()
        self.tentative = self._moves.tentative
        self._added = 0

    def close(self) -> None:
        """Undo everything."""
        overlay, self._overlay = self._overlay, None
        if overlay is not None:
            overlay.close()

    def use(self, pods: PlacedPods, sign: int) -> None:
        """Pods are placed (sign -1: removed) from now on."""
        self._moves.add((id(pods.place), id(pods.requests)), pods, sign)

    def concern(self, namespace: str, pod_sets: Iterable[PodSet]) -> bool:
        """Whether a filter may keep pods of a gang from a node. Cheap, since it is asked for every gang."""
        for pod_set in pod_sets:
            if pod_set.template is None:
                continue
            if pod_set.template.needs_trial or pod_set.template.node:
                return True
            if self._is_repelled(namespace, pod_set.template):
                return True
        return False

    def _is_repelled(self, namespace: str, template: PodSignature) -> bool:
        """Whether pods, running or of a gang, repel such pods somewhere."""
        index, repelling = self.view.filter_input.index, self.view.repelling
        if not index.affinity_terms and not repelling:
            return False
        about, labels = index.namespaces.get(namespace, {}), dict(template.labels)
        if any(term.selects(namespace, about, labels) for terms in repelling.values() for term in terms):
            return True
        terms = index.matching_terms(template.in_namespace(namespace))
        return any(entry.required and entry.weight < 0 for entry, _ in terms)

    @contextmanager
    def trial(
        self, gang: Ref, flavor: str, *, empty: bool = False, failed: Collection[str] = ()
    ) -> Iterator[BindingTrial]:
        """A trial for a gang on the nodes of a flavor; `empty`: without any placed gang.

        Pods of the gang itself on `failed` hosts do not count.
        """
        overlay = self._open()
        mark = overlay.checkpoint()
        try:
            if empty:
                overlay.remove_pods(key for ref in self.view.gangs() for key in self._keys(ref))
            else:
                self._apply_moves(overlay)
            if failed:
                overlay.remove_pods(self._keys(gang, hosts=failed))
            known = self.flavors.get(flavor)
            yield BindingTrial(overlay, gang.namespace, known.labels if known is not None else {})
        finally:
            overlay.rollback(mark)

    def binds(self, gang: Ref, needs: Sequence[tuple[PlacedPods, CapacitySnapshot]]) -> bool:
        """Whether all of these pods of a gang can be bound to the nodes where they are placed."""
        node_index = self.view.filter_input.node_snapshot.node_index
        with self.trial(gang, needs[0][0].flavor if needs else "") as trial:
            shapes, wanted = {}, {}
            for pods, snapshot in needs:
                if pods.shape is not None:
                    room = trial.room(snapshot, pods.shape)
                    shapes[pods.shape.name] = trial.signature_of(pods.shape)
                    wanted[pods.shape.name] = pods_by_node(node_index, snapshot, pods.place, None, room)
            return not bind_all(trial.overlay, shapes, wanted)

    def _open(self) -> NodeOverlay:
        """The overlay, with the pods that admitted gangs lack on the nodes that are promised to them."""
        if self._overlay is None:
            self._overlay = NodeOverlay(self.view.filter_input, self.watchdog)
            for ref in self.view.gangs():
                self._promise_devices(self._overlay, ref)
            for ref in self.view.gangs():
                if not self.view.is_complete(ref):
                    self._add_missing(self._overlay, ref)
        return self._overlay

    def _promise_devices(self, overlay: NodeOverlay, ref: Ref) -> None:
        """Hold devices for pods of an admitted gang that exist, and whose claims have none yet."""
        for slot in self.view.slots_of(ref):
            template = slot.pod_set.template
            if template is None or template.devices is None:
                continue
            keys = [key for key in slot.pods if not self.view.devices.serves(key)]
            overlay.promise_devices(template.devices, keys, [overlay.row_of(key) for key in keys])

    def _add_missing(self, overlay: NodeOverlay, ref: Ref) -> None:
        for slot in self.view.slots_of(ref):
            if slot.missing and slot.pod_set.template is not None:
                rows = self._rows(overlay, slot.levels, slot.domain, slot.pod_set, slot.missing)
                keys = self._missing.setdefault(ref, {}).setdefault(slot.pod_set.name, [])
                keys += self._add(overlay, ref, slot.pod_set, rows)

    def _add(self, overlay: NodeOverlay, ref: Ref, pod_set: PodSet, rows: Sequence[int]) -> list[PodKey]:
        first, self._added = self._added, self._added + len(rows)
        keys = [PodKey("", f"{ref.name}/{pod_set.name}/{number}") for number in range(first, self._added)]
        shape = BindingTrial(overlay, ref.namespace).signature_of(pod_set)
        overlay.add_pods(shape, keys, rows)
        return keys

    def _apply_moves(self, overlay: NodeOverlay) -> None:
        for times, pods in self._moves:
            if pods.gang is None or pods.shape is None:
                continue
            if times < 0:
                overlay.remove_pods(self._keys(pods.gang, pods.shape.name))
            elif pods.shape.template is not None:
                for share in pods.place.shares:
                    where = (pods.place.levels, share.values)
                    rows = self._rows(overlay, *where, pods.shape, share.count)
                    self._add(overlay, pods.gang, pods.shape, rows)

    def _keys(self, ref: Ref, pod_set: str = "", hosts: Collection[str] = ()) -> list[PodKey]:
        """The pods of an admitted gang: those that exist, and those that are missing."""
        keys: list[PodKey] = []
        for slot in self.view.slots_of(ref):
            if pod_set in ("", slot.pod_set.name) and (not hosts or slot.domain[-1] in hosts):
                keys += slot.pods
        for name, missing in self._missing.get(ref, {}).items():
            if pod_set in ("", name):
                keys += missing if not hosts else self._on_hosts(missing, hosts)
        return keys

    def _on_hosts(self, keys: Iterable[PodKey], hosts: Collection[str]) -> list[PodKey]:
        overlay = self._open()
        rows = {overlay.row(self.view.node_of(host)) for host in hosts}
        return [key for key in keys if overlay.row_of(key) in rows]

    def _rows(
        self, overlay: NodeOverlay, levels: tuple[str, ...], domain: Path, pod_set: PodSet, count: int
    ) -> list[int]:
        """The row of a host for each pod; in a wider domain, those of its first nodes."""
        if len(levels) == 1 or len(domain) == 1:
            row = overlay.row(self.view.node_of(domain[-1]))
            if row != ABSENT:
                return [row] * count
        labels = dict(zip(levels, domain, strict=False))
        return rows_in_domain(overlay, labels, pod_set.template or NO_TEMPLATE, count)
