"""ListObjects, both versions, within refs and over them."""

from __future__ import annotations

from typing import Any
from urllib.parse import quote

import pytest
from gateway_lake import GatewayLake

from tarn.core.entry import Entry, pack
from tarn.core.errors import Kind, Reason

PATHS = ["a", "b/1", "b/2", "b/c/3", "d e", "z"]


@pytest.fixture
def full(lake: GatewayLake) -> Any:
    """`main` holds `PATHS`; `main-2`, which is sorted before it, and the tag hold one path each."""
    repo = lake.create("lake", "main", "main-2", "dev", tags=("v1",))
    packed = pack(Entry(3, lake.clock.now_us(), bytes(16), bytes(16)))
    repo.branches["main"].update(dict.fromkeys(PATHS, packed))
    repo.branches["main-2"]["x"] = packed
    repo.tags["v1"]["t"] = packed
    return lake


async def keys(lake: GatewayLake, query: str) -> tuple[list[str], list[str]]:
    reply = await lake.ask("GET", "/lake", query)
    assert reply.status == 200, reply.body
    prefixes = reply.all("Prefix")[1:]
    return reply.all("Key"), prefixes


V2 = "list-type=2"


@pytest.mark.parametrize("version", ["list-type=1", V2])
async def test_a_ref_is_listed_in_order(full: Any, version: str) -> None:
    found = await keys(full, f"{version}&prefix=main/")
    assert found == ([f"main/{path}" for path in PATHS], [])
    assert (await keys(full, f"{version}&prefix=v1/"))[0] == ["v1/t"]
    assert (await keys(full, f"{version}&prefix=main~0/b/"))[0] == [
        "main~0/b/1",
        "main~0/b/2",
        "main~0/b/c/3",
    ]


@pytest.mark.parametrize("version", ["list-type=1", V2])
async def test_delimiters_roll_up(full: Any, version: str) -> None:
    found = await keys(full, f"{version}&prefix=main/&delimiter=/")
    assert found == (["main/a", "main/d e", "main/z"], ["main/b/"])
    found = await keys(full, f"{version}&prefix=main/b/&delimiter=/")
    assert found == (["main/b/1", "main/b/2"], ["main/b/c/"])
    found = await keys(full, f"{version}&prefix=main/&delimiter=%20")
    assert found[1] == ["main/d "]


async def test_pages_of_version_2_continue_by_token(full: Any) -> None:
    seen: list[str] = []
    token, pages = "", 0
    while True:
        query = f"{V2}&prefix=main/&delimiter=/&max-keys=2"
        reply = await full.ask("GET", "/lake", query + token)
        seen += sorted(reply.all("Key") + reply.all("Prefix")[1:])
        pages += 1
        assert reply.all("KeyCount") == ["2"]
        if reply.all("IsTruncated") == ["false"]:
            break
        token = "&continuation-token=" + quote(reply.all("NextContinuationToken")[0])
    assert (seen, pages) == (["main/a", "main/b/", "main/d e", "main/z"], 2)


async def test_pages_of_version_1_continue_by_marker(full: Any) -> None:
    first = await full.ask("GET", "/lake", "prefix=main/&delimiter=/&max-keys=2")
    assert first.all("NextMarker") == ["main/b/"]
    second = await full.ask("GET", "/lake", "prefix=main/&delimiter=/&marker=main/b/")
    assert second.all("Key") == ["main/d e", "main/z"]
    assert second.all("Marker") == ["main/b/"]


async def test_start_after_is_a_key(full: Any) -> None:
    assert (await keys(full, f"{V2}&prefix=main/&start-after=main/b/2"))[0] == [
        "main/b/c/3",
        "main/d e",
        "main/z",
    ]
    assert (await keys(full, f"{V2}&prefix=main/&start-after=a"))[0] == [
        f"main/{path}" for path in PATHS
    ]
    assert (await keys(full, f"{V2}&prefix=main/&start-after=zz"))[0] == []


@pytest.mark.parametrize("number", ["1000", "5000"])
async def test_more_than_1000_keys_are_capped(full: Any, number: str) -> None:
    packed = next(iter(full.graveler.repos["lake"].branches["main"].values()))
    full.graveler.repos["lake"].branches["dev"].update(
        {f"{index:05}": packed for index in range(1001)}
    )
    reply = await full.ask("GET", "/lake", f"{V2}&prefix=dev/&max-keys={number}")
    assert (len(reply.all("Key")), reply.all("MaxKeys")) == (1000, ["1000"])
    assert reply.all("IsTruncated") == ["true"]


async def test_no_keys_may_be_asked_for(full: Any) -> None:
    reply = await full.ask("GET", "/lake", f"{V2}&prefix=main/&max-keys=0")
    assert (reply.all("Key"), reply.all("IsTruncated")) == ([], ["false"])
    assert (await full.ask("GET", "/river", f"{V2}&max-keys=0")).code == "NoSuchBucket"


async def test_refs_are_the_folders_of_a_bucket(full: Any) -> None:
    assert await keys(full, f"{V2}&delimiter=/") == ([], ["dev/", "main-2/", "main/", "v1/"])
    assert await keys(full, f"{V2}&delimiter=/&prefix=ma") == ([], ["main-2/", "main/"])
    assert await keys(full, f"{V2}&delimiter=/&start-after=main-2/") == ([], ["main/", "v1/"])
    first = await full.ask("GET", "/lake", f"{V2}&delimiter=/&max-keys=2")
    token = quote(first.all("NextContinuationToken")[0])
    assert await keys(full, f"{V2}&delimiter=/&continuation-token={token}") == (
        [],
        ["main/", "v1/"],
    )


async def test_many_refs_are_looked_through_in_pages(full: Any) -> None:
    full.graveler.page_max = 1
    assert (await keys(full, f"{V2}&delimiter=/"))[1] == ["dev/", "main-2/", "main/", "v1/"]


async def test_a_whole_bucket_is_listed_branch_after_branch(full: Any) -> None:
    every = ["main-2/x", *(f"main/{path}" for path in PATHS)]
    assert (await keys(full, V2))[0] == every
    assert (await keys(full, f"{V2}&prefix=main-"))[0] == ["main-2/x"]
    seen: list[str] = []
    token = ""
    while True:
        reply = await full.ask("GET", "/lake", f"{V2}&max-keys=2{token}")
        seen += reply.all("Key")
        if reply.all("IsTruncated") == ["false"]:
            break
        token = "&continuation-token=" + quote(reply.all("NextContinuationToken")[0])
    assert seen == every


async def test_a_branch_deleted_during_a_listing_is_left_out(full: Any, failure: Any) -> None:
    full.graveler.fail["ListEntries"] = [None, failure(Kind.NOT_FOUND, Reason.REF_NOT_FOUND)]
    assert (await keys(full, V2))[0] == [f"main/{path}" for path in PATHS]


async def test_short_pages_of_graveler_end_no_listing(full: Any) -> None:
    full.graveler.page_max = 2
    reply = await full.ask("GET", "/lake", f"{V2}&prefix=main/")
    assert (reply.all("Key"), reply.all("IsTruncated")) == (["main/a", "main/b/1"], ["true"])


async def test_keys_are_url_encoded_when_asked(full: Any) -> None:
    reply = await full.ask("GET", "/lake", f"{V2}&prefix=main/d%20e&encoding-type=url")
    assert reply.all("Key") == ["main/d%20e"]
    assert reply.all("Prefix") == ["main/d%20e"]
    assert reply.all("EncodingType") == ["url"]
    assert (await full.ask("GET", "/lake", "encoding-type=x")).code == "InvalidArgument"


async def test_owners_are_given_when_asked(full: Any) -> None:
    assert (await full.ask("GET", "/lake", f"{V2}&prefix=v1/")).all("Owner") == []
    reply = await full.ask("GET", "/lake", f"{V2}&prefix=v1/&fetch-owner=true")
    assert reply.all("DisplayName") == ["akiaadmin"]
    assert (await full.ask("GET", "/lake", "prefix=v1/")).all("DisplayName") == ["akiaadmin"]


@pytest.mark.parametrize(
    ("bucket", "query", "status", "code"),
    [
        ("lake", "prefix=nobranch/", 404, "NoSuchKey"),
        ("lake", "prefix=.hidden/", 404, "NoSuchKey"),
        ("river", "prefix=main/", 404, "NoSuchBucket"),
        ("river", "delimiter=/", 404, "NoSuchBucket"),
        ("river", "x-id=List", 404, "NoSuchBucket"),
        ("lake", "delimiter=-", 501, "NotImplemented"),
        ("lake", "max-keys=-1", 400, "InvalidArgument"),
        ("lake", "max-keys=x", 400, "InvalidArgument"),
        ("lake", "continuation-token=nonsense", 400, "InvalidArgument"),
        ("lake", "continuation-token=%C3%BC", 400, "InvalidArgument"),
    ],
)
async def test_impossible_listings_are_refused(
    full: Any, bucket: str, query: str, status: int, code: str
) -> None:
    reply = await full.ask("GET", f"/{bucket}", f"{V2}&{query}")
    assert (reply.status, reply.code) == (status, code)


async def test_a_prefix_that_no_key_has_lists_nothing(full: Any) -> None:
    assert await keys(full, f"{V2}&prefix=/etc") == ([], [])
    assert await keys(full, f"{V2}&delimiter=/&prefix=nobr") == ([], [])


async def test_too_many_refs_ask_for_a_prefix(full: Any) -> None:
    repo = full.graveler.repos["lake"]
    repo.branches.update({f"b{number:05}": {} for number in range(10_001)})
    reply = await full.ask("GET", "/lake", f"{V2}&delimiter=/")
    assert (reply.status, reply.code) == (400, "InvalidRequest")
    assert (await full.ask("GET", "/lake", f"{V2}&delimiter=/&prefix=main")).status == 200
