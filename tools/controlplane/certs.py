"""Our own certificate authority: serving certificates for loopback, client certificates for each user."""

from __future__ import annotations

import base64
import ipaddress
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

import yaml
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

VALID_FOR = timedelta(days=365)
SERVER_NAMES = ("localhost", "kubernetes", "kubernetes.default", "kubernetes.default.svc")
SERVER_ADDRESSES = ("127.0.0.1", "10.0.0.1")


@dataclass(frozen=True, slots=True)
class Authority:
    """A key that signs, and the certificate that others trust."""

    key: ec.EllipticCurvePrivateKey
    certificate: x509.Certificate

    @property
    def pem(self) -> bytes:
        return self.certificate.public_bytes(serialization.Encoding.PEM)


@dataclass(frozen=True, slots=True)
class Pair:
    """A certificate and its key, as PEM."""

    certificate: bytes
    key: bytes


def make_authority() -> Authority:
    """A new authority that lives as long as its cluster."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = _name("bayplan development cluster")
    usage = x509.KeyUsage(True, False, False, False, False, True, True, False, False)
    builder = _builder(name, name, key.public_key())
    builder = builder.add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
    builder = builder.add_extension(usage, critical=True)
    return Authority(key, builder.sign(key, hashes.SHA256()))


def server(authority: Authority) -> Pair:
    """A certificate for any server on loopback."""
    alternatives: list[x509.GeneralName] = [x509.DNSName(name) for name in SERVER_NAMES]
    alternatives += [x509.IPAddress(ipaddress.ip_address(address)) for address in SERVER_ADDRESSES]
    return _issue(authority, _name("kube-apiserver"), ExtendedKeyUsageOID.SERVER_AUTH, alternatives)


def client(authority: Authority, user: str, *groups: str) -> Pair:
    """A certificate by which the API server knows a user and its groups."""
    return _issue(authority, _name(user, *groups), ExtendedKeyUsageOID.CLIENT_AUTH, [])


def service_account_key() -> Pair:
    """The key pair that signs service account tokens; its `certificate` is the bare public key."""
    key = rsa.generate_private_key(public_exponent=65537, key_size=2048)
    public = key.public_key().public_bytes(
        serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo
    )
    return Pair(public, _key_pem(key))


def kubeconfig(server_url: str, authority: Authority, user: str, pair: Pair) -> str:
    """A kubeconfig that needs no other file and verifies the server."""
    cluster = {"server": server_url, "certificate-authority-data": _base64(authority.pem)}
    identity = {"client-certificate-data": _base64(pair.certificate), "client-key-data": _base64(pair.key)}
    document = {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": "bayplan-dev", "cluster": cluster}],
        "users": [{"name": user, "user": identity}],
        "contexts": [{"name": user, "context": {"cluster": "bayplan-dev", "user": user}}],
        "current-context": user,
    }
    return yaml.safe_dump(document, sort_keys=False)


def write_private(path: Path, content: bytes | str) -> Path:
    """Write a file that only its owner can read."""
    path.parent.mkdir(parents=True, exist_ok=True)
    data = content.encode() if isinstance(content, str) else content
    path.touch(mode=0o600)
    path.write_bytes(data)
    return path


def _issue(
    authority: Authority,
    subject: x509.Name,
    purpose: x509.ObjectIdentifier,
    alternatives: list[x509.GeneralName],
) -> Pair:
    key = ec.generate_private_key(ec.SECP256R1())
    builder = _builder(subject, authority.certificate.subject, key.public_key())
    builder = builder.add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
    builder = builder.add_extension(x509.ExtendedKeyUsage([purpose]), critical=False)
    builder = builder.add_extension(
        x509.AuthorityKeyIdentifier.from_issuer_public_key(authority.key.public_key()), critical=False
    )
    if alternatives:
        builder = builder.add_extension(x509.SubjectAlternativeName(alternatives), critical=False)
    certificate = builder.sign(authority.key, hashes.SHA256())
    return Pair(certificate.public_bytes(serialization.Encoding.PEM), _key_pem(key))


def _builder(
    subject: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePublicKey
) -> x509.CertificateBuilder:
    now = datetime.now(UTC)
    builder = x509.CertificateBuilder().subject_name(subject).issuer_name(issuer).public_key(key)
    builder = builder.serial_number(x509.random_serial_number())
    builder = builder.not_valid_before(now - timedelta(minutes=5)).not_valid_after(now + VALID_FOR)
    return builder.add_extension(x509.SubjectKeyIdentifier.from_public_key(key), critical=False)


def _name(common: str, *organizations: str) -> x509.Name:
    parts = [x509.NameAttribute(NameOID.ORGANIZATION_NAME, value) for value in organizations]
    return x509.Name([*parts, x509.NameAttribute(NameOID.COMMON_NAME, common)])


def _key_pem(key: ec.EllipticCurvePrivateKey | rsa.RSAPrivateKey) -> bytes:
    return key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )


def _base64(data: bytes) -> str:
    return base64.b64encode(data).decode()
