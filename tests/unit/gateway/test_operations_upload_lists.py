"""Lists of multipart uploads and of their parts."""

from __future__ import annotations

from gateway_lake import GatewayLake
from s3_multipart import begin, crc32, sum_part

FIRST, LAST = bytes(5 * 1024**2), b"the end"


async def test_parts_are_listed_in_pages(lake: GatewayLake) -> None:
    upload = await begin(lake, headers={"x-amz-checksum-algorithm": "CRC32"})
    for number in (1, 2, 3):
        await sum_part(lake, upload, number, LAST)
    first = await lake.ask("GET", "/lake/main/big", f"uploadId={upload}&max-parts=2")
    assert first.all("PartNumber") == ["1", "2"]
    assert first.all("IsTruncated") == ["true"]
    assert first.all("ChecksumCRC32") == [crc32(LAST)] * 2
    (marker,) = first.all("NextPartNumberMarker")
    query = f"uploadId={upload}&part-number-marker={marker}"
    second = await lake.ask("GET", "/lake/main/big", query)
    assert second.all("PartNumber") == ["3"]
    assert second.all("IsTruncated") == ["false"]


async def test_uploads_are_listed_by_prefix_and_in_pages(lake: GatewayLake) -> None:
    ids = {key: await begin(lake, key) for key in ("dev/z", "main/a/1", "main/a/2", "main/b")}
    ids["main/b again"] = await begin(lake, "main/b")
    every = await lake.ask("GET", "/lake", "uploads")
    assert every.all("Key") == ["dev/z", "main/a/1", "main/a/2", "main/b", "main/b"]
    some = await lake.ask("GET", "/lake", "uploads&prefix=main/a/")
    assert some.all("Key") == ["main/a/1", "main/a/2"]
    rolled = await lake.ask("GET", "/lake", "uploads&prefix=main/&delimiter=/")
    assert rolled.all("Key") == ["main/b", "main/b"]
    assert rolled.all("Prefix") == ["main/", "main/a/"]
    seen: list[str] = []
    markers, pages = "", 0
    while True:
        page = await lake.ask("GET", "/lake", f"uploads&max-uploads=2{markers}")
        seen += page.all("UploadId")
        pages += 1
        if page.all("IsTruncated") == ["false"]:
            break
        (key,), (upload,) = page.all("NextKeyMarker"), page.all("NextUploadIdMarker")
        markers = f"&key-marker={key}&upload-id-marker={upload}"
    assert (page.all("KeyMarker"), page.all("UploadIdMarker")) == ([key], [upload])
    assert (sorted(seen), len(seen), pages) == (sorted(ids.values()), 5, 3)


async def test_a_full_page_of_uploads_asks_for_no_further_branch(lake: GatewayLake) -> None:
    for key in ("dev/y", "dev/z", "main/a"):
        await begin(lake, key)
    lake.graveler.calls.clear()
    page = await lake.ask("GET", "/lake", "uploads&max-uploads=1")
    assert (page.all("Key"), page.all("IsTruncated")) == (["dev/y"], ["true"])
    assert lake.graveler.calls.count("ListUploads") == 1


async def test_rolled_up_uploads_continue_behind_their_prefix(lake: GatewayLake) -> None:
    ids = [await begin(lake, key) for key in ("main/a/1", "main/a/2", "main/b")]
    query = "uploads&prefix=main/&delimiter=/&max-uploads=1"
    first = await lake.ask("GET", "/lake", query)
    assert (first.all("Key"), first.all("NextKeyMarker")) == ([], ["main/a/"])
    assert first.all("NextUploadIdMarker") == ids[:1]
    for marker in ("", f"&upload-id-marker={ids[0]}"):
        second = await lake.ask("GET", "/lake", f"{query}&key-marker=main/a/{marker}")
        assert (second.all("Key"), second.all("IsTruncated")) == (["main/b"], ["false"])
    key = await lake.ask("GET", "/lake", "uploads&key-marker=main/a/19")
    assert key.all("UploadId") == ids[1:]


async def test_a_marker_that_is_no_upload_id(lake: GatewayLake) -> None:
    upload = await begin(lake, "main/a")
    bad = "upload-id-marker=none"
    refused = await lake.ask("GET", "/lake", f"uploads&key-marker=main/a&{bad}")
    assert (refused.status, refused.code) == (400, "InvalidArgument")
    assert (refused.message, refused.element("ArgumentName")) == (
        "Invalid uploadId marker",
        "upload-id-marker",
    )
    ignored = await lake.ask("GET", "/lake", f"uploads&{bad}")
    assert ignored.all("UploadId") == [upload]


async def test_listings_of_nothing(lake: GatewayLake) -> None:
    assert (await lake.ask("GET", "/lake", "uploads&prefix=main~1/")).all("Key") == []
    assert (await lake.ask("GET", "/lake", "uploads&prefix=/x")).all("Key") == []
    assert (await lake.ask("GET", "/lake", "uploads&max-uploads=0")).all("Key") == []
    assert (await lake.ask("GET", "/river", "uploads")).code == "NoSuchBucket"
