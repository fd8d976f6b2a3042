"""What the soak would find: gangs bound in part, nodes used twice, lost jobs, memory that grows."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import pytest

from tests.end_to_end.storm import JOBS, Api, Recorder
from tests.end_to_end.storm_checker import Seen, unstarted
from tests.soak import judge as judging
from tests.soak.judge import Judge
from tests.soak.load import FAMILIES, KAI, QUEUED, hosts, submission
from tests.soak.replicas import Sample
from tests.soak.report import leaks, steady_at
from tests.soak.users import MISSING_MAX, OpenGang, Users

Object = dict[str, Any]


class Time:
    """A clock that is moved by hand."""

    now = 0.0

    def monotonic(self) -> float:
        return self.now


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Time:
    found = Time()
    monkeypatch.setattr(judging, "time", found)
    return found


def judge() -> Judge:
    return Judge(hosts(2), [], 60.0)


def soak_pod(
    name: str, gang: str, pods: int, node: str = "", gpus: int = 8, phase: str = "Running"
) -> Object:
    asked = {"resources": {"requests": {"nvidia.com/gpu": str(gpus)}}}
    labels = {"soak": gang, "soak-pods": str(pods)}
    return {
        "kind": "Pod",
        "metadata": {"name": name, "uid": name, "labels": labels, "resourceVersion": "1"},
        "spec": {"nodeName": node, "containers": [asked]},
        "status": {"phase": phase},
    }


def seen(obj: Object, **more: bool) -> Seen:
    return Seen(1, 0.0, obj, **more)


def test_a_node_that_is_used_twice_is_found(clock: Time) -> None:
    found = judge()
    found.take_pod(seen(soak_pod("a", "soak-kai-1", 1, "soak-0000")))
    found.take_pod(seen(soak_pod("b", "soak-kai-2", 1, "soak-0001")))
    assert found.violations() == []
    found.take_pod(seen(soak_pod("c", "soak-kai-3", 1, "soak-0000", gpus=1)))
    assert found.violations() == ["soak-0000: pods use 9 of 8 GPUs (0 s)"]


def test_a_pod_that_ended_or_changed_while_nobody_watched_uses_nothing(clock: Time) -> None:
    found = judge()
    one = soak_pod("a", "soak-kai-1", 1, "soak-0000")
    for after in (
        seen(soak_pod("a", "soak-kai-1", 1, "soak-0000", phase="Succeeded")),
        seen(one, unsure=True),
    ):
        found.take_pod(seen(one))
        found.take_pod(after)
        found.take_pod(seen(soak_pod("b", "soak-kai-2", 1, "soak-0000")))
        found.take_pod(seen(soak_pod("b", "soak-kai-2", 1, "soak-0000"), gone=True))
    assert found.violations() == []


@pytest.mark.parametrize(("family", "told"), [(KAI, ["1 of 3"]), (QUEUED, [])])
def test_a_gang_bound_in_part_is_found_after_a_while(clock: Time, family: str, told: list[str]) -> None:
    """Pods of an admitted gang that the Job controller has not made yet are not missing."""
    found, name = judge(), f"soak-{family}-1"
    found.take_pod(seen(soak_pod("a", name, 3, "soak-0000")))
    clock.now = 59.0
    found.look()
    assert found.violations() == []
    clock.now = 61.0
    found.look()
    assert [one for one in told if one not in str(found.violations())] == []
    assert len(found.violations()) == len(told)


def test_a_gang_bound_in_part_has_a_minute_in_which_nothing_is_broken(clock: Time) -> None:
    found = judge()
    found.take_pod(seen(soak_pod("a", "soak-kai-1", 3, "soak-0000")))
    for _ in range(6):
        found.calm.stop()
        found.calm.stop()
        clock.now += 100.0
        found.look()
        found.calm.start()
        clock.now += 10.0
        found.look()
    assert found.violations() == []
    clock.now += 1.0
    found.look()
    assert found.violations() == ["soak-kai-1: has 1 of 3 pods bound for 61 s (661 s)"]


def test_an_admitted_gang_whose_pods_are_all_there_must_be_bound_whole(clock: Time) -> None:
    found = judge()
    found.take_pod(seen(soak_pod("a", "soak-queued-1", 2, "soak-0000")))
    found.take_pod(seen(soak_pod("b", "soak-queued-1", 2)))
    clock.now = 61.0
    found.look()
    assert found.violations() == ["soak-queued-1: has 1 of 2 pods bound for 61 s (61 s)"]


class FakeApi(Api):
    """Lists what it is given."""

    def __init__(self, found: list[Object]) -> None:
        object.__setattr__(self, "found", found)

    def listed(self, path: str) -> tuple[list[Object], int]:
        return (self.found if path == JOBS else []), 9  # type: ignore[attr-defined]

    def ask(self, method: str, path: str, body: Object | None = None) -> Object:
        return {}


def test_a_job_that_is_gone_counts_as_lost_and_one_that_failed_is_told() -> None:
    failed = {"metadata": {"name": "b"}, "status": {"conditions": [{"type": "Failed", "status": "True"}]}}
    given = submission(1, random.Random(1), (5, 5))
    users = Users(FakeApi([failed]), random.Random(1), 8, (5, 5))
    users.open = {"a": OpenGang(given, 0.0), "b": OpenGang(given, 0.0)}
    for _ in range(MISSING_MAX):
        users.collect()
    assert users.violations == ["b failed", "a is lost: the API does not know it"]
    assert users.open == {} and users.finished == 1


def test_a_new_list_tells_first_what_is_gone_or_uncertain() -> None:
    """A pod that ended unseen must not seem to share its node with one that came after it."""
    told: list[tuple[str, bool, bool]] = []
    first = soak_pod("old", "soak-kai-1", 1, "soak-0000")
    later = soak_pod("old", "soak-kai-1", 1, "soak-0000", phase="Succeeded")
    later["metadata"]["resourceVersion"] = "2"
    new = soak_pod("new", "soak-kai-2", 1, "soak-0000")
    new["metadata"]["resourceVersion"] = "3"
    recorder = Recorder(FakeApi([new, later]), JOBS, 0.0)
    recorder.take = lambda one: told.append((one.obj["metadata"]["name"], one.gone, one.unsure))
    recorder.last = {"old": first, "gone": soak_pod("gone", "soak-kai-3", 1)}
    recorder._list()
    assert told == [("gone", True, False), ("old", False, True), ("old", False, False), ("new", False, False)]


def samples(*megabytes: float, descriptors: Callable[[int], int] = lambda at: 20) -> list[Sample]:
    return [
        Sample(10.0 * at, "replica-0", 1, 10.0 * at, True, size, descriptors(at), 30)
        for at, size in enumerate(megabytes)
    ]


def test_memory_and_descriptors_that_grow_after_the_warm_up_are_found() -> None:
    growing, flat = [100.0 + at for at in range(60)], [100.0] * 60
    assert leaks(samples(*growing), warm_up=100.0) == [
        "the memory of replica-0 life 1 (leads) grew by 28.9 %"
    ]
    assert leaks(samples(*growing[:30], *[130.0] * 60), warm_up=300.0) == []
    assert leaks(samples(*flat, descriptors=lambda at: 20 + at // 2), 100.0) == [
        "replica-0 life 1 (leads) gained 17 descriptors"
    ]


def test_connections_that_come_and_go_are_no_leak() -> None:
    assert leaks(samples(*[100.0] * 60, descriptors=lambda at: 20 + at % 7 * (at // 6)), 100.0) == []


def test_memory_may_grow_while_the_load_does() -> None:
    loads = [(10.0 * at, min(at / 30, 1.0), 5) for at in range(70)]
    assert steady_at(loads) == 270.0
    grown = samples(*(100.0 + min(at, 27) for at in range(70)))
    assert leaks(grown, 100.0) != []
    assert leaks(grown, 100.0, steady_at(loads)) == []


def test_every_family_is_submitted() -> None:
    dice = random.Random(1)
    given = [submission(number, dice, (5, 25)) for number in range(200)]
    assert {one.family for one in given} == set(FAMILIES)
    assert len({one.name for one in given}) == len(given)
    assert all(one.gpus and 5 <= one.seconds <= 25 for one in given)


def test_a_bound_pod_that_does_not_run_is_owed_by_kwok() -> None:
    """kwok gives up on pods that it could not write while the API server was away."""
    pending, running = {"phase": "Pending"}, {"phase": "Running"}
    pods = [
        {"metadata": {"name": "waits"}, "spec": {}, "status": pending},
        {"metadata": {"name": "bound"}, "spec": {"nodeName": "n"}, "status": pending},
        {
            "metadata": {"name": "leaves", "deletionTimestamp": "t"},
            "spec": {"nodeName": "n"},
            "status": pending,
        },
        {"metadata": {"name": "runs"}, "spec": {"nodeName": "n"}, "status": running},
    ]
    assert unstarted(pods) == ["bound"]
