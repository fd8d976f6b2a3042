"""Decode jobs of every known kind into gangs, with the topology requests of their pod templates."""

from __future__ import annotations

from bayplan.dialects.jobs.kinds import kind_of, parts
from bayplan.dialects.jobs.part import Find, JobPart, find_nothing
from bayplan.dialects.kube.fields.reader import Field
from bayplan.dialects.kueue.fields.annotation_rules import check_annotations, check_sizes
from bayplan.dialects.kueue.fields.job_rules import check_minimum
from bayplan.dialects.kueue.fields.pod_sets import PodSetMember, make_pod_set, make_root, source
from bayplan.dialects.kueue.fields.topology_request import (
    Numbering,
    decode_request,
    parse_size,
    topology_request,
)
from bayplan.dialects.kueue.names.annotations import GROUP, MINIMUM, PREFER, QUEUE, REQUIRE, read_annotations
from bayplan.dialects.kueue.names.feature_switches import RULES, FeatureSwitches
from bayplan.model.gang import Gang


def job_gang(job: Field, find: Find = find_nothing, rules: FeatureSwitches = RULES) -> Gang:
    """The gang of a job."""
    return Gang(
        source=source(job, job.at("kind").text()),
        root=make_root([_member(job, part, rules) for part in parts(job, find)]),
        queue=job.at("metadata", "labels", QUEUE).text(),
        uid=job.at("metadata", "uid").text(),
    )


def part_request(
    part: JobPart, annotations: dict[str, str], rules: FeatureSwitches = RULES
) -> dict[str, object] | None:
    """The PodSetTopologyRequest of one pod set. ValueError if an annotation cannot be read."""
    numbering = Numbering(part.index_label, part.subgroup_label, part.subgroup_count)
    return topology_request(
        annotations, numbering, default_size=part.natural_segment, forgiving=rules.lenient
    )


def check_part(job: Field, part: JobPart, rules: FeatureSwitches = RULES) -> None:
    """Record every error in the annotations of one pod set."""
    metadata = Field(part.metadata.value, part.metadata.path)
    check_annotations(metadata, part.natural_segment, rules)
    if part.count_known:
        check_sizes(metadata, part.count, rules)
    job.adopt(metadata.errors, part.advice)


def _member(job: Field, part: JobPart, rules: FeatureSwitches) -> PodSetMember:
    check_part(job, part, rules)
    metadata = part.metadata
    annotations = _job_annotations(job) | read_annotations(metadata)
    try:
        request = part_request(part, annotations, rules)
    except ValueError:
        request = None  # recorded by the check already
    decoded = decode_request(Field(request))  # its errors are recorded at the annotations
    pod_set = make_pod_set(part.name, part.count, _minimum(job, part), part.template, decoded)
    annotations_field = metadata.at("annotations")
    return PodSetMember(
        pod_set, decoded.group, part.name_field, annotations_field.at(GROUP), annotations_field
    )


def _job_annotations(job: Field) -> dict[str, str]:
    """The first draft of the API had its annotations on the job, for all its pod sets."""
    return {
        name: text for name, text in read_annotations(job.at("metadata")).items() if name in (REQUIRE, PREFER)
    }


def _minimum(job: Field, part: JobPart) -> int:
    """The minimum number of pods; only kinds with partial admission can have less than all."""
    text = read_annotations(job.at("metadata")).get(MINIMUM)
    if text is None or not kind_of(job).partial:
        return part.count
    field = job.at("metadata", "annotations", MINIMUM)
    try:
        minimum = parse_size(text)
    except ValueError:
        minimum = 0
    if not 0 < minimum <= part.count:
        check_minimum(field, part.count)
        return part.count
    return minimum
