"""Hooks that see every write before it is kept: the functions behind our webhooks, called in process."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

from bayplan.backends.embedded.status import Refusal

Object = dict[str, Any]

CREATE, UPDATE, DELETE = "CREATE", "UPDATE", "DELETE"


@dataclass(frozen=True, slots=True)
class Review:
    """A write that somebody wants to make, as a webhook is shown it."""

    operation: str  # CREATE, UPDATE or DELETE
    group: str
    version: str
    plural: str
    subresource: str
    namespace: str
    name: str
    object: Object | None  # as it would be; None for a delete
    old: Object | None
    dry_run: bool = False


@dataclass(frozen=True, slots=True)
class Verdict:
    """What a hook says of a write."""

    allowed: bool = True
    message: str = ""
    code: int = 403
    object: Object | None = None  # from a mutating hook: the object to keep instead
    warnings: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Hook:
    """A function that is asked about some writes."""

    name: str  # as in the webhook configuration: it is part of the sentence of a refusal
    decide: Callable[[Review], Verdict]
    resources: frozenset[tuple[str, str]]  # (group, plural or plural/subresource)
    operations: frozenset[str] = frozenset({CREATE, UPDATE})
    mutating: bool = False

    def concerns(self, review: Review) -> bool:
        """Whether the hook is asked about a write."""
        plural = f"{review.plural}/{review.subresource}" if review.subresource else review.plural
        return review.operation in self.operations and (review.group, plural) in self.resources


class Admission:
    """All hooks, in the order in which they were registered; mutating ones first."""

    def __init__(self) -> None:
        self.hooks: list[Hook] = []

    def register(self, hook: Hook) -> None:
        """Ask this hook too."""
        self.hooks.append(hook)

    def mutate(self, review: Review, warnings: list[str]) -> Object | None:
        """The object as the mutating hooks want it."""
        for hook in self.hooks:
            if hook.mutating and hook.concerns(review):
                verdict = _asked(hook, review, warnings)
                if verdict.object is not None:
                    review = replace(review, object=verdict.object)
        return review.object

    def validate(self, review: Review, warnings: list[str]) -> None:
        """Refusal when a validating hook says no."""
        for hook in self.hooks:
            if not hook.mutating and hook.concerns(review):
                _asked(hook, review, warnings)


def _asked(hook: Hook, review: Review, warnings: list[str]) -> Verdict:
    verdict = hook.decide(review)
    warnings += verdict.warnings
    if not verdict.allowed:
        why = verdict.message or "the webhook gave no reason"
        raise Refusal(verdict.code, f'admission webhook "{hook.name}" denied the request: {why}')
    return verdict
