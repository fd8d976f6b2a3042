"""Selectors and match conditions of a webhook, evaluated as an API server does."""

from __future__ import annotations

import logging
import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from bayplan.backends.embedded.api.admission_hooks import NamespaceLabels, Review
from bayplan.backends.embedded.api.selectors import Matcher, everything, selector_matcher
from bayplan.backends.embedded.api.status import StatusError, quote
from bayplan.backends.embedded.schema.cel import environment

Object = dict[str, Any]

_LOG = logging.getLogger(__name__)
_VARIABLES = ("object", "oldObject", "request")
_WORD = re.compile(r"[A-Za-z_]\w*")


@dataclass(frozen=True, slots=True)
class MatchCondition:
    """One match condition, compiled; it gets to see the top-level fields of objects that it mentions."""

    name: str
    program: Any
    words: frozenset[str]

    def answer(self, review: Review) -> Any:
        """True or false, or in any other case what went wrong."""
        data = {
            "object": _mentioned(review.object, self.words),
            "oldObject": _mentioned(review.old, self.words),
            "request": _request(review),
        }
        try:
            return self.program.eval(data=data).plain_value()
        except Exception as error:
            return str(error)


@dataclass(frozen=True, slots=True)
class Matching:
    """The selectors and match conditions of one webhook."""

    namespaces: Matcher = everything
    objects: Matcher = everything
    conditions: tuple[MatchCondition, ...] = ()
    fails_open: bool = False  # failurePolicy: Ignore

    def concerns(self, review: Review, labels_of: NamespaceLabels) -> bool:
        """Whether the webhook reviews a write; StatusError if a condition fails and the policy is Fail."""
        own = (review.group, review.plural) == ("", "namespaces")
        if own:
            found = review.object or review.old or {}
            labels: Mapping[str, str] = (found.get("metadata") or {}).get("labels") or {}
        else:
            labels = labels_of(review.namespace) if review.namespace else {}
        if (own or review.namespace) and not self.namespaces(labels):
            return False
        if self.objects is not everything and not any(
            self.objects((one.get("metadata") or {}).get("labels") or {})
            for one in (review.object, review.old)
            if one is not None
        ):
            return False
        return self._conditions_hold(review)

    def _conditions_hold(self, review: Review) -> bool:
        wrong: tuple[MatchCondition, Any] | None = None  # the first that is neither true nor false
        for one in self.conditions:
            answer = one.answer(review)
            if answer is False:  # counts, whatever went wrong with others
                return False
            if answer is not True and wrong is None:
                wrong = (one, answer)
        if wrong is None:
            return True
        message = f"match condition {quote(wrong[0].name)} cannot be evaluated: {wrong[1]}"
        _LOG.warning("%s %s: %s", review.plural, review.name, message)
        if self.fails_open:
            return False
        group = f".{review.group}" if review.group else ""
        raise StatusError(403, f"{review.plural}{group} {quote(review.name)} is forbidden: {message}")


def matching(webhook: Mapping[str, Any]) -> Matching:
    """From one webhook of a configuration. Without the library for CEL, match conditions count as true."""
    selectors = [webhook.get(key) for key in ("namespaceSelector", "objectSelector")]
    namespaces, objects = (selector_matcher(one) if one else everything for one in selectors)
    given = (webhook.get("matchConditions") or ()) if environment(_VARIABLES) is not None else ()
    conditions = tuple(_compiled(str(one["name"]), str(one["expression"])) for one in given)
    return Matching(namespaces, objects, conditions, webhook.get("failurePolicy") == "Ignore")


@lru_cache(maxsize=256)
def _compiled(name: str, expression: str) -> MatchCondition:
    """Compiling takes milliseconds, and many clusters in memory have the same conditions."""
    program = environment(_VARIABLES).compile(expression)
    return MatchCondition(name, program, frozenset(_WORD.findall(expression)))


def _mentioned(item: Object | None, words: frozenset[str]) -> Object | None:
    """An object without the top-level fields that an expression does not mention: copying them takes time."""
    return None if item is None else {key: value for key, value in item.items() if key in words}


def _request(review: Review) -> Object:
    kind = (review.object or review.old or {}).get("kind", "")
    named = {"group": review.group, "version": review.version}
    return {
        "kind": {**named, "kind": kind},
        "resource": {**named, "resource": review.plural},
        "subResource": review.subresource,
        "name": review.name,
        "namespace": review.namespace,
        "operation": review.operation,
        "userInfo": {"username": review.user, "groups": ["system:authenticated"]},
        "dryRun": review.dry_run,
    }
