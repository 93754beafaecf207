"""The locks of Python packages (`locks/`, written by `tools/lock`)."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import NormalizedName, canonicalize_name
from packaging.version import Version

__all__ = ["LOCKS", "Pin", "locked"]

LOCKS = Path(__file__).parents[2] / "locks"
_HASH = re.compile(r" --hash=(sha256:[0-9a-f]{64})")


@dataclass(frozen=True, slots=True)
class Pin:
    """One package of a lock.

    Attributes:
        requirement: name, version and marker.
        hashes: of the files that may be installed.
    """

    requirement: Requirement
    hashes: frozenset[str]

    @property
    def version(self) -> Version:
        (exact,) = self.requirement.specifier
        assert exact.operator == "=="
        return Version(exact.version)


def locked(name: str) -> dict[NormalizedName, Pin]:
    """Returns the packages of a lock.

    Raises:
        ValueError: a line is neither a comment nor a package with its hashes, such as an option of pip.
    """
    text = (LOCKS / f"{name}.txt").read_text().replace("\\\n", "")
    found: dict[NormalizedName, Pin] = {}
    for line in text.splitlines():
        if line.startswith("#"):
            continue
        pin = Pin(Requirement(_HASH.sub("", line).strip()), frozenset(_HASH.findall(line)))
        if (
            not pin.hashes
            or pin.requirement.url
            or (key := canonicalize_name(pin.requirement.name)) in found
        ):
            raise ValueError(f"{name}.txt: not one package with its hashes: {line[:80]}")
        found[key] = pin
    return found
