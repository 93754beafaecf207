"""What tests of REST clients share."""

from __future__ import annotations

import re
from pathlib import Path

import lakefs_sdk
from lakefs_sdk.client import LakeFSClient
from rest_server import RestServer

from tarn.rpc.process.system import SystemClock

__all__ = ["blocks", "now", "sdk_of"]

_PAGES = Path(__file__).parents[2] / "docs" / "user"


def blocks(page: str, language: str) -> list[str]:
    """Returns the blocks of a page in a language, in order."""
    return re.findall(rf"```{language}\n(.*?)```", (_PAGES / page).read_text(), re.DOTALL)


def now() -> float:
    """Returns seconds since 1970."""
    return SystemClock().now_us() / 1e6


def sdk_of(server: RestServer, **keys: str) -> LakeFSClient:
    """Returns a client of `lakefs-sdk`: of the admin, or with other `username`, `password` or `access_token`."""
    mine = {"username": server.access_key_id, "password": server.secret_access_key}
    settings = keys if "access_token" in keys else {**mine, **keys}
    return LakeFSClient(lakefs_sdk.Configuration(host=server.url, **settings))
