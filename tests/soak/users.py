"""The users of a soak: they keep a share of all GPUs asked for, note what has ended, and delete it."""

from __future__ import annotations

import random
import threading
import time
from collections import Counter
from dataclasses import dataclass, field

from tests.end_to_end.storm import JOB_SETS, JOBS, PAUSE, Api, Unanswered
from tests.end_to_end.storm_checker import Object, condition
from tests.soak.load import GANGS, GROUPS, JOB_SET, Submission, submission

LOOK_SECONDS = 2.0
FINISHED = ("Complete", "Completed", "Failed")
REFUSALS = ("BadRequest", "Forbidden", "Invalid")
REFUSALS_MAX = 20
"""In a row, for one object: webhooks that cannot be reached refuse as well."""
MISSING_MAX = 3
"""Looks in a row that do not find a job until it counts as lost."""


@dataclass(slots=True)
class OpenGang:
    """A gang that was submitted and has not ended."""

    submission: Submission
    since: float
    missing: int = 0  # looks in a row that did not find it


@dataclass(slots=True)
class Users:
    """Submit, and collect what has ended."""

    api: Api
    dice: random.Random
    gpus: float  # how many are to be asked for
    seconds: tuple[int, int]  # that a gang runs
    open: dict[str, OpenGang] = field(default_factory=dict)
    unwanted: list[str] = field(default_factory=list)  # paths of objects to delete
    submitted: Counter[str] = field(default_factory=Counter)  # by family
    finished: int = 0
    slowest: float = 0.0  # seconds from submission to the end, beside the run time
    violations: list[str] = field(default_factory=list)

    def run(self, stop: threading.Event) -> None:
        """Until stopped."""
        number = 0
        while not stop.is_set():
            asked = sum(one.submission.gpus for one in self.open.values())
            while asked < self.gpus and not stop.is_set():
                given = submission(number, self.dice, self.seconds)
                number += 1
                asked += given.gpus
                if self._submit(given, stop):
                    self.submitted[given.family] += 1
                    self.open[given.name] = OpenGang(given, time.monotonic())
            self.collect()
            stop.wait(LOOK_SECONDS)

    def _submit(self, given: Submission, stop: threading.Event) -> bool:
        """As a user would who tries again until it worked."""
        return all(self._create(path, obj, stop) for path, obj in given.objects)

    def _create(self, path: str, obj: Object, stop: threading.Event) -> bool:
        refusals = 0
        while True:
            try:
                self.api.ask("POST", path, obj)
            except Unanswered as trouble:
                if "AlreadyExists" in str(trouble):  # an earlier answer was lost on its way back
                    return True
                refusals = refusals + 1 if str(trouble).endswith(REFUSALS) else 0
                if refusals > REFUSALS_MAX:
                    self.violations.append(f"{obj['metadata']['name']} is refused: {trouble}")
                    return False
                if stop.wait(PAUSE):
                    self.unwanted.append(f"{path}/{obj['metadata']['name']}")
                    return False
            else:
                return True

    def collect(self) -> None:
        """Gangs that ended are counted and deleted."""
        try:
            found = {
                one["metadata"]["name"]: one for path in (JOBS, JOB_SETS) for one in self.api.items(path)
            }
        except Unanswered:
            return
        for name, gang in list(self.open.items()):
            if name in found:
                gang.missing = 0
                over = [kind for kind in FINISHED if condition(found[name], kind).get("status") == "True"]
                if over:
                    self._end(name, gang, over[0])
            elif (missing := gang.missing + 1) < MISSING_MAX:
                gang.missing = missing
            else:
                self.violations.append(f"{name} is lost: the API does not know it")
                del self.open[name]
        self.unwanted = [path for path in self.unwanted if not self._deleted(path)]

    def _end(self, name: str, gang: OpenGang, how: str) -> None:
        given = gang.submission
        self.unwanted.append(f"{JOB_SETS if given.family == JOB_SET else JOBS}/{name}")
        self.unwanted += [f"{path}/{name}" for path, _ in given.objects if path in (GROUPS, GANGS)]
        del self.open[name]
        if how == "Failed":
            self.violations.append(f"{name} failed")
        self.finished += 1
        self.slowest = max(self.slowest, time.monotonic() - gang.since - given.seconds)

    def _deleted(self, path: str) -> bool:
        try:
            self.api.ask("DELETE", f"{path}?propagationPolicy=Background")
        except Unanswered as trouble:
            return "NotFound" in str(trouble)
        return True
