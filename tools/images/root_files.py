"""The root file system of an image: packages of Debian, by mmdebstrap, kept between builds.

Debian replaces packages with security updates under the same names. So a kept root file system is used only if it has
the versions that the archive has today: `apt-get update` and a simulated installation tell them in a few seconds.
"""

from __future__ import annotations

import hashlib
import subprocess
import sys
from pathlib import Path

from archive import Layer

__all__ = ["ARCHITECTURE", "architecture_problem", "base_layer", "installed_versions"]

ARCHITECTURE = "amd64"
"""The architecture of the images: of the wheels that are chosen, and of Java's home in `deploy/images.toml`."""

_LEFT_OUT = ("doc", "man", "locale", "info")


def architecture_problem(found: str) -> str | None:
    """Says why images cannot be built on an architecture, as dpkg names it; None if they can."""
    if found == ARCHITECTURE:
        return None
    return (
        f"this machine is {found}, and the images are for {ARCHITECTURE}: their Python packages and Java's home are. "
        f"Build them on a machine with {ARCHITECTURE}."
    )


def installed_versions(simulation: str) -> list[str]:
    """Returns `package version` of all packages that apt said it would install, sorted.

    Args:
        simulation: output of apt-get with --simulate: lines `Inst tar (1.34 Debian:12.12/stable [amd64])`.
    """
    lines = [line.split() for line in simulation.splitlines() if line.startswith("Inst ")]
    return sorted({f"{words[1]} {_version(words)}" for words in lines})


def _version(words: list[str]) -> str:
    return next(word for word in words[2:] if word.startswith("(")).removeprefix("(")


def base_layer(packages: list[str], release: str, cache: Path, *, rebuild: bool = False) -> Layer:
    """Returns the layer of Debian packages in the versions of today.

    Args:
        packages: what is installed beside the essential packages.
        release: the name of Debian's release.
        cache: the folder of root file systems; one with the same versions is used again.
        rebuild: installs the packages even so.

    Raises:
        RuntimeError: the archive could not be asked; the message is on standard error.
    """
    versions = installed_versions(_simulation(packages, release))
    wanted = hashlib.sha256(" ".join([release, *packages]).encode()).hexdigest()[:12]
    found = hashlib.sha256("\n".join(versions).encode()).hexdigest()[:12]
    path = cache / f"base-{wanted}-{found}.tar"
    if rebuild or not path.exists():
        sys.stderr.write(f"images: root file system of {release}: {' '.join(packages)}\n")
        partial = path.with_suffix(".partial")
        left_out = [f"--dpkgopt=path-exclude=/usr/share/{name}/*" for name in _LEFT_OUT]
        command = (
            *("mmdebstrap", "--quiet", "--format=tar", "--variant=minbase"),
            *(f"--include={','.join(packages)}", *left_out),
            '--essential-hook=mkdir -p "$1"/usr/share/man/man1',  # a JRE's scripts need it
            '--customize-hook=rm -rf "$1"/var/cache/apt/* "$1"/var/lib/apt/lists/* "$1"/var/log/*',
            *(release, str(partial)),
        )
        subprocess.run(command, check=True, stdout=sys.stderr)
        partial.replace(path)
        for older in cache.glob(f"base-{wanted}*.tar"):
            if older != path:
                older.unlink()
    return Layer.of(path)


def _simulation(packages: list[str], release: str) -> str:
    command = (
        *("mmdebstrap", "--simulate", "--verbose", "--variant=minbase"),
        *(f"--include={','.join(packages)}", release, "/dev/null"),
    )
    done = subprocess.run(command, check=False, capture_output=True, text=True)
    output = done.stdout + done.stderr  # apt's lines and those of mmdebstrap
    if done.returncode or not installed_versions(output):
        sys.stderr.write(output)
        raise RuntimeError(
            f"Debian's archive did not tell the versions of {release}; mmdebstrap's message is above. "
            "Check the network and the name of the release, and try again."
        )
    return output
