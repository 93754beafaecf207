"""Issued addresses that ran out end, and what clients began at them in the bucket is aborted."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from graveler_service import Service, reason_of, running_service
from lake_links import PATH, Bucket, issue, link, written

from tarn.block.port import BlockKey
from tarn.core.errors import Kind, Reason, TarnError
from tarn.core.ids import UploadId
from tarn_graveler.uploads.daily_partitions import DailyUploads
from tarn_graveler.uploads.links import LINK_SECONDS
from tarn_graveler.uploads.state import Uploads
from tarn_proto.store.v1 import graveler_pb2 as pb

DAY = 86_400
GRACE = 601


class BrokenBucket(Bucket):
    """A bucket that may not answer, and counts the requests."""

    fails = False
    requests = 0

    async def abort_writes(self, key: BlockKey) -> int:
        self.requests += 1
        if self.fails:
            raise TarnError(Kind.UNAVAILABLE, Reason.UNAVAILABLE, "the bucket does not answer")
        return await super().abort_writes(key)


@pytest.fixture
async def service(tmp_path: Path) -> AsyncIterator[Service]:
    async with running_service(tmp_path, store=BrokenBucket) as made:
        made.clock.advance(12 * 3600 - made.clock.now_us() // 1_000_000 % DAY)  # at noon
        yield await made.logged_in()


def bucket_of(service: Service) -> BrokenBucket:
    assert isinstance(service.replicas.blocks, BrokenBucket)
    return service.replicas.blocks


async def one_pass(service: Service) -> None:
    for graveler in service.replicas.made:
        await graveler.abandoned_uploads.abort_due()


async def test_parts_of_a_link_that_ran_out_are_aborted(service: Service) -> None:
    """Not before its time is over for every clock, and not those of a link that is still open."""
    bucket = bucket_of(service)
    await issue(service, part_count=2)
    (left,) = bucket.parts
    service.clock.advance(LINK_SECONDS + GRACE - 2)
    service = await service.logged_in()
    fresh = await issue(service, "raw/b", part_count=2)
    await one_pass(service)
    assert left in bucket.parts
    service.clock.advance(2)
    await one_pass(service)
    assert left not in bucket.parts
    assert len(bucket.parts) == 1
    await written(service, fresh)
    await link(service, fresh.token, path="raw/b")


async def test_a_link_that_ended_says_so(service: Service) -> None:
    late, used = await issue(service), await issue(service, "raw/b")
    for each in (late, used):
        await written(service, each)
    first = await link(service, used.token, path="raw/b")
    service.clock.advance(LINK_SECONDS + GRACE)
    service = await service.logged_in()
    await one_pass(service)
    assert await reason_of(link(service, late.token)) is Reason.LINK_EXPIRED
    assert await link(service, used.token, path="raw/b") == first


async def test_a_bucket_that_does_not_answer_is_asked_again(service: Service) -> None:
    bucket = bucket_of(service)
    await issue(service, part_count=2)
    service.clock.advance(LINK_SECONDS + GRACE)
    bucket.fails = True
    await one_pass(service)
    assert bucket.parts
    bucket.fails = False
    await one_pass(service)
    assert (bucket.parts, bucket.requests) == (frozenset(), 2)
    await one_pass(service)
    assert bucket.requests == 2, "what has ended is not asked for again"


async def test_a_link_that_has_begun_is_not_ended(
    service: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its process checked the time and slept: the record decides who was first."""
    issued = await issue(service)
    await written(service, issued)
    graveler = service.replicas.made[0]
    found: list[bool] = []
    begin = Uploads.begin_complete

    async def slow(uploads: Uploads, repository: object, upload_id: str, digest: bytes) -> object:
        claim = await begin(uploads, repository, upload_id, digest)  # type: ignore[arg-type]
        service.clock.advance(LINK_SECONDS + GRACE)
        await one_pass(service)
        found.append(await graveler.uploads.end_link(repository, upload_id))  # type: ignore[arg-type]
        upload = await graveler.uploads.get(repository, UploadId(upload_id))  # type: ignore[arg-type]
        assert upload.record.state == pb.UPLOAD_STATE_COMPLETING
        return claim

    monkeypatch.setattr(Uploads, "begin_complete", slow)
    await link(service, issued.token)
    assert found == [False]
    service = await service.logged_in()
    page = await service.graveler.list_entries(service.admin, "lake", "main")
    assert list(page.paths) == [PATH]


async def test_a_link_that_sleeps_before_its_claim_finds_the_address_ended(
    service: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    issued = await issue(service)
    await written(service, issued)
    begin = Uploads.begin_complete

    async def slow(uploads: Uploads, repository: object, upload_id: str, digest: bytes) -> object:
        service.clock.advance(LINK_SECONDS + GRACE)
        await one_pass(service)
        return await begin(uploads, repository, upload_id, digest)  # type: ignore[arg-type]

    monkeypatch.setattr(Uploads, "begin_complete", slow)
    assert await reason_of(link(service, issued.token)) is Reason.UPLOAD_NOT_FOUND
    service = await service.logged_in()
    page = await service.graveler.list_entries(service.admin, "lake", "main")
    assert list(page.paths) == []


async def test_a_day_whose_links_have_ended_is_not_read_again(
    service: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One pass reads a day after its last address ran out; later passes read only the days since."""
    graveler = service.replicas.made[0]
    await issue(service)
    today = service.clock.now_us() // (DAY * 1_000_000)
    read: list[int] = []
    links_of = graveler.daily_uploads.run_out_links

    def noted(repository: object, day: int, before_us: int) -> object:
        read.append(day)
        return links_of(repository, day, before_us)  # type: ignore[arg-type]

    monkeypatch.setattr(DailyUploads, "run_out_links", lambda _, *args: noted(*args))
    passes = graveler.abandoned_uploads
    await passes.abort_due()
    service.clock.advance(DAY)
    service = await service.logged_in()
    await issue(service)
    for _ in range(2):
        await passes.abort_due()
    assert read == [today, today, today + 1, today + 1]
