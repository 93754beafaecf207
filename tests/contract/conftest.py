"""Fixtures of tests that break the calls of an S3 store."""

from __future__ import annotations

import random
from collections.abc import Iterator

import pytest
from tests.support.servers.s3_server import S3Server


@pytest.fixture(scope="module")
def whole_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[S3Server]:
    with S3Server(tmp_path_factory.mktemp("s3")) as server:
        yield server


@pytest.fixture
def server(whole_server: S3Server) -> Iterator[S3Server]:
    whole_server.proxy.clear()
    yield whole_server
    whole_server.proxy.clear()


@pytest.fixture
def namespace() -> str:
    return f"s3://tarn/{random.randbytes(8).hex()}"
