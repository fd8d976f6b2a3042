"""Jobs of every known kind as gangs, with the topology that annotations on their pod templates ask for."""

from __future__ import annotations

from bayplan.dialects.jobs.kinds import Part, parts
from bayplan.dialects.kube.fields import Field
from bayplan.dialects.kueue.annotation_rules import check_annotations
from bayplan.dialects.kueue.annotations import GROUP, MINIMUM, PREFER, QUEUE, REQUIRE, read_annotations
from bayplan.dialects.kueue.members import Member, make_pod_set, make_root, source
from bayplan.dialects.kueue.topology_request import Numbering, asked, parse_size, topology_request
from bayplan.model.gang import Gang


def job_gang(job: Field) -> Gang:
    """What a job asks for."""
    return Gang(
        source=source(job, job.at("kind").text()),
        root=make_root([_member(job, part) for part in parts(job)]),
        queue=job.at("metadata", "labels", QUEUE).text(),
        uid=job.at("metadata", "uid").text(),
    )


def part_request(part: Part, annotations: dict[str, str]) -> dict[str, object] | None:
    """The PodSetTopologyRequest of one pod set. ValueError if an annotation cannot be read."""
    numbering = Numbering(part.index_label, part.subgroup_label, part.subgroup_count)
    return topology_request(annotations, numbering, default_size=part.natural_segment)


def _member(job: Field, part: Part) -> Member:
    metadata = part.template.at("metadata")
    check_annotations(metadata, part.count, part.natural_segment)
    annotations = _of_whole_job(job) | read_annotations(metadata)
    try:
        request = part_request(part, annotations)
    except ValueError:
        request = None  # noted by the check already
    wishes = asked(Field(request))  # errors in it are noted where the user wrote them
    pod_set = make_pod_set(part.name, part.count, _minimum(job, part), part.template, wishes)
    return Member(pod_set, wishes.group, part.name_field, metadata.at("annotations", GROUP))


def _of_whole_job(job: Field) -> dict[str, str]:
    """The first draft of the API had its annotations on the job, for all its pod sets."""
    return {
        name: text for name, text in read_annotations(job.at("metadata")).items() if name in (REQUIRE, PREFER)
    }


def _minimum(job: Field, part: Part) -> int:
    """How many pods are enough; only the plain Job can say less than all."""
    text = read_annotations(job.at("metadata")).get(MINIMUM)
    if text is None or job.at("kind").text() != "Job":
        return part.count
    field = job.at("metadata", "annotations", MINIMUM)
    try:
        minimum = parse_size(text)
    except ValueError:
        minimum = 0
    if not 0 < minimum <= part.count:
        field.error(f"must be a whole number between 1 and {part.count}")
        return part.count
    return minimum
