"""Kubeconfigs: a file is read, or one sentence says what is wrong with it."""

from __future__ import annotations

import atexit
import shutil
import tempfile
from pathlib import Path
from random import Random

from bayplan.backends.remote.kubeconfig import load
from bayplan.dialects.errors import ApiError
from tests.fuzz.mutator import Mutator
from tests.fuzz.target import Broken, Case
from tests.fuzz.texts import as_text, damaged, plain

PLUGIN = {
    "apiVersion": "client.authentication.k8s.io/v1",
    "command": "true",
    "args": ["a"],
    "env": [{"name": "A", "value": "b"}],
    "interactiveMode": "Never",
    "provideClusterInfo": True,
}
USERS = (
    {"token": "secret"},
    {"username": "me", "password": "secret"},
    {"client-certificate-data": "eA==", "client-key-data": "eA=="},
    {"exec": PLUGIN},
    {"tokenFile": "token"},
    {"as": "other", "as-groups": ["g"], "token": "x"},
    {"auth-provider": {"name": "oidc"}},
)
CLUSTERS = (
    {"server": "https://api.test:6443", "certificate-authority-data": "eA=="},
    {"server": "http://[::1]:80", "proxy-url": "http://proxy:3128", "tls-server-name": "x"},
    {"server": "https://h", "insecure-skip-tls-verify": True, "extensions": [{"name": "a", "extension": {}}]},
)
WORDS = (
    "main",
    "c",
    "u",
    "https://",
    "http://h:99999",
    "http://[",
    "https://h:x",
    "h:80",
    "unix:///x",
    "eA==",
    "=",
)


class KubeconfigTarget:
    """A case is the bytes of a file."""

    name = "kubeconfig"

    def __init__(self) -> None:
        self.mutator = Mutator(WORDS, deep=(20, 150, 300))
        folder = tempfile.mkdtemp(prefix="kubeconfig-")
        atexit.register(shutil.rmtree, folder, ignore_errors=True)
        self.path = Path(folder) / "config"

    def reset(self) -> None:
        """Reading leaves nothing behind."""

    def sizes(self) -> dict[str, int]:
        return {}

    def draw(self, rng: Random) -> Case:
        content = {
            "apiVersion": "v1",
            "kind": "Config",
            "current-context": "main",
            "contexts": [{"name": "main", "context": {"cluster": "c", "user": "u", "namespace": "n"}}],
            "clusters": [{"name": "c", "cluster": rng.choice(CLUSTERS)}],
            "users": [{"name": "u", "user": rng.choice(USERS)}],
        }
        if rng.random() < 0.8:
            content = self.mutator.changed(rng, content, typed=rng.random() < 0.5)
        return damaged(rng, as_text(rng, [plain(content)], self.mutator))

    def run(self, case: Case) -> int:
        self.path.write_bytes(case.encode("latin-1"))
        try:
            access = load(self.path)
        except ApiError as trouble:
            if "\n" in str(trouble) or "\x1b" in str(trouble):
                raise Broken(f"the sentence is not one line of plain text: {str(trouble)!r}") from None
            return 1
        repr(access)
        return 1
