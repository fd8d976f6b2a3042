"""Admission hooks: the functions behind the webhooks, called in process before a write is stored."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol

from bayplan.backends.embedded.api.status import StatusError

Object = dict[str, Any]
NamespaceLabels = Callable[[str], Mapping[str, str]]

_LOG = logging.getLogger(__name__)

CREATE, UPDATE, DELETE = "CREATE", "UPDATE", "DELETE"


@dataclass(frozen=True, slots=True)
class Review:
    """A write under review, as in an AdmissionReview."""

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
    user: str = ""  # who writes, as far as that is known


@dataclass(frozen=True, slots=True)
class HookResponse:
    """The response of a hook."""

    allowed: bool = True
    message: str = ""
    code: int = 403
    object: Object | None = None  # from a mutating hook: the object to keep instead
    warnings: tuple[str, ...] = ()


class WriteFilter(Protocol):
    """Conditions on the writes that a hook reviews, beyond kinds and operations."""

    @property
    def fails_open(self) -> bool:
        """Whether writes are allowed when the hook fails."""
        ...

    def concerns(self, review: Review, labels_of: NamespaceLabels) -> bool:
        """Whether the hook reviews a write."""
        ...


@dataclass(frozen=True, slots=True)
class Hook:
    """A function that reviews writes of some kinds and operations."""

    name: str  # as in the webhook configuration: it is part of the sentence of a refusal
    decide: Callable[[Review], HookResponse]
    resources: frozenset[tuple[str, str]]  # (group, plural or plural/subresource)
    operations: frozenset[str] = frozenset({CREATE, UPDATE})
    mutating: bool = False
    matching: WriteFilter | None = None  # None: it is asked about each of these

    def matches(self, review: Review, labels_of: NamespaceLabels) -> bool:
        """Whether the hook reviews this write of one of its kinds and operations."""
        return self.matching is None or self.matching.concerns(review, labels_of)


class AdmissionHooks:
    """All hooks, in the order in which they were registered; mutating ones first."""

    def __init__(self, labels_of: NamespaceLabels = lambda namespace: {}) -> None:
        self._hooks: tuple[Hook, ...] = ()
        self._by_write: dict[tuple[bool, str, tuple[str, str]], tuple[Hook, ...]] = {}
        self.labels_of = labels_of

    @property
    def hooks(self) -> Sequence[Hook]:
        """All of them."""
        return self._hooks

    @hooks.setter
    def hooks(self, hooks: Sequence[Hook]) -> None:
        self._hooks, self._by_write = (), {}
        for hook in hooks:
            self.register(hook)

    def register(self, hook: Hook) -> None:
        """Add a hook."""
        self._hooks = (*self._hooks, hook)
        for operation in hook.operations:
            for place in hook.resources:
                write = (hook.mutating, operation, place)
                self._by_write[write] = (*self._by_write.get(write, ()), hook)

    def named(
        self, mutating: bool, operation: str, group: str, plural: str, subresource: str
    ) -> tuple[Hook, ...]:
        """The hooks whose kinds and operations include such a write; most writes have none."""
        place = (group, f"{plural}/{subresource}" if subresource else plural)
        return self._by_write.get((mutating, operation, place), ())

    def mutate(self, review: Review, warnings: list[str]) -> Object | None:
        """The object after all mutating hooks."""
        for hook in self._of(review, mutating=True):
            if hook.matches(review, self.labels_of):
                verdict = _asked(hook, review, warnings)
                if verdict.object is not None:
                    review = replace(review, object=verdict.object)
        return review.object

    def validate(self, review: Review, warnings: list[str]) -> None:
        """Raise StatusError if a validating hook denies the write."""
        for hook in self._of(review, mutating=False):
            if hook.matches(review, self.labels_of):
                _asked(hook, review, warnings)

    def _of(self, review: Review, *, mutating: bool) -> tuple[Hook, ...]:
        return self.named(mutating, review.operation, review.group, review.plural, review.subresource)


def _asked(hook: Hook, review: Review, warnings: list[str]) -> HookResponse:
    try:
        verdict = hook.decide(review)
    except StatusError:
        raise
    except Exception as error:  # as an API server does when a webhook fails
        _LOG.warning("webhook %s failed on %s %s", hook.name, review.plural, review.name, exc_info=error)
        if hook.matching is not None and hook.matching.fails_open:
            return HookResponse()
        message = f"{type(error).__name__}: {error}"
        raise StatusError(
            500, f'Internal error occurred: failed calling webhook "{hook.name}": {message}'
        ) from None
    warnings += verdict.warnings
    if not verdict.allowed:
        why = verdict.message or "the webhook gave no reason"
        raise StatusError(verdict.code, f'admission webhook "{hook.name}" denied the request: {why}')
    return verdict
