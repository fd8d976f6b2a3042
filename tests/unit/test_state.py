"""Changes folded into the state, decisions on it, and what happens when writes fail."""

from __future__ import annotations

from collections.abc import Iterable

from bayplan.model.change import (
    Change,
    GangLost,
    GangSeen,
    NodeLost,
    NodeSeen,
    PodLost,
    PodSeen,
    TopologySeen,
)
from bayplan.model.gang import Gang, Group, Locality, PodSet, Ref, Segment
from bayplan.model.node import HOSTNAME, PODS, Node, Topology
from bayplan.model.plan import Bind, Plan, Refuse
from bayplan.model.pod import Pod, PodKey
from bayplan.model.profile import Profile
from bayplan.scheduling.decide import decide
from bayplan.state.queues import Place
from bayplan.state.state import ASSUMED_SECONDS, State

RACKS = Topology("dc", ("rack", HOSTNAME))
NOW = 100.0


def node(name: str, rack: str = "r1", gpus: int = 4) -> NodeSeen:
    return NodeSeen(Node(name, {"rack": rack, HOSTNAME: name}, {"gpu": gpus, PODS: 10}))


def ref(name: str) -> Ref:
    return Ref("test", "Job", "ns", name)


def gang(name: str, pods: int, gpus: int = 2, required: str | None = None, priority: int = 0) -> GangSeen:
    members = (PodSet("main", pods, pods, {"gpu": gpus}, Locality(required=required)),)
    return GangSeen(Gang(ref(name), Group("", members, 1), priority=priority), created=1.0)


def pod(of: str, rank: int, on: str = "", gpus: int = 2, **more: bool) -> PodSeen:
    key = PodKey("ns", f"{of}-{rank}")
    return PodSeen(
        Pod(
            key,
            f"uid-{of}-{rank}",
            {"gpu": gpus, PODS: 1},
            on,
            gang=ref(of),
            pod_set="main",
            rank=rank,
            **more,
        )
    )


def state(*changes: Change) -> State:
    found = State()
    found.apply_all([TopologySeen(RACKS), *changes])
    return found


def step(found: State, now: float = NOW) -> Plan:
    heads = found.heads(now)
    plan = decide(found.snapshot(heads), Profile()) if heads else Plan()
    found.assume(plan, now)
    return plan


def binds(plan: Plan) -> dict[str, str]:
    return {action.pod.key.name: action.node for action in plan.actions if isinstance(action, Bind)}


def place_of(found: State, name: str) -> Place:
    return found.queues.entries[ref(name)].place


def pods(of: str, count: int) -> Iterable[PodSeen]:
    return (pod(of, rank) for rank in range(count))


def test_a_gang_waits_until_all_its_pods_are_there() -> None:
    found = state(node("a"), node("b"), gang("job", 3), pod("job", 0), pod("job", 1))
    assert step(found) == Plan()
    assert place_of(found, "job") is Place.INCOMPLETE
    found.apply(pod("job", 2))
    assert binds(step(found)) == {"job-0": "a", "job-1": "a", "job-2": "b"}


def test_pods_may_come_before_their_gang() -> None:
    found = state(node("a"), pod("job", 0), gang("job", 1))
    assert binds(step(found)) == {"job-0": "a"}


def test_what_was_decided_is_taken_before_the_api_shows_it() -> None:
    found = state(node("a"), gang("one", 2), *pods("one", 2), gang("two", 1), pod("two", 0))
    plan = step(found)
    assert binds(plan) == {"one-0": "a", "one-1": "a"}
    assert [type(action) for action in plan.actions] == [Bind, Bind, Refuse]
    assert place_of(found, "two") is Place.PARKED


def test_the_more_important_gang_goes_first_then_the_older() -> None:
    found = state(node("a"), gang("low", 2), *pods("low", 2), gang("high", 2, priority=5), *pods("high", 2))
    assert set(binds(step(found))) == {"high-0", "high-1"}


def test_a_gang_that_did_not_fit_is_tried_again_when_room_appears() -> None:
    found = state(node("a"), gang("one", 2), *pods("one", 2), gang("two", 1), pod("two", 0))
    step(found)
    assert step(found, NOW + 1) == Plan()
    found.apply(pod("one", 0, on="a"))
    found.apply(pod("one", 0, on="a", over=True))
    assert binds(step(found, NOW + 2)) == {"two-0": "a"}


def test_the_same_refusal_is_no_news() -> None:
    found = state(node("a"), gang("job", 3), *pods("job", 3))
    first = step(found).actions[0]
    found.apply(node("a", gpus=3))
    second = step(found, NOW + 1).actions[0]
    assert isinstance(first, Refuse) and first.news
    assert isinstance(second, Refuse) and second.news  # fewer fit now
    found.apply(NodeSeen(Node("x", {HOSTNAME: "x"}, {})))
    third = step(found, NOW + 2).actions[0]
    assert isinstance(third, Refuse) and not third.news


def test_a_failed_bind_gives_back_its_room_and_is_tried_later() -> None:
    found = state(node("a"), gang("job", 2), *pods("job", 2))
    plan = step(found)
    failed = plan.actions[1]
    assert isinstance(failed, Bind)
    found.apply(pod("job", 0, on="a"))
    found.bind_failed(failed, NOW, unknown=False)
    assert place_of(found, "job") is Place.BACKOFF
    assert found.ledger.by_node() == {"a": {"gpu": 2, PODS: 1}}
    assert binds(step(found, NOW + 5)) == {"job-1": "a"}


def test_a_bind_that_nobody_heard_of_is_believed_for_a_while() -> None:
    found = state(node("a"), gang("job", 1), pod("job", 0))
    failed = step(found).actions[0]
    assert isinstance(failed, Bind)
    found.bind_failed(failed, NOW, unknown=True)
    assert step(found, NOW + 1) == Plan()
    assert binds(step(found, NOW + ASSUMED_SECONDS)) == {"job-0": "a"}


def test_lost_pods_are_placed_beside_those_that_stand() -> None:
    nodes = [node("a1"), node("a2"), node("b1", "r2", gpus=8)]
    found = state(
        *nodes, gang("job", 3, required="rack"), pod("job", 0, on="a1"), pod("job", 1), pod("job", 2)
    )
    assert binds(step(found)) == {"job-1": "a2", "job-2": "a2"}


def test_a_node_that_takes_nothing_new_still_says_where_its_gang_is() -> None:
    cordoned = Node("a1", {"rack": "r1", HOSTNAME: "a1"}, {"gpu": 4, PODS: 10}, schedulable=False)
    nodes = [NodeSeen(cordoned), node("a2"), node("b1", "r2", gpus=8)]
    first = [pod("job", 0, on="a1"), pod("job", 1)]
    found = state(*nodes, gang("job", 2, required="rack"), *first)
    assert binds(step(found)) == {"job-1": "a2"}


def test_pods_that_did_their_part_hold_the_rest_in_their_domain_but_take_no_room() -> None:
    nodes = [node("a1"), node("b1", "r2", gpus=8)]
    first = [pod("job", rank, on="a1", over=True, succeeded=True) for rank in (0, 1)]
    found = state(*nodes, gang("job", 4, required="rack"), *first, pod("job", 2), pod("job", 3))
    assert binds(step(found)) == {"job-2": "a1", "job-3": "a1"}


def test_a_domain_that_is_full_is_waited_for_once_part_of_the_gang_ran_there() -> None:
    nodes = [node("a1"), node("b1", "r2", gpus=8)]
    first = pod("job", 0, on="a1", over=True, succeeded=True)
    others = [pod("other", rank, on="a1") for rank in (0, 1)]
    found = state(*nodes, gang("other", 2), *others, gang("job", 2, required="rack"), first, pod("job", 1))
    assert [type(action) for action in step(found).actions] == [Refuse]
    found.apply(pod("other", 0, on="a1", over=True, succeeded=True))
    assert binds(step(found, NOW + 1)) == {"job-1": "a1"}


def test_a_later_round_of_pods_stays_where_the_first_one_was() -> None:
    nodes = [node("a1"), node("b1", "r2", gpus=8)]
    first = [pod("job", rank, on="b1", over=True, succeeded=True) for rank in (0, 1)]
    found = state(*nodes, gang("job", 2, required="rack"), *first, pod("job", 2), pod("job", 3))
    assert binds(step(found)) == {"job-2": "b1", "job-3": "b1"}


def test_a_segment_is_completed_where_its_first_pods_were() -> None:
    nodes = [node("a1", gpus=8), node("b1", "r2", gpus=8), node("c1", "r3")]
    main = PodSet("main", 8, 8, {"gpu": 2}, segments=(Segment(4, "rack"),))
    asked = GangSeen(Gang(ref("job"), Group("", (main,), 1)), created=1.0)
    first = [pod("job", rank, on="a1", over=True, succeeded=True) for rank in range(4)]
    half = [pod("job", rank, on="b1", over=True, succeeded=True) for rank in (4, 5)]
    found = state(*nodes, asked, *first, *half, pod("job", 6), pod("job", 7))
    assert binds(step(found)) == {"job-6": "b1", "job-7": "b1"}


def test_pods_that_failed_or_are_leaving_hold_nobody() -> None:
    nodes = [node("a1", gpus=2), node("b1", "r2")]
    past = [
        pod("job", 0, on="a1", over=True),
        pod("job", 1, on="a1", over=True, succeeded=True, leaving=True),
    ]
    found = state(*nodes, gang("job", 2, required="rack"), *past, pod("job", 2), pod("job", 3))
    assert binds(step(found)) == {"job-2": "b1", "job-3": "b1"}


def test_a_recreated_pod_is_another_pod() -> None:
    found = state(node("a"), gang("job", 1), pod("job", 0, on="a"))
    old = pod("job", 0).pod
    found.apply(PodSeen(Pod(old.key, "uid-new", old.amounts, gang=old.gang, pod_set="main")))
    assert found.ledger.by_node() == {}
    assert binds(step(found)) == {"job-0": "a"}


def test_everything_can_go_away_again() -> None:
    found = state(node("a"), gang("job", 2), *pods("job", 2))
    step(found)
    for change in (
        PodLost(PodKey("ns", "job-0")),
        PodLost(PodKey("ns", "job-1")),
        GangLost(ref("job")),
        NodeLost("a"),
    ):
        found.apply(change)
    assert not found.members and not found.pods and not found.queues.entries and not found.ledger.claims


def test_a_topology_that_comes_later_knows_what_is_used() -> None:
    found = State()
    found.apply_all(
        [node("a"), pod("old", 0, on="a", gpus=3), TopologySeen(RACKS), gang("job", 1), pod("job", 0)]
    )
    plan = step(found)
    assert isinstance(plan.actions[0], Refuse)


def test_a_topology_is_continued_down_to_the_host() -> None:
    found = State()
    found.apply_all(
        [TopologySeen(Topology("dc", ("rack",))), node("a"), gang("job", 2, required="rack"), *pods("job", 2)]
    )
    assert binds(step(found)) == {"job-0": "a", "job-1": "a"}
