"""Conditional puts as their clients see them; graveler decides which of several writers wins."""

from __future__ import annotations

import asyncio
import dataclasses
from typing import Any

import pytest
from gateway_lake import GatewayLake

from tarn.core.errors import Kind, Reason

SMALL, LARGE = b"hello, lake\n", bytes(range(256)) * 1024


@pytest.mark.parametrize("body", [SMALL, LARGE])
async def test_puts_are_conditional(lake: GatewayLake, body: bytes) -> None:
    async def put(data: bytes, headers: dict[str, str]) -> Any:
        return await lake.ask("PUT", "/lake/main/a", body=data, headers=headers)

    absent = await put(body, {"If-Match": "*"})
    assert (absent.status, absent.code) == (404, "NoSuchKey")
    assert (await put(body, {"If-Match": '"abc"'})).status == 404
    assert await lake.blocks_of("lake") == []
    made = await put(body, {"If-None-Match": "*"})
    assert made.status == 200
    refused = await put(body, {"If-None-Match": "*"})
    assert (refused.status, refused.code) == (412, "PreconditionFailed")
    assert (await put(body, {"If-Match": '"abc"'})).status == 412
    assert len(await lake.blocks_of("lake")) == 1
    assert (await put(body + b"!", {"If-Match": made.headers["etag"]})).status == 200
    assert (await put(body, {"If-Match": "*"})).status == 200


@pytest.mark.parametrize("body", [SMALL, LARGE])
async def test_a_client_that_repeats_a_conditional_put_gets_its_first_answer(
    lake: GatewayLake, body: bytes
) -> None:
    headers = {"If-None-Match": "*", "amz-sdk-invocation-id": "0a1b2c3d-0000"}
    first = await lake.ask("PUT", "/lake/main/a", body=body, headers=headers)
    blocks = await lake.blocks_of("lake")
    again = await lake.ask("PUT", "/lake/main/a", body=body, headers=headers)
    assert (again.status, again.headers["etag"]) == (200, first.headers["etag"])
    assert await lake.blocks_of("lake") == blocks  # the second attempt's block was removed
    other = headers | {"amz-sdk-invocation-id": "ffffffff-0000"}
    reply = await lake.ask("PUT", "/lake/main/a", body=body, headers=other)
    assert reply.code == "PreconditionFailed"


async def test_a_conditional_put_with_an_unknown_outcome_keeps_its_block(
    lake: GatewayLake, failure: Any
) -> None:
    lake.graveler.fail["stage"] = [failure(Kind.UNKNOWN_OUTCOME, Reason.OUTCOME_UNKNOWN)]
    reply = await lake.ask("PUT", "/lake/main/a", body=LARGE, headers={"If-None-Match": "*"})
    assert reply.status == 503
    assert len(await lake.blocks_of("lake")) == 1


async def test_who_may_not_read_may_not_ask_for_an_etag(lake: GatewayLake) -> None:
    await lake.ask("PUT", "/lake/main/a", body=SMALL)
    match, new = {"If-Match": "*"}, {"If-None-Match": "*"}
    reply = await lake.ask("PUT", "/lake/main/a", body=SMALL, headers=match, key="AKIAWRITER")
    assert (reply.code, reply.reads) == ("AccessDenied", 0)
    blind = await lake.ask("PUT", "/lake/main/b", body=SMALL, headers=new, key="AKIAWRITER")
    assert blind.status == 200


async def test_the_root_of_a_branch_always_exists(lake: GatewayLake) -> None:
    refused = await lake.ask("PUT", "/lake/main/", body=b"", headers={"If-None-Match": "*"})
    assert refused.code == "PreconditionFailed"
    assert (await lake.ask("PUT", "/lake/main/", body=b"", headers={"If-Match": "*"})).status == 200


class CountedBlocks:
    """Counts the blocks that a gateway begins to write; holds removals on request."""

    def __init__(self, lake: GatewayLake) -> None:
        self.begun = 0
        self.removing = asyncio.Event()
        self.may_remove = asyncio.Event()
        self.may_remove.set()
        self._blocks = lake.blocks
        lake.backend = dataclasses.replace(lake.backend, blocks=self)
        lake.handler._backend = lake.backend

    def __getattr__(self, name: str) -> Any:
        return getattr(self._blocks, name)

    async def put(self, *arguments: Any) -> None:
        self.begun += 1
        await asyncio.sleep(0)  # other tasks run in between, as during a disk access
        await self._blocks.put(*arguments)

    async def open_write(self, *arguments: Any) -> Any:
        self.begun += 1
        return await self._blocks.open_write(*arguments)

    async def delete_many(self, *arguments: Any) -> None:
        self.removing.set()
        await self.may_remove.wait()
        await self._blocks.delete_many(*arguments)


NEW = {"If-None-Match": "*"}


@pytest.mark.parametrize("body", [SMALL, LARGE])
async def test_a_loser_is_told_before_a_block_is_written_for_it(
    lake: GatewayLake, body: bytes
) -> None:
    await lake.ask("PUT", "/lake/main/a", body=body)
    blocks = CountedBlocks(lake)
    for headers, status in ((NEW, 412), ({"If-Match": '"abc"'}, 412)):
        reply = await lake.ask("PUT", "/lake/main/a", body=body, headers=headers)
        assert reply.status == status
    absent = await lake.ask("PUT", "/lake/main/b", body=body, headers={"If-Match": "*"})
    assert (absent.status, absent.code) == (404, "NoSuchKey")
    assert blocks.begun == 0
    assert "stage" not in lake.graveler.calls[-3:]


async def test_one_of_several_concurrent_small_puts_through_a_gateway_writes_a_block(
    lake: GatewayLake,
) -> None:
    blocks = CountedBlocks(lake)
    async with asyncio.TaskGroup() as group:
        puts = [
            group.create_task(lake.ask("PUT", "/lake/main/a", body=b"%d" % number, headers=NEW))
            for number in range(8)
        ]
        other = group.create_task(lake.ask("PUT", "/lake/main/b", body=SMALL, headers=NEW))
    assert sorted(put.result().status for put in puts) == [200] + [412] * 7
    assert other.result().status == 200
    assert blocks.begun == 2
    assert len(lake.backend.locks) == 0


async def test_who_may_not_read_is_told_by_the_write(lake: GatewayLake, failure: Any) -> None:
    await lake.ask("PUT", "/lake/main/a", body=SMALL)
    lake.graveler.fail["lookup"] = [failure(Kind.DENIED, Reason.ACCESS_DENIED)]
    reply = await lake.ask("PUT", "/lake/main/a", body=SMALL, headers=NEW, key="AKIAWRITER")
    assert reply.code == "PreconditionFailed"
    assert len(await lake.blocks_of("lake")) == 1


async def test_a_conditional_put_to_a_tag_is_no_lost_race(lake: GatewayLake) -> None:
    await lake.ask("PUT", "/lake/main/a", body=SMALL)
    repo = lake.graveler.repos["lake"]
    repo.tags["v1"] = dict(repo.branches["main"])
    for headers in (NEW, {"If-Match": '"abc"'}):
        reply = await lake.ask("PUT", "/lake/v1/a", body=SMALL, headers=headers)
        assert (reply.status, reply.code) == (405, "MethodNotAllowed")


async def test_the_answer_does_not_wait_until_a_refused_block_is_removed(
    lake: GatewayLake, failure: Any
) -> None:
    await lake.ask("PUT", "/lake/main/a", body=SMALL)
    blocks = CountedBlocks(lake)
    blocks.may_remove.clear()
    # Another gateway's write comes between the check and the write of this one.
    lake.graveler.fail["lookup"] = [failure(Kind.NOT_FOUND, Reason.ENTRY_NOT_FOUND)]
    async with asyncio.timeout(5.0):
        reply = await lake.ask("PUT", "/lake/main/a", body=SMALL, headers=NEW)
        assert (reply.code, blocks.begun) == ("PreconditionFailed", 1)
        await blocks.removing.wait()
    blocks.may_remove.set()
    assert len(await lake.blocks_of("lake")) == 1


async def test_removals_behind_answers_are_bounded(lake: GatewayLake, failure: Any) -> None:
    await lake.ask("PUT", "/lake/main/a", body=SMALL)
    blocks = CountedBlocks(lake)
    bounds = dataclasses.replace(lake.backend.bounds, removals_max=0)
    lake.backend = lake.handler._backend = dataclasses.replace(lake.backend, bounds=bounds)
    lake.graveler.fail["lookup"] = [failure(Kind.NOT_FOUND, Reason.ENTRY_NOT_FOUND)]
    reply = await lake.ask("PUT", "/lake/main/a", body=SMALL, headers=NEW)
    assert (reply.code, blocks.begun) == ("PreconditionFailed", 1)
    assert len(lake.backend.removals) == 0
    assert blocks.removing.is_set()
