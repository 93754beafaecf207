"""Bucket views on running services: the page about them, and views that are pointed to and fro under clients."""

from __future__ import annotations

import threading
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any

import pytest
from botocore.exceptions import ClientError
from pages_as_written import own_name, play, script_of
from running_tarn import RunningTarn

PAGE = Path(__file__).parents[2] / "docs" / "user" / "buckets.md"
ROUNDS = 8
REQUESTS = 15
"""After each change; the connections go to all workers."""


def test_the_page_about_bucket_views_works_as_written(tarn: RunningTarn, tmp_path: Path) -> None:
    script = script_of(PAGE.read_text(encoding="utf-8"))
    name = own_name("shop", tmp_path)
    script = script.replace("shop", name)
    done = play(tarn, script, tmp_path)
    assert "2026/report.csv" in done.stdout


def test_requests_after_a_change_use_the_new_target(
    tarn: RunningTarn, repository: str, s3: Any
) -> None:
    """Reads, writes and listings, by new connections and kept ones, in every process of the endpoint."""
    view = f"{repository[:50]}-view"
    tarn.ok("branch", "create", f"{repository}/dev", "--from", "main")
    tarn.ok("bucket", "create", view, "--to", f"{repository}/main")
    for branch in ("main", "dev"):
        s3.put_object(Bucket=repository, Key=f"{branch}/which", Body=branch.encode())
    assert view in {each["Name"] for each in s3.list_buckets(Prefix=view)["Buckets"]}
    for number in range(ROUNDS):
        branch = ("dev", "main")[number % 2]
        tarn.ok("bucket", "point", view, "--to", f"{repository}/{branch}")
        for request in range(REQUESTS):
            client = s3 if request % 2 else tarn.s3()
            assert client.get_object(Bucket=view, Key="which")["Body"].read() == branch.encode()
            client.put_object(Bucket=view, Key=f"written/{branch}/{number}/{request}", Body=b"x")
            if client is not s3:
                client.close()
        keys = {each["Key"] for each in s3.list_objects_v2(Bucket=view)["Contents"]}
        assert {key.split("/")[1] for key in keys if key.startswith("written/")} == {branch}
    tarn.ok("bucket", "delete", view)
    with pytest.raises(ClientError) as gone:
        s3.get_object(Bucket=view, Key="some/thing")
    assert gone.value.response["Error"]["Code"] == "NoSuchBucket"


def test_writers_beside_changes_write_each_object_once(tarn: RunningTarn, repository: str) -> None:
    """A write beside a change lands on one branch, whatever the SDK had to repeat; none is lost."""
    view = f"{repository[:50]}-busy"
    tarn.ok("branch", "create", f"{repository}/dev", "--from", "main")
    tarn.ok("bucket", "create", view, "--to", f"{repository}/main")
    stop = threading.Event()
    written: list[list[str]] = [[], []]
    failures: list[Exception] = []

    def write(own: list[str], name: int) -> None:
        client = tarn.s3(retries={"mode": "standard", "max_attempts": 8})
        try:
            while not stop.is_set():
                key = f"{name}/{len(own)}"
                client.put_object(Bucket=view, Key=key, Body=key.encode())
                own.append(key)
        except Exception as error:  # noqa: BLE001 - told below
            failures.append(error)
        finally:
            client.close()

    writers = [threading.Thread(target=write, args=(own, name)) for name, own in enumerate(written)]
    for each in writers:
        each.start()
    for number in range(ROUNDS):
        tarn.ok("bucket", "point", view, "--to", f"{repository}/{('dev', 'main')[number % 2]}")
    stop.set()
    for each in writers:
        each.join(60)
    assert failures == []
    found: dict[str, set[str]] = {}
    s3 = tarn.s3()
    for branch in ("main", "dev"):
        pages = s3.get_paginator("list_objects_v2").paginate(Bucket=repository, Prefix=f"{branch}/")
        keys = (each["Key"] for page in pages for each in page.get("Contents", []))
        found[branch] = {key.partition("/")[2] for key in keys}
    assert found["main"] | found["dev"] == {key for own in written for key in own}
    assert found["main"] & found["dev"] == set()
    assert all(found.values())


def test_clients_make_and_delete_buckets_of_their_own(
    tarn: RunningTarn, s3: Any, tmp_path: Path
) -> None:
    bucket = f"made-{tmp_path.name[-20:].replace('_', '-')}".rstrip("-")
    for _ in range(2):
        s3.create_bucket(Bucket=bucket)
    s3.get_waiter("bucket_exists").wait(Bucket=bucket)
    s3.put_object(Bucket=bucket, Key="2026/a", Body=b"1")
    branch = tarn.ok("bucket", "show", bucket, "--json").json["shows"]
    tarn.ok("commit", branch, "-m", "by its repository")
    with pytest.raises(ClientError) as caught:
        s3.delete_bucket(Bucket=bucket)
    assert caught.value.response["Error"]["Code"] == "BucketNotEmpty"
    s3.delete_object(Bucket=bucket, Key="2026/a")
    s3.delete_bucket(Bucket=bucket)
    s3.get_waiter("bucket_not_exists").wait(Bucket=bucket)
    s3.create_bucket(Bucket=bucket)
    assert "Contents" not in s3.list_objects_v2(Bucket=bucket)
    repository = branch.partition("/")[0]
    s3.put_object(Bucket=repository, Key="main/late", Body=b"of the earlier bucket")
    assert "Contents" not in s3.list_objects_v2(Bucket=bucket)


def test_a_public_bucket_is_read_without_a_key_until_it_is_closed(
    tarn: RunningTarn, repository: str, s3: Any
) -> None:
    """By every process of the endpoint: each new connection may reach another one."""
    view = f"{repository[:50]}-open"
    s3.put_object(Bucket=repository, Key="main/a", Body=b"for all")
    tarn.ok("bucket", "create", view, "--to", f"{repository}/main", "--public-read")

    def read(key: str = f"{view}/a") -> tuple[int, bytes]:
        try:
            with urllib.request.urlopen(f"{tarn.endpoint}/{key}", timeout=30) as answer:
                return answer.status, answer.read()
        except urllib.error.HTTPError as error:
            with error:
                return error.code, error.read()

    for _ in range(REQUESTS):
        assert read() == (200, b"for all")
        assert b"<Key>a</Key>" in read(f"{view}?list-type=2")[1]
        assert read(f"{repository}/main/a")[0] == 403
    tarn.ok("branch", "create", f"{repository}/dev", "--from", "main")
    s3.put_object(Bucket=repository, Key="dev/a", Body=b"new")
    tarn.ok("bucket", "point", view, "--to", f"{repository}/dev")
    assert {read() for _ in range(REQUESTS)} == {(200, b"new")}
    assert tarn.ok("bucket", "public", view, "off", "--json").json["public"] is False
    assert {read()[0] for _ in range(REQUESTS)} == {403}
    tarn.ok("bucket", "delete", view)
