"""Reading requests and writing answers: tokens, numbers and sizes, JSON and errors."""

from __future__ import annotations

import msgspec
from aiohttp import web

from bayplan.dashboard.host_map import GangKey

SIZES = (8, 16, 32, 64, 128, 256)
SIZES_MAX = 16
_encode = msgspec.json.Encoder().encode


def json_answer(body: bytes) -> web.Response:
    """JSON, compressed if the client wants that."""
    response = web.Response(body=body, content_type="application/json")
    response.enable_compression()
    return response


def problem_answer(status: int, text: str) -> web.Response:
    """An error with its sentence."""
    return web.Response(status=status, body=_encode({"message": text}), content_type="application/json")


def no_gang(key: GangKey) -> str:
    """The sentence for a gang that is not there, or not visible: the two are not told apart."""
    return f"there is no {key.kind} {key.namespace}/{key.name}, or you may not see it"


def token_of(request: web.Request) -> str:
    """The bearer token of a request; empty if it has none."""
    scheme, _, token = request.headers.get("Authorization", "").partition(" ")
    return token.strip() if scheme.lower() == "bearer" else ""


def user_of(request: web.Request) -> str:
    """Whose streams are counted together: those of one token, or of one machine."""
    token = token_of(request)
    return f"token {hash(token)}" if token else f"address {request.remote}"


def number_of(request: web.Request, name: str, default: int) -> int:
    """A whole number of the query; refused if it is none."""
    text = request.query.get(name)
    if text is None:
        return default
    if not text.isdecimal() or len(text) > 15:
        raise web.HTTPBadRequest(text=f"{name} is {text!r}; give a whole number")
    return int(text)


def sizes_of(text: str) -> list[int]:
    """Sizes of gangs in a query."""
    if not text:
        return list(SIZES)
    parts = text.split(",")
    if len(parts) > SIZES_MAX or not all(part.isdecimal() and 0 < int(part) < 10**7 for part in parts):
        raise web.HTTPBadRequest(text=f"sizes is {text!r}; give up to {SIZES_MAX} whole numbers above 0")
    return [int(part) for part in parts]
