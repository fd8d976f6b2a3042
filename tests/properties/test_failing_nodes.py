"""Whatever happens to nodes: gangs stay whole, nobody moves who need not, and in the end all is well."""

from __future__ import annotations

from collections import Counter

from hypothesis import given, settings
from hypothesis import strategies as st

from bayplan.model.profile import Profile
from tests.support.failing_nodes import LIMIT, PLAIN_NODES, PLAIN_PODS, World
from tests.support.queued_cluster import BLOCK, RACK, queued_workload, rack_node

HOSTS = {f"h{number + 1}": (f"b{number // 4 + 1}", f"r{number // 2 % 2 + 1}") for number in range(8)}
GPUS = 4
REASON = "Workload was evicted as there was no replacement for unhealthy node(s): "

Gang = tuple[int, int, str]  # pods, GPUs each, required level
gangs = st.lists(
    st.tuples(st.integers(1, 4), st.sampled_from([1, 2, 4]), st.sampled_from(["", RACK, BLOCK])),
    min_size=1,
    max_size=3,
)
deeds = st.lists(
    st.tuples(
        st.sampled_from(
            ["fail", "fail", "recover", "delete", "make", "cordon", "drain", "taint", "wait", "work"]
        ),
        st.sampled_from(sorted(HOSTS)),
    ),
    min_size=1,
    max_size=14,
)


class Drama:
    """A world with gangs, whose pods a job and a scheduler would make; and what is true of it at any time."""

    def __init__(self, asked: list[Gang], fast: bool) -> None:
        self.world = World(Profile(replace_fast=fast))
        self.asked = {f"g{number}": gang for number, gang in enumerate(asked)}
        for name, (pods, gpus, required) in self.asked.items():
            self.world.cluster.submit(queued_workload(name, pods, gpus, required=required))
            self.world.pass_time()
        self.made = 0
        self.work()
        self.before = {name: self.places(name) for name in self.asked}
        self.left = {name: self.evictions(name) for name in self.asked}
        self.troubled = self.trouble()

    # ── deeds ─────────────────────────────────────────────────────────────────────────────────────

    def do(self, deed: str, name: str) -> None:
        there = self.world.store.find(PLAIN_NODES, "", name) is not None
        match deed:
            case "wait":
                self.world.pass_time(LIMIT)
            case "work":
                self.work()
            case "make" if not there:
                self.world.store.create(PLAIN_NODES, rack_node(name, *HOSTS[name], {"gpu": "yes"}))
            case "delete" if there:
                self.world.delete(name)
            case "fail" if there:
                self.world.fail(name)
            case "recover" if there:
                self.recover(name)
            case "cordon" if there:
                self.world.change(name, {"unschedulable": True})
            case "drain" if there:
                self.world.drain(name)
            case "taint" if there:
                self.world.change(name, {"taints": [{"key": "hot", "effect": "NoSchedule"}]})
        self.world.pass_time()
        self.check()

    def recover(self, name: str) -> None:
        self.world.ready(name, "True")
        self.world.change(name, {"unschedulable": None, "taints": None})

    def work(self) -> None:
        """Pods that lack are made, where the gang stands; those that stand elsewhere are over."""
        for name in self.asked:
            wanted = Counter(self.places(name))
            for pod in self.world.store.list(PLAIN_PODS, "ml").items:
                on = pod["spec"]["nodeSelector"]["kubernetes.io/hostname"]
                if not pod["metadata"]["name"].startswith(f"{name}-"):
                    continue
                if wanted[on] > 0 and pod["status"]["phase"] != "Failed":
                    wanted[on] -= 1
                else:
                    self.world.store.delete(PLAIN_PODS, "ml", pod["metadata"]["name"])
            for on, count in wanted.items():
                for _ in range(count):
                    self.made += 1
                    bound = on not in self.trouble()
                    self.world.pod(f"{name}-{self.made}", name, on, bound=bound)
        self.world.pass_time(2.0)

    # ── what is true ──────────────────────────────────────────────────────────────────────────────

    def places(self, name: str) -> dict[str, int]:
        status = self.world.workload(name).get("status") or {}
        return self.world.places(name) if status.get("admission") else {}

    def evictions(self, name: str) -> int:
        stats = (self.world.workload(name).get("status") or {}).get("schedulingStats") or {}
        return sum(entry["count"] for entry in stats.get("evictions") or ())

    def trouble(self) -> set[str]:
        """Hosts that are not as they should be, or not at all."""
        nodes = self.world.store.list(PLAIN_NODES).items
        fine = {
            node["metadata"]["name"]
            for node in nodes
            if node["status"]["conditions"][0]["status"] == "True"
            and not node.get("spec", {}).get("unschedulable")
            and not node.get("spec", {}).get("taints")
        }
        return set(HOSTS) - fine

    def check(self) -> None:
        now, trouble = {name: self.places(name) for name in self.asked}, self.trouble()
        taken: Counter[str] = Counter()
        for name, (pods, gpus, required) in self.asked.items():
            before, after, left = self.before[name], now[name], self.evictions(name)
            taken.update({on: count * gpus for on, count in after.items()})
            assert not after or sum(after.values()) == pods, "a gang is whole, or not there"
            if required and after:
                assert len({HOSTS[on][: 1 + (required == RACK)] for on in after}) == 1
            if before and left == self.left[name]:
                self.check_moved(before, after, trouble | self.troubled)
            if left > self.left[name]:
                assert any(told.startswith(REASON) for _, told in self.world.events(name))
        assert all(amount <= GPUS for amount in taken.values()), "no host is given twice"
        self.before, self.troubled = now, trouble
        self.left = {name: self.evictions(name) for name in self.asked}

    def check_moved(self, before: dict[str, int], after: dict[str, int], trouble: set[str]) -> None:
        lost = {on: count - after.get(on, 0) for on, count in before.items() if after.get(on, 0) < count}
        assert set(lost) <= trouble, "nobody moves off a good node"
        assert sum(lost.values()) <= sum(count for on, count in before.items() if on in trouble)


@settings(max_examples=settings().max_examples // 4)
@given(gangs, deeds, st.booleans())
def test_gangs_stay_whole_and_nobody_moves_who_need_not(
    asked: list[Gang], done: list[tuple[str, str]], fast: bool
) -> None:
    drama = Drama(asked, fast)
    stood = bool(drama.before["g0"])
    for deed, name in done:
        drama.do(deed, name)
    for name in HOSTS:
        drama.do("make", name)
        drama.recover(name)
    drama.do("wait", "h1")
    drama.do("wait", "h1")
    for _ in range(2):
        drama.work()
    world = drama.world
    assert all(world.listed(name) == [] for name in drama.asked), "nothing is left to replace"
    assert world.health.next_due(world.now) == float("inf") and not world.health.reconciler.in_flight
    pods = world.store.list(PLAIN_PODS, "ml").items
    assert all(pod["spec"].get("nodeName") for pod in pods), "nobody waits for a node in vain"
    assert len(asked) > 1 or bool(drama.places("g0")) is stood, "who stood alone stands again"
