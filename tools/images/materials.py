"""Lists what an image is made of, with versions, as a CycloneDX document (SBOM)."""

from __future__ import annotations

import email.parser
import hashlib
import json
import re
import tarfile
import zipfile
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

__all__ = ["Component", "debian_packages", "document", "jar_packages", "python_packages"]

_STATUS = ("./var/lib/dpkg/status", "var/lib/dpkg/status")
_POM = re.compile(r"META-INF/maven/[^/]+/[^/]+/pom\.properties")
_FILE_NAME = re.compile(r"(.+?)-(\d.*)")
"""The name of a jar: the artifact, its version and perhaps a classifier."""


@dataclass(frozen=True, slots=True, order=True)
class Component:
    """One package.

    Attributes:
        purl: its package URL, which tools for vulnerabilities look up.
        sha1: of its file, by which Maven's repositories find a jar; empty for other packages.
    """

    purl: str
    name: str
    version: str
    sha1: str = ""

    def listed(self) -> Mapping[str, Any]:
        """Returns the component as CycloneDX writes it."""
        found: dict[str, Any] = {
            "type": "library",
            "name": self.name,
            "version": self.version,
            "purl": self.purl,
        }
        if self.sha1:
            found["hashes"] = [{"alg": "SHA-1", "content": self.sha1}]
        return found


def debian_packages(root: Path) -> Iterator[Component]:
    """Yields the Debian packages in a root file system, given as a tar file."""
    with tarfile.open(root) as tar:
        name = next(each for each in _STATUS if each in tar.getnames())
        status = tar.extractfile(name)
        assert status is not None, "a regular file"
        for paragraph in status.read().decode().split("\n\n"):
            fields = email.parser.HeaderParser().parsestr(paragraph)
            if package := fields["Package"]:
                version = fields["Version"]
                yield Component(f"pkg:deb/debian/{package}@{version}", package, version)


def python_packages(site: Path) -> Iterator[Component]:
    """Yields the packages in a `site-packages` folder."""
    for path in sorted(site.glob("*.dist-info/METADATA")):
        fields = email.parser.HeaderParser().parsestr(path.read_text())
        name, version = fields["Name"], fields["Version"]
        yield Component(f"pkg:pypi/{name.lower()}@{version}", name, version)


def jar_packages(folder: Path, pom: Path | None = None) -> Iterator[Component]:
    """Yields the jars in a folder and below.

    Most jars name their Maven coordinates, and the pom by which they were downloaded names some. The others are listed
    by their file names, as `pkg:generic`, and are found in Maven's repositories by their SHA-1.
    """
    groups = {} if pom is None else _groups(pom)
    for path in sorted(folder.rglob("*.jar")):
        yield _jar(path, groups)


def _jar(path: Path, groups: Mapping[str, str]) -> Component:
    sha1 = hashlib.sha1(path.read_bytes(), usedforsecurity=False).hexdigest()
    for group, artifact, version in _coordinates(path):
        stem = f"{artifact}-{version}"
        if path.stem == stem or path.stem.startswith(f"{stem}-"):
            classifier = path.stem.removeprefix(stem).removeprefix("-")
            purl = f"pkg:maven/{group}/{artifact}@{version}"
            purl += f"?classifier={classifier}" if classifier else ""
            return Component(purl, f"{group}:{artifact}", version, sha1)
    match = _FILE_NAME.fullmatch(path.stem)
    name, version = (match[1], match[2]) if match else (path.stem, "unknown")
    if known := groups.get(name):
        return Component(f"pkg:maven/{known}/{name}@{version}", f"{known}:{name}", version, sha1)
    return Component(f"pkg:generic/{name}@{version}", name, version, sha1)


def _groups(pom: Path) -> dict[str, str]:
    """Returns the groups of the artifacts that a pom names."""
    pairs = re.findall(
        r"<groupId>([^<*]+)</groupId>\s*<artifactId>([^<*]+)</artifactId>", pom.read_text()
    )
    return {artifact: group for group, artifact in pairs}


def _coordinates(jar: Path) -> Iterator[tuple[str, str, str]]:
    """Yields group, artifact and version of what a jar was made of: itself, and others that it holds."""
    with zipfile.ZipFile(jar) as archive:
        for name in archive.namelist():
            if _POM.fullmatch(name):
                text = archive.read(name).decode()
                pairs = (line.partition("=") for line in text.splitlines() if "=" in line)
                found = {key.strip(): value.strip() for key, _, value in pairs}
                if {"groupId", "artifactId", "version"} <= found.keys():
                    yield found["groupId"], found["artifactId"], found["version"]


def document(name: str, version: str, *components: Iterable[Component]) -> str:
    """Returns the document of an image: CycloneDX 1.5 in JSON, sorted by package."""
    found = sorted({each for some in components for each in some})
    content = {
        "bomFormat": "CycloneDX",
        "specVersion": "1.5",
        "version": 1,
        "metadata": {"component": {"type": "container", "name": name, "version": version}},
        "components": [each.listed() for each in found],
    }
    return json.dumps(content, indent=1) + "\n"
