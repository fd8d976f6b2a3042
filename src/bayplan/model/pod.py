"""A pod as far as scheduling cares: what it takes, where it is, and which gang it belongs to."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from bayplan.model.gang import Ref
from bayplan.model.pod_spec import NO_WANTS, PodSpec


@dataclass(frozen=True, slots=True)
class PodKey:
    """Which pod, by name."""

    namespace: str
    name: str

    def __str__(self) -> str:
        return f"{self.namespace}/{self.name}"


@dataclass(frozen=True, slots=True)
class Pod:
    """One pod. `amounts` includes its own slot; an empty `node` means not bound yet."""

    key: PodKey
    uid: str
    amounts: Mapping[str, int]
    node: str = ""
    over: bool = False  # succeeded or failed: it takes no room any more
    succeeded: bool = False  # over, and nothing will take its place
    leaving: bool = False  # being deleted
    gang: Ref | None = None  # the gang it belongs to, whoever schedules it
    pod_set: str = ""
    rank: int = 0
    wants: PodSpec = NO_WANTS
    ours: bool = False  # it is for us to find its node
    created: float = 0.0
    started: float = 0.0  # on its node; 0: not yet
    told: str = ""  # the sentence that stands on it about why it waits
    up: bool = False  # its node has begun with it, whatever became of it since
    scheduler: str = ""  # under which of our names, if it is ours

    @property
    def takes_room(self) -> bool:
        return bool(self.node) and not self.over

    @property
    def did_its_part(self) -> bool:
        """Whether it ran to its end: the rest of its gang belongs where it was."""
        return bool(self.node) and self.succeeded and not self.leaving

    @property
    def waits(self) -> bool:
        """Whether it is ours and wants a node, now or once nothing holds it back any more."""
        return self.ours and not (self.node or self.over or self.leaving)

    @property
    def gated(self) -> bool:
        """Whether something holds it back."""
        return bool(self.wants.gates)
