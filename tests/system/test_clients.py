"""Common S3 clients, unmodified, each through the same round trip: in buckets of their own, and in a repository.

Each writes, lists, reads ranges, copies, deletes, uploads in parts, presigns and meets an error, as far as it can.
"""

from __future__ import annotations

import hashlib
import shutil
import subprocess
import urllib.request
from collections.abc import Callable
from contextlib import closing
from datetime import timedelta
from pathlib import Path
from typing import Any

import psutil
import pytest
from botocore.exceptions import ClientError
from running_tarn import BIN, Place, RunningTarn, clean_environment, running_tarn

pytestmark = pytest.mark.every_form

SMALL = b"hello, lake\n" * 100
LARGE = bytes(range(256)) * (12 * 4096)  # 12 MiB: two or three parts with every client
TRICKY = "raw/day=2026-05-01/ü & +%20.csv"
GIB2 = 2 << 30
MEMORY_MIB = 64
"""By how much a gateway may grow while it passes `GIB2` on."""


def fetched(url: str, body: bytes | None = None) -> bytes:
    """Asks by a presigned URL, without a key: reads the object, or writes a body to it."""
    method = "GET" if body is None else "PUT"
    request = urllib.request.Request(url.strip(), data=body, method=method)
    with urllib.request.urlopen(request, timeout=30) as answer:
        return bytes(answer.read())


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


def test_boto3_presigns(tarn: RunningTarn, place: Place) -> None:
    with closing(tarn.s3(signature_version="s3v4")) as s3:
        named = {"Bucket": place.bucket, "Key": f"{place.root}{TRICKY}"}
        put, get = (
            s3.generate_presigned_url(each, Params=named, ExpiresIn=60)
            for each in ("put_object", "get_object")
        )
        fetched(put, SMALL)
        assert fetched(get) == SMALL
        assert s3.head_object(**named)["ContentLength"] == len(SMALL)


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
        """Returns its output; if it must fail, its errors."""
        done = subprocess.run(
            [str(BIN / program), *arguments],
            env=self.environment,
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )
        assert (done.returncode != 0) is fails, f"{program} {arguments}: {done.stderr}"
        return done.stderr if fails else done.stdout


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
    config = tmp_path / "aws"
    config.write_text("[default]\ns3 =\n  signature_version = s3v4\n")  # for `presign`
    run.environment["AWS_CONFIG_FILE"] = str(config)
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
    get = ("--endpoint-url", run.tarn.endpoint, "s3api", "get-object", "--range", "bytes=255-256")
    large = ("--bucket", place.bucket, "--key", f"{place.root}aws/large", str(tmp_path / "range"))
    run("aws", *get, *large)
    assert (tmp_path / "range").read_bytes() == b"\xff\x00"
    assert fetched(run("aws", *aws, "presign", f"{at}/small")) == SMALL
    run("aws", *aws, "mv", "--quiet", f"{at}/large", f"{at}/moved")
    assert "NoSuchKey" in run("aws", *get, *large, fails=True)
    run("aws", *aws, "rm", "--recursive", "--quiet", f"{at}/")
    run("aws", *aws, "ls", f"{at}/", fails=True)


@pytest.mark.on_cassandra("one")
def test_s5cmd_round_trip(run: Cli, s3: Any, place: Place, files: Path, tmp_path: Path) -> None:
    at = f"s3://{place.bucket}/{place.root}s5"
    s5 = ("--endpoint-url", run.tarn.endpoint)
    run("s5cmd", *s5, "cp", "--part-size", "5", f"{files}/", f"{at}/")
    large = s3.head_object(Bucket=place.bucket, Key=f"{place.root}s5/large")
    assert large["ETag"].endswith('-3"')
    listed = run("s5cmd", *s5, "ls", f"{at}/*").splitlines()
    assert sorted(line.split(maxsplit=3)[3] for line in listed) == [
        "deep/er/a b.txt",
        "large",
        "small",
    ]
    run("s5cmd", *s5, "cp", "--part-size", "5", f"{at}/*", f"{tmp_path}/back/")  # by ranges
    assert_same(files, tmp_path / "back")
    assert fetched(run("s5cmd", *s5, "presign", f"{at}/small")) == SMALL
    assert "not found" in run("s5cmd", *s5, "cat", f"{at}/none", fails=True)
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
    part = tmp_path / "part"
    part.write_bytes(LARGE[: len(LARGE) // 2])
    run("s3cmd", *s3cmd, "get", "--continue", f"{at}/large", str(part))  # reads the other half
    assert part.read_bytes() == LARGE
    assert "NoSuchBucket" in run("s3cmd", *s3cmd, "ls", "s3://no-such-lake", fails=True)
    run("s3cmd", *s3cmd, "cp", f"{at}/large", f"{at}/copy")
    for told in (f"s3://{place.bucket}", f"{at}/copy"):
        lines = run("s3cmd", *s3cmd, "info", told).splitlines()
        assert [line.split()[-1] for line in lines if "ACL:" in line] == ["FULL_CONTROL"]
        run("s3cmd", *s3cmd, "setacl", "--acl-private", told)
        run("s3cmd", *s3cmd, "setacl", "--acl-public", told, fails=True)
    run("s3cmd", *s3cmd, "del", "--recursive", "--force", f"{at}/")
    assert run("s3cmd", *s3cmd, "ls", "--recursive", f"{at}/") == ""


def rclone_of(run: Cli, place: Place) -> str:
    """Tells rclone of a place; returns its name there."""
    run.environment |= {
        "RCLONE_CONFIG_LAKE_TYPE": "s3",
        "RCLONE_CONFIG_LAKE_PROVIDER": "Other",
        "RCLONE_CONFIG_LAKE_ENV_AUTH": "true",
        "RCLONE_CONFIG_LAKE_REGION": "us-east-1",
        "RCLONE_CONFIG_LAKE_ENDPOINT": run.tarn.endpoint,
        "RCLONE_S3_UPLOAD_CUTOFF": "5Mi",
    }
    return f"lake:{place.bucket}/{place.root}"


def test_rclone_round_trip(run: Cli, place: Place, files: Path, tmp_path: Path) -> None:
    """It asks for the bucket to be created before it writes."""
    root = rclone_of(run, place)
    at = f"{root}rc"
    run("rclone", "copy", str(files), at)
    listed = run("rclone", "lsf", "--recursive", "--files-only", at).splitlines()
    assert sorted(listed) == ["deep/er/a b.txt", "large", "small"]
    run("rclone", "check", str(files), at)
    run("rclone", "sync", at, str(tmp_path / "back"))
    assert_same(files, tmp_path / "back")
    assert run("rclone", "cat", "--offset", "65", "--count", "3", f"{at}/large") == "ABC"
    assert fetched(run("rclone", "link", "--expire", "5m", f"{at}/small")) == SMALL
    run("rclone", "moveto", f"{at}/large", f"{at}/moved")
    assert run("rclone", "lsf", f"{at}/large") == ""
    told = run("rclone", "lsf", "lake:no-such-bucket", fails=True)
    assert "directory not found" in told
    run("rclone", "purge", at)
    assert run("rclone", "lsf", root) == ""


@pytest.mark.long
@pytest.mark.timeout(600)
def test_rclone_copies_two_gigabytes_through_constant_memory(tmp_path: Path) -> None:
    """To the lake, inside it, and back. It is told that the bucket exists."""
    large, back = tmp_path / "large", tmp_path / "back"
    with large.open("wb") as file:
        file.truncate(GIB2)
        for start in range(0, GIB2, 1 << 20):  # so that no two parts are equal
            file.seek(start)
            file.write(start.to_bytes(8, "big"))
    with running_tarn(tmp_path, "separate") as tarn:
        run = Cli(tarn, tmp_path)
        at = rclone_of(run, tarn.new_bucket())
        run.environment["RCLONE_S3_NO_CHECK_BUCKET"] = "true"
        processes = psutil.Process(tarn.supervisor.pid).children(recursive=True)
        (gateway,) = (each.pid for each in processes if "tarn_gateway" in each.cmdline())
        before = memory_mib(gateway)
        run("rclone", "copyto", str(large), f"{at}large")
        run("rclone", "copyto", f"{at}large", f"{at}copy")
        run("rclone", "copyto", f"{at}copy", str(back))
        grown = memory_mib(gateway, "VmHWM") - before
    assert grown < MEMORY_MIB
    with large.open("rb") as sent, back.open("rb") as got:
        assert hashlib.file_digest(got, "md5").digest() == hashlib.file_digest(sent, "md5").digest()
    # The folders of three runs are kept.
    shutil.rmtree(tarn.data)
    large.unlink()
    back.unlink()


def memory_mib(pid: int, name: str = "VmRSS") -> float:
    """Returns the memory of a process that is in the RAM now, or was at most (`VmHWM`)."""
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    (kib,) = (line.split()[1] for line in lines if line.startswith(f"{name}:"))
    return int(kib) / 1024


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
    with pytest.raises(FileNotFoundError):
        lake.open_input_file(f"{at}/large")
    assert lake.get_file_info(f"{at}/large").type is fs.FileType.NotFound
    lake.delete_dir_contents(f"{at}/table")
    assert lake.get_file_info(f"{at}/copy").size == len(LARGE)


def test_obstore_round_trip(tarn: RunningTarn, place: Place) -> None:
    import obstore
    from obstore.exceptions import AlreadyExistsError
    from obstore.store import S3Store

    lake = S3Store(
        place.bucket,
        endpoint=tarn.endpoint,
        access_key_id=tarn.access_key_id,
        secret_access_key=tarn.secret_access_key,
        region="us-east-1",
        client_options={"allow_http": True},
    )
    at = f"{place.root}ob"
    obstore.put(lake, f"{at}/a b/ü", SMALL, attributes={"Content-Type": "text/plain"})
    obstore.put(lake, f"{at}/large", LARGE, use_multipart=True, chunk_size=5 << 20)
    with pytest.raises(AlreadyExistsError):
        obstore.put(lake, f"{at}/large", SMALL, mode="create")
    assert str(obstore.head(lake, f"{at}/large")["e_tag"]).endswith('-3"')
    assert bytes(obstore.get(lake, f"{at}/a b/ü").bytes()) == SMALL
    ranges = obstore.get_ranges(lake, f"{at}/large", starts=[255, 8 << 20], lengths=[2, 4])
    assert [bytes(each) for each in ranges] == [b"\xff\x00", bytes(range(4))]
    obstore.copy(lake, f"{at}/large", f"{at}/copy")
    obstore.rename(lake, f"{at}/copy", f"{at}/moved")
    listed = obstore.list(lake, prefix=at).collect()
    assert sorted((each["path"], each["size"]) for each in listed) == [
        (f"{at}/a b/ü", len(SMALL)),
        (f"{at}/large", len(LARGE)),
        (f"{at}/moved", len(LARGE)),
    ]
    assert obstore.list_with_delimiter(lake, at)["common_prefixes"] == [f"{at}/a b"]
    for_a_minute = timedelta(minutes=1)
    fetched(obstore.sign(lake, "PUT", f"{at}/signed", for_a_minute), SMALL)
    assert fetched(obstore.sign(lake, "GET", f"{at}/signed", for_a_minute)) == SMALL
    obstore.delete(lake, [f"{at}/{name}" for name in ("a b/ü", "large", "moved", "signed")])
    assert obstore.list(lake, prefix=at).collect() == []
    with pytest.raises(FileNotFoundError):
        obstore.get(lake, f"{at}/large")
