"""What is derived from a document is derived once, and never from another document."""

from __future__ import annotations

from typing import Any

import pytest

from bayplan.simulator.core import documents
from bayplan.simulator.core.documents import LastLook, once_per_document, once_per_listing


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


def test_the_same_listing_is_looked_at_once_and_a_list_that_may_have_changed_again() -> None:
    seen: list[int] = []

    @once_per_listing
    def size(nodes: Any, pods: Any) -> int:
        seen.append(len(nodes) + len(pods))
        return seen[-1]

    nodes, pods = ({"name": "n"},), ({"name": "a"}, {"name": "b"})
    growing = [{"name": "a"}]
    assert [size(nodes, pods), size(nodes, pods), size(pods, nodes), size(nodes, growing)] == [3, 3, 3, 2]
    growing.append({"name": "b"})
    assert size(nodes, growing) == 3
    assert seen == [3, 3, 2, 3]


def test_listings_that_are_gone_are_never_mistaken_for_others(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(documents, "LISTINGS_MAX", 3)

    @once_per_listing
    def number_of(found: tuple[dict[str, Any], ...]) -> int:
        return int(found[0]["number"])

    assert [number_of(({"number": number},)) for number in range(100)] == list(range(100))


def test_a_look_is_repeated_only_at_the_same_listings() -> None:
    look, nodes, pods = LastLook(), ({"name": "n"},), ({"name": "a"},)
    assert [look.repeats(nodes, pods), look.repeats(nodes, pods), look.repeats(pods, nodes)] == [
        False,
        True,
        False,
    ]
    changing = [{"name": "a"}]
    assert [look.repeats(changing), look.repeats(changing)] == [False, False], "it may have changed"
