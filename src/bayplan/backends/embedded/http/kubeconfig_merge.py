"""Merge the context of a local cluster into the user's kubeconfig, and remove only that again.

The file is changed as a tree of YAML nodes, so that everything else keeps its text. It is replaced as a
whole, so no reader sees half of it. Other programs that change kubeconfigs (kubectl, kind) are kept out by
the lock file that they all use. An entry of ours carries the process that made it: one that was killed
leaves a context behind, and the next one replaces it.
"""

from __future__ import annotations

import json
import os
import socket
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import yaml

from bayplan.backends.embedded.http.kubeconfig import CONTEXT, entries
from bayplan.dialects.errors import Misconfigured
from bayplan.dialects.kube.fields.bounded_yaml import UnreadableYAML, bounded_yaml

EXTENSION = "bayplan.dev/up"
LOCK_SECONDS = 5.0
CONNECT_SECONDS = 1.0
MODE = 0o600  # it holds a token
_LISTS = ("clusters", "contexts", "users")
_CURRENT = "current-context"


@dataclass(frozen=True, slots=True)
class Merged:
    """A kubeconfig with our context, and its former content."""

    path: Path
    token: str  # tells entries of ours from those of others
    before: bytes | None  # None: there was no file
    mode: int
    after: bytes

    def take_out(self) -> None:
        """Remove our entries. A file without other changes gets its former content back."""
        with _locked(self.path):
            try:
                now = self.path.read_bytes()
            except FileNotFoundError:
                return
            if now != self.after:
                _write(self.path, _without(self.path, now, self.token), MODE)
            elif self.before is None:
                self.path.unlink()
            else:
                _write(self.path, self.before, self.mode)


def merge_into(path: Path, server: str, authority: bytes, token: str) -> Merged:
    """Add cluster, user and context `bayplan`, and make the context the current one."""
    path = _target(path)
    with _locked(path):
        before, mode = _content(path)
        root = _tree(path, before or b"")
        previous = _previous(path, root)
        ours = {"pid": os.getpid(), "server": server, "previous": previous}
        for name, entry in entries(server, authority, token).items():
            part = next(iter(set(entry) - {"name"}))
            entry[part]["extensions"] = [{"name": EXTENSION, "extension": ours}]
            items = _list(path, root, name)
            items.value = [one for one in items.value if _named(one) != CONTEXT] + [_node(entry)]
        _set(root, _CURRENT, _node(CONTEXT))
        after = _text(root)
        _write(path, after, MODE)
    return Merged(path, token, before, mode, after)


def _target(path: Path) -> Path:
    """The file itself; a link stays a link."""
    try:
        found = path.expanduser().resolve()
        if found.is_dir():
            raise Misconfigured(f"the kubeconfig {path} is a directory; name a file")
        if found.exists() and not found.is_file():
            raise Misconfigured(f"the kubeconfig {path} is not a regular file; name another one")
        found.parent.mkdir(parents=True, exist_ok=True)
    except (OSError, RuntimeError) as wrong:
        raise _unwritable(path, wrong) from None
    return found


def _content(path: Path) -> tuple[bytes | None, int]:
    try:
        with path.open("rb") as file:
            mode = os.fstat(file.fileno()).st_mode & 0o777
            if not os.access(path, os.W_OK):
                raise PermissionError(13, "Permission denied")
            return file.read(), mode
    except FileNotFoundError:
        return None, MODE
    except OSError as wrong:
        raise _unwritable(path, wrong) from None


def _unwritable(path: Path, wrong: Exception) -> Misconfigured:
    why = wrong.strerror if isinstance(wrong, OSError) and wrong.strerror else str(wrong)
    return Misconfigured(
        f"the kubeconfig {path} cannot be changed ({why}); correct the path or the permissions, "
        "or leave out --kubeconfig"
    )


@contextmanager
def _locked(path: Path) -> Iterator[None]:
    """Hold the lock file of client-go; wait for another holder for a limited time."""
    lock = path.with_name(f"{path.name}.lock")
    deadline = time.monotonic() + LOCK_SECONDS
    while True:
        try:
            os.close(os.open(lock, os.O_CREAT | os.O_EXCL | os.O_WRONLY, MODE))
            break
        except FileExistsError:
            if time.monotonic() >= deadline:
                raise Misconfigured(
                    f"the kubeconfig {path} is locked by another program ({lock} exists); "
                    "remove that file if none is running"
                ) from None
            time.sleep(0.05)
        except OSError as wrong:
            raise _unwritable(path, wrong) from None
    try:
        yield
    finally:
        lock.unlink(missing_ok=True)


def _write(path: Path, content: bytes, mode: int) -> None:
    fresh = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        fresh.unlink(missing_ok=True)
        handle = os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_EXCL, MODE)
        with os.fdopen(handle, "wb") as file:
            file.write(content)
            with suppress(OSError):  # another user owns it, and we may not give files away
                known = path.stat()
                os.fchown(file.fileno(), known.st_uid, known.st_gid)
            os.fchmod(file.fileno(), mode)
            os.fsync(file.fileno())
        fresh.replace(path)
    except OSError as wrong:
        with suppress(OSError):
            fresh.unlink(missing_ok=True)
        raise _unwritable(path, wrong) from None


# ── the tree ───────────────────────────────────────────────────────────────────────────────────────


def _tree(path: Path, content: bytes) -> yaml.MappingNode:
    try:
        value = bounded_yaml(content)
    except UnreadableYAML as wrong:
        where = f" ({wrong.where})" if wrong.where else ""
        why = (
            wrong.why if "UTF-8" in wrong.why else wrong.why.partition(":")[0]
        )  # the rest may quote a secret
        raise Misconfigured(f"the kubeconfig {path} {why}{where}; correct it or name another") from None
    if value is None:
        return _made({"apiVersion": "v1", "kind": "Config"})
    root = yaml.compose(content.decode("utf-8-sig"), Loader=yaml.SafeLoader)
    if not isinstance(root, yaml.MappingNode):
        raise Misconfigured(f"the kubeconfig {path} is no kubeconfig: it holds no map; name another file")
    return root


def _list(path: Path, root: yaml.MappingNode, key: str) -> yaml.SequenceNode:
    found = _get(root, key)
    if found is None or _is_null(found):
        found = yaml.SequenceNode("tag:yaml.org,2002:seq", [], flow_style=False)
        _set(root, key, found)
    if not isinstance(found, yaml.SequenceNode):
        raise Misconfigured(f"the kubeconfig {path}: {key} is no list; correct it or name another file")
    found.flow_style = False
    return found


def _previous(path: Path, root: yaml.MappingNode) -> str:
    """The current context to go back to; Misconfigured when a context of that name is not ours to replace."""
    current = _text_of(_get(root, _CURRENT))
    for name in _LISTS:
        for item in _list(path, root, name).value:
            if _named(item) != CONTEXT:
                continue
            made = _maker(item)
            if made is None:
                raise Misconfigured(
                    f"the kubeconfig {path} has an entry {CONTEXT!r} in {name} that bayplan up did not make; "
                    "rename or remove it there, or give another --kubeconfig"
                )
            if _is_serving(made):
                raise Misconfigured(
                    f"the kubeconfig {path} is used by another bayplan up (process {made.get('pid')}); "
                    "stop that one, or give another --kubeconfig"
                )
            if current == CONTEXT:
                current = str(made.get("previous") or "")
    return current if current != CONTEXT else ""


def _without(path: Path, content: bytes, token: str) -> bytes:
    """The file without our entries; the former current context is current again, if ours was."""
    root = _tree(path, content)
    users = _list(path, root, "users").value
    if not any(_named(one) == CONTEXT and _token(one) == token for one in users):
        return content  # another context took our place, or ours was removed
    previous = ""
    for name in _LISTS:
        items = _list(path, root, name)
        ours = [one for one in items.value if _named(one) == CONTEXT]
        previous = next((str((_maker(one) or {}).get("previous") or "") for one in ours), previous)
        items.value = [one for one in items.value if one not in ours]
    if _text_of(_get(root, _CURRENT)) == CONTEXT:
        _set(root, _CURRENT, _node(previous))
    return _text(root)


def _is_serving(made: dict[str, Any]) -> bool:
    """Whether the process that made an entry still runs and listens."""
    try:
        os.kill(int(made["pid"]), 0)
    except PermissionError:
        pass
    except (KeyError, TypeError, ValueError, OverflowError, OSError):
        return False
    try:
        address = urlsplit(str(made.get("server", "")))
        with socket.create_connection((address.hostname or "", address.port or 443), CONNECT_SECONDS):
            return True
    except (OSError, ValueError):
        return False


def _maker(item: yaml.Node) -> dict[str, Any] | None:
    """What an entry of ours says of the process that made it; None when it is not ours."""
    value = _value(item)
    for part in value.values() if isinstance(value, dict) else ():
        for extension in (part.get("extensions") or ()) if isinstance(part, dict) else ():
            if isinstance(extension, dict) and extension.get("name") == EXTENSION:
                message = extension.get("extension")
                return message if isinstance(message, dict) else {}
    return None


def _token(item: yaml.Node) -> str:
    value = _value(item)
    user = value.get("user") if isinstance(value, dict) else None
    return str(user.get("token", "")) if isinstance(user, dict) else ""


def _value(node: yaml.Node) -> Any:
    return bounded_yaml(_text(node))


def _named(item: yaml.Node) -> str:
    return _text_of(_get(item, "name")) if isinstance(item, yaml.MappingNode) else ""


def _get(node: yaml.MappingNode, key: str) -> yaml.Node | None:
    return next((value for name, value in node.value if _text_of(name) == key), None)


def _set(node: yaml.MappingNode, key: str, value: yaml.Node) -> None:
    for place, (name, _) in enumerate(node.value):
        if _text_of(name) == key:
            node.value[place] = (name, value)
            return
    node.value.append((yaml.ScalarNode("tag:yaml.org,2002:str", key), value))


def _text_of(node: yaml.Node | None) -> str:
    return str(node.value) if isinstance(node, yaml.ScalarNode) and not _is_null(node) else ""


def _is_null(node: yaml.Node) -> bool:
    return str(node.tag) == "tag:yaml.org,2002:null"


def _node(value: Any) -> yaml.Node:
    """A value as nodes: in lines of their own, every text quoted, as readers differ in what needs it."""
    found: yaml.Node | None = yaml.compose(json.dumps(value), Loader=yaml.SafeLoader)
    assert found is not None
    _unfold(found)
    return found


def _made(value: dict[str, str]) -> yaml.MappingNode:
    found = _node(value)
    assert isinstance(found, yaml.MappingNode)
    return found


def _unfold(node: yaml.Node) -> None:
    if isinstance(node, yaml.CollectionNode):
        node.flow_style = False
        for child in node.value:
            if isinstance(child, tuple):
                child[0].style = None
                _unfold(child[1])
            else:
                _unfold(child)


def _text(node: yaml.Node) -> bytes:
    written = yaml.serialize(node, Dumper=yaml.SafeDumper, width=1_000_000, allow_unicode=True)
    return str(written).encode()
