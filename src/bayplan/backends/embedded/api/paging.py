"""Continue tokens of paged lists: the key to continue after, and the version of the list."""

from __future__ import annotations

import base64
import json

from bayplan.backends.embedded.api.status import bad_request

_UINT64 = range(2**64)
_DIGITS_MAX = 20
_SHOWN_MAX = 60
TOO_OLD = (
    "The provided continue parameter is too old to display a consistent list result. You can start a new "
    "list without the continue parameter, or use the continue token in this response to retrieve the "
    "remainder of the results. Continuing with the provided token results in an inconsistent list - objects "
    "that were created, modified, or deleted between the time the first chunk was returned and now may show "
    "up in the list."
)


def write_token(version: int, key: str) -> str:
    """The token for what comes after a key, as it was at a version."""
    text = json.dumps({"v": "meta.k8s.io/v1", "rv": version, "start": f"{key}\0"}, separators=(",", ":"))
    return base64.urlsafe_b64encode(text.encode()).decode().rstrip("=")


def read_token(token: str) -> tuple[int, str]:
    """Version and key of a continue token; 400 if it is invalid."""
    try:
        read = json.loads(base64.urlsafe_b64decode(token + "=" * (-len(token) % 4)))
        version, start = read["rv"], read["start"]
        if type(version) is not int or version not in _UINT64 or not isinstance(start, str):
            raise ValueError("no version, or no key")
        return version, start.removesuffix("\0")
    except (ValueError, KeyError, TypeError, RecursionError):
        message = "continue key is not valid: it is none that this server gave; list again without it"
        raise bad_request(f"invalid continue token: {message}") from None


def parse_version(text: str) -> int:
    """A resourceVersion that a client sent."""
    if not is_number(text) or is_too_long(text):
        raise bad_request(f"invalid resource version: {version_message(text)}")
    return int(text)


def is_number(text: str) -> bool:
    """Whether a resourceVersion is a whole number, however long."""
    return text.isascii() and text.isdecimal()


def is_too_long(text: str) -> bool:
    """Whether a number has more digits than 64 bits hold."""
    return len(text) > _DIGITS_MAX or int(text) not in _UINT64


def version_message(text: str) -> str:
    """What is wrong with a resourceVersion that is no number, or too large a one."""
    shown = json.dumps(text if len(text) <= _SHOWN_MAX else f"{text[:_SHOWN_MAX]}...")
    message = f"strconv.ParseUint: parsing {shown}: "
    message += "value out of range" if is_number(text) else "invalid syntax"
    return f"resourceVersion: Invalid value: {shown}: {message}"
