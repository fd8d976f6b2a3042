"""What is derived from a document is derived once, and never from another document."""

from __future__ import annotations

from typing import Any

import pytest

from bayplan.simulator.core import documents
from bayplan.simulator.core.documents import once_per_document


def test_a_document_is_looked_at_once_and_a_replaced_one_again() -> None:
    seen: list[str] = []

    @once_per_document
    def name_of(document: dict[str, Any]) -> str:
        seen.append(document["name"])
        return str(document["name"])

    first, second = {"name": "a"}, {"name": "b"}
    assert [name_of(first), name_of(second), name_of(first), name_of({"name": "a"})] == ["a", "b", "a", "a"]
    assert seen == ["a", "b", "a"], "an equal document is another document"


def test_documents_that_are_gone_are_never_mistaken_for_others(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(documents, "KEPT_MAX", 10)

    @once_per_document
    def number_of(document: dict[str, Any]) -> int:
        return int(document["number"])

    # each of these is freed at once, unless it is kept, and the next one would get its identity
    assert [number_of({"number": number}) for number in range(100)] == list(range(100))
