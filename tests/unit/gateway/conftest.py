"""The gateway over doubles of its neighbours, with repositories (`tests/harness/gateway_lake.py`)."""

from __future__ import annotations

import json
import sys
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import gateway_doubles as doubles
import pytest
from gateway_lake import GatewayLake
from tests.support.clock import ManualClock

from tarn.telemetry.audit.log import AuditConfig, auditing
from tarn.telemetry.meters import Meters


@pytest.fixture
async def lake() -> AsyncIterator[GatewayLake]:
    """A gateway with the repository `lake`: branches main and dev, tag v1."""
    lake = GatewayLake()
    lake.create("lake", "main", "dev", tags=("v1",))
    yield lake
    await lake.transport.close()


@pytest.fixture
async def audited(
    tmp_path: Path,
) -> AsyncIterator[tuple[GatewayLake, Callable[[], list[dict[str, Any]]]]]:
    """A lake whose audit log has reads, too, and a function that ends the log and returns its records."""
    config = AuditConfig(tmp_path, reads=True)
    with auditing(config, "gateway", ManualClock(), Meters(), sys.stdout) as log:
        assert log is not None
        lake = GatewayLake(log)
        lake.create("lake", "main", "dev")

        def records() -> list[dict[str, Any]]:
            assert log.close()
            lines = (tmp_path / "gateway-0.jsonl").read_text().splitlines()
            return [json.loads(line) for line in lines]

        yield lake, records
        await lake.transport.close()


@pytest.fixture
def failure() -> Any:
    """`failure(kind, reason)`: an error for `lake.graveler.fail`."""
    return doubles.error_of
