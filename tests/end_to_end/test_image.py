"""`make image`: an image that two builds make alike, and that works as the Deployment runs it.

Its root file system is mounted read-only in a mount namespace, and entered as the user of the Deployment. The
image that a container engine builds from Containerfile is entered in the same way, where one is installed.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from bayplan import __version__
from bayplan.assembly.install_settings import CERTIFICATE_FOLDER, CONFIG_FOLDER, JOURNAL, USER
from bayplan.assembly.manifests import InstallSettings, custom_resources
from bayplan.backends.fake_controllers.manifests import BLOCK, RACK, job, topology
from bayplan.dialects.kueue.names.annotations import REQUIRED
from tests.end_to_end.objects import eventually, kwok_node
from tests.support.make_targets import making
from tests.support.missing_parts import lacking
from tests.support.unpacked_image import UnpackedImage
from tools.image import rootfs

if TYPE_CHECKING:
    from tools.controlplane.cluster import Cluster

ROOT = Path(__file__).parents[2]
ENGINES = ("podman", "docker")
ARCHIVE = ROOT / "build" / "image" / "bayplan.tar"
EXAMPLE = ROOT / "examples" / "01-place"

pytestmark = [pytest.mark.real, pytest.mark.minutes(3)]


def runs(engine: str) -> bool:
    """Whether a container engine is installed, and its daemon answers if it has one."""
    asked = [engine, "info"]
    return (
        bool(shutil.which(engine)) and not subprocess.run(asked, capture_output=True, check=False).returncode
    )


@pytest.fixture(scope="module")
def archive() -> Path:
    """The archive that `make image` builds."""
    if shutil.which("apt-get") is None or shutil.which("dpkg-deb") is None:
        lacking("make image needs apt-get and dpkg-deb of Debian 12")
    with making("image"):
        return ARCHIVE


@pytest.fixture(scope="module")
def assembled(archive: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[UnpackedImage]:
    """The image of `make image`, unpacked."""
    with open_folder(tmp_path_factory) as folder:
        yield UnpackedImage.of_archive(archive, folder)


@pytest.fixture(scope="module", params=["make image", *filter(runs, ENGINES)])
def image(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[UnpackedImage]:
    """The image of `make image`, and that of each container engine which runs here, from Containerfile."""
    if request.param == "make image":
        yield request.getfixturevalue("assembled")
        return
    with open_folder(tmp_path_factory) as folder:
        yield UnpackedImage.of_engine(request.param, ROOT, folder)


@contextmanager
def open_folder(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A folder that every user may enter."""
    if os.geteuid() != 0 or shutil.which("unshare") is None:
        lacking("entering the image needs root and unshare")
    folder = Path(tmp_path_factory.mktemp("image"))
    for above in (folder, *folder.parents[:2]):
        above.chmod(0o755)
    yield folder
    shutil.rmtree(folder, ignore_errors=True)


def test_two_builds_have_the_same_bytes(archive: Path, tmp_path: Path) -> None:
    python = ROOT / "build" / "release-tools" / "bin" / "python"
    second = tmp_path / "second.tar"
    with making("image"):  # `make dist` would change what the image is built from
        subprocess.run([python, "-m", "tools.image", "build", "--output", str(second)], cwd=ROOT, check=True)
    assert second.read_bytes() == archive.read_bytes()


def test_it_has_no_shell_and_no_file_that_gives_rights(assembled: UnpackedImage) -> None:
    programs = {
        path.name
        for folder in ("usr/bin", "usr/sbin", "usr/local/bin")
        for path in (assembled.root / folder).iterdir()
    }
    assert programs == {"python3.11", "bayplan"}
    assert [
        path for path in assembled.root.rglob("*") if not path.is_symlink() and path.stat().st_mode & 0o6000
    ] == []


def test_it_is_smaller_than_200_megabytes(assembled: UnpackedImage) -> None:
    sizes = [path.lstat().st_size for path in assembled.root.rglob("*") if path.is_file()]
    assert sum(sizes) < 200_000_000


def test_it_runs_as_the_user_of_the_deployment(image: UnpackedImage) -> None:
    assert image.config["User"] == f"{USER}:{USER}" and rootfs.USER == USER


def test_it_has_the_mount_points_of_the_deployment_and_says_its_version(assembled: UnpackedImage) -> None:
    assert all(
        (assembled.root / path[1:]).is_dir() for path in (JOURNAL, CONFIG_FOLDER, CERTIFICATE_FOLDER, "/tmp")
    )
    assert assembled.config["Labels"]["org.opencontainers.image.version"] == __version__


def test_its_components_and_licences_are_listed_inside(assembled: UnpackedImage) -> None:
    bom = json.loads((assembled.root / "usr/share/bayplan/sbom.cdx.json").read_text())
    assert bom["bomFormat"] == "CycloneDX" and bom["metadata"]["component"]["version"] == __version__
    names = {one["name"] for one in bom["components"]}
    assert {"numpy", "aiohttp", "libc6", "python3.11-minimal"} <= names
    listed = (assembled.root / "usr/share/bayplan/LICENCES.txt").read_text()
    assert all(f"{name} " in listed for name in names)
    copyrights = [line.split()[-1] for line in listed.splitlines() if line.endswith("/copyright")]
    assert [path for path in copyrights if not (assembled.root / path[1:]).exists()] == []


def test_it_says_its_version(image: UnpackedImage) -> None:
    assert image.run("version").startswith(f"bayplan {__version__}\n")


def test_it_has_the_extras_that_a_replica_can_use(image: UnpackedImage) -> None:
    extras = json.loads(image.run("version", "-o", "json"))["extras"]
    assert {"cel", "exact", "tracing"} <= set(extras), "selectors of devices, the complete search, spans"


def test_it_places_gangs(image: UnpackedImage) -> None:
    for name in ("cluster.yaml", "gangs.yaml"):
        shutil.copy(EXAMPLE / name, image.etc / name)
        (image.etc / name).chmod(0o644)
    placed = image.run("place", "-f", f"{CONFIG_FOLDER}/cluster.yaml", "-f", f"{CONFIG_FOLDER}/gangs.yaml")
    assert "placed: 8 pods on 5 hosts, 2 racks, 1 block" in placed


def test_it_decides_in_the_shadow_for_a_real_cluster(
    image: UnpackedImage, cluster: Cluster, tmp_path: Path
) -> None:
    cluster.apply(*custom_resources(InstallSettings(roles=("scheduler",))))
    eventually(
        lambda: "topologies" in cluster.kubectl("api-resources", "-o", "name"), "definitions are served"
    )
    cluster.apply(topology(), kwok_node("in-image", 4, **{BLOCK: "b1", RACK: "r1"}))
    cluster.kubectl("wait", "--for=condition=Ready", "--timeout=120s", "node", "in-image")
    cluster.apply(job("in-image", 2, 1, {REQUIRED: RACK}, seconds=2))
    shutil.copy(cluster.kubeconfig_of("admin"), image.etc / "kubeconfig")
    (image.etc / "kubeconfig").chmod(0o644)
    command = image.command(
        "run", "--shadow", "--roles=scheduler", f"--kubeconfig={CONFIG_FOLDER}/kubeconfig",
        f"--journal={JOURNAL}", "--log-format=json",
    )  # fmt: skip
    with (tmp_path / "log").open("w") as log:
        process = subprocess.Popen(command, env=image.environment, stderr=log, stdout=log)
        try:
            eventually(lambda: "in-image" in planned(image.journal), "the job is in a plan of the journal")
        finally:
            process.send_signal(signal.SIGTERM)
            status = process.wait(40)
    assert status == 0, (tmp_path / "log").read_text()
    assert {path.stat().st_uid for path in image.journal.iterdir()} == {USER}
    pods = cluster.get("pods", "-n", "default", "-l", "job-name=in-image")["items"]
    assert [one["spec"].get("nodeName") for one in pods] == [None, None]
    cluster.kubectl("delete", "job", "-n", "default", "in-image")
    cluster.kubectl("delete", "node", "in-image")
    cluster.kubectl("delete", "topologies.kueue.x-k8s.io", "data-centre")


def planned(journal: Path) -> str:
    """The plans in the journal."""
    lines = [line for path in journal.glob("*.jsonl") for line in path.read_text().splitlines()]
    return "\n".join(line for line in lines if '"plan"' in line)


def test_the_containerfile_says_the_same_of_the_image(assembled: UnpackedImage) -> None:
    lines = (ROOT / "Containerfile").read_text(encoding="utf-8").rpartition("\nFROM ")[2].splitlines()
    said = {name: value for name, _, value in (line.partition(" ") for line in lines)}
    assert said["USER"] == assembled.config["User"]
    assert json.loads(said["ENTRYPOINT"]) == assembled.config["Entrypoint"]
    assert set(said["ENV"].split()) == set(assembled.config["Env"])
    assert said["WORKDIR"] == assembled.config["WorkingDir"]
