"""The structures of Workloads and groups since v1alpha2: the rules of every field."""

from __future__ import annotations

from dataclasses import replace

from bayplan.dialects.kube.fields.metadata_rules import IMMUTABLE
from bayplan.dialects.kube.fields.name_rules import (
    dns_label_problems,
    label_key_problems,
    path_segment_problems,
    subdomain_problems,
)
from bayplan.dialects.kube.gang_api.declared import NEVER_CLEARED, NEVER_SET, Rule, Structure
from bayplan.dialects.kube.gang_api.gates import CLAIMS, COMPOSITE, POLICY, PREEMPTION, TOPOLOGY

TEMPLATES_MAX = 8
CLAIMS_MAX = 4
PRIORITY_MAX = 1_000_000_000

_NAME = Rule("name", required=True, problems=dns_label_problems)
_EMPTY = Structure(())

_CONTROLLER = Structure(
    (
        Rule("apiGroup", problems=subdomain_problems),
        Rule("kind", required=True, problems=path_segment_problems),
        Rule("name", required=True, problems=path_segment_problems),
    )
)
_CONTROLLER_RULE = Rule("controllerRef", lambda: _CONTROLLER, immutable=True)

# `desiredCount`, the desired size of a basic group, is ours: no release has it yet.
_BASIC = Structure((Rule("desiredCount", pointer=True, minimum=0),))
_GANG = Structure((Rule("minCount", required=True, minimum=1),))
_POLICY = Structure((Rule("basic", lambda: _BASIC), Rule("gang", lambda: _GANG)), one_of=("basic", "gang"))

_TOPOLOGY = Structure((Rule("key", required=True, problems=label_key_problems),))
_CONSTRAINTS = Structure((Rule("topology", lambda: _TOPOLOGY, listed=True, max_items=1),))

_CLAIM = Structure(
    (
        _NAME,
        Rule("resourceClaimName", pointer=True, problems=subdomain_problems),
        Rule("resourceClaimTemplateName", pointer=True, problems=subdomain_problems),
    ),
    one_of=("resourceClaimName", "resourceClaimTemplateName"),
)
_CLAIMS_RULE = Rule(
    "resourceClaims",
    lambda: _CLAIM,
    listed=True,
    name_key="name",
    max_items=CLAIMS_MAX,
    immutable=True,
    dropped=CLAIMS,
)
_CLAIM_STATUS = Structure(
    (Rule("name"), Rule("resourceClaimName", pointer=True, problems=subdomain_problems))
)
STATUS = Structure(
    (
        Rule(
            "resourceClaimStatuses", lambda: _CLAIM_STATUS, listed=True, name_key="name", max_items=CLAIMS_MAX
        ),
    )
)

# ── v1alpha2 ──

_MODE_2 = Rule("disruptionMode", pointer=True, gate=PREEMPTION, choices=("Pod", "PodGroup"))
_CLASS_2 = Rule("priorityClassName", gate=PREEMPTION, problems=subdomain_problems)
_PRIORITY_2 = Rule("priority", pointer=True, gate=PREEMPTION, maximum=PRIORITY_MAX)
_CONSTRAINTS_2 = Rule("schedulingConstraints", lambda: _CONSTRAINTS, gate=TOPOLOGY)

_TEMPLATE_2 = Structure(
    (
        _NAME,
        Rule("schedulingPolicy", lambda: _POLICY, inline=True),
        _CONSTRAINTS_2,
        _CLAIMS_RULE,
        _MODE_2,
        _CLASS_2,
        _PRIORITY_2,
    ),
    nulls=("schedulingConstraints",),
)
WORKLOAD_2 = Structure(
    (
        _CONTROLLER_RULE,
        Rule(
            "podGroupTemplates",
            lambda: _TEMPLATE_2,
            listed=True,
            name_key="name",
            max_items=TEMPLATES_MAX,
            required=True,
            immutable=True,
        ),
    )
)
_FROM_WORKLOAD = Structure(
    (
        Rule("workloadName", required=True, problems=subdomain_problems),
        Rule("podGroupTemplateName", required=True, problems=dns_label_problems),
    )
)
_TEMPLATE_REF = Structure((Rule("workload", lambda: _FROM_WORKLOAD),), one_of=("workload",))
POD_GROUP_2 = Structure(
    (
        Rule("podGroupTemplateRef", lambda: _TEMPLATE_REF, immutable=True),
        Rule("schedulingPolicy", lambda: _POLICY, inline=True, immutable=True),
        replace(_CONSTRAINTS_2, immutable_if_served=True),
        _CLAIMS_RULE,
        replace(_MODE_2, required=True, immutable_if_served=True),
        replace(_CLASS_2, immutable_if_served=True),
        replace(_PRIORITY_2, immutable_if_served=True),
    )
)

# ── v1beta1: the size of a gang may change, its policy may not ──

_BASIC_3 = Rule("basic", lambda: _BASIC, kept=(IMMUTABLE, IMMUTABLE))
_POLICY_3 = Structure(
    (_BASIC_3, Rule("gang", lambda: _GANG, kept=(NEVER_SET, NEVER_CLEARED))), one_of=("basic", "gang")
)
_MODE = Structure((Rule("single", lambda: _EMPTY), Rule("all", lambda: _EMPTY)), one_of=("single", "all"))
_CONSTRAINTS_3 = Rule("schedulingConstraints", lambda: _CONSTRAINTS, immutable=True)
_MODE_3 = Rule("disruptionMode", lambda: _MODE, immutable=True)
_CLASS_3 = Rule("priorityClassName", immutable=True, problems=subdomain_problems)
_PRIORITY_3 = Rule("priority", pointer=True, immutable=True, maximum=PRIORITY_MAX)
_PREEMPTION_3 = Rule(
    "preemptionPolicy",
    pointer=True,
    immutable=True,
    gate=POLICY,
    choices=("Never", "PreemptLowerPriority"),
)

_TEMPLATE_3 = Structure(
    (
        _NAME,
        Rule("schedulingPolicy", lambda: _POLICY_3, inline=True),
        replace(_CONSTRAINTS_3, gate=TOPOLOGY),
        _CLAIMS_RULE,
        _MODE_3,
        _CLASS_3,
        _PRIORITY_3,
        _PREEMPTION_3,
    ),
    nulls=("schedulingConstraints",),
)
_TEMPLATES_3 = Rule(
    "podGroupTemplates",
    lambda: _TEMPLATE_3,
    listed=True,
    name_key="name",
    max_items=TEMPLATES_MAX,
    whole=True,
)
_COMPOSITE_GANG = Structure((Rule("minGroupCount", required=True, minimum=1),))
_COMPOSITE_POLICY = Structure(
    (
        Rule("basic", lambda: _EMPTY, kept=(IMMUTABLE, IMMUTABLE)),
        Rule("gang", lambda: _COMPOSITE_GANG, kept=(NEVER_SET, NEVER_CLEARED)),
    ),
    one_of=("basic", "gang"),
)


def _composite_template() -> Structure:
    return _COMPOSITE_TEMPLATE


_COMPOSITES_3 = Rule(
    "compositePodGroupTemplates",
    _composite_template,
    listed=True,
    name_key="name",
    max_items=TEMPLATES_MAX,
    whole=True,
)
_COMPOSITE_TEMPLATE: Structure = Structure(
    (
        _NAME,
        Rule("schedulingPolicy", lambda: _COMPOSITE_POLICY, inline=True),
        _CONSTRAINTS_3,
        _MODE_3,
        _CLASS_3,
        _PRIORITY_3,
        _PREEMPTION_3,
        _TEMPLATES_3,
        _COMPOSITES_3,
    )
)
WORKLOAD_3 = Structure(
    (_CONTROLLER_RULE, _TEMPLATES_3, replace(_COMPOSITES_3, gate=COMPOSITE)),
    one_of=("podGroupTemplates", "compositePodGroupTemplates"),
)
_WORKLOAD_REF = Structure(
    (
        Rule("workloadName", required=True, problems=subdomain_problems),
        Rule("templateName", required=True, problems=dns_label_problems),
    )
)
POD_GROUP_3 = Structure(
    (
        Rule(
            "parentCompositePodGroupName",
            pointer=True,
            gate=COMPOSITE,
            immutable=True,
            problems=subdomain_problems,
        ),
        Rule("workloadRef", lambda: _WORKLOAD_REF, immutable=True),
        Rule("schedulingPolicy", lambda: _POLICY_3, inline=True),
        Rule("schedulingConstraints", lambda: _CONSTRAINTS, gate=TOPOLOGY, immutable_if_served=True),
        _CLAIMS_RULE,
        replace(_MODE_3, required=True),
        _CLASS_3,
        _PRIORITY_3,
        _PREEMPTION_3,
    )
)
COMPOSITE_3 = Structure(
    (
        Rule("parentCompositePodGroupName", pointer=True, immutable=True, problems=subdomain_problems),
        Rule("workloadRef", lambda: _WORKLOAD_REF, required=True, immutable=True),
        Rule("schedulingPolicy", lambda: _COMPOSITE_POLICY, inline=True, immutable=True),
        _CONSTRAINTS_3,
        _MODE_3,
        _CLASS_3,
        _PRIORITY_3,
        _PREEMPTION_3,
    )
)
"""Of v1alpha3, in which PodGroups and Workloads are as in v1beta1."""
