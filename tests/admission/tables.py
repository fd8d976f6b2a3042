"""Cases with a hand-computed answer: a drawing, a question, and the expected result."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from bayplan.dialects.kube.fields.quantity import amount
from bayplan.model.plan import Admit, EvictGang, Plan, ReportNotAdmitted, Requeue
from bayplan.model.profile import FairRule, Profile
from bayplan.model.queued_gang import QueuedGang
from bayplan.model.quota import Cell
from bayplan.model.rejection import FlavorMode
from bayplan.placement.overlay.topology_overlay import TopologyOverlay
from bayplan.scheduling.admission import flavors
from bayplan.scheduling.admission.candidates import PreemptionRequest
from bayplan.scheduling.admission.cycle import decide_admissions
from bayplan.scheduling.admission.flavors import FlavorQuery, quota_offer
from bayplan.scheduling.admission.offer import Offer
from bayplan.scheduling.admission.places import placement_needs
from bayplan.scheduling.admission.preemption import find_victims
from bayplan.scheduling.admission.simulation import AdmissionSimulation
from bayplan.state.admission.state import AdmissionState
from tests.admission.drawing import NOW, drawn

TABLES = Path(__file__).parent / "tables"
RULES = {"final": FairRule.FINAL_SHARE, "initial": FairRule.INITIAL_SHARE}


@dataclass(slots=True)
class Case:
    """One case of a table."""

    name: str
    words: tuple[str, ...] = ()
    drawing: list[str] = field(default_factory=list)
    question: str = ""
    used: list[str] = field(default_factory=list)  # quota in use by no gang in particular
    chances: list[str] = field(default_factory=list)  # assumed results of preemption
    want: list[str] = field(default_factory=list)

    def profile(self) -> Profile:
        rules = tuple(RULES[word] for word in self.words if word in RULES)
        return Profile(fair_sharing="fair" in self.words, fair_rules=rules or Profile().fair_rules)

    def state(self) -> AdmissionState:
        state = AdmissionState()
        for change in drawn("\n".join(self.drawing)):
            state.apply(change)
        return state


def cases(table: str) -> list[Case]:
    """The cases of one file. Lines before the first case are part of all of them."""
    found: list[Case] = []
    for shared, lines in _blocks((TABLES / f"{table}.txt").read_text(encoding="utf-8")):
        name, *words = lines[0].split()[1:]
        case = Case(name, tuple(words), list(shared))
        for line in lines[1:]:
            what, _, rest = line.partition(" ")
            match what:
                case "take" | "offer" | "round":
                    case.question = line
                case "used":
                    case.used.append(rest)
                case "chance":
                    case.chances.append(rest)
                case "want":
                    case.want.append(rest)
                case _:
                    case.drawing.append(line)
        found.append(case)
    return found


def _blocks(text: str) -> Iterator[tuple[list[str], list[str]]]:
    """The lines of each case, and those of the `shared` block before it."""
    shared: list[str] = []
    for block in text.split("\n\n"):
        lines = [line.strip() for line in block.splitlines() if line.strip() and not line.startswith("#")]
        if lines and lines[0] == "shared":
            shared = lines[1:]
        elif lines:
            yield shared, lines


def round_of(state: AdmissionState, profile: Profile) -> AdmissionSimulation:
    """A cycle without any decision yet."""
    seen = state.snapshot(())
    rooms = TopologyOverlay(seen.supplies, seen.flavors)
    return AdmissionSimulation(
        seen.quota_tree,
        rooms,
        seen.queues,
        seen.flavors,
        seen.checks,
        seen.admitted,
        profile,
        NOW,
        seen.inactive_queues,
    )


def demand_of(state: AdmissionState, name: str) -> QueuedGang:
    return next(s.queued_gang for s in state.pending.entries.values() if named(s.queued_gang) == name)


def named(queued: QueuedGang) -> str:
    source = queued.gang.source
    return f"{source.namespace}/{source.name}" if source.namespace else source.name


# ── who yields ────────────────────────────────────────────────────────────────────────────────────


def who_yields(case: Case) -> list[str]:
    """`take NAME cpu=default! memory=alpha`: flavors are settled, and ! says where quota is short."""
    _, name, *taken = case.question.split()
    state, profile = case.state(), case.profile()
    queued, cells, quota = demand_of(state, name), set[Cell](), dict[Cell, int]()
    for word in taken:
        what, _, flavor = word.partition("=")
        only, _, resource = what.rpartition("/")
        cell = (flavor.removesuffix("!"), resource)
        if flavor.endswith("!"):
            cells.add(cell)
        asks = [ask for ask in queued.requests if ask.name == only or not only]
        quota[cell] = quota.get(cell, 0) + sum(ask.per_pod.get(resource, 0) * ask.count for ask in asks)
    round_ = round_of(state, profile)
    queue = round_.queues[state.config.namespace_queues[queued.namespace_queue].queue]
    need = PreemptionRequest(
        queued, queue, frozenset(cells), {c: q for c, q in quota.items() if q}, lambda: (), lambda: True
    )
    before = _books(round_)
    victims = find_victims(round_, need)
    assert _books(round_) == before, "looking for victims changed the books"
    return sorted(f"leave {named(v.queued_gang)} {v.reason}" for v in victims)


def _books(round_: AdmissionSimulation) -> list[tuple[str, dict[Cell, int]]]:
    accounts = [*round_.quota_tree.queues.values(), *round_.quota_tree.shared.values()]
    return [(account.name, {c: u for c, u in account.usage.items() if u}) for account in accounts]


# ── what a queue offers ───────────────────────────────────────────────────────────────────────────


def what_is_offered(case: Case, patch: pytest.MonkeyPatch) -> list[str]:
    """`offer NAME`: flavors by quota alone, with the preemption results of the case."""
    chances = dict(_chance(line) for line in case.chances)

    def chance_of(
        _: AdmissionSimulation, __: QueuedGang, ___: object, cell: Cell, ____: int
    ) -> tuple[FlavorMode, int]:
        return chances.get(cell, (FlavorMode.PREEMPT, 0))

    patch.setattr(flavors, "preemption_prospect", chance_of)
    state = case.state()
    round_ = round_of(state, case.profile())
    for line in case.used:
        queue, *amounts = line.split()
        for cell, _, value in (word.partition("=") for word in amounts):
            flavor, _, resource = cell.partition("/")
            round_.quota_tree.use(queue, {(flavor, resource): amount(resource, value)})
    queued = demand_of(state, case.question.split()[1])
    queue_of = round_.queues[state.config.namespace_queues[queued.namespace_queue].queue]
    before = next((d for d in round_.gangs_of(queue_of.name) if d.gang.source.name == queued.replaces), None)
    offer = quota_offer(FlavorQuery(round_, queued, queue_of, {}, {}, (), before))
    if offer.mode:
        placement_needs(FlavorQuery(round_, queued, queue_of, {}, {}, (), before), offer)
    return list(_shown(offer))


def as_far_as_asked(found: list[str], wanted: list[str]) -> list[str]:
    """The result, with only the details that the case states."""
    shown = [" ".join(line.split()[: len(words.split())]) for line, words in zip(found, wanted, strict=False)]
    plain = [
        " ".join(word.split(":")[0] for word in line.split()) if ":" not in words else line
        for line, words in zip(shown, wanted, strict=False)
    ]
    return plain + found[len(wanted) :]


def _chance(line: str) -> tuple[Cell, tuple[FlavorMode, int]]:
    cell, chance, borrow = line.split()
    flavor, _, resource = cell.partition("/")
    return (flavor, resource), (FlavorMode(chance), int(borrow))


def _shown(offer: Offer) -> Iterator[str]:
    token = f" {offer.reason}" if offer.reason else ""
    yield f"{offer.mode.name.lower()} borrow={offer.borrow}{token}"
    for part in offer.parts:
        words = [
            f"{resource}={choice.flavor}:{choice.mode.name.lower()}:{choice.tried}"
            for resource, choice in sorted(part.choices.items())
        ]
        yield " ".join([f"set {part.name} x{part.count}", *words])


# ── a whole round ─────────────────────────────────────────────────────────────────────────────────


def what_happens(case: Case) -> list[str]:
    """`round`: one cycle; which gangs are admitted, evicted, pending, and waiting for an event."""
    state = case.state()
    heads = state.heads(NOW)
    plan = decide_admissions(state.snapshot(heads), case.profile(), NOW)
    state.assume(plan, NOW)
    return sorted([*_actions(plan), *_waiting(state, plan)])


def _actions(plan: Plan) -> Iterator[str]:
    for action in plan.actions:
        match action:
            case Admit(queued, admission):
                given = " ; ".join(given_words(admission.pod_sets))
                yield f"admit {named(queued)} by {admission.queue} : {given}"
            case EvictGang(queued, why):
                yield f"leave {named(queued)} {why}"
            case ReportNotAdmitted(queued, refusal):
                yield f"tell {named(queued)} {refusal.reason}"


def given_words(given: object) -> Iterator[str]:
    for part in given:  # type: ignore[attr-defined]
        used = [f"{name}={flavor}:{part.usage.get(name, 0)}" for name, flavor in sorted(part.flavors.items())]
        yield " ".join([part.name, f"x{part.count}", *used])


def _waiting(state: AdmissionState, plan: Plan) -> Iterator[str]:
    parked = {
        action.gang
        for action in plan.actions
        if isinstance(action, ReportNotAdmitted) and action.requeue is Requeue.ON_EVENT
    }
    for line in state.pending.queues.values():
        for entry in line.entries():
            is_parked = entry.queued_gang.gang.source in parked and (
                not line.strict or line.shapes[entry.shape].ineligible
            )
            yield f"{'parked' if is_parked else 'left'} {named(entry.queued_gang)}"
