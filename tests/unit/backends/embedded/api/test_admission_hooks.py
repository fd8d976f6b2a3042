"""Which hooks are asked about a write."""

from __future__ import annotations

from bayplan.backends.embedded.api.admission_hooks import AdmissionHooks, Hook, HookResponse

PODS, STATUS = ("", "pods"), ("", "pods/status")


def hook(name: str, *places: tuple[str, str], mutating: bool = False) -> Hook:
    return Hook(name, lambda review: HookResponse(), frozenset(places), mutating=mutating)


def named(
    hooks: AdmissionHooks, operation: str, subresource: str = "", *, mutating: bool = False
) -> list[str]:
    return [one.name for one in hooks.named(mutating, operation, "", "pods", subresource)]


def test_hooks_are_found_by_kind_subresource_and_operation_in_their_order() -> None:
    hooks = AdmissionHooks()
    for one in (hook("b", PODS), hook("a", PODS, STATUS), hook("m", PODS, mutating=True)):
        hooks.register(one)
    assert named(hooks, "CREATE") == ["b", "a"]
    assert named(hooks, "UPDATE", "status") == ["a"]
    assert named(hooks, "CREATE", mutating=True) == ["m"]
    assert named(hooks, "DELETE") == []


def test_a_hook_that_comes_or_goes_later_counts_from_then_on() -> None:
    hooks = AdmissionHooks()
    assert named(hooks, "CREATE") == []
    hooks.register(hook("late", PODS))
    assert named(hooks, "CREATE") == ["late"]
    hooks.hooks = ()
    assert named(hooks, "CREATE") == []
