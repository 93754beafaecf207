"""The rules of a repository on running services: every S3 operation that writes, and the commands of `tarn repo`.

Each test runs against separate services, so every refusal crosses gRPC.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from botocore.exceptions import ClientError
from browser import post_form
from pages_as_written import assert_printed, own_name, play, script_of
from running_tarn import RunningTarn

from tarn.core.access.actions import Action
from tarn_gateway.operations.table import OPERATIONS
from tarn_graveler.records.settings import RULES_CACHE_SECONDS

pytestmark = pytest.mark.in_form("separate")

PART = 5 * 1024**2
PAGE = Path(__file__).parents[2] / "docs" / "user" / "rules.md"


@pytest.fixture
def lake(tarn: RunningTarn) -> Iterator[str]:
    """A repository with the branch `etl`, which a test may protect."""
    name = tarn.new_repository()
    tarn.ok("branch", "create", f"{name}/etl")
    yield name
    tarn.ok("repo", "read-only", name, "--off")


def begin(s3: Any, lake: str, key: str) -> dict[str, Any]:
    """Begins an upload and sends its only part; returns the arguments that name it."""
    upload = s3.create_multipart_upload(Bucket=lake, Key=key)["UploadId"]
    return {"Bucket": lake, "Key": key, "UploadId": upload}


def with_part(s3: Any, upload: dict[str, Any]) -> dict[str, Any]:
    etag = s3.upload_part(**upload, PartNumber=1, Body=b"part")["ETag"]
    return {**upload, "MultipartUpload": {"Parts": [{"PartNumber": 1, "ETag": etag}]}}


def writes_of(tarn: RunningTarn, s3: Any, lake: str) -> dict[str, Callable[[], Any]]:
    """Returns a call of each S3 operation that writes to the branch `etl`; what they need exists already."""
    at = {"Bucket": lake, "Key": "etl/a"}
    source = {"CopySource": f"{lake}/etl/a"}
    s3.put_object(**at, Body=b"a", Tagging="team=ada")
    part, copied, complete = (begin(s3, lake, f"etl/{name}") for name in ("part", "copy", "done"))
    complete = with_part(s3, complete)
    return {
        "PutObject": lambda: s3.put_object(**at, Body=b"b"),
        "PutObject of more than a request's memory": lambda: s3.put_object(**at, Body=b"b" * PART),
        "PutObject with a condition": lambda: s3.put_object(**at, Body=b"b", IfMatch="*"),
        "PostObject": lambda: post_form(tarn, lake, "etl/a", b"b"),
        "CopyObject": lambda: s3.copy_object(Bucket=lake, Key="etl/b", **source),
        "PutObjectTagging": lambda: s3.put_object_tagging(**at, Tagging={"TagSet": []}),
        "DeleteObjectTagging": lambda: s3.delete_object_tagging(**at),
        "DeleteObject": lambda: s3.delete_object(**at),
        "DeleteObject with a condition": lambda: s3.delete_object(**at, IfMatch="*"),
        "CreateMultipartUpload": lambda: s3.create_multipart_upload(**at),
        "UploadPart": lambda: s3.upload_part(**part, PartNumber=1, Body=b"part"),
        "UploadPartCopy": lambda: s3.upload_part_copy(**copied, PartNumber=1, **source),
        "CompleteMultipartUpload": lambda: s3.complete_multipart_upload(**complete),
    }


NOT_BLOCKED = {
    # Giving up an upload changes no branch.
    "AbortMultipartUpload",
    # Its answer is a list of outcomes; it has a test of its own.
    "DeleteObjects",
    # They accept what is so, and store nothing.
    "PutBucketAcl",
    "PutBucketOwnershipControls",
    "PutObjectAcl",
    "PutPublicAccessBlock",
}


def refusal_of(call: Callable[[], Any]) -> ClientError:
    with pytest.raises(ClientError) as raised:
        call()
    return raised.value


def listed(s3: Any, lake: str, prefix: str = "etl/") -> dict[str, str]:
    page = s3.list_objects_v2(Bucket=lake, Prefix=prefix)
    return {each["Key"]: each["ETag"] for each in page.get("Contents", [])}


@pytest.mark.parametrize("rule", ["protect", "read-only"])
def test_every_s3_operation_that_writes_obeys_the_rules(
    tarn: RunningTarn, lake: str, rule: str
) -> None:
    """Uploads that began before the rule are not completed either."""
    s3 = tarn.s3(retries={"mode": "standard", "max_attempts": 1})
    calls = writes_of(tarn, s3, lake)
    operations = {name.partition(" ")[0] for name in calls} | NOT_BLOCKED
    assert operations == {row.name for row in OPERATIONS if row.action is Action.WRITE_REPO}
    doomed = begin(s3, lake, "etl/doomed")
    before = listed(s3, lake)
    if rule == "protect":
        tarn.ok("repo", "protect", lake, "e*", "--block", "write")
        told = "protected against direct writes by the rule 'e*'"
    else:
        tarn.ok("repo", "read-only", lake)
        told = "is read-only"
    time.sleep(RULES_CACHE_SECONDS)  # the bound: now every worker refuses
    for name, call in calls.items():
        error = refusal_of(call)
        assert error.response["ResponseMetadata"]["HTTPStatusCode"] == 403, name
        assert error.response["Error"]["Code"] == "AccessDenied", name
        assert told in error.response["Error"]["Message"], name
    keys = {"Objects": [{"Key": "etl/a"}, {"Key": "etl/none"}]}
    errors = s3.delete_objects(Bucket=lake, Delete=keys)["Errors"]
    assert [each["Code"] for each in errors] == ["AccessDenied"] * 2
    assert all(told in each["Message"] for each in errors)
    s3.abort_multipart_upload(**doomed)
    assert listed(s3, lake) == before
    assert s3.get_object(Bucket=lake, Key="etl/a")["Body"].read() == b"a"
    if rule == "protect":
        s3.put_object(Bucket=lake, Key="main/a", Body=b"a")
        tarn.ok("repo", "unprotect", lake, "e*")
    else:
        tarn.ok("repo", "read-only", lake, "--off")
    time.sleep(RULES_CACHE_SECONDS)
    calls["CompleteMultipartUpload"]()
    assert s3.get_object(Bucket=lake, Key="etl/done")["Body"].read() == b"part"


def test_rules_from_the_command_line(tarn: RunningTarn, lake: str) -> None:
    shown = tarn.ok("--json", "repo", "protect", lake, "main").json
    (protection,) = shown["protections"]
    assert protection == {
        "pattern": "main",
        "blocks": ["write", "commit", "delete", "force"],
        "exempt_users": [],
        "exempt_roles": [],
    }
    tarn.ok("repo", "protect", lake, "etl", "--block", "merge", "--exempt-role", "Admin")
    shown = tarn.ok("--json", "repo", "protect", lake, "main", "--block", "commit").json
    assert [each["pattern"] for each in shown["protections"]] == ["main", "etl"]
    assert shown["protections"][0]["blocks"] == ["commit"]
    assert shown["protections"][1]["exempt_roles"] == ["Admin"]

    refused = tarn.cli("--json", "commit", f"{lake}/main", "-m", "m", "--allow-empty")
    assert refused.code == 4, refused
    failure = json.loads(refused.err)
    assert failure["error"] == "BRANCH_PROTECTED"
    assert "tarn repo rules" in failure["hint"]
    tarn.ok("commit", f"{lake}/etl", "-m", "m", "--allow-empty")
    tarn.ok("merge", f"{lake}/etl", f"{lake}/main")
    tarn.ok("merge", f"{lake}/main", f"{lake}/etl", "--allow-empty")  # this admin is exempt

    text = tarn.ok("repo", "rules", lake).out
    assert "main  blocks commit" in text
    assert "etl  blocks merge, except for role Admin" in text
    stale = tarn.cli("--json", "repo", "unprotect", lake, "main", "--if-match", "old")
    assert (stale.code, json.loads(stale.err)["error"]) == (5, "SETTINGS_CHANGED")
    etag = tarn.ok("--json", "repo", "rules", lake).json["etag"]
    tarn.ok("repo", "unprotect", lake, "main", "--if-match", etag)
    assert tarn.cli("repo", "unprotect", lake, "main").code == 3
    tarn.ok("commit", f"{lake}/main", "-m", "m", "--allow-empty")


def test_an_exempt_user_works_and_others_are_refused(tarn: RunningTarn, lake: str) -> None:
    root = tarn.ok("--json", "auth", "whoami").json["user"]
    tarn.ok("repo", "protect", lake, "main", "--exempt-user", root)
    tarn.ok("commit", f"{lake}/main", "-m", "by the exempt user", "--allow-empty")
    tarn.ok("repo", "protect", lake, "main", "--exempt-role", "Developer")
    assert tarn.cli("commit", f"{lake}/main", "-m", "m", "--allow-empty").code == 4
    assert tarn.cli("repo", "protect", lake, "main", "--exempt-user", "unknown").code == 3


def test_hidden_branches(tarn: RunningTarn, lake: str) -> None:
    s3 = tarn.s3()
    s3.put_object(Bucket=lake, Key="etl/a", Body=b"a")
    tarn.ok("repo", "hide", lake, "e*")

    def roots() -> list[str]:
        page = s3.list_objects_v2(Bucket=lake, Delimiter="/")
        return [each["Prefix"] for each in page.get("CommonPrefixes", [])]

    assert roots() == ["main/"]
    assert s3.list_objects_v2(Bucket=lake)["KeyCount"] == 0
    assert list(listed(s3, lake)) == ["etl/a"]
    for command in (("branch", "list"), ("refs", "list")):
        assert "etl" not in tarn.ok(*command, lake).out
        assert "etl" in tarn.ok(*command, lake, "--hidden").out
    tarn.ok("repo", "unhide", lake, "e*")
    assert roots() == ["etl/", "main/"]


def test_default_branch_and_metadata(tarn: RunningTarn, lake: str) -> None:
    assert tarn.cli("branch", "delete", f"{lake}/main", "--yes").code == 5
    made = tarn.ok("--json", "repo", "set-default", lake, "etl", "--expect", "main").json
    assert made["former_default_branch"] == "main"
    assert tarn.cli("repo", "set-default", lake, "main", "--expect", "main").code == 5
    tarn.ok("branch", "delete", f"{lake}/main", "--yes")
    refused = tarn.cli("--json", "branch", "delete", f"{lake}/etl", "--yes")
    assert (refused.code, "default branch" in refused.err) == (5, True)
    time.sleep(RULES_CACHE_SECONDS)  # the bound: now every worker knows the new default branch
    tarn.ok("branch", "create", f"{lake}/new")
    tarn.ok("tag", "create", f"{lake}/v1")

    tarn.ok("repo", "metadata", lake, "--set", "owner=sales", "--set", "tier=gold=1")
    tarn.ok("repo", "metadata", lake, "--remove", "owner")
    assert tarn.ok("--json", "repo", "metadata", lake).json == {"tier": "gold=1"}
    assert tarn.cli("repo", "metadata", lake, "--set", "owner").code == 2


@pytest.mark.in_form("single")
def test_the_page_about_rules_works_as_written(tarn: RunningTarn, tmp_path: Path) -> None:
    text = PAGE.read_text(encoding="utf-8")
    script = script_of(text)
    repository = own_name("ruled", tmp_path)
    script = script.replace("lake", repository)
    done = play(tarn, script, tmp_path)
    printed = done.stdout.replace(repository, "lake")
    assert_printed(text, printed)
