"""Words that were replaced by those of the field stay out of sources, documents and what commands print.

docs/glossary.md has the words to use. A word is looked for by itself and as a part of a name: `seat_all`,
`seatAll` and "a seat" all count.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[1]
PLACES = ("src", "docs", "examples", "deploy", "README.md", "CONTRIBUTING.md", "STYLE.md", "SECURITY.md")
SUFFIXES = {".py", ".md", ".yaml", ".yml", ".toml", ".txt", ".tpl"}

# Files that may have retired words, and why.
EXEMPT = {"docs/decisions/0018-folders-and-words.md": "says which word replaced which"}

# retired word → what to write instead
RETIRED = {
    "anybody": "name the subject: any pod, any gang",
    "caretaking": "workload status",
    "census": "counters",
    "charter": "gang spec",
    "crew": "gang state",
    "deed": "write",
    "entrance": "namespace queue",
    "everybody": "all pods, all gangs",
    "exodus": "leaving pods",
    "faring": "job status",
    "hindrance": "reason",
    "knot": "constraint node",
    "lodger": "pending pods",
    "lodging": "NUMA usage",
    "make-believe": "simulated",
    "mould": "pod spec template",
    "muster": "binding cycle",
    "nobody": "no pod, no gang",
    "rulebook": "feature switches",
    "somebody": "name the subject: the user, another writer",
    "stagehand": "fake controller",
    "standstill": "rejection",
    "terrain": "topology capacity",
    "troop": "gated gang",
    "watchman": "checker",
    "whoever": "name the subject: the gang that, the caller",
}  # fmt: skip
NAME = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+(?:-[a-z]+)*|[A-Z]+")


def words_of(text: str) -> Iterator[str]:
    """Every word of a text, names taken apart: `seat_all` and `SeatAll` are both seat, all."""
    return (word.lower() for word in NAME.findall(text))


def retired_words(text: str) -> list[str]:
    """Retired words of a text, with what to write instead; a plural counts as its singular."""
    words = set(words_of(text))
    found = [word for word in RETIRED if word in words or f"{word}s" in words]
    return [f"{word}: write {RETIRED[word]}" for word in found]


def files() -> Iterator[Path]:
    for place in PLACES:
        path = ROOT / place
        yield from [path] if path.is_file() else sorted(path.rglob("*"))


def test_no_retired_word() -> None:
    breaches = [
        f"{path.relative_to(ROOT)}:{at}: {found}"
        for path in files()
        if path.suffix in SUFFIXES and path.relative_to(ROOT).as_posix() not in EXEMPT
        for at, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1)
        for found in retired_words(line)
    ]
    assert breaches == []


def test_every_exempt_file_needs_its_exemption() -> None:
    for name in EXEMPT:
        assert retired_words((ROOT / name).read_text(encoding="utf-8")) != []


def test_a_retired_word_is_found_in_prose_and_in_names() -> None:
    assert retired_words("Nobody has to leave.") == ["nobody: write no pod, no gang"]
    assert retired_words("self._knots.take(TerrainSeen)") == [
        "knot: write constraint node",
        "terrain: write topology capacity",
    ]
    assert retired_words("def knots_of(x):") == ["knot: write constraint node"]
    assert retired_words("a knotted rope, an indeed, a trooper") == []
