"""`make bench-placement`: placement at several sizes of cluster, beside the peer where Go is installed."""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

from tests.benchmarks import measure, report, scenario, targets, theirs
from tests.benchmarks.measure import Line
from tests.benchmarks.targets import Lines

ROOT = Path(__file__).resolve().parents[2]
RESULTS = ROOT / "build" / "bench" / "placement.json"
SIZES = (1_000, 10_000, 100_000)
OUR_BUDGET, PEER_BUDGET = 1.0, 5.0  # seconds for one row
PEER_ROUNDS_MAX = 7  # a peer's row at 100,000 nodes takes up to a second a round


def main() -> int:
    """Measure, print the tables, write the results."""
    options = _options()
    ours: dict[int, Lines] = {}
    others: dict[int, Lines] = {}
    try:
        program = None if options.no_peer else _peer()
        for nodes in options.sizes:
            ours[nodes], others[nodes] = _measure(nodes, options.rounds, program)
            print(f"{report.table(nodes, ours[nodes], others[nodes])}\n", flush=True)
    except KeyboardInterrupt:
        print("Stopped.", file=sys.stderr)
        return 130
    print(report.LEGEND)
    if targets.SIZE in ours:
        print(f"\n{report.summary(ours[targets.SIZE], others[targets.SIZE])}")
    report.save(RESULTS, ours, others)
    print(f"\nWritten to {RESULTS.relative_to(ROOT)}")
    return 0


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="placement", description=__doc__)
    parser.add_argument("--sizes", type=_sizes, default=SIZES, help="numbers of nodes, with commas between")
    parser.add_argument("--rounds", type=_positive, default=100, help="measurements of each row at most")
    parser.add_argument("--no-peer", action="store_true", help="leave the peer out")
    return parser.parse_args()


def _sizes(text: str) -> tuple[int, ...]:
    sizes = tuple(_positive(part) for part in text.split(","))
    if any(size < scenario.NODES_PER_RACK for size in sizes):
        raise argparse.ArgumentTypeError(f"a cluster has at least one rack: {scenario.NODES_PER_RACK} nodes")
    return sizes


def _positive(text: str) -> int:
    try:
        number = int(text)
    except ValueError:
        number = 0
    if number < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number above 0")
    return number


def _peer() -> Path | None:
    try:
        return theirs.build()
    except theirs.Skipped as reason:
        print(f"Skipped the comparison with {theirs.NAME}: {reason}.")
        return None


def _measure(nodes: int, rounds: int, program: Path | None) -> tuple[Lines, Lines]:
    """Both sides on the same scenario, one after the other."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "scenario.json"
        scenario.write(scenario.make(nodes), path)
        mine = _collect(f"{nodes:,} nodes", _ours(path, rounds))
        if program is None:
            return mine, {}
        try:
            lines = theirs.run(program, path, min(rounds, PEER_ROUNDS_MAX), PEER_BUDGET)
            return mine, _collect(f"{nodes:,} nodes, {theirs.NAME}", lines)
        except theirs.Skipped as reason:
            print(f"Skipped the comparison with {theirs.NAME}: {reason}.")
            return mine, {}


def _ours(path: Path, rounds: int) -> Iterator[Line]:
    command = [sys.executable, "-m", "tests.benchmarks.ours", "--scenario", str(path)]
    command += ["--rounds", str(rounds), "--budget", str(OUR_BUDGET)]
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        for text in process.stdout:
            yield measure.decode(text)
    if process.returncode:
        raise SystemExit(f"measuring our side failed with status {process.returncode}")


def _collect(label: str, lines: Iterator[Line]) -> Lines:
    """Gather the rows, telling on a terminal which one is being measured."""
    shows = sys.stderr.isatty()
    found: dict[tuple[str, str], Line] = {}
    for line in lines:
        found[line.row, line.shape] = line
        if shows:
            print(f"\r\033[K{label}: {line.row} {line.shape}", end="", file=sys.stderr, flush=True)
    if shows:
        print("\r\033[K", end="", file=sys.stderr, flush=True)
    return found


if __name__ == "__main__":
    sys.exit(main())
