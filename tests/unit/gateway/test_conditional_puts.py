"""Conditional puts as their clients see them; which of several writers wins is graveler's business."""

from __future__ import annotations

from typing import Any

import pytest

from tarn.core.errors import Kind, Reason

SMALL, LARGE = b"hello, lake\n", bytes(range(256)) * 1024


@pytest.mark.parametrize("body", [SMALL, LARGE])
async def test_puts_are_conditional(lake: Any, body: bytes) -> None:
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
    lake: Any, body: bytes
) -> None:
    headers = {"If-None-Match": "*", "amz-sdk-invocation-id": "0a1b2c3d-0000"}
    first = await lake.ask("PUT", "/lake/main/a", body=body, headers=headers)
    blocks = await lake.blocks_of("lake")
    again = await lake.ask("PUT", "/lake/main/a", body=body, headers=headers)
    assert (again.status, again.headers["etag"]) == (200, first.headers["etag"])
    assert await lake.blocks_of("lake") == blocks  # the second attempt's block is gone
    other = headers | {"amz-sdk-invocation-id": "ffffffff-0000"}
    reply = await lake.ask("PUT", "/lake/main/a", body=body, headers=other)
    assert reply.code == "PreconditionFailed"


async def test_a_conditional_put_with_an_unknown_outcome_keeps_its_block(
    lake: Any, failure: Any
) -> None:
    lake.graveler.fail["stage"] = [failure(Kind.UNKNOWN_OUTCOME, Reason.OUTCOME_UNKNOWN)]
    reply = await lake.ask("PUT", "/lake/main/a", body=LARGE, headers={"If-None-Match": "*"})
    assert reply.status == 503
    assert len(await lake.blocks_of("lake")) == 1


async def test_who_may_not_read_may_not_ask_for_an_etag(lake: Any) -> None:
    await lake.ask("PUT", "/lake/main/a", body=SMALL)
    match, new = {"If-Match": "*"}, {"If-None-Match": "*"}
    reply = await lake.ask("PUT", "/lake/main/a", body=SMALL, headers=match, key="AKIAWRITER")
    assert (reply.code, reply.reads) == ("AccessDenied", 0)
    blind = await lake.ask("PUT", "/lake/main/b", body=SMALL, headers=new, key="AKIAWRITER")
    assert blind.status == 200


async def test_the_root_of_a_branch_always_exists(lake: Any) -> None:
    refused = await lake.ask("PUT", "/lake/main/", body=b"", headers={"If-None-Match": "*"})
    assert refused.code == "PreconditionFailed"
    assert (await lake.ask("PUT", "/lake/main/", body=b"", headers={"If-Match": "*"})).status == 200
