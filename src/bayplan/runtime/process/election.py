"""Leader election with a Lease: at most one replica leads at a time, even if a process is suspended.

A leader counts its time from before its renewal request; the others count from after they saw the renewal,
and for longer. So it stops before another replica may start, without comparing clocks.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from bayplan.dialects.errors import ApiError
from bayplan.runtime.core.api_object import NamedObject, WriteConflict
from bayplan.runtime.core.clock import Clock, SystemClock, micro_timestamp
from bayplan.runtime.core.containment import UNCONTAINED, Containment, SupervisedThread


@dataclass(frozen=True, slots=True)
class Timing:
    """Durations in seconds. Clocks may run at different speeds, up to the ratio of lease and renew."""

    lease_seconds: int = 15  # other replicas take over this long after the last renewal they saw
    renew_seconds: float = 10.0  # the leader stops this long after the start of its last renewal
    retry_seconds: float = 2.0  # between attempts
    call_seconds: float = 5.0  # timeout of one API call

    def __post_init__(self) -> None:
        assert self.lease_seconds > self.renew_seconds > self.retry_seconds * (1 + JITTER), self
        assert self.retry_seconds > 0 and self.call_seconds > 0, self

    @property
    def write_seconds(self) -> float:
        """The timeout of a write that starts while leading: no other replica leads before it ends."""
        return self.lease_seconds - self.renew_seconds


JITTER = 0.2
"""Attempts are up to this fraction of `retry_seconds` further apart."""


@dataclass(frozen=True, slots=True)
class LeaderTerm:
    """A period of leading without a gap, on the monotonic clock."""

    number: int
    since: float
    until: float


@dataclass(frozen=True, slots=True)
class LeaseSeen:
    """The Lease at its last observed change, and the time of that."""

    lease: Mapping[str, Any]
    at: float

    @property
    def holder(self) -> str:
        return self.lease.get("spec", {}).get("holderIdentity") or ""

    @property
    def version(self) -> str:
        return str(self.lease["metadata"].get("resourceVersion", ""))

    def expires(self, timing: Timing) -> float:
        """When its holder may be replaced, by the duration that the holder itself wrote and relies on."""
        duration = self.lease.get("spec", {}).get("leaseDurationSeconds") or timing.lease_seconds
        return self.at + float(duration)


class Election:
    """One replica's part. `step` and `release` belong to one thread; `is_leader` may be called from any."""

    def __init__(
        self,
        lease: NamedObject,
        identity: str,
        clock: Clock,
        jitter: Callable[[], float],
        timing: Timing = Timing(),  # noqa: B008 - it is frozen
        note: Callable[[str], None] = lambda sentence: None,
    ) -> None:
        assert identity
        self.identity, self.timing = identity, timing
        self._lease, self._clock, self._jitter, self._note = lease, clock, jitter, note
        self._seen: LeaseSeen | None = None
        self._term: LeaderTerm | None = None
        self._terms = 0
        self._trouble = ""
        self._is_ready: Callable[[], bool] = lambda: True

    def acquire_when(self, is_ready: Callable[[], bool]) -> None:
        """Acquire the Lease only while this holds: a replica that knows all objects leads first."""
        self._is_ready = is_ready

    @property
    def term(self) -> LeaderTerm | None:
        """The last term; it may be over."""
        return self._term

    @property
    def holder(self) -> str:
        """The last known leader; empty if there is none."""
        return self._seen.holder if self._seen else ""

    def is_leader(self, now: float) -> bool:
        """Whether this replica leads at a monotonic time. Check before every batch of writes."""
        term = self._term
        return term is not None and now < term.until

    def until(self) -> float:
        """Until when this replica leads, on the monotonic clock; a moment in the past if it does not."""
        term = self._term
        return 0.0 if term is None else term.until

    def step(self) -> float:
        """Try once to renew or acquire; returns the seconds until the next attempt."""
        self._notice_loss()
        try:
            self._attempt()
            self._trouble = ""
        except WriteConflict:
            pass  # the next attempt reads the Lease again
        except Exception as error:  # any error: a replica that stops trying never leads again, unnoticed
            message = str(error) if isinstance(error, ApiError) else repr(error)
            if message != self._trouble:  # log it once, not every two seconds
                self._trouble = message
                self._note(f"cannot reach the lease: {message}")
        self._notice_loss()
        return self.timing.retry_seconds * (1 + JITTER * self._jitter())

    def release(self) -> None:
        """Stop leading and release the Lease. Call it when all writes have ended."""
        led, self._term = self._term is not None, None
        seen = self._seen
        if not led or seen is None or seen.holder != self.identity:
            return
        body = self._body({"holderIdentity": None, "leaseDurationSeconds": 1}, seen.lease)
        try:
            self._lease.update(body, self.timing.call_seconds)
            self._note("released the lease")
        except (WriteConflict, ApiError) as error:
            self._note(f"could not release the lease; it expires by itself ({error})")

    def _attempt(self) -> None:
        began = self._clock.monotonic()
        if self.is_leader(began) and self._seen is not None:
            try:  # one call is enough as long as no other replica wrote
                return self._write(self._lease.update, {}, self._seen.lease, began)
            except WriteConflict:
                pass
        self._read()
        seen, began = self._seen, self._clock.monotonic()
        if (
            seen is not None
            and seen.holder != self.identity
            and seen.holder
            and began < seen.expires(self.timing)
        ):
            return None
        return self._acquire(seen, began) if self._is_ready() else None

    def _read(self) -> None:
        """Read the Lease. A change restarts its expiry; after a deletion the old expiry still counts."""
        found = self._lease.get(self._seconds())
        now = self._clock.monotonic()
        if found is None:
            if self._seen is not None and self._seen.version:
                self._seen = LeaseSeen({**self._seen.lease, "metadata": {}}, self._seen.at)
        elif self._seen is None or self._seen.version != found["metadata"].get("resourceVersion"):
            self._seen = LeaseSeen(found, now)

    def _acquire(self, seen: LeaseSeen | None, began: float) -> None:
        spec = {"holderIdentity": self.identity, "leaseDurationSeconds": self.timing.lease_seconds}
        if seen is None or not seen.version:
            return self._write(self._lease.create, {**spec, "leaseTransitions": 0}, {}, began)
        if seen.holder != self.identity:
            spec["leaseTransitions"] = (seen.lease["spec"].get("leaseTransitions") or 0) + 1
        return self._write(self._lease.update, spec, seen.lease, began)

    def _write(
        self,
        call: Callable[[Mapping[str, Any], float], dict[str, Any]],
        spec: Mapping[str, Any],
        over: Mapping[str, Any],
        began: float,
    ) -> None:
        """Write the Lease in our name; on success this replica leads from `began` on."""
        now = micro_timestamp(self._clock.wall())
        acquired = {"acquireTime": now} if spec else {}
        written = call(self._body({"renewTime": now, **acquired, **spec}, over), self._seconds())
        done = self._clock.monotonic()
        self._seen = LeaseSeen(written, done)
        until = began + self.timing.renew_seconds
        if self._term is None or done >= self._term.until:
            self._terms += 1
            self._term = LeaderTerm(self._terms, done, until)
            self._note(f"leads as {self.identity}")
        else:
            self._term = LeaderTerm(self._term.number, self._term.since, until)

    def _body(self, spec: Mapping[str, Any], over: Mapping[str, Any]) -> dict[str, Any]:
        """The Lease with these fields changed and all others kept."""
        return {**over, "spec": {**over.get("spec", {}), **spec}}

    def _seconds(self) -> float:
        """The timeout of a call: not beyond the current term."""
        term, now = self._term, self._clock.monotonic()
        left = term.until - now if term is not None and now < term.until else self.timing.call_seconds
        return min(left, self.timing.call_seconds)

    def _notice_loss(self) -> None:
        if self._term is not None and self._clock.monotonic() >= self._term.until:
            self._term = None
            self._note(f"leads no longer: not renewed within {self.timing.renew_seconds:g} s")


class ElectionThread:
    """Runs an election until it is stopped."""

    def __init__(
        self, election: Election, containment: Containment = UNCONTAINED, clock: Clock | None = None
    ) -> None:
        self._election = election
        self._stop = threading.Event()
        self._thread = SupervisedThread(
            "election", self._run, containment, self._stop, clock or SystemClock()
        )
        self._thread.start()

    def stop(self) -> None:
        """Release the Lease and end. Call it when all writes have ended."""
        self._stop.set()
        self._thread.join()
        self._election.release()

    def _run(self) -> None:
        while not self._stop.wait(self._election.step()):
            pass
