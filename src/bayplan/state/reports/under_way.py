"""Decisions whose writes are in flight, as a plan: a rebuilt state assumes it again."""

from __future__ import annotations

from bayplan.model.plan import Action, Admit, Bind, EvictGang, EvictionReason, Nominate, Plan, PreemptPod
from bayplan.state.admission.state import AdmissionState
from bayplan.state.scheduling.single_pod import single_pod_ref
from bayplan.state.scheduling.state import SchedulingState


def scheduling_in_flight(state: SchedulingState) -> Plan:
    """Binds, preemptions and nominations in flight."""
    actions: list[Action] = []
    for key, node in state.store.assumed.items():
        if (pod := state.store.pods.get(key)) is not None:
            actions.append(Bind(pod.gang or single_pod_ref(key), pod, node))
    for key, by in state.store.preempting.items():
        if (pod := state.store.pods.get(key)) is not None:
            actions.append(PreemptPod(pod, by, undoes=pod.gang == by))
    for key, (_, node) in state.store.nominations.items():
        if (pod := state.store.pods.get(key)) is not None:
            actions.append(Nominate(pod.gang or single_pod_ref(key), pod, node))
    return Plan(tuple(actions))


def admissions_in_flight(state: AdmissionState) -> Plan:
    """Admissions and evictions in flight."""
    actions: list[Action] = []
    for ref, admission in state.assumed.items():
        if (entry := state.pending.entries.get(ref)) is not None:
            actions.append(Admit(entry.queued_gang, admission))
    leaving = sorted(state.evicting, key=lambda ref: (ref.namespace, ref.name))
    entries = [state.pending.entries[ref] for ref in leaving if ref in state.pending.entries]
    actions += [EvictGang(entry.queued_gang, EvictionReason.PRIORITY) for entry in entries]
    return Plan(tuple(actions))
