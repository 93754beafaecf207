"""The Dockerfile has the images of `deploy/images.toml`, which `make images` builds. Nothing builds it here."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
import tomllib
from dataclasses import dataclass, field
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
FILE = ROOT / "deploy" / "docker" / "Dockerfile"
TABLE = tomllib.loads((ROOT / "deploy" / "images.toml").read_text())
# DL3008: exact versions of Debian's packages disappear with each security update; the base image is pinned instead.
IGNORED = ("DL3008",)


@dataclass
class Stage:
    """A stage with what it inherits from its parents."""

    name: str
    parent: str
    instructions: list[tuple[str, str]] = field(default_factory=list)


def stages() -> dict[str, Stage]:
    """Returns the stages by name; instructions of parents come first."""
    text = re.sub(r"^\s*#.*\n", "", FILE.read_text(), flags=re.MULTILINE)
    found: dict[str, Stage] = {}
    stage = Stage("", "")
    for line in text.replace("\\\n", " ").splitlines():
        instruction, _, rest = line.strip().partition(" ")
        if instruction == "FROM":
            parent, _, name = rest.partition(" AS ")
            stage = found[name] = Stage(name, parent)
            if parent in found:
                stage.instructions += found[parent].instructions
        elif instruction:
            stage.instructions.append((instruction, rest.strip()))
    return found


def debian_packages(stage: Stage) -> set[str]:
    """Returns the packages that a stage installs."""
    lists = (
        re.search(r"--no-install-recommends ([a-z0-9 .-]+?) +&&", rest)
        for name, rest in stage.instructions
        if name == "RUN"
    )
    return {package for found in lists if found for package in found[1].split()}


every_image = pytest.mark.parametrize("name", TABLE["images"])


def test_the_images_are_those_of_the_table() -> None:
    command = [sys.executable, str(ROOT / "tools" / "images" / "dockerfile.py"), "--check"]
    stale = subprocess.run(command, timeout=60, check=False).returncode
    assert not stale, "run `python tools/images/dockerfile.py` and commit deploy/docker/Dockerfile"
    assert TABLE["images"].keys() <= stages().keys()


@every_image
def test_debian_packages_are_those_of_the_table(name: str) -> None:
    row = TABLE["images"][name]
    assert debian_packages(stages()[name]) == {*TABLE["debian"], *row.get("debian", ())}


def test_every_stage_comes_from_one_base_that_is_pinned() -> None:
    text = FILE.read_text()
    (base,) = re.findall(r"^ARG BASE=(.+)$", text, flags=re.MULTILINE)
    assert re.fullmatch(r"debian:\d+\.\d+-slim@sha256:[0-9a-f]{64}", base)
    made = stages()
    assert {stage.parent for stage in made.values()} - made.keys() == {"${BASE}"}


def test_python_packages_have_hashes() -> None:
    """Of each call of pip: it checks hashes, or takes only what was made or checked before."""
    calls = re.findall(
        r"pip (?:--python \S+ )?(?:install|wheel) [^&\n]+", FILE.read_text().replace("\\\n", " ")
    )
    assert len(calls) == 6
    for call in calls:
        is_of_checkout = " . " in call and "--no-build-isolation" in call
        assert "--require-hashes" in call or "--no-index" in call or is_of_checkout, call
    for wheel in (call for call in calls if " wheel " in call):
        assert "--no-build-isolation" in wheel, "a build would fetch what builds it"


@every_image
def test_copied_files_exist(name: str) -> None:
    """Those of the checkout exist and are let through by the list of ignored files."""
    lines = (FILE.parent / "Dockerfile.dockerignore").read_text().splitlines()
    let_through = [line[1:] for line in lines if line.startswith("!")]
    for stage in stages().values():
        for instruction, rest in stage.instructions:
            if instruction == "COPY" and not rest.startswith("--from"):
                for source in rest.split()[:-1]:
                    assert (ROOT / source).exists()
                    assert source == "." or any(
                        source == each or source.startswith(f"{each}/") for each in let_through
                    )
            elif instruction == "COPY":
                source = re.match(r"--from=(\S+)", rest)[1]  # type: ignore[index]  # it starts so
                assert source in stages()
    assert name in stages()


def test_what_the_wheel_is_made_of_is_let_through() -> None:
    lines = (FILE.parent / "Dockerfile.dockerignore").read_text().splitlines()
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    wheel = project["tool"]["hatch"]["build"]["targets"]["wheel"]
    needed = {path.split("/")[0] for path in wheel["packages"]}
    needed |= set(wheel["force-include"])
    needed |= {"pyproject.toml", "locks", project["project"]["readme"]}
    assert needed <= {line.removeprefix("!") for line in lines if line.startswith("!")}
    assert lines[1] == "*"


def test_a_linter_finds_nothing() -> None:
    """hadolint, whose wheel the development environment brings along; it also checks the shell commands."""
    folder = str(Path(sys.executable).parent)
    hadolint = shutil.which("hadolint", path=folder) or shutil.which("hadolint")
    assert hadolint, "hadolint is missing: run make setup"
    ignored = [f"--ignore={rule}" for rule in IGNORED]
    command = [hadolint, "--no-color", *ignored, str(FILE)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert done.stdout + done.stderr == ""
    assert done.returncode == 0
