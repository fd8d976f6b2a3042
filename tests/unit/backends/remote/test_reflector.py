"""What a reflector makes of lists and watches that go wrong in every way a server knows."""

from __future__ import annotations

import time
from dataclasses import replace

import pytest

from tests.support.remote_server import (
    DICTS,
    HASTY,
    LONG,
    THINGS,
    Server,
    Thing,
    added,
    answered,
    deleted,
    failed,
    marked,
    modified,
    page,
    quiet,
    refused,
    stream,
    thing,
    watching,
)

STREAMING = replace(HASTY, stream_lists=True)
OPTIONAL = replace(THINGS, optional=True)


# ── list ───────────────────────────────────────────────────────────────────────────────────────────


def test_a_list_is_asked_for_page_by_page(server: Server) -> None:
    server.lists = [page([thing("a", 1)], 9, "more"), page([thing("b", 2)], 9)]
    with watching(server, THINGS, patience=replace(HASTY, page=1)) as seen:
        seen.synced()
        seen.until(lambda: server.count(watch=True) > 0)
        assert seen.told() == ["seen a@1", "seen b@2", "synced"]
    assert [asked.query.get("continue") for asked in server.of(watch=False)] == [None, "more"]
    assert server.of(watch=True)[0].query["resourceVersion"] == "9"


def test_a_list_whose_pages_grew_too_old_is_asked_for_anew_and_in_one_piece(server: Server) -> None:
    server.lists = [
        page([thing("a", 1), thing("b", 2)], 9, "more"),
        refused(410, reason="Expired"),
        page([thing("b", 2), thing("c", 10)], 11),
    ]
    with watching(server, THINGS) as seen:
        seen.synced()
        assert seen.told() == ["seen a@1", "seen b@2", "seen c@10", "gone a@1", "synced"]
    assert "limit" not in server.of(watch=False)[-1].query


def test_only_the_declared_fields_are_decoded(server: Server) -> None:
    server.lists = [page([thing("a", 1, size=7)])]
    with watching(server, THINGS) as seen:
        seen.synced()
        found = seen.events[0].object
        assert isinstance(found, Thing)
        assert (found.metadata.uid, found.size) == ("uid-a", 7)
        assert not hasattr(found, "unwanted")


def test_without_a_wire_type_objects_are_whole_and_say_what_they_are(server: Server) -> None:
    server.lists = [page([thing("a", 1)])]
    with watching(server, DICTS) as seen:
        seen.synced()
        assert seen.events[0].object == {"apiVersion": "bay.test/v1", "kind": "Thing", **thing("a", 1)}


def test_selectors_are_sent_with_lists_and_watches(server: Server) -> None:
    kind = replace(THINGS, field_selector="spec.nodeName=", label_selector="a in (b,c)")
    with watching(server, kind) as seen:
        seen.until(lambda: server.count(watch=True) > 0)
    for asked in server.asked:
        assert asked.query["fieldSelector"] == "spec.nodeName="
        assert asked.query["labelSelector"] == "a in (b,c)"


def test_one_object_that_cannot_be_read_does_not_hide_the_others(server: Server) -> None:
    server.lists = [page([thing("bad", 1, size="seven"), thing("good", 2)])]
    server.watches = [stream(modified(thing("good", 3, size="x")), added(thing("more", 4)))]
    with watching(server, THINGS) as seen:
        seen.until(lambda: "seen more@4" in seen.told())
        assert seen.told() == ["seen good@2", "synced", "seen more@4"]
        assert any("ns/bad is not readable" in line for line in seen.log)
        assert any("ns/good is not readable" in line for line in seen.log)


def test_an_object_that_cannot_be_read_is_not_asked_for_again(server: Server) -> None:
    server.watches = [stream(added(thing("bad", 3, size="seven")), stay=False), quiet]
    with watching(server, THINGS) as seen:
        seen.until(lambda: server.count(watch=True) == 2)
    assert server.of(watch=True)[1].query["resourceVersion"] == "3"


def test_an_object_that_turns_unreadable_is_not_taken_for_gone(server: Server) -> None:
    server.lists = [page([thing("a", 1)]), page([thing("a", 5, size="?"), thing("b", 6)], 7)]
    server.watches = [stream(failed(410)), quiet]
    with watching(server, THINGS) as seen:
        seen.synced(2)
        assert seen.told() == ["seen a@1", "synced", "seen b@6", "synced"]


def test_the_end_of_an_object_that_cannot_be_read_is_told(server: Server) -> None:
    server.lists = [page([thing("a", 1)])]
    server.watches = [stream(modified(thing("a", 2, size="?")), deleted(thing("a", 3, size="?")))]
    with watching(server, THINGS) as seen:
        seen.until(lambda: "gone a@3" in seen.told())
        assert seen.told() == ["seen a@1", "synced", "gone a@3"]


# ── watch ──────────────────────────────────────────────────────────────────────────────────────────


def test_events_of_a_watch_are_reported_in_order(server: Server) -> None:
    server.watches = [stream(added(thing("a", 2)), modified(thing("a", 3)), deleted(thing("a", 4)))]
    with watching(server, THINGS) as seen:
        seen.until(lambda: "gone a@4" in seen.told())
        assert seen.told() == ["synced", "seen a@2", "seen a@3", "gone a@4"]


def test_lines_may_be_cut_anywhere(server: Server) -> None:
    happened = [added(thing(f"t{number}", number)) for number in range(2, 30)]
    server.watches = [stream(*happened, bytes_at_once=37)]
    with watching(server, THINGS) as seen:
        seen.until(lambda: len(seen.events) == 29)
        assert seen.told()[1:] == [f"seen t{number}@{number}" for number in range(2, 30)]


def test_a_watch_that_is_closed_silently_is_resumed_where_it_was(server: Server) -> None:
    server.lists = [page([], 5)]
    server.watches = [
        stream(added(thing("a", 7)), stay=False),
        stream(marked(20), stay=False),
        stream(added(thing("b", 21))),
    ]
    with watching(server, THINGS) as seen:
        seen.until(lambda: "seen b@21" in seen.told())
        assert seen.told() == ["synced", "seen a@7", "seen b@21"]
    assert [asked.query["resourceVersion"] for asked in server.of(watch=True)] == ["5", "7", "20"]
    assert server.count(watch=False) == 1


def test_a_watch_that_falls_silent_is_begun_again(server: Server) -> None:
    server.watches = [quiet, stream(added(thing("a", 2)))]
    with watching(server, THINGS, patience=replace(HASTY, silence_seconds=0.1)) as seen:
        seen.until(lambda: "seen a@2" in seen.told())
    assert server.count(watch=False) == 1


def test_a_line_cut_off_by_a_broken_connection_is_sent_again(server: Server) -> None:
    whole = stream(added(thing("a", 2)), added(thing("b", 3)))

    async def half(request: object) -> object:
        from aiohttp import web

        assert isinstance(request, web.Request)
        response = web.StreamResponse()
        await response.prepare(request)
        await response.write(b'{"type":"ADDED","object":{"metadata":{"name":"a","nam')
        assert request.transport is not None
        request.transport.abort()
        return response

    server.watches = [half, whole]  # type: ignore[list-item]
    with watching(server, THINGS) as seen:
        seen.until(lambda: "seen b@3" in seen.told())
        assert seen.told() == ["synced", "seen a@2", "seen b@3"]


def test_nothing_is_reported_twice_or_backwards(server: Server) -> None:
    server.lists = [page([thing("a", 5)], 5)]
    server.watches = [
        stream(
            added(thing("a", 5)),  # listed already
            modified(thing("a", 8)),
            modified(thing("a", 7)),  # late
            added(thing("b", 6)),  # late, but of another object
            modified(thing("a", 8)),  # twice
            deleted(thing("b", 9)),
            modified(thing("b", 6)),  # an echo of one that is gone
            deleted(thing("b", 9)),
            added(thing("b", 10)),
        )
    ]
    with watching(server, THINGS) as seen:
        seen.until(lambda: "seen b@10" in seen.told())
        assert seen.told() == ["seen a@5", "synced", "seen a@8", "seen b@6", "gone b@9", "seen b@10"]


def test_a_name_used_anew_is_another_object(server: Server) -> None:
    server.lists = [page([thing("a", 2, uid="first")], 3), page([thing("a", 8, uid="second")], 9)]
    server.watches = [stream(failed(410)), quiet]
    with watching(server, THINGS) as seen:
        seen.synced(2)
        assert seen.told() == ["seen a@2", "synced", "gone a@2", "seen a@8", "synced"]
        assert seen.events[2].object.metadata.uid == "first"


@pytest.mark.parametrize("how", [stream(failed(410, "too old")), refused(410, "too old", "Expired")])
def test_a_watch_too_old_leads_to_a_list_and_the_difference(server: Server, how: object) -> None:
    server.lists = [
        page([thing("stays", 1), thing("changes", 2), thing("goes", 3)], 4),
        page([thing("stays", 1), thing("changes", 8), thing("comes", 9)], 10),
    ]
    server.watches = [how, stream(added(thing("later", 11)))]  # type: ignore[list-item]
    with watching(server, THINGS) as seen:
        seen.until(lambda: "seen later@11" in seen.told())
        assert seen.told() == [
            *("seen stays@1", "seen changes@2", "seen goes@3", "synced"),
            *("seen changes@8", "seen comes@9", "gone goes@3", "synced"),
            "seen later@11",
        ]


def test_what_came_before_an_error_in_a_watch_is_reported(server: Server) -> None:
    server.lists = [page([], 1), page([thing("a", 2)], 9)]
    server.watches = [stream(added(thing("a", 2)), failed(410)), quiet]
    with watching(server, THINGS) as seen:
        seen.synced(2)
        assert seen.told() == ["synced", "seen a@2", "synced"]


def test_an_error_that_is_not_about_age_resumes_the_watch(server: Server) -> None:
    server.watches = [stream(added(thing("a", 2)), failed(500)), stream(added(thing("b", 3)))]
    with watching(server, THINGS) as seen:
        seen.until(lambda: "seen b@3" in seen.told())
    assert server.count(watch=False) == 1
    assert server.of(watch=True)[1].query["resourceVersion"] == "2"


def test_watches_that_bring_nothing_again_and_again_are_not_trusted(server: Server) -> None:
    server.lists = [page([thing("a", 1)], 1), page([], 9)]
    server.watches = [stream(stay=False)] * 3 + [quiet]
    with watching(server, THINGS) as seen:
        seen.synced(2)
        assert seen.told() == ["seen a@1", "synced", "gone a@1", "synced"]
        assert any("3 watches in a row brought nothing" in line for line in seen.log)


def test_a_watch_that_brings_something_is_trusted_again(server: Server) -> None:
    empty, bringing = stream(stay=False), stream(marked(2), stay=False)
    server.watches = [empty, empty, bringing, empty, empty, stream(added(thing("a", 3)))]
    with watching(server, THINGS) as seen:
        seen.until(lambda: "seen a@3" in seen.told())
    assert server.count(watch=False) == 1


def test_a_version_the_server_never_had_leads_to_a_list(server: Server) -> None:
    server.lists = [page([thing("a", 70)], 77), page([thing("a", 3)], 5), page([thing("a", 3)], 5)]
    server.watches = [refused(504, "Too large resource version")] * 3 + [stream(modified(thing("a", 6)))]
    with watching(server, THINGS) as seen:
        seen.until(lambda: "seen a@6" in seen.told())  # after a restored backup, versions are small again
        assert seen.told() == ["seen a@70", "synced", "seen a@3", "synced", "seen a@6"]


def test_something_that_is_no_watch_event_resumes_the_watch(server: Server) -> None:
    server.watches = [answered(["what"]), stream(added(thing("a", 2)))]
    with watching(server, THINGS) as seen:
        seen.until(lambda: "seen a@2" in seen.told())
        assert seen.told() == ["synced", "seen a@2"]


# ── lists that are streamed ────────────────────────────────────────────────────────────────────────


def test_a_list_may_be_the_beginning_of_a_watch(server: Server) -> None:
    server.watches = [
        stream(
            added(thing("b", 7)),
            added(thing("a", 3)),
            modified(thing("a", 9)),
            marked(9, end_of_list=True),
            deleted(thing("b", 10)),
        )
    ]
    with watching(server, THINGS, patience=STREAMING) as seen:
        seen.until(lambda: "gone b@10" in seen.told())
        assert seen.told() == ["seen b@7", "seen a@3", "seen a@9", "synced", "gone b@10"]
    asked = server.of(watch=True)[0].query
    assert (asked["sendInitialEvents"], asked["resourceVersionMatch"]) == ("true", "NotOlderThan")
    assert "resourceVersion" not in asked
    assert server.count(watch=False) == 0


def test_what_a_streamed_list_lacks_is_gone(server: Server) -> None:
    server.watches = [
        stream(added(thing("a", 1)), added(thing("b", 2)), marked(3, end_of_list=True), failed(410)),
        stream(
            added(thing("b", 2)), added(thing("c", 5)), deleted(thing("c", 6)), marked(6, end_of_list=True)
        ),
    ]
    with watching(server, THINGS, patience=STREAMING) as seen:
        seen.synced(2)
        assert seen.told()[3:] == ["seen c@5", "gone c@6", "gone a@1", "synced"]


@pytest.mark.parametrize("how", [refused(422), refused(400), stream(added(thing("a", 1)), stay=False)])
def test_a_server_that_cannot_stream_lists_is_asked_for_pages(server: Server, how: object) -> None:
    server.lists = [page([thing("a", 1)], 4)]
    server.watches = [how, quiet]  # type: ignore[list-item]
    with watching(server, THINGS, patience=STREAMING) as seen:
        seen.synced()
        seen.until(lambda: server.count(watch=True) == 2)
        assert seen.told() == ["seen a@1", "synced"]
    assert server.of(watch=True)[1].query["resourceVersion"] == "4"


def test_a_server_that_does_not_know_how_to_end_a_streamed_list_is_not_waited_for(server: Server) -> None:
    server.lists = [page([thing("a", 1)], 4)]
    server.watches = [stream(added(thing("a", 1))), quiet]
    with watching(server, THINGS, patience=replace(STREAMING, list_silence_seconds=0.1)) as seen:
        begun = time.monotonic()
        seen.synced()
        assert time.monotonic() - begun < LONG / 2
        assert seen.told() == ["seen a@1", "synced"]


def test_a_streamed_list_that_broke_off_once_is_streamed_again_the_next_time(server: Server) -> None:
    server.lists = [page([thing("a", 1)], 4)]
    server.watches = [
        stream(added(thing("a", 1)), stay=False),
        stream(failed(410)),
        stream(added(thing("a", 5)), marked(6, end_of_list=True)),
    ]
    with watching(server, THINGS, patience=STREAMING) as seen:
        seen.synced(2)
        assert seen.told() == ["seen a@1", "synced", "seen a@5", "synced"]
    assert server.count(watch=False) == 1
