"""Go programs are compiled and run against Tarn: that of docs/user/grpc.md, which is generated first, and a round trip
of the AWS SDK for Go 2.

They need Go, and their modules over the network the first time. Go keeps them, and what it compiles, in its own
caches. Without Go the tests are skipped.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Mapping
from pathlib import Path

import pytest
from running_tarn import BIN, Place, RunningTarn, clean_environment

ROOT = Path(__file__).parents[2]
EXAMPLE = ROOT / "docs" / "examples" / "go"
PAGE = ROOT / "docs" / "user" / "grpc.md"
OF_THE_SDK = Path(__file__).parent / "clients" / "go"

# The first time, Go downloads and compiles gRPC and the generators: three minutes on two busy cores.
pytestmark = [
    pytest.mark.timeout(900),
    pytest.mark.skipif(shutil.which("go") is None, reason="needs Go 1.26 or newer: not installed"),
]


def run(
    command: list[str], folder: Path, environment: Mapping[str, str], seconds: int
) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        command,
        cwd=folder,
        env=dict(environment),
        capture_output=True,
        text=True,
        timeout=seconds,
        check=False,
    )


def build(folder: Path, *commands: list[str]) -> None:
    """Runs commands in a folder, which may ask the network for modules."""
    environment = {
        **clean_environment(PATH=f"{BIN}{os.pathsep}{os.environ['PATH']}", TARN=str(ROOT)),
        # Proxies, which `clean_environment` removes, may be the way to the modules.
        **{name: value for name, value in os.environ.items() if name.lower().endswith("_proxy")},
    }
    for command in commands:
        done = run(command, folder, environment, 400)
        assert done.returncode == 0, f"{command}: {done.stdout}{done.stderr}"


@pytest.fixture(scope="session")
def round_trip(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The compiled program of the SDK."""
    made = tmp_path_factory.mktemp("go") / "roundtrip"
    build(OF_THE_SDK, ["go", "build", "-mod=readonly", "-o", str(made), "."])
    return made


@pytest.fixture(scope="session")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The compiled program; it is made in a copy, so the checkout stays as it is."""
    folder = tmp_path_factory.mktemp("go") / "cleanup"
    shutil.copytree(EXAMPLE, folder, ignore=shutil.ignore_patterns("gen", "cleanup"))
    # The page's own line, with the repository's path.
    (generate,) = (
        line for line in PAGE.read_text().splitlines() if line.startswith("buf generate")
    )
    build(folder, ["bash", "-c", generate], ["go", "build", "-o", "cleanup", "."])
    return folder / "cleanup"


def test_the_go_program_logs_in_commits_merges_and_lists(
    tarn: RunningTarn, repository: str, program: Path, tmp_path: Path
) -> None:
    data = tmp_path / "data"
    data.write_text("1")
    for path in ("raw/a", "tmp/x", "tmp/y", "z"):
        tarn.ok("fs", "upload", str(data), f"{repository}/main/{path}")
    tarn.ok("commit", f"{repository}/main", "-m", "load")
    environment = clean_environment(
        TARN_SERVER=tarn.server,
        TARN_AUTH_SERVER=tarn.auth_server,
        TARN_ACCESS_KEY_ID=tarn.access_key_id,
        TARN_SECRET_ACCESS_KEY=tarn.secret_access_key,
    )
    done = run([str(program), repository, "tmp/"], tmp_path, environment, 60)
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[0] == "removed 2 objects"
    assert done.stdout.splitlines()[1].startswith("merged: ")
    assert done.stdout.splitlines()[2:] == ["raw/a", "z"]
    shown = tarn.ok("--json", "log", f"{repository}/main", "-n", "1").json
    assert len(shown[0]["parents"]) == 2

    again = run([str(program), repository, "tmp/"], tmp_path, environment, 60)
    assert again.returncode == 1
    assert again.stderr.startswith(f"BRANCH_EXISTS on {repository}/cleanup: "), again.stderr

    environment["TARN_SECRET_ACCESS_KEY"] = "wrong" * 8
    refused = run([str(program), repository, "tmp/"], tmp_path, environment, 60)
    assert refused.stderr.startswith("SIGNATURE_MISMATCH"), refused.stderr


@pytest.mark.in_form("single")
@pytest.mark.parametrize("through", ["view", "repository"])
def test_the_sdk_does_its_round_trip(
    tarn: RunningTarn, repository: str, round_trip: Path, tmp_path: Path, through: str
) -> None:
    place = tarn.new_bucket() if through == "view" else Place(repository, "main/")
    environment = clean_environment(
        AWS_ACCESS_KEY_ID=tarn.access_key_id, AWS_SECRET_ACCESS_KEY=tarn.secret_access_key
    )
    command = [str(round_trip), tarn.endpoint, place.bucket, place.root]
    done = run(command, tmp_path, environment, 60)
    assert done.returncode == 0, done.stderr
