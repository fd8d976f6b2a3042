"""Stopping a gang as a whole and starting it again: by one write, where its kind allows that."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

from bayplan.dialects.api import Kind, Verb, Write
from bayplan.dialects.jobs.kinds import KINDS
from bayplan.dialects.kube.encode.move_marks import PlanMark, gang_marks
from bayplan.dialects.kueue.decode.scheduled_jobs import DIALECT
from bayplan.dialects.kueue.names import api_kinds
from bayplan.model.gang import Ref


@dataclass(frozen=True, slots=True)
class GangSwitch:
    """The object that stands for a gang, and the field that stops it."""

    kind: Kind
    ref: Ref
    path: tuple[str, ...]
    stops: bool  # the value that stops it

    def stop(self, mark: PlanMark) -> Write:
        """The write that stops it, and says which plan did so."""
        return self._write(stop=True, mark=mark)

    def start(self) -> Write:
        """The write that starts it again, and removes the mark of the plan."""
        return self._write(stop=False, mark=None)

    def command(self, *, stop: bool) -> str:
        """The write that stops or starts it, as a command."""
        body = json.dumps(self._body(stop=stop), separators=(",", ":"))
        name = f"{self.kind.kind.lower()} -n {self.ref.namespace} {self.ref.name}"
        return f"kubectl patch {name} --type=merge -p '{body}'"

    def _write(self, *, stop: bool, mark: PlanMark | None) -> Write:
        body = {**self._body(stop=stop), "metadata": {"annotations": gang_marks(mark)}}
        return Write(Verb.MERGE_PATCH, self.kind, self.ref.namespace, self.ref.name, body)

    def _body(self, *, stop: bool) -> dict[str, Any]:
        value: Any = self.stops if stop else not self.stops
        for key in reversed(self.path):
            value = {key: value}
        assert isinstance(value, dict)
        return value


def switch_of(ref: Ref) -> GangSwitch | None:
    """The switch of a queued gang or of a job; None if its pods have to be evicted one by one."""
    if ref.dialect != DIALECT:  # Workloads of the gang API have no switch
        return None
    if ref.kind == api_kinds.WORKLOADS.kind:
        return GangSwitch(api_kinds.WORKLOADS, ref, ("spec", "active"), stops=False)
    entry = KINDS.get(ref.kind)
    if entry is None or not entry.suspend:
        return None
    return GangSwitch(entry.resource, ref, entry.suspend, stops=True)
