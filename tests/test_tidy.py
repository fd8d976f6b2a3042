"""The architecture, as a test: who may import whom, what stays pure, how things are named, how long they get.

The tables come first; they are docs/architecture.md in a form that fails. Each rule below them takes one
source file and yields sentences about what it found. test_tidy_can_fail.py breaks every rule once.
"""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path, PurePosixPath

import pytest

from bayplan.dialects.jobs.kinds import TABLE

ROOT = Path(__file__).parents[1]

# Each package may import itself and the packages named here, and nothing else of ours.
MAY_IMPORT: dict[str, set[str]] = {
    "model": set(),
    "placement": {"model"},
    "state": {"model", "placement"},
    "scheduling": {"model", "placement", "state"},
    "dialects": {"model"},
    "backends": {"dialects"},
    "runtime": {"model", "state", "scheduling", "dialects"},  # a backend is handed in
    "simulator": {"model", "state", "scheduling", "dialects", "backends", "runtime", "assembly"},
    "simulation": {"model", "placement", "state", "scheduling", "dialects"},
    "configuration": {"model", "state", "dialects", "runtime"},  # for their defaults
    "explanation": {"model", "placement", "dialects"},
    "assembly": {"model", "placement", "state", "scheduling", "dialects", "backends", "runtime"}
    | {"configuration", "explanation"},  # anything but cli and simulator
    "dashboard": {"model", "state", "dialects", "runtime", "explanation"},
    "testing": {"model", "placement", "state"},
}
WIRING = {"cli", "__main__", "__init__"}  # may import any package

# Inside dialects: three families that never meet, and the vocabularies they share.
DIALECT_MAY_IMPORT: dict[str, set[str]] = {
    "api": set(),
    "errors": set(),
    "kube": {"api", "dialect"},
    "jobs": {"api", "kube"},
    "kueue": {"api", "dialect", "reviews", "kube", "jobs"},
    "nrt": {"api", "dialect", "reviews", "kube", "jobs"},
    "kai": {"api", "dialect", "reviews", "kube", "jobs"},
}

FAMILIES = {"kueue", "nrt", "kai"}
# Controllers that know families only as dialects.
FAMILY_BLIND = (("runtime", "controllers", "scheduler"), ("runtime", "controllers", "admission"))

# The pure packages, each with the libraries it may use. Arrays stop at state.
PURE: dict[str, set[str]] = {
    "model": set(),
    "placement": {"highspy", "numpy"},
    "state": {"numpy"},
    "scheduling": set(),
    "dialects": {"cel_expr_python", "jsonschema_rs", "msgspec", "yaml"},
}
IMPURE_MODULES = (
    {"asyncio", "concurrent", "multiprocessing", "sched", "signal", "subprocess", "threading"}
    | {"fcntl", "glob", "io", "logging", "mmap", "os", "pathlib", "shutil", "sqlite3", "tempfile"}
    | {"http", "select", "selectors", "socket", "socketserver", "ssl", "urllib"}
    | {"getpass", "locale", "platform", "random", "secrets", "time", "uuid", "zoneinfo"}
    | {"ctypes", "importlib"}
)
IMPURE_CALLS = {"__import__", "breakpoint", "eval", "exec", "input", "open", "print"}
CLOCK_READS = {"now", "today", "utcnow"}  # time enters as an argument called `now`

CORE = {"model", "placement", "state", "scheduling"}
MAY_INHERIT = {"Enum", "Exception", "Generic", "IntEnum", "NamedTuple", "Protocol", "StrEnum", "dict"}
NAMED_TUPLE = {"_asdict", "_fields", "_make", "_replace"}  # underscored, but public
FAMILY_WORDS = ("kueue", "kai.scheduler", "scheduling.k8s.io", "noderesourcetopology")

LIBRARIES_REFUSED = {
    "fastapi",
    "httpx",
    "numba",
    "ortools",
    "pydantic",
    "requests",
    "typer",
}  # docs/decisions/0003
BUILDERS = {
    "gang",
    "host",
    "job",
    "node",
    "pod",
    "queue",
    "workload",
}  # what tests/support builds for all tests
VAGUE_NAMES = {"base", "common", "helper", "helpers", "manager", "misc", "util", "utils"}
MODULE_LINES_MAX = 400  # a module about one thing may have more, with a reason in LONG
MODULE_LINES_HARD = 600
FUNCTION_LINES_MAX = 60

# Modules of more than MODULE_LINES_MAX lines, and why each of them is about one thing all the same.
LONG: dict[str, str] = {
    "src/bayplan/backends/remote/kubeconfig.py": "one file format: its clusters, contexts and users",
    "src/bayplan/runtime/telemetry/admission_metrics.py": "one table of metrics and their samples",
    "src/bayplan/scheduling/admission/flavors.py": "one search; its steps share the query and the offer",
    "src/bayplan/state/scheduling/store.py": "one store: a method for each sort of change",
    "tests/test_tidy.py": "one list of rules, each a function",
    "tests/unit/runtime/controllers/pod_grouper/test_controller.py": "one world",
}

# Only the table of job kinds names them; imitated controllers and API servers have kinds of their own.
KIND_WORDS = {kind.kind for kind in TABLE} - {"Configuration", "Deployment", "Pod", "Service"}
MAY_NAME_KINDS = ("backends", "simulator")

# What one machine knows and the next does not. The brackets keep this file from matching itself.
MACHINE_PATH = re.compile(r"(?<![\w.:/~)}>-])/(?:work|root|home/\w+|Users/\w+)(?![\w-])")
REGISTRY_HOST = re.compile(r"pypi[.]org|pythonhosted[.]org|npmjs[.](?:org|com)|proxy[.]golang[.]org")


@dataclass(frozen=True)
class Source:
    """One Python file, named by its path from the root of the repository."""

    path: PurePosixPath
    text: str

    @cached_property
    def tree(self) -> ast.Module:
        return ast.parse(self.text)

    @cached_property
    def nodes(self) -> list[ast.AST]:
        return list(ast.walk(self.tree))

    @cached_property
    def inside(self) -> tuple[str, ...]:
        """The parts of its name below src/bayplan; none for a file elsewhere."""
        parts = self.path.with_suffix("").parts
        return parts[2:] if parts[:2] == ("src", "bayplan") else ()

    @property
    def package(self) -> str:
        return self.inside[0] if self.inside else ""

    @cached_property
    def imports(self) -> set[str]:
        """Every name imported anywhere in the file, in full: `from a.b import c` is both a.b and a.b.c."""
        found = set()
        for node in self.nodes:
            if isinstance(node, ast.Import):
                found |= {alias.name for alias in node.names}
            elif isinstance(node, ast.ImportFrom):
                module = "." * node.level + (node.module or "")
                found |= {module} | {f"{module}.{alias.name}" for alias in node.names}
        return found

    def below(self, prefix: str) -> set[str]:
        """What comes next in the imported names that start with the prefix."""
        return {name.removeprefix(prefix).split(".")[0] for name in self.imports if name.startswith(prefix)}

    @property
    def libraries(self) -> set[str]:
        return {name.split(".")[0] for name in self.imports} - {"", "bayplan"}


# ── rules ──────────────────────────────────────────────────────────────────────────────────────────


def imports_follow_the_table(source: Source) -> Iterator[str]:
    if any(name.startswith(".") for name in source.imports):
        yield "a relative import; write it from bayplan on"
    if not source.inside or source.package in WIRING:
        return
    if source.package not in MAY_IMPORT:
        yield f"a package '{source.package}' that the design does not have; add it to the table first"
        return
    known = set(MAY_IMPORT) | WIRING
    for name in sorted(source.below("bayplan.") & known - MAY_IMPORT[source.package] - {source.package}):
        yield f"{source.package} may not import {name}"


def families_stay_apart(source: Source) -> Iterator[str]:
    if source.package != "dialects" or len(source.inside) == 2:  # dialects/x.py itself may list the families
        return
    family = source.inside[1]
    if family not in DIALECT_MAY_IMPORT:
        yield f"a dialect '{family}' that the design does not have; add it to the table first"
        return
    for name in sorted(source.below("bayplan.dialects.") - DIALECT_MAY_IMPORT[family] - {family}):
        yield f"dialect {family} may not import {name}"


def controllers_ask_the_registry(source: Source) -> Iterator[str]:
    if source.inside[:3] in FAMILY_BLIND:
        for name in sorted(source.below("bayplan.dialects.") & FAMILIES):
            yield f"imports the family {name}; ask dialects/registry.py"
        for number, line in enumerate(source.text.lower().splitlines(), start=1):
            for word in FAMILY_WORDS:
                if word in line:
                    yield f"line {number} says '{word}'; only dialects know families"


def pure_packages_are_pure(source: Source) -> Iterator[str]:
    if source.package not in PURE:
        return
    for name in sorted(source.libraries & IMPURE_MODULES):
        yield f"imports {name}; {source.package} does no I/O and reads no clock"
    for node in source.nodes:
        match node:
            case ast.Attribute(value=ast.Name(id="np" | "numpy"), attr="random"):
                yield f"line {node.lineno} uses numpy.random; randomness lives in the simulator"
            case ast.Attribute(value=ast.Name(id="datetime" | "date"), attr=attr) if attr in CLOCK_READS:
                yield f"line {node.lineno} reads the clock ({attr}); take `now` as an argument"
            case ast.Call(func=ast.Attribute(value=value, attr=attr)) if attr in CLOCK_READS:
                if not (isinstance(value, ast.Name) and value.id in ("datetime", "date")):  # counted above
                    yield f"line {node.lineno} calls {attr}(); take `now` as an argument"
            case ast.Call(func=ast.Name(id=called)) if called in IMPURE_CALLS:
                yield f"line {node.lineno} calls {called}(); {source.package} does no I/O"


def libraries_are_the_chosen_ones(source: Source) -> Iterator[str]:
    for name in sorted(source.libraries & LIBRARIES_REFUSED):
        yield f"imports {name}, which was decided against"
    if source.package in PURE:
        foreign = source.libraries - sys.stdlib_module_names
        for name in sorted(foreign - PURE[source.package] - LIBRARIES_REFUSED):
            yield f"{source.package} may not use the library {name}"


def core_names_no_family(source: Source) -> Iterator[str]:
    if source.package in CORE:
        for number, line in enumerate(source.text.lower().splitlines(), start=1):
            for word in FAMILY_WORDS:
                if word in line:
                    yield f"line {number} says '{word}'; only dialects know families"


def kinds_are_entries_of_the_table(source: Source) -> Iterator[str]:
    if not source.inside or source.package in MAY_NAME_KINDS or source.inside[:2] == ("dialects", "jobs"):
        return
    for node in source.nodes:
        match node:
            case ast.Constant(value=str(word)) if word in KIND_WORDS:
                yield f"line {node.lineno} names the kind {word}; ask its entry in dialects/jobs"


def names_say_something(source: Source) -> Iterator[str]:
    for part in source.path.with_suffix("").parts:
        if part in VAGUE_NAMES or part.endswith("_info"):
            yield f"the name '{part}' says nothing; name it by what it does"


def builders_are_shared(source: Source) -> Iterator[str]:
    if source.path.parts[0] == "tests" and source.path.parts[1] != "support":
        for name, _ in builders(source):
            yield f"defines {name}(); call the one in tests/support, or say in its name what is special"


def builders(source: Source) -> Iterator[tuple[str, str]]:
    """The functions of the module with a name of BUILDERS, each with the type it returns."""
    for node in source.tree.body:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.name in BUILDERS:
            yield node.name, ast.unparse(node.returns) if node.returns else ""


def modules_tell_what_they_are(source: Source) -> Iterator[str]:
    if not ast.get_docstring(source.tree):
        yield "no docstring at the top; say in a sentence what the module is for"


def sizes_are_bounded(source: Source) -> Iterator[str]:
    for subject, lines, limit in sizes(source):
        allowed = MODULE_LINES_HARD if subject in LONG else limit
        if lines > allowed:
            yield f"{subject} has {lines} lines, {allowed} are allowed; divide it"


def core_imports_for_real(source: Source) -> Iterator[str]:
    if source.package in CORE and "typing.TYPE_CHECKING" in source.imports:
        yield "imports under TYPE_CHECKING; two modules that need each other share a third, or are one"


def core_composes(source: Source) -> Iterator[str]:
    if source.package not in CORE:
        return
    for node in source.nodes:
        if isinstance(node, ast.ClassDef):
            bases = (base.value if isinstance(base, ast.Subscript) else base for base in node.bases)
            for name in sorted({ast.unparse(base) for base in bases} - MAY_INHERIT):
                yield f"class {node.name} inherits from {name}; let it hold one"


def privates_stay_in_their_module(source: Source) -> Iterator[str]:
    if not source.inside:
        return
    own = {name for node in source.nodes for name in _defined(node)} | NAMED_TUPLE | {"_exit"}
    for node in source.nodes:
        match node:
            case ast.Attribute(value=ast.Name(id="self" | "cls")):
                continue
            case ast.Attribute(attr=name) if name.startswith("_") and not name.startswith("__"):
                if name not in own:
                    yield f"line {node.lineno} uses {name} of another module; make it public or ask for less"


def _defined(node: ast.AST) -> Iterator[str]:
    """The names of classes, functions and attributes that a module makes."""
    match node:
        case ast.ClassDef(name=name) | ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name):
            yield name
        case ast.Attribute(value=ast.Name(id="self" | "cls"), attr=name, ctx=ast.Store()):
            yield name
        case ast.AnnAssign(target=ast.Name(id=name)):
            yield name


RULES = (
    imports_follow_the_table,
    families_stay_apart,
    controllers_ask_the_registry,
    pure_packages_are_pure,
    libraries_are_the_chosen_ones,
    core_names_no_family,
    kinds_are_entries_of_the_table,
    names_say_something,
    builders_are_shared,
    modules_tell_what_they_are,
    sizes_are_bounded,
    core_imports_for_real,
    core_composes,
    privates_stay_in_their_module,
)


def sizes(source: Source) -> Iterator[tuple[str, int, int]]:
    """The module and each function: name, lines, and the most it should have."""
    yield str(source.path), len(source.text.splitlines()), MODULE_LINES_MAX
    for node in source.nodes:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            assert node.end_lineno is not None
            yield f"{source.path}::{node.name}", node.end_lineno - node.lineno + 1, FUNCTION_LINES_MAX


def breaches(source: Source) -> list[str]:
    return [f"{source.path}: {sentence}" for rule in RULES for sentence in rule(source)]


def repeated_builders(sources: Iterable[Source]) -> list[tuple[str, str]]:
    """Names of BUILDERS that more than one module defines for the same type."""
    counts = Counter(found for source in sources for found in builders(source))
    return sorted(found for found, count in counts.items() if count > 1)


def circles(sources: Iterable[Source]) -> list[tuple[str, ...]]:
    """Modules that import each other, directly or through others; imports inside functions count."""
    modules = {".".join(("bayplan", *source.inside)): source for source in sources}
    imports = {name: source.imports & modules.keys() - {name} for name, source in modules.items()}
    reached = {name: _reached(name, imports) for name in imports}
    mutual = {name: {other for other in found if name in reached[other]} for name, found in reached.items()}
    return sorted({tuple(sorted(found | {name})) for name, found in mutual.items() if found})


def _reached(start: str, imports: Mapping[str, set[str]]) -> set[str]:
    found: set[str] = set()
    ahead = [start]
    while ahead:
        fresh = imports[ahead.pop()] - found
        found |= fresh
        ahead += fresh
    return found


def machine_words(text: str) -> list[str]:
    return [found[0] for pattern in (MACHINE_PATH, REGISTRY_HOST) for found in pattern.finditer(text)]


# ── the repository holds to them ───────────────────────────────────────────────────────────────────


def read(path: Path) -> Source:
    return Source(PurePosixPath(path.relative_to(ROOT).as_posix()), path.read_text(encoding="utf-8"))


def tracked() -> list[Path]:
    """The files of the repository; outside a git checkout, all that are not hidden."""
    listing = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True, check=False)
    if listing.returncode == 0:
        found = [ROOT / name for name in listing.stdout.split("\0") if name]
    else:
        found = [p for p in ROOT.rglob("*") if not any(part[0] == "." for part in p.relative_to(ROOT).parts)]
    return sorted(path for path in found if path.is_file())


PYTHON_FILES = sorted(path for folder in ("src", "tests") for path in (ROOT / folder).rglob("*.py"))


def _folder(path: Path) -> str:
    """The package below src/bayplan, or the folder below tests."""
    parts = path.relative_to(ROOT).parts
    return "/".join(parts[: min(len(parts) - 1, 3 if parts[0] == "src" else 2)])


@pytest.mark.parametrize("folder", sorted({_folder(path) for path in PYTHON_FILES}))
def test_source_is_tidy(folder: str) -> None:
    found = {path: breaches(read(path)) for path in PYTHON_FILES if _folder(path) == folder}
    assert {path.relative_to(ROOT).as_posix(): those for path, those in found.items() if those} == {}


def test_no_modules_of_the_core_import_each_other() -> None:
    assert circles(source for path in PYTHON_FILES if (source := read(path)).package in CORE) == []


def test_each_builder_of_the_tests_exists_once_for_each_type() -> None:
    assert repeated_builders(read(path) for path in PYTHON_FILES if path.is_relative_to(ROOT / "tests")) == []


def test_exceptions_are_still_needed() -> None:
    named = {ROOT / name.partition("::")[0] for name in LONG}
    sources = [read(path) for path in PYTHON_FILES if path in named]
    too_long = {name for source in sources for name, lines, limit in sizes(source) if lines > limit}
    assert set(LONG) <= too_long, "take these out of LONG: they are short enough now, or gone"


def test_no_file_knows_the_machine_it_was_written_on() -> None:
    for path in tracked():
        assert machine_words(path.read_text(encoding="utf-8", errors="replace")) == [], path.relative_to(ROOT)


def test_the_documented_package_table_is_this_one() -> None:
    text = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| `(\w+)` \|.*\| ([^|]*) \|$", text, re.MULTILINE)
    documented = {name: set(re.findall(r"\w+", allowed)) for name, allowed in rows}
    assert documented == MAY_IMPORT | {"cli": {"any"}}
