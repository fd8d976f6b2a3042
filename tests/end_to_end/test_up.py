"""`bayplan up` with the real kubectl: every command that it suggests works, and so do the usual ones."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.unit.assembly.test_local_cluster import QUICKSTART, SAMPLE_JOB

Run = Callable[[str], str]
WAIT = "--timeout=120s"


@contextmanager
def running(program: str, folder: Path, *options: str) -> Iterator[tuple[list[str], Run]]:
    """The commands that it suggests, and a way to run one."""
    kubeconfig = folder / "config"
    paths = os.pathsep.join((str(Path(program).parent), str(Path(sys.executable).parent), os.environ["PATH"]))
    environment = os.environ | {"PATH": paths, "HOME": str(folder), "PYTHONUNBUFFERED": "1"}
    process = subprocess.Popen(
        [sys.executable, "-m", "bayplan", "up", "--kubeconfig", str(kubeconfig), "--for", "600", *options],
        stdout=subprocess.PIPE,
        stdin=subprocess.DEVNULL,
        text=True,
        env=environment,
    )

    def run(command: str) -> str:
        done = subprocess.run(
            ["sh", "-c", command],
            env=environment | {"KUBECONFIG": str(kubeconfig)},
            cwd=folder,
            text=True,
            capture_output=True,
            check=False,
        )
        assert done.returncode == 0, f"{command}\n{done.stdout}{done.stderr}"
        return done.stdout

    try:
        assert process.stdout is not None
        told: list[str] = []
        for line in process.stdout:
            told += [line.strip()] if line.startswith("  ") else []
            if "uncordon" in line:
                break
        yield told, run
    finally:
        process.terminate()
        process.communicate(timeout=60)
    assert not kubeconfig.exists()


@pytest.mark.parametrize("mix", ["--mix", "--no-mix"])
def test_every_command_that_it_suggests_works(program: str, tmp_path: Path, mix: str) -> None:
    with running(program, tmp_path, mix) as (told, run):
        if mix == "--mix":
            run(f"kubectl wait --for=create job/giant {WAIT}")
        assert len(told) >= 4 and told[0].startswith("export KUBECONFIG=")
        for command in told:
            run(f"{told[0]} && {command}")


def test_pods_deployments_and_the_quickstart_of_kueue_work_as_people_type_them(
    program: str, tmp_path: Path
) -> None:
    (tmp_path / "queues.yaml").write_text(QUICKSTART)
    (tmp_path / "sample.yaml").write_text(SAMPLE_JOB.replace("sleep 60", "sleep 2"))
    with running(program, tmp_path, "--no-mix") as (_, run):
        run("kubectl apply -f queues.yaml")
        run("kubectl create -f sample.yaml")
        run("kubectl create -f sample.yaml")
        run("kubectl run one --image=web:1")
        run(f"kubectl wait --for=condition=Ready pod/one {WAIT}")
        run("kubectl create deployment web --image=web:1 --replicas=3")
        run(f"kubectl rollout status deployment/web {WAIT}")
        run("kubectl scale deployment web --replicas=5")
        run(f"kubectl rollout status deployment/web {WAIT}")
        run("kubectl set image deployment/web web=web:2")
        run(f"kubectl rollout status deployment/web {WAIT}")
        run("kubectl rollout undo deployment/web")
        run(f"kubectl rollout status deployment/web {WAIT}")
        images = run("kubectl get pods -l app=web -o jsonpath='{.items[*].spec.containers[0].image}'")
        assert images.split().count("web:1") == 5
        run("kubectl delete deployment web")
        run(f"kubectl wait --for=delete pods -l app=web {WAIT}")
        run(f"kubectl wait --for=condition=Complete jobs --all {WAIT}")
        run("kubectl delete pod one")
