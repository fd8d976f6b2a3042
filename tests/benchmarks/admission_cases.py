"""Decisions measured alone: a round over many pending gangs, and one that makes room in a full cluster."""

from __future__ import annotations

from fractions import Fraction

from bayplan.model.assignment import Assignment, DomainAssignment
from bayplan.model.change import (
    FlavorSeen,
    NamespaceQueueSeen,
    NodeSeen,
    QueuedGangSeen,
    QueueSeen,
    TopologySeen,
)
from bayplan.model.gang import Gang, Group, Locality, PodSet, Ref
from bayplan.model.node import HOSTNAME, PODS, Node, Topology
from bayplan.model.node_rules import ANY_NODE, NodeRules
from bayplan.model.queued_gang import Admission, PodSetAdmission, QueuedGang, QuotaRequest
from bayplan.model.quota import (
    Flavor,
    NamespaceQueue,
    Preemption,
    Queue,
    Quota,
    QuotaNode,
    ResourceGroup,
    VictimPolicy,
)
from bayplan.state.admission.state import AdmissionState

BLOCK, RACK = "topology/block", "topology/rack"
GI = 1 << 30
ANYWHERE = Locality()


def full_cluster(nodes: int = 1000, groups: int = 8, pods: int = 200, resources: int = 30) -> AdmissionState:
    """The peer's benchmark: gangs of all sizes fill the nodes, and one comes that needs half of 100."""
    state = AdmissionState()
    names = [f"example.com/res-{number}" for number in range(2, resources)]
    width = max(int(nodes**0.5), 1)
    hosts: list[Node] = []
    block = place = 0
    for _ in range(nodes):
        place += 1
        if place == width:
            place, block = 0, block + 1
        host = f"node-{block}-{place}"
        labels = {BLOCK: f"b-{block}", HOSTNAME: host, "tas": "true", "group": f"group-{block % groups + 1}"}
        amounts = {"cpu": 10_000, "memory": 100 * GI, PODS: 110} | dict.fromkeys(names, 10)
        hosts.append(Node(host, labels, amounts))
    state.apply_all(NodeSeen(host) for host in hosts)
    _rules(state, ("cpu", "memory", *names), (BLOCK, HOSTNAME))
    room = [[10, 100] for _ in hosts]
    number = 1
    while True:
        cpu, memory, count = number % 10 + 1, number % 100 + 1, number * 10 % width + 1
        found, shares = _fill(room, hosts, cpu, memory, count)
        if not found:
            break
        each = {"cpu": cpu * 1000, "memory": memory * GI} | dict.fromkeys(names, cpu)
        given = PodSetAdmission(
            "main", count, dict.fromkeys(each, "flavor"), {k: v * count for k, v in each.items()},
            Assignment((HOSTNAME,), tuple(shares)),
        )  # fmt: skip
        state.apply(
            QueuedGangSeen(_demand(f"wl-{number}", each, count, number, Admission("queue", (given,))))
        )
        number += 1
    each = {"cpu": 5000, "memory": 50 * GI} | dict.fromkeys(names, 5)
    rules = NodeRules(selector=(("group", "group-1"),))
    state.apply(QueuedGangSeen(_demand("requested", each, pods, number, None, rules)))
    return state


def _labels(number: int) -> dict[str, str]:
    where = {BLOCK: f"b{number // 1024:02d}", RACK: f"r{number // 32:04d}"}
    return {**where, HOSTNAME: f"n{number:05d}", "tas": "true"}


def pending_gangs(nodes: int = 10_000, gangs: int = 1000, queues: int = 30) -> AdmissionState:
    """Racks of 32 hosts with 8 GPUs, half of them taken by chance, and gangs of ten shapes in line."""
    state = AdmissionState()
    hosts = [
        Node(
            f"n{number:05d}",
            _labels(number),
            {"cpu": 96_000, "memory": 1536 * GI, "gpu": 8 if number % 2 else 4, PODS: 110},
        )
        for number in range(nodes)
    ]  # fmt: skip
    state.apply_all(NodeSeen(host) for host in hosts)
    _rules(state, ("cpu", "memory", "gpu"), (BLOCK, RACK, HOSTNAME), queues)
    for number in range(gangs):
        shape = number % 10
        each = {"cpu": 8000, "memory": 64 * GI, "gpu": 4 if shape % 2 else 8}
        locality = Locality(required=RACK) if shape < 7 else Locality(preferred=RACK)
        count = (2, 4, 8, 16, 32, 48, 64, 16, 32, 64)[shape]
        queue = number // 10 % queues
        state.apply(
            QueuedGangSeen(
                _demand(
                    f"gang-{number:04d}",
                    each,
                    count,
                    10 - shape,
                    None,
                    NodeRules(),
                    locality,
                    f"queue-{queue}",
                )
            )
        )
    return state


def _rules(
    state: AdmissionState, resources: tuple[str, ...], levels: tuple[str, ...], queues: int = 0
) -> None:
    state.apply(TopologySeen(Topology("topology", levels)))
    state.apply(FlavorSeen(Flavor("flavor", {"tas": "true"}, topology="topology")))
    for name in [f"queue-{number}" for number in range(queues)] or ["queue"]:
        quotas = {("flavor", resource): Quota(10**18) for resource in resources}
        state.apply(
            QueueSeen(
                Queue(
                    QuotaNode(name, "", quotas, Fraction(1)),
                    (ResourceGroup(resources, ("flavor",)),),
                    preemption=Preemption(within=VictimPolicy.LOWER),
                    namespaces=(),
                )
            )
        )
        state.apply(NamespaceQueueSeen(NamespaceQueue("default", name, name)))


def _demand(  # noqa: PLR0917
    name: str, each: dict[str, int], count: int, priority: int, admission: Admission | None,
    rules: NodeRules = ANY_NODE, locality: Locality = ANYWHERE, queue: str = "queue",
) -> QueuedGang:  # fmt: skip
    pod_set = PodSet("main", count, count, each, locality, (), rules)
    gang = Gang(Ref("kueue", "Workload", "default", name), Group("", (pod_set,), 1), queue, priority, name)
    ask = QuotaRequest("main", count, each, topology=True)
    shape = f"{count} {sorted(each.items())} {locality} {rules}"
    return QueuedGang(
        gang, (ask,), ("default", queue), admission=admission, admitted=admission is not None, shape=shape
    )


def _fill(
    room: list[list[int]], hosts: list[Node], cpu: int, memory: int, count: int
) -> tuple[bool, list[DomainAssignment]]:
    """First fit, all or nothing."""
    left, taken = count, []
    for free_cpu, free_memory in room:
        fit = min(free_cpu // cpu, free_memory // memory, left)
        taken.append(fit)
        left -= fit
    if left:
        return False, []
    shares = []
    for place, fit in enumerate(taken):
        if fit:
            room[place][0] -= fit * cpu
            room[place][1] -= fit * memory
            shares.append(DomainAssignment((hosts[place].name,), fit))
    return True, shares
