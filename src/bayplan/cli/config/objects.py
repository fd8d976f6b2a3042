"""What the files say: nodes, pods, topologies and flavors on one side, gangs on the other."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace

import msgspec

from bayplan.cli.config.read_files import InputDocument, InputProblem
from bayplan.dialects.jobs.kinds import copies, is_known
from bayplan.dialects.kube.decode.node_fields import node
from bayplan.dialects.kube.decode.pod_fields import PodUse, pod_use
from bayplan.dialects.kube.fields.reader import Field
from bayplan.dialects.kueue.fields.job_gang import job_gang
from bayplan.dialects.kueue.fields.topology_and_flavor import flavor, topology
from bayplan.dialects.kueue.fields.workload import is_settled, workload_gang
from bayplan.dialects.nrt.topologies import node_zones
from bayplan.dialects.nrt.wire import GROUP, NodeTopologyWire
from bayplan.model.gang import Gang
from bayplan.model.node import HOSTNAME, PODS, Node, Topology
from bayplan.model.numa import NodeZones
from bayplan.model.quota import Flavor

PODS_DEFAULT = 110  # what a kubelet allows unless told otherwise
AMOUNT_MAX = 2**53
COPIES_MAX = 1000  # gangs of one object that are looked at; more say nothing new
_FAMILY = "kueue.x-k8s.io"


@dataclass(slots=True)
class Inputs:
    """Everything read so far."""

    nodes: dict[str, Node] = field(default_factory=dict)
    uses: list[PodUse] = field(default_factory=list)
    topologies: list[Topology] = field(default_factory=list)
    flavors: list[Flavor] = field(default_factory=list)
    zones: dict[str, NodeZones] = field(default_factory=dict)  # by node
    gangs: list[tuple[InputDocument, Gang]] = field(default_factory=list)
    notes: Counter[tuple[str, str]] = field(default_factory=Counter)  # (what, said of it) → how many
    problems: list[InputProblem] = field(default_factory=list)
    seen: dict[tuple[str, ...], InputDocument] = field(default_factory=dict)


def gather(documents: Iterable[InputDocument]) -> Inputs:
    """Sort objects by what they mean, and note what is wrong with each."""
    found = Inputs()
    for document in documents:
        take = _reader(document)
        if take is not None:
            _refuse_twins(found, document)
            take(found, document)
        elif not document.kind and not document.body.errors:
            document.body.at("kind").error("must be set")
        elif document.kind:
            found.notes["object", f"of kind {document.kind} not used"] += 1
        found.problems += [
            InputProblem(document.file, title(document), str(error)) for error in document.body.errors
        ]
    _refuse_shared_hostnames(found)
    _refuse_overload(found)
    return found


def title(document: InputDocument) -> str:
    """An object for people: where its document begins, kind and name."""
    metadata = document.body.value.get("metadata") if isinstance(document.body.value, dict) else None
    name = metadata.get("name") if isinstance(metadata, dict) else None
    shown = f"{document.kind or 'object'} {name}" if isinstance(name, str) else document.kind or "object"
    return f"line {document.line}, {shown}" if document.line else shown


def _reader(document: InputDocument) -> Callable[[Inputs, InputDocument], None] | None:
    if document.kind not in _READERS and is_known(document.body):
        return _take_job
    group, take = _READERS.get(document.kind, ("", None))
    version = document.body.at("apiVersion").text()
    own = version.partition("/")[0] if "/" in version else ""
    return take if take and (not version or own == group) else None


def _take_node(found: Inputs, document: InputDocument) -> None:
    body = document.body
    value = node(body)
    if not body.at("status", "conditions").present:
        found.notes["node", "taken as ready: no conditions stated"] += 1
        value = replace(value, ready=True)
    if HOSTNAME not in value.labels:
        found.notes["node", f"known by name: no label {HOSTNAME}"] += 1
        value = replace(value, labels={**value.labels, HOSTNAME: value.name})
    if PODS not in value.allocatable:
        found.notes["node", f"taken to hold {PODS_DEFAULT} pods: no number stated"] += 1
        value = replace(value, allocatable={**value.allocatable, PODS: PODS_DEFAULT})
    _refuse_huge(body.at("status"), value.allocatable)
    found.nodes[value.name] = value


def _take_pod(found: Inputs, document: InputDocument) -> None:
    use = pod_use(document.body)
    if use is not None:
        _refuse_huge(document.body.at("spec"), use.amounts)
        found.uses.append(use)


def _take_topology(found: Inputs, document: InputDocument) -> None:
    value = topology(document.body)
    if value is not None:
        found.topologies.append(value)


def _take_flavor(found: Inputs, document: InputDocument) -> None:
    found.flavors.append(flavor(document.body))


def _take_zones(found: Inputs, document: InputDocument) -> None:
    """As a scheduler does: what makes no sense is told, and taken as not said."""
    try:
        report, problems = node_zones(msgspec.convert(document.body.value, NodeTopologyWire, strict=False))
    except msgspec.ValidationError as wrong:
        document.body.error(str(wrong), value=None)
        return
    found.zones[report.node] = report
    for problem in problems:
        found.notes["report", f"of zones, of node {report.node}: {problem}"] += 1


def _take_workload(found: Inputs, document: InputDocument) -> None:
    if is_settled(document.body):
        found.notes["Workload", "not placed again: admitted or finished already"] += 1
    else:
        _add_gang(found, document, workload_gang(document.body))


def _take_job(found: Inputs, document: InputDocument) -> None:
    gang = job_gang(document.body)
    count = copies(document.body)
    for index in range(min(count, COPIES_MAX)):
        name = gang.source.name if count == 1 else f"{gang.source.name}-{index}"
        _add_gang(found, document, replace(gang, source=replace(gang.source, name=name)))


def _add_gang(found: Inputs, document: InputDocument, gang: Gang) -> None:
    for pod_set in gang.root.pod_sets():
        _refuse_huge(document.body.at("spec"), pod_set.requests)
    if not gang.source.name:
        found.notes["gang", "without a name"] += 1
        gang = replace(gang, source=replace(gang.source, name=f"unnamed-{len(found.gangs) + 1}"))
    found.gangs.append((document, gang))


def _refuse_twins(found: Inputs, document: InputDocument) -> None:
    metadata = document.body.at("metadata")
    name = metadata.at("name")
    if not name.text():
        return
    key = (document.kind, metadata.at("namespace").text("default"), name.text())
    first = found.seen.setdefault(key, document)
    if first is not document:
        name.error(f"is the name of another {document.kind} too, in {first.file} line {first.line}")


def _refuse_shared_hostnames(found: Inputs) -> None:
    owners: dict[str, str] = {}
    for value in found.nodes.values():
        owner = owners.setdefault(value.labels[HOSTNAME], value.name)
        if owner != value.name:
            why = f"label {HOSTNAME} is {value.labels[HOSTNAME]}, as on node {owner}"
            found.problems.append(InputProblem("", f"Node {value.name}", why))


def _refuse_huge(where: Field, amounts: Mapping[str, int]) -> None:
    for resource, amount in amounts.items():
        if amount > AMOUNT_MAX:
            where.derived(amount, f"{where.path}: {resource}").error("is more than 2^53, the largest amount")


def _refuse_overload(found: Inputs) -> None:
    """Sums must stay exact, too."""
    total: Counter[tuple[str, str]] = Counter()
    for use in found.uses:
        for resource, amount in use.amounts.items():
            total[use.node, resource] += amount
    for (name, resource), amount in total.items():
        if amount > AMOUNT_MAX:
            found.problems.append(InputProblem("", f"Node {name}", f"its pods use {amount} of {resource}"))


_READERS: dict[str, tuple[str, Callable[[Inputs, InputDocument], None]]] = {
    "Node": ("", _take_node),
    "Pod": ("", _take_pod),
    "Topology": (_FAMILY, _take_topology),
    "ResourceFlavor": (_FAMILY, _take_flavor),
    "Workload": (_FAMILY, _take_workload),
    "NodeResourceTopology": (GROUP, _take_zones),
}
