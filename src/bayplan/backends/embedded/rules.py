"""The CEL rules in custom resources' schemas (extra `cel`); without the library they are not checked."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from bayplan.backends.embedded.status import Problem


class Rules:
    """The compiled rules of one schema."""

    def check(self, item: Any, old: Any | None) -> list[Problem]:
        """Every broken rule."""
        return []


def compiled(schema: Mapping[str, Any]) -> Rules | None:
    """The rules of a schema, or None when it has none."""
    return None
