"""What several unit tests start with."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.support.remote_server import Server, serving


@pytest.fixture
def server() -> Iterator[Server]:
    """An API server that follows a script, for tests of the remote backend."""
    with serving(Server()) as running:
        yield running
