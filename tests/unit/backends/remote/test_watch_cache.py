"""The fold from lists and watches to events, and the reading of what they are made of."""

from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import Raw, Struct

from bayplan.backends.remote import watch_cache as known_module
from bayplan.backends.remote.decoding import TOO_DEEP, LineReader, Wire, key_of, line, version_of
from bayplan.backends.remote.watch_cache import WatchCache, newer
from bayplan.dialects.api import Event, Happened, Kind
from tests.support.remote_server import DICTS, THINGS, Thing, thing


def fresh() -> WatchCache:
    return WatchCache(DICTS, Wire(DICTS).identify)


# ── whatever a server repeats or delays, the story of each object stays true ───────────────────────

History = list[tuple[str, dict[str, Any]]]


def histories() -> st.SearchStrategy[History]:
    """What really happened to a few names: each change with the next version, a new uid after each end."""

    def told(steps: list[tuple[str, bool]]) -> History:
        alive: dict[str, str] = {}
        found: History = []
        for version, (name, ends) in enumerate(steps, start=1):
            uid = alive.setdefault(name, f"{name}{version}")
            found.append(("gone" if ends else "seen", thing(name, version, uid)))
            if ends:
                del alive[name]
        return found

    return st.lists(st.tuples(st.sampled_from("abc"), st.booleans()), max_size=25).map(told)


def replay(known: WatchCache, what: str, found: dict[str, Any], out: list[Event]) -> None:
    (known.gone if what == "gone" else known.seen)(found, out)


def outcome(history: History) -> dict[str, str]:
    """Of each name that still exists, the version it has."""
    left: dict[str, str] = {}
    for what, found in history:
        name, version = found["metadata"]["name"], found["metadata"]["resourceVersion"]
        left.pop(name, None)
        if what == "seen":
            left[name] = version
    return left


def state_of(events: list[Event]) -> dict[str, str]:
    """The state that follows from the events; checks that their sequence is possible."""
    alive: dict[str, tuple[str, int]] = {}
    for event in events:
        if event.happened is Happened.SYNCED:
            continue
        metadata = event.object["metadata"]
        name, uid, version = metadata["name"], metadata["uid"], int(event.version)
        if event.happened is Happened.GONE:
            assert alive.pop(name)[0] == uid
        else:
            before = alive.get(name)
            assert before is None or (before[0] == uid and before[1] < version)
            alive[name] = uid, version
    return {name: str(version) for name, (_, version) in alive.items()}


@given(histories(), st.data())
def test_repeated_watches_change_nothing(history: History, data: st.DataObject) -> None:
    known, out = fresh(), list[Event]()
    position = 0
    while position < len(history):
        replay(known, *history[position], out)
        position += 1
        if data.draw(st.integers(0, 5)) == 0:  # a watch that resumes from an earlier version
            position = data.draw(st.integers(0, position))
            for entry in history[position:]:
                replay(known, *entry, out)
            position = len(history)
    assert state_of(out) == outcome(history)


@given(histories(), st.integers(0, 25), st.integers(0, 25))
def test_a_list_after_a_gap_tells_what_the_gap_hid(history: History, first: int, second: int) -> None:
    heard, missed = sorted((min(first, len(history)), min(second, len(history))))
    known, out = fresh(), list[Event]()
    for entry in history[:heard]:
        replay(known, *entry, out)
    known.begin_list()
    left = outcome(history[:missed])
    for what, found in history[:missed]:
        if what == "seen" and left.get(found["metadata"]["name"]) == found["metadata"]["resourceVersion"]:
            known.seen(found, out)
    known.finish_list(str(missed), out)
    assert state_of(out) == left
    for entry in history[missed:]:
        replay(known, *entry, out)
    assert state_of(out) == outcome(history)


def test_an_unchanged_object_is_not_reported_again_by_a_list() -> None:
    known, out = fresh(), list[Event]()
    known.seen(thing("a", 1), out)
    known.begin_list()
    known.seen(thing("a", 1), out)
    known.finish_list("5", out)
    assert [event.happened for event in out] == [Happened.SEEN, Happened.SYNCED]
    assert out[-1].version == "5"


def test_the_memory_of_what_is_gone_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(known_module, "REMEMBERED_GONE_MAX", 2)
    known, out = fresh(), list[Event]()
    for number in range(1, 8):
        known.seen(thing(f"t{number}", number), out)
        known.gone(thing(f"t{number}", number + 10), out)
    assert len(known._gone) == 2
    assert len(known) == 0


def test_the_end_of_an_earlier_object_does_not_end_the_later_one() -> None:
    known, out = fresh(), list[Event]()
    known.seen(thing("a", 9, uid="second"), out)
    known.gone(thing("a", 5, uid="first"), out)
    assert [event.happened for event in out] == [Happened.SEEN]


@pytest.mark.parametrize(
    ("version", "than", "answer"),
    [
        ("10", "9", True),
        ("9", "10", False),
        ("9", "9", False),
        ("x", "9", True),
        ("x", "x", False),
        ("", "", False),
    ],
)
def test_versions_are_numbers_or_just_different(version: str, than: str, answer: bool) -> None:
    assert newer(version, than) is answer


# ── reading ────────────────────────────────────────────────────────────────────────────────────────


@given(st.lists(st.binary(max_size=9).map(lambda text: text.replace(b"\n", b"")), max_size=8), st.data())
def test_lines_come_out_whole_wherever_the_stream_is_cut(lines: list[bytes], data: st.DataObject) -> None:
    text = b"".join(line + b"\n" for line in lines)
    cuts = sorted(data.draw(st.lists(st.integers(0, len(text)), max_size=12)))
    splitter, found = LineReader(), list[bytes]()
    for start, end in zip([0, *cuts], [*cuts, len(text)], strict=True):
        found += splitter.feed(text[start:end])
    assert found == lines


def test_a_long_line_in_many_pieces_is_put_together_once() -> None:
    pieces = 20_000
    splitter = LineReader()
    for _ in range(pieces):
        assert splitter.feed(b"x" * 100) == []
    assert splitter.feed(b"\nrest") == [b"x" * 100 * pieces]
    assert splitter.feed(b"\n") == [b"rest"]


class RenamedMeta(Struct, gc=False):
    label: str = msgspec.field(name="name")
    space: str = msgspec.field(name="namespace")
    identity: str = msgspec.field(name="uid")
    revision: str = msgspec.field(name="resourceVersion")


class Renamed(Struct, gc=False):
    about: RenamedMeta = msgspec.field(name="metadata")


def test_a_struct_may_name_its_fields_as_it_likes() -> None:
    wire = Wire(Kind("bay.test", "v1", "Thing", "things", wire=Renamed))
    found = wire.object(json.dumps(thing("a", 3)).encode())
    assert wire.identify(found) == ("ns", "a", "uid-a", "3")


class BareMeta(Struct, gc=False, rename="camel"):
    name: str
    uid: str
    resource_version: str


class Bare(Struct, gc=False):
    metadata: BareMeta


def test_a_cluster_scoped_struct_needs_no_namespace() -> None:
    wire = Wire(Kind("", "v1", "Node", "nodes", namespaced=False, wire=Bare))
    assert wire.identify(wire.object(json.dumps(thing("a", 3)).encode())) == ("", "a", "uid-a", "3")
    with pytest.raises(AssertionError, match=r"lacks metadata: \['namespace'\]"):
        Wire(Kind("", "v1", "Pod", "pods", wire=Bare))


def test_a_page_may_have_no_items() -> None:
    assert Wire(THINGS).page(b'{"metadata":{"resourceVersion":"1"},"items":null}').items == []


def test_of_a_broken_page_the_good_objects_are_kept() -> None:
    items = [thing("a", 1), thing("b", 2, size="?"), {"metadata": 7}]
    found = Wire(THINGS).page(json.dumps({"metadata": {"continue": "x"}, "items": items}).encode())
    assert [item.metadata.name for item in found.items] == ["a"]
    assert isinstance(found.items[0], Thing)
    assert [key for key, _ in found.unreadable] == [("ns", "b"), ("", "")]
    assert found.metadata.next_page == "x"


def test_an_unreadable_object_still_has_a_name_and_a_version() -> None:
    raw = Raw(json.dumps(thing("a", 7, size="?")).encode())
    assert (key_of(raw), version_of(raw)) == (("ns", "a"), "7")
    assert (key_of(Raw(b"[]")), version_of(Raw(b"[]"))) == (("", ""), "")


# ── objects nested deeply ──────────────────────────────────────────────────────────────────────────


def nested(name: str, levels: int, version: int = 1) -> bytes:
    """A thing with so many levels below its spec; as text, for no encoder writes it."""
    text = json.dumps({**thing(name, version), "spec": {"x": "DEEP"}})
    return text.replace('"DEEP"', '{"a":' * levels + '"]}"' + "}" * levels).encode()


@pytest.mark.parametrize("levels", [250, 900, 2000, 9000])
@pytest.mark.parametrize("kind", [DICTS, THINGS])
def test_an_object_nested_deeply_hides_no_other(kind: Kind, levels: int) -> None:
    text = b'{"metadata": {"resourceVersion": "7"}, "items": ['
    text += b",".join((nested("flat", 3), nested("deep", levels), nested("last", 3))) + b"]}"
    found = Wire(kind).page(text)
    names = [Wire(kind).identify(one)[1] for one in found.items]
    if kind == DICTS:
        assert names == ["flat", "last"]
        assert found.unreadable == ((("ns", "deep"), TOO_DEEP),)
    else:  # nothing below spec is read of it
        assert names == ["flat", "deep", "last"]


@pytest.mark.parametrize("levels", [250, 900, 2000, 9000])
def test_a_line_with_an_object_nested_deeply_is_read(levels: int) -> None:
    found = line(b'{"type": "ADDED", "object": ' + nested("deep", levels, 5) + b"}")
    assert (found.type, key_of(found.object), version_of(found.object)) == ("ADDED", ("ns", "deep"), "5")
    with pytest.raises(msgspec.ValidationError, match="nested more than 200 levels"):
        Wire(DICTS).object(found.object)


def test_an_object_of_some_depth_is_read_whole() -> None:
    found = Wire(DICTS).object(nested("some", 190))
    assert json.dumps(found).count('"a"') == 190
