"""Objects of every kind come under new names without end, and go again: no role keeps anything of them."""

from __future__ import annotations

from random import Random
from typing import Any

from tests.fuzz.mutator import copied
from tests.fuzz.roles_target import FIXTURES, RolesTarget

ROUNDS, WARM_UP = 60, 15
OBJECTS = 14  # beside those that the others refer to
SLACK = 8


def renamed(value: Any, names: frozenset[str], number: int) -> Any:
    """The same with a number behind every name, wherever it stands."""
    match value:
        case dict():
            return {key: renamed(one, names, number) for key, one in value.items()}
        case list():
            return [renamed(one, names, number) for one in value]
        case str() if value in names:
            return f"{value}-{number}"
    return value


def one_round(target: RolesTarget, names: frozenset[str], number: int) -> None:
    rng, made = Random(number), [copied(one) for one in target.drawn.material]
    for one in made:
        one |= {part: renamed(one[part], names, number) for part in one if part not in ("apiVersion", "kind")}
        one["metadata"]["uid"] = f"{one['metadata'].get('uid', 'u')}-{number}"
    fixed = [one for one in made if one["kind"] in FIXTURES]
    rest = [one for one in made if one["kind"] not in FIXTURES]
    some = rng.sample(rest, OBJECTS)
    target.run([*(["put", one] for one in fixed + some), ["pass", 5.0]])


def test_names_of_objects_that_are_gone_leave_nothing_behind() -> None:
    target = RolesTarget()
    meta = [one["metadata"] for one in target.drawn.material]
    names = frozenset({one["name"] for one in meta} | {one.get("namespace", "default") for one in meta})
    for number in range(WARM_UP):
        one_round(target, names, number)
    before = target.sizes()
    for number in range(WARM_UP, ROUNDS):
        one_round(target, names, number)
    grown = {
        where: (before.get(where, 0), size)
        for where, size in target.sizes().items()
        if size > before.get(where, 0) + SLACK
    }
    assert grown == {}
