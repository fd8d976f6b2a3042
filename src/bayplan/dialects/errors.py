"""Errors of the API client, as one tree of exceptions; caught only in the runtime and the command line.

ApiError
├── Misconfigured      the kubeconfig, context or credentials are invalid: exit
├── Unreachable        no answer: retry later
├── Unauthorised       credentials expired or wrong
├── Forbidden          authenticated, but not permitted by RBAC
├── NotServed          the cluster does not serve the API group or kind
└── Stale              the resourceVersion of the watch is too old (410 Gone): list again
"""

from __future__ import annotations


class ApiError(Exception):
    """A call of the API failed; the message is one sentence for the user."""


class Misconfigured(ApiError):
    """The client configuration is invalid."""


class Unreachable(ApiError):
    """No answer from the server."""


class Unauthorised(ApiError):
    """The server did not accept the credentials (401)."""


class Forbidden(ApiError):
    """The server denies the request (403)."""


class NotServed(ApiError):
    """The server does not serve this API."""


class Stale(ApiError):
    """The server no longer has the resourceVersion to resume a watch from (410)."""
