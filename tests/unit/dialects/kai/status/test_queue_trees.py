"""Queues that are not part of the queue tree: conditions on the queues, and messages on their groups."""

from __future__ import annotations

import pytest

from bayplan.dialects.kai.api.names import QUEUE
from bayplan.dialects.kai.api.queues import ancestors
from bayplan.dialects.kai.status.messages import queue_fault, unusable_queue
from tests.support.kai_site import Site
from tests.support.pod_site import Object

AMPLE = {"cpu": {"quota": -1, "limit": -1}}


def conditions(site: Site, name: str) -> list[Object]:
    found: list[Object] = site.store.get(QUEUE, "", name).get("status", {}).get("conditions") or []
    return found


def active(site: Site, name: str) -> tuple[str, str, str]:
    """The Active condition of a queue; empty if it never had one."""
    ours = next((one for one in conditions(site, name) if one["type"] == "Active"), {})
    return ours.get("status", ""), ours.get("reason", ""), ours.get("message", "")


def put_below(site: Site, name: str, parent: str | None) -> None:
    site.store.patch(QUEUE, "", name, {"spec": {"parentQueue": parent}})
    site.run(4)


@pytest.mark.parametrize(
    ("parents", "way"),
    [
        ({"a": "b", "b": ""}, ["a", "b"]),
        ({"a": "b"}, ["a", "b"]),
        ({"a": "a"}, ["a", "a"]),
        ({"a": "b", "b": "c", "c": "b"}, ["a", "b", "c", "b"]),
        ({}, ["a"]),
    ],
)
def test_the_ancestors_end_at_a_root_a_missing_parent_or_a_cycle(
    parents: dict[str, str], way: list[str]
) -> None:
    assert ancestors("a", parents) == way


@pytest.mark.parametrize(
    ("parents", "reason", "words"),
    [
        ({"a": "b"}, "ParentQueueDoesNotExist", ("parent 'b' of queue 'a' does not", "create queue 'b'")),
        ({"a": "m", "m": "b"}, "ParentQueueDoesNotExist", ("queue 'm', which 'a' is below", "Queue of 'm'")),
        ({"a": "a"}, "ParentQueuesInCircle", ("Queue 'a' is its own parent. ", "Queue of 'a'")),
        ({"a": "b", "b": "b"}, "ParentQueuesInCircle", ("its own parent, and queue 'a'", "Queue of 'b'")),
        ({"a": "b", "b": "a"}, "ParentQueuesInCircle", ("cycle: a → b → a", "one of these")),
        ({"a": "b", "b": "c", "c": "b"}, "ParentQueuesInCircle", ("of queue 'a' form", ": b → c → b")),
    ],
)  # fmt: skip
def test_faults_are_reported_with_a_remedy(
    parents: dict[str, str], reason: str, words: tuple[str, ...]
) -> None:
    found = queue_fault("a", parents)
    assert found is not None and found[0] == reason
    assert all(word in found[1] for word in (*words, "its pod groups stay pending", "spec.parentQueue")), (
        found[1]
    )


def test_a_queue_in_the_tree_has_no_fault_and_one_with_child_queues_holds_no_groups() -> None:
    parents = {"top": "", "team": "top"}
    assert queue_fault("team", parents) is None and queue_fault("top", parents) is None
    assert "has child queues" in unusable_queue("top", parents) and "(team)" in unusable_queue("top", parents)
    assert unusable_queue("nowhere", parents).startswith("Queue 'nowhere' does not exist: create it")


def test_a_queue_reports_its_missing_parent_until_it_exists() -> None:
    site = Site()
    site.queue("team", parentQueue="top", resources=AMPLE)
    site.queue("part", parentQueue="team", resources=AMPLE)
    site.group("g", queue="part")
    site.pod("p", "g")
    site.run(4)
    assert active(site, "team")[:2] == active(site, "part")[:2] == ("False", "ParentQueueDoesNotExist")
    assert site.waits("g") == ("QueueDoesNotExist", active(site, "part")[2])
    site.queue("top", resources=AMPLE)
    site.run(4)
    assert active(site, "team")[:2] == active(site, "part")[:2] == ("True", "Ready")
    assert conditions(site, "top") == [], "that all is well needs no words"
    assert site.store.get(QUEUE, "", "top")["status"]["childQueues"] == ["team"]
    assert site.on("p") != [""]


def test_a_cycle_is_reported_on_every_affected_queue_and_its_groups() -> None:
    site = Site()
    for name, parent in (("top", None), ("mid", "top"), ("leaf", "mid"), ("other", None)):
        site.queue(name, resources=AMPLE, **({"parentQueue": parent} if parent else {}))
    site.run(4)
    put_below(site, "top", "mid")
    for name in ("top", "mid", "leaf"):
        assert active(site, name)[:2] == ("False", "ParentQueuesInCircle")
    assert "mid → top → mid" in active(site, "leaf")[2]
    assert conditions(site, "other") == []
    site.group("g", queue="leaf")
    site.pod("p", "g")
    site.run(4)
    assert site.waits("g") == ("QueueDoesNotExist", active(site, "leaf")[2])
    put_below(site, "top", None)
    assert {active(site, name)[0] for name in ("top", "mid", "leaf")} == {"True"}
    assert site.on("p") != [""]


def test_a_missing_parent_that_becomes_a_cycle_is_reported_again() -> None:
    site = Site()
    site.queue("leaf", parentQueue="b", resources=AMPLE)
    site.group("g", queue="leaf")
    site.pod("p", "g")
    site.run(4)
    site.queue("c", parentQueue="b")
    site.queue("b", parentQueue="c")
    site.run(4)
    assert "b → c → b" in site.waits("g")[1]
    assert site.waits("g")[1] == active(site, "leaf")[2]


def test_conditions_of_other_writers_are_kept() -> None:
    site = Site()
    site.queue("team", parentQueue="top")
    theirs = {"type": "Audited", "status": "True", "reason": "Yes", "observedGeneration": 1}
    site.store.patch(QUEUE, "", "team", {"status": {"conditions": [theirs]}}, subresource="status")
    site.run(4)
    assert [one["type"] for one in conditions(site, "team")] == ["Audited", "Active"]
    assert conditions(site, "team")[0] == theirs
    version = site.store.get(QUEUE, "", "team")["metadata"]["resourceVersion"]
    site.run(60)
    assert site.store.get(QUEUE, "", "team")["metadata"]["resourceVersion"] == version, "it is told once"


def test_parents_list_their_child_queues() -> None:
    site = Site()
    for name in ("one", "two"):
        site.queue(name)
    site.queue("team", parentQueue="one")
    site.run(4)
    put_below(site, "team", "two")
    said = [site.store.get(QUEUE, "", name)["status"].get("childQueues") for name in ("one", "two")]
    assert said == [None, ["team"]]


def test_resources_leave_the_ancestors_of_a_moved_queue() -> None:
    site = Site()
    for name, parent in (("left", None), ("right", None), ("inner", "left"), ("other", "right")):
        site.queue(name, resources=AMPLE, **({"parentQueue": parent} if parent else {}))
    site.queue("work", resources=AMPLE, parentQueue="inner")
    site.group("g", queue="work")
    site.pod("p", "g")
    site.run(4)

    def allocated(name: str) -> str:
        found: Object = site.store.get(QUEUE, "", name).get("status") or {}
        return str((found.get("allocated") or {}).get("cpu", "0"))

    assert (allocated("left"), allocated("right")) == ("1", "0")
    put_below(site, "work", "other")
    assert (allocated("left"), allocated("right")) == ("0", "1")
