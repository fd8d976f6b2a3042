"""A slice of every fuzz target with fixed seeds, and every input that once broke something."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.fuzz.running import attempt, case_of, fuzz
from tests.fuzz.target import Target
from tests.fuzz.targets import TARGETS

CORPUS = Path(__file__).parent / "corpus"
INPUTS = {
    "decoding": 400,
    "roles": 120,
    "reviews": 300,
    "http": 300,
    "kubeconfig": 200,
    "place": 40,
    "engine": 120,
}
SEED = 15

_made: dict[str, Target] = {}


def target(name: str) -> Target:
    """One for all tests: to make them takes long."""
    if name not in _made:
        _made[name] = TARGETS[name]()
    return _made[name]


@pytest.mark.parametrize("name", TARGETS)
def test_random_inputs_break_no_contract(name: str) -> None:
    result = fuzz(target(name), SEED, inputs=INPUTS[name])
    assert {found.what: found.told for found in result.findings.values()} == {}


@pytest.mark.parametrize("path", sorted(CORPUS.glob("*.json")), ids=lambda path: path.stem)
def test_what_once_broke_something_does_not_again(path: Path) -> None:
    """The name of the file begins with the target and says what was wrong."""
    one = target(path.name.partition("--")[0])
    case = json.loads(path.read_text(encoding="utf-8"))
    one.reset()
    found = attempt(one, case)
    assert isinstance(found, int), found


@pytest.mark.parametrize("name", TARGETS)
def test_a_seed_and_a_number_give_the_same_input(name: str) -> None:
    first, again = target(name), TARGETS[name]()
    for number in range(20):
        one = case_of(first, 3, number)
        assert one == case_of(again, 3, number)
        assert json.loads(json.dumps(one)) == one  # a file of the corpus can hold it
