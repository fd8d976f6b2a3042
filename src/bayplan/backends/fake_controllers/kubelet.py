"""Simulated kubelets: the stages of a bound pod."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from math import isnan

from bayplan.backends.fake_controllers.objects import (
    PODS,
    Object,
    annotations_of,
    condition,
    delete,
    is_terminating,
    patch_status,
    phase_of,
)  # fmt: skip
from bayplan.backends.fake_controllers.programs import fails, seconds_of
from bayplan.dialects.api import Write

RUN_SECONDS = "bayplan.dev/run-seconds"
EXIT = "bayplan.dev/exit"
START_SECONDS = 0.5
STOP_SECONDS = 0.5


@dataclass(frozen=True, slots=True)
class Stage:
    """A write that follows some seconds after a pod enters a state. The first matching stage counts."""

    name: str
    applies: Callable[[Object], bool]
    seconds: Callable[[Object], float]
    write: Callable[[Object, str], Write]


def stage_of(pod: Object) -> Stage | None:
    """The stage of a pod, if a write is due for it."""
    if not pod["spec"].get("nodeName"):
        return None
    return next((stage for stage in STAGES if stage.applies(pod)), None)


def _run_seconds(pod: Object) -> float:
    try:
        told = float(annotations_of(pod).get(RUN_SECONDS, ""))
    except ValueError:
        return seconds_of(pod)
    return seconds_of(pod) if isnan(told) else max(told, 0.0)


def _running(pod: Object, now: str) -> Write:
    conditions = [condition(kind, now, "Started") for kind in ("Initialized", "Ready", "ContainersReady")]
    status = {"phase": "Running", "startTime": now, "conditions": _merged_conditions(pod, conditions)}
    running = {"running": {"startedAt": now}}
    return patch_status(PODS, pod, status | {"containerStatuses": _containers(pod, running, ready=True)})


def _ended(pod: Object, now: str) -> Write:
    phase = "Failed" if annotations_of(pod).get(EXIT, "0") not in ("", "0") or fails(pod) else "Succeeded"
    ready = [condition("Ready", now, "PodCompleted", status="False")]
    reason, code = ("Error", 1) if phase == "Failed" else ("Completed", 0)
    ended = {"terminated": {"exitCode": code, "reason": reason, "finishedAt": now}}
    status = {"phase": phase, "conditions": _merged_conditions(pod, ready)}
    return patch_status(PODS, pod, status | {"containerStatuses": _containers(pod, ended, ready=False)})


def _containers(pod: Object, state: Object, ready: bool) -> list[Object]:
    return [
        {
            "name": container["name"],
            "image": container.get("image", ""),
            "imageID": "",
            "restartCount": 0,
            "ready": ready,
            "state": state,
        }
        for container in pod["spec"].get("containers") or []
    ]


def _merged_conditions(pod: Object, fresh: list[Object]) -> list[Object]:
    """The conditions of a pod, with those of the same types replaced."""
    kinds = {entry["type"] for entry in fresh}
    known = (pod.get("status") or {}).get("conditions") or []
    return [entry for entry in known if entry.get("type") not in kinds] + fresh


STAGES = (
    Stage("removed", is_terminating, lambda pod: STOP_SECONDS, lambda pod, now: delete(PODS, pod, grace=0)),
    Stage("running", lambda pod: phase_of(pod) == "Pending", lambda pod: START_SECONDS, _running),
    Stage("ended", lambda pod: phase_of(pod) == "Running", _run_seconds, _ended),
)
