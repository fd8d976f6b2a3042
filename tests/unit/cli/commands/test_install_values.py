"""`bayplan install --values`: the values of the chart, checked by its schema."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml
from click.testing import CliRunner

from bayplan.cli.commands.install import install

Object = dict[str, Any]


def printed(*arguments: str) -> list[Object]:
    result = CliRunner().invoke(install, ["-o", "yaml", *arguments])
    assert result.exit_code == 0, result.output
    return [document for document in yaml.load_all(result.output, Loader=yaml.CSafeLoader) if document]


def only(objects: list[Object], kind: str) -> Object:
    (found,) = [one for one in objects if one["kind"] == kind and one["metadata"]["name"] == "bayplan"]
    return found


def container(objects: list[Object]) -> Object:
    found: Object = only(objects, "Deployment")["spec"]["template"]["spec"]["containers"][0]
    return found


def test_values_are_read_as_helm_reads_them_and_options_override_them(tmp_path: Path) -> None:
    first, second = tmp_path / "first.yaml", tmp_path / "second.yaml"
    first.write_text(
        "image: {repository: registry.example.com/bayplan, tag: '2'}\nreplicas: 5\nroles: [scheduler]\n"
        "nodeSelector: {pool: system}\nresources: {limits: {memory: 4Gi}}\nnetworkPolicy: {enabled: false}\n"
    )
    second.write_text("image: {tag: '3'}\ncrds: false\n")
    objects = printed("--values", str(first), "--values", str(second), "--replicas", "3")
    deployment = only(objects, "Deployment")
    assert deployment["spec"]["replicas"] == 3
    assert deployment["spec"]["template"]["spec"]["nodeSelector"] == {"pool": "system"}
    assert container(objects)["image"] == "registry.example.com/bayplan:3"
    assert container(objects)["resources"]["limits"] == {"memory": "4Gi"}
    assert "--roles=scheduler" in container(objects)["args"]
    kinds = {one["kind"] for one in objects}
    assert not kinds & {"NetworkPolicy", "CustomResourceDefinition", "ValidatingWebhookConfiguration"}


def test_an_image_may_be_named_by_digest(tmp_path: Path) -> None:
    values, digest = tmp_path / "values.yaml", f"sha256:{'a' * 64}"
    values.write_text(f"image: {{repository: registry.example.com/bayplan, digest: '{digest}'}}\n")
    assert container(printed("--values", str(values)))["image"] == f"registry.example.com/bayplan@{digest}"


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("replicas: none\n", "replicas"),
        ("nodeSelektor: {}\n", "nodeSelektor"),
        ("- a\n", "the file"),
        ("a: [\n", "cannot read"),
    ],
)
def test_values_that_are_wrong_are_refused_with_where(tmp_path: Path, text: str, told: str) -> None:
    values = tmp_path / "values.yaml"
    values.write_text(text)
    ran = CliRunner().invoke(install, ["-o", "yaml", "--values", str(values)])
    assert ran.exit_code == 2 and told in ran.output
