"""What tests of REST clients share."""

from __future__ import annotations

import lakefs_sdk
from lakefs_sdk.client import LakeFSClient
from rest_server import RestServer

from tarn.rpc.process.system import SystemClock

__all__ = ["now", "sdk_of"]


def now() -> float:
    """Returns seconds since 1970."""
    return SystemClock().now_us() / 1e6


def sdk_of(server: RestServer, **keys: str) -> LakeFSClient:
    """Returns a client of `lakefs-sdk`: of the admin, or with other `username`, `password` or `access_token`."""
    mine = {"username": server.access_key_id, "password": server.secret_access_key}
    settings = keys if "access_token" in keys else {**mine, **keys}
    return LakeFSClient(lakefs_sdk.Configuration(host=server.url, **settings))
