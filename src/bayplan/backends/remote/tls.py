"""The TLS context of an access: trusted authorities and client certificate."""

from __future__ import annotations

import os
import ssl
import tempfile
from contextlib import suppress
from pathlib import Path

from bayplan.backends.remote.access import Access, Certificate, InlineOrFile
from bayplan.dialects.errors import Misconfigured


def tls_context(access: Access, certificate: Certificate | None) -> ssl.SSLContext | None:
    """What to verify the server with; None for a server without TLS."""
    if not access.server.startswith("https:"):
        return None
    if access.authority is None:
        context = ssl.create_default_context()
    else:
        context = ssl.create_default_context(cadata=_authority(access.authority))
    # Python 3.13 also asks for extensions that the authorities of many clusters lack; client-go does not.
    context.verify_flags &= ~ssl.VERIFY_X509_STRICT
    context.set_alpn_protocols(["http/1.1"])
    if not access.verify:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    if certificate is not None:
        _show(context, certificate)
    return context


def _authority(material: InlineOrFile) -> str:
    text = material.read().decode("ascii", errors="replace")
    try:
        if "BEGIN" not in text:  # nothing at all would mean: whom the system trusts
            raise ValueError
        ssl.create_default_context(cadata=text)
    except (ssl.SSLError, ValueError):
        raise Misconfigured(
            f"{material.label} holds no certificate in PEM form; give the authority that signed the server's"
        ) from None
    return text


def _show(context: ssl.SSLContext, certificate: Certificate) -> None:
    """Load a certificate and its key, which the ssl module takes from files only."""
    held: list[Path] = []
    try:
        chain, key = (_file(material, held) for material in (certificate.certificate, certificate.key))
        context.load_cert_chain(chain, key, password="")  # never ask at the terminal
    except (ssl.SSLError, OSError) as wrong:
        reason = getattr(wrong, "reason", None) or wrong.strerror or "not PEM"
        raise Misconfigured(
            f"{certificate.certificate.label} and its key do not work ({reason}); give a certificate and its"
            " unencrypted private key in PEM form"
        ) from None
    finally:
        for path in held:
            with suppress(OSError):
                path.unlink()


def _file(material: InlineOrFile, held: list[Path]) -> Path:
    if material.path is not None:
        material.read()  # a better sentence than the ssl module has
        return material.path
    descriptor, name = tempfile.mkstemp(prefix="bayplan-")  # readable by us alone
    held.append(Path(name))
    with os.fdopen(descriptor, "wb") as file:
        file.write(material.read())
    return Path(name)
