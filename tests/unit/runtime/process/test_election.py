"""Leader election in virtual time: which replica leads, for how long, and what happens on failures."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from typing import Any

import pytest

from bayplan.dialects.errors import Forbidden, Unreachable
from bayplan.runtime.core.clock import SystemClock, VirtualClock
from bayplan.runtime.process.election import Election, ElectionThread, Timing
from tests.support.leases import TIMING, Store, replica


def test_the_first_leads_and_the_second_waits() -> None:
    store, clock = Store(), VirtualClock()
    a, b = replica(store, "a", clock), replica(store, "b", clock)
    assert a.step() == TIMING.retry_seconds
    b.step()
    assert a.is_leader(clock.monotonic()) and not b.is_leader(clock.monotonic())
    assert b.holder == "a"
    assert store.spec["holderIdentity"] == "a"
    assert store.spec["leaseDurationSeconds"] == 15
    assert store.spec["renewTime"] == store.spec["acquireTime"] == "2023-11-14T22:13:20.000000Z"


def test_a_replica_that_does_not_know_all_objects_yet_leaves_the_lease_to_others_and_keeps_one_it_has() -> (
    None
):
    """On 100,000 nodes it would take a minute until it could decide, while a standby could at once."""
    store, clock, knows = Store(), VirtualClock(), [False]
    a, b = replica(store, "a", clock), replica(store, "b", clock)
    a.acquire_when(lambda: knows[0])
    a.step()
    assert store.calls == ["get"] and not a.is_leader(clock.monotonic())
    knows[0] = True
    a.step()
    assert a.is_leader(clock.monotonic())
    knows[0] = False
    clock.advance(TIMING.retry_seconds)
    a.step()
    assert a.is_leader(clock.monotonic() + TIMING.renew_seconds - 1)
    clock.advance(TIMING.lease_seconds + 1)
    a.step()
    b.step()
    clock.advance(TIMING.lease_seconds + 1)
    b.step()
    assert b.is_leader(clock.monotonic())


def test_a_leader_renews_with_one_call_and_leads_on() -> None:
    store, clock = Store(), VirtualClock()
    a, b = replica(store, "a", clock), replica(store, "b", clock)
    for _ in range(50):
        a.step()
        b.step()
        assert a.is_leader(clock.monotonic()) and not b.is_leader(clock.monotonic())
        clock.advance(TIMING.retry_seconds)
    assert store.calls.count("update") == 49 and store.calls.count("get") == 51
    assert a.term is not None and a.term.number == 1
    assert store.spec["acquireTime"] < store.spec["renewTime"]
    assert store.spec["leaseTransitions"] == 0


def test_a_leader_that_slept_past_its_lease_notices_before_it_writes() -> None:
    store, clock = Store(), VirtualClock()
    a, b = replica(store, "a", clock), replica(store, "b", clock)
    a.step()
    b.step()
    clock.advance(TIMING.lease_seconds + 1)  # a is suspended; b goes on
    b.step()
    assert b.is_leader(clock.monotonic())
    assert not a.is_leader(clock.monotonic()), "woken, and asked before its election thread could do anything"
    a.step()
    assert not a.is_leader(clock.monotonic()) and a.holder == "b"
    assert store.spec["leaseTransitions"] == 1


def test_a_leader_stops_before_another_may_begin() -> None:
    store, clock = Store(), VirtualClock()
    a, b = replica(store, "a", clock), replica(store, "b", clock)
    a.step()
    b.step()
    stopped = began = None
    while began is None:
        clock.advance(0.1)
        b.step()
        if stopped is None and not a.is_leader(clock.monotonic()):
            stopped = clock.monotonic()
        if b.is_leader(clock.monotonic()):
            began = clock.monotonic()
    assert stopped is not None
    assert stopped == pytest.approx(TIMING.renew_seconds, abs=0.2)
    assert began - stopped >= TIMING.write_seconds - 0.2 > 4


def test_a_leader_whose_calls_hang_stops_by_itself() -> None:
    store, clock = Store(), VirtualClock()
    a = replica(store, "a", clock)
    a.step()

    def hang(body: Mapping[str, Any], seconds: float) -> dict[str, Any]:
        assert seconds <= TIMING.renew_seconds - clock.monotonic() + 1e-9
        clock.advance(seconds)
        raise Unreachable("no answer")

    store.update = hang  # type: ignore[method-assign]
    store.get = lambda seconds: hang({}, seconds)  # type: ignore[method-assign]
    while a.is_leader(clock.monotonic()):
        clock.advance(a.step())
    assert clock.monotonic() <= TIMING.renew_seconds + 2 * TIMING.retry_seconds


def test_an_answer_that_comes_too_late_does_not_make_a_leader() -> None:
    store, clock = Store(), VirtualClock()
    a = replica(store, "a", clock)
    create = store.create

    def late(body: Mapping[str, Any], seconds: float) -> dict[str, Any]:
        made = create(body, seconds)
        clock.advance(TIMING.renew_seconds + 1)  # suspended between request and response
        return made

    store.create = late  # type: ignore[method-assign]
    a.step()
    assert not a.is_leader(clock.monotonic())


def test_a_term_that_had_a_gap_is_a_new_term() -> None:
    store, clock = Store(), VirtualClock()
    a = replica(store, "a", clock)
    a.step()
    clock.advance(TIMING.renew_seconds + 1)
    a.step()
    assert a.is_leader(clock.monotonic())
    assert a.term is not None and a.term.number == 2 and a.term.since == 11.0
    assert store.spec["leaseTransitions"] == 0, "no other replica led in between"


def test_a_renewal_that_was_answered_after_the_term_begins_a_new_one() -> None:
    store, clock = Store(), VirtualClock()
    a = replica(store, "a", clock)
    a.step()
    clock.advance(8)
    update = store.update

    def late(body: Mapping[str, Any], seconds: float) -> dict[str, Any]:
        made = update(body, seconds)
        clock.advance(3)
        return made

    store.update = late  # type: ignore[method-assign]
    a.step()
    assert a.term is not None and (a.term.number, a.term.since, a.term.until) == (2, 11.0, 18.0)


def test_a_lease_held_by_another_replica_is_not_released() -> None:
    store, clock = Store(), VirtualClock()
    a = replica(store, "a", clock)
    a.step()
    store._keep({"spec": {"holderIdentity": "by-hand"}})
    a.step()
    a.release()
    assert store.spec["holderIdentity"] == "by-hand"


def test_released_means_another_may_begin_at_once() -> None:
    store, clock = Store(), VirtualClock()
    a, b = replica(store, "a", clock), replica(store, "b", clock)
    a.step()
    b.step()
    a.release()
    assert not a.is_leader(clock.monotonic())
    assert store.spec["holderIdentity"] is None
    b.step()
    assert b.is_leader(clock.monotonic())
    a.release()
    assert store.spec["holderIdentity"] == "b", "what is another's is not released"


def test_a_release_that_fails_is_no_trouble() -> None:
    store, clock, notes = Store(), VirtualClock(), list[str]()
    a = replica(store, "a", clock, notes)
    a.step()
    store.version += 1
    a.release()
    assert not a.is_leader(clock.monotonic())
    assert "could not release" in notes[-1]


def test_a_deleted_lease_does_not_make_two_leaders() -> None:
    store, clock = Store(), VirtualClock()
    a, b = replica(store, "a", clock), replica(store, "b", clock)
    a.step()
    b.step()
    store.lease = None
    b.step()
    assert not b.is_leader(clock.monotonic()), "a still believes that it leads"
    clock.advance(TIMING.retry_seconds)
    a.step()
    assert a.is_leader(clock.monotonic()) and store.spec["holderIdentity"] == "a"
    store.lease = None
    clock.advance(TIMING.lease_seconds)
    b.step()
    assert b.is_leader(clock.monotonic()), "the old leader did not return"


def test_the_duration_that_the_holder_wrote_counts() -> None:
    store, clock = Store(), VirtualClock()
    store._keep({"spec": {"holderIdentity": "other", "leaseDurationSeconds": 60, "leaseTransitions": 4}})
    a = replica(store, "a", clock)
    a.step()
    clock.advance(59)
    a.step()
    assert not a.is_leader(clock.monotonic())
    clock.advance(1)
    a.step()
    assert a.is_leader(clock.monotonic())
    assert store.spec["leaseTransitions"] == 5 and store.spec["leaseDurationSeconds"] == 15


def test_old_wall_times_in_the_lease_mean_nothing() -> None:
    store, clock = Store(), VirtualClock()
    store._keep({"spec": {"holderIdentity": "other", "renewTime": "2001-01-01T00:00:00.000000Z"}})
    a = replica(store, "a", clock)
    a.step()
    assert not a.is_leader(clock.monotonic()), "its holder's clock may be wrong, and it may be alive"


def test_fields_of_others_are_kept() -> None:
    store, clock = Store(), VirtualClock()
    store._keep({"spec": {"holderIdentity": "", "strategy": "OldestEmulationVersion"}, "note": "mine"})
    a = replica(store, "a", clock)
    a.step()
    assert store.spec["strategy"] == "OldestEmulationVersion"
    assert store.lease is not None and store.lease["note"] == "mine"


def test_trouble_is_said_once() -> None:
    store, clock, notes = Store(), VirtualClock(), list[str]()
    a = replica(store, "a", clock, notes)

    def refuse(seconds: float) -> dict[str, Any]:
        raise Forbidden("leases is forbidden")

    get, store.get = store.get, refuse  # type: ignore[method-assign]
    for _ in range(5):
        a.step()
    store.get = get  # type: ignore[method-assign]
    a.step()
    clock.advance(TIMING.renew_seconds)
    store.version += 1
    a.step()
    assert [note.partition(":")[0] for note in notes][:3] == [
        "cannot reach the lease",
        "leads as a",
        "leads no longer",
    ]


@pytest.mark.parametrize(
    "wrong",
    [
        {"lease_seconds": 10},
        {"renew_seconds": 15.0},
        {"retry_seconds": 9.0},
        {"retry_seconds": 0.0},
        {"call_seconds": 0.0},
    ],
)
def test_timings_that_cannot_work_are_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(AssertionError):
        Timing(**wrong)


# ── the thread ─────────────────────────────────────────────────────────────────────────────────


def test_the_thread_leads_until_it_is_stopped_and_then_releases() -> None:
    store, clock, leads = Store(), SystemClock(), threading.Event()

    def note(sentence: str) -> None:
        if sentence.startswith("leads as"):
            leads.set()

    election = Election(store, "a", clock, lambda: 0.0, TIMING, note)
    thread = ElectionThread(election)
    assert leads.wait(10)
    assert election.is_leader(clock.monotonic())
    thread.stop()
    assert not election.is_leader(clock.monotonic())
    assert store.spec["holderIdentity"] is None


def test_an_unexpected_failure_is_logged_and_does_not_end_the_election() -> None:
    class Failing(Store):
        def get(self, seconds: float) -> dict[str, Any] | None:
            if not notes:
                raise RuntimeError("a bug")
            return super().get(seconds)

    clock, notes = VirtualClock(), list[str]()
    a = replica(Failing(), "a", clock, notes)
    assert a.step() == TIMING.retry_seconds
    assert notes == ["cannot reach the lease: RuntimeError('a bug')"]
    a.step()
    assert a.is_leader(clock.monotonic())
