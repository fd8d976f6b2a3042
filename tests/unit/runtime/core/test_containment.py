"""An exception ends the unit of work that raised it, and nothing else."""

from __future__ import annotations

import threading

from bayplan.runtime.core.clock import SystemClock
from bayplan.runtime.core.containment import Containment, SupervisedThread


def test_an_error_is_logged_once_and_counted_each_time() -> None:
    logged: list[dict[str, str]] = []
    counted: list[tuple[str, str]] = []
    containment = Containment(
        lambda sentence, error, **facts: logged.append({"sentence": sentence, **facts}),
        lambda where, kind: counted.append((where, kind)),
    )
    for _ in range(3):
        with containment.unit("decode", "Pod", "team-a/train-0"):
            raise KeyError("level")
    assert [one["sentence"] for one in logged] == ["contained an error in decode of Pod team-a/train-0"]
    assert logged[0]["object"] == "team-a/train-0"
    assert counted == [("decode", "Pod")] * 3


def test_the_same_error_of_another_object_is_logged_too() -> None:
    logged: list[str] = []
    containment = Containment(lambda sentence, error, **facts: logged.append(facts["id"]))
    for name in ("team-a/x", "team-b/x"):
        with containment.unit("decode", "Pod", name):
            raise KeyError("level")
    assert len(set(logged)) == 2


def test_what_stops_the_process_is_not_contained() -> None:
    containment = Containment()
    try:
        with containment.unit("decode"):
            raise KeyboardInterrupt
    except KeyboardInterrupt:
        return
    raise AssertionError("the interrupt was swallowed")


def test_a_thread_that_dies_is_started_again_and_counted() -> None:
    counted: list[str] = []
    stop, runs = threading.Event(), []

    def work() -> None:
        runs.append(1)
        if len(runs) == 1:
            raise ValueError("once")
        stop.set()

    containment = Containment(count=lambda where, kind: counted.append(where))
    thread = SupervisedThread("certificates", work, containment, stop, SystemClock())
    thread.start()
    thread.join(20)
    assert len(runs) == 2 and counted == ["thread"]
