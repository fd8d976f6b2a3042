"""Notices for pending pods: in order, never twice, a few at a time, and repeated after a timeout."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from functools import partial

import pytest

from bayplan.dialects.api import Ended, Kind, Verb, Write, WriteOutcome
from bayplan.model.pod import PodKey
from bayplan.runtime.controllers.scheduler.pod_events import (
    DELAY_SECONDS,
    IN_FLIGHT_MAX,
    NEVER,
    TRIES_MAX,
    PodEventPublisher,
)

PODS = Kind("", "v1", "Pod", "pods")


def key(number: int = 0) -> PodKey:
    return PodKey("ns", f"p{number}")


def tell(teller: PodEventPublisher, whom: PodKey, words: str, now: float = 0.0, at_once: bool = True) -> None:
    def writes(_: float) -> Iterator[Write]:
        yield Write(Verb.STRATEGIC_PATCH, PODS, whom.namespace, whom.name, {"words": words})

    teller.publish(whom, words, writes, now, at_once)


def said(teller: PodEventPublisher, now: float = 0.0) -> list[tuple[str, str]]:
    return [(write.name, write.body["words"]) for write in teller.writes(now)]


@pytest.fixture
def teller() -> PodEventPublisher:
    return PodEventPublisher()


def test_the_newest_reason_is_said_and_only_once(teller: PodEventPublisher) -> None:
    tell(teller, key(), "old")
    tell(teller, key(), "new")
    assert said(teller) == [("p0", "new")]
    tell(teller, key(), "new")
    assert said(teller) == []
    tell(teller, key(), "old")
    assert said(teller) == [("p0", "old")]


def test_a_dropped_subject_gets_no_notice_and_gets_all_of_them_again_later(
    teller: PodEventPublisher,
) -> None:
    tell(teller, key(), "no room")
    teller.drop(key())
    assert (said(teller), teller.next_due()) == ([], NEVER)
    tell(teller, key(), "no room")
    assert said(teller) == [("p0", "no room")]


def test_some_things_are_said_only_after_a_while(teller: PodEventPublisher) -> None:
    tell(teller, key(), "too few", now=10.0, at_once=False)
    assert (said(teller, 10.0), teller.next_due()) == ([], 10.0 + DELAY_SECONDS)
    tell(teller, key(), "too few", now=11.0, at_once=False)
    assert said(teller, 10.0 + DELAY_SECONDS) == [("p0", "too few")]


def test_only_so_many_are_on_their_way_at_a_time(teller: PodEventPublisher) -> None:
    for number in range(IN_FLIGHT_MAX + 5):
        tell(teller, key(number), "no room")
    writes = list(teller.writes(0.0))
    assert len(writes) == IN_FLIGHT_MAX
    assert (said(teller), teller.next_due()) == ([], NEVER)
    for write in writes[:2]:
        teller.ended(WriteOutcome(write, Ended.DONE), 1.0)
    assert len(said(teller, 1.0)) == 2


@pytest.mark.parametrize(
    ("ended", "times"),
    [(Ended.TIMED_OUT, TRIES_MAX), (Ended.CONFLICT, TRIES_MAX), (Ended.DONE, 1), (Ended.GONE, 1)],
)
def test_a_notice_that_timed_out_is_repeated_a_few_times(
    teller: PodEventPublisher, ended: Ended, times: int
) -> None:
    tell(teller, key(), "no room")
    count, now = 0, 0.0
    while writes := list(teller.writes(now)):
        count, now = count + 1, now + DELAY_SECONDS
        for write in writes:
            teller.ended(WriteOutcome(write, ended), now - DELAY_SECONDS)
    assert (count, teller.in_flight) == (times, 0)


def test_good_news_waits_until_nothing_is_bound_and_goes_a_few_at_a_time(teller: PodEventPublisher) -> None:
    for number in range(IN_FLIGHT_MAX + 1):
        write = Write(Verb.CREATE, PODS, "ns", f"p{number}")
        teller.announce(key(number), partial(replace, write))
    assert list(teller.writes(0.0, busy=True)) == []
    first = list(teller.writes(0.0))
    assert len(first) == IN_FLIGHT_MAX
    assert list(teller.writes(0.0)) == []
    teller.ended(WriteOutcome(first[0], Ended.DONE), 1.0)
    assert [write.name for write in teller.writes(1.0)] == [f"p{IN_FLIGHT_MAX}"]


def test_a_notice_that_was_given_up_is_published_with_the_next_report(teller: PodEventPublisher) -> None:
    tell(teller, key(), "no room")
    now = 0.0
    for _ in range(TRIES_MAX):
        (write,) = teller.writes(now)
        teller.ended(WriteOutcome(write, Ended.CONFLICT), now)
        now += DELAY_SECONDS
    assert said(teller, now) == []
    tell(teller, key(), "no room", now)
    assert said(teller, now) == [("p0", "no room")]
