"""Whose turn it is, what they are held against, and what becomes of what was decided about them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from bayplan.model.charter import Charter
from bayplan.model.gang import AUTO, Group, PodSet, Ref
from bayplan.model.plan import Action, Begin, Bind, Displace, Nominate, Plan, Refuse
from bayplan.model.pod import Pod, PodKey
from bayplan.model.standstill import Hindrance, Standstill
from bayplan.placement.fit_filters import Scene
from bayplan.state.crew import Crew, hindrance, in_order
from bayplan.state.flat import FLAT
from bayplan.state.hints import ROOMY
from bayplan.state.line import NEVER, Entry, Hint, Place
from bayplan.state.lone import lone_charter, lone_ref
from bayplan.state.look import Candidate, Look
from bayplan.state.standing import ASSUMED_SECONDS, ROOM_SECONDS, Standing

__all__ = ["ASSUMED_SECONDS", "Board", "lone_charter", "lone_ref"]

OF_ITS_OWN = "/"
"""In the name of a topology: only gangs that name it are placed by it."""


class Board(Standing):
    """The fold of all changes, and the line of those who want something. No clock, no I/O."""

    # ── asking ─────────────────────────────────────────────────────────────────────────────────────

    def heads(self, now: float) -> list[Ref]:
        """Whose turn it is, best first. Asked again before anything happened, the answer is the same."""
        if self.zones.checks:
            self._hint(Hint.ZONES, self.zones.catch_up(now))
        self._flush(now)
        for entry in self.line.expired(now):
            self._expired(entry, now)
        for key in [key for key, due in self.doubted.items() if due <= now]:
            del self.doubted[key]
            if key in self.pods and not self.pods[key].leaving:
                self._stays(key)
        self._flush(now)
        for ref, since in list(self.partial.items()):
            if since + self.heal_seconds > now:
                break
            entry = self.line.entries[ref]
            if entry.place is not Place.READY and not self._is_busy(entry):
                self.line.move(entry, Place.READY)
        return self.line.heads()

    def next_due(self, now: float) -> float:
        """When something has to be done even if nothing happens."""
        self._flush(now)
        entries = self.line.entries
        stale = (since for ref, since in self.partial.items() if not self._is_busy(entries[ref]))
        doubted = min(self.doubted.values(), default=NEVER)
        healed = min(stale, default=NEVER) + self.heal_seconds
        return max(min(self.line.next_due(now), healed, doubted, self.zones.next_due()), now)

    def look(self, refs: Iterable[Ref], now: float) -> Look:
        """A frozen view for deciding on these gangs. It is good until the next change is folded in."""
        self._looked = list(refs)
        candidates = tuple(
            self._candidate(crew, now) for ref in self._looked if (crew := self.crews.get(ref)) is not None
        )
        supply, ground = self.flat.view()
        own = {pod.key for candidate in candidates for pod in candidate.waiting} if self.nominations else ()
        topologies = {each.topology for each in candidates if each.charter.tree is not None}
        if self.fair.active:  # those who make room by moving may be in any
            topologies |= set(self.clusters)
        return Look(
            scene=Scene(
                ground,
                self.index,
                self.stores.picture(),
                self.images,
                self.zones.ground(supply.tree.nodes),
            ),
            supply=supply,
            supplies={
                name: supply if name == FLAT.name else self.clusters[name].snapshot() for name in topologies
            },
            candidates=candidates,
            pods=self.placed,
            charters=self.charters,
            members=self.members,
            budgets=tuple(self.budgets.values()),
            nominations={key: said for key, said in self.nominations.items() if key not in own},
            kept=self.kept,
            kept_priority=self.line.entries[self.kept[0]].priority if self.kept is not None else None,
            fair=self.fair.view(),
        )

    def _candidate(self, crew: Crew, now: float) -> Candidate:
        entry, waiting = self.line.put(crew.ref, lone=crew.lone), self.waiting(crew.ref)
        since = self.partial.get(crew.ref, NEVER)
        stale = since + self.heal_seconds <= now and (crew.spent or not self._mends(crew.ref))
        charter = crew.charter
        why = None if stale and charter is not None else hindrance(crew)
        if charter is None:
            charter = Charter(crew.ref, priority=entry.priority)
        if why is not None:
            crew.noted, crew.noted_at, crew.noted_for = why, now, crew.newest
        nominated = {}
        if self.nominations:
            found = ((pod.key, self.nominations.get(pod.key)) for pod in waiting)
            nominated = {key: said[1] for key, said in found if said is not None}
        return Candidate(
            charter,
            self._all_waiting(crew) if why is not None else waiting,
            self.standing(crew.ref),
            nominated,
            frozenset(crew.victims),
            why,
            crew.told,
            stale,
            entry.since,
            self._topology_of(charter, charter.tree) if charter.tree is not None else FLAT.name,
        )

    def _is_busy(self, entry: Entry) -> bool:
        """Whether its pods are being bound, or it is being mended and has to wait for that."""
        waits = entry.place in (Place.MAKING_ROOM, Place.BACKOFF) and not self.crews[entry.ref].spent
        return entry.place is Place.COMMITTED or (waits and self._mends(entry.ref))

    def _mends(self, ref: Ref) -> bool:
        """Whether a gang that has begun and stands in part has all it lacks: it is tried once more then."""
        crew = self.crews[ref]
        return crew.begun and crew.has_fallen and bool(crew.waiting) and hindrance(crew) is None

    def place_of(self, ref: Ref) -> Place | None:
        """Where a gang stands in line; None: it is not known, or a lone pod that runs."""
        self._flush(self._now)
        entry = self.line.entries.get(ref)
        return None if entry is None else entry.place

    def entries(self) -> Iterator[Entry]:
        """Everyone in line."""
        self._flush(self._now)
        yield from self.line.entries.values()

    def told(self, ref: Ref) -> Standstill | None:
        """What a gang was told last."""
        return self.crews[ref].told if ref in self.crews else None

    def standing(self, ref: Ref) -> tuple[Pod, ...]:
        """Its pods that have a node (assumed ones too) or did their part; not those that are leaving."""
        crew = self.crews.get(ref)
        if crew is None:
            return ()
        return in_order(self.placed.get(key) or self.pods[key] for key in crew.standing)

    def _all_waiting(self, crew: Crew) -> tuple[Pod, ...]:
        return in_order(self.pods[key] for key in crew.waiting)

    def _topology_of(self, charter: Charter, tree: Group) -> str:
        """The one the gang names; else the first, by name and open to all, that has every level it names.

        For strict gangs, and those that do with a quorum, all nodes are alike if they name no level.
        """
        wanted = set(_levels(tree)) - {AUTO}
        if charter.topology and charter.topology in self.clusters:
            return charter.topology
        if (charter.is_strict or charter.quorum) and not wanted:
            return FLAT.name
        named = sorted(name for name in self.clusters if name != FLAT.name and OF_ITS_OWN not in name)
        for name in named:
            if wanted <= set(self.clusters[name].topology.levels):
                return name
        return named[0] if named else FLAT.name

    # ── plans ──────────────────────────────────────────────────────────────────────────────────────

    def assume(self, plan: Plan, now: float) -> None:
        """Believe the plan until its writes end or the API says otherwise."""
        refusals: dict[Ref, Refuse] = {}
        acted: dict[Ref, None] = {}
        for action in plan.actions:
            match action:
                case Bind(ref, pod, node):
                    self._assume_bind(ref, pod, node)
                case Nominate(ref, pod, node):
                    self._assume_nomination(pod, node)
                case Displace(pod, ref):
                    self._assume_displaced(action)
                case Refuse(ref):
                    refusals[ref] = action
                case Begin(ref):
                    self._record(ref, True)
                case _:
                    continue
            acted[ref] = None
        for ref in acted:
            crew, entry = self.crews.get(ref), self.line.entries.get(ref)
            if crew is not None and entry is not None:
                self._assumed(crew, entry, refusals.get(ref), now)
        left = frozenset(plan.left)
        for ref in self._looked:
            if ref in left:
                continue
            if self.partial.get(ref, NEVER) + self.heal_seconds <= now:
                self._had_its_turn(ref, now)
            if ref not in acted and (entry := self.line.entries.get(ref)) is not None:
                self._passed_over(entry, now)
        self._looked = []

    def _had_its_turn(self, ref: Ref, now: float) -> None:
        """Should it stand in part still, it gets another turn; one that could not be mended goes in that."""
        crew, entry = self.crews[ref], self.line.entries[ref]
        if not crew.spent and self._mends(ref):
            crew.spent = not crew.out and entry.place is not Place.MAKING_ROOM
            return
        del self.partial[ref]
        self.partial[ref] = now

    def _assume_bind(self, ref: Ref, pod: Pod, node: str) -> None:
        now, crew = self.pods.get(pod.key), self.crews.get(ref)
        if now is None or now.uid != pod.uid or not now.waits or crew is None:
            return
        self._unpromise(pod.key, node)
        self.assumed[pod.key] = node
        crew.out[pod.key] = None
        crew.unsure.pop(pod.key, None)
        self._sync(now)

    def _assume_nomination(self, pod: Pod, node: str) -> None:
        now = self.pods.get(pod.key)
        self._unpromise(pod.key, node)
        if now is not None and now.uid == pod.uid and now.waits and node:
            self.nominations[pod.key] = now, node

    def _assume_displaced(self, action: Displace) -> None:
        pod, crew = self.pods.get(action.pod.key), self.crews.get(action.by)
        if pod is None or pod.uid != action.pod.uid or pod.key not in self.placed:
            return
        self.displaced[pod.key] = action.by
        if crew is not None and action.undoes:
            crew.broken = True
        elif crew is not None:
            crew.victims[pod.key] = None
        self._sync(pod)

    def _assumed(self, crew: Crew, entry: Entry, refusal: Refuse | None, now: float) -> None:
        if refusal is not None:
            crew.told = refusal.why
        self._keep(crew.ref, refusal)
        crew.trouble, crew.fresh = None, False
        if crew.out:
            crew.left = None if refusal is None else refusal.why
            crew.heard = {str(hint): times for hint, times in self.heard.items()}
            self.line.commit(entry, now + ASSUMED_SECONDS)
        elif refusal is not None:
            self._refused(crew, entry, refusal.why, now)
        elif crew.victims:
            self.line.make_room(entry, ROOMY, now + ROOM_SECONDS)
        else:  # it was only put on record
            self._passed_over(entry, now)

    def _keep(self, ref: Ref, refusal: Refuse | None) -> None:
        """Room is kept for a gang as long as each refusal says so."""
        if refusal is None or not refusal.keeps:
            self._release(ref)
            return
        nodes = frozenset(refusal.keeps)
        if self.kept is not None and self.kept != (ref, nodes):
            self._hint(Hint.KEPT)
        self.kept = ref, nodes

    def _refused(self, crew: Crew, entry: Entry, why: Standstill, now: float) -> None:
        if entry.place in (Place.INCOMPLETE, Place.RUNNING):
            self.line.move(entry, entry.place)
            self._touch(crew, own=False)
        elif why.hindrance.backs_off:
            if why.hindrance is not Hindrance.TAKEN_BACK:
                crew.victims.clear()  # nobody goes for its sake any more
            self.line.back_off(entry, now)
        else:
            self._put_off(crew, entry, why, now)

    def _passed_over(self, entry: Entry, now: float) -> None:
        """Nothing was decided about it: it does not hold up the line."""
        if entry.ref in self.line.telling:
            self.line.move(entry, entry.place)
        elif entry.place is Place.READY:
            self.line.back_off(entry, now)

    def settle(self, action: Action, ended: str, now: float) -> None:
        """The write of an action ended: "done", "failed" (it did not happen) or "unknown"."""
        match action:
            case Bind(_, pod):
                self._settled = now
                self._settle_bind(pod, ended, now)
            case Displace(pod):
                if ended == "unknown":  # perhaps for the second time: that is no reason to wait for longer
                    self.doubted.setdefault(pod.key, now + ASSUMED_SECONDS)
                    return
                self.doubted.pop(pod.key, None)
                if ended == "failed" and self._is_current(pod):
                    self._stays(pod.key)
            case Begin(ref):
                self._record(ref, ended != "failed")
            case Refuse(ref):
                if ended == "failed" and (crew := self.crews.get(ref)) is not None:
                    crew.told = crew.noted = None  # it is told again, should it be refused again
                    self._touch(crew, own=False)

    def _settle_bind(self, pod: Pod, ended: str, now: float) -> None:
        if not self._is_current(pod):
            return
        crew = self.crews.get(self.pods[pod.key].gang or lone_ref(pod.key))  # perhaps another than it had
        if crew is None or pod.key not in crew.out:
            return  # the watch told already
        if ended == "unknown":  # the watch will tell, or the assumption runs out
            crew.unsure[pod.key] = now
            return
        del crew.out[pod.key]
        if ended == "failed":
            crew.trouble = now
            self._take_back(crew, pod.key)
        self._touch(crew, own=False)

    def _record(self, ref: Ref, recorded: bool) -> None:
        if (crew := self.crews.get(ref)) is not None:
            crew.recorded = recorded
            self._touch(crew, own=False)

    def _stays(self, key: PodKey) -> None:
        """A pod that we meant to make go is still there, and nobody deletes it."""
        self._gone(key)
        self._sync(self.pods[key])

    def _is_current(self, pod: Pod) -> bool:
        return pod.key in self.pods and self.pods[pod.key].uid == pod.uid


def _levels(member: Group | PodSet) -> Iterator[str]:
    """Every level that a gang names anywhere."""
    for level in (member.locality.required, member.locality.preferred):
        if level:
            yield level
    if isinstance(member, PodSet):
        yield from (segment.level for segment in member.segments)
    else:
        for inner in member.members:
            yield from _levels(inner)
