"""Kinds, servers and rights that are not there: what is waited for, and what is given up at once."""

from __future__ import annotations

import asyncio
import threading
from dataclasses import replace

import pytest
from aiohttp import web

from bayplan.backends.remote import absent as absent_kinds
from bayplan.dialects.api import Kind
from bayplan.dialects.errors import Forbidden, Misconfigured, NotServed, Unauthorised
from tests.support.remote_server import (
    HASTY,
    LONG,
    THINGS,
    Answerer,
    Server,
    added,
    answered,
    page,
    quiet,
    refused,
    stream,
    thing,
    watching,
)

OPTIONAL = replace(THINGS, optional=True)


def test_an_optional_kind_is_waited_for_and_mourned(server: Server) -> None:
    absent = answered("404 page not found", 404)
    server.lists = [absent, absent, page([thing("a", 1)], 2), absent, page([thing("a", 8)], 9)]
    server.watches = [stream(stay=False), absent, quiet]
    with watching(server, OPTIONAL) as seen:
        seen.synced(4)
        assert seen.told() == ["synced", "seen a@1", "synced", "gone a@1", "synced", "seen a@8", "synced"]
        assert sum("does not serve things of bay.test/v1" in line for line in seen.log) == 2


def test_objects_of_a_kind_that_appears_later_are_reported_all_at_once(server: Server) -> None:
    """The first page alone would be taken for everything there is."""
    asked, may_answer = threading.Event(), threading.Event()

    async def second(request: web.Request) -> web.StreamResponse:
        asked.set()
        await asyncio.to_thread(may_answer.wait, LONG)
        return await page([thing("b", 2)], 9)(request)

    server.lists = [answered("404 page not found", 404), page([thing("a", 1)], 9, "more"), second]
    with watching(server, OPTIONAL) as seen:
        seen.until(asked.is_set)
        seen.synced()
        assert seen.told() == ["synced"]
        may_answer.set()
        seen.synced(2)
        assert seen.told() == ["synced", "seen a@1", "seen b@2", "synced"]


def test_kinds_that_are_absent_at_first_are_told_in_one_line_and_then_as_they_come_and_go(
    server: Server,
) -> None:
    served: set[str] = {"things"}
    absent, found = answered("404 page not found", 404), page([], 3)

    async def by_kind(request: web.Request) -> web.StreamResponse:
        there = stream(stay=False) if "watch" in request.query else found
        return await (there if request.path.rpartition("/")[2] in served else absent)(request)

    def told() -> list[str]:
        return [line for line in seen.log if "serve" in line]

    server.lists = server.watches = [by_kind]
    others = [replace(OPTIONAL, plural=name) for name in ("boats", "cranes", "docks")]
    foreign = Kind("sea.test", "v2", "Wave", "waves", optional=True)
    with watching(server, OPTIONAL, *others, foreign) as seen:
        seen.synced(5)
        assert told() == [
            f"{server.url} does not serve boats, cranes, docks of bay.test/v1; waves of sea.test/v2; "
            "of those you need, install the CRD or turn the API on; they are waited for"
        ]
        served.add("waves")
        seen.until(lambda: told()[1:] == [f"{server.url} now serves waves of sea.test/v2"])
        served.discard("waves")
        seen.until(lambda: len(told()) > 2)
        assert "does not serve waves of sea.test/v2; install its CRD" in told()[2]


def test_a_kind_without_an_answer_does_not_keep_the_others_from_being_told(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(absent_kinds, "LONGEST_SECONDS", 0.05)
    absent = answered("404 page not found", 404)

    async def by_kind(request: web.Request) -> web.StreamResponse:
        return await (quiet if request.path.endswith("things") else absent)(request)

    server.lists = [by_kind]
    with watching(server, OPTIONAL, replace(OPTIONAL, plural="boats"), patience=HASTY) as seen:
        seen.until(lambda: bool(seen.log))
        assert "does not serve boats of bay.test/v1; install its CRD" in seen.log[0]


def test_a_kind_that_must_be_there_is_an_error_at_once(server: Server) -> None:
    server.lists = [answered("404 page not found", 404)]
    with (
        watching(server, THINGS) as seen,
        pytest.raises(NotServed, match=r"does not serve things of bay\.test/v1"),
    ):
        seen.until(lambda: False)


@pytest.mark.parametrize(
    ("code", "trouble", "words"),
    [
        (401, Unauthorised, "does not accept the credentials"),
        (403, Forbidden, "you may not; grant the user that permission"),
        (400, Misconfigured, "does not understand what is asked of things"),
        (302, Misconfigured, "give the API server's own address"),
    ],
)
def test_what_trying_again_cannot_mend_is_raised(
    server: Server, code: int, trouble: type[Exception], words: str
) -> None:
    server.lists = [refused(code, "you may not")]
    with watching(server, THINGS) as seen, pytest.raises(trouble, match=words):
        seen.until(lambda: False)


@pytest.mark.parametrize("kind", [THINGS, OPTIONAL])
@pytest.mark.parametrize("readiness", [refused(500), refused(403), refused(401)])
def test_a_server_that_has_just_started_refuses_everything_which_says_nothing(
    server: Server, kind: Kind, readiness: Answerer
) -> None:
    server.ready = readiness
    server.lists = [*[refused(403)] * 4, page([thing("a", 1)])]
    with watching(server, kind, patience=HASTY) as seen:
        seen.synced()
        assert seen.told() == ["seen a@1", "synced"]
        assert seen.log and not any("grant the user that permission" in line for line in seen.log)
        assert "refuses things of bay.test/v1, but may not have read its roles yet" in seen.log[0]


def test_a_watch_that_is_refused_again_and_again_says_which_permission_is_missing(server: Server) -> None:
    server.watches = [*[refused(403, "you may not")] * 2, stream(added(thing("a", 2)))]
    with watching(server, THINGS) as seen:
        seen.until(lambda: "seen a@2" in seen.told())
        first, second = (line for line in seen.log if "refuses" in line)
        assert "may not have read its roles yet" in first
        assert "you may not; grant the user that permission" in second


def test_a_refusal_is_believed_after_a_while_if_the_server_does_not_tell_whether_it_is_ready(
    server: Server,
) -> None:
    server.ready = server.lists[0] = refused(403, "you may not")
    patience = replace(HASTY, unready_seconds=0.1)
    with watching(server, THINGS, patience=patience) as seen, pytest.raises(Forbidden, match="you may not"):
        seen.until(lambda: False)


def test_rights_that_are_lost_later_are_waited_for(server: Server) -> None:
    server.watches = [refused(403), refused(401), stream(added(thing("a", 2)))]
    with watching(server, THINGS) as seen:
        seen.until(lambda: "seen a@2" in seen.told())


def test_an_optional_kind_without_the_right_to_see_it_is_as_good_as_absent(server: Server) -> None:
    server.lists = [refused(403), refused(403), page([thing("a", 1)])]
    with watching(server, OPTIONAL) as seen:
        seen.synced(2)
        assert seen.told() == ["synced", "seen a@1", "synced"]


@pytest.mark.parametrize("how", [refused(500), refused(503), refused(429), answered(["not a list"])])
def test_a_server_in_trouble_is_tried_again_with_growing_pauses(server: Server, how: object) -> None:
    server.lists = [how, how, page([thing("a", 1)])]  # type: ignore[list-item]
    with watching(server, THINGS) as seen:
        seen.synced()
        assert seen.told() == ["seen a@1", "synced"]
        assert len(seen.log) == 2


def test_pauses_double_up_to_the_longest_and_start_anew_after_success(server: Server) -> None:
    server.lists = [*[refused(500)] * 4, page([])]
    server.watches = [refused(500), quiet]
    with watching(server, THINGS, patience=replace(HASTY, first_pause=0.04, longest_pause=0.2)) as seen:
        seen.until(lambda: server.count(watch=True) == 2)
        tries = [line.rpartition("next try in ")[2] for line in seen.log]
        assert tries == ["0.03 s", "0.06 s", "0.12 s", "0.15 s", "0.03 s"]


def test_a_watch_is_asked_to_end_after_a_time_that_differs(server: Server) -> None:
    with watching(server, THINGS) as seen:
        seen.until(lambda: server.count(watch=True) > 0)
    assert server.of(watch=True)[0].query["timeoutSeconds"] == "450"


def test_a_required_kind_that_vanishes_later_is_waited_for(server: Server) -> None:
    absent = answered("404 page not found", 404)
    server.lists = [page([thing("a", 1)], 2), absent, page([thing("a", 1)], 3)]
    server.watches = [absent, quiet]
    with watching(server, THINGS) as seen:
        seen.synced(2)
        assert seen.told() == ["seen a@1", "synced", "synced"]


def test_kinds_do_not_wait_for_each_other(server: Server) -> None:
    other = Kind("bay.test", "v1", "Other", "others")
    server.lists = [page([])]
    with watching(server, THINGS, other) as seen:
        seen.synced(2)
        assert {event.kind.plural for event in seen.events} == {"things", "others"}
