"""Whatever happens to pods, watches, writes and to us: no slot is used twice, and in the end none is idle."""

from __future__ import annotations

from collections import Counter
from copy import deepcopy
from dataclasses import dataclass, field
from random import Random
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from bayplan.dialects.api import Ended, Event, Happened, Write, WriteOutcome
from bayplan.dialects.kube.decode.wire import PODS_KIND
from bayplan.dialects.kueue.names.api_kinds import WORKLOADS
from bayplan.model.node import HOSTNAME
from bayplan.runtime.controllers.ungating import RETRY_SECONDS, UngatingController
from tests.support.gated_gangs import INDEX, RANKED, assigned_gang, gang_pod, wire

Object = dict[str, Any]
HOSTS = (("x1", 1), ("x2", 1), ("x3", 2), ("x4", 1), ("x1", 1))
SLOTS = [host for host, count in HOSTS for _ in range(count)]

SCRIPTS = st.integers(0, 2**32).map(lambda seed: script(Random(seed)))
ENDS = ("done",) * 6 + ("lost", "unheard", "refused", "conflict")


def script(random: Random) -> list[tuple[str, Any]]:
    """What happens, in a long row: drawn by seed, for nothing goes wrong until much has happened."""
    rank = range(len(SLOTS))
    kinds: dict[str, tuple[int, Any]] = {
        "create": (12, rank),
        "fail": (2, rank),
        "delete": (2, rank),
        "vanish": (2, rank),
        "watch": (12, range(1, 4)),
        "write": (12, ENDS),
        "round": (12, (0, 1, 1, 6)),
        "restart": (1, (0,)),
    }
    names = random.choices(list(kinds), [weight for weight, _ in kinds.values()], k=random.randrange(150))
    return [(name, random.choice(kinds[name][1])) for name in names]


@dataclass
class World:
    """Pods as the API has them, a watch that lags, writes on their way, and the role between them."""

    ranked: bool
    role: UngatingController = field(default_factory=UngatingController)
    pods: dict[str, Object] = field(default_factory=dict)
    lag: list[Event] = field(default_factory=list)
    writes: list[Write] = field(default_factory=list)
    now: float = 1000.0
    made: int = 0

    def __post_init__(self) -> None:
        self.workload = assigned_gang(*HOSTS, request=RANKED if self.ranked else {})
        self.restart()

    def restart(self) -> None:
        """Another one takes over, and has nothing but what the API tells it."""
        self.role, self.lag, self.writes = UngatingController(), [], []
        self.hear(Event(Happened.SEEN, WORKLOADS, self.workload))
        for obj in self.pods.values():
            self.hear(Event(Happened.SEEN, PODS_KIND, wire(obj)))

    def hear(self, event: Event) -> None:
        list(self.role.decode(event))

    def step(self, what: str, how: Any) -> None:
        match what:
            case "create" if not self.living(how):
                self.made += 1
                name = f"p{how}-{self.made}"
                self.change(name, gang_pod(name, how, uid=str(self.made)))
            case "fail":
                for name in self.living(how):
                    self.change(name, {**self.pods[name], "status": {"phase": "Failed"}})
            case "delete":
                for name in self.living(how):
                    meta = {**self.pods[name]["metadata"], "deletionTimestamp": "2027-01-15T08:01:00Z"}
                    self.change(name, {**self.pods[name], "metadata": meta})
            case "vanish":
                for name in [name for name in self.pods if name.startswith(f"p{how}-")]:
                    self.lag.append(Event(Happened.GONE, PODS_KIND, wire(self.pods.pop(name))))
            case "watch":
                for _ in range(min(how, len(self.lag))):
                    self.hear(self.lag.pop(0))
            case "write" if self.writes:
                self.write(self.writes.pop(0), how)
            case "round":
                self.now += how
                self.writes += self.role.reconcile(self.now)
            case "restart":
                self.restart()

    def living(self, rank: int) -> list[str]:
        return [
            name
            for name, obj in self.pods.items()
            if obj["metadata"]["labels"][INDEX] == str(rank) and lives(obj)
        ]

    def change(self, name: str, obj: Object) -> None:
        self.pods[name] = obj
        self.lag.append(Event(Happened.SEEN, PODS_KIND, wire(obj)))

    def write(self, write: Write, how: str) -> None:
        """The write happens or not, and its end is heard of or not."""
        known = self.pods.get(write.name)
        ended = Ended.GONE if known is None or known["metadata"]["uid"] != write.uid else Ended.DONE
        if ended is Ended.DONE and how in ("done", "unheard"):
            assert known is not None
            obj = deepcopy(known)
            old = obj["spec"].get("nodeSelector")
            assert old in (None, write.body["spec"]["nodeSelector"]), "a pod was sent to two places"
            obj["spec"] = {**obj["spec"], **write.body["spec"]}
            self.change(write.name, obj)
        elif ended is Ended.DONE:
            ended = {"refused": Ended.REFUSED, "conflict": Ended.CONFLICT}.get(how, Ended.TIMED_OUT)
        if how in ("lost", "unheard") and ended is not Ended.GONE:
            ended = Ended.TIMED_OUT
        list(self.role.on_outcome(WriteOutcome(write, ended), self.now))

    def check(self) -> None:
        """No slot has two living pods, and a rank is where it belongs."""
        held = Counter(selected_host(obj) for obj in self.pods.values() if lives(obj) and selected_host(obj))
        assert not held - Counter(SLOTS)
        for obj in self.pods.values() if self.ranked else ():
            if selected_host(obj):
                assert selected_host(obj) == SLOTS[int(obj["metadata"]["labels"][INDEX])]

    def calm_down(self) -> None:
        """Everything arrives, and time passes."""
        for _ in range(6):
            self.step("watch", len(self.lag))
            self.step("round", RETRY_SECONDS + 1)
            while self.writes:
                self.step("write", "done")
                self.check()


def lives(obj: Object) -> bool:
    return obj["status"]["phase"] == "Pending" and "deletionTimestamp" not in obj["metadata"]


def selected_host(obj: Object) -> str:
    return str((obj["spec"].get("nodeSelector") or {}).get(HOSTNAME, ""))


@given(ranked=st.booleans(), steps=SCRIPTS)
def test_no_slot_is_used_twice_and_none_stays_idle(ranked: bool, steps: list[tuple[str, Any]]) -> None:
    world = World(ranked)
    for what, how in steps:
        world.step(what, how)
        world.check()
    world.calm_down()
    assert all(selected_host(obj) for obj in world.pods.values() if lives(obj)), "a pod is gated for ever"
    for rank in range(len(SLOTS)):
        world.step("create", rank)
    world.calm_down()
    assert Counter(selected_host(obj) for obj in world.pods.values() if lives(obj)) == Counter(SLOTS)


@given(steps=SCRIPTS)
def test_the_role_rests_when_there_is_nothing_to_do(steps: list[tuple[str, Any]]) -> None:
    world = World(ranked=True)
    for what, how in steps:
        world.step(what, how)
    world.calm_down()
    world.step("round", 100)
    assert world.writes == [] and world.role.next_due(world.now) == float("inf")
