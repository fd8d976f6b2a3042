"""The webhook server's certificate: signed by our own CA, stored in Secrets, renewed in time.

The CA key is stored apart from what is served: a serving replica reads it only when it renews.

A new CA is published long before it signs, and an old one stays published until it expires: a client with a
bundle that is a day old can still verify a certificate served today.
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
"""How long a new CA is published before it signs."""
BACKDATED = timedelta(minutes=5)
"""The clock of the client may be slow."""

AUTHORITY_KEY = "ca.key"
_SERVED = ("ca.crt", "tls.crt", "tls.key")
_SIGNING = ("ca.crt", AUTHORITY_KEY)


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
class Served:
    """What a replica serves, with the CAs that clients trust, the newest first."""

    trusted: tuple[x509.Certificate, ...]
    serving: Pair

    @property
    def bundle(self) -> bytes:
        """For the caBundle of webhook configurations."""
        return b"".join(one.public_bytes(serialization.Encoding.PEM) for one in self.trusted)

    @property
    def expires(self) -> float:
        """When the serving certificate expires, in seconds since 1970."""
        return self.serving.ends.timestamp()

    def data(self) -> dict[str, str]:
        """As the `data` of a Secret."""
        return _encoded(_SERVED, (self.bundle, self.serving.pem, self.serving.key_pem))


@dataclass(frozen=True, slots=True)
class Certificates:
    """What is served, and the CAs with their private keys, the newest first."""

    authorities: tuple[Pair, ...]
    serving: Pair | None

    @property
    def served(self) -> Served:
        """Without the keys of the CAs."""
        assert self.serving is not None
        return Served(tuple(one.certificate for one in self.authorities), self.serving)

    def data(self) -> dict[str, str]:
        """The CAs as the `data` of a Secret."""
        bundle = b"".join(authority.pem for authority in self.authorities)
        keys = b"".join(authority.key_pem for authority in self.authorities)
        return _encoded(_SIGNING, (bundle, keys))


def read(secret: Mapping[str, Any] | None) -> Served | None:
    """The served certificate in a Secret; None if there is none, or nothing usable."""
    try:
        bundle, certificate, key = _decoded(secret, _SERVED)
        trusted = tuple(x509.load_pem_x509_certificates(bundle))
        return Served(trusted, _pair(x509.load_pem_x509_certificate(certificate), key))
    except (KeyError, TypeError, ValueError, binascii.Error):
        return None


def read_authorities(secret: Mapping[str, Any] | None) -> tuple[Pair, ...]:
    """The CAs with their keys in a Secret; none if there is nothing usable."""
    try:
        bundle, keys = _decoded(secret, _SIGNING)
        found = x509.load_pem_x509_certificates(bundle)
        return tuple(_pair(one, part) for one, part in zip(found, _split_keys(keys), strict=True))
    except (KeyError, TypeError, ValueError, binascii.Error):
        return ()


def is_due(served: Served, names: Sequence[str], now: float) -> bool:
    """Whether a renewal is due, as far as can be told without the keys of the CAs."""
    moment = _moment(now)
    trusted = [one for one in served.trusted if one.not_valid_after_utc > moment]
    if len(trusted) != len(served.trusted) or _is_late(trusted, moment):
        return True
    return not _good(served.serving, _signer(trusted, moment), names, moment)


def renewed(current: Certificates | None, names: Sequence[str], now: float) -> Certificates:
    """The certificates to use from now on; the same object if nothing is due. `now` is wall time."""
    moment = _moment(now)
    authorities = [one for one in (current.authorities if current else ()) if one.ends > moment]
    if _is_late([one.certificate for one in authorities], moment):
        authorities.insert(0, _authority(moment))
    known = {one.certificate: one for one in authorities}
    signer = known[_signer(known, moment)]
    serving = current.serving if current else None
    if serving is None or not _good(serving, signer.certificate, names, moment):
        serving = _serving(signer, names, moment)
    if current and serving is current.serving and tuple(authorities) == current.authorities:
        return current
    return Certificates(tuple(authorities), serving)


def server_context(certificates: Served) -> ssl.SSLContext:
    """A TLS context that serves them."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    reload(context, certificates)
    return context


def reload(context: ssl.SSLContext, certificates: Served) -> None:
    """Serve new certificates from the next connection on; open connections keep theirs."""
    with tempfile.TemporaryDirectory(prefix="bayplan-") as folder:  # mode 0700, and deleted at once
        path = Path(folder) / "serving.pem"
        path.write_bytes(certificates.serving.pem + certificates.serving.key_pem)
        context.load_cert_chain(path)


def _moment(now: float) -> datetime:
    return datetime.fromtimestamp(now, UTC).replace(microsecond=0)


def _is_late(authorities: Sequence[x509.Certificate], moment: datetime) -> bool:
    """Whether a new CA has to be published."""
    return not authorities or authorities[0].not_valid_after_utc < moment + SERVING_DAYS + 2 * SETTLE


def _signer(authorities: Iterable[x509.Certificate], moment: datetime) -> x509.Certificate:
    """The newest CA that all clients know by now, or else the oldest."""
    listed = list(authorities)
    settled = [one for one in listed if one.not_valid_before_utc <= moment - SETTLE - BACKDATED]
    return settled[0] if settled else listed[-1]


def _good(serving: Pair, signer: x509.Certificate, names: Sequence[str], moment: datetime) -> bool:
    try:
        serving.certificate.verify_directly_issued_by(signer)
        extension = serving.certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName)
    except (InvalidSignature, ValueError, TypeError, x509.ExtensionNotFound):
        return False
    return serving.ends - moment > RENEW_BEFORE and set(extension.value) == set(_alternatives(names))


def _authority(moment: datetime) -> Pair:
    key = ec.generate_private_key(ec.SECP256R1())
    serial = x509.random_serial_number()
    name = _name(f"bayplan webhooks {serial % 16**8:08x}")  # two CAs must not have the same name
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


def _encoded(names: Sequence[str], values: Sequence[bytes]) -> dict[str, str]:
    return {name: base64.b64encode(value).decode() for name, value in zip(names, values, strict=True)}


def _decoded(secret: Mapping[str, Any] | None, names: Sequence[str]) -> list[bytes]:
    data = (secret or {}).get("data") or {}
    return [base64.b64decode(data[name], validate=True) for name in names]


def _split_keys(keys: bytes) -> list[bytes]:
    end = b"-----END PRIVATE KEY-----\n"
    return [part + end for part in keys.split(end) if part]
