"""The locks of Python packages fit pyproject.toml and each other, and every installation checks their hashes."""

from __future__ import annotations

import hashlib
import re
import subprocess
import tomllib
from importlib.metadata import requires
from pathlib import Path

import pytest
from locks import LOCKS, locked
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).parents[2]
PYPROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())
PROJECT = PYPROJECT["project"]
EXTRAS = PROJECT["optional-dependencies"]
NAMES = ("browser", "build", "clients", "clients-old", "dev", "jobs", "runtime", "spark-3.5", "uv")
STALE = "run tools/lock and commit locks/"


def declared(*texts: str) -> list[Requirement]:
    return [each for each in map(Requirement, texts) if each.name != PROJECT["name"]]


def listed(name: str) -> list[Requirement]:
    lines = (ROOT / "tests" / "system" / "clients" / name).read_text().splitlines()
    return [Requirement(line) for line in lines if not line.startswith("#")]


DECLARED = {
    "browser": listed("browser.in"),
    "clients": listed("current.in"),
    "clients-old": listed("old.in"),
    "runtime": declared(*PROJECT["dependencies"]),
    "jobs": declared(*EXTRAS["jobs"]),
    "dev": declared(*PROJECT["dependencies"], *EXTRAS["jobs"], *EXTRAS["dev"]),
    "spark-3.5": listed("spark-3.5.in"),
    "build": declared(*PYPROJECT["build-system"]["requires"], "editables", "setuptools"),
    "uv": declared("uv"),
}


def test_all_locks_are_known_here() -> None:
    assert {path.stem for path in LOCKS.iterdir()} == set(NAMES) == set(DECLARED)


@pytest.mark.parametrize("name", NAMES)
def test_a_lock_has_what_the_project_declares(name: str) -> None:
    pins = locked(name)
    for requirement in DECLARED[name]:
        key = canonicalize_name(requirement.name)
        assert key in pins, f"{requirement} is not in {name}.txt: {STALE}"
        assert requirement.specifier.contains(pins[key].version, prereleases=True), (
            f"{name}.txt has {pins[key].requirement}, pyproject.toml {requirement}: {STALE}"
        )


@pytest.mark.parametrize("name", ["browser", "runtime", "jobs", "build"])
def test_locks_agree_about_version_and_files(name: str) -> None:
    every, some = locked("dev"), locked(name)
    common = {key: pin for key, pin in some.items() if key in every}
    assert {key: (pin.version, pin.hashes) for key, pin in common.items()} == {
        key: (every[key].version, every[key].hashes) for key in common
    }, STALE
    if name not in ("browser", "build"):
        assert set(some) == set(common)


def test_the_locks_of_the_images_are_complete() -> None:
    """With what their packages require, on any system: pip refuses a package without a hash."""
    for name in ("runtime", "jobs"):
        pins = locked(name)
        for key in pins:
            for text in requires(key) or ():
                requirement = Requirement(text)
                marker = requirement.marker
                if marker is None or marker.evaluate({"extra": ""}):
                    assert canonicalize_name(requirement.name) in pins, (
                        f"{key} needs {text}: {STALE}"
                    )


@pytest.mark.parametrize("name", NAMES)
def test_a_lock_names_no_index_and_no_path(name: str) -> None:
    """So pip takes the files from where it is configured to, and their hashes decide."""
    text = (LOCKS / f"{name}.txt").read_text()
    assert "://" not in text
    assert not re.search(r"^\s*-(?!-hash=)", text, re.MULTILINE)
    assert not re.search(r"(^|\s)/", text)


def calls_of_pip() -> dict[str, list[str]]:
    """Returns the calls of pip in the tools, by their file."""
    found: dict[str, list[str]] = {}
    for name in ("setup", "lock"):
        text = (ROOT / "tools" / name).read_text().replace("\\\n", " ")
        calls = re.findall(r"^ *(?:pip_install -|\S+ -m pip ).*$", text, re.MULTILINE)
        found[name] = [call for call in calls if '"$@"' not in call and "--version" not in call]
    text = (ROOT / "tools/images/build.py").read_text()
    calls = re.findall(r"^    +run\((.+?)\)$", text, re.MULTILINE | re.DOTALL)
    found["images"] = [call for call in calls if "PIP" in call or "WHEEL" in call]
    (wheel,) = re.findall(r"^WHEEL = (.+)$", text, re.MULTILINE)
    found["images"] = [call.replace("*WHEEL", wheel) for call in found["images"]]
    return found


def test_every_installation_of_the_project_checks_hashes() -> None:
    """It requires hashes, or takes files only that are there, or builds the checkout with what is installed."""
    calls = calls_of_pip()
    assert {name: len(found) for name, found in calls.items()} == {
        "setup": 6,
        "lock": 1,
        "images": 4,
    }
    for name, found in calls.items():
        for call in found:
            builds = "--no-deps" in call and "--no-build-isolation" in call
            assert "--require-hashes" in call or "--no-index" in call or builds, (name, call)


def jar_lock(verb: str, folder: Path, hashes: Path) -> subprocess.CompletedProcess[str]:
    command = [str(ROOT / "tools" / "jar-lock"), verb, str(folder), str(hashes)]
    return subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)


def test_only_the_listed_jars_are_used(tmp_path: Path) -> None:
    folder, hashes = tmp_path / "jars", tmp_path / "jars.sha256"
    (folder / "s3").mkdir(parents=True)
    jar = folder / "s3" / "a b.jar"
    jar.write_bytes(b"good")
    (folder / "complete").touch()
    assert jar_lock("write", folder, hashes).returncode == 0
    assert hashes.read_text() == f"{hashlib.sha256(b'good').hexdigest()}  s3/a b.jar\n"
    assert jar_lock("check", folder, hashes).returncode == 0
    jar.write_bytes(b"bad")
    done = jar_lock("check", folder, hashes)
    assert done.returncode == 1
    assert "s3/a b.jar" in done.stderr
    assert "Do not use them" in done.stderr
    jar.write_bytes(b"good")
    (folder / "more.jar").write_bytes(b"more")
    assert jar_lock("check", folder, hashes).returncode == 1
    (folder / "more.jar").unlink()
    jar.unlink()
    assert jar_lock("check", folder, hashes).returncode == 1


@pytest.mark.parametrize(
    ("name", "wanted"),
    [
        ("spark", "hadoop-aws"),
        ("spark/tables", "iceberg-spark-runtime"),
        ("spark/3.5", "hadoop-aws"),
        ("cassandra", "cassandra-all"),
    ],
)
def test_every_download_of_jars_is_compared_with_a_list(name: str, wanted: str) -> None:
    lines = (ROOT / "tools" / name / "jars.sha256").read_text().splitlines()
    assert all(re.fullmatch(r"[0-9a-f]{64}  \S+\.jar", line) for line in lines)
    assert any(f"{wanted}-" in line for line in lines)
    script = ROOT / "tools" / ("cassandra/jars" if name == "cassandra" else "setup")
    docker = ROOT / "deploy/docker/Dockerfile"
    for path, count in ((script, 1), (docker, 2)):
        text = path.read_text()
        assert (
            text.count("dependency:copy-dependencies")
            == text.count('jar-lock" check') + text.count("jar-lock check")
            == count
        )


def test_the_project_has_no_other_list_of_packages() -> None:
    assert not (ROOT / "constraints.txt").exists()
    assert not list(ROOT.glob("requirements*.txt"))
