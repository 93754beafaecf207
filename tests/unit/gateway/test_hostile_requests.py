"""Whatever a request contains, the answer is an error of the client, and the log has no defect of ours."""

from __future__ import annotations

from typing import Any
from urllib.parse import quote

import pytest
import structlog.testing
from gateway_lake import GatewayLake

from tarn_gateway.operation import COPY_SOURCE, Addressed, Operation
from tarn_gateway.operations.table import OPERATIONS
from tarn_gateway.requests.header_table import ALL, HEADERS

VALUES = [
    "",
    "\xff\xfe",
    "9" * 30,
    "\xb2",
    ",",
    "=?utf-8?q?=?=",
    "bytes=9-0",
    "%ff%fe/%00",
    "Thu, 31 Feb 2000 99:99:99 -9999",
]
TARGETS = {
    Addressed.SERVICE: ["/"],
    Addressed.BUCKET: ["/lake", "/" + "x" * 300, "/a\u2603b", "/.."],
    Addressed.KEY: [
        "/lake/main/a",
        "/lake/main/\x00\x01",
        "/lake/main/" + "\u2603" * 400,
        "/lake/main~99999999999/a",
        "/lake/main@{x}/a",
        "/lake/" + "f" * 65 + "/a",
        "/lake//a",
        "/lake/main//",
    ],
}
PARAMETERS = [
    "prefix", "delimiter", "marker", "max-keys", "continuation-token", "encoding-type", "key-marker", "max-parts",
    "max-uploads", "part-number-marker", "max-buckets", "list-type", "partNumber", "uploadId", "versionId",
    "response-expires", "bucket-region", "version-id-marker",
]  # fmt: skip
BODIES = [
    b"",
    b"<",
    b"<Delete/>",
    b"<Delete><Object><Key>\xff</Key></Object></Delete>",
    b"<AccessControlPolicy/>",
    b"<OwnershipControls><Rule>" * 200,
    b"\x00" * 99,
]


def name(operation: Operation) -> str:
    return operation.name


def query_of(operation: Operation) -> str:
    values = {"partNumber": "1", "uploadId": "0" * 32}
    names = [each for each in operation.selected_by.split() if each != COPY_SOURCE]
    return "&".join(f"{each}={values[each]}" if each in values else each for each in names)


async def refused(
    lake: GatewayLake, operation: Operation, *, headers: dict[str, str], **more: Any
) -> None:
    if COPY_SOURCE in operation.selected_by.split():
        headers = {COPY_SOURCE: "/lake/main/a", **headers}
    sent = {"target": TARGETS[operation.addressed][0], "query": query_of(operation), **more}
    with structlog.testing.capture_logs() as lines:
        reply = await lake.ask(operation.method, headers=headers, **sent)
    assert reply.status < 500 or reply.status == 501, (sent, headers, reply.body)
    assert [line for line in lines if line["log_level"] in ("error", "critical")] == []
    assert reply.line["log_level"] == ("warning" if reply.status == 501 else "info")


@pytest.mark.parametrize("operation", OPERATIONS, ids=name)
async def test_hostile_headers(lake: GatewayLake, operation: Operation) -> None:
    await lake.ask("PUT", "/lake/main/a", body=b"text")
    for row in HEADERS:
        if row.honoured_by == ALL or not row.honours(operation.name):
            continue  # the client signs with them; or `test_header_table` sends them
        for header in row.names.split():
            for value in VALUES:
                await refused(lake, operation, headers={header.replace("*", "x"): value})


@pytest.mark.parametrize("operation", OPERATIONS, ids=name)
async def test_hostile_addresses_queries_and_bodies(
    lake: GatewayLake, operation: Operation
) -> None:
    await lake.ask("PUT", "/lake/main/a", body=b"text")
    for target in TARGETS[operation.addressed]:
        await refused(lake, operation, headers={}, target=target)
    for body in BODIES:
        await refused(lake, operation, headers={}, body=body)
    for parameter in PARAMETERS:
        for value in VALUES:
            more = f"{parameter}={quote(value.encode('latin-1'))}"
            query = "&".join(filter(None, [more, query_of(operation)]))
            await refused(lake, operation, headers={}, query=query)
