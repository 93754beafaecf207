"""The audit log never holds up its caller: what does not fit, or cannot be written, is counted."""

from __future__ import annotations

import json
import threading
from pathlib import Path

import pytest
from tests.support.clock import ManualClock

from tarn.telemetry.audit.log import STRANGERS_PER_SECOND_MAX, AuditConfig, AuditLog, auditing
from tarn.telemetry.audit.record import AuditRecord, Outcome
from tarn.telemetry.meters import Meters


def record(resource: str, outcome: Outcome = Outcome.OK, principal: str = "ada") -> AuditRecord:
    return AuditRecord(0, "s3:PutObject", resource, outcome, "", principal, "AKIA", "", "r1")


class Output:
    """Keeps lines; may be blocked or broken."""

    def __init__(self) -> None:
        self.open = threading.Event()
        self.open.set()
        self.entered = threading.Event()
        self.errors: list[Exception] = []
        self.resources: list[str] = []

    def write(self, text: str) -> None:
        self.entered.set()
        assert self.open.wait(30)
        if self.errors:
            raise self.errors.pop(0)
        self.resources += [json.loads(line)["resource"] for line in text.splitlines()]


def counts(meters: Meters) -> dict[str, float]:
    return {labels["outcome"]: value for labels, value in meters.samples("audit.records")}


def test_a_blocked_output_delays_no_caller_and_the_queue_is_bounded() -> None:
    output, meters = Output(), Meters()
    output.open.clear()
    log = AuditLog("gateway", output, ManualClock(), meters, queue_max=10)
    log.add(record("first"))
    assert output.entered.wait(30)
    for number in range(15):
        log.add(record(f"{number}"))

    assert counts(meters) == {"written": 0, "failed": 0, "dropped": 5, "limited": 0}
    output.open.set()
    assert log.close()
    assert output.resources == ["first", *(f"{number}" for number in range(10))]
    assert counts(meters)["written"] == 11


def test_records_that_cannot_be_written_are_counted_and_later_ones_written() -> None:
    output, meters = Output(), Meters()
    output.errors = [OSError("disk full")]
    log = AuditLog("gateway", output, ManualClock(), meters)
    log.add(record("lost"))
    assert output.entered.wait(30)
    log.add(record("kept"))
    assert log.close()
    assert output.resources == ["kept"]
    assert counts(meters) == {"written": 1, "failed": 1, "dropped": 0, "limited": 0}


def test_strangers_cannot_fill_the_log_but_users_are_always_recorded() -> None:
    output, meters, clock = Output(), Meters(), ManualClock()
    log = AuditLog("gateway", output, clock, meters)
    for _ in range(STRANGERS_PER_SECOND_MAX + 7):
        log.add(record("stranger", Outcome.DENIED, principal=""))
    log.add(record("user", Outcome.DENIED))
    assert log.close()
    assert output.resources == ["stranger"] * STRANGERS_PER_SECOND_MAX + ["user"]
    assert counts(meters)["limited"] == 7


def test_closing_writes_what_waits(tmp_path: Path) -> None:
    config = AuditConfig(folder=tmp_path / "audit")
    with auditing(config, "auth", ManualClock(), Meters(), Output()) as log:
        assert log is not None
        for number in range(2500):
            log.add(record(f"{number}"))
    lines = (tmp_path / "audit" / "auth-0.jsonl").read_text().splitlines()
    assert [json.loads(line)["resource"] for line in lines] == [f"{n}" for n in range(2500)]


def test_without_a_configuration_there_is_no_log() -> None:
    with auditing(None, "auth", ManualClock(), Meters(), Output()) as log:
        assert log is None


def test_a_folder_that_cannot_be_made_is_an_error_at_the_start(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    config = AuditConfig(folder=tmp_path / "file" / "audit")
    with (
        pytest.raises(OSError, match="file"),
        auditing(config, "auth", ManualClock(), Meters(), Output()),
    ):
        pass
