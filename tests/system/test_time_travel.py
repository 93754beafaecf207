"""Reflog, time travel and restored branches, from the command line and over S3."""

from __future__ import annotations

import json
import time
from itertools import pairwise
from typing import Any
from urllib.parse import quote
from urllib.request import urlopen

import pytest
from running_tarn import RunningTarn

pytestmark = pytest.mark.in_form("single")


@pytest.fixture
def lake(tarn: RunningTarn, s3: Any, request: pytest.FixtureRequest) -> str:
    name = f"time-{abs(hash(request.node.name)) % 10**8}-{time.time_ns() % 10**6}"
    tarn.ok("repo", "create", name)
    for number in range(3):
        s3.put_object(Bucket=name, Key="main/a", Body=b"%d" % number)
        tarn.ok("commit", f"{name}/main", "-m", f"commit {number}")
    return name


def reflog(tarn: RunningTarn, ref: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = tarn.ok("--json", "reflog", ref, "-n", "0").json
    return found


def body(s3: Any, bucket: str, key: str) -> str:
    return str(s3.get_object(Bucket=bucket, Key=key)["Body"].read().decode())


def test_a_reflog_names_users_operations_and_heads(tarn: RunningTarn, lake: str) -> None:
    tarn.ok("branch", "move", f"{lake}/main", "main~1", "--yes")
    tarn.ok("revert", f"{lake}/main", "main")
    tarn.ok("cherry-pick", f"{lake}/main", "main@{2}", "--strategy", "source-wins")
    found = reflog(tarn, f"{lake}/main")
    operations = [each["operation"] for each in found]
    assert operations == ["cherry-pick", "revert", "move", "commit", "commit", "commit", "create"]
    assert {each["user"] for each in found} == {"admin"}
    assert [each["ref"] for each in found][:2] == ["main@{0}", "main@{1}"]
    for newer, older in pairwise(found):
        assert newer["former_commit"] == older["commit"]
    for each in found:
        shown = tarn.ok("--json", "refs", "show", f"{lake}/{each['ref']}").json
        assert shown["commit"] == each["commit"]
    assert len(tarn.ok("--json", "reflog", f"{lake}/main", "-n", "2").json) == 2


def test_objects_are_read_as_they_were(tarn: RunningTarn, s3: Any, lake: str) -> None:
    times = {each["ref"]: each["time_us"] for each in reflog(tarn, f"{lake}/main")}
    for back in range(3):
        assert body(s3, lake, f"main@{{{back}}}/a") == str(2 - back)
    second = times["main@{1}"]
    seconds, micros = divmod(second, 1_000_000)
    at = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(seconds)) + f".{micros:06d}"
    for written in (f"{at}Z", f"{at}+00:00", at.replace("T", " ")):
        assert body(s3, lake, f"main@{{{written}}}/a") == "1"
    assert body(s3, lake, "main@{0 seconds ago}/a") == "2"
    page = s3.list_objects_v2(Bucket=lake, Prefix="main@{1}/")
    assert [each["Key"] for each in page["Contents"]] == ["main@{1}/a"]
    s3.copy_object(Bucket=lake, Key="main/old", CopySource={"Bucket": lake, "Key": "main@{2}/a"})
    assert body(s3, lake, "main/old") == "0"


def test_braces_and_spaces_may_be_encoded_in_a_url(tarn: RunningTarn, lake: str) -> None:
    signer = tarn.s3(signature_version="s3v4")
    for ref, expected in (("main@{1}", b"1"), ("main@{0 seconds ago}", b"2")):
        url = signer.generate_presigned_url(
            "get_object", Params={"Bucket": lake, "Key": f"{ref}/a"}
        )
        assert quote(ref, safe="") in url
        for encoded in (url, url.replace("%7B", "{").replace("%7D", "}").replace("%40", "@")):
            with urlopen(encoded) as answer:
                assert answer.read() == expected
    signer.close()


def test_what_is_no_moment_of_a_branch_is_refused(tarn: RunningTarn, s3: Any, lake: str) -> None:
    tarn.ok("tag", "create", f"{lake}/v1", "--from", "main")
    for ref, code in (
        ("main@{}", 2),
        ("main@{tomorrow}", 2),
        ("main@{2999-01-01}", 2),
        ("main@{99}", 3),
        ("main@{2001-01-01}", 3),
        ("v1@{0}", 3),
        ("nothing@{0}", 3),
    ):
        done = tarn.cli("--json", "refs", "show", f"{lake}/{ref}")
        assert done.code in (code, 1), (ref, done)
        assert ref in json.loads(done.err)["message"] if "message" in done.err else ref in done.err
        with pytest.raises(s3.exceptions.ClientError) as caught:
            s3.get_object(Bucket=lake, Key=f"{ref}/a")
        assert caught.value.response["ResponseMetadata"]["HTTPStatusCode"] in (400, 404), ref
    with pytest.raises(s3.exceptions.ClientError) as caught:
        s3.put_object(Bucket=lake, Key="main@{0}/a", Body=b"x")
    assert caught.value.response["ResponseMetadata"]["HTTPStatusCode"] in (400, 403, 405)


def test_a_deleted_branch_is_found_and_restored(tarn: RunningTarn, s3: Any, lake: str) -> None:
    tarn.ok("branch", "create", f"{lake}/dev", "--from", "main~1")
    head = tarn.ok("--json", "branch", "show", f"{lake}/dev").json["commit"]
    assert tarn.cli("branch", "restore", f"{lake}/dev").code == 5, "it exists"
    s3.put_object(Bucket=lake, Key="dev/a", Body=b"uncommitted")
    tarn.ok("branch", "delete", f"{lake}/dev", "--yes")
    (found,) = tarn.ok("--json", "branch", "deleted", lake).json
    assert (found["branch"], found["commit"], found["user"]) == ("dev", head, "admin")
    assert body(s3, lake, "dev@{1}/a") == "1"
    tarn.ok("branch", "restore", f"{lake}/dev")
    assert tarn.ok("--json", "branch", "show", f"{lake}/dev").json["commit"] == head
    assert body(s3, lake, "dev/a") == "1"
    assert tarn.ok("--json", "branch", "deleted", lake).json == []
    operations = [each["operation"] for each in reflog(tarn, f"{lake}/dev")]
    assert operations == ["restore", "delete", "create"]
    assert tarn.cli("branch", "restore", f"{lake}/never").code == 3
    assert tarn.cli("reflog", f"{lake}/never").code == 3
