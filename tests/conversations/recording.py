"""The real server's answers, kept beside the conversations, so that they can be compared with at any time."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import yaml

from tests.conversations.comparing import differences, plain
from tests.conversations.holding import Server, hold
from tests.conversations.script import Talk

KUBE = "1.35.4"  # whose answers these are
FOLDER = Path(__file__).parent / "recorded"
KNOWN = Path(__file__).parent / "known_differences.yaml"


def answers(server: Server, talk: Talk) -> list[dict[str, Any]]:
    """What a server says in a conversation, with nothing left to chance."""
    return plain(hold(server, talk), f"t-{talk.slug}")


def recorded(talk: Talk) -> list[dict[str, Any]]:
    """What the real server said."""
    found: list[dict[str, Any]] = json.loads((FOLDER / f"{talk.slug}.json").read_text(encoding="utf-8"))
    return found


def record(server: Server, talk: Talk) -> Path:
    """Keep what the real server says; one line a step."""
    path = FOLDER / f"{talk.slug}.json"
    path.parent.mkdir(exist_ok=True)
    lines = ",\n".join(json.dumps(step, sort_keys=True, ensure_ascii=False) for step in answers(server, talk))
    path.write_text(f"[\n{lines}\n]\n", encoding="utf-8")
    return path


def known(talk: Talk) -> dict[tuple[int, str], str]:
    """Differences that are meant: (step, path) → reason."""
    entries = yaml.load(KNOWN.read_text(encoding="utf-8"), Loader=yaml.CSafeLoader)
    return {
        (entry["step"], entry["path"]): entry["reason"] for entry in entries if entry["talk"] == talk.name
    }


def compared(ours: list[dict[str, Any]], theirs: list[dict[str, Any]]) -> dict[tuple[int, str], str]:
    """Where two conversations differ: (step, path) → what each said."""
    assert len(ours) == len(theirs), "the recording has another number of steps; record again"
    found = {}
    for number, (mine, other) in enumerate(zip(ours, theirs, strict=True)):
        for difference in differences(mine, other):
            path, _, what = difference.partition(": ")
            found[number, path] = f"step {number}, {mine['step']}: {path}: {what}"
    return found
