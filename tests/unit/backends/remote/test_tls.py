"""Certificates: whom we trust, what we show, and what is said when either does not fit."""

from __future__ import annotations

import asyncio
import ipaddress
import ssl
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from aiohttp import web
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from bayplan.backends.remote.access import Access, Certificate, InlineOrFile
from bayplan.backends.remote.backend import RemoteBackend
from bayplan.backends.remote.credentials import Credentials
from bayplan.backends.remote.tls import tls_context
from bayplan.dialects.errors import ApiError, Misconfigured
from tests.support.remote_server import Server, serving


@dataclass(frozen=True)
class Pair:
    """A certificate with its key."""

    certificate: bytes
    key: bytes
    signer: tuple[x509.Certificate, ec.EllipticCurvePrivateKey]


def issue(name: str, by: Pair | None = None, *, dns: str = "", address: str = "") -> Pair:
    """An authority, or a certificate signed by one."""
    key = ec.generate_private_key(ec.SECP256R1())
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
    now = datetime.now(UTC)
    builder = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(by.signer[0].subject if by else subject)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - timedelta(hours=1))
        .not_valid_after(now + timedelta(hours=1))
        .add_extension(x509.BasicConstraints(ca=by is None, path_length=None), critical=True)
    )
    names: list[x509.GeneralName] = [x509.DNSName(dns)] if dns else []
    names += [x509.IPAddress(ipaddress.ip_address(address))] if address else []
    if names:
        builder = builder.add_extension(x509.SubjectAlternativeName(names), critical=False)
    made = builder.sign(by.signer[1] if by else key, hashes.SHA256())
    form, plain = serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    pem = serialization.Encoding.PEM
    return Pair(made.public_bytes(pem), key.private_bytes(pem, form, plain), (made, key))


AUTHORITY, STRANGER = issue("authority"), issue("stranger")
CLIENT, OTHER_CLIENT = issue("jane", AUTHORITY), issue("joe", AUTHORITY)


def data(content: bytes, label: str = "certificate-authority-data") -> InlineOrFile:
    return InlineOrFile(label, data=content)


def shown(pair: Pair) -> Certificate:
    return Certificate(data(pair.certificate, "client-certificate-data"), data(pair.key, "client-key-data"))


class Naming(Server):
    """Answers with the name in the certificate that the client showed."""

    async def answer(self, request: web.Request) -> web.StreamResponse:
        assert request.transport is not None
        peer = request.transport.get_extra_info("peercert") or {}
        named = dict(part[0] for part in peer.get("subject", ()))
        return web.json_response({"gitVersion": named.get("commonName", "anonymous")})


@contextmanager
def tls_server(tmp_path: Path, pair: Pair, *, clients: bool = False) -> Iterator[Server]:
    files = tmp_path / "server.crt", tmp_path / "server.key"
    for path, content in zip(files, (pair.certificate, pair.key), strict=True):
        path.write_bytes(content)
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(*map(str, files))
    if clients:
        context.verify_mode = ssl.CERT_OPTIONAL
        context.verify_flags &= ~ssl.VERIFY_X509_STRICT  # the certificates above are as plain as can be
        context.load_verify_locations(cadata=AUTHORITY.certificate.decode())
    with serving(Naming(), context) as running:
        yield running


def asked(access: Access, log: list[str] | None = None) -> str:
    """The answer of the server, through a backend of its own."""
    backend = RemoteBackend(access, log=(log if log is not None else []).append, seconds=10)
    try:
        return backend.server_version()
    finally:
        backend.close(0)


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Server]:
    with tls_server(tmp_path, issue("api", AUTHORITY, address="127.0.0.1"), clients=True) as running:
        yield running


def test_the_right_authority_is_trusted(server: Server) -> None:
    assert asked(Access("test", server.url, authority=data(AUTHORITY.certificate))) == "anonymous"


@pytest.mark.parametrize("authority", [data(STRANGER.certificate), None])
def test_a_server_signed_by_another_authority_is_rejected(
    server: Server, authority: InlineOrFile | None
) -> None:
    with pytest.raises(
        Misconfigured, match=r"^test: the certificate of https.* cannot be trusted .*correct cert"
    ):
        asked(Access("test", server.url, authority=authority))


def test_skipping_the_verification_works_and_is_logged(server: Server) -> None:
    log: list[str] = []
    assert asked(Access("test", server.url, verify=False), log) == "anonymous"
    assert log == [f"test: insecure-skip-tls-verify is set; any host can impersonate {server.url}"]


def test_the_name_in_the_certificate_may_be_given(tmp_path: Path) -> None:
    with tls_server(tmp_path, issue("api", AUTHORITY, dns="api.internal")) as server:
        access = Access("test", server.url, authority=data(AUTHORITY.certificate))
        with pytest.raises(Misconfigured, match=r"IP address mismatch.*tls-server-name"):
            asked(access)
        assert asked(replace(access, server_name="api.internal")) == "anonymous"
        with pytest.raises(Misconfigured, match="Hostname mismatch"):
            asked(replace(access, server_name="other.internal"))


def test_a_client_certificate_given_in_place_is_shown(server: Server) -> None:
    access = Access("test", server.url, authority=data(AUTHORITY.certificate), certificate=shown(CLIENT))
    assert asked(access) == "jane"


def test_client_certificate_files_are_read_again_when_replaced(server: Server, tmp_path: Path) -> None:
    paths = tmp_path / "me.crt", tmp_path / "me.key"

    def put(pair: Pair) -> None:
        paths[0].write_bytes(pair.certificate)
        paths[1].write_bytes(pair.key)

    put(CLIENT)
    files = Certificate(*(InlineOrFile("client", path=path) for path in paths))
    access = Access("test", server.url, authority=data(AUTHORITY.certificate), certificate=files)
    assert asked(access) == "jane"
    now = [0.0]
    credentials = Credentials(access, lambda _: None, lambda: now[0])

    async def story() -> list[bool]:
        first = await credentials.current()
        now[0] += 61
        same = await credentials.current()
        paths[1].write_bytes(OTHER_CLIENT.key)  # half replaced
        now[0] += 61
        half = await credentials.current()
        put(OTHER_CLIENT)
        now[0] += 6
        return [same is first, half is first, (await credentials.current()).tls is first.tls]

    assert asyncio.run(story()) == [True, True, False]
    assert asked(access) == "joe"


def test_keys_given_in_place_leave_no_file_behind(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    tls_context(Access("test", "https://h", authority=data(AUTHORITY.certificate)), shown(CLIENT))
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("certificate", "words"),
    [
        (
            Certificate(data(b"no", "client-certificate-data"), data(CLIENT.key)),
            "client-certificate-data and its key",
        ),
        (Certificate(data(CLIENT.certificate), data(OTHER_CLIENT.key)), "KEY_VALUES_MISMATCH"),
        (
            Certificate(InlineOrFile("c", path=Path("/no/where")), data(CLIENT.key)),
            "/no/where, which cannot be read",
        ),
    ],
)
def test_a_certificate_that_cannot_be_shown_is_told(certificate: Certificate, words: str) -> None:
    with pytest.raises(Misconfigured, match=words):
        tls_context(Access("test", "https://h", authority=data(AUTHORITY.certificate)), certificate)


@pytest.mark.parametrize("content", [b"", b"nonsense", b"-----BEGIN CERTIFICATE-----\n"])
def test_an_authority_that_is_none_is_told(content: bytes) -> None:
    with pytest.raises(Misconfigured, match="certificate-authority-data holds no certificate in PEM form"):
        tls_context(Access("test", "https://h", authority=data(content)), None)


def test_an_encrypted_key_is_refused_without_asking_for_its_password() -> None:
    locked = CLIENT.signer[1].private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.BestAvailableEncryption(b"password"),
    )
    with pytest.raises(Misconfigured, match="unencrypted private key"):
        tls_context(Access("test", "https://h"), Certificate(data(CLIENT.certificate), data(locked)))


def test_plain_text_where_tls_was_meant_is_told(tmp_path: Path) -> None:
    with serving(Naming()) as server, pytest.raises(ApiError, match="no connection to https://"):
        asked(Access("test", server.url.replace("http:", "https:")))


def test_no_warning_comes_from_the_ssl_module() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        tls_context(Access("test", "https://h", verify=False), None)
