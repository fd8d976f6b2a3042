"""Manifests for tests of `bayplan place`, files to put them in, and how to run it on them."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import yaml
from click.testing import CliRunner, Result

from bayplan.cli.commands.main import main
from tests.support.api_objects import READY, container, job, node, pod

RACK = "cloud.com/topology-rack"


def run(*arguments: str | Path, stdin: bytes | None = None) -> Result:
    return CliRunner().invoke(main, [str(argument) for argument in arguments], input=stdin)


def place(*files: str | Path, options: tuple[str, ...] = (), stdin: bytes | None = None) -> Result:
    named = [part for file in files for part in ("-f", file)]
    return run("place", *named, *options, stdin=stdin)


def rack_node(name: str, rack: str = "r1", **more: Any) -> dict[str, Any]:
    amounts = {"cpu": "8", "example.com/gpu": "4", "pods": "10"}
    return node(name, amounts, {RACK: rack}, conditions=[READY], **more)


def gpu_job(name: str = "job", pods: object = 2, gpu: object = 4, **annotations: Any) -> dict[str, Any]:
    notes = {f"kueue.x-k8s.io/{key.replace('_', '-')}": value for key, value in annotations.items()}
    containers = [{"resources": {"limits": {"example.com/gpu": gpu}}}]
    template = {"metadata": {"annotations": notes}, "spec": {"containers": containers}}
    return job(name, template, parallelism=pods)


def running_pod(name: str, on: str, gpu: int) -> dict[str, Any]:
    return pod(name, containers=[container(limits={"example.com/gpu": gpu})], nodeName=on)


FOUR = [rack_node("x1"), rack_node("x2"), rack_node("x3", "r2"), rack_node("x4", "r2")]


Write = Callable[..., Path]


def writer(folder: Path) -> Write:
    """Writes objects (as YAML documents) or raw text and bytes to a file of the folder."""

    def write(*content: Any, name: str = "in.yaml") -> Path:
        path = folder / name
        if content and isinstance(content[0], bytes):
            path.write_bytes(content[0])
        elif content and isinstance(content[0], str):
            path.write_text(content[0], encoding="utf-8")
        else:
            path.write_text(yaml.safe_dump_all(content), encoding="utf-8")
        return path

    return write


def data(result: Result) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(result.stdout)
    return found


def shares(result: Result, gang: int = 0, pod_set: int = 0) -> dict[str, int]:
    domains = data(result)["gangs"][gang]["podSets"][pod_set]["assignment"]["domains"]
    return {"/".join(domain["values"]): domain["count"] for domain in domains}
