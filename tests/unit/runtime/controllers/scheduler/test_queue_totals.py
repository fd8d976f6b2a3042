"""The status of a queue: the sum of the groups in it and below it, kept as groups and queues come and go."""

from __future__ import annotations

import sys
from collections.abc import Callable
from types import FrameType
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from bayplan.dialects.api import Ended, Event, Happened, WriteOutcome
from bayplan.dialects.kai.api.names import DIALECT, POD_GROUP, QUEUE
from bayplan.dialects.kai.api.queues import ancestors
from bayplan.dialects.kai.api.wire import (
    KaiPodGroupWire,
    PodGroupSpecWire,
    QueueSpecWire,
    QueueStatusWire,
    QueueWire,
)
from bayplan.dialects.kai.decode.events import GroupDecoder
from bayplan.dialects.kai.decode.group_statuses import GroupStatuses
from bayplan.dialects.kube.decode.wire import Metadata
from bayplan.model.change import PodLost, PodSeen
from bayplan.model.gang import Ref
from bayplan.model.pod import Pod, PodKey
from bayplan.runtime.controllers.scheduler.object_status import StatusWriter


class Writer:
    """The status writer with what it wrote last to each queue."""

    def __init__(self) -> None:
        self.decoder = GroupDecoder()
        self.source = GroupStatuses(self.decoder)
        self.statuses = StatusWriter(self.source)
        self.now = 0.0
        self.written: dict[str, dict[str, str]] = {}

    def queue(self, name: str, parent: str, happened: Happened = Happened.SEEN) -> None:
        status = QueueStatusWire(requested=dict(self.written.get(name, {})))
        found = QueueWire(Metadata(name=name, uid=name), QueueSpecWire(parent_queue=parent), status)
        list(self.decoder.decode(Event(happened, QUEUE, found)))

    def group(self, name: str, queue: str, happened: Happened = Happened.SEEN) -> None:
        meta = Metadata(name=name, namespace="ns", uid=name)
        found = KaiPodGroupWire(meta, PodGroupSpecWire(queue=queue, min_member=1))
        list(self.decoder.decode(Event(happened, POD_GROUP, found)))

    def pod(self, name: str, cpu: int) -> None:
        """The only pod of a group; it uses this much."""
        gang = Ref(DIALECT, POD_GROUP.kind, "ns", name)
        found = Pod(PodKey("ns", name), name, {"cpu": cpu}, node="n", gang=gang)
        list(self.decoder.position_pods([PodSeen(found)]))

    def without_pod(self, name: str) -> None:
        list(self.decoder.position_pods([PodLost(PodKey("ns", name))]))

    def run(self) -> None:
        list(self.decoder.flush())
        for _ in range(40):
            self.now += 5.0
            writes = list(self.statuses.keep(self.now))
            for write in writes:
                if write.kind == QUEUE:
                    amounts = write.body["status"]["requested"]
                    self.written[write.name] = {key: value for key, value in amounts.items() if value}
                    self.queue(write.name, self.decoder.parents[write.name])  # as the watch reports it
                self.statuses.ended(WriteOutcome(write, Ended.DONE), self.now)
            if not writes and self.statuses.next_due() == float("inf"):
                return


def opcodes(work: Callable[[], None]) -> int:
    """How many instructions of Python a call runs."""
    count = 0

    def trace(frame: FrameType, event: str, argument: object) -> Any:
        nonlocal count
        frame.f_trace_opcodes = True
        count += event == "opcode"
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        work()
    finally:
        sys.settrace(before)
    return count


def test_writing_the_status_of_a_queue_does_not_read_the_groups_of_other_queues() -> None:
    writer = Writer()
    writer.queue("small", "")
    writer.queue("large", "")
    writer.group("alone", "small")

    def change(cpu: int) -> int:
        writer.pod("alone", cpu)
        return opcodes(writer.run)

    change(1000)
    alone = change(2000)
    for number in range(300):
        writer.group(f"g{number}", "large")
        writer.pod(f"g{number}", 1000)
    writer.run()
    assert change(3000) == alone
    assert writer.written == {"small": {"cpu": "3"}, "large": {"cpu": "300"}}


QUEUES, GROUPS = ["a", "b", "c", "d"], ["g", "h", "i"]
steps = st.one_of(
    st.tuples(st.just("queue"), st.sampled_from(QUEUES), st.sampled_from(["", *QUEUES])),
    st.tuples(st.just("no queue"), st.sampled_from(QUEUES)),
    st.tuples(st.just("group"), st.sampled_from(GROUPS), st.sampled_from(QUEUES)),
    st.tuples(st.just("no group"), st.sampled_from(GROUPS)),
    st.tuples(st.just("pod"), st.sampled_from(GROUPS), st.integers(1, 5)),
    st.tuples(st.just("no pod"), st.sampled_from(GROUPS)),
)


@settings(max_examples=60, deadline=None)
@given(st.lists(st.tuples(steps, st.booleans()), max_size=25))
def test_the_totals_of_queues_are_those_of_the_groups_below_them(
    script: list[tuple[tuple[object, ...], bool]],
) -> None:
    writer = Writer()
    parents: dict[str, str] = {}
    queue_of: dict[str, str] = {}
    cpus: dict[str, int] = {}
    for step, settle in script:
        match step:
            case ("queue", str(name), str(parent)):
                writer.queue(name, parent)
                parents[name] = parent
            case ("no queue", str(name)) if name in parents:
                writer.queue(name, parents.pop(name), Happened.GONE)
                writer.written.pop(name, None)
            case ("group", str(name), str(queue)):
                writer.group(name, queue)
                queue_of[name] = queue
            case ("no group", str(name)) if name in queue_of:
                writer.group(name, queue_of.pop(name), Happened.GONE)
            case ("pod", str(name), int(cpu)):
                writer.pod(name, cpu * 1000)
                cpus[name] = cpu
            case ("no pod", str(name)) if name in cpus:
                writer.without_pod(name)
                del cpus[name]
        if settle:
            writer.run()
    writer.run()
    for name in parents:
        below = [
            cpu
            for group, cpu in cpus.items()
            if queue_of.get(group, "") in parents and name in ancestors(queue_of[group], parents)
        ]
        expected = {"cpu": str(sum(below))} if below else {}
        assert writer.written.get(name, {}) == expected, name
    if not cpus:
        assert not writer.source.totals
