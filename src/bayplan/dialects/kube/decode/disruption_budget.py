"""PodDisruptionBudgets as the API server sends them, and as values of the model."""

from __future__ import annotations

from typing import Any

from bayplan.dialects.api import Kind
from bayplan.dialects.kube.decode.pod_spec import selector
from bayplan.dialects.kube.decode.wire import LabelSelector, Metadata, Struct
from bayplan.model.gang import DisruptionBudget


class BudgetSpec(Struct, frozen=True):
    """The spec of a PodDisruptionBudget."""

    selector: LabelSelector | None = None


class BudgetStatus(Struct, frozen=True):
    """The status: disruptions still allowed, and pods being disrupted."""

    disruptions_allowed: int | None = None
    disrupted_pods: dict[str, Any] | None = None


class BudgetWire(Struct, frozen=True):
    """A PodDisruptionBudget."""

    metadata: Metadata = Metadata()
    spec: BudgetSpec = BudgetSpec()
    status: BudgetStatus = BudgetStatus()


BUDGETS = Kind("policy", "v1", "PodDisruptionBudget", "poddisruptionbudgets", wire=BudgetWire)


def budget_of(wire: BudgetWire) -> DisruptionBudget:
    """A PodDisruptionBudget as a value."""
    return DisruptionBudget(
        wire.metadata.namespace or "default",
        wire.metadata.name,
        selector(wire.spec.selector),
        wire.status.disruptions_allowed or 0,
        frozenset(wire.status.disrupted_pods or ()),
    )
