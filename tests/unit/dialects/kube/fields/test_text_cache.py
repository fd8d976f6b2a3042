"""A cache by text keeps what is short, and nothing that is long."""

from __future__ import annotations

from bayplan.dialects.kube.fields.text_cache import cached_by_text


def test_a_short_text_is_computed_once_and_a_long_one_each_time() -> None:
    computed: list[str] = []

    @cached_by_text(4, longest=3)
    def length(text: str, more: int = 0) -> int:
        computed.append(text)
        return len(text) + more

    assert [length("abc"), length("abc"), length("abc", 1)] == [3, 3, 4]
    assert [length("long"), length("long")] == [4, 4]
    assert computed == ["abc", "abc", "long", "long"]
