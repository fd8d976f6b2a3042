"""The files of the pages: vendored ones are those of the manifest, and nothing is loaded from elsewhere."""

from __future__ import annotations

import hashlib
import json
import re
from pathlib import Path

import pytest

import bayplan.dashboard

STATIC = Path(bayplan.dashboard.__file__).parent / "static"
VENDOR = STATIC / "vendor"
OURS = sorted(path for path in STATIC.iterdir() if path.suffix in (".js", ".css", ".html"))


def test_every_vendored_file_has_the_hash_of_the_manifest_and_a_licence() -> None:
    manifest = json.loads((VENDOR / "manifest.json").read_text(encoding="utf-8"))
    code = {path.name for path in VENDOR.iterdir() if path.suffix in (".js", ".css")}
    assert manifest.keys() == code
    for name, told in manifest.items():
        assert hashlib.sha256((VENDOR / name).read_bytes()).hexdigest() == told["sha256"], name
        assert (VENDOR / f"LICENSE-{told['package']}.txt").stat().st_size > 500


@pytest.mark.parametrize("path", OURS, ids=lambda path: path.name)
def test_pages_load_nothing_from_elsewhere_and_run_no_text(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    assert not re.findall(r"https?://", text)
    assert not re.findall(r"innerHTML|dangerouslySetInnerHTML|\beval\(|new Function|document\.write", text)
    for imported in re.findall(r'from "([^"]+)"', text):
        assert imported.startswith("./") and (STATIC / imported).exists()


def test_markup_has_no_inline_scripts_or_styles() -> None:
    page = (STATIC / "index.html").read_text(encoding="utf-8")
    assert not re.findall(r"<script(?![^>]*src=)|<style|style=|\son\w+=", page)
