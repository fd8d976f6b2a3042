"""The latest change of every object, from which a state can be rebuilt."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Iterator

from bayplan.model.change import Change, NodeLost, NodeSeen, PodLost, PodSeen
from bayplan.model.node import Node
from bayplan.model.pod import Pod, PodKey
from bayplan.model.subject import is_loss, is_start, subject_of


class LatestObjects:
    """In order of arrival. Pods and nodes are stored by themselves, since most objects are one of them."""

    def __init__(self) -> None:
        self._known: dict[Hashable, Change | Pod | Node] = {}  # by subject, pod key or node name

    def __len__(self) -> int:
        return len(self._known)

    def __contains__(self, change: Change) -> bool:
        """Whether the object of this change is known."""
        return _key_of(change) in self._known

    def __iter__(self) -> Iterator[Change]:
        """The latest change of every object."""
        for one in self._known.values():
            match one:
                case Pod():
                    yield PodSeen(one)
                case Node():
                    yield NodeSeen(one)
                case _:
                    yield one

    def pod(self, key: PodKey) -> PodSeen | None:
        """The latest change of a pod."""
        pod = self._known.get(key)
        return PodSeen(pod) if isinstance(pod, Pod) else None

    def note(self, changes: Iterable[Change]) -> None:
        """These changes were applied."""
        known = self._known
        for change in changes:
            match change:
                case PodSeen(pod):
                    known[pod.key] = pod
                case NodeSeen(node):
                    known[node.name] = node
                case _ if is_loss(change):
                    self.drop(change)
                case _ if is_start(change):
                    known.clear()
                case _:
                    known[subject_of(change)] = change

    def drop(self, loss: Change) -> None:
        """An object was deleted."""
        self._known.pop(_key_of(loss), None)
        if isinstance(loss, NodeLost):
            self._known.pop(("Images", loss.name), None)


def _key_of(change: Change) -> Hashable:
    """No other object has a pod key or a text for its subject."""
    match change:
        case PodSeen(Pod(key)) | PodLost(key):
            return key
        case NodeSeen(Node(name)) | NodeLost(name):
            return name
    return subject_of(change)
