"""CEL expressions for the fields of a job that our account may change: all others must be unchanged.

Each kind has its own list of expressions in the table of job kinds; admission policies are made of them.
"""

from __future__ import annotations

from collections.abc import Iterable

NEW, OLD = "variables.now", "variables.before"
WHERE = ("nodeSelector", "tolerations", "schedulingGates")
"""Fields of a pod spec that decide where and when the pod may run."""


def every(names: Iterable[str]) -> str:
    """A CEL list of strings."""
    return "[" + ", ".join(f"'{name}'" for name in names) + "]"


def same_but(new: str, old: str, *keys: str) -> str:
    """CEL: two maps are equal in all fields except these."""
    known = every(keys)
    return (
        f"dyn({new}).all(key, key in {known} || "
        f"(key in dyn({old}) && dyn({new})[key] == dyn({old})[key])) && "
        f"dyn({old}).all(key, key in {known} || key in dyn({new}))"
    )


def either(key: str, check: str, new: str, old: str) -> str:
    """CEL: both objects have a field and it passes a check, or neither has it."""
    return f"has({new}.{key}) == has({old}.{key}) && (!has({new}.{key}) || ({check}))"


def template(new: str, old: str) -> str:
    """CEL: a pod template differs only in labels, annotations, and where its pods may run."""
    spec = same_but(f"{new}.spec", f"{old}.spec", *WHERE)
    return f"{same_but(new, old, 'metadata', 'spec')} && {either('spec', spec, new, old)}"


def within(key: str, new: str, old: str) -> str:
    """CEL: an object with a pod template under a key differs only in that template."""
    inner = template(f"{new}.{key}", f"{old}.{key}")
    return f"{same_but(new, old, key)} && {either(key, inner, new, old)}"


def listed(path: str, name: str, check: str) -> str:
    """CEL: a list has its old length, and each item passes a check with the old item of the same name."""
    new, old = f"{NEW}.{path}", f"{OLD}.{path}"
    one = f"{new}.all(now, {old}.exists(before, now.{name} == before.{name} && {check}))"
    key, parent = path.rpartition(".")[2], path.rpartition(".")[0]
    return either(key, f"{new}.size() == {old}.size() && {one}", f"{NEW}.{parent}", f"{OLD}.{parent}")


def spec_but(*keys: str, path: str = "spec") -> str:
    """CEL: the spec is unchanged in all fields except these."""
    return same_but(f"{NEW}.{path}", f"{OLD}.{path}", *keys)


def optional(obj: str, *path: str) -> str:
    """CEL: the list at a path, or an empty list."""
    steps = [".".join((obj, *path[: depth + 1])) for depth in range(len(path))]
    return f"({' && '.join(f'has({step})' for step in steps)} ? {steps[-1]} : [])"


def or_empty(path: str) -> str:
    """CEL: the map at a path, or an empty map."""
    return f"(has({path}) ? dyn({path}) : dyn({{}}))"


def all_of(*checks: str) -> str:
    """CEL: all checks hold."""
    return " && ".join(f"({one})" for one in checks)
