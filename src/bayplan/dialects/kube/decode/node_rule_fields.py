"""Node constraints in a pod spec: node selector, node affinity and tolerations."""

from __future__ import annotations

from bayplan.dialects.kube.decode.node_fields import EFFECTS
from bayplan.dialects.kube.fields.reader import Field
from bayplan.model.node_rules import NodeRules, NodeSelectorTerm, Requirement, Toleration, integer

_NODE_FIELD = "metadata.name"
_TOLERATION_OPERATORS = ("", "Equal", "Exists", "Gt", "Lt")
_REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
_PREFERRED = "preferredDuringSchedulingIgnoredDuringExecution"


def node_rules(spec: Field) -> NodeRules:
    """The node constraints of a pod spec."""
    affinity = spec.at("affinity", "nodeAffinity")
    return NodeRules(
        selector=tuple(sorted(spec.at("nodeSelector").texts().items())),
        affinity=_required(affinity.at(_REQUIRED)),
        preferred=tuple(_weighted(field) for field in affinity.at(_PREFERRED).items()),
        tolerations=tolerations(spec.at("tolerations")),
    )


def tolerations(fields: Field) -> tuple[Toleration, ...]:
    """A list of tolerations."""
    return tuple(_toleration(field) for field in fields.items())


def _required(field: Field) -> tuple[NodeSelectorTerm, ...] | None:
    if not field.present:
        return None
    terms = field.at("nodeSelectorTerms")
    if not terms.items():
        terms.error("must hold at least one term: without any, no node would do")
    return tuple(_term(term) for term in terms.items())


def _weighted(field: Field) -> tuple[int, NodeSelectorTerm]:
    return field.at("weight").integer(default=1, minimum=1, maximum=100), _term(field.at("preference"))


def _term(field: Field) -> NodeSelectorTerm:
    labels = [_requirement(one, on_field=False) for one in field.at("matchExpressions").items()]
    fields = [_requirement(one, on_field=True) for one in field.at("matchFields").items()]
    return NodeSelectorTerm(tuple(labels + fields))


def _requirement(field: Field, *, on_field: bool) -> Requirement:
    key, operator, values = field.at("key"), field.at("operator"), field.at("values")
    requirement = Requirement(
        key=key.text(),
        operator=operator.text(),
        values=tuple(value.text() for value in values.items()),
        field=on_field,
    )
    if not requirement.key:
        key.error("must be set")
    elif on_field and requirement.key != _NODE_FIELD:
        key.error(f"must be {_NODE_FIELD}, the only node field that can be matched")
    _check_values(requirement, operator, values)
    return requirement


def _check_values(requirement: Requirement, operator: Field, values: Field) -> None:
    match requirement.operator:
        case "In" | "NotIn":
            if not requirement.values:
                values.error(f"must hold at least one value for operator {requirement.operator}")
        case "Exists" | "DoesNotExist" if not requirement.field:
            if requirement.values:
                values.error(f"must be empty for operator {requirement.operator}")
        case "Gt" | "Lt" if not requirement.field:
            if len(requirement.values) != 1 or integer(requirement.values[0]) is None:
                values.error(f"must hold one whole number for operator {requirement.operator}")
        case _:
            allowed = "In or NotIn" if requirement.field else "In, NotIn, Exists, DoesNotExist, Gt or Lt"
            operator.error(f"must be {allowed}")


def _toleration(field: Field) -> Toleration:
    key, operator, effect = field.at("key"), field.at("operator"), field.at("effect")
    if operator.text() not in _TOLERATION_OPERATORS:
        operator.error("must be Equal, Exists, Gt or Lt")
    elif not key.text() and operator.text() != "Exists":
        operator.error("must be Exists when there is no key")
    if effect.text() and effect.text() not in EFFECTS:
        effect.error(f"must be one of {', '.join(EFFECTS)}, or absent for all of them")
    return Toleration(key.text(), operator.text("Equal"), field.at("value").text(), effect.text())
