"""When a gang is whole: so many pods in each pod set that counts, so many members in each group."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from bayplan.model.gang import Group, PodSet


def is_whole(member: Group | PodSet, counts: Mapping[str, int]) -> bool:
    """Whether so many pods, by pod set, are enough."""
    if isinstance(member, PodSet):
        return counts.get(member.name, 0) >= member.minimum
    return whole_members(member, counts) >= member.minimum


def whole_members(group: Group, counts: Mapping[str, int]) -> int:
    """How many of a group's members are whole."""
    return sum(is_whole(member, counts) for member in group.members)


def short_part(member: Group | PodSet, counts: Mapping[str, int]) -> Group | PodSet | None:
    """The first part that keeps a gang from being whole: a pod set that lacks pods, or a group members."""
    if is_whole(member, counts):
        return None
    if isinstance(member, PodSet) or len(member.members) < member.minimum:
        return member
    return next(part for one in member.members if (part := short_part(one, counts)) is not None)


def fewest_more(member: Group | PodSet, counts: Mapping[str, int]) -> int | None:
    """With how few more pods it is whole; None if that takes members which it does not have."""
    if isinstance(member, PodSet):
        return max(member.minimum - counts.get(member.name, 0), 0)
    each = (fewest_more(one, counts) for one in member.members)
    found = sorted(more for more in each if more is not None)
    return sum(found[: member.minimum]) if len(found) >= member.minimum else None


def all_of(group: Group, counts: Mapping[str, int]) -> Group:
    """The same tree, where as many pods as these are needed, and all members."""

    def needs(member: Group | PodSet) -> Group | PodSet:
        if isinstance(member, Group):
            return all_of(member, counts)
        count = counts.get(member.name, 0)
        return replace(member, count=max(member.count, count), minimum=count)

    return replace(group, members=tuple(map(needs, group.members)), minimum=len(group.members))
