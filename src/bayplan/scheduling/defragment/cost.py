"""What it costs to move a gang: the work that is done again, weighted by priority."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from bayplan.model.node import PODS
from bayplan.model.pod import Pod

NO_DEVICES = ("cpu", "memory", "ephemeral-storage", PODS)
HUGE_PAGES = "hugepages-"


@dataclass(frozen=True, slots=True)
class CostRules:
    """Amounts in seconds; those of a gang and a pod are added so that few and small moves are preferred."""

    restart: int = 300  # until a gang that moved is as far as before
    assumed_checkpoint: int = 3600  # the oldest age of the last checkpoint, if no annotation states it
    per_gang: int = 600  # GPU-seconds
    per_pod: int = 60  # GPU-seconds


DEFAULT_COSTS = CostRules()


@dataclass(frozen=True, slots=True)
class MoveCost:
    """The work lost in GPU-seconds, and what the search compares."""

    lost: int
    weighted: int


def is_accelerator(resource: str) -> bool:
    """Whether a resource is a device, not CPU, memory, storage or a slot for a pod."""
    return resource not in NO_DEVICES and not resource.startswith(HUGE_PAGES)


def accelerators(amounts: Mapping[str, int]) -> int:
    """GPUs or other devices among these amounts."""
    return sum(amount for resource, amount in amounts.items() if is_accelerator(resource))


def move_cost(
    pods: Sequence[Pod],
    now: float,
    *,
    checkpoint: float = 0.0,
    lower_priorities: int = 0,
    rules: CostRules = DEFAULT_COSTS,
) -> MoveCost:
    """The cost of moving these pods of a gang.

    `checkpoint` is when its work was last saved (0: unknown), `lower_priorities` how many lower priorities
    movable gangs have: each of them makes the gang as expensive once more.
    """
    gpus = sum(accelerators(pod.amounts) for pod in pods)
    started = min((pod.started or now for pod in pods), default=now)
    age = max(now - max(started, checkpoint), 0.0)
    if not checkpoint:
        age = min(age, rules.assumed_checkpoint)
    lost = gpus * (int(age) + rules.restart)
    weighted = lost * (1 + lower_priorities) + rules.per_gang + rules.per_pod * len(pods)
    return MoveCost(lost, weighted)


def priority_ranks(priorities: Iterable[int]) -> dict[int, int]:
    """By priority, how many lower ones there are."""
    return {priority: rank for rank, priority in enumerate(sorted(set(priorities)))}
