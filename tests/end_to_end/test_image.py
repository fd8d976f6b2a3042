"""`make image`: an image that two builds make alike, and that works as the Deployment runs it.

Its root file system is mounted read-only in a mount namespace, and entered as the user of the Deployment.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from bayplan import __version__
from bayplan.assembly.install_settings import CERTIFICATE_FOLDER, CONFIG_FOLDER, JOURNAL, USER
from bayplan.assembly.manifests import InstallSettings, custom_resources
from bayplan.backends.fake_controllers.manifests import BLOCK, RACK, job, topology
from bayplan.dialects.kueue.names.annotations import REQUIRED
from tests.end_to_end.objects import eventually, kwok_node
from tests.support.missing_parts import lacking
from tools.image import rootfs
from tools.image.archive import unpack

if TYPE_CHECKING:
    from tools.controlplane.cluster import Cluster

ROOT = Path(__file__).parents[2]
ARCHIVE = ROOT / "build" / "image" / "bayplan.tar"
EXAMPLE = ROOT / "examples" / "01-place"
ENTER = """
set -e
mount --bind "$1" "$1"
mount -t tmpfs -o mode=1777 tmpfs "$1/tmp"
mount --bind "$2" "$1/etc/bayplan"
mount --bind "$3" "$1/var/lib/bayplan"
mount -t proc proc "$1/proc"
mount --bind /dev "$1/dev"
mount -o remount,bind,ro "$1"
root="$1"; shift 3
exec chroot --userspec=65532:65532 --groups= "$root" "$@"
"""

pytestmark = [pytest.mark.real, pytest.mark.minutes(3)]
Object = dict[str, Any]


@pytest.fixture(scope="module")
def archive() -> Path:
    """The archive that `make image` builds."""
    if shutil.which("apt-get") is None or shutil.which("dpkg-deb") is None:
        lacking("make image needs apt-get and dpkg-deb of Debian 12")
    made = subprocess.run(["make", "image"], cwd=ROOT, capture_output=True, text=True, check=False)
    assert made.returncode == 0, made.stdout + made.stderr
    return ARCHIVE


class Image:
    """The unpacked image, its configuration, and two folders that are mounted into it."""

    def __init__(self, archive: Path, folder: Path) -> None:
        self.root = folder / "root"
        self.config: Object = unpack(archive, self.root)["config"]
        self.etc, self.journal = folder / "etc", folder / "journal"
        for path in (self.etc, self.journal):
            path.mkdir()
            path.chmod(0o755)
        os.chown(self.journal, USER, USER)

    def command(self, *arguments: str) -> list[str]:
        """The entry point with arguments, inside."""
        mounts = [str(path) for path in (self.root, self.etc, self.journal)]
        entry = [*self.config["Entrypoint"], *arguments]
        return ["unshare", "--mount", "--propagation", "private", "sh", "-c", ENTER, "sh", *mounts, *entry]

    @property
    def environment(self) -> dict[str, str]:
        given = dict(one.split("=", 1) for one in self.config["Env"])
        return {**given, "PATH": f"{given['PATH']}:/usr/sbin:/bin:/sbin"}  # for mount and chroot outside

    def run(self, *arguments: str) -> str:
        ran = subprocess.run(
            self.command(*arguments), env=self.environment, capture_output=True, text=True, check=False
        )
        assert ran.returncode == 0, ran.stdout + ran.stderr
        return ran.stdout


@pytest.fixture(scope="module")
def image(archive: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Image]:
    """The image, unpacked below a folder that every user may enter."""
    if os.geteuid() != 0 or shutil.which("unshare") is None:
        lacking("entering the image needs root and unshare")
    folder = Path(tmp_path_factory.mktemp("image"))
    for above in (folder, *folder.parents[:2]):
        above.chmod(0o755)
    yield Image(archive, folder)
    shutil.rmtree(folder, ignore_errors=True)


def test_two_builds_have_the_same_bytes(archive: Path, tmp_path: Path) -> None:
    python = ROOT / "build" / "release-tools" / "bin" / "python"
    second = tmp_path / "second.tar"
    subprocess.run([python, "-m", "tools.image", "build", "--output", str(second)], cwd=ROOT, check=True)
    assert second.read_bytes() == archive.read_bytes()


def test_it_has_no_shell_and_no_file_that_gives_rights(image: Image) -> None:
    programs = {
        path.name
        for folder in ("usr/bin", "usr/sbin", "usr/local/bin")
        for path in (image.root / folder).iterdir()
    }
    assert programs == {"python3.11", "bayplan"}
    assert [
        path for path in image.root.rglob("*") if not path.is_symlink() and path.stat().st_mode & 0o6000
    ] == []


def test_it_is_smaller_than_200_megabytes(image: Image) -> None:
    sizes = [path.lstat().st_size for path in image.root.rglob("*") if path.is_file()]
    assert sum(sizes) < 200_000_000


def test_it_runs_as_the_user_of_the_deployment_and_has_its_mount_points(image: Image) -> None:
    assert image.config["User"] == f"{USER}:{USER}" and rootfs.USER == USER
    assert all(
        (image.root / path[1:]).is_dir() for path in (JOURNAL, CONFIG_FOLDER, CERTIFICATE_FOLDER, "/tmp")
    )
    assert image.config["Labels"]["org.opencontainers.image.version"] == __version__


def test_its_components_and_licences_are_listed_inside(image: Image) -> None:
    bom = json.loads((image.root / "usr/share/bayplan/sbom.cdx.json").read_text())
    assert bom["bomFormat"] == "CycloneDX" and bom["metadata"]["component"]["version"] == __version__
    names = {one["name"] for one in bom["components"]}
    assert {"numpy", "aiohttp", "libc6", "python3.11-minimal"} <= names
    listed = (image.root / "usr/share/bayplan/LICENCES.txt").read_text()
    assert all(f"{name} " in listed for name in names)
    copyrights = [line.split()[-1] for line in listed.splitlines() if line.endswith("/copyright")]
    assert [path for path in copyrights if not (image.root / path[1:]).exists()] == []


def test_it_says_its_version(image: Image) -> None:
    assert image.run("version").startswith(f"bayplan {__version__}\n")


def test_it_has_the_library_that_evaluates_the_selectors_of_devices(image: Image) -> None:
    assert "cel" in json.loads(image.run("version", "-o", "json"))["extras"]


def test_it_places_gangs(image: Image) -> None:
    for name in ("cluster.yaml", "gangs.yaml"):
        shutil.copy(EXAMPLE / name, image.etc / name)
        (image.etc / name).chmod(0o644)
    placed = image.run("place", "-f", f"{CONFIG_FOLDER}/cluster.yaml", "-f", f"{CONFIG_FOLDER}/gangs.yaml")
    assert "placed: 8 pods on 5 hosts, 2 racks, 1 block" in placed


def test_it_decides_in_the_shadow_for_a_real_cluster(image: Image, cluster: Cluster, tmp_path: Path) -> None:
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


def test_the_containerfile_makes_the_same_image_also_by_each_engine_that_is_installed(image: Image) -> None:
    lines = (ROOT / "Containerfile").read_text(encoding="utf-8").rpartition("\nFROM ")[2].splitlines()
    said = {name: value for name, _, value in (line.partition(" ") for line in lines)}
    assert said["USER"] == image.config["User"]
    assert json.loads(said["ENTRYPOINT"]) == image.config["Entrypoint"]
    assert set(said["ENV"].split()) == set(image.config["Env"])
    assert said["WORKDIR"] == image.config["WorkingDir"]
    for engine in filter(_works, ("podman", "buildah", "docker")):
        build = [engine, "build", "-f", "Containerfile", "-t", "bayplan-test", "."]
        subprocess.run(build, cwd=ROOT, check=True)
        run = [engine, "run", "--rm", "--read-only", "bayplan-test", "version"]
        shown = subprocess.run(run, check=True, capture_output=True, text=True).stdout
        assert shown.startswith(f"bayplan {__version__}\n")


def _works(engine: str) -> bool:
    if shutil.which(engine) is None:
        return False
    return subprocess.run([engine, "info"], capture_output=True, check=False).returncode == 0
