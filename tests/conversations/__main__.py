"""Record the real server's answers: python -m tests.conversations STATE-FOLDER [part of a name]."""

from __future__ import annotations

import sys
from pathlib import Path

from tests.conversations.conftest import server_of
from tests.conversations.recording import record
from tests.conversations.script import talks
from tools.controlplane.cluster import attach

if __name__ == "__main__":
    server = server_of(attach(Path(sys.argv[1])))
    for talk in talks():
        if all(part in talk.name for part in sys.argv[2:]):
            sys.stdout.write(f"{record(server, talk).name}\n")
