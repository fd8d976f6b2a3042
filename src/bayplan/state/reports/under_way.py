"""Decisions whose writes are in flight, as a plan: a rebuilt state assumes it again."""

from __future__ import annotations

from bayplan.model.plan import Action, Admit, Bind, EvictGang, EvictionReason, Nominate, Plan, PreemptPod
from bayplan.state.admission.state import AdmissionState
from bayplan.state.scheduling.single_pod import lone_ref
from bayplan.state.scheduling.state import SchedulingState


def scheduling_under_way(board: SchedulingState) -> Plan:
    """Binds, preemptions and nominations in flight."""
    actions: list[Action] = []
    for key, node in board.store.assumed.items():
        if (pod := board.store.pods.get(key)) is not None:
            actions.append(Bind(pod.gang or lone_ref(key), pod, node))
    for key, by in board.store.displaced.items():
        if (pod := board.store.pods.get(key)) is not None:
            actions.append(PreemptPod(pod, by, undoes=pod.gang == by))
    for key, (_, node) in board.store.nominations.items():
        if (pod := board.store.pods.get(key)) is not None:
            actions.append(Nominate(pod.gang or lone_ref(key), pod, node))
    return Plan(tuple(actions))


def admissions_under_way(state: AdmissionState) -> Plan:
    """Admissions and evictions in flight."""
    actions: list[Action] = []
    for ref, admission in state.assumed.items():
        if (standing := state.lines.standings.get(ref)) is not None:
            actions.append(Admit(standing.demand, admission))
    leaving = sorted(state.leaving, key=lambda ref: (ref.namespace, ref.name))
    standings = [state.lines.standings[ref] for ref in leaving if ref in state.lines.standings]
    actions += [EvictGang(standing.demand, EvictionReason.PRIORITY) for standing in standings]
    return Plan(tuple(actions))
