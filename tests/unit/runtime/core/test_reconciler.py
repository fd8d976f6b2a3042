"""The shared part of controllers: which keys are due, and what writes in flight hold back."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from bayplan.dialects.api import Kind, Verb, Write
from bayplan.runtime.core.backoff import PAUSE_FIRST
from bayplan.runtime.core.containment import UNCONTAINED, Containment
from bayplan.runtime.core.reconciler import Reconciler

NOW = 100.0
PODS = Kind("", "v1", "Pod", "pods")


def new_reconciler() -> Reconciler[str, str]:
    return Reconciler(lambda key: ("Pod", key))


def write_to(name: str) -> Write:
    return Write(Verb.UPDATE, PODS, "default", name)


def reconciled(reconciler: Reconciler[str, str], now: float) -> list[str]:
    """The keys that are reconciled at this time; none of them writes."""
    found: list[str] = []

    def work(key: str, now: float) -> Iterator[Write]:
        found.append(key)
        yield from ()

    assert list(reconciler.run(work, now, UNCONTAINED)) == []
    return found


def test_a_key_is_not_reconciled_while_its_write_is_in_flight() -> None:
    reconciler = new_reconciler()
    reconciler.begin("a", "before", "a")
    reconciler.queue.put_all(["a", "b"])
    assert reconciled(reconciler, NOW) == ["b"]
    assert reconciler.next_due() == float("inf")
    reconciler.ended("a", NOW)
    assert reconciled(reconciler, NOW) == ["a"]


def test_keys_that_wait_for_a_write_are_reconciled_when_it_has_ended() -> None:
    reconciler = new_reconciler()
    assert not reconciler.wait_for("group", "a"), "no write to it is in flight"
    reconciler.begin("group", "", "a")
    assert reconciler.wait_for("group", "b")
    assert reconciled(reconciler, NOW) == []
    reconciler.ended("group", NOW)
    assert reconciled(reconciler, NOW) == ["a", "b"]


def test_all_writes_to_an_object_have_to_end_and_the_longest_pause_counts() -> None:
    reconciler = new_reconciler()
    for _ in range(3):
        reconciler.begin("a", "", "a")
    reconciler.ended("a", NOW, 5.0)
    reconciler.ended("a", NOW, 1.0)
    assert reconciled(reconciler, NOW + 60) == []
    reconciler.ended("a", NOW + 60)
    assert reconciler.next_due() == NOW + 65
    assert reconciled(reconciler, NOW + 65) == ["a"]


def test_the_note_of_the_first_write_is_handed_back_with_each_outcome() -> None:
    reconciler = new_reconciler()
    reconciler.begin("a", "as it was")
    reconciler.begin("a", "another")
    ended = [reconciler.ended("a", NOW) for _ in range(3)]
    assert [one and one.note for one in ended] == ["as it was", "as it was", None]


def test_a_pause_does_not_delay_a_key_that_is_due_earlier() -> None:
    reconciler = new_reconciler()
    reconciler.begin("a", "", "a")
    reconciler.queue.put("a")  # an event arrived meanwhile
    reconciler.ended("a", NOW, 5.0)
    assert reconciled(reconciler, NOW) == ["a"]


def test_a_key_whose_work_raises_is_tried_again_later_and_the_others_at_once() -> None:
    reconciler, bad = new_reconciler(), {"a"}
    reconciler.queue.put_all(["a", "b"])

    def work(key: str, now: float) -> Iterator[Write]:
        yield write_to(key)
        if key in bad:
            raise ValueError(key)

    containment = Containment()
    names = [write.name for write in reconciler.run(work, NOW, containment)]
    assert names == ["a", "b"], "what was written before the error is sent"
    assert reconciler.next_due() == NOW + PAUSE_FIRST
    list(reconciler.run(work, NOW + PAUSE_FIRST, containment))
    assert reconciler.next_due() == NOW + 3 * PAUSE_FIRST, "the pause grows"
    bad.clear()
    list(reconciler.run(work, NOW + 3 * PAUSE_FIRST, containment))
    assert reconciler.next_due() == float("inf")
    bad.add("a")
    reconciler.queue.put("a")
    list(reconciler.run(work, NOW, containment))
    assert reconciler.next_due() == NOW + PAUSE_FIRST, "a success resets it"


def test_the_pause_after_a_refused_write_grows_until_a_write_is_not_refused() -> None:
    reconciler = new_reconciler()

    def pause_after(*, refused: bool) -> float:
        reconciler.begin("a", "", "a")
        reconciler.ended("a", NOW, 5.0, refused=refused)
        due = reconciler.next_due()
        reconciler.queue.drop("a")
        return due - NOW

    assert [pause_after(refused=True) for _ in range(6)] == [5, 10, 20, 40, 60, 60]
    assert pause_after(refused=False) == 5
    assert pause_after(refused=True) == 5


def test_a_pause_that_is_longer_by_itself_does_not_shrink() -> None:
    reconciler = new_reconciler()
    reconciler.begin("a", "", "a")
    reconciler.ended("a", NOW, 100.0, refused=True)
    assert reconciler.next_due() == NOW + 100


def test_without_containment_an_error_is_raised() -> None:
    reconciler = new_reconciler()

    def work() -> Iterator[Write]:
        yield from ()
        raise ValueError("seen")

    with pytest.raises(ValueError, match="seen"):
        reconciler.attempt("a", work(), NOW, UNCONTAINED)
