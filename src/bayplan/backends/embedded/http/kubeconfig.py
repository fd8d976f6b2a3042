"""The kubeconfig with which kubectl finds the cluster in memory."""

from __future__ import annotations

import base64
import json
import os
from pathlib import Path
from typing import Any

CONTEXT = "bayplan"


def write_kubeconfig(path: Path, server: str, authority: bytes, token: str) -> None:
    """Write a separate kubeconfig that only its owner can read; an existing file is replaced atomically."""
    content: dict[str, Any] = {"apiVersion": "v1", "kind": "Config"}
    content |= {name: [entry] for name, entry in entries(server, authority, token).items()}
    content["current-context"] = CONTEXT
    path.parent.mkdir(parents=True, exist_ok=True)
    unfinished = path.with_name(f".{path.name}.{os.getpid()}")
    unfinished.unlink(missing_ok=True)
    handle = os.open(unfinished, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(handle, "w", encoding="utf-8") as file:
        file.write(json.dumps(content, indent=2) + "\n")
    unfinished.replace(path)


def entries(server: str, authority: bytes, token: str) -> dict[str, dict[str, Any]]:
    """Cluster, context and user, each with the name of the list that it belongs to."""
    trusted = base64.b64encode(authority).decode()
    return {
        "clusters": {
            "name": CONTEXT,
            "cluster": {"server": server, "certificate-authority-data": trusted},
        },
        "contexts": {
            "name": CONTEXT,
            "context": {"cluster": CONTEXT, "user": CONTEXT, "namespace": "default"},
        },
        "users": {"name": CONTEXT, "user": {"token": token}},
    }
