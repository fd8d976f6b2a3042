"""What is fuzzed: where inputs come from, what is done with one, and what must not stay behind."""

from __future__ import annotations

from random import Random
from typing import Any, Protocol

Case = Any
"""An input as plain JSON: it can be kept in a file and run again."""


class Broken(Exception):
    """A contract that an input broke, though nothing was raised."""


class Target(Protocol):
    """One part of the product."""

    name: str

    def draw(self, rng: Random) -> Case:
        """An input; the same for the same state of the generator."""

    def run(self, case: Case) -> int:
        """Run one input. Return how many inputs it is made of; raise if a contract does not hold."""

    def sizes(self) -> dict[str, int]:
        """How much is kept, by what: between inputs nothing of an input may be left."""

    def reset(self) -> None:
        """Begin anew, after an input that broke something."""
