"""Seats for a gang whose pods stay together: within one value of a node label."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from bayplan.model.assignment import Misfit
from bayplan.model.profile import Profile
from bayplan.placement.floor import Floor
from bayplan.placement.seating_parties import Party, Seated
from bayplan.placement.tree import Bools


@dataclass(frozen=True, slots=True, eq=False)
class Domain:
    """The nodes with one value of a label."""

    value: str
    nodes: Bools


@dataclass(frozen=True, slots=True)
class SeatedTogether:
    """The answer for one domain: the best. The misfit says how many fit where, if fewer than needed do."""

    seated: Seated
    domain: str = ""  # the value of the label; empty: there was none to try
    misfit: Misfit | None = None


def domains(
    floor: Floor, parties: Sequence[Party], key: str, standing: Iterable[int] = (), *, need: int
) -> list[Domain]:
    """The domains of label `key` that could take `need` pods by a plain count, by value.

    If pods stand already (rows), only their domains. To be tried one by one: `seat_all(within=domain.nodes)`.
    """
    raise NotImplementedError


def seat_in_domain(
    floor: Floor, parties: Sequence[Party], key: str, standing: Iterable[int] = (), *, need: int,
    profile: Profile, within: Bools | None = None,
) -> SeatedTogether:  # fmt: skip
    """Seat as many as possible within one value of node label `key`: most pods, then fullest, then name."""
    raise NotImplementedError
