"""Decisions free their overlays at once: on 100,000 nodes each of them has arrays of 10 MB.

The garbage collector would find them only after many thousands of new objects, as it runs rarely.
"""

from __future__ import annotations

import gc
import weakref
from typing import Any

import pytest

from bayplan.placement.overlay.node_overlay import NodeOverlay
from bayplan.placement.overlay.numa_overlay import NumaOverlay
from bayplan.placement.overlay.topology_overlay import TopologyOverlay
from bayplan.runtime.core.loop import Loop
from bayplan.scheduling.admission.simulation import AdmissionSimulation
from bayplan.simulator.__main__ import run_seed

MADE_BY_DECISIONS = (AdmissionSimulation, TopologyOverlay, NodeOverlay, NumaOverlay)


def test_no_overlay_outlives_the_step_of_its_decision(monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[weakref.ref[Any]] = []
    seen: set[type] = set()
    outlived: set[type] = set()
    for kind in MADE_BY_DECISIONS:

        def init(self: Any, *given: Any, original: Any = kind.__init__, **more: Any) -> None:
            original(self, *given, **more)
            made.append(weakref.ref(self))
            seen.add(type(self))

        monkeypatch.setattr(kind, "__init__", init)
    step = Loop.step

    def watched_step(self: Loop, now: float) -> float:
        due = step(self, now)
        outlived.update(type(left) for one in made if (left := one()) is not None)
        made.clear()
        return due

    monkeypatch.setattr(Loop, "step", watched_step)
    gc.disable()
    try:
        assert not run_seed(2, "shared").violations
    finally:
        gc.enable()
    assert seen == {*MADE_BY_DECISIONS}
    assert not outlived
