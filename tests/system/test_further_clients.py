"""Further clients of S3, each in an environment of its own (`tools/setup clients`): s3fs wants another botocore than
Tarn, and old versions of boto3 are clients, too."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
from running_tarn import Place, RunningTarn, clean_environment

ROOT = Path(__file__).parents[2]
SCRIPTS = Path(__file__).parent / "clients"


@pytest.fixture(scope="session")
def environments() -> dict[str, Path]:
    """The interpreters of the environments of `locks/clients.txt` and `locks/clients-old.txt`."""
    setup = [str(ROOT / "tools" / "setup"), "clients"]
    done = subprocess.run(setup, capture_output=True, text=True, timeout=600, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    places = [Path(line) for line in done.stdout.splitlines() if line.startswith("/")]
    return dict(
        zip(("current", "old"), (place / "bin" / "python" for place in places), strict=True)
    )


@pytest.mark.every_form
@pytest.mark.timeout(700)
@pytest.mark.parametrize(
    ("script", "environment", "has_file"),
    [
        ("minio_round_trip", "current", False),
        ("s3fs_round_trip", "current", False),
        ("polars_round_trip", "current", False),
        ("duckdb_round_trip", "current", False),
        ("iceberg_round_trip", "current", True),
        ("old_boto3_round_trip", "old", False),
    ],
)
def test_a_client_does_its_round_trip(
    tarn: RunningTarn,
    place: Place,
    environments: dict[str, Path],
    tmp_path: Path,
    script: str,
    environment: str,
    has_file: bool,
) -> None:
    files = [str(tmp_path / "catalog.db")] if has_file else []
    arguments = [str(SCRIPTS / f"{script}.py"), tarn.endpoint, place.bucket, place.root, *files]
    done = subprocess.run(
        [str(environments[environment]), *arguments],
        env=clean_environment(
            AWS_ACCESS_KEY_ID=tarn.access_key_id,
            AWS_SECRET_ACCESS_KEY=tarn.secret_access_key,
            AWS_DEFAULT_REGION="us-east-1",
            AWS_EC2_METADATA_DISABLED="true",
            HOME=str(tmp_path),
        ),
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=150,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.timeout(700)
def test_iceberg_tables_of_a_transaction_are_read_from_main(
    tarn: RunningTarn, repository: str, environments: dict[str, Path], tmp_path: Path
) -> None:
    """Absolute addresses in the metadata name the bucket, which showed the branch, and shows `main` now."""
    bucket = f"{repository}-ice"
    tarn.ok("bucket", "create", bucket, "--to", f"{repository}/main")
    python = (str(environments["current"]), str(SCRIPTS / "iceberg_on_branch.py"))
    arguments = (tarn.endpoint, bucket, str(tmp_path / "address"))
    write = tarn.cli("tx", "run", "--repo", repository, "--", *python, "write", *arguments)
    assert write.code == 0, write.out + write.err
    done = subprocess.run(
        [*python, "read", *arguments],
        env=clean_environment(
            AWS_ACCESS_KEY_ID=tarn.access_key_id,
            AWS_SECRET_ACCESS_KEY=tarn.secret_access_key,
            AWS_EC2_METADATA_DISABLED="true",
        ),
        capture_output=True,
        text=True,
        timeout=150,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
