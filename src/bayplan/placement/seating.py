"""Where the pods of a gang go, one party of equal pods after the other. What is found is seated on the floor.

A caller that does not like the answer takes it back: `mark = floor.mark(); …; floor.undo(mark)`.
"""

from __future__ import annotations

from collections.abc import Sequence

from bayplan.model.profile import Profile
from bayplan.placement.floor import Floor
from bayplan.placement.seating_parties import Party, Seated
from bayplan.placement.tree import Bools


def seat_all(
    floor: Floor, parties: Sequence[Party], *, need: int, profile: Profile, within: Bools | None = None,
    lone: bool = False,
) -> Seated:  # fmt: skip
    """Seat as many as possible, on nodes `within`; try harder as long as it is fewer than `need`.

    `lone`: nodes are chosen as for pods by themselves, whatever the profile says of gangs.
    """
    raise NotImplementedError
