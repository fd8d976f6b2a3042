"""What is in the image: a CycloneDX list of components and a list of licences, from the unpacked files."""

from __future__ import annotations

import uuid
from datetime import UTC, datetime
from pathlib import Path

from cyclonedx.factory.license import LicenseFactory
from cyclonedx.model.bom import Bom
from cyclonedx.model.component import Component, ComponentType
from cyclonedx.output.json import JsonV1Dot6
from cyclonedx.schema import SchemaVersion
from cyclonedx.validation.json import JsonStrictValidator
from packageurl import PackageURL

from tools.image.debian import Package, locked
from tools.image.rootfs import SITE
from tools.release.licences import Package as Wheel
from tools.release.licences import installed, refused

FOLDER = "usr/share/bayplan"
BOM = f"{FOLDER}/sbom.cdx.json"
LICENCES = f"{FOLDER}/LICENCES.txt"
DEBIAN_LICENCES = {
    "gcc-12-base": "GPL-3.0-or-later WITH GCC-exception-3.1",
    "libbz2-1.0": "bzip2-1.0.6",
    "libc6": "LGPL-2.1-or-later",
    "libcrypt1": "LGPL-2.1-or-later",
    "libexpat1": "MIT",
    "libffi8": "MIT",
    "libgcc-s1": "GPL-3.0-or-later WITH GCC-exception-3.1",
    "liblzma5": "LicenseRef-public-domain",
    "libpython3.11-minimal": "Python-2.0",
    "libpython3.11-stdlib": "Python-2.0",
    "libssl3": "Apache-2.0",
    "libstdc++6": "GPL-3.0-or-later WITH GCC-exception-3.1",
    "libuuid1": "BSD-3-Clause",
    "python3.11-minimal": "Python-2.0",
    "zlib1g": "Zlib",
}
"""The main licence of each library: a summary by hand, not taken from the copyright files in the image, which
decide and of which some name further licences for single files. Libraries under the LGPL or GPL are system
libraries; their sources are in Debian's archive under the version of the lock file."""


def write(root: Path, epoch: int) -> None:
    """Write both lists into the root of the image; a licence that is not allowed ends the build."""
    wheels, debs = installed(root / SITE), locked()
    if bad := list(refused(wheels)):
        raise ValueError("\n".join(bad))
    (root / FOLDER).mkdir(parents=True)
    (root / BOM).write_text(bill(wheels, debs, epoch), encoding="utf-8")
    (root / LICENCES).write_text(licences(wheels, debs), encoding="utf-8")


def bill(wheels: list[Wheel], debs: list[Package], epoch: int) -> str:
    """The components as CycloneDX, valid by its schema."""
    factory = LicenseFactory()
    bom = Bom(serial_number=uuid.UUID(int=0))
    bom.metadata.timestamp = datetime.fromtimestamp(epoch, UTC)
    for one in wheels:
        made = _component(one.name, one.version, PackageURL("pypi", None, one.name.lower(), one.version))
        made.licenses.add(factory.make_from_string(one.licence))
        if one.name == "bayplan":
            bom.metadata.component = made
            made.type = ComponentType.APPLICATION
        else:
            bom.components.add(made)
    for deb in debs:
        where = PackageURL("deb", "debian", deb.name, deb.version, {"arch": "amd64", "distro": "bookworm"})
        made = _component(deb.name, deb.version, where)
        made.licenses.add(factory.make_from_string(DEBIAN_LICENCES[deb.name]))
        bom.components.add(made)
    bom.serial_number = uuid.uuid5(
        uuid.NAMESPACE_URL, " ".join(sorted(str(one.purl) for one in bom.components))
    )
    assert bom.metadata.component is not None
    bom.register_dependency(bom.metadata.component, bom.components)
    text = JsonV1Dot6(bom).output_as_string(indent=2)
    error = JsonStrictValidator(SchemaVersion.V1_6).validate_str(text)
    if error is not None:
        raise ValueError(f"the list of components is not valid CycloneDX: {error}")
    return text + "\n"


def _component(name: str, version: str, where: PackageURL) -> Component:
    return Component(
        name=name, version=version, purl=where, bom_ref=where.to_string(), type=ComponentType.LIBRARY
    )


def licences(wheels: list[Wheel], debs: list[Package]) -> str:
    """A table for people: package, version, licence, and where its text is."""
    rows = [(one.name, one.version, one.licence, f"/{SITE}/*.dist-info") for one in wheels]
    rows += [
        (one.name, one.version, DEBIAN_LICENCES[one.name], f"/usr/share/doc/{one.name}/copyright")
        for one in debs
    ]
    widths = [max(len(row[column]) for row in rows) for column in range(3)]
    return "".join(
        "  ".join([*(cell.ljust(width) for cell, width in zip(row[:3], widths, strict=True)), row[3]]) + "\n"
        for row in rows
    )
