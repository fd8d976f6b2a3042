"""What room `bayplan defragment` is asked for: a gang in words, a pending gang by name, or a whole domain."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace

import click

from bayplan.cli.live.find_gang import find_workload, parse_query
from bayplan.cli.live.scheduled_explanation import find_scheduled
from bayplan.cli.live.scheduled_state import Scheduled
from bayplan.cli.live.state import Live
from bayplan.cli.planning.movable_gangs import gang_name, level_path, queued_signature
from bayplan.dialects.kube.fields.closest_name import closest
from bayplan.explanation.text import counted, short_levels, short_resources
from bayplan.model.gang import GangSpec, Ref
from bayplan.model.node import HOSTNAME, PODS
from bayplan.model.pod import Pod, PodKey
from bayplan.model.pod_spec import PodSignature, PodSpec
from bayplan.model.queued_gang import QueuedGang
from bayplan.scheduling.defragment.cost import is_accelerator
from bayplan.scheduling.defragment.problem import RoomRequest, required_level
from bayplan.simulation.traces.workload import equal_pods

FORM = "'gang of 64 gpu in one rack', 'gang of 8 x 4 gpu in one block', or the name of a pending gang"
PODS_MAX = 100_000
_WORDS = re.compile(
    r"(?:a )?gang of (?:(?P<pods>\d{1,6}) ?x ?)?(?P<amount>\d{1,9}) (?P<resource>[\w./-]+)"
    r"(?: in one (?P<level>\S+))?"
)


@dataclass(frozen=True, slots=True)
class WantedRoom:
    """The request, its sentence for people, and the priority up to which gangs move for it (None: any)."""

    request: RoomRequest
    title: str
    priority: int | None = None
    pending: Ref | None = None  # the gang that waits for it, if it exists


def room_for(live: Live, scheduled: Scheduled, text: str) -> WantedRoom:
    """The room that `--for` asks for."""
    match = _WORDS.fullmatch(" ".join(text.split()))
    if match is None:
        if text.strip().startswith(("gang of", "a gang of")):
            raise click.ClickException(f"--for {text[:80]!r} is not understood; give it as {FORM}")
        return _pending(live, scheduled, text)
    resource = _resource(scheduled, match["resource"])
    amount, most = int(match["amount"]), _most(scheduled, resource)
    if match["pods"]:
        pods, each = int(match["pods"]), amount
    else:
        pods, each = equal_pods(max(amount, 1), max(most, 1))
    if not amount or not pods or pods > PODS_MAX:
        raise click.ClickException(f"--for {text[:80]!r}: give a gang of 1 to {PODS_MAX:,} pods")
    if each > most:
        raise click.ClickException(
            f"--for {text[:80]!r}: a pod of {each} {match['resource']} fits no node; the largest has {most}"
        )
    return _of_words(scheduled, resource, pods, each, match["level"] or "")


def room_in(scheduled: Scheduled, level: str) -> WantedRoom:
    """The room that `--level` asks for: as much as the largest domain of the level has when it is empty."""
    path = _level(scheduled, level, "--level")
    resource, by_domain = _resource(scheduled, "gpu"), dict[tuple[str, ...], list[int]]()
    for node in scheduled.controller.state.store.nodes.by_name.values():
        amount = node.allocatable.get(resource, 0)
        if amount and node.ready and node.schedulable and all(one in node.labels for one in path):
            by_domain.setdefault(tuple(node.labels[one] for one in path), []).append(amount)
    if not by_domain:
        raise click.ClickException(f"--level {level}: no node with {resource} has the labels of this level")
    hosts = max(by_domain.values(), key=lambda amounts: (sum(amounts), len(amounts)))
    wanted = _of_words(scheduled, resource, len(hosts), min(hosts), level)
    word = short_levels(path)[path[-1]]
    return replace(wanted, title=f"an empty {word}: {wanted.title}")


def _of_words(scheduled: Scheduled, resource: str, pods: int, each: int, level: str) -> WantedRoom:
    path = _level(scheduled, level, "--for") if level else ()
    short = short_resources([resource])[resource]
    within = f" in one {short_levels(path)[path[-1]]}" if path else ""
    title = f"{counted(pods, 'pod')} of {each} {short}{within}"
    return WantedRoom(RoomRequest(GangSpec(WANTED, pods), _pods(pods, {resource: each}), path), title)


WANTED = Ref("", "Gang", "", "wanted")


def _pods(count: int, requests: Mapping[str, int]) -> tuple[Pod, ...]:
    amounts = {**requests, PODS: 1}
    spec = PodSpec(PodSignature(amounts=tuple(sorted(amounts.items()))))
    return tuple(
        Pod(PodKey("", f"wanted {rank}"), f"wanted-{rank}", amounts, gang=WANTED, rank=rank, spec=spec)
        for rank in range(count)
    )


def _resource(scheduled: Scheduled, word: str) -> str:
    nodes = scheduled.controller.state.store.nodes.by_name.values()
    known = sorted({name for node in nodes for name, amount in node.allocatable.items() if amount})
    devices = [name for name in known if is_accelerator(name)]
    if word in known:
        return word
    ends = [name for name in devices if name.rpartition("/")[2] in (word, word.removesuffix("s"))]
    if not ends and word in ("gpu", "gpus"):
        ends = devices
    if not ends:
        near = closest(word, known)
        hint = f"; did you mean {near}?" if near else f"; they have {', '.join(known) or 'nothing'}"
        raise click.ClickException(f"no node has the resource {word}{hint}")
    return ends[0]


def _most(scheduled: Scheduled, resource: str) -> int:
    nodes = scheduled.controller.state.store.nodes.by_name.values()
    return max((node.allocatable.get(resource, 0) for node in nodes), default=0)


def _level(scheduled: Scheduled, word: str, option: str) -> tuple[str, ...]:
    """The labels of a level and of those above it."""
    topologies, known = scheduled.levels(), list[str]()
    for levels in topologies.values():
        short = short_levels(levels)
        for at, level in enumerate(levels):
            if word in (level, short[level]):
                return levels[: at + 1]
            known += [short[level]]
    if word in ("host", HOSTNAME):
        return (HOSTNAME,)
    labels = sorted({key for one in scheduled.labels.values() for key in one})
    found = next((key for key in labels if word in (key, short_levels([key])[key])), "")
    if found:
        return (found,)
    names = list(dict.fromkeys(known)) or labels
    near = closest(word, names)
    hint = f"did you mean {near}?" if near else f"levels are {', '.join(names) or 'not defined'}"
    raise click.ClickException(f"{option}: there is no level {word}; {hint}")


def _pending(live: Live, scheduled: Scheduled, text: str) -> WantedRoom:
    """The room for a gang that waits."""
    query = parse_query(live, text)
    ref = find_workload(live, query) if not live.no_queues else None
    if ref is not None:
        entry = live.state.pending.entries.get(ref)
        if entry is None or entry.queued_gang.admission is not None:
            raise click.ClickException(f"--for {text}: {gang_name(ref)} does not wait for room")
        return _queued(live, scheduled, entry.queued_gang, entry.queue)
    found = find_scheduled(live, scheduled, query)
    refs = [one for one in found.gangs if scheduled.controller.state.pending(one)]
    if not refs:
        raise click.ClickException(f"--for {text}: {query} does not wait for room")
    state, ref = scheduled.controller.state, refs[0]
    spec = state.spec_of(ref) or GangSpec(ref)
    pods = state.pending(ref)
    level = required_level(spec)
    levels = () if not level else (level,) if spec.tree is None else level_path(scheduled.levels(), level)
    priority = spec.priority if spec.priority is not None else max(pod.spec.priority for pod in pods)
    title = f"{ref.kind} {gang_name(ref)}, {counted(len(pods), 'pod')}"
    return WantedRoom(RoomRequest(spec, pods, levels), title, priority, ref)


def _queued(live: Live, scheduled: Scheduled, queued: QueuedGang, queue: str) -> WantedRoom:
    """A gang in a queue, on the nodes of the first flavor of its queue that has a topology."""
    ref, rules = queued.gang.source, live.state.config.queues.get(queue)
    named = rules.flavors() if rules is not None else ()
    known = [live.state.config.flavors[one] for one in named if one in live.state.config.flavors]
    flavor = next((one for one in known if one.topology in scheduled.levels()), None)
    if flavor is None:
        raise click.ClickException(f"--for {gang_name(ref)}: its queue has no flavor with a topology")
    pods = []
    for pod_set in queued.gang.root.pod_sets():
        amounts = {**pod_set.requests, PODS: 1}
        for rank in range(pod_set.count):
            key = PodKey(ref.namespace, f"{ref.name} {pod_set.name} {rank}")
            pod = Pod(
                key, f"{ref.name}-{pod_set.name}-{rank}", amounts, gang=ref, pod_set=pod_set.name, rank=rank
            )
            shape = queued_signature(pod_set, pod, [flavor])
            pods.append(replace(pod, spec=PodSpec(shape, queued.gang.priority)))
    if not pods:
        raise click.ClickException(f"--for {gang_name(ref)}: it has no pods")
    spec = GangSpec(
        ref, len(pods), priority=queued.gang.priority, tree=queued.gang.root, topology=flavor.topology
    )
    level = required_level(spec)
    levels = level_path(scheduled.levels(), level, flavor.topology) if level else ()
    title = f"Workload {gang_name(ref)}, {counted(len(pods), 'pod')}"
    return WantedRoom(RoomRequest(spec, tuple(pods), levels), title, queued.gang.priority, ref)
