"""How many changes a request to the gateway sends to graveler."""

from __future__ import annotations

import pytest
from gateway_lake import GatewayLake

COPY = {"x-amz-copy-source": "/lake/main/a"}


@pytest.mark.parametrize(
    ("method", "path", "headers", "sent"),
    [
        ("PUT", "/lake/main/b", {}, "stage"),
        ("PUT", "/lake/main/b", {"if-none-match": "*"}, "stage"),
        ("PUT", "/lake/dev/b", COPY, "stage"),
        ("PUT", "/pond/main/b", COPY, "stage"),
        ("PUT", "/lake/dev/b", COPY | {"if-none-match": "*"}, "stage"),
        ("DELETE", "/lake/main/a", {}, "unstage"),
    ],
)
async def test_a_request_that_changes_an_object_sends_one_change(
    method: str, path: str, headers: dict[str, str], sent: str, lake: GatewayLake
) -> None:
    """A second one could land after a newer acknowledged write of the key."""
    lake.create("pond", "main")
    await lake.ask("PUT", "/lake/main/a", body=b"small")
    lake.graveler.calls.clear()
    body = b"small" if method == "PUT" and "x-amz-copy-source" not in headers else b""
    done = await lake.ask(method, path, body=body, headers=headers)
    assert done.status in (200, 204), done.body
    assert [each for each in lake.graveler.calls if each in ("stage", "unstage")] == [sent]
