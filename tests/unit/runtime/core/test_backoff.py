"""Failed work backs off, and work that is not tried again is forgotten."""

from __future__ import annotations

from bayplan.runtime.core.backoff import Backoff


def test_the_pause_doubles_with_each_failure_up_to_the_limit_and_ends_with_a_success() -> None:
    backoff: Backoff[str] = Backoff(5.0, 30.0)
    assert [backoff.failed("a", 100.0) for _ in range(5)] == [105.0, 110.0, 120.0, 130.0, 130.0]
    backoff.succeeded("a")
    assert backoff.failed("a", 100.0) == 105.0


def test_keys_that_failed_and_are_gone_are_forgotten() -> None:
    backoff: Backoff[str] = Backoff(5.0, 30.0)
    for number in range(1000):
        backoff.failed(f"gone-{number}", float(number))
        backoff.failed("stays", float(number))
    assert len(backoff) < 100
    assert backoff.failed("stays", 1000.0) == 1030.0
