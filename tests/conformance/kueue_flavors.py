"""Flavors that the peer picks for pod sets, and what of a topology it then asks for, compared with ours."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import replace
from typing import Any

from bayplan.dialects.kube.fields.quantity import amount
from bayplan.dialects.kube.fields.reader import Field
from bayplan.dialects.kueue.decode.workloads import decode_workload
from bayplan.dialects.kueue.fields.assignment_decode import decode_assignment
from bayplan.dialects.kueue.fields.queues import queue
from bayplan.dialects.kueue.status.rejection_messages import attempts_message, flavors_considered, reason
from bayplan.model.assignment import Assignment, DomainAssignment
from bayplan.model.change import FlavorSeen, QueueSeen, TopologySeen
from bayplan.model.node import HOSTNAME, Topology
from bayplan.model.profile import Profile
from bayplan.model.queued_gang import Admission, PodSetAdmission, QueuedGang
from bayplan.model.quota import Flavor, Queue, QuotaNode, ResourceGroup
from bayplan.model.rejection import FlavorAttempt, FlavorMode, PodSetAttempts
from bayplan.placement.overlay.topology_overlay import TopologyOverlay
from bayplan.scheduling.admission.flavors import FlavorQuery, quota_offer
from bayplan.scheduling.admission.offer import FlavorChoice, Mode, Offer, PodSetOffer, net_load
from bayplan.scheduling.admission.places import placement_needs
from bayplan.scheduling.admission.simulation import AdmissionSimulation
from bayplan.state.admission.state import AdmissionState

Case = dict[str, Any]

WITH_TOPOLOGY = ("tas", "tas-a", "tas-b", "flavor-a", "flavor-b")
_IGNORED = "does not provide resource"  # said of flavors in groups that cover a resource twice


def check(case: Case) -> list[str]:
    """Compare what one table of the peer's looks at."""
    return CHECKS[case["test"]](case["case"])


def _whole(case: Case) -> list[str]:
    inquiry = _inquiry(_demand(case["wlPods"]), queue(Field(case["clusterQueue"])))
    offer = _offered(inquiry)
    want = case["wantAssignment"]
    problems = _differ("mode", int(offer.mode), case["wantRepMode"])
    problems += _differ("borrowing", offer.borrow, want["Borrowing"])
    got = {f"{flavor}/{resource}": value for (flavor, resource), value in offer.quota.items()}
    problems += _differ("usage", got, _cells(want["Usage"]["Quota"].get("Assigned") or {}))
    wanted = [_wanted_part(part) for part in want["PodSets"]]
    problems += _differ("pod sets", [_shown_part(part) for part in offer.parts], wanted)
    for part, expected in zip(offer.parts, want["PodSets"], strict=True):
        problems += _attempts(part, expected.get("FlavorAssignmentAttempts") or [])
    return problems


def _with_leader(case: Case) -> list[str]:
    offer = _offered(_inquiry(_demand(case["wlPods"]), queue(Field(case["clusterQueue"]))))
    got = {part.name: _choices(part) for part in offer.parts}
    wanted = {name: _wanted_choices(found) for name, found in case["wantPodSetFlavors"].items()}
    errors = {part.name: _error(part) for part in offer.parts if part.fatal is not None}
    wanted_errors = {name: found["error"] for name, found in case["wantPodSetErrors"].items()}
    return _differ("flavors", got, wanted) + _differ("errors", errors, wanted_errors)


def _net_usage(case: Case) -> list[str]:
    asked = _demand(case["wl"]["Obj"]["spec"]["podSets"])
    before = [
        PodSetAdmission(part["name"], 0, assignment=decode_assignment(Field(part["topologyAssignment"])))
        for part in (case.get("prevAdmission") or {}).get("podSetAssignments") or []
    ]
    asked = replace(asked, admission=Admission("", tuple(before)) if before else None)
    offer = _given_offer(case["assignment"]["PodSets"])
    inquiry = _inquiry(asked, _queue_of(offer, case["cq"]["TASFlavors"]))
    shapes = {pod_set.name: pod_set for pod_set in asked.gang.root.pod_sets()}
    got: dict[str, list[Case]] = {}
    for spot in net_load(offer, asked, shapes, inquiry.simulation).placed:
        for share in spot.place.shares:
            entry = {"Count": share.count, "SinglePodRequests": spot.requests, "Values": list(share.values)}
            got.setdefault(spot.flavor, []).append(entry)
    return _differ("usage", got, case["want"])


def _requests(case: Case) -> list[str]:
    """What has to be placed, or why that cannot even be asked."""
    asked = decode_workload(Field({"metadata": {"name": "w"}} | case["workload"]["Obj"]))
    offer = _given_offer(case["assignment"]["PodSets"])
    found = placement_needs(_inquiry(asked, _queue_of(offer, case["cq"]["TASFlavors"])), offer)
    errors = [_error(part) for part in offer.parts if part.fatal is not None]
    wanted = [case["wantErr"]["error"]] if case.get("wantErr") else []
    problems = _differ("errors", errors, wanted)
    if wanted:
        return problems + _differ("mode", offer.mode, Mode.NO_FIT)
    names = [pod_set.name for want in found for pod_set in want.gang.root.pod_sets()]
    return problems + _differ("asked for", names, [part.name for part in offer.parts])


def _without_the_finished(case: Case) -> list[str]:
    offer = _given_offer(case["podSets"])
    inquiry = _inquiry(_demand(case["wlPodSets"]), _queue_of(offer, {"tas": {}}))
    found = placement_needs(inquiry, offer)
    names = [pod_set.name for want in found for pod_set in want.gang.root.pod_sets()]
    return _differ("asked for", names, case.get("wantTASPodSets") or [])


CHECKS = {
    "TestAssignFlavors": _whole,
    "TestAssignFlavors_LeaderWorkerSetTASFlavor": _with_leader,
    "TestAssignment_ComputeTASNetUsage": _net_usage,
    "TestWorkloadsTopologyRequests_ElasticJobsValidation": _requests,
    "TestWorkloadsTopologyRequests_ErrorBranches": _requests,
    "TestWorkloadsTopologyRequests_ZeroCountPodSetSkipped": _without_the_finished,
}


def _demand(pod_sets: list[Case]) -> QueuedGang:
    found = decode_workload(
        Field({"kind": "Workload", "metadata": {"name": "w"}, "spec": {"podSets": pod_sets}})
    )
    return replace(found, namespace_queue=("default", "q"))


def _inquiry(asked: QueuedGang, where: Queue) -> FlavorQuery:
    """One gang before one queue, with nobody else there and not a single node."""
    state = AdmissionState()
    flavors = [
        Flavor(name, topology=f"of-{name}" if name in WITH_TOPOLOGY else "") for name in where.flavors()
    ]
    for flavor in flavors:
        if flavor.topology:
            state.apply(TopologySeen(Topology(flavor.topology, (HOSTNAME,))))
        state.apply(FlavorSeen(flavor))
    state.apply(QueueSeen(where))
    seen = state.snapshot(())
    rooms = TopologyOverlay(seen.supplies, seen.flavors)
    round_ = AdmissionSimulation(
        seen.quota_tree,
        rooms,
        seen.queues,
        seen.flavors,
        seen.checks,
        seen.admitted,
        Profile(),
        0.0,
        seen.inactive_queues,
    )
    return FlavorQuery(round_, asked, where, {}, {}, ())


def _offered(inquiry: FlavorQuery) -> Offer:
    offer = quota_offer(inquiry)
    if offer.mode is not Mode.NO_FIT:
        placement_needs(inquiry, offer)
    return offer


def _queue_of(offer: Offer, with_topology: Case) -> Queue:
    """A queue that has the flavors of an offer. One whose nodes the peer never saw stands beside another."""
    flavors = {choice.flavor for part in offer.parts for choice in part.choices.values()}
    flavors |= {"tas-a" if known is None else name for name, known in with_topology.items()}
    renamed = {name for name, known in with_topology.items() if known is None}
    for part in offer.parts:
        for choice in part.choices.values():
            if choice.flavor in renamed:
                choice.flavor = "plain"
    names = tuple(sorted(flavors - renamed | ({"plain"} if renamed else set())))
    return Queue(QuotaNode("q"), (ResourceGroup(("cpu",), names),))


def _given_offer(parts: Iterable[Case]) -> Offer:
    return Offer([_given_part(part) for part in parts])


def _given_part(part: Case) -> PodSetOffer:
    choices = {
        name: FlavorChoice(found["Name"], Mode(found["Mode"])) for name, found in part["Flavors"].items()
    }
    place = part.get("TopologyAssignment")
    shares = [DomainAssignment(tuple(d["Values"]), d["Count"]) for d in place["Domains"]] if place else []
    assigned = Assignment(tuple(place["Levels"]), tuple(shares)) if place else None
    return PodSetOffer(part["Name"], part["Count"], {}, choices, place=assigned)


def _error(part: PodSetOffer) -> str:
    told = attempts_message([PodSetAttempts(part.name, fatal=part.fatal)])
    return told.removeprefix(f"failed to assign flavors to pod set {part.name}: ")


def _choices(part: PodSetOffer) -> Case:
    return {
        name: (choice.flavor, int(choice.mode), choice.borrow, choice.tried)
        for name, choice in part.choices.items()
    }


def _wanted_choices(flavors: Case) -> Case:
    return {
        name: (found["Name"], found["Mode"], found["borrow"], found["TriedFlavorIdx"])
        for name, found in flavors.items()
    }


def _shown_part(part: PodSetOffer) -> Any:
    told = attempts_message([PodSetAttempts(part.name, tuple(part.obstacles))])
    reasons = told.removeprefix(f"couldn't assign flavors to pod set {part.name}: ")
    error = _error(part) if part.fatal is not None else ""
    return (part.name, part.count, part.requests, _choices(part), reasons, error)


def _attempts(part: PodSetOffer, expected: list[Case]) -> list[str]:
    """Flavors that were tried, as far as the peer's table looks at them."""
    if not expected:
        return []
    silent = {attempt["Flavor"] for attempt in expected if _IGNORED in "".join(attempt.get("Reasons") or [])}
    got = [_shown_attempt(attempt) for attempt in part.attempts if attempt.flavor not in silent]
    wanted = [_wanted_attempt(attempt) for attempt in expected if attempt["Flavor"] not in silent]
    return _differ(f"attempts for {part.name}", got, wanted)


def _shown_attempt(attempt: FlavorAttempt) -> Any:
    told = flavors_considered([PodSetAttempts("p", attempts=(attempt,))])
    fits = attempt.mode is FlavorMode.FIT
    token = reason(attempt.reason) if attempt.reason is not None else ""
    return (attempt.flavor, fits, attempt.borrow, token, told.removeprefix("p: "))


def _wanted_part(part: Case) -> Any:
    status = part["Status"]
    asked = {name: amount(name, value) for name, value in part["Requests"].items()}
    reasons = ", ".join(sorted(status.get("reasons") or []))
    error = (status.get("err") or {}).get("error", "")
    return (part["Name"], part["Count"], asked, _wanted_choices(part.get("Flavors") or {}), reasons, error)


def _wanted_attempt(attempt: Case) -> Any:
    reasons = attempt.get("Reasons") or []
    told = "" if attempt["Mode"] == Mode.FIT else f"{attempt['Flavor']}({';'.join(['NoFit', *reasons])})"
    fits = attempt["Mode"] == Mode.FIT
    return (attempt["Flavor"], fits, attempt["Borrow"], attempt["NoFitReason"], told)


def _cells(usage: Case) -> dict[str, int]:
    keys = {key: json.loads(key) for key in usage}
    return {f"{keys[key]['Flavor']}/{keys[key]['Resource']}": found["value"] for key, found in usage.items()}


def _differ(what: str, got: Any, wanted: Any) -> list[str]:
    return [] if got == wanted else [f"{what}: {got} instead of {wanted}"]


FILES = {"kueue/flavorassigner": check}
