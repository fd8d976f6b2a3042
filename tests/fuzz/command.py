"""The command line of the fuzzer: targets for some time or with some number of inputs, or one input again."""

from __future__ import annotations

import argparse
import json
import math
import multiprocessing
import time
from pathlib import Path

from tests.fuzz.running import Finding, Result, attempt, case_of, fuzz, shrunk
from tests.fuzz.target import Target
from tests.fuzz.targets import SHARES, TARGETS

REPORTS = Path("reports/fuzz")
LINES_SHOWN = 30


def main(arguments: list[str] | None = None) -> int:
    """Exit status 0: nothing found; 1: something was, and how to repeat it was printed."""
    given = _options(arguments)
    names = [given.only] if given.only else list(TARGETS)
    if given.repeat:
        return _repeat(TARGETS[names[0]](), given.seed, given.repeat)
    began = time.monotonic()
    whole = sum(SHARES[name] for name in names)
    tasks = [(name, SHARES[name] / whole, given) for name in names]
    if given.processes > 1:
        with multiprocessing.get_context("spawn").Pool(given.processes, maxtasksperchild=1) as pool:
            results = pool.map(_one, tasks, chunksize=1)
    else:
        results = [_one(task) for task in tasks]
    inputs, found = sum(one.inputs for one in results), sum(len(one.findings) for one in results)
    print(f"{inputs:,} inputs in {time.monotonic() - began:.0f} s, seed {given.seed}: {found} findings")
    return 1 if found else 0


def _one(task: tuple[str, float, argparse.Namespace]) -> Result:
    """Run one target for its part of the time, or of the inputs."""
    name, part, given = task
    target, seconds = TARGETS[name](), given.seconds * part * given.processes
    result = fuzz(
        target, given.seed, seconds=seconds, inputs=math.ceil(given.inputs * part), first=given.first
    )
    _tell(target, result, shrink=not given.no_shrink)
    return result


def _options(arguments: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz", description=__doc__)
    parser.add_argument("--seconds", type=float, default=0.0, help="how long to run, over all targets")
    parser.add_argument("--inputs", type=int, default=0, help="how many inputs to run, over all targets")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--first", type=int, default=0, help="the number of the first case")
    parser.add_argument("--processes", type=int, default=1, help="how many targets to run at a time")
    parser.add_argument("--only", choices=sorted(TARGETS), help="one target")
    parser.add_argument("--repeat", metavar="CASE", help="the number of a case, or a file of the corpus")
    parser.add_argument("--no-shrink", action="store_true", help="keep what was found as it was drawn")
    given = parser.parse_args(arguments)
    if given.repeat and not given.only:
        parser.error("--repeat needs --only TARGET")
    if not given.repeat and not given.seconds and not given.inputs:
        given.seconds = 60.0
    return given


def _repeat(target: Target, seed: int, what: str) -> int:
    case = case_of(target, seed, int(what)) if what.isdecimal() else json.loads(Path(what).read_text())
    print(json.dumps(case, indent=1)[:20_000])
    found = attempt(target, case)
    if isinstance(found, int):
        print(f"{found} inputs, nothing found")
        return 0
    print(f"{found[0]}\n{found[1]}")
    return 1


def _tell(target: Target, result: Result, *, shrink: bool) -> None:
    rate = result.inputs / max(result.seconds, 1e-9)
    print(
        f"{result.target:12} {result.inputs:>9,} inputs {result.seconds:6.0f} s {rate:>8,.0f}/s "
        f"{len(result.findings)} findings, {result.grown_bytes >> 20} MiB grown",
        flush=True,
    )
    for finding in result.findings.values():
        print(f"  {finding.what} ({result.counts[finding.what]} times)")
        print("\n".join(f"    {line}" for line in finding.told.splitlines()[-LINES_SHOWN:]))
        again = f"--only {result.target} --seed {result.seed} --repeat {finding.number}"
        print(f"    repeat: python -m tests.fuzz {again}")
        print(f"    kept:   {_kept(target, finding, shrink=shrink)}", flush=True)


def _kept(target: Target, finding: Finding, *, shrink: bool) -> Path:
    """Write the case, as small as it gets, where it can be taken into the corpus."""
    case = shrunk(target, finding.case, finding.what) if shrink and finding.case is not None else finding.case
    REPORTS.mkdir(parents=True, exist_ok=True)
    name = "".join(c if c.isalnum() else "-" for c in finding.what)[:80]
    path = REPORTS / f"{target.name}--{name}.json"
    path.write_text(json.dumps(case, indent=1), encoding="utf-8")
    return path
