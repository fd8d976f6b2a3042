"""Which differences of a pod, gang spec or disruption budget make another scheduling attempt worthwhile."""

from __future__ import annotations

from dataclasses import replace

from bayplan.model.gang import DisruptionBudget, GangSpec, Group, PodSet
from bayplan.model.pod import Pod


def attempt_key(pod: Pod) -> tuple[object, ...]:
    """The fields of a pending pod whose change makes another attempt worthwhile."""
    wants = pod.spec
    return (
        wants.signature, wants.priority, wants.preempts, wants.gates, wants.unsupported,
        pod.amounts, pod.pod_set,
    )  # fmt: skip


def same_request(before: GangSpec | None, after: GangSpec | None) -> bool:
    """Whether two specs ask for the same; that the gang has started does not count."""
    return before is not None and after is not None and replace(before, started=after.started) == after


def more_preemptible(before: GangSpec | None, after: GangSpec | None) -> bool:
    """Whether a running gang may be preempted now by a gang that could not preempt it before.

    The number of its pods does not matter, and a higher priority helps no preemptor.
    """
    if before is None or after is None:
        return True
    if _preemption_key(before) != _preemption_key(after):
        return True
    if before.priority == after.priority:
        return False
    return before.priority is None or after.priority is None or after.priority < before.priority


def _preemption_key(spec: GangSpec) -> tuple[object, ...]:
    """The fields, apart from priority, that decide which pods of a gang may be preempted, and by whom."""
    return (
        spec.non_preemptible, spec.queue, spec.disrupt_together, spec.is_strict, spec.minimum,
        spec.locality, spec.topology, spec.quorum, spec.disrupted_with,
        None if spec.tree is None else _constraints(spec.tree),
    )  # fmt: skip


def _constraints(member: Group | PodSet) -> tuple[object, ...]:
    """A tree without its pod counts."""
    inner = member.segments if isinstance(member, PodSet) else tuple(map(_constraints, member.members))
    return member.name, member.minimum, member.locality, inner


def allows_more_evictions(before: DisruptionBudget | None, after: DisruptionBudget | None) -> bool:
    """Whether a disruption budget allows more evictions than before."""
    if before is None:
        return False
    if after is None or before.selector != after.selector:
        return True
    return after.allowed > before.allowed or bool(after.spent - before.spent)
