"""A small cluster with queues in a few lines of text, read as changes.

    topology racks rack host
    node x1 rack=r1 : cpu=4
    flavor spot label:kind=spot taint:spot=yes:NoSchedule topology=racks
    cohort all in company weight=2 : spot/cpu=4,2,1           nominal, borrowing, lending
    queue q in all strict within=lower reclaim=any : spot/cpu=4 spot/gpu=8 ; other/memory=1Gi
    entrance team/door q stop=hold
    namespace team dep=eng
    gang team/low in q prio=-1 : workers x4 min=2 cpu=1 required=rack ; leader cpu=2
    gang team/old by q since=-60 : x2 cpu=1 > spot           it has quota: 2 cpu of spot
    gang team/odd by q : x2 cpu=1 > x1 cpu=spot:500m @ x1=1

Times are seconds from now; events without a time happened long ago.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from fractions import Fraction

from bayplan.dialects.kube.fields.quantity import amount
from bayplan.model.assignment import Assignment, DomainAssignment
from bayplan.model.change import (
    Change,
    CheckSeen,
    FlavorSeen,
    NamespaceQueueSeen,
    NamespaceSeen,
    NodeSeen,
    QueuedGangSeen,
    QueueSeen,
    QuotaNodeSeen,
    TopologySeen,
)
from bayplan.model.gang import Gang, Group, Locality, PodSet, Ref, Segment
from bayplan.model.node import HOSTNAME, Node, Topology
from bayplan.model.node_rules import NodeRules, NodeSelectorTerm, Requirement, Taint, Toleration
from bayplan.model.queued_gang import (
    Admission,
    CheckState,
    CheckStatus,
    PodSetAdmission,
    QueuedGang,
    QuotaRequest,
)
from bayplan.model.quota import (
    Cell,
    Check,
    CheckKind,
    Flavor,
    FlavorPreference,
    FlavorSearchPolicy,
    Fungibility,
    NamespaceQueue,
    Preemption,
    Queue,
    Quota,
    QuotaNode,
    ResourceGroup,
    StopPolicy,
    VictimPolicy,
)

NOW = 1_000_000.0
VICTIMS = {
    "never": VictimPolicy.NEVER,
    "lower": VictimPolicy.LOWER,
    "newer": VictimPolicy.LOWER_OR_NEWER,
    "any": VictimPolicy.ANY,
}


def drawn(text: str) -> Iterator[Change]:
    """The changes of a drawing, in order. Missing namespace queues of gangs are created."""
    doors: set[tuple[str, str]] = set()
    for line in map(str.strip, text.strip().splitlines()):
        if not line or line.startswith("#"):
            continue
        change = read(line)
        if isinstance(change, NamespaceQueueSeen):
            doors.add((change.queue.namespace, change.queue.name))
        if isinstance(change, QueuedGangSeen) and change.queued_gang.namespace_queue not in doors:
            doors.add(change.queued_gang.namespace_queue)
            namespace, name = change.queued_gang.namespace_queue
            if name:
                yield NamespaceQueueSeen(NamespaceQueue(namespace, name, name))
        yield change


def read(line: str) -> Change:
    """One line."""
    what, _, rest = line.partition(" ")
    return _LINES[what](rest)


# ── words ─────────────────────────────────────────────────────────────────────────────────────────


def _split(text: str) -> tuple[str, list[str], str]:
    """The name, the words before the colon, and what comes after it."""
    head, _, body = text.partition(" : ")
    name, *words = head.split()
    return name, words, body.strip()


def _after(words: list[str], key: str) -> str:
    """The word after another word."""
    return words[words.index(key) + 1] if key in words else ""


def _values(words: Iterable[str]) -> dict[str, str]:
    """Words of the form key=value."""
    return {key: value for key, found, value in (word.partition("=") for word in words) if found}


def _pairs(words: Iterable[str], prefix: str) -> list[str]:
    return [word.removeprefix(prefix) for word in words if word.startswith(prefix)]


def _level(text: str) -> str:
    return HOSTNAME if text == "host" else text


def _time(text: str | None) -> float:
    return 0.0 if text is None else NOW + float(text)


# ── what administrators define ────────────────────────────────────────────────────────────────────


def _topology(text: str) -> Change:
    name, words, _ = _split(text)
    return TopologySeen(Topology(name, tuple(map(_level, words))))


def drawn_node(text: str) -> Node:
    """A node with its own name as host, and capacity for many pods unless it says otherwise."""
    name, words, body = _split(text)
    labels = {HOSTNAME: name} | {_level(key): value for key, value in _values(words).items()}
    room = {key: amount(key, value) for key, value in _values(body.split()).items()}
    taints = tuple(map(_taint, _pairs(words, "taint:")))
    labels = {key: value for key, value in labels.items() if not key.startswith("taint:")}
    return Node(name, labels, {"pods": 110} | room, taints, "broken" not in words, "cordoned" not in words)


def _flavor(text: str) -> Change:
    name, words, _ = _split(text)
    return FlavorSeen(
        Flavor(
            name,
            dict(pair.split("=", 1) for pair in _pairs(words, "label:")),
            tuple(map(_taint, _pairs(words, "taint:"))),
            tuple(map(_toleration, _pairs(words, "tolerate:"))),
            _values(words).get("topology", ""),
        )
    )


def _taint(text: str) -> Taint:
    pair, _, effect = text.rpartition(":")
    key, _, value = pair.partition("=")
    return Taint(key, value, effect)


def _toleration(text: str) -> Toleration:
    taint = _taint(text)
    return Toleration(taint.key, "Equal" if taint.value else "Exists", taint.value, taint.effect)


def _quota(word: str) -> tuple[Cell, Quota]:
    cell, _, amounts = word.partition("=")
    flavor, _, resource = cell.partition("/")
    found = [amount(resource, each) if each else None for each in amounts.split(",")]
    nominal, borrowing, lending = (*found, None, None)[:3]
    return (flavor, resource), Quota(nominal or 0, borrowing, lending)


def _quota_node(name: str, words: list[str], body: str) -> QuotaNode:
    quotas = dict(_quota(word) for word in body.split() if "=" in word)
    return QuotaNode(name, _after(words, "in"), quotas, Fraction(_values(words).get("weight", "1")))


def _cohort(text: str) -> Change:
    return QuotaNodeSeen(_quota_node(*_split(text)))


def _queue(text: str) -> Change:
    name, words, body = _split(text)
    said = _values(words)
    forced = next((word for word in words if word.split("=")[0] == "forced"), "")
    fungibility = Fungibility(
        FlavorSearchPolicy(said.get("when_borrowing", "stop")),
        FlavorSearchPolicy(said.get("when_preempting", "continue")),
        FlavorPreference(said.get("rather", "borrow")),
    )
    within, reclaim = (VICTIMS[said.get(key, "never")] for key in ("within", "reclaim"))
    limit = int(said["forced"]) if "forced" in said else None
    checks = {check: () for check in said.get("checks", "").split(",") if check}
    return QueueSeen(
        Queue(
            _quota_node(name, words, body.replace(";", " ")),
            tuple(_group(part) for part in body.split(";") if part.strip()),
            "strict" in words,
            fungibility,
            Preemption(within, reclaim, bool(forced), limit),
            checks,
            _namespaces(said.get("namespaces")),
            StopPolicy(said.get("stop", "open")),
        )
    )


def _group(text: str) -> ResourceGroup:
    cells = [word.partition("=")[0].partition("/") for word in text.split()]
    resources = dict.fromkeys(resource for _, _, resource in cells if resource)
    return ResourceGroup(tuple(resources), tuple(dict.fromkeys(flavor for flavor, _, _ in cells)))


def _namespaces(text: str | None) -> tuple[Requirement, ...] | None:
    if text is None:
        return ()
    key, _, values = text.partition(":")
    return (Requirement(key, "In", tuple(values.split(","))),) if key != "none" else None


def _entrance(text: str) -> Change:
    name, words, _ = _split(text)
    namespace, _, own = name.rpartition("/")
    return NamespaceQueueSeen(
        NamespaceQueue(namespace, own, words[0], StopPolicy(_values(words).get("stop", "open")))
    )


def _namespace(text: str) -> Change:
    name, words, _ = _split(text)
    return NamespaceSeen(name, _values(words))


def _check(text: str) -> Change:
    name, words, _ = _split(text)
    return CheckSeen(Check(name, CheckKind(_values(words).get("sort", "other"))))


# ── gangs ─────────────────────────────────────────────────────────────────────────────────────────


def demand(text: str) -> QueuedGang:
    """A gang in a queue, or one that has quota (`by`)."""
    name, words, body = _split(text)
    namespace, _, own = name.rpartition("/")
    said, by = _values(words), _after(words, "by")
    parts = [_part(part, index) for index, part in enumerate(body.split(" ; "))]
    queue = _after(words, "in") or by
    namespace_queue = (namespace, said.get("door", queue))
    created = _time(said.get("at"))
    verdicts = [pair.split(":") for pair in said.get("verdicts", "").split(",") if pair]
    return QueuedGang(
        gang=Gang(
            Ref("kueue", "Workload", namespace, own),
            _root(parts),
            namespace_queue[1],
            int(said.get("prio", "0")),
            said.get("uid", ""),
        ),
        requests=tuple(ask for _, ask, _, _ in parts),
        namespace_queue=namespace_queue,
        created=created,
        queued=created,
        active="inactive" not in words,
        admission=Admission(by, tuple(given for _, _, given, _ in parts if given)) if by else None,
        reserved=_time(said.get("since", "0")) if by else 0.0,
        admitted=bool(by),
        evicted="evicted" in words,
        check_statuses=tuple(CheckStatus(check, CheckState(state)) for check, state in verdicts),
        failed_nodes=tuple(said["failed"].split(",")) if "failed" in said else (),
        replaces=said.get("replaces", ""),
        elastic="elastic" in words,
        shape=" ; ".join(part.partition(" > ")[0] for part in body.split(" ; ")),
    )


def _root(parts: list[tuple[PodSet, QuotaRequest, PodSetAdmission | None, str]]) -> Group:
    members: dict[str, list[PodSet]] = {}
    for pod_set, _, _, group in parts:
        members.setdefault(group or f" {pod_set.name}", []).append(pod_set)
    found = tuple(
        inner[0] if len(inner) == 1 else Group(name, tuple(inner), len(inner), _widest(inner))
        for name, inner in members.items()
    )
    return Group("", found, len(found))


def _widest(pod_sets: list[PodSet]) -> Locality:
    return max(pod_sets, key=lambda pod_set: pod_set.count).locality


def _part(text: str, index: int) -> tuple[PodSet, QuotaRequest, PodSetAdmission | None, str]:
    """A pod set: name, count, requests; after `>` its flavors, after `@` its placement."""
    asked, _, given = text.strip().partition(" > ")
    words = asked.split()
    plain = [word for word in words if "=" not in word and ":" not in word]
    named = [word for word in plain if not word.removeprefix("x").isdigit() and word != "free"]
    name = named[0] if named else ("main" if not index else f"set-{index}")
    count = next((int(word[1:]) for word in plain if word[1:].isdigit() and word[0] == "x"), 1)
    said = _values(word for word in words if ":" not in word.partition("=")[0])
    keywords = ("min", "required", "preferred", "slice", "group")
    requests = {key: amount(key, value) for key, value in said.items() if key not in keywords}
    locality = Locality(*(_level(said[k]) if k in said else None for k in ("required", "preferred")))
    sizes = [each.split("@") for each in said.get("slice", "").split("+") if each]
    pod_set = PodSet(
        name,
        count,
        int(said.get("min", count)),
        {key: value for key, value in requests.items() if value},
        locality,
        tuple(Segment(int(size), _level(level)) for size, level in sizes),
        _rules(words),
    )
    explicit = "free" in plain or any(key in said for key in ("required", "preferred", "slice"))
    ask = QuotaRequest(name, count, requests, explicit)
    return pod_set, ask, _given(ask, given) if given else None, said.get("group", "")


def _rules(words: list[str]) -> NodeRules:
    terms = [
        NodeSelectorTerm(tuple(Requirement(*_requirement(each)) for each in pair.split("&")))
        for pair in _pairs(words, "affinity:")
    ]
    return NodeRules(
        tuple(sorted(_values(_pairs(words, "on:")).items())),
        tuple(terms) or None,
        (),
        tuple(map(_toleration, _pairs(words, "tolerate:"))),
    )


def _requirement(text: str) -> tuple[str, str, tuple[str, ...]]:
    for sign, operator in (("!=", "NotIn"), ("=", "In")):
        key, found, values = text.partition(sign)
        if found:
            return key, operator, tuple(values.split("|"))
    return (text[1:], "DoesNotExist", ()) if text.startswith("!") else (text, "Exists", ())


def _given(ask: QuotaRequest, text: str) -> PodSetAdmission:
    what, _, where = text.partition(" @ ")
    words = what.split()
    count = next((int(word[1:]) for word in words if word[1:].isdigit() and word[0] == "x"), ask.count)
    said = _values(words)
    bare = [word for word in words if "=" not in word and not word[1:].isdigit()]
    flavors = {key: value.partition(":")[0] for key, value in said.items()}
    usage = {key: amount(key, value.partition(":")[2]) for key, value in said.items()}
    for key, each in ask.per_pod.items() if bare else ():
        flavors.setdefault(key, bare[0])
        usage.setdefault(key, each * count)
    return PodSetAdmission(ask.name, count, flavors, usage, place_of(where) if where else None)


def place_of(text: str) -> Assignment:
    """Placements: `x1=2 x2=1` on hosts, `rack:r1=2` or `block,rack:b1,r1=2` elsewhere."""
    levels: tuple[str, ...] = (HOSTNAME,)
    shares: list[DomainAssignment] = []
    for word in text.split():
        domain, _, count = word.rpartition("=")
        above, found, values = domain.rpartition(":")
        levels = tuple(map(_level, above.split(","))) if found else levels
        shares.append(DomainAssignment(tuple(values.split(",")), int(count)))
    return Assignment(levels, tuple(shares))


_LINES: dict[str, Callable[[str], Change]] = {
    "topology": _topology,
    "node": lambda text: NodeSeen(drawn_node(text)),
    "flavor": _flavor,
    "cohort": _cohort,
    "queue": _queue,
    "entrance": _entrance,
    "namespace": _namespace,
    "check": _check,
    "gang": lambda text: QueuedGangSeen(demand(text)),
}
