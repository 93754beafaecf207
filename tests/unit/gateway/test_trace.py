from __future__ import annotations

import json
from pathlib import Path

import pytest

from tarn.rpc.process.log import LogConfig, logging_to
from tarn_gateway.http import BodyReader, Exchange, Headers, Request
from tarn_gateway.trace import Traces


def exchange(status: int) -> Exchange:
    request = Request("GET", b"/lake/main/a", b"X-Amz-Signature=s", Headers([]), BodyReader(0))
    return Exchange(request, status, 5, 0, 0.0015, None)


@pytest.mark.parametrize(
    ("level", "access_log", "statuses"),
    [
        ("info", True, [200, 503]),
        ("info", False, [503]),
        ("warning", True, [503]),
        ("error", True, []),
    ],
)
def test_logging_follows_the_level_and_the_setting(
    level: str, access_log: bool, statuses: list[int], tmp_path: Path
) -> None:
    output = tmp_path / "log"
    with logging_to(LogConfig(output=str(output), level=level)):
        traces = Traces(access_log=access_log)
        for status in (200, 503):
            traces.end(exchange(status))

    lines = [json.loads(line) for line in output.read_text().splitlines()]
    assert [line["status"] for line in lines] == statuses
    assert all(line["duration_ms"] == 1.5 and line["bytes_out"] == 5 for line in lines)
