"""`bayplan place`: files as people give them, from bytes to the drawing."""

from __future__ import annotations

import json
import sys
from io import BytesIO, TextIOWrapper
from random import Random
from typing import Any

from bayplan.cli.commands.main import main
from tests.fuzz.material import GPU, HOST, RACK, WORDS, everything, made, template
from tests.fuzz.mutator import Mutator
from tests.fuzz.target import Broken, Case
from tests.fuzz.texts import as_text, damaged

Object = dict[str, Any]

KINDS = ("Node", "Pod", "Topology", "ResourceFlavor", "Job", "JobSet", "Workload", "NodeResourceTopology")
OTHERS = ("MPIJob", "PyTorchJob", "RayCluster", "RayJob", "LeaderWorkerSet", "StatefulSet", "AppWrapper")
STRATEGIES = ("best_fit", "most_free", "least_free", "pack_racks", "balanced", "exact")
EXITS = (0, 1, 2)
DEEP = (20, 150, 300)


class PlaceTarget:
    """A case is the options and the bytes of a file."""

    name = "place"

    def __init__(self) -> None:
        self.mutator = Mutator(WORDS, deep=DEEP)
        self.material = [one for one in everything() if one["kind"] in (*KINDS, *OTHERS)]
        self.streams = [TextIOWrapper(BytesIO(), "utf-8", write_through=True) for _ in range(3)]

    def reset(self) -> None:
        """A command leaves nothing behind."""

    def sizes(self) -> dict[str, int]:
        return {}

    def draw(self, rng: Random) -> Case:
        """Two or more nodes, something to place, and a few changes."""
        nodes = [_node(number, rng.randrange(1, 5)) for number in range(rng.randrange(1, 5))]
        wanted = [_job(rng)] + [rng.choice(self.material) for _ in range(rng.randrange(2))]
        documents = [
            self.mutator.changed(rng, one, typed=rng.random() < 0.6) if rng.random() < 0.4 else one
            for one in (*nodes, *wanted)
        ]
        options = ["-o", rng.choice(("tree", "json", "yaml", "tree"))]
        if rng.random() < 0.5:
            options += ["--strategy", rng.choice(STRATEGIES)]
        if rng.random() < 0.3:
            options += ["--levels", rng.choice((RACK, f"{RACK},{HOST}", f"block,{RACK}", "", ",", "a b"))]
        if rng.random() < 0.1:
            options += [rng.choice(("--full", "--zones"))]
        return [options, damaged(rng, as_text(rng, [_unmarked(one) for one in documents], self.mutator))]

    def run(self, case: Case) -> int:
        """An answer, a refusal or a list of problems; never a traceback."""
        options, text = case
        status, output, errors = self._command(["place", "-f", "-", *options], text.encode("latin-1"))
        if status not in EXITS:
            raise Broken(f"exit status {status}: {(output + errors)[-300:]}")
        if status == 0 and options[1] == "json":
            json.loads(output)
        if any(character in text for character in "\x1b\x00" for text in (output, errors)):
            raise Broken("a control character reached the terminal")
        return 1

    def _command(self, words: list[str], typed: bytes) -> tuple[Any, str, str]:
        """Exit status, output and errors of a command.

        The streams are the same for every command: click keeps each stream that was ever standard output.
        """
        for stream in self.streams:
            stream.seek(0)
            stream.truncate()
        self.streams[0].buffer.write(typed)
        self.streams[0].seek(0)
        before = sys.stdin, sys.stdout, sys.stderr
        sys.stdin, sys.stdout, sys.stderr = self.streams
        try:
            main(words, prog_name="bayplan")
        except SystemExit as ended:
            status = ended.code
        finally:
            sys.stdin, sys.stdout, sys.stderr = before
        output, errors = (_written(stream) for stream in self.streams[1:])
        return status, output, errors


def _written(stream: TextIOWrapper) -> str:
    stream.seek(0)
    return stream.read()


def _node(number: int, gpus: int) -> Object:
    labels = {"block": "b", RACK: f"r{number % 2}", HOST: f"h{number}"}
    amounts = {"cpu": "8", GPU: str(gpus), "pods": "10"}
    return made("v1", "Node", {}, f"h{number}", labels=labels, status={"allocatable": amounts})


def _job(rng: Random) -> Object:
    count = rng.choice((1, 2, 3, 4, 8))
    spec = {"parallelism": count, "completions": count, "template": template()}
    notes = {
        rng.choice(
            ("kueue.x-k8s.io/podset-required-topology", "kueue.x-k8s.io/podset-preferred-topology")
        ): rng.choice((RACK, HOST, "block", "nowhere"))
    }
    if rng.random() < 0.4:
        notes |= {
            "kueue.x-k8s.io/podset-slice-required-topology": rng.choice((RACK, HOST)),
            "kueue.x-k8s.io/podset-slice-size": rng.choice(("1", "2", "3", "0", "²")),
        }
    spec["template"]["metadata"]["annotations"] = notes  # type: ignore[index]
    return made("batch/v1", "Job", spec, "job")


def _unmarked(value: Any) -> Any:
    from tests.fuzz.texts import plain

    return plain(value)
