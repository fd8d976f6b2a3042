"""Rules see no more of an object than they mention, and say of it what they say of the whole."""

from __future__ import annotations

from typing import Any

import pytest

from bayplan.backends.embedded.schema import cel
from bayplan.backends.embedded.schema.cel_data import mentioned, part

OBJECT: dict[str, Any] = {
    "labels": {"a": "1", "b": "2"},
    "kinds": [{"type": "A", "status": "True", "message": "()"}, {"type": "B", "status": "False"}],
    "names": ["x", "y"],
    "inner": {"deep": {"n": 1, "m": 2}, "other": 3},
}


@pytest.mark.parametrize(
    ("rule", "seen"),
    [
        ("has(self.labels)", {"labels": {}}),
        ("size(self.labels) == 2", {"labels": OBJECT["labels"]}),
        ("size(self.kinds) == 2", {"kinds": [{}, {}]}),
        ("size(self.names) == 2", {"names": ["x", "y"]}),
        ("self.inner.deep.n == 1", {"inner": {"deep": {"n": 1}}}),
        ("has(self.inner.deep) && self.inner.deep.m == 2", {"inner": {"deep": {"m": 2}}}),
        ("has(self.inner) && self.inner == self.inner", {"inner": OBJECT["inner"]}),
        ("self.kinds.exists(k, k.type == 'B')", {"kinds": [{"type": "A"}, {"type": "B"}]}),
        ("self.kinds.exists(k, k.type == 'A' && has(k.message))", {"kinds": OBJECT["kinds"]}),
        ("self.kinds.exists(k, k == self.kinds[0])", {"kinds": OBJECT["kinds"]}),
        ("self.kinds.all(k, k.type != ')' && k.status != '')", {"kinds": OBJECT["kinds"]}),
        ("self.kinds.exists(k, k.type.startsWith('B'))", {"kinds": OBJECT["kinds"]}),
        ("self.labels.exists(l, true)", {"labels": OBJECT["labels"]}),
        ("self.labels.all(l, self.labels[l] != '')", {"labels": OBJECT["labels"]}),
        ("self.names.exists(n, n == 'y')", {"names": ["x", "y"]}),
        ("self.names[1] == 'y'", {"names": ["x", "y"]}),
        ("self == self", OBJECT),
    ],
)
def test_a_rule_sees_what_it_mentions(rule: str, seen: dict[str, Any]) -> None:
    assert part(OBJECT, mentioned(rule)) == seen
    found = cel.compiled({"x-kubernetes-validations": [{"rule": rule}, {"rule": f"!({rule})"}]})
    if found is not None:  # the extra `cel` is installed
        told = [problem.message for problem in found.check(OBJECT, None)]
        assert told == [f"Invalid value: failed rule: !({rule})"]


def test_rules_asked_together_see_what_each_of_them_does() -> None:
    both = "size(self.kinds) == 2 && has(self.inner.deep) && self.kinds.all(k, k.type != '')"
    assert part(OBJECT, mentioned(both)) == {"kinds": [{"type": "A"}, {"type": "B"}], "inner": {"deep": {}}}


@pytest.mark.parametrize("key", ["plain", "a-b", "c.d", "e/f", "in", "namespace", "g__h", "x-y.z/in", "_i_"])
def test_odd_names_are_found_again(key: str) -> None:
    [name] = part({key: 1}, None)
    assert name.isidentifier()
    assert part({key: 1, "other": 2}, mentioned(f"self.{name} == 1")) == {name: 1}
