"""YAML and JSON from outside are read within bounds or rejected; no text crashes the process."""

from __future__ import annotations

import ast
import json
import random
import re
import subprocess
import sys
from contextlib import suppress
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bayplan.dialects.kube.fields.bounded_json import UnreadableJSON, bounded_json, deeper_than
from bayplan.dialects.kube.fields.bounded_yaml import (
    DEPTH_MAX,
    UnreadableYAML,
    bounded_documents,
    bounded_yaml,
)

_LEVELS = "abcdefghij"
MERGES = "a: &a {x: 1, y: 2}\n" + "".join(
    f"{c}: &{c} {{<<: [{','.join([f'*{p}'] * 9)}]}}\n" for p, c in pairwise(_LEVELS)
)
REFUSED: dict[str, tuple[str | bytes, str]] = {
    "nested brackets": ("a: " + "[" * 100_000, "line 1: is nested too deeply"),
    "nested braces": ("{a: " * 100_000, "is nested too deeply"),
    "nested blocks": ("- " * 100_000, "is nested too deeply"),
    "nested keys": ("? " * 100_000, "is nested too deeply"),
    "nested steps": ("\n".join(" " * i + "a:" for i in range(300)), "is nested too deeply"),
    "merge keys": (MERGES, "aliases make more than"),
    "a merge of itself": ("a: &a\n  <<: *a\n", "alias that contains itself"),
    "a long number": ("a: " + "9" * 5000, "cannot be read"),
    "a long hexadecimal number": (
        "a: 0x" + "9" * 5000,
        "line 1, column 4: is not YAML: holds a number that is",
    ),
    "not UTF-8": (b"a: \xff", "byte 3 (0xff) is not UTF-8"),
    "a null byte": (b"a: \x00", "is not YAML"),
    "no truth": ("!!bool maybe", "cannot be read"),
    "no number": ("!!int ''", "cannot be read"),
    "no date": ("!!timestamp soon", "is not YAML"),
    "an object of Python": ("!!python/object/apply:os.getcwd []", "is not YAML"),
    "two documents": ("a: 1\n---\nb: 2\n", "line 3: holds more than one document"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_a_harmful_yaml_text_is_rejected_with_a_reason(name: str) -> None:
    text, why = REFUSED[name]
    with pytest.raises(UnreadableYAML) as refused:
        bounded_yaml(text)
    assert why in str(refused.value)


def test_the_loader_itself_crashes_on_rejected_texts() -> None:
    """The reason for the bounds; if this fails, the library has bounds of its own now."""
    program = "import yaml; yaml.load('[' * 300_000, yaml.CSafeLoader)"
    ended = subprocess.run([sys.executable, "-c", program], capture_output=True, check=False)
    assert ended.returncode != 0


def test_ordinary_yaml_is_read_as_kubernetes_reads_it() -> None:
    text = "a: 2024-01-01\nb: [1, 0x10, 1.5, true, null, ~]\nc: &c {d: e}\nf: {<<: *c, g: h}\n"
    wanted = {
        "a": "2024-01-01",
        "b": [1, 16, 1.5, True, None, None],
        "c": {"d": "e"},
        "f": {"d": "e", "g": "h"},
    }
    assert bounded_yaml(text) == wanted
    assert bounded_yaml(text.encode()) == wanted
    assert bounded_yaml("") is None
    assert bounded_documents("a: 1\n---\n\n---\nb: 2\n") == [(1, {"a": 1}), (5, {"b": 2})]
    assert bounded_yaml("[" * DEPTH_MAX + "]" * DEPTH_MAX) is not None


def test_harmful_json_is_rejected_with_a_reason() -> None:
    for raw, why in (
        (b"[" * 100_000 + b"]" * 100_000, "nested more than 200 levels"),
        (b"[" * 100_000, "nested more than 200 levels"),
        (b'{"a":' * 300 + b"1" + b"}" * 300, "nested more than 200 levels"),
        (b'{"a": "\xff"}', "is not as it must be"),
        (b'{"a": 1', "is not as it must be"),
        (b"", "is not as it must be"),
    ):
        with pytest.raises(UnreadableJSON, match=why):
            bounded_json(raw)
    with pytest.raises(UnreadableJSON, match="Expected `int`"):
        bounded_json(b'{"a": "x"}', dict[str, int])
    with pytest.raises(UnreadableJSON):
        bounded_json(b'{"a": ' + b"9" * 5000 + b"}", dict[str, int])


def test_brackets_in_strings_are_not_depth() -> None:
    text = json.dumps({"a": "[" * 1000, "b": '\\"' + "{" * 1000, "c": ["]"] * 300})
    assert bounded_json(text.encode()) == json.loads(text)


_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**53), 2**53) | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=30,
)


def _depth(value: Any) -> int:
    if isinstance(value, dict):
        return 1 + max((_depth(one) for one in value.values()), default=0)
    return 1 + max((_depth(one) for one in value), default=0) if isinstance(value, list) else 0


@given(_VALUES, st.integers(0, 8))
def test_depth_is_measured_as_it_is(value: Any, limit: int) -> None:
    assert deeper_than(json.dumps(value).encode(), limit) == (_depth(value) > limit)


@given(st.binary(max_size=200) | st.text(alphabet="[]{}:,-?&*! |>'\"\n ab1<", max_size=200))
def test_any_bytes_are_read_or_rejected(raw: bytes | str) -> None:
    for read, refusal in ((bounded_yaml, UnreadableYAML), (bounded_json, UnreadableJSON)):
        with suppress(refusal):
            read(raw if isinstance(raw, bytes) else raw.encode())


def test_all_yaml_is_read_by_the_bounded_reader() -> None:
    reading = re.compile(r"yaml\.(safe_|full_|unsafe_)?(load|compose|parse)\w*")
    for path in sorted((Path(__file__).parents[5] / "src").rglob("*.py")):
        text = path.read_text(encoding="utf-8")
        if "yaml." not in text:
            continue
        found = ast.walk(ast.parse(text))
        called = {ast.unparse(one.func) for one in found if isinstance(one, ast.Call)}
        if path.name != "bounded_yaml.py" and any(map(reading.fullmatch, called)):
            assert "bounded_yaml" in called, path.name


def test_depth_is_counted_right_whatever_the_nesting_is_like() -> None:
    chance = random.Random(7)
    for _ in range(3000):
        text, open_now, deepest = b"", 0, 0
        for _ in range(chance.randint(1, 40)):
            opens = not open_now or chance.random() < 0.5
            text += chance.choice((b"[", b"{")) if opens else chance.choice((b"]", b"}"))
            open_now += 1 if opens else -1
            deepest = max(deepest, open_now)
        text += b"]" * open_now
        for depth in range(1, deepest + 2):
            assert deeper_than(text, depth) == (deepest > depth), (text, depth)


@pytest.mark.parametrize("opens", [b"[", b"{", b"[{", b"[]["])
def test_megabytes_of_brackets_are_refused(opens: bytes) -> None:
    assert deeper_than(opens * (4 * 1024 * 1024), 100)
