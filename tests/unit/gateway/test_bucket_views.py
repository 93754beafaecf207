"""Requests through a bucket view: keys are paths, answers show the bucket as it was sent, and a view that is pointed
elsewhere is followed."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from gateway_lake import GatewayLake
from s3_multipart import listed, md5

from tarn.core.errors import Kind, Reason

DELETE = "<Delete><Object><Key>{}</Key></Object><Object><Key>{}</Key></Object></Delete>"


@pytest.fixture
def view(lake: GatewayLake) -> GatewayLake:
    """`sales` shows `lake/main`, `look` the tag v1."""
    lake.graveler.point("sales", "lake", "main")
    lake.graveler.point("look", "lake", "v1")
    return lake


async def test_an_object_has_two_names(view: GatewayLake) -> None:
    put = await view.ask("PUT", "/sales/2026/x.parquet", body=b"rows")
    assert put.status == 200
    assert view.entry("lake", "main", "2026/x.parquet").size == 4
    for target in ("/sales/2026/x.parquet", "/lake/main/2026/x.parquet"):
        for method in ("GET", "HEAD"):
            got = await view.ask(method, target)
            assert (got.status, got.headers["etag"]) == (200, put.headers["etag"])
    assert (await view.ask("DELETE", "/sales/2026/x.parquet")).status == 204
    assert (await view.ask("GET", "/lake/main/2026/x.parquet")).code == "NoSuchKey"


@pytest.mark.parametrize("key", ["main/a", "a", "a//b", "ü/%2F", "a b+c", "~", "a/"])
async def test_the_whole_key_is_the_path(view: GatewayLake, key: str) -> None:
    assert (await view.ask("PUT", f"/sales/{key}", body=b"1")).status == 200
    assert view.entry("lake", "main", key).size == 1
    listed = await view.ask("GET", "/sales", "list-type=2")
    assert listed.all("Key") == [key]


async def test_listings_show_the_bucket(view: GatewayLake) -> None:
    for key in ("a", "d/1", "d/2", "e/1"):
        await view.ask("PUT", f"/sales/{key}", body=b"1")
    page = await view.ask("GET", "/sales", "list-type=2&delimiter=/&max-keys=2")
    assert page.all("Name") == ["sales"]
    assert (page.all("Key"), page.all("Prefix")) == (["a"], ["", "d/"])
    (token,) = page.all("NextContinuationToken")
    rest = await view.ask("GET", "/sales", f"list-type=2&delimiter=/&continuation-token={token}")
    assert (rest.all("Key"), rest.all("Prefix")) == ([], ["", "e/"])
    first = await view.ask("GET", "/sales", "prefix=d/&max-keys=1")
    assert (first.all("Key"), first.all("NextMarker"), first.all("Prefix")) == (
        ["d/1"],
        ["d/1"],
        ["d/"],
    )
    after = await view.ask("GET", "/sales", "marker=d/1")
    assert after.all("Key") == ["d/2", "e/1"]
    after = await view.ask("GET", "/sales", "list-type=2&start-after=d/2")
    assert after.all("Key") == ["e/1"]
    other = await view.ask("GET", "/sales", "delimiter=1")
    assert other.all("Prefix")[1:] == ["d/1", "e/1"]
    assert (await view.ask("GET", "/sales", "max-keys=0")).all("Key") == []


async def test_a_listing_does_not_go_on_in_another_ref(view: GatewayLake) -> None:
    for key in ("a", "b"):
        await view.ask("PUT", f"/sales/{key}", body=b"1")
    page = await view.ask("GET", "/sales", "list-type=2&max-keys=1")
    (token,) = page.all("NextContinuationToken")
    view.graveler.point("sales", "lake", "dev")
    view.clock.advance(6.0)
    rest = await view.ask("GET", "/sales", f"list-type=2&continuation-token={token}")
    assert (rest.status, rest.code) == (400, "InvalidArgument")
    for target in ("/lake", "/look"):
        rest = await view.ask("GET", target, f"list-type=2&continuation-token={token}")
        assert (rest.status, rest.code) == (400, "InvalidArgument")


async def test_deleteobjects_takes_paths(view: GatewayLake) -> None:
    for key in ("a", "main/b"):
        await view.ask("PUT", f"/sales/{key}", body=b"1")
    done = await view.ask("POST", "/sales", "delete", DELETE.format("a", "main/b").encode())
    assert (done.all("Key"), done.all("Code")) == (["a", "main/b"], [])
    assert view.graveler.repos["lake"].branches["main"] == {}


async def test_copies_between_views_and_repositories(view: GatewayLake) -> None:
    view.create("pond")
    await view.ask("PUT", "/sales/a", body=b"1")
    for target, source in (
        ("/sales/b", "sales/a"),
        ("/sales/c", "/lake/main/a"),
        ("/pond/main/d", "sales/a"),
        ("/lake/dev/e", "sales/a"),
    ):
        done = await view.ask("PUT", target, headers={"x-amz-copy-source": source})
        assert done.status == 200, done.body
    assert view.entry("pond", "main", "d").size == view.entry("lake", "dev", "e").size == 1
    same = await view.ask("PUT", "/sales/a", headers={"x-amz-copy-source": "lake/main/a"})
    assert same.code == "InvalidRequest"
    missing = await view.ask("PUT", "/sales/z", headers={"x-amz-copy-source": "sales/none"})
    assert missing.code == "NoSuchKey"


async def test_uploads_show_the_bucket(view: GatewayLake) -> None:
    begun = await view.ask("POST", "/sales/big", "uploads")
    assert (begun.all("Bucket"), begun.all("Key")) == (["sales"], ["big"])
    (upload_id,) = begun.all("UploadId")
    part = await view.ask("PUT", "/sales/big", f"partNumber=1&uploadId={upload_id}", b"part")
    parts = await view.ask("GET", "/sales/big", f"uploadId={upload_id}")
    assert (parts.all("Bucket"), parts.all("Key")) == (["sales"], ["big"])
    listed = await view.ask("GET", "/sales", "uploads&prefix=b")
    assert (listed.all("Bucket"), listed.all("Key"), listed.all("Prefix")) == (
        ["sales"],
        ["big"],
        ["b"],
    )
    document = (
        "<CompleteMultipartUpload><Part><PartNumber>1</PartNumber>"
        f"<ETag>{part.headers['etag']}</ETag></Part></CompleteMultipartUpload>"
    )
    done = await view.ask("POST", "/sales/big", f"uploadId={upload_id}", document.encode())
    assert (done.all("Bucket"), done.all("Key"), done.all("Location")) == (
        ["sales"],
        ["big"],
        ["http://s3.test/sales/big"],
    )
    assert view.entry("lake", "main", "big").size == 4


async def test_a_view_of_a_tag_is_read_only(view: GatewayLake) -> None:
    assert (await view.ask("GET", "/look", "list-type=2")).status == 200
    refused = await view.ask("PUT", "/look/a", body=b"1")
    assert (refused.status, refused.code) == (405, "MethodNotAllowed")
    assert await view.blocks_of("lake") == []


async def test_a_view_whose_target_is_gone_is_no_bucket(view: GatewayLake) -> None:
    del view.graveler.repos["lake"].branches["main"]
    for method, target, query in (
        ("GET", "/sales/a", ""),
        ("GET", "/sales", "list-type=2"),
        ("PUT", "/sales/a", ""),
        ("DELETE", "/sales/a", ""),
    ):
        assert (await view.ask(method, target, query)).code == "NoSuchBucket"
    del view.graveler.repos["lake"]
    assert (await view.ask("GET", "/sales/a")).code == "NoSuchBucket"
    del view.graveler.views["sales"]
    assert (await view.ask("GET", "/sales/a")).code == "NoSuchBucket"


# ---- a view that is pointed elsewhere


@pytest.mark.parametrize("seconds", [0.0, 6.0], ids=["cached", "expired"])
async def test_a_view_is_followed(view: GatewayLake, seconds: float) -> None:
    await view.ask("PUT", "/lake/dev/a", body=b"dev")
    await view.ask("PUT", "/sales/a", body=b"main")
    view.graveler.point("sales", "lake", "dev")
    view.clock.advance(seconds)
    assert (await view.ask("GET", "/sales/a")).body == b"dev"
    view.graveler.point("sales", "lake", "main")
    view.clock.advance(seconds)
    assert (await view.ask("PUT", "/sales/b", body=b"new")).status == 200
    assert "b" in view.graveler.repos["lake"].branches["main"]
    assert "b" not in view.graveler.repos["lake"].branches["dev"]
    view.graveler.point("sales", "lake", "dev")
    view.clock.advance(seconds)
    assert (await view.ask("DELETE", "/sales/a")).status == 204
    assert "a" in view.graveler.repos["lake"].branches["main"]
    done = await view.ask("PUT", "/lake/main/c", headers={"x-amz-copy-source": "sales/a"})
    assert done.code == "NoSuchKey"
    view.graveler.point("sales", "lake", "main")
    view.clock.advance(seconds)
    done = await view.ask("PUT", "/lake/dev/c", headers={"x-amz-copy-source": "sales/a"})
    assert done.status == 200


async def test_a_write_beside_a_change_is_refused_and_may_be_repeated(
    view: GatewayLake, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The body was read for the old target. Nothing is staged there, nor on the new one."""
    get = view.repositories.get

    async def pointed_after(*arguments: Any) -> Any:
        found = await get(*arguments)
        view.graveler.point("sales", "lake", "dev")
        return found

    monkeypatch.setattr(view.repositories, "get", pointed_after)
    refused = await view.ask("PUT", "/sales/a", body=b"1")
    monkeypatch.undo()
    assert (refused.status, refused.code) == (503, "ServiceUnavailable")
    branches = view.graveler.repos["lake"].branches
    assert (branches["main"], branches["dev"]) == ({}, {})
    assert (await view.ask("PUT", "/sales/a", body=b"1")).status == 200
    assert (list(branches["main"]), list(branches["dev"])) == ([], ["a"])


async def test_a_view_grants_nothing(view: GatewayLake) -> None:
    refused = await view.ask("PUT", "/sales/a", body=b"1", key="AKIAREADER")
    assert (refused.code, refused.reads) == ("AccessDenied", 0)
    many = DELETE.format("a", "b").encode()
    assert (
        await view.ask("POST", "/sales", "delete", many, key="AKIAREADER")
    ).code == "AccessDenied"
    assert (await view.ask("GET", "/sales/a", key="AKIAREADER")).code == "NoSuchKey"


async def test_views_and_repositories_are_listed_together(view: GatewayLake, failure: Any) -> None:
    assert (await view.ask("GET", "/")).all("Name") == ["lake", "look", "sales"]
    view.graveler.fail["ListBuckets"] = [failure(Kind.UNIMPLEMENTED, Reason.NOT_IMPLEMENTED)]
    assert (await view.ask("GET", "/")).all("Name") == ["lake"]  # from one of the last release


async def test_a_refusal_does_not_tell_what_a_view_shows(view: GatewayLake) -> None:
    refused = await view.ask("PUT", "/sales/a", body=b"1", key="AKIAREADER")
    assert (refused.code, b"lake" in refused.body) == ("AccessDenied", False)


async def test_a_completion_that_may_have_been_done_is_not_called_refused(
    view: GatewayLake, failure: Any
) -> None:
    """Its answer is lost, and the view is pointed elsewhere before it is sent again. The object may be there, so the
    upload is not opened again."""
    begun = await view.ask("POST", "/sales/big", "uploads")
    (upload_id,) = begun.all("UploadId")
    part = await view.ask("PUT", "/sales/big", f"partNumber=1&uploadId={upload_id}", b"part")
    lost = failure(Kind.UNKNOWN_OUTCOME, Reason.OUTCOME_UNKNOWN)
    moved = failure(Kind.CONFLICT, Reason.BUCKET_MOVED, bucket="sales")
    view.graveler.fail["FinishCompleteUpload"] = [lost, moved]
    document = (
        "<CompleteMultipartUpload><Part><PartNumber>1</PartNumber>"
        f"<ETag>{part.headers['etag']}</ETag></Part></CompleteMultipartUpload>"
    )
    asking = asyncio.ensure_future(
        view.ask("POST", "/sales/big", f"uploadId={upload_id}", document.encode())
    )
    while not asking.done():
        await asyncio.sleep(0)
        view.clock.advance(0.05)
    answer = await asking
    assert (answer.status, answer.code) == (503, "ServiceUnavailable")
    assert "may have been completed" in answer.body.decode()
    assert view.graveler.uploads[upload_id].state == "completing"


@pytest.mark.parametrize("again", ["/lake/main/big", "/sales/big"])
async def test_a_completion_whose_view_moves_gives_its_claim_back(
    view: GatewayLake, monkeypatch: pytest.MonkeyPatch, again: str
) -> None:
    """Nothing was staged. So the upload goes on at once, by the repository or when the view shows its branch again."""
    begun = await view.ask("POST", "/sales/big", "uploads")
    (upload_id,) = begun.all("UploadId")
    await view.ask("PUT", "/sales/big", f"partNumber=1&uploadId={upload_id}", b"part")
    document, query = listed((1, md5(b"part"))), f"uploadId={upload_id}"
    join = view.blocks.uploads.complete

    async def joined_beside_a_change(*arguments: Any) -> object:
        view.graveler.point("sales", "lake", "dev")
        return await join(*arguments)

    monkeypatch.setattr(view.blocks.uploads, "complete", joined_beside_a_change)
    refused = await view.ask("POST", "/sales/big", query, document)
    monkeypatch.undo()
    assert (refused.status, refused.code) == (503, "ServiceUnavailable")
    assert (await view.ask("POST", "/sales/big", query, document)).code == "NoSuchUpload"
    view.graveler.point("sales", "lake", "main")
    assert (await view.ask("POST", again, query, document)).status == 200
    branches = view.graveler.repos["lake"].branches
    assert (list(branches["main"]), list(branches["dev"])) == (["big"], [])


async def test_a_bucket_name_may_pass_between_a_view_and_a_repository(view: GatewayLake) -> None:
    """A view becomes a repository, and a repository a view, while the gateway remembers the former."""
    await view.ask("PUT", "/sales/a", body=b"view")
    del view.graveler.views["sales"]
    view.create("sales")
    assert (await view.ask("GET", "/sales/a")).code == "NoSuchKey"
    assert (await view.ask("PUT", "/sales/main/a", body=b"repository")).status == 200
    del view.graveler.repos["sales"]
    view.graveler.point("sales", "lake", "main")
    assert (await view.ask("GET", "/sales/a")).body == b"view"


async def test_the_audit_log_names_the_repository_and_the_bucket(audited: Any) -> None:
    lake, records = audited
    lake.graveler.point("sales", "lake", "main")
    await lake.ask("PUT", "/sales/a", body=b"1")
    (record,) = records()
    assert record["resource"] == "repository/lake/branch/main/object/a"
    assert record["details"]["bucket"] == "sales"
