"""The two servers that conversations are held with."""

from __future__ import annotations

import secrets
import ssl
import threading
import time
import uuid
from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

from bayplan.backends.embedded.cluster import new_store
from bayplan.backends.embedded.http.server import ApiServer
from tests.conversations.holding import Server

if TYPE_CHECKING:
    from tools.controlplane.cluster import Cluster

LETTERS = "bcdfghjklmnpqrstvwxz2456789"


@pytest.fixture(scope="session")
def embedded() -> Iterator[Server]:
    """The cluster in memory, behind its HTTP face."""
    store = new_store(time.time, lambda: str(uuid.uuid4()), _ending)
    face = ApiServer(store, threading.RLock()).start()
    yield Server(face.host, face.port, face.credentials.client_context(), face.token, False)
    face.stop()


def _ending() -> str:
    return "".join(secrets.choice(LETTERS) for _ in range(5))


@pytest.fixture(scope="session")
def real(cluster: Cluster) -> Server:
    """A kube-apiserver."""
    return server_of(cluster)


def server_of(found: Cluster) -> Server:
    """How to be let in by a control plane."""
    host, _, port = found.server.removeprefix("https://").partition(":")
    trust = ssl.create_default_context(cafile=str(found.authority))
    return Server(host, int(port), trust, found.token_of("admin"), True)
