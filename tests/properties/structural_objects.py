"""Objects that a structural schema describes, at random: any field, within its limits, defaults filled in."""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st

from bayplan.dialects.kube.fields.reader import Field
from bayplan.dialects.kueue.fields.assignment_decode import decode_assignment
from bayplan.dialects.kueue.fields.assignment_encode import encode_domains, encode_slices

Object = dict[str, Any]

WORDS = ("a", "b", "c1", "d-e")
QUANTITIES = (1, 0, "100m", "2Gi", "1.5")
ITEMS_MAX = 3


def values(schema: Object, field: str = "") -> st.SearchStrategy[Any]:
    """Values of one schema."""
    if field == "topologyAssignment":
        return assignments("slices" in schema["properties"])
    if schema.get("x-kubernetes-int-or-string"):
        return st.sampled_from(QUANTITIES)
    if "enum" in schema:
        return st.sampled_from(schema["enum"])
    match schema["type"]:
        case "string" if schema.get("format") == "date-time":
            return st.sampled_from(("2026-01-01T00:00:00Z", "2026-02-03T04:05:06Z"))
        case "string":
            return st.sampled_from(WORDS)
        case "integer":
            least = schema.get("minimum", -3)
            return st.integers(least, least + 9)
        case "boolean":
            return st.booleans()
        case "array":
            return _lists(schema)
    return _mappings(schema)


def _lists(schema: Object) -> st.SearchStrategy[list[Any]]:
    items = values(schema["items"])
    least, most = schema.get("minItems", 0), min(schema.get("maxItems", ITEMS_MAX), ITEMS_MAX)
    keys = schema.get("x-kubernetes-list-map-keys")
    if keys:
        return st.lists(
            items, min_size=least, max_size=most, unique_by=lambda item: tuple(item[key] for key in keys)
        )
    return st.lists(items, min_size=least, max_size=most)


def _mappings(schema: Object) -> st.SearchStrategy[Object]:
    if "additionalProperties" in schema:
        return st.dictionaries(st.sampled_from(WORDS), values(schema["additionalProperties"]), max_size=2)
    fields = {key: values(below, key) for key, below in schema.get("properties", {}).items()}
    sure = {
        *schema.get("required", ()),
        *(key for key, below in schema.get("properties", {}).items() if "default" in below),
    }
    sure |= {"name"} & fields.keys()
    return st.fixed_dictionaries(
        {key: fields[key] for key in fields if key in sure},
        optional={key: fields[key] for key in fields if key not in sure},
    )


@st.composite
def assignments(draw: st.DrawFn, slices: bool) -> Object:
    """Racks and hosts with pods, in the form of either version."""
    hosts = draw(
        st.lists(st.sampled_from([(r, f"{r}-h{n}") for r in "xy" for n in range(4)]), min_size=1, unique=True)
    )
    domains = [{"values": list(host), "count": draw(st.integers(1, 3))} for host in hosts]
    decoded = decode_assignment(Field({"levels": ["rack", "host"], "domains": domains}))
    assert decoded is not None
    return encode_slices(decoded, by_node_prefix=True) if slices else encode_domains(decoded)
