"""Trouble with the API, as one tree of exceptions; caught only in the runtime and the command line.

Trouble
├── Misconfigured      kubeconfig, context or credentials cannot work as they are: exit
├── Unreachable        no answer: try again later
├── Unauthorised       credentials expired or wrong
├── Forbidden          known, but without the right
├── NotServed          the API group or kind does not exist on this cluster
└── Stale              the watch is too old (410): list again
"""

from __future__ import annotations


class ApiError(Exception):
    """Something about the API does not work; the message is one clear sentence."""


class Misconfigured(ApiError):
    """The configuration cannot work as it is."""


class Unreachable(ApiError):
    """No answer from the server."""


class Unauthorised(ApiError):
    """The server does not know who we are."""


class Forbidden(ApiError):
    """The server knows who we are and says no."""


class NotServed(ApiError):
    """The server does not have this API."""


class Stale(ApiError):
    """What we asked to resume from is no longer kept."""
