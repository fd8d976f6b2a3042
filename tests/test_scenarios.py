"""Every file of tests/scenarios: the drawing is asked, and each `want` line is compared with the answer."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path

import pytest

from bayplan import testing
from bayplan.model.assignment import Assignment, Code, Misfit, Placement
from bayplan.model.gang import Gang, Group, PodSet
from bayplan.model.node import HOSTNAME
from bayplan.model.profile import Profile
from bayplan.placement.cluster.capacity import with_slot
from bayplan.placement.gang.place import place
from bayplan.placement.gang.replace import replace_nodes
from bayplan.placement.gang.resize import resize
from bayplan.state.cluster.topology_state import TopologyState
from bayplan.testing import BadScenario, Scenario, ScenarioStep

FOLDER = Path(__file__).parent / "scenarios"


@dataclass(frozen=True, slots=True)
class Verdict:
    """A `want` line beside what came out, in the same words."""

    where: str
    want: str
    got: str


@dataclass(slots=True)
class Asked:
    """A gang and its answer so far."""

    gang: Gang
    profile: Profile
    answer: Placement
    held: bool = False


@dataclass(slots=True)
class Stage:
    """A drawn cluster and everybody who asked for a place in it, the latest last."""

    cluster: TopologyState
    asked: list[Asked] = field(default_factory=list)

    def find(self, name: str) -> Asked:
        return next(each for each in reversed(self.asked) if name in names_in(each.gang.root))


def play(scenario: Scenario) -> Iterator[Verdict]:
    """Do what the scenario says; compare where it wants something."""
    stage = Stage(scenario.world.cluster())
    for step in scenario.steps:
        if step.verb == "want":
            found = stage.find(step.names[0])
            if found.answer.misfit is not None and found.answer.misfit.code is Code.NOT_INSTALLED:
                pytest.skip("the strategy needs an extra that is not installed")
            yield Verdict(
                f"{scenario.source}:{step.line}",
                " ".join(step.words),
                shown(found.answer, step.names[0], step.words),
            )
        else:
            act(stage, step)


def act(stage: Stage, step: ScenarioStep) -> None:
    """Everything but looking."""
    match step.verb:
        case "ask":
            assert step.gang is not None
            answer = place(stage.cluster.snapshot(), step.gang, step.profile)
            stage.asked.append(Asked(step.gang, step.profile, answer))
        case "hold" | "release":
            use(stage.cluster, stage.find(step.names[0]), hold=step.verb == "hold")
        case "fail" | "evict":
            for name in step.names if step.verb == "fail" else ():
                stage.cluster.upsert(replace(stage.cluster.nodes[name], ready=False))
            for found in stage.asked:
                if found.held:
                    mend(stage.cluster, found, step.names)
        case "resize":
            found = stage.find(step.names[0])
            grow(stage.cluster, found, step.names[0], int(step.words[0].removeprefix("pods=")))


def use(cluster: TopologyState, asked: Asked, hold: bool) -> None:
    """A placed gang takes its room, or gives it back."""
    assert asked.answer.ok, f"{asked.gang.source.name} has no place to hold: {facts(asked.answer.misfit)}"
    assert asked.held is not hold, asked.gang.source.name
    shapes = {pod_set.name: with_slot(pod_set.requests) for pod_set in asked.gang.root.pod_sets()}
    for name, assignment in asked.answer.assignments.items():
        for share in assignment.shares:
            amounts = {resource: amount * share.count for resource, amount in shapes[name].items()}
            cluster.use_domain(share.values, amounts, 1 if hold else -1)
    asked.held = hold


def mend(cluster: TopologyState, asked: Asked, failed: Iterable[str]) -> None:
    """Re-place what stood on failed nodes. The survivors' use is in the snapshot all along."""
    answer = replace_nodes(
        cluster.snapshot(), asked.gang, asked.answer.assignments, list(failed), asked.profile
    )
    if not answer.ok:
        asked.answer = answer
        return
    use(cluster, asked, hold=False)
    asked.answer = answer
    use(cluster, asked, hold=True)


def grow(cluster: TopologyState, asked: Asked, name: str, count: int) -> None:
    """Change the size of a held pod set. What it holds counts as free for this, and as its own."""
    use(cluster, asked, hold=False)
    asked.gang = replace(asked.gang, root=resized(asked.gang.root, name, count))
    asked.answer = resize(cluster.snapshot(), asked.gang, asked.answer.assignments, asked.profile)
    if asked.answer.ok:
        use(cluster, asked, hold=True)


def resized(group: Group, name: str, count: int) -> Group:
    members = tuple(
        resized(member, name, count)
        if isinstance(member, Group)
        else replace(member, count=count, minimum=count)
        if member.name == name
        else member
        for member in group.members
    )
    return replace(group, members=members)


def names_in(member: Group | PodSet) -> set[str]:
    inside = member.members if isinstance(member, Group) else ()
    return {member.name}.union(*(names_in(each) for each in inside))


def shown(answer: Placement, name: str, wanted: tuple[str, ...]) -> str:
    """The answer in the words of a `want` line; of a refusal only the facts that are wanted."""
    misfit = answer.misfit
    if misfit is None or name in answer.assignments:
        found = answer.assignments.get(name)
        return "placed" if found is None else drawn(found, "proven" in wanted)
    known = facts(misfit)
    keys = [word.partition("=")[0] for word in wanted[1:]] if wanted[0] == "misfit" else list(known)
    return " ".join(["misfit", *(f"{key}={known.get(key, '?')}" for key in keys)])


def drawn(found: Assignment, proven: bool) -> str:
    shares = [f"{'/'.join(share.values)}:{share.count}" for share in found.shares] or ["nothing"]
    return " ".join([*shares, "proven"] if proven and found.proven else shares)


def facts(misfit: Misfit | None) -> dict[str, str]:
    """A refusal as words: what a `want NAME misfit` line may name."""
    if misfit is None:
        return {}
    near, out = misfit.nearest, misfit.excluded
    counted = {"selector": out.selector, "affinity": out.affinity, "outside": out.outside}
    excluded = {name: count for name, count in {**counted, **out.taints, **out.resources}.items() if count}
    found = {
        "code": misfit.code.value,
        "pod_sets": ",".join(misfit.pod_sets),
        "level": level_name(misfit.level),
        "other_level": level_name(misfit.other_level),
        "fit": str(misfit.fit),
        "asked": str(misfit.asked),
        "unit": str(misfit.unit),
        "sizes": "/".join(map(str, misfit.sizes)),
        "domain": misfit.domain,
        "layers": ",".join(f"{level_name(each.level)}:{each.fit}/{each.asked}" for each in misfit.layers),
        "nodes": str(out.nodes),
        "excluded": ",".join(f"{name}:{count}" for name, count in sorted(excluded.items())) or "none",
    }
    if near is not None:
        found |= {
            "nearest": "/".join(near.domain) or "all",
            "nearest_level": level_name(near.level),
            "nearest_fit": str(near.fit),
            "short": str(near.short),
            "resource": near.resource,
            "lacking": str(near.lacking),
        }
    return found


def level_name(level: str) -> str:
    return "host" if level == HOSTNAME else level


def every_scenario() -> Iterator[object]:
    for file in sorted(FOLDER.glob("*.txt")):
        for scenario in testing.scenarios(file.read_text(encoding="utf-8"), f"tests/scenarios/{file.name}"):
            yield pytest.param(scenario, id=f"{file.stem}-{scenario.title}".rstrip("-"))


@pytest.mark.parametrize("scenario", list(every_scenario()))
def test_scenario(scenario: Scenario) -> None:
    verdicts = list(play(scenario))
    assert verdicts, "a scenario wants something"
    differing = [f"{v.where}: want {v.want}\n    got  {v.got}" for v in verdicts if v.want != v.got]
    assert not differing, "\n" + "\n".join(differing)


BAD = [
    ("block b1\n  - x1 gpu=eight", "2: 'gpu=eight' needs a whole number"),
    ("block b1\n  - x1 gpu", "2: 'gpu' is not of the form key=value"),
    ("block b1\n  - x1\n  - x1", "3: x1 is drawn twice"),
    ("block b1\n  -", "2: a host needs a name"),
    ("levels rack host\nrow w1\n  - x1", "2: no level 'row'; there are rack host"),
    ("block b1 b2\n  - x1", "1: 'block b1 b2' is no line of a scenario"),
    ("block b1", "1: no host is drawn"),
    ("\nask job pods=1", "2: no host is drawn"),
    ("- x1 taint :NoSchedule", "1: ':NoSchedule' is no taint; write key=value:NoSchedule"),
    ("- x1\nask", "2: ask needs a name"),
    ("- x1\nask job", "2: how many? ask job pods=…"),
    ("- x1\nask job pods=-1", "2: 'pods' needs a whole number"),
    ("- x1\nask job pods=1 required=host preferred=host", "2: required or preferred, not both"),
    ("- x1\nask job pods=1 segments=4", "2: '4' is no segment; write it as 4@rack"),
    ("- x1\nask job pods=1 affinity =a", "2: '=a' is no test of a label; write key, !key"),
    ("- x1\nask job pods=1 select disk", "2: 'disk' is not of the form key=value"),
    ("- x1\ngroup g", "2: group g has no members"),
    ("- x1\ngroup g required=host size=2\n  ask job pods=1", "2: a group has a locality and nothing else"),
    ("- x1\ngroup g\n  ask one pods=1\n  ask two pods=two", "4: 'pods' needs a whole number"),
    ("- x1\ngroup g\n  want one x1:1", "2: 'want' is no member of a group"),
    ("- x1\nwant job x1:1", "2: 'job' has no ask before this line"),
    ("- x1\nask job pods=1\nwant job", "3: want job what? x1:2 …, nothing or misfit …"),
    ("- x1\nask job pods=1\nhold job now", "3: hold takes one name"),
    ("- x1\nask job pods=1\nresize job", "3: resize job pods=…"),
    ("- x1\nask job pods=1\nfail x2", "3: no host 'x2' is drawn"),
    ("- x1\nask job pods=1\nrack r1", "3: the drawing comes before the first step"),
    ("- x1\nprofile required=clever", "2: 'clever' is no value for required"),
    ("- x1\nprofile speed=high", "2: a profile has no 'speed'; it has"),
    ("- x1\nprofile preferred_affinity=maybe", "2: 'maybe' is no value for preferred_affinity"),
]


@pytest.mark.parametrize(("text", "problem"), BAD, ids=[problem for _, problem in BAD])
def test_a_bad_line_is_named_with_its_file_and_number(text: str, problem: str) -> None:
    with pytest.raises(BadScenario) as caught:
        testing.scenarios(text, "some.txt")
    assert len(caught.value.problems) == 1, caught.value.problems
    assert caught.value.problems[0].startswith(f"some.txt:{problem}")


def test_all_bad_lines_are_named_at_once() -> None:
    with pytest.raises(BadScenario) as caught:
        testing.scenarios("- x1 gpu=a\n- x2\n\n# fine\nask job\nfail x9", "some.txt")
    assert [problem.split()[0] for problem in caught.value.problems] == [
        "some.txt:1:",
        "some.txt:5:",
        "some.txt:6:",
    ]


def test_a_wrong_expectation_is_noticed() -> None:
    (scenario,) = testing.scenarios("- x1 gpu=2\nask job pods=2 gpu=1\nwant job x1:1\nwant job misfit fit=1")
    assert [(verdict.where, verdict.got) for verdict in play(scenario)] == [
        ("scenario:3", "x1:2"),
        ("scenario:4", "x1:2"),
    ]


def test_builders_read_drawings_and_asks() -> None:
    made = testing.world("rack r1\n  - x1..2 gpu=4\n  - y cpu=1", gpu=8, cpu=2)
    assert [(node.name, node.labels["rack"], dict(node.allocatable)) for node in made.nodes] == [
        ("x1", "r1", {"pods": 110, "gpu": 4, "cpu": 2}),
        ("x2", "r1", {"pods": 110, "gpu": 4, "cpu": 2}),
        ("y", "r1", {"pods": 110, "gpu": 8, "cpu": 1}),
    ]
    gang = testing.ask(
        "group pair required=rack\n  ask head pods=1 cpu=1\n  ask tail pods=3 gpu=2 segments=3@host"
    )
    head, tail = gang.root.pod_sets()
    assert (head.count, tail.count, tail.segments[0].size) == (1, 3, 3)
    assert place(made.cluster().snapshot(), gang).ok
