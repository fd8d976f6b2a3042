"""Which states and reasons count as reached."""

from __future__ import annotations

from collections import Counter
from typing import Any

from bayplan.backends.embedded.storage.watch_log import DELETED, MODIFIED, StoreChange
from bayplan.model.filter_failure import FilterFailure, FilterReason
from bayplan.model.gang import Ref
from bayplan.model.plan import Plan, ReportUnschedulable
from bayplan.model.rejection import Rejection, RejectionReason
from bayplan.simulator.core.coverage import all_reasons, note_change, note_plan


def test_a_rejection_counts_once_for_each_of_its_reasons() -> None:
    failure = FilterFailure(3, {(FilterReason.INSUFFICIENT, "cpu"): 2, (FilterReason.INSUFFICIENT, "gpu"): 1})
    rejection = Rejection(RejectionReason.NO_CAPACITY, filter_failure=failure)
    reached: Counter[str] = Counter()
    note_plan(reached, Plan((ReportUnschedulable(Ref("kube", "Job", "ns", "a"), rejection),)))
    assert reached == {
        "action ReportUnschedulable": 1,
        "rejection no_capacity": 1,
        "remark tried": 1,
        "preemption not_searched": 1,
        "filter insufficient": 1,
    }
    assert reached.keys() <= set(all_reasons())


def test_a_state_counts_when_an_object_enters_it() -> None:
    def seen(phase: str, *conditions: tuple[str, str, str]) -> dict[str, Any]:
        named = [dict(zip(("type", "status", "reason"), one, strict=True)) for one in conditions]
        return {"kind": "Pod", "status": {"phase": phase, "conditions": named}}

    unschedulable = ("PodScheduled", "False", "Unschedulable")
    first, second = seen("Pending", unschedulable), seen("Pending", ("PodScheduled", "True", ""))
    reached: Counter[str] = Counter()
    note_change(reached, "pods", StoreChange(1, MODIFIED, "ns/a", first, None))
    note_change(reached, "pods", StoreChange(2, MODIFIED, "ns/a", second, first))
    note_change(reached, "pods", StoreChange(3, DELETED, "ns/a", second, second))
    assert reached == {
        "Pod phase Pending": 1,
        "Pod PodScheduled=False Unschedulable": 1,
        "Pod PodScheduled=True": 1,
    }
