"""The loop with every role, on an API server that stores anything: objects come, change and go."""

from __future__ import annotations

from random import Random
from typing import Any

from bayplan.cli.running.role_controllers import controllers_for
from bayplan.runtime.controllers.scheduler.controller import SchedulerController
from bayplan.runtime.core.loop import Loop
from tests.fuzz.gatekeeper import Gatekeeper
from tests.fuzz.lax_api import Key, LaxApi, key_of
from tests.fuzz.material import KEYS, WORDS, everything
from tests.fuzz.mutator import Mutator, copied
from tests.fuzz.sizes import kept_by
from tests.fuzz.target import Broken, Case

Object = dict[str, Any]

START = 1_800_000_000.0
NAMES = ("alpha", "alpha", "beta", "gamma")
FIXTURES = (
    "Node",
    "Namespace",
    "Topology",
    "ResourceFlavor",
    "Cohort",
    "ClusterQueue",
    "LocalQueue",
    "Queue",
)
DRAIN_SECONDS = (0.0, 1.0, 30.0, 400.0, 4000.0, 100_000.0)
STEPS_AT_ONCE = 6
TRIES = 3  # for a change that an API server lets through


class Silent:
    """A journal that keeps nothing."""

    def record(self, now: float, what: str, body: object, role: str = "") -> None: ...


class Drawn:
    """Objects as a tenant, or a broken controller, could write them."""

    def __init__(self) -> None:
        self.material = everything()
        self.mutator = Mutator(WORDS)
        self.gate = Gatekeeper()

    def object(self, rng: Random, *, typed: bool) -> Object:
        """A valid object with a few changes."""
        return self.changed(rng, rng.choice(self.material), typed=typed)

    def changed(self, rng: Random, known: Object, *, typed: bool) -> Object:
        """The object with a few changes, as far as an API server lets them through.

        What it guarantees of the metadata of all objects holds.
        """
        typed = typed or (self.gate.checks(known) and rng.random() < 0.95)
        for _ in range(TRIES):
            found = self.gate.passed(self._changed(rng, known, typed=typed))
            if found is not None:
                return found
        return known

    def _changed(self, rng: Random, known: Object, *, typed: bool) -> Object:
        found: Object = copied(known)
        meta = found["metadata"]
        if found["kind"] not in FIXTURES and rng.random() < 0.5:
            meta["name"] = rng.choice(NAMES)
        body = {
            name: value for name, value in found.items() if name not in ("apiVersion", "kind", "metadata")
        }
        if body and rng.random() < 0.9:
            changed = self.mutator.changed(rng, body, typed=typed)
            found = {name: found[name] for name in ("apiVersion", "kind", "metadata")} | changed
        if rng.random() < 0.5:
            self._mark(rng, meta)
        return found

    def _mark(self, rng: Random, meta: Object) -> None:
        """Labels, annotations and owners; always of the right type."""
        for _ in range(rng.randrange(1, 4)):
            where = meta.setdefault(rng.choice(("labels", "annotations", "annotations")), {})
            where[rng.choice(KEYS)] = self.mutator.text(rng)
        match rng.randrange(8):
            case 0 | 1:
                owner = rng.choice(self.material)
                meta["ownerReferences"] = [
                    {
                        "apiVersion": owner["apiVersion"],
                        "kind": owner["kind"],
                        "name": rng.choice(NAMES),
                        "uid": rng.choice(("uid-1", "uid-30", "u")),
                        "controller": rng.random() < 0.7,
                    }
                    for _ in range(rng.randrange(1, 3))
                ]
            case 2:
                meta["deletionTimestamp"] = "2027-01-15T08:00:00Z"
                meta["finalizers"] = [
                    rng.choice(("x/y", "kueue.x-k8s.io/managed", "kueue.x-k8s.io/resource-in-use"))
                ]
            case 3:
                meta["finalizers"] = [rng.choice(("x/y", "kueue.x-k8s.io/managed"))]


class RolesTarget:
    """A case is a list of things to do: put an object, delete one, let time pass."""

    name = "roles"

    def __init__(self) -> None:
        self.drawn = Drawn()
        fixtures = [one for one in self.drawn.material if one["kind"] in FIXTURES]
        self.fixed: dict[Key, Object] = {key_of(one): one for one in fixtures}
        self.reset()

    def reset(self) -> None:
        """A cluster with a node, queues, flavors and topologies."""
        self.api, self.now = LaxApi(), START
        self.roles = controllers_for(frozenset({"admission", "scheduler", "grouper"}))
        self.loop = Loop(self.api, self.roles, Silent())
        for one in self.fixed.values():
            self.api.put(copied(one))
        self._drain()

    def draw(self, rng: Random) -> Case:
        """Some objects, each perhaps changed later, and time between them."""
        typed = rng.random() < 0.5
        made: list[Object] = []
        things: list[list[Any]] = []
        for _ in range(rng.randrange(3, 15)):
            match rng.randrange(12):
                case 0 if made:
                    things.append(["drop", *key_of(rng.choice(made))])
                case 1 | 2 if made:
                    things.append(["put", self.drawn.changed(rng, rng.choice(made), typed=typed)])
                    made.append(things[-1][1])
                case 3:
                    things.append(["pass", rng.choice((0.1, 1.0, 7.0, 61.0, 1000.0))])
                case _:
                    things.append(["put", self.drawn.object(rng, typed=typed)])
                    made.append(things[-1][1])
        return things

    def run(self, case: Case) -> int:
        """Do everything, then delete every object and wait until nothing more happens."""
        for thing in case:
            match thing:
                case ["put", obj]:
                    self.api.put(copied(obj))
                case ["drop", group, namespace, name]:
                    self.api.drop((group, namespace, name))
                case ["pass", seconds]:
                    self.now += seconds
                    self._work()
        self._work()
        self._clear()
        return sum(thing[0] == "put" for thing in case)

    def sizes(self) -> dict[str, int]:
        self._drain()
        for role in self.roles:
            if isinstance(role, SchedulerController):  # rows of nodes are built when a gang first needs them
                for cluster in role.state.store.nodes.topologies.values():
                    cluster.snapshot()
        return kept_by({role.name: role for role in self.roles})

    def _clear(self) -> None:
        """Delete what came; what was there before is as it was."""
        for key in list(self.api.objects):
            if key not in self.fixed:
                self.api.drop(key)
        for key, one in self.fixed.items():
            known = self.api.objects.get(key)
            if known is None or not _unchanged(known, one):
                self.api.drop(key)
                self.api.put(copied(one))
        self._drain((1.0, 100.0))

    def _drain(self, seconds: tuple[float, ...] = DRAIN_SECONDS) -> None:
        """Let time pass; what roles still create is deleted, as a garbage collector would."""
        for some in seconds:
            self.now += some
            self._work()
            for key in [key for key in self.api.objects if key not in self.fixed]:
                self.api.drop(key)
        self._work()

    def _work(self) -> None:
        for _ in range(STEPS_AT_ONCE):
            due = self.loop.step(self.now)
            if due > self.now:
                break
        if due != due or due < self.now - 1.0:  # noqa: PLR0124 - not a number
            raise Broken(f"the loop wants to be called at {due}, now it is {self.now}")


def _unchanged(known: Object, fixture: Object) -> bool:
    """Whether a fixture is as it was, but for what roles write: the status of a queue, and finalizers."""
    parts = ("spec", "value", "levels", *(("status",) if fixture["kind"] == "Node" else ()))
    marks = ("labels", "annotations", "ownerReferences", "deletionTimestamp")
    return all(known.get(part) == fixture.get(part) for part in parts) and all(
        known["metadata"].get(mark) == fixture["metadata"].get(mark) for mark in marks
    )
