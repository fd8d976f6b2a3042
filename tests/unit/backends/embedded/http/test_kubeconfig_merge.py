"""The context of `bayplan up` in a kubeconfig that holds others: added, and only it removed again."""

from __future__ import annotations

import os
import socket
import stat
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from bayplan.backends.embedded.http import kubeconfig_merge
from bayplan.backends.embedded.http.kubeconfig_merge import Merged, merge_into
from bayplan.backends.remote.kubeconfig import load
from bayplan.dialects.errors import Misconfigured

OTHERS = """\
# the production cluster
apiVersion: v1
kind: Config
clusters:
- cluster: {server: "https://prod:6443"}
  name: prod
contexts:
- context: {cluster: prod, user: me, namespace: a}
  name: prod
users:
- name: me
  user:
    token: "1e3"
current-context: prod
preferences:
  at: 12:30:45
  mode: 0123
"""
SERVER = "https://127.0.0.1:20999"


def merged(path: Path, token: str = "secret", server: str = SERVER) -> Merged:
    return merge_into(path, server, b"authority", token)


def content(path: Path) -> Any:
    return yaml.safe_load(path.read_text())


def names(path: Path, key: str) -> list[str]:
    return [one["name"] for one in content(path)[key] or ()]


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "config"
    path.write_text(OTHERS)
    return path


def test_the_context_is_added_and_made_current_and_others_stay(file: Path) -> None:
    merged(file)
    assert names(file, "clusters") == names(file, "contexts") == ["prod", "bayplan"]
    assert names(file, "users") == ["me", "bayplan"]
    found = load(file)
    assert (found.server, found.namespace) == (SERVER, "default")
    assert load(file, "prod").server == "https://prod:6443"
    assert stat.S_IMODE(file.stat().st_mode) == 0o600


def test_what_readers_may_take_for_a_number_keeps_its_text(file: Path) -> None:
    merged(file)
    text = file.read_text()
    assert 'token: "1e3"' in text and "at: 12:30:45" in text and "mode: 0123" in text


def test_a_file_without_other_changes_is_restored_to_the_byte(file: Path) -> None:
    file.chmod(0o640)
    merged(file).take_out()
    assert file.read_text() == OTHERS
    assert stat.S_IMODE(file.stat().st_mode) == 0o640
    assert [one.name for one in file.parent.iterdir()] == ["config"]


def test_what_others_changed_meanwhile_stays(file: Path) -> None:
    ours = merged(file)
    changed = content(file)
    changed["contexts"].append({"name": "new", "context": {"cluster": "prod", "user": "me"}})
    file.write_text(yaml.safe_dump(changed))
    ours.take_out()
    assert names(file, "contexts") == ["prod", "new"]
    assert names(file, "clusters") == ["prod"] and names(file, "users") == ["me"]
    assert content(file)["current-context"] == "prod"


def test_a_current_context_that_the_user_chose_meanwhile_stays(file: Path) -> None:
    ours = merged(file)
    changed = content(file)
    changed["current-context"] = "elsewhere"
    file.write_text(yaml.safe_dump(changed))
    ours.take_out()
    assert content(file)["current-context"] == "elsewhere"


def test_a_file_that_was_made_for_it_goes_with_it(tmp_path: Path) -> None:
    path = tmp_path / "deep" / "config"
    ours = merged(path)
    assert load(path).server == SERVER
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    ours.take_out()
    assert not path.exists()


@pytest.mark.parametrize(
    "text", ["", "\n", "# nothing yet\n", "{}", "clusters: null\nusers:\ncontexts: []\n"]
)
def test_an_empty_file_is_a_kubeconfig_without_entries(tmp_path: Path, text: str) -> None:
    path = tmp_path / "config"
    path.write_text(text)
    ours = merged(path)
    assert load(path).server == SERVER
    ours.take_out()
    assert path.read_text() == text


def test_a_link_stays_a_link(file: Path) -> None:
    link = file.parent / "link"
    link.symlink_to(file.name)
    ours = merged(link)
    assert link.is_symlink() and load(file).server == SERVER
    ours.take_out()
    assert link.is_symlink() and file.read_text() == OTHERS


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("a: [b", "is not YAML"),
        ("just text", "is no kubeconfig"),
        ("- a\n- b\n", "is no kubeconfig"),
        ("clusters: {a: b}\n", "clusters is no list"),
        ("a: b\n---\nc: d\n", "holds more than one document"),
        ("[" * 40_000, "is nested too deeply"),
        ("\x00", "is not YAML"),
    ],
)
def test_a_file_that_is_no_kubeconfig_is_named_and_left_alone(tmp_path: Path, text: str, words: str) -> None:
    path = tmp_path / "config"
    path.write_text(text)
    with pytest.raises(Misconfigured, match=words) as told:
        merged(path)
    assert str(path) in str(told.value)
    assert path.read_text() == text and [one.name for one in tmp_path.iterdir()] == ["config"]


def test_bytes_that_are_no_text_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "config"
    path.write_bytes(b"a: \xff\xfe")
    with pytest.raises(Misconfigured, match="is not UTF-8"):
        merged(path)


def test_a_path_that_cannot_be_a_file_is_named(tmp_path: Path, file: Path) -> None:
    with pytest.raises(Misconfigured, match="is a directory"):
        merged(tmp_path)
    with pytest.raises(Misconfigured, match="cannot be changed"):
        merged(file / "below")
    loop = tmp_path / "loop"
    loop.symlink_to("loop")
    with pytest.raises(Misconfigured, match="loop cannot be changed"):
        merged(loop)


def test_a_context_of_that_name_that_is_not_ours_is_never_replaced(file: Path) -> None:
    file.write_text(OTHERS.replace("prod", "bayplan"))
    before = file.read_text()
    with pytest.raises(Misconfigured, match="that bayplan up did not make"):
        merged(file)
    assert file.read_text() == before


def test_another_one_that_runs_is_not_replaced(file: Path) -> None:
    with socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        listening.listen()
        merged(file, "first", f"https://127.0.0.1:{listening.getsockname()[1]}")
        with pytest.raises(Misconfigured, match=f"another bayplan up .process {os.getpid()}."):
            merged(file, "second")


def test_what_a_killed_one_left_is_replaced_and_the_context_before_it_restored(file: Path) -> None:
    script = (
        "import sys; from pathlib import Path;"
        "from bayplan.backends.embedded.http.kubeconfig_merge import merge_into;"
        f"merge_into(Path(sys.argv[1]), {SERVER!r}, b'a', 'stale')"
    )
    subprocess.run([sys.executable, "-c", script, str(file)], check=True)
    assert content(file)["current-context"] == "bayplan"
    ours = merged(file, "fresh")
    assert [one["user"].get("token") for one in content(file)["users"]] == ["1e3", "fresh"]
    file.write_text(file.read_text() + "\n# somebody looked at it\n")
    ours.take_out()
    assert names(file, "contexts") == ["prod"] and content(file)["current-context"] == "prod"


def test_the_entries_of_a_successor_are_left_alone(file: Path) -> None:
    first = merged(file, "first")
    merged(file, "second")
    first.take_out()
    assert content(file)["users"][-1]["user"]["token"] == "second"


def test_a_removed_file_is_not_created_again(file: Path) -> None:
    ours = merged(file)
    file.unlink()
    ours.take_out()
    assert not file.exists()


def test_a_file_that_another_program_locks_is_told(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kubeconfig_merge, "LOCK_SECONDS", 0.1)
    lock = file.with_name("config.lock")
    lock.touch()
    with pytest.raises(Misconfigured, match=r"config.lock exists\); remove that file if none is running"):
        merged(file)
    assert lock.exists() and file.read_text() == OTHERS
