"""Every rule of test_tidy.py broken once, so that a rule which finds nothing is known to have looked."""

from __future__ import annotations

from pathlib import PurePosixPath

import pytest

from tests import test_tidy
from tests.test_tidy import (
    BUILDERS,
    FUNCTION_LINES_MAX,
    LONG,
    MODULE_LINES_MAX,
    Source,
    breaches,
    circles,
    machine_words,
    repeated_builders,
)

BREACHES = [
    (
        "model/a.py",
        "from bayplan.placement.cluster.topology_tree import Tree",
        "model may not import placement",
    ),
    ("placement/a.py", "from bayplan import state", "placement may not import state"),
    ("state/a.py", "def f():\n    import bayplan.cli.commands.main", "state may not import cli"),
    ("dialects/kube/a.py", "import bayplan.state", "dialects may not import state"),
    ("runtime/a.py", "from bayplan.backends import errors", "runtime may not import backends"),
    ("placement/a.py", "from . import tree", "relative import"),
    ("gadgets/a.py", "", "package 'gadgets'"),
    ("dialects/kueue/a.py", "from bayplan.dialects import kai", "kueue may not import kai"),
    ("dialects/nrt/a.py", "from bayplan.dialects.kueue.names import X", "nrt may not import kueue"),
    ("dialects/jobs/a.py", "import bayplan.dialects.kueue", "jobs may not import kueue"),
    ("dialects/slurm/a.py", "", "dialect 'slurm'"),
    (
        "runtime/controllers/scheduler/a.py",
        "from bayplan.dialects.kai.api.names import QUEUE",
        "imports the family kai",
    ),
    (
        "runtime/controllers/admission/a.py",
        "from bayplan.dialects import kueue",
        "imports the family kueue",
    ),
    ("runtime/controllers/admission/a.py", "GROUP = 'kueue.x-k8s.io'", "line 1 says 'kueue'"),
    ("state/a.py", "import os.path", "imports os"),
    ("scheduling/a.py", "from time import monotonic", "imports time"),
    ("placement/a.py", "import numpy as np\nx = np.random.default_rng()", "numpy.random"),
    ("dialects/kube/a.py", "import datetime\nx = datetime.datetime.now()", "calls now()"),
    ("dialects/kube/a.py", "from datetime import datetime\nread = datetime.utcnow", "reads the clock"),
    ("model/a.py", "open('x')", "calls open()"),
    ("model/a.py", "import numpy", "may not use the library numpy"),
    ("dialects/kube/a.py", "import aiohttp", "may not use the library aiohttp"),
    ("backends/a.py", "import httpx", "decided against"),
    ("placement/a.py", "# as Kueue has it", "says 'kueue'"),
    ("runtime/a.py", "def f(job):\n    return job.kind == 'TrainJob'", "names the kind TrainJob"),
    ("dialects/kueue/a.py", "_STEPS = ('MPIJob',)", "names the kind MPIJob"),
    ("state/a.py", "from typing import TYPE_CHECKING", "imports under TYPE_CHECKING"),
    (
        "state/a.py",
        "from bayplan.state.cluster.topology_state import Cluster\nclass A(Cluster): ...",
        "inherits from Cluster",
    ),
    ("runtime/a.py", "def f(line):\n    return line._due", "uses _due of another module"),
    ("runtime/utils.py", "", "'utils' says nothing"),
    ("runtime/node_info.py", "", "'node_info' says nothing"),
    ("runtime/common/a.py", "", "'common' says nothing"),
    ("runtime/a.py", "x = 1\n" * MODULE_LINES_MAX, "401 lines, 400 are allowed"),
    (
        "runtime/a.py",
        "async def f():\n" + "    x = 1\n" * FUNCTION_LINES_MAX,
        "f has 61 lines",
    ),
]
CLEAN = [
    ("placement/a.py", "import numpy as np\nfrom bayplan.model.node import Node"),
    ("state/a.py", "from bayplan.placement import tree\nnow = tree.now"),
    (
        "dialects/kueue/a.py",
        "import json, yaml\nfrom bayplan.dialects import jobs, kube, kueue",
    ),
    ("dialects/families.py", "from bayplan.dialects import kai, kueue"),
    ("cli/a.py", "import os, time\nfrom bayplan import runtime, simulator"),
    ("__init__.py", "from bayplan.model import gang"),
    ("state/a.py", "class A(dict[str, str]):\n    def f(self, other):\n        self._x = other._x"),
    ("runtime/a.py", "x = 1\n" * (MODULE_LINES_MAX - 1)),
]


def written(name: str, body: str) -> Source:
    return Source(PurePosixPath("src/bayplan") / name, f'"""A module."""\n{body}')


@pytest.mark.parametrize(("name", "body", "sentence"), BREACHES, ids=[case[2] for case in BREACHES])
def test_a_breach_is_found(name: str, body: str, sentence: str) -> None:
    [found] = breaches(written(name, body))
    assert sentence in found


@pytest.mark.parametrize(("name", "body"), CLEAN, ids=[case[0] for case in CLEAN])
def test_what_is_allowed_passes(name: str, body: str) -> None:
    assert breaches(written(name, body)) == []


def test_modules_that_import_each_other_are_found() -> None:
    first = written("state/a.py", "from bayplan.state import b")
    second = written("state/b.py", "def f():\n    import bayplan.state.c")
    third = written("state/c.py", "from bayplan.state.a import X")
    outside = written("state/d.py", "from bayplan.state.a import X")
    assert circles([first, second, third, outside]) == [
        ("bayplan.state.a", "bayplan.state.b", "bayplan.state.c")
    ]
    assert circles([first, second, outside]) == []


def builder(path: str, name: str, made: str) -> Source:
    return Source(PurePosixPath(path), f'"""A module."""\ndef {name}(name: str) -> {made}: ...')


@pytest.mark.parametrize("name", sorted(BUILDERS))
def test_a_builder_outside_the_shared_ones_is_found(name: str) -> None:
    [found] = breaches(builder("tests/unit/test_a.py", name, "Object"))
    assert f"defines {name}()" in found
    assert breaches(builder("tests/unit/test_a.py", f"bound_{name}", "Object")) == []
    assert breaches(builder("tests/support/a.py", name, "Object")) == []
    assert breaches(builder("src/bayplan/runtime/a.py", name, "Object")) == []


def test_a_second_builder_of_the_same_type_is_found() -> None:
    first = builder("tests/support/a.py", "pod", "Object")
    second = builder("tests/support/b.py", "pod", "Object")
    value = builder("tests/support/c.py", "pod", "Pod")
    assert repeated_builders([first, second, value]) == [("pod", "Object")]
    assert repeated_builders([first, value]) == []


def test_a_module_without_docstring_is_found() -> None:
    [found] = breaches(Source(PurePosixPath("src/bayplan/model/a.py"), "x = 1\n"))
    assert "no docstring" in found


@pytest.mark.parametrize("folder", ["work", "root", "home/ada", "Users/ada"])
def test_a_machine_path_is_found(folder: str) -> None:
    assert machine_words(f"see '/{folder}/notes'") == [f"/{folder}"]


@pytest.mark.parametrize(
    "text", ["https://example.com/work/a", "../work", "work/a", "/workers", "/work-queue"]
)
def test_other_paths_are_left_alone(text: str) -> None:
    assert machine_words(text) == []


def test_a_registry_host_is_found() -> None:
    host = ".".join(["pypi", "org"])
    assert machine_words(f"from https://{host}/simple") == [host]


def test_a_listed_exception_may_not_grow(monkeypatch: pytest.MonkeyPatch) -> None:
    long = written("runtime/a.py", "x = 1\n" * 599)
    monkeypatch.setitem(LONG, str(long.path), "a reason")
    assert breaches(long) == []
    [found] = breaches(written("runtime/a.py", "x = 1\n" * 600))
    assert "601 lines, 600 are allowed" in found


def test_an_exception_that_is_not_needed_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(LONG, "src/bayplan/gone.py", "a reason")
    with pytest.raises(AssertionError, match="take these out"):
        test_tidy.test_exceptions_are_still_needed()
