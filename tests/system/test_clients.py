"""Common S3 clients, unmodified, each through the same round trip: in buckets of their own, and in a repository."""

from __future__ import annotations

import hashlib
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from botocore.exceptions import ClientError
from running_tarn import BIN, Place, RunningTarn, clean_environment

pytestmark = pytest.mark.every_form

SMALL = b"hello, lake\n" * 100
LARGE = bytes(range(256)) * (12 * 4096)  # 12 MiB: two or three parts with every client
TRICKY = "raw/day=2026-05-01/ü & +%20.csv"


@pytest.mark.on_cassandra("one")
def test_boto3_writes_reads_lists_and_deletes(s3: Any, place: Place) -> None:
    named = {"Bucket": place.bucket, "Key": f"{place.root}{TRICKY}"}
    put = s3.put_object(**named, Body=SMALL, Metadata={"job": "nightly"}, Tagging="team=a%20b&z=")
    assert put["ETag"] == f'"{hashlib.md5(SMALL).hexdigest()}"'
    head = s3.head_object(Bucket=place.bucket, Key=f"{place.root}{TRICKY}")
    assert (head["ContentLength"], head["Metadata"]) == (len(SMALL), {"job": "nightly"})
    assert head["TagCount"] == 2
    old = [{"Key": "team", "Value": "a b"}, {"Key": "z", "Value": ""}]
    assert s3.get_object_tagging(**named)["TagSet"] == old
    new = [{"Key": "zone", "Value": "öst/1"}]
    s3.put_object_tagging(**named, Tagging={"TagSet": new})
    source = {"CopySource": named, "Bucket": place.bucket}
    s3.copy_object(**source, Key=f"{place.root}copy")
    s3.delete_object_tagging(**named)
    assert s3.get_object_tagging(**named)["TagSet"] == []
    copy = {"Bucket": place.bucket, "Key": f"{place.root}copy"}
    assert s3.get_object_tagging(**copy)["TagSet"] == new
    s3.delete_object(**copy)
    got = s3.get_object(Bucket=place.bucket, Key=f"{place.root}{TRICKY}")
    assert got["Body"].read() == SMALL
    part = s3.get_object(Bucket=place.bucket, Key=f"{place.root}{TRICKY}", Range="bytes=7-10")
    assert part["Body"].read() == b"lake"
    assert part["ContentRange"] == f"bytes 7-10/{len(SMALL)}"
    listed = s3.list_objects_v2(Bucket=place.bucket, Prefix=f"{place.root}raw/")["Contents"]
    assert [(each["Key"], each["Size"]) for each in listed] == [
        (f"{place.root}{TRICKY}", len(SMALL))
    ]
    s3.delete_object(Bucket=place.bucket, Key=f"{place.root}{TRICKY}")
    with pytest.raises(ClientError) as caught:
        s3.get_object(Bucket=place.bucket, Key=f"{place.root}{TRICKY}")
    assert caught.value.response["Error"]["Code"] == "NoSuchKey"
    assert "Contents" not in s3.list_objects_v2(Bucket=place.bucket, Prefix=place.root)


@pytest.mark.on_cassandra("one")
def test_boto3_lists_in_pages_and_by_folders(s3: Any, place: Place) -> None:
    keys = [f"{place.root}{folder}/{number:02}" for folder in "abc" for number in range(10)]
    for key in keys:
        s3.put_object(Bucket=place.bucket, Key=key, Body=key.encode())
    pages = list(
        s3.get_paginator("list_objects_v2").paginate(
            Bucket=place.bucket, Prefix=place.root, PaginationConfig={"PageSize": 7}
        )
    )
    assert [each["Key"] for page in pages for each in page["Contents"]] == keys
    assert len(pages) == 5
    folders = s3.list_objects_v2(Bucket=place.bucket, Prefix=place.root, Delimiter="/")
    assert [each["Prefix"] for each in folders["CommonPrefixes"]] == [
        f"{place.root}a/",
        f"{place.root}b/",
        f"{place.root}c/",
    ]
    old = s3.list_objects(Bucket=place.bucket, Prefix=f"{place.root}b/", MaxKeys=3)
    assert [each["Key"] for each in old["Contents"]] == keys[10:13]
    assert old["IsTruncated"]


@pytest.mark.on_cassandra("one")
@pytest.mark.parametrize("is_committed", [False, True])
def test_a_full_page_before_deleted_objects_is_the_last_one(
    tarn: RunningTarn, s3: Any, repository: str, is_committed: bool
) -> None:
    """Clients ask whether a folder has an object by a page of one key."""
    names = ["a", *(f"b/{number:02}" for number in range(40))]
    for name in names:
        s3.put_object(Bucket=repository, Key=f"main/{name}", Body=b"x")
    if is_committed:
        tarn.ok("commit", f"{repository}/main", "-m", "all")
    gone = [{"Key": f"main/{name}"} for name in names[1:]]
    s3.delete_objects(Bucket=repository, Delete={"Objects": gone})
    for ask in (s3.list_objects_v2, s3.list_objects):
        page = ask(Bucket=repository, Prefix="main/", MaxKeys=1)
        assert ([each["Key"] for each in page["Contents"]], page["IsTruncated"]) == (
            ["main/a"],
            False,
        )
    s3.put_object(Bucket=repository, Key="main/c", Body=b"x")
    page = s3.list_objects_v2(Bucket=repository, Prefix="main/", MaxKeys=1)
    assert page["IsTruncated"]
    rest = s3.list_objects_v2(
        Bucket=repository,
        Prefix="main/",
        MaxKeys=1,
        ContinuationToken=page["NextContinuationToken"],
    )
    assert ([each["Key"] for each in rest["Contents"]], rest["IsTruncated"]) == (["main/c"], False)


@pytest.mark.on_cassandra("one")
def test_boto3_uploads_in_parts(s3: Any, place: Place, tmp_path: Path) -> None:
    source = tmp_path / "large"
    source.write_bytes(LARGE)
    from boto3.s3.transfer import TransferConfig

    config = TransferConfig(multipart_threshold=5 << 20, multipart_chunksize=5 << 20)
    s3.upload_file(str(source), place.bucket, f"{place.root}large", Config=config)
    head = s3.head_object(Bucket=place.bucket, Key=f"{place.root}large")
    assert head["ContentLength"] == len(LARGE)
    assert head["ETag"].endswith('-3"')
    s3.download_file(place.bucket, f"{place.root}large", str(tmp_path / "back"), Config=config)
    assert (tmp_path / "back").read_bytes() == LARGE
    assert not s3.list_multipart_uploads(Bucket=place.bucket, Prefix=place.root).get("Uploads")


@pytest.mark.on_cassandra("one")
def test_boto3_copies_and_deletes_many(s3: Any, place: Place) -> None:
    for number in range(5):
        s3.put_object(Bucket=place.bucket, Key=f"{place.root}from/{number}", Body=SMALL)
        s3.copy_object(
            Bucket=place.bucket,
            Key=f"{place.root}to/{number}",
            CopySource={"Bucket": place.bucket, "Key": f"{place.root}from/{number}"},
        )
    wanted = [{"Key": f"{place.root}from/{number}"} for number in range(6)]
    answer = s3.delete_objects(Bucket=place.bucket, Delete={"Objects": wanted})
    assert len(answer["Deleted"]) == 6  # a missing key counts as deleted
    left = s3.list_objects_v2(Bucket=place.bucket, Prefix=place.root)["Contents"]
    assert [each["Key"] for each in left] == [f"{place.root}to/{number}" for number in range(5)]
    assert s3.get_object(Bucket=place.bucket, Key=f"{place.root}to/4")["Body"].read() == SMALL


@pytest.mark.on_cassandra("one")
def test_boto3_reads_a_committed_version_beside_the_branch(
    tarn: RunningTarn, s3: Any, repository: str
) -> None:
    s3.put_object(Bucket=repository, Key="main/a", Body=b"one")
    made = tarn.ok("--json", "commit", f"{repository}/main", "-m", "one").json
    s3.put_object(Bucket=repository, Key="main/a", Body=b"two")
    assert s3.get_object(Bucket=repository, Key=f"{made['commit']}/a")["Body"].read() == b"one"
    assert s3.get_object(Bucket=repository, Key="main/a")["Body"].read() == b"two"


def test_boto3_gets_the_error_codes_of_s3(tarn: RunningTarn, s3: Any, repository: str) -> None:
    def code(call: Callable[..., Any], **arguments: Any) -> str:
        with pytest.raises(ClientError) as caught:
            call(**arguments)
        return str(caught.value.response["Error"]["Code"])

    assert code(s3.get_object, Bucket="no-such-lake", Key="main/a") == "NoSuchBucket"
    assert code(s3.get_object, Bucket=repository, Key="main/none") == "NoSuchKey"
    assert code(s3.list_objects_v2, Bucket="no-such-lake") == "NoSuchBucket"
    wrong = RunningTarn(
        tarn.form,
        tarn.data,
        tarn.settings,
        tarn.supervisor,
        tarn.endpoint,
        access_key_id=tarn.access_key_id,
        secret_access_key="x" * 40,
    ).s3()
    assert code(wrong.list_buckets) == "SignatureDoesNotMatch"
    wrong.close()


class Cli:
    """Runs a command-line client with the admin's key."""

    def __init__(self, tarn: RunningTarn, folder: Path) -> None:
        self.tarn = tarn
        self.environment = clean_environment(
            AWS_ACCESS_KEY_ID=tarn.access_key_id,
            AWS_SECRET_ACCESS_KEY=tarn.secret_access_key,
            AWS_DEFAULT_REGION="us-east-1",
            AWS_CONFIG_FILE=str(folder / "none"),
            AWS_SHARED_CREDENTIALS_FILE=str(folder / "none"),
            AWS_EC2_METADATA_DISABLED="true",
            HOME=str(folder),
        )

    def __call__(self, program: str, *arguments: str, fails: bool = False) -> str:
        done = subprocess.run(
            [str(BIN / program), *arguments],
            env=self.environment,
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )
        assert (done.returncode != 0) is fails, f"{program} {arguments}: {done.stderr}"
        return done.stdout


@pytest.fixture
def files(tmp_path: Path) -> Path:
    """A folder with a small, a large and a deep file."""
    folder = tmp_path / "files"
    (folder / "deep" / "er").mkdir(parents=True)
    (folder / "small").write_bytes(SMALL)
    (folder / "large").write_bytes(LARGE)
    (folder / "deep" / "er" / "a b.txt").write_bytes(b"deep")
    return folder


@pytest.fixture
def run(tarn: RunningTarn, tmp_path: Path) -> Cli:
    return Cli(tarn, tmp_path)


def assert_same(left: Path, right: Path) -> None:
    """Checks that two folders hold the same files."""
    found = {
        folder: {
            path.relative_to(folder).as_posix(): hashlib.md5(path.read_bytes()).hexdigest()
            for path in folder.rglob("*")
            if path.is_file()
        }
        for folder in (left, right)
    }
    assert found[left] == found[right]


def test_awscli_round_trip(run: Cli, place: Place, files: Path, tmp_path: Path) -> None:
    aws = ("--endpoint-url", run.tarn.endpoint, "s3")
    at = f"s3://{place.bucket}/{place.root}aws"
    run("aws", *aws, "cp", "--recursive", "--quiet", str(files), at)
    listed = run("aws", *aws, "ls", "--recursive", f"{at}/").splitlines()
    assert [line.split(maxsplit=3)[3] for line in listed] == [
        f"{place.root}aws/deep/er/a b.txt",
        f"{place.root}aws/large",
        f"{place.root}aws/small",
    ]
    run("aws", *aws, "sync", "--quiet", at, str(tmp_path / "back"))
    assert_same(files, tmp_path / "back")
    run("aws", *aws, "mv", "--quiet", f"{at}/large", f"{at}/moved")
    run("aws", *aws, "ls", f"{at}/large", fails=True)
    run("aws", *aws, "rm", "--recursive", "--quiet", f"{at}/")
    run("aws", *aws, "ls", f"{at}/", fails=True)


@pytest.mark.on_cassandra("one")
def test_s5cmd_round_trip(run: Cli, place: Place, files: Path, tmp_path: Path) -> None:
    at = f"s3://{place.bucket}/{place.root}s5"
    s5 = ("--endpoint-url", run.tarn.endpoint)
    run("s5cmd", *s5, "cp", f"{files}/", f"{at}/")
    listed = run("s5cmd", *s5, "ls", f"{at}/*").splitlines()
    assert sorted(line.split(maxsplit=3)[3] for line in listed) == [
        "deep/er/a b.txt",
        "large",
        "small",
    ]
    run("s5cmd", *s5, "cp", f"{at}/*", f"{tmp_path}/back/")
    assert_same(files, tmp_path / "back")
    run("s5cmd", *s5, "cp", f"{at}/large", f"{at}/copy")
    run("s5cmd", *s5, "rm", f"{at}/*")
    run("s5cmd", *s5, "ls", f"{at}/*", fails=True)


def test_s3cmd_round_trip(run: Cli, place: Place, files: Path, tmp_path: Path) -> None:
    host = run.tarn.endpoint.removeprefix("http://")
    config = tmp_path / "s3cfg"
    config.write_text(
        "[default]\n"
        f"access_key = {run.tarn.access_key_id}\nsecret_key = {run.tarn.secret_access_key}\n"
        f"host_base = {host}\nhost_bucket = {host}\nuse_https = False\nbucket_location = us-east-1\n"
        "multipart_chunk_size_mb = 5\n"
    )
    at = f"s3://{place.bucket}/{place.root}s3"
    s3cmd = ("-c", str(config), "--no-progress")
    run("s3cmd", *s3cmd, "put", "--recursive", f"{files}/", f"{at}/")
    listed = run("s3cmd", *s3cmd, "ls", "--recursive", f"{at}/").splitlines()
    assert [line.split("s3://")[1] for line in listed] == [
        f"{place.bucket}/{place.root}s3/deep/er/a b.txt",
        f"{place.bucket}/{place.root}s3/large",
        f"{place.bucket}/{place.root}s3/small",
    ]
    (tmp_path / "back").mkdir()
    run("s3cmd", *s3cmd, "get", "--recursive", f"{at}/", f"{tmp_path}/back/")
    assert_same(files, tmp_path / "back")
    run("s3cmd", *s3cmd, "cp", f"{at}/large", f"{at}/copy")
    for told in (f"s3://{place.bucket}", f"{at}/copy"):
        lines = run("s3cmd", *s3cmd, "info", told).splitlines()
        assert [line.split()[-1] for line in lines if "ACL:" in line] == ["FULL_CONTROL"]
        run("s3cmd", *s3cmd, "setacl", "--acl-private", told)
        run("s3cmd", *s3cmd, "setacl", "--acl-public", told, fails=True)
    run("s3cmd", *s3cmd, "del", "--recursive", "--force", f"{at}/")
    assert run("s3cmd", *s3cmd, "ls", "--recursive", f"{at}/") == ""


def test_rclone_round_trip(run: Cli, place: Place, files: Path, tmp_path: Path) -> None:
    """It asks for the bucket to be created before it writes."""
    run.environment |= {
        "RCLONE_CONFIG_LAKE_TYPE": "s3",
        "RCLONE_CONFIG_LAKE_PROVIDER": "Other",
        "RCLONE_CONFIG_LAKE_ENV_AUTH": "true",
        "RCLONE_CONFIG_LAKE_REGION": "us-east-1",
        "RCLONE_CONFIG_LAKE_ENDPOINT": run.tarn.endpoint,
        "RCLONE_S3_UPLOAD_CUTOFF": "5Mi",
    }
    at = f"lake:{place.bucket}/{place.root}rc"
    run("rclone", "copy", str(files), at)
    listed = run("rclone", "lsf", "--recursive", "--files-only", at).splitlines()
    assert sorted(listed) == ["deep/er/a b.txt", "large", "small"]
    run("rclone", "check", str(files), at)
    run("rclone", "sync", at, str(tmp_path / "back"))
    assert_same(files, tmp_path / "back")
    run("rclone", "moveto", f"{at}/large", f"{at}/moved")
    assert run("rclone", "lsf", f"{at}/large") == ""
    run("rclone", "lsf", "lake:no-such-bucket", fails=True)
    run("rclone", "purge", at)
    assert run("rclone", "lsf", f"lake:{place.bucket}/{place.root}") == ""


def test_pyarrow_round_trip(tarn: RunningTarn, place: Place) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq
    from pyarrow import fs

    lake = fs.S3FileSystem(
        access_key=tarn.access_key_id,
        secret_key=tarn.secret_access_key,
        endpoint_override=tarn.endpoint.removeprefix("http://"),
        scheme="http",
        region="us-east-1",
    )
    at = f"{place.bucket}/{place.root}arrow"
    with lake.open_output_stream(f"{at}/large") as stream:
        stream.write(LARGE)
    with lake.open_input_file(f"{at}/large") as file:
        assert file.read_at(4, 256) == bytes(range(4))
        assert file.read() == LARGE
    table = pa.table({"day": ["a", "a", "b"], "n": [1, 2, 3]})
    pq.write_to_dataset(table, f"{at}/table", filesystem=lake, partition_cols=["day"])
    assert pq.read_table(f"{at}/table", filesystem=lake).column("n").to_pylist() == [1, 2, 3]
    found = lake.get_file_info(fs.FileSelector(at, recursive=True))
    assert sum(each.is_file for each in found) == 3
    lake.copy_file(f"{at}/large", f"{at}/copy")
    lake.delete_file(f"{at}/large")
    assert lake.get_file_info(f"{at}/large").type is fs.FileType.NotFound
    lake.delete_dir_contents(f"{at}/table")
    assert lake.get_file_info(f"{at}/copy").size == len(LARGE)
