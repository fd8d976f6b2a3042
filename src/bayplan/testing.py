"""Builders for tests, examples and the simulator: clusters and gangs as text drawings."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import Any

from bayplan.model.gang import Gang, Group, Locality, PodSet, Ref, Segment
from bayplan.model.node import HOSTNAME, PODS, Node, Topology
from bayplan.model.node_rules import NodeRules, NodeSelectorTerm, Requirement, Taint, Toleration
from bayplan.model.profile import LeaderRules, Profile, Remainder, Strategy
from bayplan.state.cluster.topology_state import TopologyState

HOST = "host"  # the spelling of the node level in a drawing
SLOTS = 110  # pods per node unless a drawing says otherwise
STRATEGIES = ("required", "preferred", "unconstrained")
CHOICES: dict[str, Callable[[str], Any]] = {  # by the type of a profile's field
    "Strategy": Strategy, "Remainder": Remainder, "LeaderRules": LeaderRules,
    "bool": {"yes": True, "no": False}.__getitem__, "float": float,
}  # fmt: skip
OPERATORS = {"=": "In", "!=": "NotIn", "<": "Lt", ">": "Gt"}
GANGS = ("ask", "group", "gang")
ENDINGS = ("want", "hold", "release", "fail", "evict", "resize")


class BadScenario(ValueError):
    """An invalid scenario text; one `source:line: problem` each."""

    def __init__(self, problems: Sequence[str]) -> None:
        super().__init__("\n".join(problems))
        self.problems = tuple(problems)


@dataclass(frozen=True, slots=True)
class World:
    """A drawn cluster."""

    topology: Topology
    nodes: tuple[Node, ...]
    used: Mapping[str, Mapping[str, int]] = field(default_factory=dict)  # by node: usage of other pods

    def cluster(self) -> TopologyState:
        """The topology state of the drawing."""
        state = TopologyState(self.topology)
        state.load(self.nodes)
        for name, amounts in self.used.items():
            state.use_node(name, amounts)
        return state


@dataclass(frozen=True, slots=True)
class ScenarioStep:
    """One line below the drawing: a verb, its arguments, and the gang if it asks for one."""

    line: int
    verb: str
    names: tuple[str, ...] = ()
    words: tuple[str, ...] = ()
    gang: Gang | None = None
    profile: Profile = field(default_factory=Profile)


@dataclass(frozen=True, slots=True)
class Scenario:
    """A drawing and its steps."""

    source: str
    title: str
    world: World
    steps: tuple[ScenarioStep, ...]


@dataclass(frozen=True, slots=True)
class _Line:
    number: int
    indent: int
    words: tuple[str, ...]


class _LineError(Exception):
    """An error in a line; `line` is its number if it is not the current one."""

    line = 0


def scenarios(text: str, source: str = "scenario") -> list[Scenario]:
    """Read a file of scenarios; raise BadScenario with every problem and its line.

    `# …` is a comment. `== title` starts a scenario with a world of its own. The drawing comes first,
    indented as deep as the domains nest, then what happens, line by line:

        levels block rack host          top to bottom; without it, in the order drawn, and then host
        block b1                        a domain: its level and its name
          rack r1
            - x1 gpu=8 cpu=4 pods=20    a host and what it has; 110 pods unless it says so
            - x2..4 gpu=8               x2, x3 and x4
            - y1 gpu=8 used gpu=2 pods=1 label disk=ssd taint team=ml:NoSchedule notready cordoned

        profile remainder=leave_out preferred=balanced      for the following asks;
                                        strategy=… sets required, preferred and unconstrained at once
        ask train pods=4 gpu=2 [required=rack | preferred=rack | required=auto] [segments=4@rack,2@host]
            [select disk=ssd] [tolerate team | team=ml | *, each with :NoSchedule or not]
            [affinity disk=ssd|nvme] [affinity zone&!slow&gen>3]    one word is one term; several are
            [prefer 10:disk=ssd]                                     alternatives; & joins tests
        group lws required=rack         members, indented, that stay together
          ask leader pods=1 cpu=1
          ask workers pods=4 gpu=8
        gang job                        members, indented, placed in order, each seeing those before

        want train x1:2 x2:2            in rank order; a leaf that is no host as b1/r1:2; or `nothing`
        want train misfit fit=4 asked=5 level=rack …     any facts of the misfit
        hold train                      it keeps its placement from here on; `release train` frees it
        fail x1 x2                      these nodes fail; every held gang is repaired
        evict x1 x2                     the same, though the nodes stay ready
        resize train pods=6             a held pod set grows or shrinks

    In `want`, `hold`, `release` and `resize` a name is that of a pod set, of a group or of a gang.
    """
    problems = list[str]()
    parsed = [_scenario(source, title, part, problems) for title, part in _parts(text)]
    if problems:
        raise BadScenario(problems)
    return [scenario for scenario in parsed if scenario is not None]


def world(drawing: str, **default: int) -> World:
    """The cluster of a drawing; `default` amounts apply to hosts that do not state their own."""
    problems, lines = list[str](), [line for _, part in _parts(drawing) for line in part]
    drawn_world = _world(lines, "drawing", problems, default)
    if drawn_world is None or problems:
        raise BadScenario(problems or ["drawing:1: no host is drawn"])
    return drawn_world


def ask(text: str) -> Gang:
    """The gang of one `ask`, `group` or `gang` line (and its members), as in `scenarios`."""
    lines = [line for _, part in _parts(text) for line in part]
    try:
        gang, end = _gang(lines, 0)
    except _LineError as error:
        raise BadScenario([str(error)]) from None
    assert end == len(lines), "one gang at a time"
    return gang


def _parts(text: str) -> Iterator[tuple[str, list[_Line]]]:
    """The scenarios of a text, each with its lines."""
    title, lines = "", list[_Line]()
    for number, raw in enumerate(text.splitlines(), start=1):
        plain = raw.split("#")[0].rstrip()
        if plain.startswith("=="):
            if lines:
                yield title, lines
            title, lines = plain.strip("= "), []
        elif plain:
            lines.append(_Line(number, len(plain) - len(plain.lstrip()), tuple(plain.split())))
    if lines:
        yield title, lines


def _scenario(source: str, title: str, lines: list[_Line], problems: list[str]) -> Scenario | None:
    first = next((at for at, line in enumerate(lines) if _is_step(line)), len(lines))
    earlier, drawn_world = len(problems), _world(lines[:first], source, problems, {})
    if drawn_world is None and len(problems) == earlier:
        problems.append(f"{source}:{lines[0].number}: no host is drawn")
    steps = tuple(_steps(lines[first:], source, problems, drawn_world))
    return None if drawn_world is None else Scenario(source, title, drawn_world, steps)


def _is_step(line: _Line) -> bool:
    return line.words[0] in ("profile", *GANGS, *ENDINGS)


def _world(lines: list[_Line], source: str, problems: list[str], default: Mapping[str, int]) -> World | None:
    levels, drawn, path = list[str](), list[str](), list[tuple[int, str, str]]()
    nodes, used = dict[str, Node](), dict[str, dict[str, int]]()
    for line in lines:
        path = [entry for entry in path if entry[0] < line.indent]
        try:
            if line.words[0] == "levels":
                levels = list(line.words[1:])
            elif line.words[0] == "-":
                labels = {_key(level): value for _, level, value in path}
                for node, taken in _hosts(line.words[1:], labels, {PODS: SLOTS, **default}):
                    _require(node.name not in nodes, f"{node.name} is drawn twice")
                    nodes[node.name], used[node.name] = node, taken
            else:
                _require(len(line.words) == 2, f"'{' '.join(line.words)}' is no line of a scenario")
                level, value = line.words
                _require(level in (levels or [level]), f"no level '{level}'; there are {' '.join(levels)}")
                drawn += [level] * (level not in drawn)
                path.append((line.indent, level, value))
        except _LineError as error:
            problems.append(f"{source}:{line.number}: {error}")
    if not nodes:
        return None
    keys = tuple(_key(level) for level in levels or [*drawn, HOST])
    return World(Topology("drawing", keys), tuple(nodes.values()), used)


def _hosts(
    words: Sequence[str], labels: Mapping[str, str], amounts: Mapping[str, int]
) -> Iterator[tuple[Node, dict[str, int]]]:
    """Every host of a `-` line, and the usage of other pods on it."""
    _require(words, "a host needs a name")
    have, used, own, taints = dict(amounts), dict[str, int](), dict(labels), list[Taint]()
    target, rest, flags = have, iter(words[1:]), set[str]()
    for word in rest:
        if word == "used":
            target = used
        elif word == "label":
            own.update([_pair(next(rest, ""))])
        elif word == "taint":
            taints.append(Taint(*_taint(next(rest, ""))))
        elif word in ("notready", "cordoned"):
            flags.add(word)
        else:
            key, value = _pair(word)
            target[key] = _number(value, word)
    ready, schedulable = "notready" not in flags, "cordoned" not in flags
    for name in names(words[0]):
        yield Node(name, own | {HOSTNAME: name}, have, tuple(taints), ready, schedulable), dict(used)


def names(word: str) -> list[str]:
    """The names of a range: `x2..4` is x2, x3, x4; any other word is one name."""
    found = re.fullmatch(r"(.*?)(\d+)\.\.(\d+)", word)
    return [f"{found[1]}{n}" for n in range(int(found[2]), int(found[3]) + 1)] if found else [word]


def _gang(lines: Sequence[_Line], at: int) -> tuple[Gang, int]:
    """The gang that starts at a line, and the index of the next line."""
    member, end = _member(lines, at)
    is_root = lines[at].words[0] == "gang"
    root = member if is_root and isinstance(member, Group) else Group(member.name, (member,), 1)
    return Gang(Ref("scenario", "Ask", "", member.name), root), end


def _member(lines: Sequence[_Line], at: int) -> tuple[Group | PodSet, int]:
    line = lines[at]
    verb, words = line.words[0], line.words[1:]
    _require(verb in GANGS, f"'{verb}' is no member of a group")
    _require(words, f"{verb} needs a name")
    if verb == "ask":
        try:
            return _pod_set(words), at + 1
        except _LineError as error:
            error.line = line.number
            raise
    members, end = list[Group | PodSet](), at + 1
    while end < len(lines) and lines[end].indent > line.indent:
        member, end = _member(lines, end)
        members.append(member)
    _require(members, f"{verb} {words[0]} has no members")
    given = dict(_pair(word) for word in words[1:])
    locality = _locality(given)
    _require(not given, f"a {verb} has a locality and nothing else")
    return Group(words[0], tuple(members), len(members), locality), end


def _pod_set(words: Sequence[str]) -> PodSet:
    rules: dict[str, tuple[Any, ...]] = dict.fromkeys(RULES, ())
    given, rest = dict[str, str](), iter(words[1:])
    for word in rest:
        if word in rules:
            rules[word] += (RULES[word](next(rest, "")),)
        else:
            given.update([_pair(word)])
    _require("pods" in given, f"how many? ask {words[0]} pods=…")
    count = _number(given.pop("pods"), "pods")
    locality = _locality(given)
    segments = tuple(_segment(word) for word in given.pop("segments", "").split(",") if word)
    requests = {key: _number(value, f"{key}={value}") for key, value in given.items()}
    wishes = NodeRules(rules["select"], rules["affinity"] or None, rules["prefer"], rules["tolerate"])
    return PodSet(words[0], count, count, requests, locality, segments, wishes)


def _locality(given: dict[str, str]) -> Locality:
    required, preferred = given.pop("required", None), given.pop("preferred", None)
    _require(required is None or preferred is None, "required or preferred, not both")
    return Locality(required and _key(required), preferred and _key(preferred))


def _segment(word: str) -> Segment:
    size, _, level = word.partition("@")
    _require(level, f"'{word}' is no segment; write it as 4@rack")
    return Segment(_number(size, word), _key(level))


def _toleration(word: str) -> Toleration:
    key, value, effect = _taint(word)
    return Toleration("" if key == "*" else key, "Equal" if value else "Exists", value, effect)


def _term(word: str) -> NodeSelectorTerm:
    return NodeSelectorTerm(tuple(_requirement(test) for test in word.split("&")))


def _requirement(test: str) -> Requirement:
    found = re.fullmatch(r"(!?)([^!=<>|&]+)(?:(!=|=|<|>)(.+))?", test)
    if found is None or (found[1] and found[3]):
        raise _LineError(f"'{test}' is no test of a label; write key, !key, key=a|b, key!=a, key>3 or key<3")
    operator = OPERATORS[found[3]] if found[3] else "DoesNotExist" if found[1] else "Exists"
    return Requirement(found[2], operator, tuple(found[4].split("|")) if found[4] else ())


def _steps(
    lines: Sequence[_Line], source: str, problems: list[str], drawn: World | None
) -> Iterator[ScenarioStep]:
    """All valid steps; invalid lines are added to `problems`."""
    at, profile, known = 0, Profile(), set[str]()
    hosts = {node.name for node in drawn.nodes} if drawn else set()
    while at < len(lines):
        line, at = lines[at], at + 1
        try:
            if line.words[0] == "profile":
                profile = _profile(line.words[1:])
            elif line.words[0] in ENDINGS:
                yield _ending(line, known, hosts)
            else:
                _require(_is_step(line), "the drawing comes before the first step")
                gang, at = _gang(lines, at - 1)
                known |= _names_in(gang.root)
                yield ScenarioStep(line.number, "ask", gang=gang, profile=profile)
        except _LineError as error:
            problems.append(f"{source}:{error.line or line.number}: {error}")
            while at < len(lines) and lines[at].indent > line.indent:  # skip the members of an invalid group
                at += 1


def _ending(line: _Line, known: set[str], hosts: set[str]) -> ScenarioStep:
    verb, words = line.words[0], line.words[1:]
    _require(words, f"{verb} what?")
    if verb in ("fail", "evict"):
        for name in words:
            _require(name in hosts, f"no host '{name}' is drawn")
        return ScenarioStep(line.number, verb, words)
    _require(words[0] in known, f"'{words[0]}' has no ask before this line")
    if verb == "want":
        _require(len(words) > 1, f"want {words[0]} what? x1:2 …, nothing or misfit …")
    elif verb == "resize":
        _require(re.fullmatch(r"pods=\d+", " ".join(words[1:])), f"resize {words[0]} pods=…")
    else:
        _require(len(words) == 1, f"{verb} takes one name")
    return ScenarioStep(line.number, verb, words[:1], words[1:])


def _names_in(member: Group | PodSet) -> set[str]:
    inside = member.members if isinstance(member, Group) else ()
    return {member.name}.union(*(_names_in(each) for each in inside))


def _profile(words: Sequence[str]) -> Profile:
    readers = {each.name: CHOICES[str(each.type)] for each in fields(Profile) if str(each.type) in CHOICES}
    chosen = dict[str, Any]()
    for word in words:
        key, value = _pair(word)
        for name in STRATEGIES if key == "strategy" else (key,):
            _require(name in readers, f"a profile has no '{name}'; it has {' '.join(sorted(readers))}")
            try:
                chosen[name] = readers[name](value)
            except (ValueError, KeyError):
                raise _LineError(f"'{value}' is no value for {name}") from None
    return Profile(**chosen)


def _require(condition: object, message: str) -> None:
    if not condition:
        raise _LineError(message)


def _key(level: str) -> str:
    return HOSTNAME if level == HOST else level


def _pair(word: str) -> tuple[str, str]:
    key, equals, value = word.partition("=")
    _require(key and equals and value, f"'{word}' is not of the form key=value")
    return key, value


def _number(text: str, word: str) -> int:
    _require(text.isascii() and text.isdigit(), f"'{word}' needs a whole number")
    return int(text)


def _taint(word: str) -> tuple[str, str, str]:
    """Key, value and effect of `key` or `key=value`, each with an optional `:effect`."""
    head, _, effect = word.partition(":")
    key, _, value = head.partition("=")
    _require(key, f"'{word}' is no taint; write key=value:NoSchedule")
    return key, value, effect


RULES: dict[str, Callable[[str], Any]] = {
    "select": _pair, "tolerate": _toleration, "affinity": _term,
    "prefer": lambda word: (_number(word.partition(":")[0], word), _term(word.partition(":")[2])),
}  # fmt: skip
