"""Certificates by cert-manager: the chart makes what `bayplan install` makes, and replicas use them."""

from __future__ import annotations

import http.client
import re
import ssl
import subprocess
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
import yaml
from click.testing import CliRunner
from cryptography import x509

from bayplan.assembly import crds, manifests
from bayplan.assembly.cert_manager import INJECT, SECRET_NAME
from bayplan.assembly.install_settings import InstallSettings
from bayplan.assembly.webhooks import WebhookEndpoint, Webhooks
from bayplan.cli.commands.install import KINDS
from bayplan.cli.commands.main import main
from bayplan.runtime.core.clock import SystemClock
from bayplan.runtime.telemetry.metrics import Metrics
from bayplan.runtime.webhooks.metrics_server import CertificateFiles
from tests.support.listening import free_address
from tests.unit.assembly.test_helm_chart import TUNED, by_name, folder, helm, made_chart, nested, rendered
from tests.unit.runtime.webhooks.test_metrics_server import written

Object = dict[str, Any]
__all__ = ["folder", "helm"]  # fixtures
OWN: Object = {"webhooks.certManager.enabled": True}
NAMED: Object = {**OWN, "webhooks.certManager.issuer": {"kind": "ClusterIssuer", "name": "company"}}


def installed(values: Object, *, separate: bool = False) -> dict[tuple[str, str], Object]:
    settings = InstallSettings(namespace="here", separate=separate, cert_manager=True, values=nested(values))
    return by_name(manifests.manifests(settings))


@pytest.mark.parametrize("separate", [False, True])
@pytest.mark.parametrize("values", [OWN, NAMED])
def test_the_chart_makes_what_install_makes(values: Object, separate: bool) -> None:
    ours = installed(values, separate=separate)
    theirs = by_name(rendered(made_chart(), "here", given=values, separate=separate))
    del ours["Namespace", "here"]
    for name in crds.converted():
        annotations = theirs["CustomResourceDefinition", name]["metadata"]["annotations"]
        assert annotations.pop("helm.sh/resource-policy") == "keep"
    assert theirs == ours


def test_every_object_that_trusts_the_webhooks_asks_for_the_authority_of_the_certificate() -> None:
    ours = installed(OWN)
    trusting = [one for one in ours.values() if INJECT in one["metadata"].get("annotations", {})]
    assert {one["metadata"]["annotations"][INJECT] for one in trusting} == {"here/bayplan-webhooks"}
    assert {one["metadata"]["name"] for one in trusting} == {"bayplan", *crds.converted()}
    certificate = ours["Certificate", "bayplan-webhooks"]["spec"]
    assert certificate["dnsNames"][0] == "bayplan-webhooks.here.svc"
    assert certificate["secretName"] == SECRET_NAME


def test_an_issuer_is_made_only_if_none_is_named() -> None:
    assert ("Issuer", "bayplan-webhooks") in installed(OWN)
    named = installed(NAMED)
    assert ("Issuer", "bayplan-webhooks") not in named
    reference = named["Certificate", "bayplan-webhooks"]["spec"]["issuerRef"]
    assert reference == {"kind": "ClusterIssuer", "name": "company"}


@pytest.mark.parametrize("separate", [False, True])
def test_only_the_replicas_that_serve_webhooks_mount_the_certificate(separate: bool) -> None:
    ours = installed(OWN, separate=separate)
    mounting = {
        name
        for (kind, name), one in ours.items()
        if kind == "Deployment" and SECRET_NAME in str(one["spec"]["template"]["spec"]["volumes"])
    }
    assert mounting == {"bayplan-webhooks" if separate else "bayplan"}
    (name,) = mounting
    arguments = ours["Deployment", name]["spec"]["template"]["spec"]["containers"][0]["args"]
    assert "--webhook-cert-file=/etc/bayplan-webhooks/tls.crt" in arguments
    assert not [key for key in ours if key[0] == "Secret"], "there is no authority of our own"


@pytest.mark.real
@pytest.mark.parametrize("values", [OWN, NAMED])
def test_helm_makes_the_same(helm: str, folder: Path, tmp_path: Path, values: Object) -> None:
    file = tmp_path / "values.yaml"
    file.write_text(yaml.safe_dump(nested(values)))
    command = [helm, "template", "release", str(folder), "--include-crds", "--kube-version=1.35.4"]
    made = subprocess.run(
        [*command, "--namespace=here", "-f", str(file)], check=True, capture_output=True, text=True
    )
    found = by_name([one for one in yaml.load_all(made.stdout, yaml.CSafeLoader) if one])
    assert found == by_name(rendered(made_chart(), "here", given=values))


def test_webhooks_serve_the_certificate_in_the_files_and_write_no_bundle(tmp_path: Path) -> None:
    certificate, key, authority = written(tmp_path, "one")
    metrics = Metrics("test")

    def never(*arguments: object) -> tuple[int, bytes]:
        raise AssertionError(f"the cluster is asked for {arguments}; the certificate comes from files")

    endpoint = WebhookEndpoint("here", free_address(), crds.converted(), CertificateFiles(certificate, key))
    webhooks = Webhooks(never, endpoint, SystemClock(), metrics)
    try:
        context = ssl.create_default_context(cadata=authority)
        connection = http.client.HTTPSConnection(str(webhooks.server.address), context=context, timeout=10)
        with closing(connection):
            connection.request("GET", "/nothing")
            assert connection.getresponse().status == 404
    finally:
        webhooks.stop()
    expected = x509.load_pem_x509_certificate(certificate.read_bytes()).not_valid_after_utc.timestamp()
    told = re.findall(rb"^bayplan_certificate_expiry_timestamp_seconds (\S+)$", metrics.text(), re.MULTILINE)
    assert [float(one) for one in told] == [expected]


@pytest.mark.parametrize(
    ("options", "told"),
    [
        (("--webhook-cert-file", "a.crt"), "go together; give both or neither"),
        (
            ("--webhook-cert-file", "a.crt", "--webhook-key-file", "a.key"),
            "are not a certificate and its key",
        ),
    ],
)
def test_files_that_are_no_certificate_are_refused_before_anything_starts(
    options: tuple[str, ...], told: str
) -> None:
    result = CliRunner().invoke(main, ["run", *options])
    assert result.exit_code == 2 and told in result.stderr


def test_install_and_uninstall_know_every_kind_that_values_can_ask_for() -> None:
    values = nested(TUNED | OWN)
    settings = InstallSettings(cert_manager=True, separate=True, metrics_secure=True, values=values)
    assert {one["kind"] for one in manifests.manifests(settings)} <= set(KINDS)
