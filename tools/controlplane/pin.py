"""Write the Go module files that pin Kubernetes, the add-ons, Helm, promtool or a peer, to be committed."""

from __future__ import annotations

import json
import shutil
import subprocess
from pathlib import Path
from typing import Any

from tools.controlplane.plan import (
    ADDON_VERSIONS,
    ADDONS_MODULE,
    DEFAULT_KUBE,
    GO_DIR,
    HELM,
    HELM_MODULE,
    HELM_VERSION,
    KAI,
    KAI_BINDER,
    KAI_MODULE,
    KAI_VERSION,
    KUEUE,
    KUEUE_MODULE,
    KUEUE_VERSION,
    NEEDED,
    PROMETHEUS_VERSION,
    PROMTOOL,
    PROMTOOL_MODULE,
    SCHEDULER,
    VOLCANO,
    VOLCANO_MODULE,
    VOLCANO_VERSION,
    Program,
    Trouble,
)

TOOLS_GO = """//go:build tools

// Package tools names the programs that this module pins.
package tools

import (
{imports}
)
"""
GO_OF_ADDONS = "1.26.0"


def pin_kubernetes(version: str) -> Path:
    """Pin k8s.io/kubernetes, every staging module of that release, and the etcd it is tested with."""
    module = f"k8s.io/kubernetes@v{version}"
    downloaded = _go_json("mod", "download", "-json", module)
    upstream = _go_json("mod", "edit", "-json", downloaded["GoMod"])
    staging = "v0." + version.split(".", 1)[1]
    edits = [f"-go={upstream['Go']}", f"-require={module}"]
    edits += [f"-require={line['Path']}@{line['Version']}" for line in upstream["Require"] if _is_etcd(line)]
    paths = [line["Old"]["Path"] for line in upstream["Replace"]]
    edits += [f"-replace={path}={path}@{staging}" for path in paths]
    return _write(
        f"kubernetes-{version}", edits, [*(program for program in NEEDED if not program.module), SCHEDULER]
    )


def pin_addons() -> Path:
    """Pin kwok and the JobSet controller in one module, so that they share their libraries."""
    edits = [
        f"-go={GO_OF_ADDONS}",
        *(f"-require={path}@{version}" for path, version in ADDON_VERSIONS.items()),
    ]
    return _write(ADDONS_MODULE, edits, [program for program in NEEDED if program.module == ADDONS_MODULE])


def pin_helm() -> Path:
    """Pin Helm with the libraries of the default Kubernetes, so that most of it is compiled already."""
    kubernetes = _go_json("mod", "edit", "-json", f"{GO_DIR}/kubernetes-{DEFAULT_KUBE}/go.mod")
    staging = {line["Old"]["Path"]: line["New"]["Version"] for line in kubernetes["Replace"]}
    versions = {line["Path"]: line["Version"] for line in kubernetes["Require"]} | staging
    del versions["k8s.io/kubernetes"]
    edits = [f"-go={kubernetes['Go']}", f"-require=helm.sh/helm/v3@{HELM_VERSION}"]
    edits += [f"-require={path}@{version}" for path, version in versions.items()]
    edits += [f"-replace={path}={path}@{version}" for path, version in staging.items()]
    return _write(HELM_MODULE, edits, [HELM])


def pin_promtool() -> Path:
    """Pin the program that checks alert rules."""
    edits = [f"-go={GO_OF_ADDONS}", f"-require=github.com/prometheus/prometheus@{PROMETHEUS_VERSION}"]
    return _write(PROMTOOL_MODULE, edits, [PROMTOOL])


def pin_kueue() -> Path:
    """Pin the manager of Kueue."""
    return _pin_peer(f"sigs.k8s.io/kueue@{KUEUE_VERSION}", KUEUE_MODULE, KUEUE)


def pin_kai() -> Path:
    """Pin the scheduler of KAI and the program that binds for it."""
    return _pin_peer(f"github.com/NVIDIA/KAI-scheduler@{KAI_VERSION}", KAI_MODULE, KAI, KAI_BINDER)


def pin_volcano() -> Path:
    """Pin the scheduler of Volcano."""
    return _pin_peer(f"volcano.sh/volcano@{VOLCANO_VERSION}", VOLCANO_MODULE, VOLCANO)


def _pin_peer(module: str, name: str, *programs: Program) -> Path:
    """Pin programs of another project, with the modules that it replaces."""
    downloaded = _go_json("mod", "download", "-json", module)
    upstream = _go_json("mod", "edit", "-json", downloaded["GoMod"])
    edits = [f"-go={upstream['Go']}", f"-require={module}"]
    edits += [
        f"-replace={line['Old']['Path']}={line['New']['Path']}@{line['New']['Version']}"
        for line in upstream["Replace"] or ()
        if line["New"].get("Version")
    ]
    # The public checksum database does not know every library that they use; their own checksums do.
    known = Path(downloaded["Dir"], "go.sum").read_text()
    return _write(name, edits, list(programs), known)


def _write(name: str, edits: list[str], programs: list[Program], checksums: str = "") -> Path:
    folder = GO_DIR / name
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "go.mod").write_text(f"module bayplan.dev/tools/controlplane/{name}\n")
    (folder / "go.sum").write_text(checksums)
    imports = "\n".join(f'\t_ "{package}"' for package in sorted(program.package for program in programs))
    (folder / "tools.go").write_text(TOOLS_GO.format(imports=imports))
    _go("mod", "edit", *edits, folder=folder)
    _go("mod", "tidy", folder=folder)
    return folder


def _is_etcd(line: dict[str, Any]) -> bool:
    return bool(line["Path"] == "go.etcd.io/etcd/server/v3")


def _go_json(*arguments: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(_go(*arguments, folder=GO_DIR))
    return found


def _go(*arguments: str, folder: Path) -> str:
    if not shutil.which("go"):
        raise Trouble("Module files were to be written; there is no go command. Install Go 1.26 or later.")
    answer = subprocess.run(["go", *arguments], cwd=folder, text=True, capture_output=True, check=False)
    if answer.returncode:
        raise Trouble(
            f"go {' '.join(arguments)} ended with code {answer.returncode}:\n{answer.stderr.strip()}"
        )
    return answer.stdout
