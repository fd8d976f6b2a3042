"""What we believe now: nodes, pods, gangs and volumes folded from changes; plans assumed and settled."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from bayplan.model.change import Change
from bayplan.model.charter import Charter
from bayplan.model.gang import Ref
from bayplan.model.plan import Action, Plan
from bayplan.model.pod import Pod
from bayplan.state.line import Entry, Place
from bayplan.state.look import Look


def lone(pod: Pod) -> Ref:
    """The gang of a pod that has none: itself."""
    return Ref("kube", "Pod", pod.key.namespace, pod.key.name)


class Board:
    """The fold of all changes. Nothing here reads a clock or does I/O."""

    # Shared with looks, never to be written to from outside:
    # nodes: dict[str, Node] · clusters: dict[str, Cluster] (by topology; flat: "") · flat: Flat
    # pods: dict[PodKey, Pod]            as the API has them
    # placed: dict[PodKey, Pod]          those that take room, as we believe: assumed nodes, displaced ones leaving
    # charters: dict[Ref, Charter] · members: dict[Ref, dict[PodKey, None]] · budgets: dict[tuple[str, str], Budget]
    # ledger: Ledger · index: PodIndex · nominations: dict[PodKey, tuple[Pod, str]]
    # kept: tuple[Ref, frozenset[str]] | None · line: Line (line.entries: dict[Ref, Entry])

    def apply(self, change: Change) -> None:
        """Fold one change in. Demands, queues and so on are nothing to this board."""
        raise NotImplementedError

    def apply_all(self, changes: Iterable[Change]) -> None:
        """Fold many changes in; nodes that arrive together are laid out together."""
        raise NotImplementedError

    def heads(self, now: float) -> list[Ref]:
        """Whose turn it is, best first. Asked again before anything happened, the answer is the same."""
        raise NotImplementedError

    def look(self, refs: Iterable[Ref], now: float, heal_seconds: float = 60.0) -> Look:
        """A frozen view for deciding on these gangs. It is good until the next change is folded in."""
        raise NotImplementedError

    def assume(self, plan: Plan, now: float) -> None:
        """Believe the plan until its writes end or the API says otherwise."""
        raise NotImplementedError

    def settle(self, action: Action, ended: str, now: float) -> None:
        """The write of an action ended: "done", "failed" (it did not happen) or "unknown"."""
        raise NotImplementedError

    def next_due(self, now: float) -> float:
        """When something has to be done even if nothing happens."""
        raise NotImplementedError

    def place_of(self, ref: Ref) -> Place | None:
        """Where a gang stands in line; None: it is not known, or a lone pod that runs."""
        raise NotImplementedError

    def entries(self) -> Iterator[Entry]:
        """Everyone in line: ref, priority, since, place, due, tries."""
        raise NotImplementedError

    def charter_of(self, ref: Ref) -> Charter | None:
        """The rules of a gang, or those that a lone pod would have."""
        raise NotImplementedError

    def told(self, ref: Ref) -> object:
        """Standstill | None: what the gang was told last."""
        raise NotImplementedError

    def waiting(self, ref: Ref) -> tuple[Pod, ...]:
        """Its pods that want a node and are not held back, in the order in which they are tried."""
        raise NotImplementedError

    def standing(self, ref: Ref) -> tuple[Pod, ...]:
        """Its pods that have a node (assumed ones too) or did their part; not those that are leaving."""
        raise NotImplementedError
