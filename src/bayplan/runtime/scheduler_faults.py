"""What the scheduler does about a gang that could not be decided on, and a view in which it does not ask."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace

from bayplan.model.gang import Ref
from bayplan.model.plan import Action, Nominate, Refuse
from bayplan.model.standstill import Hindrance, Standstill
from bayplan.runtime.roles import Fault
from bayplan.state.look import Look


def only_asking(look: Look, gangs: Collection[Ref]) -> Look:
    """The same moment in which only these gangs are decided on; room promised to the others stays theirs."""
    wanted = set(gangs)
    stay = tuple(one for one in look.candidates if one.charter.source in wanted)
    promised = dict(look.nominations)
    for candidate in look.candidates:
        if candidate.nominated and candidate.charter.source not in wanted:
            for pod in candidate.waiting:
                if node := candidate.nominated.get(pod.key):
                    promised[pod.key] = pod, node
    return replace(look, candidates=stay, nominations=promised)


def refused(look: Look, gang: Ref, fault: Fault) -> tuple[Action, ...]:
    """The gang hears why, and what was promised to it is no longer."""
    [candidate] = [one for one in look.candidates if one.charter.source == gang]
    charter = candidate.charter
    there = len(candidate.waiting) + len(candidate.standing)
    if fault.id:
        why = Standstill(Hindrance.INTERNAL, charter.minimum, there, about=fault.id)
    else:
        so_far = fault.so_far if isinstance(fault.so_far, Standstill) else None
        known = so_far or Standstill(Hindrance.OUT_OF_TIME, charter.minimum, there)
        why = replace(known, hindrance=Hindrance.OUT_OF_TIME, about=f"{fault.seconds:g}", unsure=True)
    before = candidate.refused
    news = before is None or (before.hindrance, before.about) != (why.hindrance, why.about)
    promised = [pod for pod in candidate.waiting if candidate.nominated.get(pod.key)]
    withdrawn = (Nominate(gang, pod, "") for pod in promised)
    return *withdrawn, Refuse(gang, why, candidate.waiting, news, charter.uid)
