"""The kubeconfig with which kubectl finds the cluster in memory."""

from __future__ import annotations

import base64
import json
import os
from pathlib import Path

CONTEXT = "bayplan"


def write_kubeconfig(
    path: Path, server: str, authority: bytes, token: str, namespace: str = "default"
) -> None:
    """Write a kubeconfig that only its owner can read; whatever was there is replaced at once."""
    trusted = base64.b64encode(authority).decode()
    content = {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": CONTEXT, "cluster": {"server": server, "certificate-authority-data": trusted}}],
        "users": [{"name": CONTEXT, "user": {"token": token}}],
        "contexts": [
            {"name": CONTEXT, "context": {"cluster": CONTEXT, "user": CONTEXT, "namespace": "default"}}
        ],
        "current-context": CONTEXT,
    }
    path.parent.mkdir(parents=True, exist_ok=True)
    unfinished = path.with_name(f".{path.name}.{os.getpid()}")
    unfinished.unlink(missing_ok=True)
    handle = os.open(unfinished, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(handle, "w", encoding="utf-8") as file:
        file.write(json.dumps(content, indent=2) + "\n")
    unfinished.replace(path)
