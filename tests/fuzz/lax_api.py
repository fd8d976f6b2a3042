"""An API server that stores whatever it is given: only names, versions and uids are right.

A real one checks built-in kinds and those with a schema. Many kinds of jobs have none, and what was stored
under an older schema stays; roles have to live with all of it. Objects are read as the remote backend reads
them: one that does not fit the struct of its kind is not reported.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import msgspec

from bayplan.backends.remote.decoding import Wire, shallow
from bayplan.dialects.api import Ended, Event, Happened, Kind, Verb, Write, WriteOutcome
from tests.fuzz.mutator import encoded

Object = dict[str, Any]
Key = tuple[str, str, str]
"""Group and kind, namespace, name."""


class LaxApi:
    """A Backend. What `put`, `drop` and writes do is reported with the next events."""

    def __init__(self) -> None:
        self.objects: dict[Key, Object] = {}
        self._kinds: dict[str, list[Kind]] = {}  # by group and kind
        self._events: list[Event] = []
        self._outcomes: list[WriteOutcome] = []
        self._reported: dict[Key, dict[Kind, Any]] = {}  # as it was last told
        self._wires: dict[Kind, Wire] = {}
        self._last = 0

    # ── what the fuzzer does ───────────────────────────────────────────────────────────────────────

    def put(self, obj: Object) -> Key:
        """Create an object or replace it."""
        key = key_of(obj)
        known = self.objects.get(key)
        self._last += 1
        meta = {
            **obj["metadata"],
            "name": key[2],
            "uid": known["metadata"]["uid"] if known else f"uid-{self._last}",
            "resourceVersion": str(self._last),
            "generation": self._last,
        }
        meta.setdefault("creationTimestamp", "2027-01-15T07:30:00Z")
        if key[1]:
            meta["namespace"] = key[1]
        stored = {**obj, "metadata": meta}
        if meta.get("deletionTimestamp") and not meta.get("finalizers") and known:
            self.drop(key)
            return key
        self.objects[key] = stored
        self._tell(key, stored)
        return key

    def drop(self, key: Key) -> None:
        """Delete an object, whatever its finalizers say."""
        if self.objects.pop(key, None) is not None:
            for kind, shown in self._reported.pop(key, {}).items():
                self._events.append(Event(Happened.GONE, kind, shown, str(self._last)))

    # ── what the loop does ─────────────────────────────────────────────────────────────────────────

    def watch(self, kinds: Sequence[Kind]) -> None:
        """Begin to report on these kinds: there is nothing yet."""
        for kind in kinds:
            self._kinds.setdefault(f"{kind.group}/{kind.kind}", []).append(kind)
            self._events.append(Event(Happened.SYNCED, kind, None, "1"))

    def events(self) -> Iterable[Event]:
        """Everything that happened since the last call."""
        found, self._events = self._events, []
        return found

    def submit(self, writes: Sequence[Write]) -> None:
        """Make these writes."""
        self._outcomes += [self._written(write) for write in writes]

    def outcomes(self) -> Iterable[WriteOutcome]:
        """How each write ended."""
        found, self._outcomes = self._outcomes, []
        return found

    def wait(self, seconds: float) -> None:
        """Virtual time does not wait."""

    def close(self, grace_seconds: float = 0.0) -> None:
        """Nothing was opened."""

    def _written(self, write: Write) -> WriteOutcome:
        msgspec.json.encode(write.body)  # whatever is sent must be JSON
        group = f"{write.kind.group}/{write.kind.kind}"
        key = (group, write.namespace if write.kind.namespaced else "", write.name)
        known = self.objects.get(key)
        if write.kind.kind == "Event":
            return WriteOutcome(write, Ended.DONE, 201)
        if write.verb is Verb.CREATE and not write.subresource:
            if known is not None:
                return WriteOutcome(write, Ended.CONFLICT, 409, f"{write.name} already exists")
            body = {"apiVersion": write.kind.api_version, "kind": write.kind.kind, **write.body}
            meta = {"name": write.name, **(write.body.get("metadata") or {}), "namespace": write.namespace}
            self.put({**body, "metadata": meta})
            return WriteOutcome(write, Ended.DONE, 201, "", self._shown(write.kind, key))
        if known is None or (write.uid and write.uid != known["metadata"]["uid"]):
            return WriteOutcome(write, Ended.GONE, 404, f"{write.name} not found")
        if write.version and write.version != known["metadata"]["resourceVersion"]:
            return WriteOutcome(write, Ended.CONFLICT, 409, "the object has been modified")
        self._change(write, key, known)
        return WriteOutcome(write, Ended.DONE, 200, "", self._shown(write.kind, key))

    def _change(self, write: Write, key: Key, known: Object) -> None:
        if write.verb is Verb.DELETE or write.subresource == "eviction":
            if known["metadata"].get("finalizers"):
                gone = {**known["metadata"], "deletionTimestamp": "2027-01-15T08:00:00Z"}
                self.put({**known, "metadata": gone})
            else:
                self.drop(key)
        elif write.subresource == "binding":
            spec = known.get("spec")
            node = (write.body.get("target") or {}).get("name")
            self.put({**known, "spec": {**(spec if isinstance(spec, dict) else {}), "nodeName": node}})
        else:
            changed = merged(known, write.body) if write.verb is not Verb.UPDATE else {**known, **write.body}
            self.put(changed)

    def _tell(self, key: Key, stored: Object) -> None:
        text = encoded(stored)
        for kind in self._kinds.get(key[0], ()):
            if kind.version != stored["apiVersion"].rpartition("/")[2] or not _selected(kind, stored):
                continue
            shown = self._read(kind, text)
            if shown is not None:
                self._reported.setdefault(key, {})[kind] = shown
                self._events.append(Event(Happened.SEEN, kind, shown, stored["metadata"]["resourceVersion"]))

    def _shown(self, kind: Kind, key: Key) -> Any:
        stored = self.objects.get(key)
        return None if stored is None else self._read(kind, encoded(stored))

    def _read(self, kind: Kind, text: bytes) -> Any:
        """As the remote backend reads it: what cannot be read stays as it was."""
        if kind not in self._wires:
            self._wires[kind] = Wire(kind)
        try:
            return self._wires[kind].object(shallow(text))
        except msgspec.ValidationError:
            return None


def key_of(obj: Object) -> Key:
    """Where an object is stored."""
    group = obj["apiVersion"].rpartition("/")[0]
    namespace = (
        "" if obj["kind"] in CLUSTER_WIDE.get(group, ()) else obj["metadata"].get("namespace", "default")
    )
    return f"{group}/{obj['kind']}", namespace, obj["metadata"]["name"]


CLUSTER_WIDE: dict[str, tuple[str, ...]] = {
    "": ("Node", "Namespace", "PersistentVolume"),
    "kueue.x-k8s.io": (
        *("Topology", "ResourceFlavor", "Cohort", "ClusterQueue", "AdmissionCheck"),
        *("ProvisioningRequestConfig", "WorkloadPriorityClass"),
    ),
    "scheduling.k8s.io": ("PriorityClass",),
    "storage.k8s.io": ("StorageClass", "CSINode"),
    "topology.node.k8s.io": ("NodeResourceTopology",),
    "scheduling.run.ai": ("Queue",),
    "kai.scheduler": ("Topology",),
    "trainer.kubeflow.org": ("ClusterTrainingRuntime",),
}


def merged(known: Any, patch: Any) -> Any:
    """A JSON merge patch."""
    if not isinstance(patch, dict):
        return patch
    found = dict(known) if isinstance(known, dict) else {}
    for name, value in patch.items():
        if value is None:
            found.pop(name, None)
        else:
            found[name] = merged(found.get(name), value)
    return found


def _selected(kind: Kind, stored: Object) -> bool:
    name, _, value = kind.label_selector.partition("=")
    return not name or (stored["metadata"].get("labels") or {}).get(name) == value
