"""Which nodes a pod may use: node selector, node affinity and tolerations, and the taints they match."""

from __future__ import annotations

from dataclasses import dataclass

from bayplan.model.whole_numbers import signed_number


@dataclass(frozen=True, slots=True)
class Taint:
    """A taint of a node."""

    key: str
    value: str = ""
    effect: str = ""

    def __str__(self) -> str:
        head = f"{self.key}={self.value}" if self.value else self.key
        return f"{head}:{self.effect}" if self.effect else head


@dataclass(frozen=True, slots=True)
class Toleration:
    """A toleration of a pod. An empty key or effect matches all of them."""

    key: str = ""
    operator: str = "Equal"
    value: str = ""
    effect: str = ""

    def accepts(self, taint: Taint) -> bool:
        """Whether this toleration tolerates the taint."""
        if self.effect and self.effect != taint.effect:
            return False
        if self.key and self.key != taint.key:
            return False
        match self.operator:
            case "Exists":
                return True
            case "" | "Equal":
                return self.value == taint.value
            case "Gt" | "Lt":
                return _compares(taint.value, self.value, self.operator)
            case _:
                return False


def _compares(have: str, bound: str, operator: str) -> bool:
    left, right = integer(have), integer(bound)
    if left is None or right is None:
        return False
    return left > right if operator == "Gt" else left < right


def integer(text: str) -> int | None:
    """The integer value of a label or taint, or None."""
    return signed_number(text)


@dataclass(frozen=True, slots=True)
class Requirement:
    """One requirement on a node label (or node field): key, operator, values."""

    key: str
    operator: str  # In, NotIn, Exists, DoesNotExist, Gt, Lt
    values: tuple[str, ...] = ()
    field: bool = False  # the key names a node field, such as metadata.name

    def accepts(self, value: str | None) -> bool:
        """Whether a label with this value (None: no such label) satisfies the requirement."""
        match self.operator:
            case "In":
                return value in self.values
            case "NotIn":
                return value not in self.values
            case "Exists":
                return value is not None
            case "DoesNotExist":
                return value is None
            case "Gt" | "Lt":
                return bool(value and self.values) and _compares(value or "", self.values[0], self.operator)
            case _:
                return False


@dataclass(frozen=True, slots=True)
class NodeSelectorTerm:
    """Requirements that must all hold. A term without any matches no node."""

    requirements: tuple[Requirement, ...]


@dataclass(frozen=True, slots=True)
class NodeRules:
    """All node constraints of a pod; equal rules share one node mask, so this is the cache key.

    `affinity` is None when nothing is required; terms are alternatives.
    """

    selector: tuple[tuple[str, str], ...] = ()
    affinity: tuple[NodeSelectorTerm, ...] | None = None
    preferred: tuple[tuple[int, NodeSelectorTerm], ...] = ()
    tolerations: tuple[Toleration, ...] = ()


ANY_NODE = NodeRules()
