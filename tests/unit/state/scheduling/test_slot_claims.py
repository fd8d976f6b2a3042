"""Slots of admitted gangs as entries of the ledger."""

from __future__ import annotations

from dataclasses import replace

from bayplan.model.assignment import Assignment, DomainAssignment
from bayplan.model.change import PodSeen, QueuedGangLost, QueuedGangSeen
from bayplan.model.gang import Gang, Group, PodSet, Ref
from bayplan.model.node import HOSTNAME, PODS
from bayplan.model.pod import Slot
from bayplan.model.pod_spec import PodSignature
from bayplan.model.queued_gang import Admission, PodSetAdmission, QueuedGang
from tests.support import model_objects
from tests.support.scheduling_scene import board, node

GANG = Ref("kueue", "Workload", "ns", "gang")
WANTS = PodSignature("ns", amounts=(("gpu", 2), (PODS, 1)))


def admitted(*hosts: str) -> QueuedGangSeen:
    """The gang with a slot on each of these hosts."""
    place = Assignment((HOSTNAME,), tuple(DomainAssignment((host,), 1) for host in hosts))
    made = Gang(GANG, Group("", (PodSet("main", len(hosts), len(hosts), {"gpu": 2}),), 1))
    admission = Admission("q", (PodSetAdmission("main", len(hosts), assignment=place),))
    return QueuedGangSeen(QueuedGang(made, (), ("ns", "q"), admission=admission, admitted=True))


def test_a_pod_that_had_another_node_selector_before_it_got_its_host_keeps_its_slot() -> None:
    state = board(node("n1"), node("n2"), admitted("n1"))
    state.apply(PodSeen(model_objects.pod("p", WANTS, slot=Slot(GANG, "main", ""))))  # still gated
    state.apply(PodSeen(model_objects.pod("p", WANTS, "n1", slot=Slot(GANG, "main", "n1"))))
    assert not state.store.nodes.ledger.entries
    state.apply(admitted("n1", "n2"))
    assert [entry.node for entry in state.store.nodes.ledger.entries.values()] == ["n2"]


def test_a_domain_without_slots_is_forgotten_before_hosts_are_chosen_again() -> None:
    place = Assignment(("rack",), (DomainAssignment(("r1",), 1),))
    seen = admitted("n1").queued_gang
    admission = Admission("q", (PodSetAdmission("main", 1, assignment=place),))
    state = board(node("n1"), QueuedGangSeen(replace(seen, admission=admission)))
    claims = state.store.claims
    assert claims.domains.domains and claims.domains.changed
    state.apply(QueuedGangLost(GANG))
    assert not claims.domains.domains and not claims.domains.changed and not claims.in_domains
