"""Certificates: always valid, renewed in time, verified by clients with yesterday's bundle."""

from __future__ import annotations

import base64
import copy
import ssl
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from typing import Any
from weakref import WeakKeyDictionary

import pytest
from cryptography import x509
from cryptography.x509.verification import PolicyBuilder, Store

from bayplan.dialects.api import Verb
from bayplan.dialects.errors import Unreachable
from bayplan.runtime.core.api_object import WriteConflict
from bayplan.runtime.core.clock import VirtualClock
from bayplan.runtime.webhooks.certificate_rotation import (
    DEFINITION,
    LOOK_SECONDS,
    MUTATING,
    RETRY_SECONDS,
    CertificateKeeper,
    trusting,
)
from bayplan.runtime.webhooks.certificates import (
    Certificates,
    Served,
    is_due,
    read,
    read_authorities,
    reload,
    renewed,
    server_context,
)

NAMES = ("bayplan-webhooks.bayplan-system.svc", "127.0.0.1")
DAY = 86400.0
NOW = 1_800_000_000.0


def verify(certificates: Certificates | Served, bundle: bytes, now: float, name: str = NAMES[0]) -> None:
    """As a client would; raises if the certificate cannot be trusted."""
    store = Store(x509.load_pem_x509_certificates(bundle))
    moment = datetime.fromtimestamp(now, UTC)
    verifier = PolicyBuilder().store(store).time(moment).build_server_verifier(x509.DNSName(name))
    assert certificates.serving is not None
    verifier.verify(certificates.serving.certificate, [])


def test_the_first_ones_are_good_at_once_and_for_slow_clocks() -> None:
    made = renewed(None, NAMES, NOW).served
    for moment in (NOW - 240, NOW, NOW + 59 * DAY):
        verify(made, made.bundle, moment)
    with pytest.raises(x509.verification.VerificationError):
        verify(made, made.bundle, NOW, "elsewhere.svc")
    assert made.expires == pytest.approx(NOW + 90 * DAY, abs=1)


def test_nothing_changes_while_nothing_is_due() -> None:
    made = renewed(None, NAMES, NOW)
    assert renewed(made, NAMES, NOW) is made
    assert renewed(made, tuple(reversed(NAMES)), NOW + 59 * DAY) is made


def test_a_secret_gives_back_what_was_put_in() -> None:
    made = renewed(None, NAMES, NOW)
    served, authorities = made.served.data(), made.data()
    assert set(served) == {"ca.crt", "tls.crt", "tls.key"} and set(authorities) == {"ca.crt", "ca.key"}
    again = read({"data": served})
    assert again is not None and again.data() == served
    both = Certificates(read_authorities({"data": authorities}), again.serving)
    assert both.data() == authorities and renewed(both, NAMES, NOW + 1) is both


def test_what_is_due_can_be_told_without_the_key_that_signs() -> None:
    made, later = renewed(None, NAMES, NOW), NOW
    for _ in range(900):
        later += DAY
        assert is_due(made.served, NAMES, later) == (renewed(made, NAMES, later) is not made)
        made = renewed(made, NAMES, later)
    assert is_due(made.served, ("elsewhere.svc",), later)


def test_ten_years_without_a_moment_of_distrust() -> None:
    certificates = renewed(None, NAMES, NOW)
    yesterday = {certificates.served.bundle}
    serving, authorities = {certificates.served.serving.pem}, {certificates.authorities[0].pem}
    now = NOW
    for day in range(3650):
        now += DAY
        served_before = certificates
        certificates = renewed(certificates, NAMES, now)
        if certificates is not served_before or day % 30 == 0:
            for bundle in (*yesterday, certificates.served.bundle):
                verify(certificates, bundle, now)  # a bundle of yesterday, a certificate of today
            verify(served_before, certificates.served.bundle, now)  # and the other way round
        assert certificates.served.expires - now > 29 * DAY
        assert len(certificates.authorities) <= 2
        yesterday = {certificates.served.bundle}
        serving.add(certificates.served.serving.pem)
        authorities |= {one.pem for one in certificates.authorities}
    assert len(serving) >= 3650 // 60
    assert len(authorities) >= 5


def test_other_names_make_another_certificate_by_the_same_authority() -> None:
    made = renewed(None, NAMES, NOW)
    other = renewed(made, ("elsewhere.svc",), NOW)
    assert other.authorities == made.authorities
    verify(other, made.served.bundle, NOW, "elsewhere.svc")


def test_after_a_long_sleep_everything_is_new() -> None:
    made = renewed(None, NAMES, NOW)
    later = renewed(made, NAMES, NOW + 2000 * DAY)
    verify(later, later.served.bundle, NOW + 2000 * DAY)
    assert len(later.authorities) == 1 and later.authorities != made.authorities


def test_asleep_until_the_authority_is_nearly_over() -> None:
    made = renewed(None, NAMES, NOW)
    now = NOW + 725 * DAY
    later = renewed(made, NAMES, now)
    verify(later, made.served.bundle, now)  # no client knows the new CA yet
    assert len(later.authorities) == 2 and later.served.serving.ends <= later.authorities[1].ends
    settled = renewed(later, NAMES, now + 1.1 * DAY)
    verify(settled, later.served.bundle, now + 80 * DAY)


@pytest.mark.parametrize("name", ["ca.crt", "tls.crt", "tls.key"])
@pytest.mark.parametrize("value", [None, "", "%%%", base64.b64encode(b"rubbish").decode()])
def test_what_cannot_be_read_is_nothing(name: str, value: str | None) -> None:
    made = renewed(None, NAMES, NOW)
    data: dict[str, Any] = {**made.served.data(), name: value}
    assert read({"data": data}) is None
    for key in ("ca.crt", "ca.key"):
        assert read_authorities({"data": {**made.data(), key: value}}) == ()


def test_a_key_of_another_certificate_is_not_used() -> None:
    one, other = renewed(None, NAMES, NOW), renewed(None, NAMES, NOW)
    assert read({"data": {**one.served.data(), "tls.key": other.served.data()["tls.key"]}}) is None
    assert read_authorities({"data": {**one.data(), "ca.key": other.data()["ca.key"]}}) == ()


@pytest.mark.parametrize("secret", [None, {}, {"data": None}, {"data": {}}])
def test_an_empty_secret_is_nothing(secret: dict[str, Any] | None) -> None:
    assert read(secret) is None


def test_a_certificate_of_a_foreign_authority_is_replaced() -> None:
    one, other = renewed(None, NAMES, NOW), renewed(None, NAMES, NOW)
    mixed = Certificates(one.authorities, other.serving)
    verify(renewed(mixed, NAMES, NOW), one.served.bundle, NOW)


def test_keys_are_not_shown() -> None:
    assert "key=" not in repr(renewed(None, NAMES, NOW))


def handshake(server: ssl.SSLContext, bundle: bytes) -> bytes:
    """The certificate shown to a client that trusts the bundle."""
    client = ssl.create_default_context(cadata=bundle.decode())
    to_server, to_client = ssl.MemoryBIO(), ssl.MemoryBIO()
    ours = client.wrap_bio(to_client, to_server, server_hostname="127.0.0.1")
    theirs = server.wrap_bio(to_server, to_client, server_side=True)
    for side in (ours, theirs, ours, theirs):
        try:
            side.do_handshake()
        except ssl.SSLWantReadError:
            continue
    shown = ours.getpeercert(binary_form=True)
    assert shown is not None
    return ssl.DER_cert_to_PEM_cert(shown).encode()


def test_a_running_server_takes_a_new_certificate() -> None:
    now = datetime.now(UTC).timestamp()
    first = renewed(None, NAMES, now)
    one, other = first.served, renewed(first, (*NAMES, "more"), now).served
    context = server_context(one)
    assert handshake(context, one.bundle) == one.serving.pem
    reload(context, other)
    assert handshake(context, one.bundle) == other.serving.pem != one.serving.pem


# ── stored in Secrets that replicas share ─────────────────────────────────────────────────────────


class Secret:
    """A Secret under optimistic locking."""

    def __init__(self, body: dict[str, Any] | None = None) -> None:
        self.body = body
        self.version = 1
        self.writes = self.reads = 0
        self.before_write: Callable[[], None] = lambda: None

    def get(self, seconds: float) -> dict[str, Any] | None:
        self.reads += 1
        if self.body is None:
            return None
        return copy.deepcopy({**self.body, "metadata": {"resourceVersion": str(self.version)}})

    def create(self, body: Mapping[str, Any], seconds: float) -> dict[str, Any]:
        self.before_write()
        if self.body is not None:
            raise WriteConflict
        return self._keep(body)

    def update(self, body: Mapping[str, Any], seconds: float) -> dict[str, Any]:
        self.before_write()
        if self.body is None or body["metadata"]["resourceVersion"] != str(self.version):
            raise WriteConflict
        return self._keep(body)

    def _keep(self, body: Mapping[str, Any]) -> dict[str, Any]:
        self.body, self.version, self.writes = dict(body), self.version + 1, self.writes + 1
        return self.body


AUTHORITIES: WeakKeyDictionary[Secret, Secret] = WeakKeyDictionary()
"""The second Secret, shared by the same replicas."""


def keeper(
    secret: Secret, clock: VirtualClock, notes: list[str] | None = None, authority: Secret | None = None
) -> tuple[CertificateKeeper, list[Any]]:
    used: list[Any] = []
    note = notes.append if notes is not None else lambda sentence: None
    kept = AUTHORITIES.setdefault(secret, Secret()) if authority is None else authority
    return CertificateKeeper(secret, kept, NAMES, clock, used.append, note), used


@pytest.mark.parametrize("empty", [None, {}, {"data": {"other": "eA=="}, "type": "Opaque"}])
def test_replicas_agree_on_the_first_certificate(empty: dict[str, Any] | None) -> None:
    secret, clock = Secret(copy.deepcopy(empty)), VirtualClock(wall=NOW)
    (a, used_a), (b, used_b) = keeper(secret, clock), keeper(secret, clock)
    assert a.step() == b.step() == LOOK_SECONDS
    assert secret.writes == 1 and len(used_a) == len(used_b) == 1
    assert used_a[0].data() == used_b[0].data()
    assert secret.body is not None
    assert {**secret.body["data"], **((empty or {}).get("data") or {})} == secret.body["data"], (
        "others' keys stay"
    )


def test_when_two_make_one_at_the_same_time_the_first_wins() -> None:
    secret, clock = Secret(), VirtualClock(wall=NOW)
    (a, used_a), (b, used_b) = keeper(secret, clock), keeper(secret, clock)

    def other_is_faster() -> None:
        secret.before_write = lambda: None
        b.step()

    secret.before_write = other_is_faster
    assert a.step() == 1.0 and used_a == []
    a.step()
    assert used_a[0].data() == used_b[0].data() and secret.writes == 1


def test_renewed_by_one_and_used_by_all() -> None:
    secret, clock = Secret(), VirtualClock(wall=NOW)
    (a, used_a), (b, used_b) = keeper(secret, clock), keeper(secret, clock)
    a.step()
    b.step()
    clock.advance(61 * DAY)
    a.step()
    b.step()
    a.step()
    assert [len(used_a), len(used_b), secret.writes] == [2, 2, 2]
    assert used_a[1].data() == used_b[1].data() != used_a[0].data()


def test_trouble_keeps_the_old_one_in_use() -> None:
    secret, clock, notes = Secret(), VirtualClock(wall=NOW), list[str]()
    one, used = keeper(secret, clock, notes)
    one.step()

    def unreachable(seconds: float) -> dict[str, Any]:
        raise Unreachable("no answer")

    secret.get = unreachable  # type: ignore[method-assign]
    assert one.step() == RETRY_SECONDS
    assert len(used) == 1 and "no answer" in notes[-1]


def test_an_unreadable_secret_is_made_anew_and_that_is_said() -> None:
    secret, notes = Secret({"data": {"tls.crt": "rubbish"}}), list[str]()
    one, used = keeper(secret, VirtualClock(wall=NOW), notes)
    one.step()
    assert len(used) == 1 and "unreadable" in notes[0]


def test_the_key_that_signs_is_kept_apart_and_read_only_to_renew() -> None:
    secret, authority, clock = Secret(), Secret(), VirtualClock(wall=NOW)
    one, _ = keeper(secret, clock, None, authority)
    one.step()
    assert secret.body is not None and set(secret.body["data"]) == {"ca.crt", "tls.crt", "tls.key"}
    assert authority.body is not None and set(authority.body["data"]) == {"ca.crt", "ca.key"}
    for _ in range(3):
        one.step()
    assert authority.reads == 1
    clock.advance(61 * DAY)
    one.step()
    assert [authority.reads, authority.writes, secret.writes] == [2, 1, 2]


def test_a_key_that_an_earlier_version_kept_beside_the_certificate_is_moved() -> None:
    made = renewed(None, NAMES, NOW)
    secret, authority = Secret({"data": {**made.data(), **made.served.data()}}), Secret({"type": "Opaque"})
    one, used = keeper(secret, VirtualClock(wall=NOW), None, authority)
    one.step()
    assert used[0].data() == made.served.data(), "the same certificate: nothing is distrusted"
    assert secret.body is not None and secret.body["data"] == made.served.data()
    assert authority.body is not None and authority.body["data"] == made.data()
    one.step()
    assert secret.writes == authority.writes == 1


def test_a_lost_key_is_replaced_when_it_is_needed() -> None:
    secret, authority, clock = Secret(), Secret(), VirtualClock(wall=NOW)
    one, used = keeper(secret, clock, None, authority)
    one.step()
    authority.body = None
    one.step()
    assert len(used) == 1
    clock.advance(61 * DAY)
    one.step()
    verify(used[1], used[1].bundle, clock.wall())


# ── caBundles ──────────────────────────────────────────────────────────────────────────────────────

METADATA = {"name": "bayplan", "uid": "u1", "resourceVersion": "5", "labels": {"a": "b"}}


def test_a_webhook_configuration_gets_the_bundle_under_its_version() -> None:
    hooks = [{"name": n, "clientConfig": {"service": {"name": "s"}}, "failurePolicy": "Fail"} for n in "ab"]
    write = trusting(MUTATING, {"metadata": METADATA, "webhooks": hooks}, b"PEM")
    assert write is not None
    assert (write.verb, write.name, write.uid, write.version) == (Verb.UPDATE, "bayplan", "u1", "5")
    assert [hook["clientConfig"] for hook in write.body["webhooks"]] == [
        {"service": {"name": "s"}, "caBundle": "UEVN"},
        {"service": {"name": "s"}, "caBundle": "UEVN"},
    ]
    assert write.body["webhooks"][0]["failurePolicy"] == "Fail" and write.body["metadata"] == METADATA
    assert trusting(MUTATING, write.body, b"PEM") is None
    assert trusting(MUTATING, write.body, b"other") is not None
    assert trusting(MUTATING, {"metadata": METADATA}, b"PEM") is None


def test_a_definition_gets_the_bundle_if_it_converts_by_webhook() -> None:
    webhook = {"conversionReviewVersions": ["v1"], "clientConfig": {"service": {"name": "s"}}}
    spec = {"group": "g", "conversion": {"strategy": "Webhook", "webhook": webhook}}
    write = trusting(DEFINITION, {"metadata": METADATA, "spec": spec}, b"PEM")
    assert write is not None
    assert write.body["spec"] == {
        "group": "g",
        "conversion": {
            "strategy": "Webhook",
            "webhook": {
                "conversionReviewVersions": ["v1"],
                "clientConfig": {"service": {"name": "s"}, "caBundle": "UEVN"},
            },
        },
    }
    assert trusting(DEFINITION, write.body, b"PEM") is None
    for conversion in ({}, {"conversion": None}, {"conversion": {"strategy": "None"}}):
        assert (
            trusting(DEFINITION, {"metadata": METADATA, "spec": {"group": "g", **conversion}}, b"PEM") is None
        )
