"""A pod for scheduling: its requests, its node, and the gang it belongs to."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from bayplan.model.gang import Ref
from bayplan.model.pod_spec import EMPTY_SPEC, PodSpec


@dataclass(frozen=True, slots=True)
class PodKey:
    """A pod's namespace and name."""

    namespace: str
    name: str

    def __str__(self) -> str:
        return f"{self.namespace}/{self.name}"


Domain = tuple[tuple[str, str], ...]
"""A domain of a topology: its value at each level, the outermost first."""


def domain_text(domain: Domain) -> str:
    """A domain for people: its level, and its values from the outermost level on. No node has such a name."""
    return f"{domain[-1][0]} {'/'.join(value for _, value in domain)}"


@dataclass(frozen=True, slots=True)
class Slot:
    """A place that an admitted gang has for one pod of a pod set: on the host with this hostname.

    In a topology that ends above the host it is in a domain, and has no host.
    """

    gang: Ref
    pod_set: str
    host: str
    domain: Domain = ()


@dataclass(frozen=True, slots=True)
class Pod:
    """One pod. `amounts` includes its own slot; an empty `node` means not bound yet."""

    key: PodKey
    uid: str
    amounts: Mapping[str, int]
    node: str = ""
    finished: bool = False  # succeeded or failed: it uses no capacity any more
    succeeded: bool = False  # finished, and will not be replaced
    terminating: bool = False  # terminating
    gang: Ref | None = None  # the gang it belongs to, whatever its scheduler
    pod_set: str = ""
    rank: int = 0
    spec: PodSpec = EMPTY_SPEC
    ours: bool = False  # we are its scheduler
    created: float = 0.0
    started: float = 0.0  # when its node started it; 0: not yet
    message: str = ""  # the message of its PodScheduled condition
    was_started: bool = False  # its node has started it at some time
    scheduler: str = ""  # the scheduler name, if it is ours
    unbound: bool = False  # it only has its node in prospect: assumed, assigned or nominated
    slot: Slot | None = None  # the slot of an admitted gang that it takes; its domain is not filled in
    foreign_claims: bool = False  # another scheduler has to allocate devices to it

    @property
    def uses_capacity(self) -> bool:
        return bool(self.node) and not self.finished

    @property
    def done(self) -> bool:
        """Whether it succeeded on its node: the rest of its gang belongs where it was."""
        return bool(self.node) and self.succeeded and not self.terminating

    @property
    def pending(self) -> bool:
        """Whether it is ours and pending, gated or not."""
        return self.ours and not (self.node or self.finished or self.terminating)

    @property
    def gated(self) -> bool:
        """Whether it has scheduling gates."""
        return bool(self.spec.gates)
