"""Places a gang on a snapshot: the domain of every pod, or why it does not fit."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from bayplan.model.assignment import Misfit, Placement
from bayplan.model.gang import Gang, Locality
from bayplan.model.profile import Profile, Strategy
from bayplan.placement.cluster.snapshot import CapacitySnapshot
from bayplan.placement.domains.greedy import place_member, place_members
from bayplan.placement.domains.scope import Located, PlacementScope, assignment, scope_of
from bayplan.placement.exact.search import place_exactly


def place(
    snapshot: CapacitySnapshot, gang: Gang, profile: Profile | None = None, *, brief: bool = False,
    check: Callable[[], None] = lambda: None,
) -> Placement:  # fmt: skip
    """Place every pod of the gang, or explain why it does not fit (without details if `brief`).

    `check` is called before each domain that is tried; it raises to end a search that takes too long.
    """
    scope = replace(scope_of(snapshot, profile or Profile()), brief=brief, check=check)
    located, misfit, proven = _locate(scope, gang)
    assignments = {name: replace(assignment(snapshot, part), proven=proven) for name, part in located.items()}
    return Placement(assignments, misfit)


def gang_fits(
    snapshot: CapacitySnapshot, gang: Gang, profile: Profile, check: Callable[[], None] = lambda: None
) -> bool:
    """Whether the whole gang fits; cheaper than `place`."""
    return _locate(replace(scope_of(snapshot, profile), brief=True, check=check), gang)[1] is None


def place_in(scope: PlacementScope, gang: Gang) -> dict[str, Located] | Misfit:
    """As `place`, in a scope with assumed usage, and with leaves instead of names."""
    located, misfit, _ = _locate(scope, gang)
    return located if misfit is None else misfit


def _locate(scope: PlacementScope, gang: Gang) -> tuple[dict[str, Located], Misfit | None, bool]:
    """The placement, the misfit if any, and whether the placement is proven best."""
    if _asks_for_exact(gang, scope.profile):
        exactly = place_exactly(scope, gang)
        return ({}, exactly, False) if isinstance(exactly, Misfit) else (exactly[0], None, exactly[1])
    if gang.root.locality == Locality():
        return (*place_members(scope, gang.root.members), False)
    located = place_member(scope, gang.root)
    return ({}, located, False) if isinstance(located, Misfit) else (located, None, False)


def _asks_for_exact(gang: Gang, profile: Profile) -> bool:
    """Whether any pod set asks for the exact strategy; it then applies to all, as they share nodes."""
    for pod_set in gang.root.pod_sets():
        if pod_set.locality.required is not None:
            strategy = profile.required
        elif pod_set.locality.preferred is not None:
            strategy = profile.preferred
        else:
            strategy = profile.unconstrained
        if strategy is Strategy.EXACT:
            return True
    return False
