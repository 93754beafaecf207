"""The wheel holds all of Tarn: installed into an empty environment, every command starts, and `tarn up` serves."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
import tomllib
import venv
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from running_tarn import START_SECONDS, STOP_SECONDS, clean_environment

ROOT = Path(__file__).parents[2]
PYPROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())
BUILD: dict[str, Any] = PYPROJECT["tool"]["hatch"]["build"]["targets"]["wheel"]
PACKAGES: list[str] = BUILD["packages"]
INCLUDED: dict[str, str] = BUILD["force-include"]
COMMANDS = sorted(PYPROJECT["project"]["scripts"])
MODULES = sorted({target.partition(".")[0] for target in PYPROJECT["project"]["scripts"].values()})

ROUND_TRIP = """
import sys
import boto3
endpoint, key, secret = sys.argv[1:]
s3 = boto3.client(
    "s3",
    endpoint_url=endpoint,
    aws_access_key_id=key,
    aws_secret_access_key=secret,
    region_name="us-east-1",
)
s3.put_object(Bucket="lake", Key="main/b", Body=b"other bytes")
print(s3.get_object(Bucket="lake", Key="main/b")["Body"].read().decode(), end="")
"""
"""A PUT and a GET of the environment's own boto3."""

# The build and the processes share the machine with other test workers.
pytestmark = pytest.mark.timeout(600)


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel, built as a release builds it."""
    folder = tmp_path_factory.mktemp("wheel")
    options = ("--no-deps", "--quiet", "--disable-pip-version-check", "--wheel-dir", str(folder))
    subprocess.run([sys.executable, "-m", "pip", "wheel", *options, str(ROOT)], check=True)
    (found,) = folder.glob("*.whl")
    return found


@pytest.fixture(scope="module")
def bin_folder(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The commands of an environment with this wheel, which borrows the packages of this environment.

    `test_pip_installs_all_that_it_needs` has pip install them instead, which takes longer.
    """
    folder = tmp_path_factory.mktemp("installed")
    venv.create(folder, symlinks=True)
    python = folder / "bin" / "python"
    options = ("--no-deps", "--no-index", "--quiet", "--disable-pip-version-check", str(wheel))
    pip = [sys.executable, "-m", "pip", "--python", str(python), "install"]
    subprocess.run([*pip, *options], check=True)
    # Path files in these folders are not read, so the checkout itself stays out of reach.
    dependencies = [path for path in sys.path if path.endswith("site-packages")]
    site = folder / "lib" / f"python{sys.version_info[0]}.{sys.version_info[1]}" / "site-packages"
    (site / "dependencies.pth").write_text("\n".join(dependencies) + "\n")
    return folder / "bin"


def run(*command: str | Path, **options: Any) -> str:
    """Runs a command, which must succeed; returns its output."""
    arguments = [str(part) for part in command]
    done = subprocess.run(
        arguments,
        capture_output=True,
        text=True,
        timeout=120,
        env=clean_environment(),
        check=False,
        **options,
    )
    assert done.returncode == 0, f"{' '.join(arguments)}: {done.stderr}"
    output: str = done.stdout
    return output


def test_it_is_pure_python_and_has_the_version_of_the_project(wheel: Path) -> None:
    assert wheel.name == f"tarn-{PYPROJECT['project']['version']}-py3-none-any.whl"


def test_it_holds_every_file_of_the_product_and_no_other(wheel: Path) -> None:
    """Every tracked file of its packages, without the parts that only tests use; and the documentation."""
    expected = set()
    places = {package: Path(package).name for package in PACKAGES} | INCLUDED
    for folder, place in places.items():
        tracked = run("git", "ls-files", "-z", "--", folder, cwd=ROOT).rstrip("\0").split("\0")
        expected |= {f"{place}/{Path(name).relative_to(folder).as_posix()}" for name in tracked}
    assert expected, "git knows no file of the packages"
    with zipfile.ZipFile(wheel) as archive:
        held = {name for name in archive.namelist() if ".dist-info/" not in name}
    assert held == {name for name in expected if not name.startswith("tarn/testing/")}


def test_its_packages_are_all_that_the_project_has() -> None:
    folders = {path.parent for top in ("services", "cli", "jobs") for path in _packages(ROOT / top)}
    assert folders <= {ROOT / package for package in PACKAGES}


def _packages(folder: Path) -> Iterator[Path]:
    """Yields the `__init__.py` of each package directly in a folder, or one level below."""
    yield from folder.glob("tarn_*/__init__.py")
    yield from folder.glob("*/tarn_*/__init__.py")


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_starts(bin_folder: Path, command: str) -> None:
    assert command in run(bin_folder / command, "--help").lower()


@pytest.mark.parametrize("module", MODULES)
def test_every_command_starts_as_a_module(bin_folder: Path, module: str) -> None:
    assert "--help" in run(bin_folder / "python", "-m", module, "--help")


def test_the_jobs_are_installed(bin_folder: Path) -> None:
    where = run(bin_folder / "python", "-c", "import tarn_spark.session as it; print(it.__file__)")
    assert Path(where.strip()).is_relative_to(bin_folder.parent)


def test_one_command_serves(bin_folder: Path, tmp_path: Path) -> None:
    serves(bin_folder, tmp_path)


@pytest.mark.long  # a minute of downloads, as `make setup` has them
def test_pip_installs_all_that_it_needs(wheel: Path, tmp_path: Path) -> None:
    """In an empty environment, with the packages of the lock: the commands start, and Tarn serves."""
    folder = tmp_path / "empty"
    venv.create(folder, symlinks=True)
    python = folder / "bin" / "python"
    pip = [sys.executable, "-m", "pip", "--disable-pip-version-check", "--python", str(python)]
    lock = ("--require-hashes", "-r", str(ROOT / "locks" / "runtime.txt"))
    install = [*pip, "install", "--quiet", "--only-binary=:all:"]
    subprocess.run([*install, *lock], check=True, timeout=480)
    subprocess.run([*install, "--no-deps", "--no-index", str(wheel)], check=True, timeout=480)
    run(*pip, "check")
    for command in COMMANDS:
        assert command in run(folder / "bin" / command, "--help").lower()
    serves(folder / "bin", tmp_path)


def serves(bin_folder: Path, tmp_path: Path) -> None:
    """Checks that `tarn up` serves: an object is written and read through the S3 endpoint, and committed."""
    data, log, settings = tmp_path / "data", tmp_path / "log", tmp_path / "credentials"
    settings.touch()
    lifeline = (bin_folder / "python", "-m", "tarn_cli.node.lifeline", str(os.getpid()))
    options = ("--data-dir", data, "--port", "0", "--rpc-port", "0", "--workers", "1")
    with log.open("ab") as output:
        node = subprocess.Popen(
            [*lifeline, bin_folder / "tarn", "up", *options],
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            env=clean_environment(),
        )
    try:
        deadline = time.monotonic() + START_SECONDS
        while not (data / "tarn.json").exists():
            assert node.poll() is None, log.read_text()
            assert time.monotonic() < deadline, log.read_text()
            time.sleep(0.05)
        tarn = (bin_folder / "tarn", "--settings", settings)
        setup = run(*tarn, "--json", "auth", "setup", "--data-dir", data, "--save", settings)
        run(*tarn, "repo", "create", "lake")
        (tmp_path / "a").write_text("bytes")
        run(*tarn, "fs", "upload", tmp_path / "a", "lake/main/a")
        made = json.loads(run(*tarn, "--json", "commit", "lake/main", "-m", "first"))
        assert made
        assert run(*tarn, "fs", "cat", "lake/main/a") == "bytes"
        admin, state = json.loads(setup), json.loads((data / "tarn.json").read_text())
        key = (admin["access_key_id"], admin["secret_access_key"])
        read = run(bin_folder / "python", "-c", ROUND_TRIP, state["endpoint"], *key)
        assert read == "other bytes"
    finally:
        node.send_signal(signal.SIGTERM)
        assert node.wait(STOP_SECONDS) == 0, log.read_text()
