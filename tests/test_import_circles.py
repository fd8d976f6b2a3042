"""No module of these packages imports itself by way of others, nor hides such an import in a function."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest

SOURCE = Path(__file__).parents[1] / "src"
PACKAGES = ("bayplan.backends.embedded", "bayplan.dialects.kueue")


def trees(package: str) -> dict[str, ast.Module]:
    """Every module of a package, parsed, by its dotted name."""
    found = sorted((SOURCE / package.replace(".", "/")).rglob("*.py"))
    names = {path: ".".join(path.relative_to(SOURCE).with_suffix("").parts) for path in found}
    return {
        names[path].removesuffix(".__init__"): ast.parse(path.read_text(encoding="utf-8")) for path in found
    }


def imported(tree: ast.AST) -> Iterator[str]:
    """Dotted names that a piece of code imports, wherever the import stands: modules and what is in them."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            yield node.module
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def circle(modules: Mapping[str, ast.Module]) -> list[str]:
    """Modules that import each other, the first one again at the end; empty if there are none."""
    graph = {name: set(imported(tree)) & modules.keys() - {name} for name, tree in modules.items()}
    try:
        TopologicalSorter(graph).prepare()
    except CycleError as error:
        return list(error.args[1])
    return []


def late(package: str, modules: Mapping[str, ast.Module]) -> list[str]:
    """Imports of the package inside its functions, and imports that only a type checker sees."""
    found = []
    for name, tree in modules.items():
        if "typing.TYPE_CHECKING" in imported(tree):
            found.append(f"{name} imports for type checkers only")
        for node in ast.walk(tree):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                inside = sorted({one for one in imported(node) if one.startswith(f"{package}.")})
                found += [f"{name}.{node.name} imports {one}" for one in inside]
    return found


@pytest.mark.parametrize("package", PACKAGES)
def test_no_modules_import_each_other(package: str) -> None:
    assert circle(trees(package)) == []


@pytest.mark.parametrize("package", PACKAGES)
def test_imports_of_the_own_package_stand_at_the_top_of_a_module(package: str) -> None:
    assert late(package, trees(package)) == []


def test_a_circle_through_a_function_is_found() -> None:
    modules = {
        "p.a": ast.parse("from p import b"),
        "p.b": ast.parse("def f():\n    from p.c import g"),
        "p.c": ast.parse("import p.a"),
    }
    assert circle(modules)[0] == circle(modules)[-1] and set(circle(modules)) == {"p.a", "p.b", "p.c"}
    assert late("p", modules) == ["p.b.f imports p.c", "p.b.f imports p.c.g"]
    assert circle({"p.a": modules["p.a"], "p.b": modules["p.b"]}) == []
