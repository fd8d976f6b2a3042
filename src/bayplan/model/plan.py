"""What was decided: actions, each with all that is needed to carry it out."""

from __future__ import annotations

from dataclasses import dataclass

from bayplan.model.assignment import Misfit
from bayplan.model.gang import Ref
from bayplan.model.pod import Pod


@dataclass(frozen=True, slots=True)
class Bind:
    """Run this pod on this node."""

    gang: Ref
    pod: Pod
    node: str


@dataclass(frozen=True, slots=True)
class Refuse:
    """The gang has no place now; say why."""

    gang: Ref
    misfit: Misfit
    news: bool  # the reason is another than last time
    uid: str = ""  # of the gang


Action = Bind | Refuse


@dataclass(frozen=True, slots=True)
class Plan:
    """The actions of one decision, in the order they were decided."""

    actions: tuple[Action, ...] = ()
