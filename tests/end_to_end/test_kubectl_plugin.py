"""kubectl finds the commands as a plugin: `kubectl bayplan list gangs`."""

from __future__ import annotations

import os
import subprocess
import sys
import tomllib
from pathlib import Path

from tests.support.queued_cluster import furnish, queued_cluster, queued_workload

ROOT = Path(__file__).parents[2]
PATIENCE = 600
"""Seconds until a command counts as hung, also on a machine that does much else."""


def test_kubectl_runs_it_as_a_plugin(program: str, tmp_path: Path) -> None:
    scripts = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["scripts"]
    module, _, function = scripts["kubectl-bayplan"].partition(":")
    plugin = tmp_path / "bin" / "kubectl-bayplan"
    plugin.parent.mkdir()
    plugin.write_text(
        f"#!{sys.executable}\nfrom {module} import {function}\n{function}()\n", encoding="utf-8"
    )
    plugin.chmod(0o755)
    with queued_cluster(tmp_path) as cluster:
        furnish(cluster)
        cluster.submit(queued_workload("first", 1, 4, "small"))
        environment = os.environ | {
            "PATH": f"{plugin.parent}{os.pathsep}{os.environ['PATH']}",
            "KUBECONFIG": str(cluster.kubeconfig),
        }

        def kubectl(*arguments: str) -> str:
            return subprocess.run(
                [program, "bayplan", *arguments], env=environment, text=True, capture_output=True, check=True,
                timeout=PATIENCE,
            ).stdout  # fmt: skip

        assert "fits; expected in the next scheduling cycle" in kubectl("list", "gangs", "-A")
        assert "Workload ml/first: pending" in kubectl("explain", "first", "-n", "ml")
        assert kubectl("list", "--help").startswith("Usage: kubectl bayplan list")
