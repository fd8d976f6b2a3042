"""Seats for a gang that has a tree of pod sets: counted by topology, then held against each node."""

from __future__ import annotations

from collections.abc import Sequence

from bayplan.model.assignment import Misfit
from bayplan.model.gang import Group
from bayplan.model.pod import Pod
from bayplan.model.profile import Profile
from bayplan.placement.floor import Floor
from bayplan.placement.seating_parties import Seated
from bayplan.placement.supply import Supply
from bayplan.placement.tree import Bools


def tree_seats(
    floor: Floor, supply: Supply, tree: Group, waiting: Sequence[Pod], standing: Sequence[Pod], *,
    profile: Profile, within: Bools | None = None,
) -> Seated | Misfit:  # fmt: skip
    """Seat a gang that has a tree, whole: pods in rank order onto hosts in rank order.

    `supply` is that of its topology as it was when the floor was opened; what has happened on the floor
    since is taken into account. A gang that runs in part is completed where its pods stand.
    """
    raise NotImplementedError
