"""Lists the packages of an image with their versions, as a CycloneDX document (SBOM)."""

from __future__ import annotations

import email.parser
import json
import tarfile
from collections.abc import Iterable, Iterator
from pathlib import Path

__all__ = ["debian_packages", "document", "python_packages"]

_STATUS = ("./var/lib/dpkg/status", "var/lib/dpkg/status")


def debian_packages(root: Path) -> Iterator[tuple[str, str]]:
    """Yields name and version of the Debian packages in a root file system, given as a tar file."""
    with tarfile.open(root) as tar:
        name = next(each for each in _STATUS if each in tar.getnames())
        status = tar.extractfile(name)
        assert status is not None, "a regular file"
        for paragraph in status.read().decode().split("\n\n"):
            fields = email.parser.HeaderParser().parsestr(paragraph)
            if fields["Package"]:
                yield fields["Package"], fields["Version"]


def python_packages(site: Path) -> Iterator[tuple[str, str]]:
    """Yields name and version of the packages in a `site-packages` folder."""
    for path in sorted(site.glob("*.dist-info/METADATA")):
        fields = email.parser.HeaderParser().parsestr(path.read_text())
        yield fields["Name"], fields["Version"]


def document(
    version: str, debian: Iterable[tuple[str, str]], python: Iterable[tuple[str, str]]
) -> str:
    """Returns the document: CycloneDX 1.5 in JSON, sorted by package."""
    found = [
        (f"pkg:{kind}/{name.lower()}@{number}", name, number)
        for kind, packages in (("deb/debian", debian), ("pypi", python))
        for name, number in packages
    ]
    components = [
        {"type": "library", "name": name, "version": number, "purl": purl}
        for purl, name, number in sorted(found)
    ]
    content = {
        "bomFormat": "CycloneDX",
        "specVersion": "1.5",
        "version": 1,
        "metadata": {"component": {"type": "container", "name": "tarn", "version": version}},
        "components": components,
    }
    return json.dumps(content, indent=1) + "\n"
