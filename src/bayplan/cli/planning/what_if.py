"""What if: a cluster with changes that were not made, and the pending gangs that would start then."""

from __future__ import annotations

import copy
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import click
import msgspec

from bayplan.cli.live.find_gang import find_workload, parse_query, workload_of
from bayplan.cli.live.gang_explanation import decide_now
from bayplan.cli.live.gangs import named, outlook
from bayplan.cli.live.scheduled_explanation import find_scheduled
from bayplan.cli.live.scheduled_state import read_scheduled
from bayplan.cli.live.state import Live, Object, read
from bayplan.dialects.api import Kind
from bayplan.dialects.kube.decode.wire import NODES, PODS_KIND, ConditionWire, NodeSpecWire, NodeWire
from bayplan.dialects.kube.fields.closest_name import closest
from bayplan.dialects.kube.fields.quantity import amount
from bayplan.dialects.kueue.names import api_kinds
from bayplan.explanation.text import counted, short_levels, shown_name
from bayplan.model.gang import Ref
from bayplan.model.node import HOSTNAME
from bayplan.model.plan import Bind
from bayplan.model.pod import PodKey
from bayplan.state.admission.state import AdmissionState

GPU = "nvidia.com/gpu"
HOSTS_MAX = 100_000
OWN_TAINTS = "node.kubernetes.io/"
ADD = "'rack=b2/r9 hosts=8 gpu=8'"


@dataclass(frozen=True, slots=True)
class WhatIf:
    """Changes as given on the command line."""

    add: tuple[str, ...] = ()
    drain: tuple[str, ...] = ()
    set_quota: tuple[str, ...] = ()
    without: tuple[str, ...] = ()

    def __bool__(self) -> bool:
        return bool(self.add or self.drain or self.set_quota or self.without)


@dataclass(frozen=True, slots=True)
class ChangedCluster:
    """The cluster with all changes, and a sentence for each."""

    live: Live
    changes: tuple[str, ...]


def changed_cluster(live: Live, what: WhatIf) -> ChangedCluster:
    """Apply the changes to the objects that were listed, and read them again. Nothing is written."""
    draft = _Draft(live)
    for text in what.without:
        draft.remove_gang(text)
    for text in what.drain:
        draft.drain(text)
    for text in what.add:
        draft.add_hosts(text)
    for text in what.set_quota:
        draft.set_quota(text)
    made = replace(
        live,
        lists=draft.lists,
        events={},
        unapplied=[],
        workloads={},
        admission=AdmissionState(live.settings.numa_staleness),
    )
    read(made)
    return ChangedCluster(made, tuple(draft.changes))


def newly_started(before: Live, after: Live) -> tuple[list[str], int]:
    """The pending gangs that would start with the changes and not without, and how many others wait."""
    now, then = dict(_starting(before)), dict(_starting(after))
    found = sorted(name for name, starts in then.items() if starts and not now.get(name, False))
    return found, sum(not starts for starts in then.values())


def _starting(live: Live) -> Iterator[tuple[str, bool]]:
    """Every pending gang, and whether it would start now."""
    if not live.no_queues:
        seen = outlook(live)
        starts = set(seen.next)
        for one in seen.gangs:
            if one.queued_gang.admission is None and one.queued_gang.active:
                ref = one.queued_gang.gang.source
                job = one.owner.partition("/")[2]
                yield f"{ref.namespace}/{job}" if job else named(ref), ref in starts
    controller = read_scheduled(live).controller
    for entry in list(controller.state.entries()):
        if not controller.state.pending(entry.ref):
            continue
        plan = decide_now(controller, entry.ref, live.now)
        controller.assume(plan, live.now)
        yield _shown(entry.ref), any(isinstance(action, Bind) for action in plan.actions)


def _shown(ref: Ref) -> str:
    return f"{ref.namespace}/{shown_name(ref)}"


class _Draft:
    """The lists of objects, while changes are made to them."""

    def __init__(self, live: Live) -> None:
        self.live = live
        self.nodes: list[NodeWire] = list(live.listed(NODES))
        self.pods: list[Any] = list(live.listed(PODS_KIND))
        self.lists: dict[Kind, list[Any]] = {**live.lists, NODES: self.nodes, PODS_KIND: self.pods}
        self.changes: list[str] = []

    def drain(self, text: str) -> None:
        """A node and the pods on it are gone."""
        name = text.removeprefix("node/")
        if not any(node.metadata.name == name for node in self.nodes):
            raise _problem("--drain", text, f"there is no node {name}", [n.metadata.name for n in self.nodes])
        there = [pod for pod in self.pods if pod.spec.node_name == name]
        gangs = {ref for pod in there if (ref := workload_of(self.live, pod)) is not None}
        self._keep(self.nodes, lambda node: node.metadata.name != name)
        self._keep(self.pods, lambda pod: pod.spec.node_name != name)
        lost = f"; queued gangs that lose pods: {', '.join(sorted(map(named, gangs)))}" if gangs else ""
        self.changes.append(f"node {name} drained: {counted(len(there), 'pod')} removed{lost}")

    def remove_gang(self, text: str) -> None:
        """A gang and its pods are gone."""
        query = parse_query(self.live, text.removeprefix("gang/"))
        ref = find_workload(self.live, query)
        before = len(self.pods)
        if ref is not None:
            for kind, objects in self.lists.items():
                if kind.kind == api_kinds.WORKLOADS.kind:
                    self.lists[kind] = [one for one in objects if not _is_object(one, ref)]
            self._keep(self.pods, lambda pod: workload_of(self.live, pod) != ref)
        else:
            scheduled = read_scheduled(self.live)
            found = find_scheduled(self.live, scheduled, query)
            members = scheduled.controller.state.store.members
            keys = {*found.pods, *(key for gang in found.gangs for key in members.get(gang, ()))}
            self._keep(self.pods, lambda pod: _key(pod) not in keys)
        self.changes.append(f"without {query}: {counted(before - len(self.pods), 'pod')} removed")

    def add_hosts(self, text: str) -> None:
        """New hosts in a domain, like one that is near."""
        amounts = dict(part.partition("=")[::2] for part in text.split())
        if not amounts or not all(amounts.values()) or text.count("=") != len(text.split()):
            raise _problem("--add", text, f"give a domain and amounts of a host, such as {ADD}")
        word, path = next(iter(amounts.items()))
        del amounts[word]
        levels = self._levels(text, word, path)
        count = _whole(text, amounts.pop("hosts", "1"))
        like = amounts.pop("like", "")
        model = self._model(text, levels, path.split("/"), like)
        labels = dict(zip(levels, path.split("/"), strict=True))
        taken = {node.metadata.name for node in self.nodes}
        base = "-".join(path.split("/"))
        names = (f"{base}-new-{number}" for number in range(1, HOSTS_MAX + len(taken)))
        for name in [
            name for name, _ in zip((n for n in names if n not in taken), range(count), strict=False)
        ]:
            self.nodes.append(_host(model, name, labels, _resources(text, model, amounts)))
        shown = ", ".join(f"{key} {value}" for key, value in amounts.items())
        like_text = f"like {model.metadata.name}{f', with {shown}' if shown else ''}"
        self.changes.append(f"{word} {path}: {counted(count, 'host')} added, {like_text}")

    def set_quota(self, text: str) -> None:
        """Another nominal quota of a ClusterQueue."""
        path, _, value = text.partition("=")
        queue, _, rest = path.partition("/")
        if not (queue and rest and value):
            raise _problem("--set-quota", text, "give QUEUE/FLAVOR/RESOURCE=AMOUNT")
        try:
            amount(rest, value)
        except ValueError:
            raise _problem("--set-quota", text, f"{value} is no amount") from None
        names: list[str] = []
        for kind, objects in self.lists.items():
            if kind.kind == api_kinds.CLUSTER_QUEUES.kind:
                self.lists[kind] = edited = copy.deepcopy(objects)
                names += [str(one["metadata"]["name"]) for one in edited]
                for one in edited:
                    if one["metadata"]["name"] == queue:
                        self._edit(text, one, rest, value)
        if queue not in names:
            raise _problem("--set-quota", text, f"there is no ClusterQueue {queue}", names)

    def _edit(self, text: str, queue: Object, which: str, value: str) -> None:
        """Set the quota of `FLAVOR/RESOURCE`, or of a resource that one flavor has."""
        quotas = [
            (str(one.get("name", "")), quota)
            for group in queue.get("spec", {}).get("resourceGroups") or []
            for one in group.get("flavors") or []
            for quota in one.get("resources") or []
            if which in (quota.get("name"), f"{one.get('name')}/{quota.get('name')}")
        ]
        if len(quotas) != 1:
            flavors = ", ".join(name for name, _ in quotas)
            why = f"several flavors have {which}: {flavors}" if quotas else f"it has no quota for {which}"
            raise _problem("--set-quota", text, f"{why}; give QUEUE/FLAVOR/RESOURCE=AMOUNT")
        (flavor, quota), title = quotas[0], queue["metadata"]["name"]
        resource, before = quota["name"], quota.get("nominalQuota")
        self.changes.append(f"quota of {title} for {resource} of {flavor}: {before} to {value}")
        quota["nominalQuota"] = value

    def _levels(self, text: str, word: str, path: str) -> tuple[str, ...]:
        """The node labels of a path, from the top; the level must be the lowest above the host."""
        topologies = [
            tuple(level["nodeLabel"] for level in one["spec"]["levels"])
            for kind, objects in self.lists.items()
            if kind.kind == api_kinds.TOPOLOGIES.kind
            for one in objects
        ]
        known: list[str] = []
        for levels in topologies:
            above = tuple(level for level in levels if level != HOSTNAME)
            short = short_levels(levels)
            known += [short[level] for level in above]
            if above and word in (above[-1], short[above[-1]]):
                if len(path.split("/")) != len(above) or not all(path.split("/")):
                    wanted = "/".join(short[level].upper() for level in above)
                    raise _problem("--add", text, f"give the {word} as {word}={wanted}")
                return above
        raise _problem(
            "--add", text, f"no topology has {word} as its lowest level above the host", dict.fromkeys(known)
        )

    def _model(self, text: str, levels: Sequence[str], path: Sequence[str], like: str) -> NodeWire:
        """The node that new hosts are like: the one named, or one that is close."""
        if like:
            for node in self.nodes:
                if node.metadata.name == like:
                    return node
            raise _problem("--add", text, f"there is no node {like}", [n.metadata.name for n in self.nodes])

        def shared(node: NodeWire) -> int:
            labels = node.metadata.labels or {}
            if not all(level in labels for level in levels):
                return -1
            same = [labels[level] == value for level, value in zip(levels, path, strict=True)]
            return same.index(False) if False in same else len(same)

        if not self.nodes:
            raise _problem("--add", text, "the cluster has no node that new ones could be like")
        return min(self.nodes, key=lambda node: (-shared(node), node.metadata.name))

    @staticmethod
    def _keep(objects: list[Any], wanted: Any) -> None:
        objects[:] = [one for one in objects if wanted(one)]


def _host(model: NodeWire, name: str, labels: Mapping[str, str], resources: Mapping[str, Any]) -> NodeWire:
    taints = [one for one in model.spec.taints or () if not one.key.startswith(OWN_TAINTS)]
    return NodeWire(
        msgspec.structs.replace(
            model.metadata,
            name=name,
            uid=name,
            labels={**(model.metadata.labels or {}), **labels, HOSTNAME: name},
        ),
        NodeSpecWire(taints=taints or None),
        msgspec.structs.replace(
            model.status, allocatable=dict(resources), conditions=[ConditionWire("Ready", "True")]
        ),
    )


def _resources(text: str, model: NodeWire, amounts: Mapping[str, str]) -> dict[str, Any]:
    found: dict[str, Any] = dict(model.status.allocatable or {})
    for key, value in amounts.items():
        name = next((one for one in found if one.endswith("/gpu")), GPU) if key == "gpu" else key
        try:
            amount(name, value)
        except ValueError:
            raise _problem("--add", text, f"{value} is no amount of {key}") from None
        found[name] = value
    return found


def _whole(text: str, value: str) -> int:
    if not value.isdecimal() or not 1 <= int(value[:9]) <= HOSTS_MAX or len(value) > 6:
        raise _problem("--add", text, f"hosts is {value[:20]}; give 1 to {HOSTS_MAX:,}")
    return int(value)


def _problem(option: str, text: str, why: str, known: Iterable[str] = ()) -> click.ClickException:
    near = closest(text.partition("=")[0].removeprefix("node/").partition("/")[0], list(known))
    return click.ClickException(f"{option} {text}: {why}{f'; did you mean {near}?' if near else ''}")


def _is_object(one: Object, ref: Ref) -> bool:
    meta = one["metadata"]
    return (meta.get("namespace") or "default", meta["name"]) == (ref.namespace, ref.name)


def _key(pod: Any) -> PodKey:
    return PodKey(pod.metadata.namespace or "default", pod.metadata.name)
