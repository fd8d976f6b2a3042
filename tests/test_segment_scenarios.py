"""Every file of tests/scenarios/segments: jobs as users write them, where their pods are, and what is said.

Below the drawing of a scenario (as in tests/scenarios) come its steps; what is indented belongs to the line
above. `manifest NAME` before the first scenario is for all of a file.

    apply NAME SIZE=4               a manifest with its $SIZE filled in; or `apply` with one indented
    make train-worker-16            the operator makes a pod that the job does not count
    fail a1 | cordon a1..2 | uncordon a1..2 | kill train-worker-3 | pass 600 (seconds)

    want train-worker-0..3 rack r1          where these pods are; or `one rack`, `placed`,
                                            `waiting`, `2 of 4 have a place`, `segment 0` (it is told)
    want train-worker-0 says WORDS          on pod or group, among others; or `says nothing`
    want train event SegmentsIgnored WORDS  there is exactly one such event on the group; or `no event`
    want train tree                         below it the tree: name, minimum, where, and the pods
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import takewhile
from pathlib import Path
from string import Template
from textwrap import dedent
from typing import Any

import pytest
import yaml

from bayplan.dialects.kai.api.names import SEGMENT_INDEX, SEGMENT_INDEX_VARIABLE, SUB_GROUP_NAME
from bayplan.dialects.kai.api.pod_group import Constraint, PodGroup, read_pod_group
from bayplan.dialects.kube.fields.reader import Field
from bayplan.testing import names, world
from tests.support.pod_site import Object
from tests.support.segment_stage import HALL, Stage, short

FOLDER = Path(__file__).parent / "scenarios" / "segments"
VERBS = ("manifest", "apply", "make", "fail", "cordon", "uncordon", "kill", "pass", "want")


@dataclass(frozen=True, slots=True)
class Line:
    """A step, and what is indented below it."""

    where: str
    words: tuple[str, ...]
    block: str = ""


@dataclass(frozen=True, slots=True)
class Play:
    """A drawing, the steps below it, and the manifests of its file."""

    title: str
    drawing: str
    steps: tuple[Line, ...]
    manifests: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class Verdict:
    """A `want` line beside what came out, in the same words."""

    where: str
    want: str
    got: str


# ── reading ────────────────────────────────────────────────────────────────────────────────────────


def read(text: str, source: str) -> Iterator[Play]:
    """The plays of a file."""
    head, *parts = re.split(r"(?m)^== *(.*)$", text)
    manifests = {line.words[1]: line.block for line in lines(head, source, 1)}
    at = head.count("\n") + 1
    for title, body in zip(parts[::2], parts[1::2], strict=True):
        raw = body.split("\n")
        drawn = list(takewhile(lambda one: one.split(" ")[0] not in VERBS, raw))
        steps = tuple(lines("\n".join(raw[len(drawn) :]), source, at + len(drawn)))
        yield Play(title.strip(), "\n".join(drawn), steps, manifests)
        at += body.count("\n")


def lines(text: str, source: str, first: int) -> Iterator[Line]:
    """Every step with its block; comments are left out."""
    at: int | None = None
    raw = text.split("\n")
    for number, one in enumerate([*raw, "end"]):
        if not one.strip() or one[0] in " #":
            continue
        if at is not None:
            words = tuple(raw[at].split(" #")[0].split())
            assert words[0] in VERBS, f"{source}:{first + at}: '{raw[at]}' is no line of a scenario"
            yield Line(f"{source}:{first + at}", words, block(raw[at + 1 : number]))
        at = number


def block(raw: Iterable[str]) -> str:
    return dedent("\n".join(one for one in raw if not one.startswith("#"))).rstrip()


# ── playing ────────────────────────────────────────────────────────────────────────────────────────


def play(scenario: Play) -> Iterator[Verdict]:
    """Do what the scenario says; once all is quiet, compare where it wants something."""
    stage = Stage(world(scenario.drawing))
    settled = True
    for step in scenario.steps:
        if step.words[0] != "want":
            act(stage, step, scenario.manifests)
            settled = False
            continue
        if not settled:
            stage.settle()
            settled = True
        name, *words = step.words[1:]
        wanted = "\n".join([" ".join(words), *step.block.splitlines()])
        yield Verdict(step.where, wanted, seen(stage, name, words))


def act(stage: Stage, step: Line, manifests: Mapping[str, str]) -> None:
    """Everything but looking."""
    verb, *words = step.words
    if verb == "apply":
        for body in yaml.safe_load_all(written(step, words, manifests)):
            stage.apply(body)
        return
    acts: Mapping[str, Callable[[str], None]] = {
        "make": stage.make,
        "fail": stage.drop,
        "kill": stage.kill,
        "cordon": lambda name: stage.cordon(name, closed=True),
        "uncordon": lambda name: stage.cordon(name, closed=False),
        "pass": lambda seconds: stage.run(float(seconds)),
    }
    for word in words:
        for name in names(word):
            acts[verb](name)


def written(step: Line, words: list[str], manifests: Mapping[str, str]) -> str:
    """The text of what is applied."""
    if not words:
        return step.block
    return Template(manifests[words[0]]).substitute(dict(word.split("=", 1) for word in words[1:]))


def seen(stage: Stage, name: str, words: list[str]) -> str:
    """What there is, in the words of the `want` line."""
    match words:
        case ["tree"]:
            return "\n".join(["tree", *tree(stage, name)])
        case ["says", *text]:
            return " ".join(["says", said(stage, name, " ".join(text))])
        case ["event", reason, *text]:
            return " ".join(["event", reason, told_once(stage, name, reason, " ".join(text))])
        case ["no", "event"]:
            return str(stage.events(stage.group_of(name)["metadata"]["name"]) or "no event")
        case ["segment", *_]:
            return " ".join(["segment", *sorted(set(map(segment, found(stage, name))))])
    pods = found(stage, name)
    placed = [pod for pod in pods if pod["spec"].get("nodeName")]
    if words == ["waiting"] or len(placed) < len(pods):
        return "waiting" if not placed else f"{len(placed)} of {len(pods)} have a place"
    if words == ["placed"]:
        return "placed"
    level = words[-1] if words[0] == "one" else words[0]
    where = sorted(
        {stage.domain(pod, "kubernetes.io/hostname" if level == "host" else level) for pod in pods}
    )
    return f"one {level}" if words[0] == "one" and len(where) == 1 else " ".join([level, *where])


def found(stage: Stage, name: str) -> list[Object]:
    """The pods of a range, all of which have to be there."""
    pods = {one: stage.pods(one) for one in names(name)}
    assert all(pods.values()), f"there are no pods {[one for one in pods if not pods[one]]}"
    return [pod for some in pods.values() for pod in some]


def said(stage: Stage, name: str, wanted: str) -> str:
    """Why something waits: the words that are wanted if they are among it, else all of it."""
    if stage.pods(names(name)[0]):
        texts = [stage.said(pod["metadata"]["name"]) for pod in found(stage, name)]
    else:
        texts = [stage.waits(stage.group_of(name)["metadata"]["name"])[1]]
    plain = [" ".join(text.split()) or "nothing" for text in texts]
    other = [text for text in plain if wanted not in text]
    return other[0] if other else wanted


def told_once(stage: Stage, name: str, reason: str, wanted: str) -> str:
    events = stage.events(stage.group_of(name)["metadata"]["name"])
    mine = [text for why, text in events if why == reason]
    return wanted if len(mine) == 1 and wanted in mine[0] else str(mine or events)


def segment(pod: Object) -> str:
    """The segment that a pod is told; the variable and the annotation if they differ."""
    env = {one["name"]: one.get("value") for one in pod["spec"]["containers"][0].get("env") or ()}
    told = env.get(SEGMENT_INDEX_VARIABLE), pod["metadata"]["annotations"].get(SEGMENT_INDEX)
    return str(told[0] or "none") if told[0] == told[1] else str(told)


# ── trees ──────────────────────────────────────────────────────────────────────────────────────────


def tree(stage: Stage, job: str) -> Iterator[str]:
    """A group with its sub-groups, and the pods in each."""
    obj = stage.group_of(job)
    group = read_pod_group(Field(obj))
    mine = [
        pod for pod in stage.pods("*") if pod["metadata"]["annotations"].get("pod-group-name") == group.name
    ]
    homes: dict[str, list[str]] = {}
    for pod in mine:
        homes.setdefault(pod["metadata"]["labels"].get(SUB_GROUP_NAME, ""), []).append(short(pod))
    yield drawn(job, group.minimum, group.constraint, homes.get("", []))
    yield from below(group, "", homes, "  ")


def below(group: PodGroup, parent: str, homes: Mapping[str, list[str]], indent: str) -> Iterator[str]:
    for one in group.sub_groups:
        if one.parent == parent:
            yield indent + drawn(one.name, one.minimum, one.constraint, homes.get(one.name, []))
            yield from below(group, one.name, homes, indent + "  ")


def drawn(name: str, minimum: int, constraint: Constraint | None, pods: list[str]) -> str:
    where = constraint or Constraint()
    asked = {"required": where.required, "preferred": where.preferred}
    if where.topology != HALL:
        asked["topology"] = where.topology
    words = [f"{name} {minimum}", *(f"{key}={value}" for key, value in asked.items() if value)]
    return " ".join(words) + (": " + " ".join(ranges(pods)) if pods else "")


def ranges(pods: list[str]) -> list[str]:
    """Names that follow one another as one, the way that they are drawn: x0..3."""
    runs: list[tuple[str, int, int]] = []
    parted = [re.fullmatch(r"(.*?)(\d*)", pod) for pod in pods]
    for stem, at in sorted((one[1], int(one[2])) for one in parted if one and one[2]):
        before = runs[-1] if runs else ("", 0, 0)
        if before[0] == stem and before[2] + 1 == at:
            runs[-1] = (stem, before[1], at)
        else:
            runs.append((stem, at, at))
    alone = [one[0] for one in parted if one and not one[2]]
    return alone + [f"{stem}{low}..{high}" if high > low else f"{stem}{low}" for stem, low, high in runs]


# ── the tests ──────────────────────────────────────────────────────────────────────────────────────


def every_play() -> Iterator[Any]:
    for file in sorted(FOLDER.glob("*.txt")):
        for one in read(file.read_text(encoding="utf-8"), f"tests/scenarios/segments/{file.name}"):
            yield pytest.param(one, id=f"{file.stem}-{one.title}")


@pytest.mark.parametrize("scenario", list(every_play()))
def test_segments(scenario: Play) -> None:
    verdicts = list(play(scenario))
    assert verdicts, "a scenario wants something"
    differing = [f"{v.where}: want {v.want}\n    got  {v.got}" for v in verdicts if v.want != v.got]
    assert not differing, "\n" + "\n".join(differing)


ONE_POD = """
manifest pair
  apiVersion: example.com/v1
  kind: Trainer
  metadata: {name: own}
  spec:
    replicas: $PODS
    template:
      spec:
        containers: [{name: c}]

== first
rack r1
  - a1 cpu=2
apply pair PODS=2
want own-0..1 rack r2
want own says no room    # or so
want own tree
  own 9

== second
rack r1
  - a1 cpu=1
apply pair PODS=1
want own-0 one rack
"""


def test_a_wrong_expectation_is_noticed_with_its_file_and_line() -> None:
    first, second = read(ONE_POD, "some.txt")
    assert [(one.where, one.want, one.got) for one in play(first)] == [
        ("some.txt:16", "rack r2", "rack r1"),
        ("some.txt:17", "says no room", "says nothing"),
        ("some.txt:18", "tree\nown 9", "tree\nown 1: own-0..1"),
    ]
    assert [one.where for one in play(second) if one.want == one.got] == ["some.txt:25"]


def test_a_line_that_is_none_is_named() -> None:
    with pytest.raises(AssertionError, match=r"some\.txt:4: 'wants own-0 one rack' is no line"):
        list(read("== a\n- a1 cpu=1\napply x\nwants own-0 one rack\n", "some.txt"))
