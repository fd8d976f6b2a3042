"""Reviews and responses: all handlers are called, and all problems are reported."""

from __future__ import annotations

import json
import re
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bayplan.dialects.kube.fields.reader import FieldError
from bayplan.runtime.core.containment import Containment
from bayplan.runtime.webhooks.admission_review import (
    OBJECT_BYTES,
    Handlers,
    Malformed,
    Object,
    Registry,
    admit,
    convert,
)
from tests.support.webhook_reviews import (
    JOB,
    at_least_one,
    broken,
    conversion,
    deep,
    label,
    patched,
    registry,
    review,
    suspend,
    thing,
)

# ── mutating ───────────────────────────────────────────────────────────────────────────────────────


def test_all_handlers_have_their_say_in_one_patch() -> None:
    answer = admit(review(), registry(), mutating=True)
    assert answer.body["apiVersion"] == "admission.k8s.io/v1" and answer.body["kind"] == "AdmissionReview"
    assert (
        answer.body["response"]["uid"] == "u-1" and answer.verdict == "patched" and answer.resource == "jobs"
    )
    assert patched(JOB, answer.body) == {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": "j", "labels": {"was": "new"}},
        "spec": {"parallelism": 2, "suspend": True},
    }


def test_what_is_as_it_should_be_is_left_alone() -> None:
    once = patched(JOB, admit(review(), registry(), mutating=True).body)
    answer = admit(review(new=once), registry(), mutating=True)
    assert answer.body["response"] == {"uid": "u-1", "allowed": True} and answer.verdict == "allowed"


def test_operation_subresource_and_old_object_are_told_apart() -> None:
    update = admit(review("UPDATE", JOB, JOB), registry(), mutating=True)
    assert patched(JOB, update.body)["metadata"]["labels"] == {"was": "old"}
    status = admit(review("UPDATE", JOB, JOB, subResource="status"), registry(), mutating=True)
    assert "suspend" not in patched(JOB, status.body)["spec"] and status.resource == "jobs/status"
    delete = admit(review("DELETE", None, JOB), registry(), mutating=True)
    assert delete.verdict == "allowed"
    unregistered = admit(
        review(resource={"group": "", "version": "v1", "resource": "jobs"}), registry(), mutating=True
    )
    assert unregistered.verdict == "allowed"


WORDS = st.sampled_from(["a", "b", "a/b", "~", "~1", "ä"])
JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-2, 2) | WORDS,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(WORDS, inner, max_size=4),
    max_leaves=12,
)
OBJECTS = st.dictionaries(WORDS, JSON, max_size=4)


@settings(max_examples=100, deadline=None)
@given(OBJECTS, OBJECTS)
def test_the_patch_makes_what_the_handler_wanted(before: Object, wanted: Object) -> None:
    made = Registry()
    made.add("batch", "jobs", Handlers(mutate=(lambda new, old: wanted,)))
    answer = admit(review(new=before), made, mutating=True).body
    assert json.dumps(patched(before, answer), sort_keys=True) == json.dumps(wanted, sort_keys=True)


# ── validating ─────────────────────────────────────────────────────────────────────────────────────


def test_everything_wrong_is_said_at_once() -> None:
    new = {**JOB, "spec": {"parallelism": 0, "queue": "b"}}
    old = {**JOB, "spec": {"parallelism": 1, "queue": "a"}}
    answer = admit(review("UPDATE", new, old), registry(), mutating=False)
    response = answer.body["response"]
    assert answer.verdict == "denied" and not response["allowed"] and response["uid"] == "u-1"
    assert response["status"]["code"] == 422 and response["status"]["reason"] == "Invalid"
    assert response["status"]["message"] == (
        'spec.parallelism: 0: must be at least 1; spec.queue: "b": must not change'
    )
    assert [cause["field"] for cause in response["status"]["details"]["causes"]] == [
        "spec.parallelism",
        "spec.queue",
    ]


def test_what_is_right_is_allowed_and_deletes_are_seen() -> None:
    assert admit(review(), registry(), mutating=False).body["response"] == {"uid": "u-1", "allowed": True}
    assert admit(review("DELETE", None, JOB), registry(), mutating=False).verdict == "denied"


# ── errors ─────────────────────────────────────────────────────────────────────────────────────────


def test_a_bug_in_a_handler_closes_or_opens_as_configured() -> None:
    pods: dict[str, Any] = {"resource": {"group": "", "version": "v1", "resource": "pods"}}
    closed = admit(review(**pods), registry(), mutating=True)
    assert closed.verdict == "failed" and isinstance(closed.failure, RuntimeError)
    assert closed.body["response"]["allowed"] is False
    assert closed.body["response"]["status"]["code"] == 500
    assert re.fullmatch(
        r'bayplan could not review pods "ns/j": internal error [0-9a-f]{8}, see the log of bayplan',
        closed.body["response"]["status"]["message"],
    )
    nodes: dict[str, Any] = {"resource": {"group": "", "version": "v1", "resource": "nodes"}}
    opened = admit(review(**nodes), registry(), mutating=True)
    assert opened.verdict == "failed" and opened.body["response"]["allowed"] is True
    assert "patch" not in opened.body["response"]
    (warning,) = opened.body["response"]["warnings"]
    assert warning.startswith('bayplan could not review nodes "ns/j": internal error ')


def test_an_optional_review_is_allowed_whatever_goes_wrong() -> None:
    pods: dict[str, Any] = {"resource": {"group": "", "version": "v1", "resource": "pods"}}
    for mutating in (True, False):
        answer = admit(review(**pods), registry(), mutating=mutating, optional=True)
        assert answer.body["response"]["allowed"] is True and "patch" not in answer.body["response"]


def test_a_handler_that_no_write_depends_on_counts_as_not_asked_when_it_fails() -> None:
    def half_done(new: Object, old: Object | None) -> Object:
        new["metadata"]["labels"] = {"half": "done"}
        raise KeyError("x")

    def faulty(new: Object | None, old: Object | None) -> list[FieldError]:
        raise KeyError("z")

    def odd(new: Object) -> list[str]:
        raise KeyError("y")

    made = Registry()
    made.add("batch", "jobs", Handlers(mutate=(half_done,), validate=(faulty,), fail_open=True))
    made.add("batch", "jobs", Handlers(mutate=(suspend,), validate=(at_least_one,), advise=(odd,)))
    answer = admit(review(), made, mutating=True)
    assert answer.verdict == "failed" and len(answer.body["response"]["warnings"]) == 1
    assert patched(JOB, answer.body) == {**JOB, "spec": {"parallelism": 2, "suspend": True}}
    answer = admit(review(), made, mutating=False)
    assert answer.body["response"]["allowed"] is True and len(answer.body["response"]["warnings"]) == 2
    wrong = {**JOB, "spec": {"parallelism": 0}}
    assert admit(review(new=wrong), made, mutating=False).verdict == "denied"
    made.add("batch", "jobs", Handlers(validate=(faulty,)), ["UPDATE"])
    assert admit(review("UPDATE", JOB, JOB), made, mutating=False).body["response"]["allowed"] is False


def test_what_handlers_raise_is_logged_once_and_counted_with_its_object() -> None:
    counted, told = list[tuple[str, str]](), list[dict[str, str]]()
    containment = Containment(
        lambda sentence, error, **facts: told.append(facts), lambda where, kind: counted.append((where, kind))
    )
    pods: dict[str, Any] = {"resource": {"group": "", "version": "v1", "resource": "pods"}}
    for _ in range(2):
        answer = admit(review(**pods), registry(), mutating=True, containment=containment)
    convert(conversion(thing(bad=True)), registry(), containment)
    assert counted == [("webhook", "pods"), ("webhook", "pods"), ("webhook", "Thing")]
    assert [(one["kind"], one["object"]) for one in told] == [("pods", "ns/j"), ("Thing", "t")]
    assert told[0]["id"] in answer.body["response"]["status"]["message"]


def test_of_two_handlers_the_stricter_decides_about_bugs() -> None:
    for first, second in ((True, False), (False, True)):
        made = Registry()
        made.add("", "pods", Handlers(mutate=(broken,), fail_open=first))
        made.add("", "pods", Handlers(mutate=(label,), fail_open=second))
        assert not made.admission["", "pods", "CREATE"].fail_open


def test_a_handler_that_changes_what_it_is_given_does_no_harm() -> None:
    given_object: Object = {"metadata": {}, "spec": {}}
    registry().mutated(("batch", "jobs", "CREATE"), given_object, None)
    assert given_object == {"metadata": {}, "spec": {}}


@pytest.mark.parametrize(
    ("body", "why"),
    [
        (b"", "AdmissionReview"),
        (b"{", "truncated"),
        (b"[]", "Expected `object`"),
        (b"\xff", "AdmissionReview"),
        (b"{}", "missing required field `apiVersion`"),
        (review().replace(b"k8s.io/v1", b"k8s.io/v1beta1"), r"v1beta1.*\$.apiVersion"),
        (review().replace(b"AdmissionReview", b"Pod"), r"\$.kind"),
        (review().replace(b'"uid": "u-1", ', b""), r"missing required field `uid` - at `\$.request`"),
        (review("DANCE"), r"DANCE.*\$.request.operation"),
        (review(new=3), r"got `int` - at `\$.request.object`"),  # type: ignore[arg-type]
        (review().replace(b'"ns"', b'"\xff"'), "utf-8"),
        (review().replace(b'"j"', b"9" * 5000), "AdmissionReview"),
        (review(new=deep(150)), "nested more than 200 levels deep"),
        (review().replace(b'"uid"', b'"x": ' + b"[" * 100_000 + b', "uid"'), "nested more than 200"),
    ],
)
def test_what_is_no_review_is_refused_with_the_place(body: bytes, why: str) -> None:
    with pytest.raises(Malformed, match=why):
        admit(body, registry(), mutating=True)


# ── conversion ─────────────────────────────────────────────────────────────────────────────────────


def test_objects_are_converted_in_order_and_keep_their_identity() -> None:
    answer = convert(conversion(thing(a=1), thing("x.dev/v2", a=2)), registry())
    assert answer.verdict == "converted" and answer.resource == "Thing"
    response = json.loads(msgspec.json.encode(answer.body))["response"]
    assert response["uid"] == "u-2" and response["result"] == {"status": "Success"}
    first, second = response["convertedObjects"]
    assert first == {
        "apiVersion": "x.dev/v2",
        "kind": "Thing",
        "metadata": {"name": "t", "uid": "1", "annotations": {"from": "x.dev/v1"}},
        "spec": {"a": 1},
    }
    assert second == thing("x.dev/v2", a=2)


@pytest.mark.parametrize(
    ("objects", "why"),
    [
        ((thing(a=1), thing(bad=True)), "Thing t to x.dev/v2: spec.bad cannot be said"),
        (({**thing(), "kind": "Other"},), "Other t to x.dev/v2: there is no conversion from x.dev/v1"),
        ((thing("y.dev/v1"),), "there is no conversion from y.dev/v1"),
        (({"metadata": {}},), "to x.dev/v2"),
    ],
)
def test_a_conversion_is_of_all_or_of_none(objects: tuple[Object, ...], why: str) -> None:
    answer = convert(conversion(*objects), registry())
    assert answer.verdict == "failed"
    assert answer.body["response"]["convertedObjects"] == []
    assert answer.body["response"]["result"]["status"] == "Failure"
    assert why in answer.body["response"]["result"]["message"]


def test_no_conversion_review() -> None:
    with pytest.raises(Malformed, match="ConversionReview"):
        convert(review(), registry())
    for body, why in (
        (conversion(thing(a="b")).replace(b'"b"', b'"\xff"'), "utf-8"),
        (conversion(thing(a="b")).replace(b'"b"', b"9" * 5000), "out of range"),
        (conversion(thing(a=deep(150))), "nested more than 200 levels deep"),
        (conversion(thing(a="b" * OBJECT_BYTES)), "bytes, over"),
        (conversion(3), "Expected `object`"),  # type: ignore[arg-type]
    ):
        with pytest.raises(Malformed, match=why):
            convert(body, registry())
