"""S3 stores on a test server."""

from __future__ import annotations

import functools
import random
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import boto3
from botocore.config import Config
from tests.support.servers.s3_server import ACCESS_KEY_ID, REGION, SECRET_ACCESS_KEY, S3Server

from tarn.block.s3 import S3BlockStore, S3Limits, S3Settings, open_s3
from tarn.rpc.process.system import SystemClock

PATIENT = S3Limits(part_bytes=5 << 20, attempts=10, pause_seconds=0.02, pause_seconds_max=0.2)


def settings(server: S3Server, namespace: str = "s3://tarn/own", **changes: Any) -> S3Settings:
    values: dict[str, Any] = {
        "endpoint": server.endpoint,
        "path_style": True,
        "access_key_id": ACCESS_KEY_ID,
        "secret_access_key": SECRET_ACCESS_KEY,
        **changes,
    }
    return S3Settings(namespace, **values)


@asynccontextmanager
async def opened(
    server: S3Server, namespace: str = "s3://tarn/own", limits: S3Limits = PATIENT, **changes: Any
) -> AsyncIterator[S3BlockStore]:
    store = await open_s3(
        settings(server, namespace, **changes),
        clock=SystemClock(),
        chance=random.SystemRandom(),
        limits=limits,
    )
    try:
        yield store
    finally:
        await store.close()


@functools.cache
def client(endpoint: str) -> Any:
    """Returns a boto3 client of a server, cached because creating it reads 1 MB of service descriptions."""
    return boto3.session.Session().client(
        "s3",
        endpoint_url=endpoint,
        aws_access_key_id=ACCESS_KEY_ID,
        aws_secret_access_key=SECRET_ACCESS_KEY,
        region_name=REGION,
        config=Config(s3={"addressing_style": "path"}),
    )


def unfinished(server: S3Server, prefix: str) -> list[str]:
    """Returns the keys of the multipart uploads that were never completed or aborted."""
    page = client(server.endpoint).list_multipart_uploads(Bucket="tarn", Prefix=prefix)
    return [row["Key"] for row in page.get("Uploads", ())]
