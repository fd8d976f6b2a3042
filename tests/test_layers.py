"""The folders of the source tree, as a test: layers, no import circle, one meaning for each class name.

LAYERS is the table of docs/architecture.md in a form that fails. Each check takes the modules of a tree and
yields sentences, so that the tests below can break a small tree on purpose and see the sentence.
"""

from __future__ import annotations

import ast
from collections import defaultdict
from collections.abc import Iterator, Mapping
from functools import cache
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest

SOURCE = Path(__file__).parents[1] / "src" / "bayplan"
MODULES_MAX = 20

# The folders of a package from the lowest layer to the highest. A folder may import folders of lower layers.
LAYERS: dict[str, tuple[set[str], ...]] = {
    "placement": (
        {"cluster"},
        {"numa", "devices"},
        {"filters", "domains"},
        {"overlay", "exact"},
        {"gang", "pods"},
        {"subgroups", "preemption"},
    ),
    "state": ({"cluster", "pending_queue"}, {"admission", "scheduling"}, {"reports"}),
    "scheduling": ({"admission", "attempt"}, {"preemption"}, {"fair_share", "defragment"}, {"binding"}),
    "runtime": ({"core"}, {"controllers", "telemetry"}, {"webhooks", "process"}),
    "dialects.kueue": (
        {"names"},
        {"fields"},
        {"status", "conversion", "webhooks"},
        {"decode", "jobs", "pods"},
        {"provisioning", "workload_dialect"},
    ),
    "dialects.kai": ({"api"}, {"grouper", "status"}, {"decode"}),
    "dialects.kube": ({"fields"}, {"decode"}, {"gang_api", "devices"}, {"gang"}, {"encode"}),
    "backends.embedded": (
        {"api"},
        {"schema", "patching", "tables"},
        {"storage"},
        {"kinds"},
        {"http"},
    ),
    "cli": (
        {"config"},
        {"render"},
        {"inputs"},
        {"live"},
        {"starts"},
        {"planning", "listing", "migration"},
        {"watching"},
        {"running"},
        {"commands"},
    ),
    "simulation": ({"traces", "forecast"}, {"packing", "virtual_time"}, {"reports"}),
    "simulator": ({"core"}, {"queues", "pods"}, {"plays", "jobs", "subgroups"}, {"shared"}),
}

# Modules beside the folders of a layered package put its parts together; they may import every layer.
ROOTS = {"backends.embedded.cluster"}

Modules = Mapping[str, ast.Module]


def modules_below(folder: Path) -> dict[str, ast.Module]:
    """Every module by its dotted name below the package; a package is named without `__init__`."""
    modules = {}
    for path in sorted(folder.rglob("*.py")):
        parts = path.relative_to(folder).with_suffix("").parts
        name = ".".join(parts[:-1] if parts[-1] == "__init__" else parts)
        modules[name] = ast.parse(path.read_text(encoding="utf-8"))
    return modules


@cache  # several rules ask for the same modules
def imported_names(tree: ast.Module) -> frozenset[str]:
    """The modules and names of ours that a module imports, the deepest ones only."""
    names = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            names |= {node.module} | {f"{node.module}.{alias.name}" for alias in node.names}
    below = {name.removeprefix("bayplan.") for name in names if name.startswith("bayplan.")}
    return frozenset(name for name in below if not any(other.startswith(f"{name}.") for other in below))


def imports_of(tree: ast.Module, modules: Modules) -> set[str]:
    """The modules of ours that a module imports, on its first level, inside functions or for types only."""
    deepest = imported_names(tree)
    return {name if name in modules else name.rpartition(".")[0] for name in deepest} & modules.keys()


def upward_imports(modules: Modules, layers: Mapping[str, tuple[set[str], ...]]) -> Iterator[str]:
    """Imports of a folder that is on the same layer or on a higher one, and folders without a layer."""
    for package, ranks in layers.items():
        rank = {folder: at for at, folders in enumerate(ranks) for folder in folders}
        start = f"{package}."
        for name, tree in modules.items():
            if not name.startswith(start) or name in ROOTS:
                continue
            folder = name.removeprefix(start).split(".")[0]
            if folder not in rank:
                if folder != "__main__":
                    yield f"{name}: {folder} is in no layer of {package}"
                continue
            for other in sorted(imports_of(tree, modules)):
                target = other.removeprefix(start).split(".")[0] if other.startswith(start) else folder
                if target != folder and rank.get(target, len(ranks)) >= rank[folder]:
                    yield f"{name} imports {other}, which is not below {folder}"


def circles(modules: Modules) -> Iterator[str]:
    """The first circle of imports, if there is one."""
    try:
        TopologicalSorter(
            {name: imports_of(tree, modules) - {name} for name, tree in modules.items()}
        ).prepare()
    except CycleError as error:
        yield f"these modules import each other: {' <- '.join(error.args[1])}"


def crowded_folders(modules: Modules) -> Iterator[str]:
    """Folders with more modules than one can keep in mind."""
    folders: dict[str, int] = defaultdict(int)
    for name in modules:
        if name and not any(other.startswith(f"{name}.") for other in modules):
            folders[name.rpartition(".")[0]] += 1
    for folder, count in sorted(folders.items()):
        if count > MODULES_MAX:
            yield f"{folder}: {count} modules, at most {MODULES_MAX}; divide the folder"


def repeated_names(modules: Modules) -> Iterator[str]:
    """Modules whose names repeat the name of their folder."""
    for name in modules:
        folder, _, module = name.rpartition(".")
        last = folder.rpartition(".")[2]
        if last and (module == last or module.startswith(f"{last}_")):
            yield f"{name}: the name of the module repeats that of its folder"


def ambiguous_classes(modules: Modules) -> Iterator[str]:
    """Public class names that two modules define."""
    places: dict[str, list[str]] = defaultdict(list)
    for name, tree in modules.items():
        for node in tree.body:
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                places[node.name].append(name)
    for class_name, defined in sorted(places.items()):
        if len(defined) > 1:
            yield f"class {class_name} is defined in {' and in '.join(defined)}"


def type_only_imports(modules: Modules) -> Iterator[str]:
    """Imports for types only, which hide a circle."""
    for name, tree in modules.items():
        if any(isinstance(node, ast.Name) and node.id == "TYPE_CHECKING" for node in ast.walk(tree)):
            yield f"{name}: imports under TYPE_CHECKING; cut the circle instead"


def folders_without_text(folder: Path) -> Iterator[str]:
    """Packages whose `__init__` does not say what is in them."""
    for path in sorted(folder.rglob("__init__.py")):
        if not ast.get_docstring(ast.parse(path.read_text(encoding="utf-8"))):
            yield f"{path.relative_to(folder)}: say what is in the folder and what it may import"


@pytest.fixture(scope="module")
def modules() -> dict[str, ast.Module]:
    return modules_below(SOURCE)


def test_folders_import_lower_layers_only(modules: Modules) -> None:
    assert list(upward_imports(modules, LAYERS)) == []


def test_no_import_circle(modules: Modules) -> None:
    assert list(circles(modules)) == []


def test_no_crowded_folder(modules: Modules) -> None:
    assert list(crowded_folders(modules)) == []


def test_no_module_repeats_the_name_of_its_folder(modules: Modules) -> None:
    assert list(repeated_names(modules)) == []


def test_a_class_name_means_one_thing(modules: Modules) -> None:
    assert list(ambiguous_classes(modules)) == []


def test_no_import_for_types_only(modules: Modules) -> None:
    assert list(type_only_imports(modules)) == []


def test_every_folder_says_what_is_in_it() -> None:
    assert list(folders_without_text(SOURCE)) == []


# ── each check fails on a tree that breaks it ───────────────────────────────────────────────────────


def tree(**texts: str) -> dict[str, ast.Module]:
    return {name.replace("__", "."): ast.parse(text) for name, text in texts.items()}


TWO_LAYERS: dict[str, tuple[set[str], ...]] = {"a": ({"low"}, {"high"})}


def test_an_upward_import_is_found() -> None:
    broken = tree(a__low__x="from bayplan.a.high.y import z", a__high__y="z = 1")
    assert list(upward_imports(broken, TWO_LAYERS)) == ["a.low.x imports a.high.y, which is not below low"]
    assert list(circles(broken)) == []


def test_an_upward_import_inside_a_function_is_found() -> None:
    broken = tree(a__low__x="def f():\n    from bayplan.a.high import y", a__high__y="")
    assert list(upward_imports(broken, TWO_LAYERS)) == ["a.low.x imports a.high.y, which is not below low"]


def test_a_folder_without_a_layer_is_found() -> None:
    assert list(upward_imports(tree(a__new__x=""), TWO_LAYERS)) == ["a.new.x: new is in no layer of a"]


def test_a_circle_is_found() -> None:
    broken = tree(a__x="import bayplan.a.y", a__y="def f():\n    from bayplan.a import x")
    assert len(list(circles(broken))) == 1


def test_a_crowded_folder_is_found() -> None:
    crowded = tree(**{f"a__m{at}": "" for at in range(MODULES_MAX + 1)})
    assert list(crowded_folders(crowded)) == ["a: 21 modules, at most 20; divide the folder"]


def test_a_module_named_like_its_folder_is_found() -> None:
    assert len(list(repeated_names(tree(a__pods__pods="", a__pods__pods_world="", a__pods__world="")))) == 2


def test_an_ambiguous_class_is_found() -> None:
    twice = tree(a__x="class Pod: ...", a__y="class Pod: ...\nclass _Own: ...", a__z="class _Own: ...")
    assert list(ambiguous_classes(twice)) == ["class Pod is defined in a.x and in a.y"]


def test_a_type_only_import_is_found() -> None:
    assert (
        len(list(type_only_imports(tree(a__x="from typing import TYPE_CHECKING\nif TYPE_CHECKING: ..."))))
        == 1
    )
