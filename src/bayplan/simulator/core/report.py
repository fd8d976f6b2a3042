"""The result of one simulation run."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field


@dataclass(slots=True)
class SeedReport:
    """Counts and violations of one seed."""

    seed: int
    play: str = ""
    steps: int = 0
    faults: Counter[str] = field(default_factory=Counter)
    violations: list[str] = field(default_factory=list)
    finished: int = 0
    jobs: int = 0
    workloads: int = 0
    admissions: int = 0
    reached: Counter[str] = field(default_factory=Counter)  # states and reasons, and how often
    digest: str = ""  # of the journal, where it was asked for: equal seeds must give equal journals
