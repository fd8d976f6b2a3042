"""Odd YAML and JSON texts: valid documents with changes to their values, their layout, or single bytes."""

from __future__ import annotations

import json
from random import Random
from typing import Any

import yaml

from tests.fuzz.mutator import Mutator, expanded

ODD_LINES = (
    *("---", "...", "- ", ": ", "{", "}", "[", "]", "&a", "*a", "!!python/object:os.system", "<<: *a"),
    *("? a", "| ", "> ", "%YAML 1.1", "\t", "# x", "'", '"', "a: &x [*x]", "!!binary x", "2026-01-01", "0o7"),
    *("1:30:00", "yes", "~", ".nan", ".inf", "-.inf", "0x_", "1e999", "\x00", "\x85", "\u2028", "!!set {a}"),
)
DEEP_TEXTS = (100, 300, 3000, 20_000, 40_000)


def as_text(rng: Random, documents: list[Any], mutator: Mutator) -> str:
    """The documents in one of the two languages, perhaps with damage."""
    if rng.random() < 0.5:
        text = "\n".join(json.dumps(one) for one in documents)
    else:
        text = yaml.dump_all(documents, Dumper=getattr(yaml, "CSafeDumper", yaml.SafeDumper))
    what = rng.random()
    if what < 0.6:
        return text
    if what < 0.75:
        lines = text.splitlines()
        lines.insert(rng.randrange(len(lines) + 1), rng.choice(ODD_LINES))
        return "\n".join(lines)
    if what < 0.9:
        at = rng.randrange(len(text) + 1)
        return text[:at] + mutator.text(rng) + text[at + rng.randrange(20) :]
    if what < 0.998:
        return text[: rng.randrange(len(text) + 1)]
    return rng.choice("[{") * rng.choice(DEEP_TEXTS) + text


def damaged(rng: Random, text: str) -> str:
    """Bytes (as Latin-1 text) of the text, some of them perhaps wrong."""
    raw = bytearray(text.encode(errors="replace"))
    if raw and rng.random() < 0.1:
        for _ in range(rng.randrange(1, 4)):
            raw[rng.randrange(len(raw))] = rng.randrange(256)
    return raw.decode("latin-1")


def plain(value: Any) -> Any:
    """Without marks for deep values, which texts have in their own way."""
    return expanded(value)
