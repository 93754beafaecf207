"""Counts the rows that a listing of a running Tarn reads, by the events that its replicas tell compactors."""

from __future__ import annotations

import random
from typing import Any

from running_tarn import RunningTarn

from tarn.client.async_client import AsyncClient
from tarn.client.staging_events import StagingEventClient
from tarn.rpc.client.grpc_transport import GrpcTransport
from tarn.rpc.process.system import SystemClock

__all__ = ["client_of", "compactor_status", "listed", "listing_cost"]

_ATTEMPTS = 20


def client_of(tarn: RunningTarn) -> AsyncClient:
    """Returns a client of the admin."""
    return AsyncClient(
        tarn.server,
        auth_addresses=tarn.auth_server if tarn.auth_server != tarn.server else (),
        access_key_id=tarn.access_key_id,
        secret_access_key=tarn.secret_access_key,
        timeout_s=120,
    )


def compactor_status(tarn: RunningTarn) -> Any:
    """Returns what `tarn compact status` tells."""
    server = tarn.state()["compactor_server"]
    return tarn.ok("--json", "--compactor-server", server, "compact", "status").json


def listed(s3: Any, repository: str, prefix: str = "") -> list[str]:
    """Returns all keys of the branch `main` with a prefix."""
    pages = s3.get_paginator("list_objects_v2").paginate(Bucket=repository, Prefix=f"main/{prefix}")
    return [each["Key"] for page in pages for each in page.get("Contents", ())]


async def listing_cost(tarn: RunningTarn, s3: Any, repository: str) -> tuple[int, int]:
    """Lists `main`; returns the rows that all layers gave for it, and the number of its objects.

    A replica counts listings of a branch to which it has written since the branch was sealed. So an object is written
    before, on the same connection, and the listing is repeated until it was counted as a whole.
    """
    addresses = [each.split()[0] for each in compactor_status(tarn)["replicas"]]
    for _ in range(_ATTEMPTS):
        s3.put_object(Bucket=repository, Key="main/zz-touched", Body=b"")
        read, returned = await _counted(tarn, addresses, repository)
        count = len(listed(s3, repository))
        read_then, returned_then = await _counted(tarn, addresses, repository)
        if returned_then - returned >= count:
            return read_then - read, count
    raise AssertionError(f"no replica of {addresses} counts listings of {repository}")


async def _counted(tarn: RunningTarn, addresses: list[str], repository: str) -> tuple[int, int]:
    """Returns the rows that listings of a repository read and returned so far, on all replicas."""
    read = returned = 0
    async with client_of(tarn) as client:
        token = await client.log_in()
        for address in addresses:
            transport = GrpcTransport([address], clock=SystemClock(), rng=random.Random(1))
            try:
                call = client.call()
                call = type(call)(call.request_id, token, call.deadline)
                answer = await StagingEventClient(transport).watch_staging(call, b"", 0, 0)
            finally:
                await transport.close()
            for each in answer.tokens:
                if each.repository_id == repository:
                    read += each.listed_rows_read
                    returned += each.listed_rows_returned
    return read, returned
