"""Gangs drawn from the sizes and run times that Acme's tables have of several sites, and Lingjun's hosts."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

from bayplan.model.node import Node
from bayplan.simulation.traces.cluster_shapes import read_switches
from bayplan.simulation.traces.readers import ReadOptions, TraceFormat, read_trace
from bayplan.simulation.traces.workload import Trace

CDFS, SWITCHES = "acme_summary_and_cdfs.tar.xz", "lingjun2023_topo.csv.xz"
SEREN = "Seren"


def traces_folder() -> Path | None:
    """The folder of the traces; None, and it says so, if it does not have them."""
    beside = Path(__file__).parents[3] / "shared" / "traces"
    folder = Path(os.environ.get("BAYPLAN_TRACES") or beside)
    if (folder / CDFS).is_file():
        return folder
    print(f"Not measured: {folder} has no {CDFS}; name the folder of the traces in BAYPLAN_TRACES.")
    return None


def lingjun_hosts(folder: Path) -> tuple[Node, ...]:
    """847 hosts with 8 GPUs each, in 119 racks."""
    return read_switches(str(folder / SWITCHES), 8)


def drawn_gangs(
    folder: Path, nodes: tuple[Node, ...], jobs: int, load: float, seed: int, *more: str, site: str = SEREN
) -> Trace:
    """So many gangs of a site; `more` are further lines of the description of the workload."""
    archive = (folder / CDFS).resolve()
    lines = (
        f"sizes: {{file: '{archive}#acme_cdf_gpus.csv', trace: {site}, what: jobs}}",
        f"durations: {{file: '{archive}#acme_cdf_duration.csv', trace: {site}, what: gpu_jobs}}",
        f"jobs: {jobs}",
        f"load: {load}",
        *more,
    )
    with tempfile.TemporaryDirectory() as scratch:
        spec = Path(scratch) / "gangs.yaml"
        spec.write_text("\n".join(lines))
        return read_trace(str(spec), ReadOptions(nodes, seed, ""), TraceFormat.DISTRIBUTION)
