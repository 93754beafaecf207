"""The tree of the last release (`deploy/releases.toml`), whose processes run beside those of this one.

It is taken from the history of this checkout and uses the packages of this environment; only the code of Tarn is its
own. A checkout without that commit, such as a shallow clone, skips the tests and says so.
"""

from __future__ import annotations

import io
import os
import subprocess
import sys
import tarfile
import tomllib
from dataclasses import dataclass
from pathlib import Path

import pytest

__all__ = ["LastRelease", "last_release"]

ROOT = Path(__file__).parents[2]
_CODE = ("libs", "gen", "services", "cli", "jobs", "protos", "buf.yaml")
_PATH = (
    "libs",
    "gen",
    "services/auth",
    "services/graveler",
    "services/gateway",
    "services/compactor",
    "cli",
    "jobs",
)
_SECONDS = 60


@dataclass(frozen=True, slots=True)
class LastRelease:
    """The code of the last release in a folder of its own.

    Attributes:
        version: of the release.
        folder: its tree.
    """

    version: str
    folder: Path

    @property
    def environment(self) -> dict[str, str]:
        """The variables with which every Python process, and each one that it starts, runs this code."""
        return {"PYTHONPATH": os.pathsep.join(str(self.folder / each) for each in _PATH)}

    def place_of(self, module: str) -> Path:
        """Returns the file from which a process of this release imports a module."""
        done = subprocess.run(
            [sys.executable, "-c", f"import {module}; print({module}.__file__)"],
            env={**os.environ, **self.environment},
            check=True,
            capture_output=True,
            timeout=_SECONDS,
        )
        return Path(done.stdout.decode().strip())


def last_release(folder: Path) -> LastRelease:
    """Unpacks the last release into a folder; skips the test if this checkout does not have it."""
    last = tomllib.loads((ROOT / "deploy" / "releases.toml").read_text())["last"]
    version, commit = str(last["version"]), str(last["commit"])
    code = [each for each in _CODE if _has(commit, each)]
    if not code:
        pytest.skip(
            f"release {version} is commit {commit[:12]}, which this checkout does not have: it is shallow, or an "
            "archive. `git fetch --unshallow` gets it"
        )
    packed = _git("archive", "--format=tar", commit, "--", *code)
    with tarfile.open(fileobj=io.BytesIO(packed.stdout)) as archive:
        archive.extractall(folder, filter="data")
    return LastRelease(version, folder)


def _has(commit: str, path: str) -> bool:
    return _git("cat-file", "-e", f"{commit}:{path}").returncode == 0


def _git(*arguments: str) -> subprocess.CompletedProcess[bytes]:
    return subprocess.run(
        ["git", "-C", str(ROOT), *arguments], capture_output=True, timeout=_SECONDS, check=False
    )
