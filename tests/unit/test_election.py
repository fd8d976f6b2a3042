"""Leader election in virtual time: never two leaders, whoever sleeps and whatever the API does."""

from __future__ import annotations

import copy
import threading
from collections.abc import Callable, Mapping
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bayplan.dialects.errors import Forbidden, NotServed, Unauthorised, Unreachable
from bayplan.runtime.clock import SystemClock, VirtualClock
from bayplan.runtime.election import Election, ElectionThread, Timing
from bayplan.runtime.objects import LEASE, ApiObject, Taken

TIMING = Timing()


class Store:
    """A Lease under optimistic locking."""

    def __init__(self) -> None:
        self.lease: dict[str, Any] | None = None
        self.version = 0
        self.calls: list[str] = []
        self.seconds: list[float] = []

    def get(self, seconds: float) -> dict[str, Any] | None:
        self._called("get", seconds)
        return copy.deepcopy(self.lease)

    def create(self, body: Mapping[str, Any], seconds: float) -> dict[str, Any]:
        self._called("create", seconds)
        if self.lease is not None:
            raise Taken
        return self._keep(body)

    def update(self, body: Mapping[str, Any], seconds: float) -> dict[str, Any]:
        self._called("update", seconds)
        if self.lease is None or body["metadata"]["resourceVersion"] != str(self.version):
            raise Taken
        return self._keep(body)

    @property
    def spec(self) -> dict[str, Any]:
        assert self.lease is not None
        spec: dict[str, Any] = self.lease["spec"]
        return spec

    def _keep(self, body: Mapping[str, Any]) -> dict[str, Any]:
        self.version += 1
        self.lease = copy.deepcopy({**body, "metadata": {"resourceVersion": str(self.version)}})
        return copy.deepcopy(self.lease)

    def _called(self, name: str, seconds: float) -> None:
        assert 0 < seconds <= TIMING.call_seconds
        self.calls.append(name)
        self.seconds.append(seconds)


def replica(store: Any, name: str, clock: Any, notes: list[str] | None = None) -> Election:
    note: Callable[[str], None] = notes.append if notes is not None else lambda sentence: None
    return Election(store, name, clock, lambda: 0.0, TIMING, note)


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
    clock.advance(TIMING.lease_seconds + 1)  # a is stopped; b goes on
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
        clock.advance(TIMING.renew_seconds + 1)  # stopped between asking and reading the answer
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
    assert store.spec["leaseTransitions"] == 0, "nobody else led in between"


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


def test_what_somebody_else_was_given_is_not_released() -> None:
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


def test_a_lease_that_somebody_removed_does_not_make_two_leaders() -> None:
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
    assert b.is_leader(clock.monotonic()), "nobody came back for it"


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


# ── whatever happens ───────────────────────────────────────────────────────────────────────────────


class Skewed:
    """A clock that runs at a speed of its own and started at a time of its own."""

    def __init__(self, world: VirtualClock, speed: float, offset: float) -> None:
        self._world, self._speed, self._offset = world, speed, offset

    def monotonic(self) -> float:
        return self._world.monotonic() * self._speed + self._offset

    def wall(self) -> float:
        return self._world.wall() + self._offset * 1000

    def sleep(self, seconds: float) -> None:
        raise AssertionError("an election does not sleep")


class Shaky(Store):
    """Calls take time, and may fail before or after they had their effect."""

    def __init__(self, world: VirtualClock) -> None:
        super().__init__()
        self.world = world
        self.fate: tuple[str, float] = ("", 0.0)

    def _called(self, name: str, seconds: float) -> None:
        how, delay = self.fate
        self.world.advance(min(delay, seconds))
        if how == "lost" or delay > seconds:
            raise Unreachable("no answer")

    def _keep(self, body: Mapping[str, Any]) -> dict[str, Any]:
        kept = super()._keep(body)
        if self.fate[0] == "unheard":
            raise Unreachable("done, but no answer")
        return kept


MOVES = st.tuples(
    st.integers(0, 2),  # which replica
    st.sampled_from(["step", "step", "step", "step", "release", "remove"]),
    st.sampled_from(["", "", "", "lost", "unheard"]),
    st.sampled_from([0.0, 0.0, 0.1, 3.0, 8.0]),  # how long the call takes
    st.sampled_from([0.0, 0.5, 2.0, 2.4, 6.0, 20.0]),  # what passes afterwards
)


@settings(max_examples=400, deadline=None)
@given(st.lists(MOVES, max_size=60), st.permutations([0.8, 1.0, 1.15]))
def test_never_two_leaders(moves: list[tuple[int, str, str, float, float]], speeds: list[float]) -> None:
    world = VirtualClock()
    store = Shaky(world)
    clocks = [Skewed(world, speed, 1000.0 * number) for number, speed in enumerate(speeds)]
    replicas = [replica(store, f"r{number}", clock) for number, clock in enumerate(clocks)]
    for who, move, fate, delay, pause in moves:
        store.fate = (fate, delay)
        if move == "step":
            replicas[who].step()
        elif move == "release":
            replicas[who].release()
        else:
            store.version += 1  # somebody wrote into it, without changing anything
            if store.lease is not None:
                store.lease["metadata"]["resourceVersion"] = str(store.version)
        world.advance(pause)
        leaders = [
            a.identity for a, clock in zip(replicas, clocks, strict=True) if a.is_leader(clock.monotonic())
        ]
        assert len(leaders) <= 1


@settings(max_examples=100, deadline=None)
@given(st.lists(MOVES, max_size=30))
def test_once_the_trouble_is_over_somebody_leads(moves: list[tuple[int, str, str, float, float]]) -> None:
    world = VirtualClock()
    store = Shaky(world)
    replicas = [replica(store, f"r{number}", world) for number in range(3)]
    for who, move, fate, delay, pause in moves:
        store.fate = (fate, delay)
        (replicas[who].step if move == "step" else replicas[who].release)()
        world.advance(pause)
    store.fate = ("", 0.0)
    for _ in range(10):
        for one in replicas[1:]:  # the first never comes back
            one.step()
        world.advance(2.0)
    assert any(one.is_leader(world.monotonic()) for one in replicas[1:])


# ── the thread, and the API ────────────────────────────────────────────────────────────────────────


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


def answering(status: int, body: object, asked: list[tuple[str, str, Any]] | None = None) -> ApiObject:
    def request(method: str, path: str, data: bytes, seconds: float) -> tuple[int, bytes]:
        if asked is not None:
            asked.append((method, path, msgspec.json.decode(data) if data else None))
        return status, msgspec.json.encode(body)

    return ApiObject(request, LEASE, "ns", "bayplan")


GONE = {
    "kind": "Status",
    "message": 'leases "bayplan" not found',
    "details": {"name": "bayplan", "kind": "leases"},
}
UNKNOWN = {"kind": "Status", "message": "the server could not find the requested resource", "details": {}}


def test_an_object_behind_the_api_is_asked_for_by_path() -> None:
    asked: list[tuple[str, str, Any]] = []
    api = answering(200, {"metadata": {"resourceVersion": "7"}}, asked)
    found = api.get(1.0)
    assert found == {"metadata": {"resourceVersion": "7"}}
    api.create({"spec": {"a": 1}}, 1.0)
    api.update({**found, "spec": {"a": 2}}, 1.0)
    named = {"apiVersion": "coordination.k8s.io/v1", "kind": "Lease"}
    path = "/apis/coordination.k8s.io/v1/namespaces/ns/leases"
    assert asked == [
        ("GET", f"{path}/bayplan", None),
        ("POST", path, {**named, "metadata": {"name": "bayplan", "namespace": "ns"}, "spec": {"a": 1}}),
        ("PUT", f"{path}/bayplan", {**named, "metadata": {"resourceVersion": "7"}, "spec": {"a": 2}}),
    ]


def test_an_update_without_a_precondition_is_a_bug() -> None:
    with pytest.raises((AssertionError, KeyError)):
        answering(200, {}).update({"metadata": {}}, 1.0)


@pytest.mark.parametrize(
    ("status", "body", "trouble"),
    [
        (401, {"message": "Unauthorized"}, Unauthorised),
        (403, {"message": "leases is forbidden"}, Forbidden),
        (404, UNKNOWN, NotServed),
        (500, "what", Unreachable),
        (429, {"message": "too many"}, Unreachable),
    ],
)
def test_refusals_are_trouble(status: int, body: object, trouble: type[Exception]) -> None:
    api = answering(status, body)
    for call in (api.get, lambda seconds: api.create({}, seconds)):
        with pytest.raises(trouble, match=str(status)):
            call(1.0)
    with pytest.raises(trouble):
        api.update({"metadata": {"resourceVersion": "1"}}, 1.0)


def test_somebody_else_was_first() -> None:
    assert answering(404, GONE).get(1.0) is None
    with pytest.raises(Taken):
        answering(404, GONE).update({"metadata": {"resourceVersion": "1"}}, 1.0)
    for call in ("create", "update"):
        with pytest.raises(Taken, match="exists"):
            getattr(answering(409, {"message": "exists"}), call)({"metadata": {"resourceVersion": "1"}}, 1.0)
    missing = {"message": 'namespaces "ns" not found', "details": {"name": "ns", "kind": "namespaces"}}
    with pytest.raises(NotServed, match="namespaces"):
        answering(404, missing).create({}, 1.0)
