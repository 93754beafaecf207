"""The processes of a running Tarn write an audit log that tells who did what to what, from where."""

from __future__ import annotations

import json
import urllib.request
from typing import Any

import boto3
import pytest
from botocore.exceptions import ClientError
from running_compactor import eventually
from running_tarn import RunningTarn


def records(tarn: RunningTarn, repository: str) -> list[dict[str, Any]]:
    """Returns the records about a repository, of all processes, in the order of their times."""
    files = sorted((tarn.data / "audit").glob("*.jsonl*"))
    found = [json.loads(line) for file in files for line in file.read_text().splitlines()]
    about = f"repository/{repository}"
    return sorted(
        (each for each in found if each["resource"].startswith(about)),
        key=lambda each: each["time"],
    )


@pytest.mark.every_form
def test_s3_and_rpcs_are_recorded_by_their_services(
    tarn: RunningTarn, repository: str, s3: Any
) -> None:
    answer = s3.put_object(Bucket=repository, Key="main/a", Body=b"1")
    s3.delete_objects(Bucket=repository, Delete={"Objects": [{"Key": "main/a"}]})
    tarn.ok("branch", "create", f"{repository}/dev", "--from", "main")
    tarn.ok("auth", "user", "create", f"reader-{repository}", "--role", "Analyst")
    made = tarn.ok("--json", "auth", "credential", "create", "--user", f"reader-{repository}").json
    reader = boto3.session.Session().client(
        "s3",
        endpoint_url=tarn.endpoint,
        aws_access_key_id=made["access_key_id"],
        aws_secret_access_key=made["secret_access_key"],
        region_name="us-east-1",
    )
    with pytest.raises(ClientError):
        reader.put_object(Bucket=repository, Key="main/b", Body=b"1")
    reader.close()

    branch = f"repository/{repository}/branch"
    wanted = {
        ("s3:PutObject", f"{branch}/main/object/a", "ok", "admin"),
        ("s3:DeleteObjects", f"{branch}/main/object/a", "ok", "admin"),
        ("BranchService.CreateBranch", f"{branch}/dev", "ok", "admin"),
        ("s3:PutObject", f"{branch}/main/object/b", "denied", f"reader-{repository}"),
    }
    names = ("operation", "resource", "outcome", "principal")
    eventually(
        lambda: wanted <= {tuple(each[n] for n in names) for each in records(tarn, repository)},
        tarn,
    )
    request_id = answer["ResponseMetadata"]["RequestId"]
    same = [each for each in records(tarn, repository) if each["request_id"] == request_id]
    services = ["node"] if tarn.form == "single" else ["graveler", "gateway"]
    assert [each["service"] for each in same] == services
    texts = [file.read_text() for file in (tarn.data / "audit").glob("*.jsonl*")]
    assert not any(made["secret_access_key"] in text for text in texts)
    assert written(tarn) > 0


def written(tarn: RunningTarn) -> float:
    """Returns the number of records that all processes have written, by their metrics."""
    count = 0.0
    for address in tarn.state()["admin_addresses"].values():
        with urllib.request.urlopen(f"http://{address}/metrics", timeout=30) as page:
            for line in page.read().decode().splitlines():
                if line.startswith('tarn_audit_records_total{outcome="written"}'):
                    count += float(line.split()[-1])
    return count
