"""Changes that matter to those who wait: what they ask for is another, or others may have to go for them."""

from __future__ import annotations

from dataclasses import replace

from bayplan.model.gang import DisruptionBudget, GangSpec, Group, PodSet
from bayplan.model.pod import Pod


def asks(pod: Pod) -> tuple[object, ...]:
    """What a change of makes another try worth while."""
    wants = pod.wants
    return wants.shape, wants.priority, wants.preempts, wants.gates, pod.amounts, pod.pod_set


def asks_the_same(before: GangSpec | None, after: GangSpec | None) -> bool:
    """Whether a gang asks for what it asked for before; that it has begun is no other wish."""
    return before is not None and after is not None and replace(before, started=after.started) == after


def yields_more(before: GangSpec | None, after: GangSpec | None) -> bool:
    """Whether a gang that runs may have to go now for one for whom it could not be made to go before.

    How many pods it has or wants is of no account; that it is more important helps nobody.
    """
    if before is None or after is None:
        return True
    if _hold(before) != _hold(after):
        return True
    if before.priority == after.priority:
        return False
    return before.priority is None or after.priority is None or after.priority < before.priority


def _hold(charter: GangSpec) -> tuple[object, ...]:
    """What decides, apart from its importance, who of a gang may go, for whom, and where to."""
    return (
        charter.lasting, charter.queue, charter.leaves_whole, charter.is_strict, charter.minimum,
        charter.locality, charter.topology, charter.quorum, charter.leave_together,
        None if charter.tree is None else _bonds(charter.tree),
    )  # fmt: skip


def _bonds(member: Group | PodSet) -> tuple[object, ...]:
    """A tree but for how many pods there are."""
    inner = member.segments if isinstance(member, PodSet) else tuple(map(_bonds, member.members))
    return member.name, member.minimum, member.locality, inner


def spares_less(before: DisruptionBudget | None, after: DisruptionBudget | None) -> bool:
    """Whether more pods may go now on account of a budget."""
    if before is None:
        return False
    if after is None or before.selector != after.selector:
        return True
    return after.allowed > before.allowed or bool(after.spent - before.spent)
