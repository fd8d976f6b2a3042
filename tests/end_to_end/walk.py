"""Walking through an example: its commands one after the other, and what each has to show.

`example.yaml` in its folder lists `steps`. A step has a command (`run`) and may have the file that it shows
sooner or later (`shows`), in how many domains of a level the pods are then (`spans`), how many of them were
there when something was shown last (`stay`), the status it ends with (`exits`), or names a job that comes to
its end (`ends`).
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import yaml

EXAMPLES = Path(__file__).parents[2] / "examples"
CONFIGURATION = EXAMPLES / "22-devices-in-a-queue" / "configuration.yaml"
"""What Bayplan runs with in all examples; only this one needs it."""
LEVEL = "cloud.example.com/topology-"
WORKLOADS = "workloads.kueue.x-k8s.io"
KINDS = "jobs,jobsets,leaderworkersets,mpijobs,pods"
ASKED = "provisioningrequests,podtemplates"
BYSTANDER = "bystander"  # in the names of what belongs to others
ENDED = ("Complete", "Completed", "Succeeded")
Object = dict[str, Any]


class Stage(Protocol):
    """Where an example is played."""

    @property
    def kubectl(self) -> Path:
        """The program."""

    @property
    def kubeconfig(self) -> Path:
        """Whom it talks to."""

    def play(self) -> None:
        """Everybody else (job controllers, kube-scheduler, time) gets a little further."""

    def patient(self) -> Any:
        """Something that counts the looks which are worth taking."""

    def listed(self, kinds: str) -> list[Object] | None:
        """The objects of `kubectl get KINDS`, if the stage has them at hand; None asks kubectl for them."""


@dataclass(frozen=True, slots=True)
class Example:
    """A folder with commands and what they show."""

    folder: Path
    steps: tuple[Object, ...]

    @property
    def name(self) -> str:
        return self.folder.name


def examples() -> list[Example]:
    """All that have steps, in order."""
    found = []
    for path in sorted(EXAMPLES.glob("[0-9]*/example.yaml")):
        told = yaml.safe_load(path.read_text(encoding="utf-8"))
        found.append(Example(path.parent, tuple(told["steps"])))
    return found


def commands(example: Example) -> list[str]:
    """The commands that the page of an example tells to type."""
    page = (example.folder / "README.md").read_text(encoding="utf-8")
    block = page.partition("```sh\n")[2].partition("```")[0]
    return block.splitlines()


@dataclass(frozen=True, slots=True)
class Walk:
    """One example on one stage."""

    stage: Stage
    folder: Path = EXAMPLES

    def through(self, example: Example) -> None:
        """Every step. Its own commands leave nothing behind, and nothing of others is touched."""
        before = self.bystanders()
        try:
            self._steps(example)
            self.until(lambda: not self.held(), "the quota is back")
            self.until(lambda: not self.get(f"{KINDS},{WORKLOADS},{ASKED}"), "nothing is left of it")
            assert self.bystanders() == before, "others were touched"
        except AssertionError:
            Walk(self.stage).run("kubectl apply -f cluster/nodes.yaml")
            self.run("kubectl uncordon -l example.com/pool")
            self._delete_all()
            self.until(lambda: not self.get(f"{KINDS},{WORKLOADS},{ASKED}"), "nothing is left")
            raise

    def _steps(self, example: Example) -> None:
        before: set[str] = set()
        for step in example.steps:
            if name := step.get("ends"):
                self.until(lambda name=name: self._has_ended(name), f"{name} ends")
            elif shown := step.get("shows"):
                wanted = (self.folder / shown).read_text(encoding="utf-8")
                self.until_shown(step["run"], wanted, int(step.get("exits", 0)))
                for level, count in (step.get("spans") or {}).items():
                    assert len(self.domains(level)) == count, f"{level}: {self.domains(level)}"
                now = {pod["metadata"]["uid"] for pod in self._alive()}
                assert len(before & now) == int(step.get("stay", len(before & now))), "others had to stay"
                before = now
            else:
                self.run(step["run"], int(step.get("exits", 0)))

    def _delete_all(self) -> None:
        found = " ".join(f"{one['kind']}/{one['metadata']['name']}" for one in self.get(KINDS))
        if found:
            self.run(f"kubectl delete {found} --wait=false --ignore-not-found")

    # ── doing ─────────────────────────────────────────────────────────────────────────────────────

    def run(self, command: str, status: int = 0) -> str:
        """What a command prints; others go on meanwhile."""
        code, output, complaint = self._called(command)
        assert code == status, f"{command}: status {code}, not {status}\n{output}{complaint}"
        return output

    def until_shown(self, command: str, wanted: str, status: int) -> None:
        """Look until the command shows what it should."""
        seen = ""
        for _ in self.stage.patient():
            code, seen, _ = self._called(command)
            if (code, seen) == (status, wanted):
                return
            self.stage.play()
        raise AssertionError(f"{command} shows\n{seen}\nand should show\n{wanted}")

    def until(self, holds: Any, what: str) -> None:
        for _ in self.stage.patient():
            if holds():
                return
            self.stage.play()
        raise AssertionError(f"never: {what}")

    def _called(self, command: str) -> tuple[int, str, str]:
        paths = (str(self.stage.kubectl.parent), str(Path(sys.executable).parent), os.environ["PATH"])
        names = {"KUBECONFIG": str(self.stage.kubeconfig), "PATH": os.pathsep.join(paths)}
        process = subprocess.Popen(
            ["sh", "-c", command],
            cwd=self.folder,
            env=os.environ | names | {"HOME": str(self.stage.kubeconfig.parent)},
            text=True,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )
        while True:
            try:
                output, complaint = process.communicate(timeout=0.2)
                return process.returncode, output, complaint
            except subprocess.TimeoutExpired:
                self.stage.play()

    # ── looking ───────────────────────────────────────────────────────────────────────────────────

    def get(self, kind: str) -> list[Object]:
        """All objects of the kind that are not a bystander's."""
        return [one for one in self._all(kind) if BYSTANDER not in one["metadata"]["name"]]

    def bystanders(self) -> set[tuple[str, str, bool, str, str]]:
        """What others run beside the example: every object, and whether it is changed or on its way out."""
        return {
            (
                one["kind"],
                one["metadata"]["uid"],
                "deletionTimestamp" in one["metadata"],
                str((one["metadata"].get("annotations") or {}).get("bayplan.dev/run-seconds")),
                json.dumps(one.get("status", {})) if one["kind"] == "ProvisioningRequest" else "",
            )
            for one in self._all(f"{KINDS},{WORKLOADS},{ASKED}")
            if BYSTANDER in one["metadata"]["name"]
        }

    def _all(self, kind: str) -> list[Object]:
        at_hand = self.stage.listed(kind)
        if at_hand is not None:
            return at_hand
        found: list[Object] = json.loads(self.run(f"kubectl get {kind} -o json"))["items"]
        return found

    def domains(self, level: str) -> set[str]:
        """Where the pods are that did not fail, of those on hosts that the level has."""
        places = {node["metadata"]["name"]: node["metadata"]["labels"] for node in self.get("nodes")}
        label = "kubernetes.io/hostname" if level == "host" else f"{LEVEL}{level}"
        found = [places[pod["spec"]["nodeName"]] for pod in self._alive()]
        return {labels[label] for labels in found if label in labels}

    def _alive(self) -> list[Object]:
        return [pod for pod in self.get("pods") if pod["status"]["phase"] != "Failed"]

    def held(self) -> list[str]:
        """What queues say is reserved, and Workloads that have a reservation and did not finish."""
        told = [
            f"{queue['metadata']['name']}: {resource['total']}"
            for queue in self.get("clusterqueues")
            for flavor in (queue.get("status") or {}).get("flavorsReservation") or ()
            for resource in flavor["resources"]
            if resource["total"] != "0"
        ]
        return told + [
            one["metadata"]["name"]
            for one in self.get(WORKLOADS)
            if self._is_true(one, "QuotaReserved") and not self._is_true(one, "Finished")
        ]

    def _has_ended(self, name: str) -> bool:
        found = json.loads(self.run(f"kubectl get {name} -o json"))
        mine = found.get("items", [found])
        return all(
            self._is_true(one, *ENDED) or one.get("status", {}).get("phase") == "Succeeded" for one in mine
        )

    @staticmethod
    def _is_true(found: Object, *kinds: str) -> bool:
        conditions = (found.get("status") or {}).get("conditions") or []
        return any(c["type"] in kinds and c["status"] == "True" for c in conditions)
