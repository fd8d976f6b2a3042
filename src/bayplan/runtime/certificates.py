"""The webhook server's certificate: signed by an authority of our own, kept in a Secret, renewed in time.

A new authority is published long before it signs anything, and an old one stays published until it
expires: whoever holds a bundle that is a day old can still verify whoever serves a certificate of today.
"""

from __future__ import annotations

import base64
import binascii
import ipaddress
import ssl
import tempfile
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from cryptography import x509
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

AUTHORITY_DAYS = timedelta(days=730)
SERVING_DAYS = timedelta(days=90)
RENEW_BEFORE = timedelta(days=30)
SETTLE = timedelta(days=1)
"""How long a new authority is published before it signs."""
BACKDATED = timedelta(minutes=5)
"""The clock of whoever verifies may be slow."""

_KEYS = ("ca.crt", "ca.key", "tls.crt", "tls.key")


@dataclass(frozen=True, slots=True)
class Pair:
    """A certificate and its private key."""

    certificate: x509.Certificate
    key: ec.EllipticCurvePrivateKey = field(repr=False)

    @property
    def pem(self) -> bytes:
        return self.certificate.public_bytes(serialization.Encoding.PEM)

    @property
    def key_pem(self) -> bytes:
        form, plain = serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
        return self.key.private_bytes(serialization.Encoding.PEM, form, plain)

    @property
    def ends(self) -> datetime:
        return self.certificate.not_valid_after_utc


@dataclass(frozen=True, slots=True)
class Certificates:
    """What is served, and the authorities that clients are to trust, the newest first."""

    authorities: tuple[Pair, ...]
    serving: Pair

    @property
    def bundle(self) -> bytes:
        """For the caBundle of webhook configurations."""
        return b"".join(authority.pem for authority in self.authorities)

    @property
    def expires(self) -> float:
        """When the serving certificate ends, in seconds since 1970."""
        return self.serving.ends.timestamp()

    def data(self) -> dict[str, str]:
        """As the `data` of a Secret."""
        keys = b"".join(authority.key_pem for authority in self.authorities)
        values = (self.bundle, keys, self.serving.pem, self.serving.key_pem)
        return {name: base64.b64encode(value).decode() for name, value in zip(_KEYS, values, strict=True)}


def read(secret: Mapping[str, Any] | None) -> Certificates | None:
    """What a Secret holds; None if there is none, or nothing usable in it."""
    data = (secret or {}).get("data") or {}
    try:
        bundle, keys, certificate, key = (base64.b64decode(data[name], validate=True) for name in _KEYS)
        authorities = x509.load_pem_x509_certificates(bundle)
        pairs = [_pair(one, part) for one, part in zip(authorities, _split_keys(keys), strict=True)]
        serving = _pair(x509.load_pem_x509_certificate(certificate), key)
    except (KeyError, TypeError, ValueError, binascii.Error):
        return None
    return Certificates(tuple(pairs), serving)


def renewed(current: Certificates | None, names: Sequence[str], now: float) -> Certificates:
    """The certificates to use from now on; the very same if nothing is due. `now` is wall time."""
    moment = datetime.fromtimestamp(now, UTC).replace(microsecond=0)
    authorities = [one for one in (current.authorities if current else ()) if one.ends > moment]
    if not authorities or authorities[0].ends < moment + SERVING_DAYS + 2 * SETTLE:
        authorities.insert(0, _authority(moment))
    signer = _signer(authorities, moment)
    serving = current.serving if current else None
    if serving is None or not _good(serving, signer, names, moment):
        serving = _serving(signer, names, moment)
    if current and serving is current.serving and tuple(authorities) == current.authorities:
        return current
    return Certificates(tuple(authorities), serving)


def server_context(certificates: Certificates) -> ssl.SSLContext:
    """A TLS context that serves them."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    reload(context, certificates)
    return context


def reload(context: ssl.SSLContext, certificates: Certificates) -> None:
    """Serve others from the next connection on; connections that are open keep what they have."""
    with tempfile.TemporaryDirectory(prefix="bayplan-") as folder:  # mode 0700, and gone in a moment
        path = Path(folder) / "serving.pem"
        path.write_bytes(certificates.serving.pem + certificates.serving.key_pem)
        context.load_cert_chain(path)


def _signer(authorities: Iterable[Pair], moment: datetime) -> Pair:
    """The newest that everybody knows by now, or else the oldest."""
    listed = list(authorities)
    settled = [one for one in listed if one.certificate.not_valid_before_utc <= moment - SETTLE - BACKDATED]
    return settled[0] if settled else listed[-1]


def _good(serving: Pair, signer: Pair, names: Sequence[str], moment: datetime) -> bool:
    try:
        serving.certificate.verify_directly_issued_by(signer.certificate)
        extension = serving.certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName)
    except (InvalidSignature, ValueError, TypeError, x509.ExtensionNotFound):
        return False
    return serving.ends - moment > RENEW_BEFORE and set(extension.value) == set(_alternatives(names))


def _authority(moment: datetime) -> Pair:
    key = ec.generate_private_key(ec.SECP256R1())
    serial = x509.random_serial_number()
    name = _name(f"bayplan webhooks {serial % 16**8:08x}")  # two authorities must not look alike
    builder = _builder(name, name, key, (moment - BACKDATED, moment + AUTHORITY_DAYS)).serial_number(serial)
    builder = builder.add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
    usage = x509.KeyUsage(False, False, False, False, False, True, True, False, False)
    return Pair(builder.add_extension(usage, critical=True).sign(key, hashes.SHA256()), key)


def _serving(signer: Pair, names: Sequence[str], moment: datetime) -> Pair:
    key = ec.generate_private_key(ec.SECP256R1())
    until = min(moment + SERVING_DAYS, signer.ends)
    issuer = signer.certificate.subject
    builder = _builder(_name("bayplan webhooks"), issuer, key, (moment - BACKDATED, until))
    builder = builder.serial_number(x509.random_serial_number())
    builder = builder.add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
    builder = builder.add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]), critical=False)
    builder = builder.add_extension(x509.SubjectAlternativeName(_alternatives(names)), critical=False)
    authority = x509.AuthorityKeyIdentifier.from_issuer_public_key(signer.key.public_key())
    return Pair(builder.add_extension(authority, critical=False).sign(signer.key, hashes.SHA256()), key)


def _builder(
    subject: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePrivateKey, valid: tuple[datetime, datetime]
) -> x509.CertificateBuilder:
    builder = x509.CertificateBuilder().subject_name(subject).issuer_name(issuer)
    builder = builder.public_key(key.public_key()).not_valid_before(valid[0]).not_valid_after(valid[1])
    identifier = x509.SubjectKeyIdentifier.from_public_key(key.public_key())
    return builder.add_extension(identifier, critical=False)


def _alternatives(names: Sequence[str]) -> list[x509.GeneralName]:
    return [_alternative(name) for name in names]


def _alternative(name: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(name))
    except ValueError:
        return x509.DNSName(name)


def _name(common: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, common)])


def _pair(certificate: x509.Certificate, key: bytes) -> Pair:
    loaded = serialization.load_pem_private_key(key, password=None)
    if not isinstance(loaded, ec.EllipticCurvePrivateKey) or loaded.public_key() != certificate.public_key():
        raise ValueError("the key is not that of the certificate")
    return Pair(certificate, loaded)


def _split_keys(keys: bytes) -> list[bytes]:
    end = b"-----END PRIVATE KEY-----\n"
    return [part + end for part in keys.split(end) if part]
