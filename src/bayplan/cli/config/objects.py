"""The objects of the input files, decoded: nodes, pods, topologies, flavors and gangs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace

import msgspec

from bayplan.cli.config import device_inputs
from bayplan.cli.config.device_inputs import DeviceInputs, template_claims
from bayplan.cli.config.read_files import InputDocument, InputProblem
from bayplan.dialects.jobs.kinds import copies, is_known, parts
from bayplan.dialects.jobs.part import find_nothing
from bayplan.dialects.kube.decode.node_fields import node
from bayplan.dialects.kube.decode.pod_fields import PodUsage, usage_of
from bayplan.dialects.kube.fields.reader import Field
from bayplan.dialects.kueue.fields.claim_requests import PodClaim
from bayplan.dialects.kueue.fields.job_gang import job_gang
from bayplan.dialects.kueue.fields.topology_and_flavor import flavor, topology
from bayplan.dialects.kueue.fields.workload import needs_no_placement, workload_gang
from bayplan.dialects.nrt.topologies import node_zones
from bayplan.dialects.nrt.wire import GROUP, NodeTopologyWire
from bayplan.model.gang import Gang
from bayplan.model.node import HOSTNAME, PODS, Node, Topology
from bayplan.model.numa import NodeZones
from bayplan.model.quota import Flavor

PODS_DEFAULT = 110  # the default of a kubelet
AMOUNT_MAX = 2**53
COPIES_MAX = 1000  # replicas of one object that are placed
_FAMILY = "kueue.x-k8s.io"


@dataclass(slots=True)
class Inputs:
    """Everything decoded so far."""

    nodes: dict[str, Node] = field(default_factory=dict)
    uses: list[PodUsage] = field(default_factory=list)
    topologies: list[Topology] = field(default_factory=list)
    flavors: list[Flavor] = field(default_factory=list)
    zones: dict[str, NodeZones] = field(default_factory=dict)  # by node
    gangs: list[tuple[InputDocument, Gang]] = field(default_factory=list)
    devices: DeviceInputs = field(default_factory=DeviceInputs)
    notes: Counter[tuple[str, str]] = field(default_factory=Counter)  # (noun, remark) → how many
    problems: list[InputProblem] = field(default_factory=list)
    seen: dict[tuple[str, ...], InputDocument] = field(default_factory=dict)


def gather(documents: Iterable[InputDocument]) -> Inputs:
    """Decode all documents, and collect their problems."""
    inputs = Inputs()
    for document in documents:
        add = _reader(document)
        if add is not None:
            _reject_twins(inputs, document)
            add(inputs, document)
        elif not document.kind and not document.body.errors:
            document.body.at("kind").error("must be set")
        elif document.kind:
            inputs.notes["object", f"of kind {document.kind} not used"] += 1
        inputs.problems += [
            InputProblem(document.file, title(document), str(error)) for error in document.body.errors
        ]
    _reject_shared_hostnames(inputs)
    _reject_overload(inputs)
    return inputs


def title(document: InputDocument) -> str:
    """A title for an object: the line of its document, kind and name."""
    metadata = document.body.value.get("metadata") if isinstance(document.body.value, dict) else None
    name = metadata.get("name") if isinstance(metadata, dict) else None
    shown = f"{document.kind or 'object'} {name}" if isinstance(name, str) else document.kind or "object"
    return f"line {document.line}, {shown}" if document.line else shown


def _reader(document: InputDocument) -> Callable[[Inputs, InputDocument], None] | None:
    if document.kind not in _READERS and is_known(document.body):
        return _add_job
    group, add = _READERS.get(document.kind, ("", None))
    version = document.body.at("apiVersion").text()
    own = version.partition("/")[0] if "/" in version else ""
    return add if add and (not version or own == group) else None


def _add_node(inputs: Inputs, document: InputDocument) -> None:
    body = document.body
    value = node(body)
    if not body.at("status", "conditions").present:
        inputs.notes["node", "assumed to be ready: it has no conditions"] += 1
        value = replace(value, ready=True)
    if HOSTNAME not in value.labels:
        inputs.notes["node", f"identified by name: it has no label {HOSTNAME}"] += 1
        value = replace(value, labels={**value.labels, HOSTNAME: value.name})
    if PODS not in value.allocatable:
        inputs.notes["node", f"assumed to hold {PODS_DEFAULT} pods: it has no pod capacity"] += 1
        value = replace(value, allocatable={**value.allocatable, PODS: PODS_DEFAULT})
    _reject_huge(body.at("status"), value.allocatable)
    inputs.nodes[value.name] = value


def _add_pod(inputs: Inputs, document: InputDocument) -> None:
    use = usage_of(document.body)
    if use is not None:
        _reject_huge(document.body.at("spec"), use.amounts)
        inputs.uses.append(use)


def _add_topology(inputs: Inputs, document: InputDocument) -> None:
    value = topology(document.body)
    if value is not None:
        inputs.topologies.append(value)


def _add_flavor(inputs: Inputs, document: InputDocument) -> None:
    inputs.flavors.append(flavor(document.body))


def _add_zones(inputs: Inputs, document: InputDocument) -> None:
    """As the scheduler does: invalid fields are noted and ignored."""
    try:
        report, problems = node_zones(msgspec.convert(document.body.value, NodeTopologyWire, strict=False))
    except msgspec.ValidationError as error:
        document.body.error(str(error), value=None)
        return
    inputs.zones[report.node] = report
    for problem in problems:
        inputs.notes["report", f"of NUMA zones, of node {report.node}: {problem}"] += 1


def _add_workload(inputs: Inputs, document: InputDocument) -> None:
    if needs_no_placement(document.body):
        inputs.notes["Workload", "not placed again: admitted or finished already"] += 1
    else:
        pod_sets = document.body.at("spec", "podSets").items()
        templates = ((one.at("name").text(), one.at("template")) for one in pod_sets)
        _add_gang(inputs, document, workload_gang(document.body), template_claims(templates))


def _add_job(inputs: Inputs, document: InputDocument) -> None:
    gang = job_gang(document.body)
    count = copies(document.body)
    claims = template_claims((part.name, part.template) for part in parts(document.body, find_nothing))
    for index in range(min(count, COPIES_MAX)):
        name = gang.source.name if count == 1 else f"{gang.source.name}-{index}"
        _add_gang(inputs, document, replace(gang, source=replace(gang.source, name=name)), claims)


def _add_device_object(inputs: Inputs, document: InputDocument) -> None:
    inputs.devices.add(document)


def _add_gang(inputs: Inputs, document: InputDocument, gang: Gang, claims: tuple[PodClaim, ...]) -> None:
    for pod_set in gang.root.pod_sets():
        _reject_huge(document.body.at("spec"), pod_set.requests)
    if not gang.source.name:
        inputs.notes["gang", "without a name"] += 1
        gang = replace(gang, source=replace(gang.source, name=f"unnamed-{len(inputs.gangs) + 1}"))
    inputs.gangs.append((document, gang))
    inputs.devices.entries[gang.source] = claims


def _reject_twins(inputs: Inputs, document: InputDocument) -> None:
    metadata = document.body.at("metadata")
    name = metadata.at("name")
    if not name.text():
        return
    key = (document.kind, metadata.at("namespace").text("default"), name.text())
    first = inputs.seen.setdefault(key, document)
    if first is not document:
        name.error(f"is also the name of another {document.kind}, in {first.file} line {first.line}")


def _reject_shared_hostnames(inputs: Inputs) -> None:
    owners: dict[str, str] = {}
    for value in inputs.nodes.values():
        owner = owners.setdefault(value.labels[HOSTNAME], value.name)
        if owner != value.name:
            why = f"label {HOSTNAME} is {value.labels[HOSTNAME]}, as on node {owner}"
            inputs.problems.append(InputProblem("", f"Node {value.name}", why))


def _reject_huge(where: Field, amounts: Mapping[str, int]) -> None:
    for resource, amount in amounts.items():
        if amount > AMOUNT_MAX:
            where.derived(amount, f"{where.path}: {resource}").error("is more than 2^53, the largest amount")


def _reject_overload(inputs: Inputs) -> None:
    """Reject sums that are too large to be exact."""
    total: Counter[tuple[str, str]] = Counter()
    for use in inputs.uses:
        for resource, amount in use.amounts.items():
            total[use.node, resource] += amount
    for (name, resource), amount in total.items():
        if amount > AMOUNT_MAX:
            inputs.problems.append(InputProblem("", f"Node {name}", f"its pods use {amount} of {resource}"))


_READERS: dict[str, tuple[str, Callable[[Inputs, InputDocument], None]]] = {
    "Node": ("", _add_node),
    "Pod": ("", _add_pod),
    "Topology": (_FAMILY, _add_topology),
    "ResourceFlavor": (_FAMILY, _add_flavor),
    "Workload": (_FAMILY, _add_workload),
    "NodeResourceTopology": (GROUP, _add_zones),
    **dict.fromkeys(device_inputs.KINDS, (device_inputs.GROUP, _add_device_object)),
}
