"""Stopping a gang as a whole and starting it again: by one write, where its kind allows that."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

from bayplan.dialects.api import Kind, Verb, Write
from bayplan.dialects.jobs.kinds import KINDS
from bayplan.dialects.kueue.names import api_kinds
from bayplan.model.gang import Ref


@dataclass(frozen=True, slots=True)
class GangSwitch:
    """The object that stands for a gang, and the field that stops it."""

    kind: Kind
    ref: Ref
    path: tuple[str, ...]
    stops: bool  # the value that stops it

    def write(self, *, stop: bool) -> Write:
        """The write that stops or starts it."""
        return Write(Verb.MERGE_PATCH, self.kind, self.ref.namespace, self.ref.name, self._body(stop=stop))

    def command(self, *, stop: bool) -> str:
        """The same as a command."""
        body = json.dumps(self._body(stop=stop), separators=(",", ":"))
        name = f"{self.kind.kind.lower()} -n {self.ref.namespace} {self.ref.name}"
        return f"kubectl patch {name} --type=merge -p '{body}'"

    def _body(self, *, stop: bool) -> dict[str, Any]:
        value: Any = self.stops if stop else not self.stops
        for key in reversed(self.path):
            value = {key: value}
        assert isinstance(value, dict)
        return value


def switch_of(ref: Ref) -> GangSwitch | None:
    """The switch of a queued gang or of a job; None if its pods have to be evicted one by one."""
    if ref.kind == api_kinds.WORKLOADS.kind:
        return GangSwitch(api_kinds.WORKLOADS, ref, ("spec", "active"), stops=False)
    entry = KINDS.get(ref.kind)
    if entry is None or not entry.suspend:
        return None
    return GangSwitch(entry.resource, ref, entry.suspend, stops=True)
