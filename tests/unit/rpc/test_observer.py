"""Lines of the log about rpcs that services poll: successes stay out of it, failures do not."""

from __future__ import annotations

import pytest
from structlog.testing import capture_logs

from tarn.core.errors import Kind, Reason, TarnError
from tarn.rpc.process.system import SystemClock
from tarn.rpc.server.observer import POLLED, Observer
from tarn.rpc.wire.call import Call
from tarn.rpc.wire.methods import unary_methods
from tarn.telemetry.meters import Meters
from tarn_proto.graveler.v1 import compaction_service_pb2

PAUSE = "GetCompactionPause"
_METHODS = unary_methods(compaction_service_pb2.DESCRIPTOR.services_by_name["CompactionService"])


def levels(method: str, error: TarnError | None) -> list[str]:
    """Returns the levels of the lines of one call."""
    with capture_logs() as lines:
        observer = Observer(method, Meters(), SystemClock())
        observer.rpc(Call("request-1", "", 0.0), "OK", error, 0.0)
    return [line["log_level"] for line in lines if line["event"] == "rpc"]


def test_polled_methods_exist() -> None:
    assert {_METHODS[PAUSE].path} == POLLED


def test_a_successful_poll_is_a_line_at_debug_level() -> None:
    assert levels(_METHODS[PAUSE].path, None) == ["debug"]


@pytest.mark.parametrize(("kind", "level"), [(Kind.UNAVAILABLE, "info"), (Kind.INTERNAL, "error")])
def test_a_failed_poll_is_a_line(kind: Kind, level: str) -> None:
    error = TarnError(kind, Reason.UNAVAILABLE, "it failed")
    assert levels(_METHODS[PAUSE].path, error) == [level]


def test_any_other_call_is_a_line() -> None:
    others = [method.path for method in _METHODS.values() if method.path not in POLLED]
    assert others
    assert {level for each in others for level in levels(each, None)} == {"info"}
